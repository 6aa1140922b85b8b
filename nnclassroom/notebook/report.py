"""`nncourse report`: one printable HTML page to hand in, with progress, kernels, speedups and results.

The record of kept kernels is not trusted: each kernel is checked and timed again.
"""

import datetime
import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from cuda_on_cpu import emulate
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import by_notebook, exercises
from nnclassroom.formats import duration, times_as_fast
from nnclassroom.judge import worker
from nnclassroom.judge.kinds import STATE_WORDS
from nnclassroom.notebook import speedup
from nnclassroom.notebook.exercise import SIGNS, Outcome, timed
from nnclassroom.notebook.speedup import BATCH, RATE, Time
from nnclassroom.pages import cells, document, image, paragraphs, table
from nnclassroom.timing import limits_in_words
from nncourse import device as devices
from nncourse.catalogue import operations
from nncourse.datasets import Dataset
from nncourse.errors import CourseError, read_text, write_atomically
from nncourse.kernels.operation import Operation
from nncourse.model import metrics
from nncourse.model.training import refuse_bad_options

ROW_WORDS = {"date": "date", "versions": "versions"}
OWN_WORDS = "report.md"  # beside the kept kernels
QUESTIONS = (
    "How did you split training and testing into kernels, and what does one thread, one block compute in each?",
    "Where are the data and the weights while the network trains, and when are they moved?",
    "What speedup over the CPU did you reach on these data, and what keeps it from being larger?",
    "Which change to a kernel gained the most, which gained nothing, and why?",
    "What is the address of the git repository with your code?",
)


@dataclass(frozen=True)
class Kept:
    """A kept kernel: its record, its present text, and the outcome of checking and timing it again."""

    operation: Operation
    name: str
    entry: dict[str, Any]
    text: str
    outcome: Outcome


def write(
    path: Path, student: str = "", dataset: str | None = None, epochs: int = 100, label: str | None = None
) -> None:
    """Check, time and train, which may take minutes, and write the page to `path`.

    Invalid options and data raise CourseError first. `dataset` and `label`: see speedup.load_sets.
    """
    say = functools.partial(print, flush=True)
    refuse_bad_options(epochs, BATCH, RATE)
    raw, raw_test, whence = speedup.load_sets(dataset, label)
    for note in (*raw.notes, *raw_test.notes):
        say(note)
    words, record = own_words(), kept_kernels.progress()
    data, test = speedup.scaled(raw, raw_test)
    keys = in_order(record)
    kept = []
    for number, key in enumerate(keys, 1):
        say(f"kernel {number} of {len(keys)}: {key}", end=" ")
        operation, _, name = key.partition(".")
        kept.append(examine(find(operation), name, record[key]))
        say(SIGNS[kept[-1].outcome.state])
    refused = [f"{each.operation.name}.{each.name}" for each in kept if each.outcome.state != "right"]
    times = []
    for contender in speedup.CONTENDERS:
        say(f"training with {contender.label}", end=": ")
        times.append(speedup.measure(contender, data, test, refused))
        say(f"{duration(times[-1].step)} a step" if times[-1].step else times[-1].note)
    say(f"batches of {', '.join(map(str, speedup.BATCHES))}")
    by_batch, stopped = speedup.over_batches(times, data, test)
    by = speedup.fastest(times)
    steps = epochs * -(-len(data.X) // BATCH)
    say(f"{epochs} epochs with {by.contender.label} for the results: about {duration(steps * by.seconds_a_step)}")
    results = learnt(by, data, test, epochs)
    transfers = speedup.transfer_seconds(data) if devices.gpu_available() else None
    parts = [
        head(student, raw, len(raw_test.X), whence),
        progress(kept),
        "<h2>Your kernels</h2>" + ("".join(map(kernel, kept)) or "<p>You have kept none yet.</p>"),
        training(times, by_batch, stopped, transfers),
        results,
        "<h2>In your own words</h2>" + words,
    ]
    write_atomically(path, lambda new: new.write_text(document("nncourse: report", "".join(parts)), "utf-8"))


# ---- collecting the contents


def in_order(record: dict[str, dict[str, Any]]) -> list[str]:
    """The keys of the kept kernels: first the exercises in the order of the course, then other kernels."""
    course = [exercise.key for exercise in exercises()]
    others = [key for key in record if key not in course and key.partition(".")[0] in operations()]
    return [key for key in course if key in record] + others


def examine(operation: Operation, name: str, entry: dict[str, Any]) -> Kept:
    """Check a kept kernel in the worker, whatever its record says, and time it if it is right."""
    launch, text, title = entry.get("launch"), "", f"{operation.name} ({name})"
    try:
        text = kept_kernels.text_of(operation, name, launch)
        if launch and not devices.gpu_available() and (reason := emulate.why_not()):
            outcome = Outcome("open", f"{title}: cannot be checked here: {reason}")
        elif verdict := kept_kernels.judged(operation, name, text, launch):
            kernel = kept_kernels.build(operation, name, text, launch) if launch else None  # Python texts run elsewhere
            table, notes = timed(operation, name, text, launch, kernel)
            outcome = Outcome("right", verdict.line, tuple(notes), table)
        else:
            outcome = Outcome("wrong", verdict.line)
    except Exception as error:  # the student's code may raise anything, and must not prevent the rest of the page
        said = error if isinstance(error, CourseError) else f"{type(error).__name__}: {error}"
        outcome = Outcome("wrong", f"{title}: {said}")
    return Kept(operation, name, entry, text, outcome)


def own_words() -> str:
    """The student's report.md as HTML: lines that begin with # are headings, the rest plain paragraphs.

    If there is none, the questions to answer. Raises CourseError if the file is not UTF-8 text.
    """
    path = kept_kernels.folder() / OWN_WORDS
    try:
        text = read_text(path, kept_kernels.MOST_TEXT) if os.path.lexists(path) else ""
    except CourseError as error:
        raise CourseError(f"{path}: expected your answers as UTF-8 text, but {error}") from None
    parts = [part for part in re.split(r"(?m)^(#+ .*)$|\n\s*\n", text) if part and part.strip()]
    if not parts:
        asked = "".join(f"<li>{escape(question)}</li>" for question in QUESTIONS)
        return f"<p>Write your answers to these questions into {OWN_WORDS}, beside your kernels:</p><ol>{asked}</ol>"
    tags = [("h3", part.lstrip("# ")) if part.startswith("#") else ("p", part.strip()) for part in parts]
    return "".join(f"<{tag}>{escape(part)}</{tag}>" for tag, part in tags)


# ---- the parts of the page


def head(student: str, data: Dataset, tests: int, whence: str) -> str:
    """Student, date, machine, versions and data."""
    synthetic = "; synthetic: its results say nothing about fraud" if data.name == "credit_card_standin" else ""
    counts = zip(np.bincount(data.labels, minlength=len(data.classes)), data.classes, strict=True)
    classes = ", ".join(f"{count} of class {name}" for count, name in counts)
    versions = devices.versions() | worker.call(devices.versions, seconds=60)  # only the worker imports PyTorch
    lines = [("student", student)] if student else []
    lines.append((ROW_WORDS["date"], datetime.date.today().isoformat()))
    for name in ("cpu", "gpu") if devices.gpu_available() else ("cpu",):
        lines.append((name.upper(), f"{devices.describe(name)}; measured: {limits_in_words(name)}"))
    if not devices.gpu_available():
        lines.append(("GPU", f"none: {devices.why_no_gpu()}"))
    lines.append((ROW_WORDS["versions"], ", ".join(f"{name} {version}" for name, version in versions.items())))
    said = f"{data.name}{synthetic}; {len(data.X)} rows to train ({classes}); {tests} to test, {whence}"
    lines.append(("data set", said))
    return f"<h1>Neural networks by kernels: report</h1>{table(lines, words=2)}"


def progress(kept: Sequence[Kept]) -> str:
    """A table of all exercises: open, or the result of the check now, and the recorded date and machine."""
    known = {(each.operation.name, each.name): each for each in kept}
    body, right = "", 0
    for notebook, group in by_notebook().items():
        body += f"<tbody>{cells([notebook], 4, 'th')}"
        for exercise in group:
            found = known.get((exercise.operation, exercise.kernel))
            texts = [f"{exercise.operation} ({exercise.kernel})", STATE_WORDS["open"]]
            if found:
                state, line = found.outcome.state, found.outcome.line.splitlines()[0]
                right += state == "right"
                day, machine = (str(found.entry.get(what, "")) for what in ("date", "machine"))
                texts = [texts[0], "✓ right" if state == "right" else f"{SIGNS[state]} {line}", day[:10], machine]
            body += cells(texts, columns=4, words=4)
        body += "</tbody>"
    first = cells(["exercise", "checked now", "kept", "on"], tag="th", words=4)
    count = f"<p>{right} of {len(exercises())} exercises are done and right.</p>"
    return f'<h2>Progress</h2>{count}<table class="progress"><thead>{first}</thead>{body}</table>'


def kernel(kept: Kept) -> str:
    """A kernel's equation, launch, text, verdict and times."""
    launch = kept.entry.get("launch") or {}
    words = ", ".join(f"{key} {' × '.join(map(str, v)) if isinstance(v, list) else v}" for key, v in launch.items())
    lines = "\n".join(f"<li>{escape(line)}</li>" for line in kept.text.splitlines())
    formula = f"{kept.operation.formula} {kept.operation.equation}".strip()
    return (
        f"<section><h3>{escape(f'{kept.operation.name} ({kept.name})')}</h3>"
        f"<p>{escape(formula)}{f'<br>launch: {escape(words)}' if words else ''}</p>"
        + (f'<ol class="source">{lines}</ol>' if lines else "")
        + f"{kept.outcome.html(folded=False)}</section>"
    )


def training(
    times: Sequence[Time], by_batch: dict[str, dict[int, float]], stopped: Sequence[str], transfers: float | None
) -> str:
    """The table of training and test times, a figure of the speedups, and the speedup from CPU to GPU."""
    from nnclassroom.figures.common import plot_speedups

    columns = ["contender", "on", "epoch", "a step", "× C", "× loops", "× numpy", "test"]
    lines = []
    for time in times:
        start = [time.contender.label, time.device]
        epoch = duration(time.epoch) if time.epoch else f"only {time.rows} rows"
        found = [speedup.ratio(times, base, time) for base in (speedup.C, "loops", "numpy")]
        ratios = [times_as_fast(value) if value else "–" for value in found]
        numbers = [epoch, duration(time.step), *ratios, duration(time.test) if time.test else "–"] if time.step else []
        lines.append([*start, *(numbers or [time.note])])
    notes = [f"{time.contender.label}: your kernels for {time.note}." for time in times if time.step and time.note]
    notes += stopped
    cpu, gpu = speedup.fastest(times, "cpu"), [time for time in times if time.device == "gpu" and time.step]
    if gpu:
        best = speedup.fastest(gpu)
        gain = times_as_fast(cpu.seconds_a_step / best.seconds_a_step)
        notes.append(f"From CPU to GPU: {best.contender.label} is {gain} as fast as {cpu.contender.label}.")
    else:
        notes.append(f"From CPU to GPU: not measured. {devices.why_no_gpu() or 'Nothing could be trained there'}.")
    over_c = [(each, speedup.ratio(times, speedup.C, each)) for each in [cpu, *([best] if gpu else [])]]
    gains = [
        f"{each.contender.label} on the {each.device.upper()} {times_as_fast(gain)}" for each, gain in over_c if gain
    ]
    if gains:
        notes.append(f"Speedup over the plain C program, which the handout asks for: {', '.join(gains)}.")
    if gpu and transfers and best.epoch:
        share = 100 * transfers / (transfers + best.epoch)
        words = f"with one epoch that is {share:.2g} % of the time, with more epochs less"
        notes.append(f"The rows are sent to the GPU once, in {duration(transfers)}: {words}.")
    bars = {time.contender.label: value for time in times if (value := speedup.ratio(times, "loops", time))}
    said = "; ".join(f"{label} {times_as_fast(value)}" for label, value in bars.items())
    more = "; ".join(f"{label} {_by_size(values)}" for label, values in by_batch.items())
    alt = f"Speedup over loops, batch {BATCH}: {said}. Over numpy, by batch size: {more}."
    about = (
        f"Batch size {BATCH}, learning rate {RATE}; median over several epochs, with the data "
        "already on the device. Test: all test rows go through the network and are counted. Speedups are those of a "
        "step. The contenders called fused or one kernel, and C, compute fused epochs; the others call a kernel for "
        "each operation, as they would call yours. C is a plain program of one thread (fused_epochs/dense_plain.c), in "
        "double precision with -O3; fast: also with -march=native -ffast-math."
    )
    figure = image(plot_speedups(bars, "loops", by_batch), alt, whole=True)
    return f"<h2>Speedup</h2><p>{about}</p>{table(lines, columns, words=2)}{paragraphs(notes)}{figure}"


def learnt(by: Time, data: Dataset, test: Dataset, epochs: int) -> str:
    """Train a new network with the fastest contender, and show its results on the test rows."""
    from nnclassroom.figures.common import plot_confusion, plot_history

    network, backend = speedup.network_for(data), by.backend
    assert backend
    history = speedup.fit(network, data, backend, epochs)
    M = metrics.confusion(network, test.X, test.Y, backend)
    words = (
        f"The {network}, after {len(history.epochs)} epochs with {by.contender.label} "
        f"({duration(history.seconds)} of training). {history.stopped}"
    )
    costs = f"Cost over the epochs, from {history.costs[0]:.3g} to {history.costs[-1]:.3g}"
    counts = "; ".join(f"of {name}: {', '.join(map(str, row))}" for name, row in zip(test.classes, M, strict=True))
    figures = image(plot_history(history), costs)
    figures += image(plot_confusion(M, test.classes), f"Confusion matrix, a row for each true class: {counts}")
    report = escape(metrics.report(M, test.classes))
    return f"<h2>Results on the test rows</h2><p>{escape(words)}</p><pre>{report}</pre><p>{figures}</p>"


def _by_size(values: dict[int, float]) -> str:
    return ", ".join(f"{times_as_fast(values[size])} at {size}" for size in sorted(values))
