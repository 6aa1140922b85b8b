"""The page's times: the time of each phase, speedups, efficiency, and the cost of validation."""

from collections.abc import Sequence
from typing import Any

from nnclassroom.formats import duration
from nnclassroom.pages import image, paragraphs, table
from nnexperiment import numbers
from nnexperiment.numbers import Experiment, Row
from nnexperiment.page_figures import figure_with_axes, plot_bars, style

SUSPECT = 1.05  # efficiencies above it are suspect
HEADS = ("", "runs", "training", "validation", "test", "total", "images/s", "S", "S of the loop", "E", "E of the loop")


def seconds(value: float) -> str:
    """A time in words that do not wrap in a narrow column."""
    return duration(value).replace(" ", "\u00a0")


def times(own: Experiment) -> str:
    """The experiment's own times, and its speedups as a figure."""
    rows = own.rows
    base = numbers.base_of(rows)
    shown = phases(rows)
    return f"<h2>Times</h2>{times_table(rows, base)}{shown}{scaling(rows, base) if base else ''}"


def short(other: Experiment) -> str:
    """The times of an experiment with fewer epochs of the same images, such as one on a machine with more devices."""
    if not other.results:
        return ""
    rows = other.rows
    dates = sorted({result["date"][:10] for result in other.results})
    about = f"{other.results[0]['machine']}, {dates[-1]}. So few epochs can show times, but not accuracy."
    again = f"nncourse experiment {other.plan.network} --devices {words_of(other)} --out FOLDER"
    heading = f"<h3>{other.plan.epochs} epochs on {', '.join(dict.fromkeys(kind_of(row) for row in rows))}</h3>"
    notes = paragraphs([about, f"To run all epochs on your devices: {again}"])
    base = numbers.base_of(rows)
    return f"{heading}{times_table(rows, base)}{notes}{scaling(rows, base) if base else ''}"


def words_of(other: Experiment) -> str:
    """The devices of an experiment as --devices takes them."""
    kinds = dict.fromkeys((each["kind"], each["count"]) for each in other.results)
    words = {
        "cpu": "cpu{}",
        "gpu": "{}",
        "group": "group1",
        "hybrid": "cpu+{}",
        "unequal": "cpu+cpu",
        "pytorch": "pytorch{}",
    }
    return ",".join(words[kind].format(count - (kind == "hybrid")).replace("cpu1", "cpu") for kind, count in kinds)


def kind_of(row: Row) -> str:
    return row.label.rpartition(",")[0]


def times_table(rows: Sequence[Row], base: Row | None) -> str:
    """Training, validation and test, speedup and efficiency."""
    lines, notes = [], []
    over_base = numbers.speedups(rows, base) if base else []
    for number, row in enumerate(rows):
        mark = "≈ " if row.partial else ""
        ratios = ["–"] * 4
        if base:
            whole, loop = over_base[number]
            ratios = [f"{mark}{ratio:.3g}" for ratio in (whole, loop)]
            shares = [numbers.efficiency(row, base, ratio) for ratio in (whole, loop)]
            ratios += [f"{share:.3f}" if share else "–" for share in shares]
            if (most := max(share or 0.0 for share in shares)) > SUSPECT:
                notes.append(suspicion(row, base, most))
        spread = f" ({seconds(row.spread[0])} to {seconds(row.spread[1])})" if row.runs > 1 else ""
        validation = seconds(row.validation) if row.validation else "–"
        measured = [mark + seconds(row.loop), validation, mark + seconds(row.test), mark + seconds(row.total) + spread]
        lines.append([row.label, str(row.runs), *measured, f"{row.images_a_second:,.4g}", *ratios])
        if row.kind == "group":
            notes.append(
                f"{row.label}: this shows what the loop for several devices costs on one. In the thesis: 1 to 2 %."
            )
        if row.partial:
            notes.append(
                f"{row.label}: only {row.partial} steps were trained. ≈ marks estimates for all epochs at that speed, "
                "without validation."
            )
    over = f"S is the speedup over {base.label}; E is the efficiency, S over the number of devices." if base else ""
    return table(lines, HEADS) + paragraphs([over, *notes])


def suspicion(row: Row, base: Row, efficiency: float) -> str:
    """Why an efficiency above 1 cannot be believed as it is."""
    said = f"{row.label}: an efficiency of {efficiency:.2f} is suspect, since they do the work of one and communicate."
    own, single = (" or ".join(map(str, each.threads)) for each in (row, base))
    if own != single:
        return f"{said} Each had {own} threads; {base.label} had {single}: set --threads."
    return (
        f"{said} Either other programs slowed down {base.label}, which more runs would show, or its batch did not fit "
        "into a cache into which each device's part fits."
    )


def phases(rows: Sequence[Row]) -> str:
    """Figure 4.3."""
    whole = [row for row in rows if not row.partial]
    if not whole:
        return ""
    parts = {name: [getattr(row, field) for row in whole] for name, field in PHASES.items()}
    figure, axes = figure_with_axes(height=1 + 0.45 * len(whole))
    plot_bars(axes, [row.label for row in whole], parts, "time, s")
    said = "; ".join(f"{row.label}: {row.loop:.3g}, {row.validation:.3g} and {row.test:.3g} s" for row in whole)
    about = (
        "Compare the thesis’s figure 4.3. Its power shows 50 s of training and 5 s of validation per epoch. There each "
        "device validated all images, so this part did not shrink. Here the devices share the images."
    )
    text = f"Training, validation and test. {said}"
    return image(figure, text, whole=True) + paragraphs([about])


PHASES = {"training": "loop", "validation": "validation", "test": "test"}  # words, and fields of a Row


def scaling(rows: Sequence[Row], base: Row) -> str:
    """Amdahl's p of each series, and the speedups as a figure."""
    found = numbers.series(rows, base)
    if not found:
        return ""
    notes: list[str] = []
    lines: dict[str, tuple[list[int], Sequence[float]]] = {}
    for label, some in found.items():
        p = numbers.amdahl(some, base)
        counts = [row.count for row in some]
        whole, loop = zip(*numbers.speedups(some, base), strict=True)
        lines |= {label: (counts, whole), f"{label}, loop alone": (counts, loop)}
        notes.append(
            f"{label}: Amdahl's p = {p:.4f} fits best, which limits the speedup to {1 / (1 - p):.3g}."
            if p is not None and p < 1
            else f"{label}: Amdahl's p = 1 fits best, which does not limit the speedup."
        )
    said = "; ".join(
        f"{label}: " + ", ".join(f"{s:.3g} on {k}" for k, s in zip(*line, strict=True)) for label, line in lines.items()
    )
    figure = image(_speedup_figure(lines), f"Speedup over {base.label}. {said}", whole=True)
    return f"<h3>Speedup</h3>{paragraphs(notes)}{figure}"


def _speedup_figure(lines: dict[str, tuple[list[int], Sequence[float]]]) -> Any:
    figure, axes = figure_with_axes()
    counts = sorted({count for line, _ in lines.values() for count in line})
    axes.plot(counts, counts, color="0.6", label="ideal")
    for number, (label, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, label=label, **style(number))
    axes.set(xlabel="devices", ylabel="speedup", xticks=counts)
    axes.legend(frameon=False, fontsize=8)
    return figure


def validation(experiments: Sequence[Experiment]) -> str:
    """Figure 3.7: the time of validation, by the number of images, how often it is done, and how many at once."""
    lines = []
    for each in experiments:
        for result in each.results:
            if not result["seconds"]["validation"]:
                continue
            training, held = (sum(result["seconds"][phase]) for phase in ("train", "validation"))
            once = each.plan.validation_batch or result["batch"]
            counts = [f"{result[name]:,}" for name in ("images_an_epoch", "images_validated")]
            settings = [*counts, str(each.plan.validate_every), str(once)]
            one = held / len(result["seconds"]["validation"])
            times = [seconds(training / result["epochs"]), seconds(one), f"{held / (training + held):.1%}"]
            lines.append([f"{each.plan.validation:.0%}", *settings, *times])
    if not lines:
        return ""
    heads = [
        "validated",
        "training images",
        "validation images",
        "every … epochs",
        "images at once",
        "time per epoch",
        "time per validation",
        "share of the time",
    ]
    about = (
        "In the thesis’s figure 3.7, validating 10 % of the images took longer than training on 70 %, so it kept only "
        "1 %. It does not say why. A forward pass is about a third of a step’s work, so 10 % should take a twentieth "
        "of the time. But its pseudo-code 3.3 validates image by image; its batch size is for training only. One image "
        "at a time leaves most of a GPU idle. The run with 1 image at once shows what that costs here."
    )
    plan = experiments[0].plan
    size = f"{plan.network}, {plan.height} × {plan.width} pixels, {plan.epochs} epochs."
    return f"<h2>Cost of validation</h2>{paragraphs([size])}{table(lines, heads)}{paragraphs([about])}"
