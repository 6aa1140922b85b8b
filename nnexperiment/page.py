"""The page of the thesis's experiment: tables and figures of the runs, compared with the thesis's own.

It shows the experiment of a folder and those in its subfolders: shorter ones, or ones with different devices, images,
validation or network.
"""

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nnclassroom.pages import document, paragraphs, table
from nncourse.errors import write_atomically
from nnexperiment import numbers, page_accuracy, page_energy, page_times, page_unlike, thesis
from nnexperiment.numbers import Experiment
from nnexperiment.plan import MNIST, Plan, image_counts


def written(path: Path, own: Experiment, *others: Experiment) -> str:
    """Write the page. Returns a line that says where it is or, without matplotlib, where the results are."""
    try:
        write(path, own, *others)
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        return f"no page, since matplotlib is not installed; the results are in {path.parent / 'runs'}"
    return f"experiment: {path}"


def write(path: Path, own: Experiment, *others: Experiment) -> None:
    """Write the page for an experiment and those of its subfolders."""
    small = [each for each in (own, *others) if each.plan.network == MNIST]
    unlike = [each for each in (own, *others) if any(result["shares"] for result in each.results)]
    validated = other_validation(others)
    rest = [each for each in others if each not in [*small, *unlike, *validated]]
    same = sorted(
        (each for each in rest if size_of(each.plan) == size_of(own.plan)), key=lambda each: -each.plan.epochs
    )
    parts = [
        head(own),
        settings(own.plan),
        page_times.times(own),
        *map(page_times.short, same),
        page_accuracy.accuracies(own),
        page_accuracy.sizes([each for each in rest if each not in same]),
        page_times.validation(validated),
        *map(page_unlike.unlike, unlike),
        page_energy.energy(own, same),
        the_thesis(),
        memory(own),
        page_accuracy.small_network(small),
    ]
    page = document(f"nncourse: {own.plan.network} on one device and on several", "".join(parts))
    write_atomically(path, lambda new: new.write_text(page, "utf-8"))


def size_of(plan: Plan) -> tuple[str, int, int]:
    return plan.network, plan.height, plan.width


def other_validation(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The experiments that differ from one another only in their validation."""
    plain = Plan()

    def without(plan: Plan) -> Plan:
        usual = {name: getattr(plain, name) for name in ("validation", "validate_every", "validation_batch", "cores")}
        return replace(plan, **usual)

    found = [each for each in experiments if without(each.plan) != replace(each.plan, cores=plain.cores)]
    alike = [without(each.plan) for each in found]
    return [each for each in experiments if without(each.plan) in alike]


def head(own: Experiment) -> str:
    plan, results = own.plan, own.results
    machines = dict.fromkeys(result["machine"] for result in results)
    versions = {name: version for result in results for name, version in result["versions"].items()}
    size = f"{results[0]['parameters']:,} parameters, " if results else ""
    trained, _, tested = image_counts(plan)
    counted = _counted(plan)
    drawn = f"{counted} of {plan.height} × {plan.width} pixels in {plan.classes} classes"
    data = "MNIST" if plan.network == MNIST else drawn if plan.folder else f"{drawn}, in place of the thesis’s fish"
    lines = [
        ("date", datetime.date.today().isoformat()),
        ("machine", "; ".join(machines)),
        ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ("network", f"{plan.network}, {size}float32; SGD, rate {plan.learning_rate:g}, {plan.epochs} epochs"),
        ("data", f"{data}: {trained:,} to train, {tested:,} to test"),
        ("runs", f"{plan.runs} of each kind, in turn, {plan.pause:g} s apart; the page shows medians"),
        ("batch", "the number after the devices: images per step, on each device if it says “each”"),
        ("clock", "covers training, validation and test, but not data, start-up and compilation"),
    ]
    return f"<h1>The thesis’s experiment, repeated</h1>{table(lines, words=2)}"


def _counted(plan: Plan) -> str:
    count = plan.classes * plan.images
    return f"{count:,} photographs" if plan.folder else f"{count:,} generated silhouettes"


def settings(plan: Plan) -> str:
    """Table 4.1."""
    counts = ", ".join(f"{count:,}" for count in image_counts(plan))
    ours = [
        "MNIST" if plan.network == MNIST else _counted(plan),
        str(10 if plan.network == MNIST else plan.classes),
        "28 × 28" if plan.network == MNIST else f"{plan.height} × {plan.width}",
        counts,
        ", ".join(map(str, plan.batch_sizes)),
        f"{plan.learning_rate:g}",
        "SGD",
        str(plan.epochs),
        "NCCL; MPI for the CPU",
        f"{plan.runs}, all with energy, {plan.pause:g} s apart",
    ]
    lines = [[*line, value] for line, value in zip(thesis.SETTINGS, ours, strict=True)]
    heads = ["table 4.1", "the thesis", "here"]
    return f"<h2>Settings</h2>{table(lines, heads, words=3)}"


def memory(own: Experiment) -> str:
    """The memory for samples on a device if they are sent all at once, and if they are sent batch by batch."""
    found = {numbers.label_of(result): result["memory"] for result in own.results}
    lines = [[label, *(f"{size[way] / 1e6:,.1f} MB" for way in ("all", "batch"))] for label, size in found.items()]
    used = "all at once" if own.plan.send == "all" else "batch by batch"
    note = f"These runs sent the samples {used}. Batch by batch, a batch is sent while the one before is used."
    heads = ["", "all at once", "batch by batch"]
    return f"<h2>Memory for samples on each device</h2>{table(lines, heads)}{paragraphs([note])}"


def the_thesis() -> str:
    """Table 4.2, with figures 4.4 and 4.6."""
    about = (
        "The thesis trained ResNet-34 on 9,000 fish masks of 148 × 197 pixels: 100 epochs, batch 128, SGD with rate "
        "0.05, on two Tesla K20m and two Xeon E5-2620. It read the power every 0.5 s. EDP is relative to one GPU's."
    )
    return f"<h2>The thesis’s own numbers</h2>{table(thesis.THESIS, thesis.THESIS_COLUMNS)}{paragraphs([about])}"
