"""The page's energy: joules and EDP, with and without idle devices, and power over time."""

import math
from collections.abc import Sequence
from typing import Any

from nnclassroom.pages import image, paragraphs, table
from nnclassroom.recorded_words import in_words
from nncourse.parallel.energy import NOT_IDLE
from nnexperiment import numbers
from nnexperiment.numbers import Experiment, Result, Row
from nnexperiment.page_figures import figure_with_axes, style

EDPS = ("edp_used", "edp_above_idle", "edp_all")  # fields of numbers.Consumed
EACH = 8  # most devices in a figure of the power
UNLIKE_HOSTS = (
    "These runs were measured on machines with different numbers of GPUs, so “all” includes more idle devices in some "
    "runs than in others. Compare it only between runs on the same machine."
)
CLOSE = 3  # epochs in the enlarged part of such a figure


def energy(own: Experiment, short: Sequence[Experiment] = ()) -> str:
    """Table 4.2 and figures 4.7, 4.8 and 4.12, for this experiment and short ones; or why energy is not measured."""
    parts = [_energy(own)]
    for each in short:
        if any(row.consumed for row in each.rows):
            parts.append(f"<h3>{each.plan.epochs} epochs</h3>{_energy(each)}")
    return f"<h2>Energy</h2>{''.join(parts)}"


def _energy(own: Experiment) -> str:
    rows, results = own.rows, own.results
    base = numbers.base_of(rows)
    missing = dict.fromkeys(in_words(line) for result in results for line in result["not_measured"])
    notes = [f"{line[0].upper()}{line[1:]}." for line in missing]
    measured = [(row, row.consumed) for row in rows if row.consumed]
    if not measured:
        return paragraphs(notes)
    reference = base.consumed if base else None
    lines = []
    for row, found in measured:
        ratios = ["–"] * 3
        if reference:
            pairs = [(getattr(found, name), getattr(reference, name)) for name in EDPS]
            ratios = [f"{ours / theirs:.3g}" if ours > 0 and theirs > 0 else "–" for ours, theirs in pairs]
        joules = [f"{value:.4g}" if value > 0 else "–" for value in (found.used, found.above_idle, found.all)]
        if math.isnan(found.above_idle):
            notes.append(f"{row.label}: {NOT_IDLE}.")
        lines.append([row.label, *joules, *ratios])
        if not row.trusted:
            notes.append(f"{row.label}: shorter than 2 s, so the counters were updated too rarely to be trusted.")
    if len({sum(each["kind"] == "gpu" for each in result["energies"]) for result in results}) > 1:
        notes.append(UNLIKE_HOSTS)
    over = f", relative to that of {base.label}" if base and reference else ""
    about = (
        "J is the energy of the devices that a run uses, from their counters. “Above idle” omits what they use when "
        f"nothing runs; “all” includes the devices that the run leaves idle. EDP is energy times time{over}."
    )
    heads = ["", "J", "J above idle", "J of all", "EDP", "EDP above idle", "EDP of all"]
    figures = _bars([row for row, _ in measured], reference)
    figures += "".join(_power(result) for result in results if result["run"] == 1 and result["power"]["seconds"])
    return f"{table(lines, heads)}{paragraphs([about, *notes])}{figures}"


def _bars(rows: Sequence[Row], reference: numbers.Consumed | None) -> str:
    """Figure 4.12: the energy of each run, with and without idle devices, and its EDP."""
    figure, (left, right) = figure_with_axes(2, height=3.0)
    over = (reference.edp_used, reference.edp_all) if reference else (1.0, 1.0)
    used = [(row.consumed.used, row.consumed.edp_used / over[0]) for row in rows if row.consumed]
    every = [(row.consumed.all, row.consumed.edp_all / over[1]) for row in rows if row.consumed]
    labels, places = [row.label for row in rows], range(len(rows))
    for side, axes, ylabel in ((0, left, "energy, J"), (1, right, "EDP relative to one device")):
        axes.bar([place - 0.2 for place in places], [each[side] for each in used], 0.36, label="devices in use")
        axes.bar([place + 0.2 for place in places], [each[side] for each in every], 0.36, label="all", hatch="//")
        axes.set(ylabel=ylabel, xticks=places, xticklabels=labels)
        axes.tick_params("x", rotation=20)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    said = "; ".join(
        f"{label}: {joules:.4g} J, EDP {edp:.3g}" for label, (joules, edp) in zip(labels, used, strict=True)
    )
    return image(figure, f"Energy and EDP. {said}", whole=True)


def _power(result: Result) -> str:
    """Figures 4.7 and 4.8: power over the time of one run, and a few of its epochs enlarged, with their ends."""
    seconds, said, ends = result["power"]["seconds"], [], result["ends"]["train"]
    figure, (whole, close) = figure_with_axes(2, height=2.8)
    devices = list(zip(result["energies"], result["power"]["watts"], strict=True))[:EACH]
    for number, (device, watts) in enumerate(devices):
        for axes in (whole, close):
            axes.plot(seconds, watts, label=device["name"], linewidth=0.9, linestyle=style(number)["linestyle"])
        said.append(f"{device['name']}: {device['joules'] / device['seconds']:.4g} W on average")
    whole.set(xlabel="time, s", ylabel="power, W", title=numbers.label_of(result))
    whole.set_ylim(bottom=0)
    whole.legend(frameon=False, fontsize=8)
    _enlarge(close, ends, whole.get_ylim())
    text = f"Power over time, {numbers.label_of(result)}; on the right the ends of epochs are marked."
    return image(figure, f"{text} {'; '.join(said)}", whole=True)


def _enlarge(axes: Any, ends: Sequence[float], ylim: tuple[float, float]) -> None:
    """Show a few epochs in the middle of the run, with a line at the end of each epoch's training."""
    first = max(0, (len(ends) - CLOSE) // 2)
    shown = [0.0, *ends][first : first + CLOSE + 1]
    for number, end in enumerate([0.0, *ends]):
        if shown[0] <= end <= shown[-1]:
            axes.axvline(end, color="0.4", linewidth=0.8, linestyle=":")
            axes.annotate(str(number), (end, ylim[1]), fontsize=8, ha="center", va="top")
    edge = 0.05 * (shown[-1] - shown[0]) or 1.0
    axes.set(xlabel="time, s", xlim=(shown[0] - edge, shown[-1] + edge), ylim=ylim, title="ends of epochs")
