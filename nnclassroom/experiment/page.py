"""The page of the thesis's experiment: tables and figures of the runs, and the thesis's own numbers."""

import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nnclassroom.experiment import numbers
from nnclassroom.experiment.numbers import Result, Row
from nnclassroom.experiment.plan import Plan, image_counts
from nnclassroom.formats import duration
from nnclassroom.pages import document, image, paragraphs, table
from nnclassroom.recorded_words import in_words
from nncourse.errors import write_atomically
from nncourse.parallel.energy import NOT_IDLE

EDPS = ("edp_used", "edp_above_idle", "edp_all")  # fields of numbers.Consumed
EACH = 8  # most devices in a figure of the power


def write(path: Path, plan: Plan, results: Sequence[Result]) -> None:
    """Write the page for these runs of the plan."""
    trained, _, tested = image_counts(plan)
    rows = numbers.rows_of(results, plan.epochs, trained, tested)
    base = numbers.base_of(rows)
    parts = [
        head(plan, results, trained, tested),
        times(rows, base),
        scaling(rows, base) if base else "",
        accuracies(rows, results),
        energy(rows, base, results),
        memory(plan, results),
        thesis(),
    ]
    page = document(f"nncourse: {plan.network} on one device and on several", "".join(parts))
    write_atomically(path, lambda new: new.write_text(page, "utf-8"))


def seconds(value: float) -> str:
    """A time that is not broken in a narrow column."""
    return duration(value).replace(" ", "\u00a0")


def head(plan: Plan, results: Sequence[Result], trained: int, tested: int) -> str:
    machines = dict.fromkeys(result["machine"] for result in results)
    versions = {name: version for result in results for name, version in result["versions"].items()}
    size = f"{results[0]['parameters']:,} parameters, " if results else ""
    lines = [
        ("date", datetime.date.today().isoformat()),
        ("machine", "; ".join(machines)),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("network", f"{plan.network}, {size}float32; SGD, rate {plan.learning_rate:g}, {plan.epochs} epochs"),
        (
            "data",
            f"{9 * plan.images:,} generated silhouettes of {plan.height} × {plan.width} pixels in 9 classes, in place "
            f"of the thesis's fish: {trained:,} to train, {tested:,} to test",
        ),
        ("runs", f"{plan.runs} of each kind in turn, {plan.pause:g} s apart; medians are shown"),
        ("batch", "the number behind the devices: so many images a step on each of them"),
        ("clock", "training, validation after each epoch, and the test; neither data nor start nor compiling"),
    ]
    return f"<h1>The thesis’s experiment, repeated</h1>{table(lines, words=2)}"


def times(rows: Sequence[Row], base: Row | None) -> str:
    """Training, validation and test, speedup and efficiency."""
    lines, notes = [], []
    over_base = numbers.speedups(rows, base) if base else []
    for number, row in enumerate(rows):
        mark = "≈ " if row.partial else ""
        ratios = ["–"] * 4
        if base:
            whole, loop = over_base[number]
            ratios = [f"{mark}{ratio:.3g}" for ratio in (whole, loop)]
            ratios += [f"{ratio / row.count:.3f}" if row.kind == base.kind else "–" for ratio in (whole, loop)]
        spread = f" ({seconds(row.spread[0])} to {seconds(row.spread[1])})" if row.runs > 1 else ""
        validation = seconds(row.validation) if row.validation else "–"
        measured = [mark + seconds(row.loop), validation, mark + seconds(row.test), mark + seconds(row.total) + spread]
        lines.append([row.label, str(row.runs), *measured, f"{row.images_a_second:,.4g}", *ratios])
        if row.partial:
            notes.append(
                f"{row.label}: only {row.partial} steps were trained. ≈ is what all epochs would take at that rate, "
                "without validation."
            )
    over = f"Speedups S are over {base.label}; efficiency E is S over the number of devices." if base else ""
    heads = ["", "runs", "training", "validation", "test", "in all", "images/s", "S", "S of the loop", "E", "E, loop"]
    return f"<h2>Times</h2>{table(lines, heads)}" + paragraphs([over, *notes])


def scaling(rows: Sequence[Row], base: Row) -> str:
    """Amdahl's p of each series, and the speedups as a figure."""
    found = numbers.series(rows, base)
    if not found:
        return ""
    notes, lines = [], {}
    for label, some in found.items():
        p = numbers.amdahl(some, base)
        counts = [row.count for row in some]
        whole, loop = zip(*numbers.speedups(some, base), strict=True)
        lines |= {label: (counts, whole), f"{label}, loop alone": (counts, loop)}
        notes.append(
            f"{label}: Amdahl's p = {p:.4f} fits best. So at most {1 / (1 - p):.3g} times as fast with any number."
            if p is not None and p < 1
            else f"{label}: no p below 1 fits better than 1."
        )
    said = "; ".join(
        f"{label}: " + ", ".join(f"{s:.3g} on {k}" for k, s in zip(*line, strict=True)) for label, line in lines.items()
    )
    figure = image(_speedup_figure(lines), f"Speedup over {base.label}. {said}", whole=True)
    return f"<h2>Speedup</h2>{paragraphs(notes)}{figure}"


def accuracies(rows: Sequence[Row], results: Sequence[Result]) -> str:
    """The least, mean and greatest accuracy over the runs, and the first runs' accuracy over the epochs."""
    reached = [row for row in rows if row.accuracy is not None]
    if not reached:
        return ""
    lines = [[row.label, str(row.runs), *(f"{value:.1%}" for value in row.accuracy)] for row in reached]
    first = [result for result in results if result["run"] == 1 and result["accuracies"]]
    curves = {numbers.label_of(result): result["accuracies"] for result in first}
    words = "; ".join(f"{label}: {values[-1]:.1%} at last" for label, values in curves.items())
    figure = image(_accuracy_figure(curves), f"Accuracy on the validation images, first runs. {words}", whole=True)
    broken = [result["name"] for result in results if not result["finite"]]
    notes = [f"In {', '.join(broken)} the parameters are no longer finite: take a smaller rate."] if broken else []
    heads = ["on the test images", "runs", "least", "mean", "most"]
    return f"<h2>Accuracy</h2>{table(lines, heads)}{paragraphs(notes)}{figure}"


def energy(rows: Sequence[Row], base: Row | None, results: Sequence[Result]) -> str:
    """Joules and EDP with and without idle power, and power over time; or why they cannot be measured here."""
    missing = dict.fromkeys(in_words(line) for result in results for line in result["not_measured"])
    notes = [f"{line[0].upper()}{line[1:]}." for line in missing]
    measured = [row for row in rows if row.consumed]
    if not measured:
        return f"<h2>Energy</h2>{paragraphs(notes)}"
    reference = base.consumed if base else None
    lines = []
    for row in measured:
        found = row.consumed
        ratios = ["–"] * 3
        if reference:
            pairs = [(getattr(found, name), getattr(reference, name)) for name in EDPS]
            ratios = [f"{ours / theirs:.3g}" if ours > 0 and theirs > 0 else "–" for ours, theirs in pairs]
        joules = [f"{value:.4g}" if value > 0 else "–" for value in (found.used, found.above_idle, found.all)]
        if math.isnan(found.above_idle):
            notes.append(f"{row.label}: {NOT_IDLE}.")
        lines.append([row.label, *joules, *ratios])
        if not row.trusted:
            notes.append(f"{row.label}: shorter than 2 s, in which a counter is renewed too seldom to be trusted.")
    over = f", over that of {base.label}" if base and reference else ""
    about = (
        "J is the energy of the devices that a run uses, as their counters have it; above idle, without what they take "
        f"while nothing runs; all, with the devices that it leaves idle. EDP is energy times time{over}."
    )
    heads = ["", "J", "J above idle", "J of all", "EDP", "EDP above idle", "EDP of all"]
    figures = "".join(_power_image(result) for result in results if result["run"] == 1 and result["power"]["seconds"])
    return f"<h2>Energy</h2>{table(lines, heads)}{paragraphs([about, *notes])}{figures}"


def memory(plan: Plan, results: Sequence[Result]) -> str:
    """The memory that the samples take on a device if they are sent all at once, and batch by batch."""
    found = {numbers.label_of(result): result["memory"] for result in results}
    lines = [[label, *(f"{size[way] / 1e6:,.1f} MB" for way in ("all", "batch"))] for label, size in found.items()]
    used = "all at once" if plan.send == "all" else "batch by batch"
    note = f"These runs sent them {used}. Batch by batch, the next one travels while one is computed with."
    heads = ["", "all at once", "batch by batch"]
    return f"<h2>Samples on each device</h2>{table(lines, heads)}{paragraphs([note])}"


def thesis() -> str:
    """The thesis's table."""
    about = (
        "ResNet-34 on 9,000 fish masks of 148 × 197 pixels, 100 epochs, batch 128, SGD with rate 0.05; two Tesla K20m "
        "and two Xeon E5-2620. Energy from power readings every 0.5 s. EDP is over that of one GPU."
    )
    return f"<h2>The thesis’s own numbers</h2>{table(numbers.THESIS, numbers.THESIS_COLUMNS)}{paragraphs([about])}"


# ---- figures


def _axes(width: float = 8.0, height: float = 3.6) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure((width, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _style(number: int) -> dict[str, str]:
    return {"marker": "os^Dv"[number % 5], "linestyle": ("-", "--", "-.", ":")[number % 4]}


def _speedup_figure(lines: dict[str, tuple[list[int], list[float]]]) -> Any:
    figure, axes = _axes()
    counts = sorted({count for line, _ in lines.values() for count in line})
    axes.plot(counts, counts, color="0.6", label="ideal")
    for number, (label, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, label=label, **_style(number))
    axes.set(xlabel="devices", ylabel="speedup", xticks=counts)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _accuracy_figure(curves: dict[str, list[float]]) -> Any:
    figure, axes = _axes()
    for number, (label, values) in enumerate(curves.items()):
        axes.plot(range(1, len(values) + 1), values, label=label, linestyle=_style(number)["linestyle"])
    axes.set(xlabel="epoch", ylabel="accuracy, validation", ylim=(0, 1))
    axes.legend(frameon=False, fontsize=8)
    return figure


def _power_image(result: Result) -> str:
    """Watts over the seconds of one run."""
    figure, axes = _axes(height=2.6)
    seconds, said = result["power"]["seconds"], []
    devices = list(zip(result["energies"], result["power"]["watts"], strict=True))[:EACH]
    for number, (device, watts) in enumerate(devices):
        axes.plot(seconds, watts, label=device["name"], linewidth=0.9, linestyle=_style(number)["linestyle"])
        said.append(f"{device['name']}: {device['joules'] / device['seconds']:.4g} W in the mean")
    axes.set(xlabel="time, s", ylabel="power, W", title=numbers.label_of(result))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    return image(figure, f"Power over time, {numbers.label_of(result)}. {'; '.join(said)}", whole=True)
