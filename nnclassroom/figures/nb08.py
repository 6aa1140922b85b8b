"""Figures and tables of notebooks 08 and 08b: what a training step waits for on a GPU, and what holds a kernel back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from nnclassroom.figures import nb08_host_side as host_side
from nnclassroom.figures import nb08_tools as tools
from nnclassroom.figures import overheads
from nnclassroom.figures.common import (
    Lines,
    draw_arrow,
    draw_dots,
    draw_lines,
    drawing,
    ends_in_words,
    figure_with_axes,
    line_style,
    plain_numbers,
    plot_lines,
    plot_roofline,
    row_of_axes,
    with_title,
)
from nnclassroom.figures.described import Described, WordedFigure
from nnclassroom.figures.nb03 import plot_ladder
from nnclassroom.figures.nb08_ladder import (
    RUNGS,
    columns,
    held_back_table,
    needs_of,
    needs_table,
    occupancy_table,
    plot_loads_and_sums,
    plot_room,
    plot_sums_of_a_thread,
    roofs_table,
)
from nnclassroom.figures.recorded import table
from nnclassroom.formats import duration, times_as_fast
from nnclassroom.timing.anatomy import Mixed
from nnclassroom.timing.profiles import Profile
from nncourse.backend import Backend
from nncourse.catalogue import find
from nncourse.device import Array
from nncourse.kernels.dense_epoch import DenseArchitecture
from nncourse.model.network import make_network
from nncourse.model.optimizers import SGD
from nncourse.model.plans import train_step_by_step

__all__ = [
    "RUNGS",
    "whole_epoch",
    "columns",
    "fused_in_words",
    "held_back_table",
    "host_side",
    "least_table",
    "lie_table",
    "moved_in_words",
    "needs_of",
    "needs_table",
    "occupancy_table",
    "plot_amdahl",
    "plot_batches",
    "plot_epochs",
    "plot_ladder",
    "plot_lines",
    "plot_loads_and_sums",
    "plot_moved",
    "plot_moved_share",
    "plot_profile",
    "plot_roofline",
    "plot_room",
    "plot_sums_of_a_thread",
    "plot_there_and_back",
    "plot_timelines",
    "plot_transfers",
    "roofs_table",
    "tools",
    "traffic_table",
    "transfer_costs",
]

Span = tuple[float, float]  # start and end in seconds


def plot_moved_share(share: float) -> Described:
    """Plot a step as bars: as it is, with a share of its time ten times as fast, and with that share in no time."""
    figure = Figure(figsize=(8.4, 2.3), layout="constrained")
    axes = figure.subplots()
    cases = {"as it is": 1, "products 10 × as fast": 10, "products in no time": np.inf}
    axes.barh(list(cases), 1 - share, color="0.75", label="all else")
    products = [share / faster for faster in cases.values()]
    axes.barh(list(cases), products, left=1 - share, color="tab:blue", hatch="//", edgecolor="white", label="products")
    said = []
    for place, (label, part) in enumerate(zip(cases, products, strict=True)):
        faster = f"{1 / (1 - share + part):.2f} × as fast"
        axes.text(1 - share + part, place, f"  {faster}", va="center")
        said.append(f"{label}: {faster}")
    axes.set(xlabel="time of a step, as a share of what it is now", xlim=(0, 1.6))
    axes.invert_yaxis()
    figure.legend(frameon=False, loc="outside right center")
    words = f"Three bars. The grey part, {1 - share:.0%} of the step, is the same in all of them. "
    return Described(figure, words + "; ".join(said) + ".")


def plot_profile(profile: Profile) -> WordedFigure:
    """Plot where a training step goes: a bar for each call, the dark part of it the least that the limits allow."""
    parts = profile.lines
    figure, axes = figure_with_axes("", width=8.4, height=1.6 + 0.22 * (len(parts) + 1))
    figure.suptitle(f"{profile.title}\nthe whole step: {profile.in_words}", fontsize=10)
    unit, scale = ("µs", 1e6) if profile.whole < 1e-3 else ("ms", 1e3)
    said = []
    for place, part in enumerate(parts):
        colour = "tab:orange" if part.yours else "tab:blue"
        axes.barh(place, scale * part.seconds, height=0.7, color=colour, alpha=0.4)
        axes.barh(place, scale * min(part.least, part.seconds), height=0.7, color=colour)
        about = f"{duration(part.seconds)}, {part.of_limit}, {part.kernel_in_words}"
        axes.text(scale * part.seconds, place, f"  {about}", va="center", fontsize=8)
        said.append(f"{part.label} {about}")
    axes.barh(len(parts), scale * profile.between, height=0.7, color="0.75")
    axes.text(scale * profile.between, len(parts), f"  {duration(profile.between)}", va="center", fontsize=8)
    axes.set_yticks(range(len(parts) + 1), [*(part.label for part in parts), "between the calls"], fontsize=8)
    axes.set_xlabel(f"time, {unit} (dark: least possible by the measured limits; orange: your kernels)")
    axes.margins(x=0.35, y=0.02)
    axes.set_xlim(left=0)
    axes.grid(False, axis="y")
    axes.invert_yaxis()
    between = f"Between the calls {duration(profile.between)}."
    figure.words = with_title(profile.title, f"The whole step: {profile.in_words}.", f"{'; '.join(said)}.", between)
    return figure


def plot_there_and_back() -> Described:
    """Draw a call of dense_forward on a GPU with arrays in the memory of the CPU."""
    figure, (axes,) = drawing(1, 7.5, 2.5)
    box = {"boxstyle": "round,pad=1", "facecolor": "0.93", "edgecolor": "0.5"}
    for x, name in ((0, "memory of the CPU"), (7, "memory of the GPU")):
        axes.text(x + 1.5, 1.5, f"{name}\n\nA  W  b\nZ", ha="center", va="center", fontsize=11, bbox=box)
    for y, words, start, end in ((2.4, "A, W, b: three transfers", 3.3, 6.7), (0.7, "Z: one transfer", 6.7, 3.3)):
        draw_arrow(axes, (start, y), (end, y), "tab:red", lw=2)
        axes.text(5, y + 0.12, words, ha="center", va="bottom")
    axes.text(5, 1.5, "launch: Z = A Wᵀ + b", ha="center", va="center", color="tab:green")
    axes.set(xlim=(-0.5, 10.5), ylim=(0, 3.2))
    return Described(figure, "One call of dense_forward: three arrays to the GPU, a launch, one array back.")


def plot_amdahl(shares: Mapping[str, float], title: str = "") -> Described:
    """Plot Amdahl's law, the overall speedup against the speedup of a part, for these shares of the time."""
    figure, axes = figure_with_axes(title, width=6.5, height=4.0)
    faster = np.geomspace(1, 1000, 200)
    said = []
    for number, (label, share) in enumerate(shares.items()):
        style = line_style(number) | {"color": f"C{number}", "marker": ""}
        axes.plot(faster, 1 / (1 - share + share / faster), label=f"{label}: {share:.0%}", **style)
        if share < 1:
            axes.axhline(1 / (1 - share), color=f"C{number}", linewidth=0.7, alpha=0.6)
            style = {"va": "center", "color": f"C{number}", "fontsize": 9}
            axes.text(1.0, 1 / (1 - share), f" {1 / (1 - share):.3g}", transform=axes.get_yaxis_transform(), **style)
            said.append(f"{label}, a share of {share:.0%}, never passes {1 / (1 - share):.3g}")
    axes.set(xlabel="times as fast: the part that was moved", ylabel="times as fast: the whole step")
    axes.set(xscale="log", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    plain_numbers(axes.xaxis, axes.yaxis)
    figure.legend(loc="outside lower center", frameon=False, fontsize=9, title="Share of the time")
    return Described(figure, f"Speedup of the whole step over the speedup of its part. {'; '.join(said)}.")


def plot_bars(
    values: Mapping[str, float],
    xlabel: str,
    title: str = "",
    marks: Mapping[str, float] | None = None,
    limits: tuple[float, float] | None = None,
) -> Described:
    """Plot times in seconds as dots on a logarithmic axis with these limits; `marks` are calculated times, hollow.

    Dots whose label begins with "nncourse" are orange.
    """
    figure, axes = figure_with_axes("", width=7.0, height=1.2 + 0.36 * len(values))
    figure.suptitle(title, fontsize=10)
    colours = ["tab:orange" if label.startswith("nncourse") else "tab:blue" for label in values]
    draw_dots(axes, list(values), list(values.values()), size=60, color=colours, fontsize=9)
    said = [f"{label} {duration(seconds)}" for label, seconds in values.items()]
    if marks:
        there = [(marks[label], place) for place, label in enumerate(values) if label in marks]
        computed, places = zip(*there, strict=True)
        axes.scatter(computed, places, s=60, facecolor="none", edgecolor="tab:red", label="calculated")
        axes.legend(frameon=False, fontsize=9, loc="best")
        said += [f"calculated for {label} {duration(seconds)}" for label, seconds in marks.items() if label in values]
    axes.set_xlabel(xlabel)
    axes.margins(x=0.2, y=0.12)
    if limits:
        axes.set_xlim(limits)
    return Described(figure, f"{xlabel}: {'; '.join(said)}.")


def plot_timelines(lines: Mapping[str, tuple[Sequence[Span], Sequence[Span]]], title: str = "") -> Described:
    """Plot timelines: label -> (CPU launches, GPU executions), each a sequence of (start, end) in seconds."""
    figure, axes = figure_with_axes(title, width=8.0, height=0.9 + 0.75 * len(lines))
    said, ticks = [], {}
    for place, (label, (launches, runs)) in enumerate(lines.items()):
        for row, (bars, colour, hatch) in enumerate(((launches, "tab:orange", "//"), (runs, "tab:green", ""))):
            spans = [(1e6 * start, 1e6 * (end - start)) for start, end in bars]
            style: dict[str, Any] = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.8}
            axes.broken_barh(spans, (3 * place + row, 0.8), **style)
            ticks[3 * place + row + 0.4] = f"{label}: CPU" if row == 0 else "GPU"
        busy, end = sum(end - start for start, end in runs), max(end for _, end in runs)
        axes.text(1e6 * end, 3 * place + 1.4, f"  {duration(end)}, GPU busy {busy / end:.0%}", va="center", fontsize=9)
        count = f"{len(launches)} launch{'es' * (len(launches) > 1)}"
        said.append(f"{label}: {count}, done after {duration(end)}, the GPU is busy {busy / end:.0%} of that time")
    axes.set_yticks(list(ticks), list(ticks.values()), fontsize=9)
    axes.set_xlabel("time, µs (orange, hatched: the CPU launches; green: the GPU computes)")
    axes.margins(x=0.16)
    axes.set_xlim(left=0)
    axes.grid(False, axis="y")
    axes.invert_yaxis()
    return Described(figure, f"Timelines. {'; '.join(said)}.")


def plot_batches(speed: Lines, quality: Lines, measure: str, title: str = "") -> Described:
    """Plot two quantities against the batch size: microseconds per sample on the left, `measure` on the right."""
    figure, (left, right) = row_of_axes(title, 2, width=9.0)
    draw_lines(left, speed)
    left.set(xlabel="batch size, samples", ylabel="time per sample, µs")
    left.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False, fontsize=8)
    draw_lines(right, quality)
    right.set(xlabel="batch size, samples", ylabel=measure, yscale="linear", ylim=(0, 1))
    right.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=8)
    plain_numbers(left.xaxis, left.yaxis, right.xaxis)
    words = f"Left, time per sample in µs over the batch size: {ends_in_words(speed)}"
    return Described(figure, f"{words} Right, {measure}: {ends_in_words(quality)}")


LIMIT_WORDS = {"arithmetic": "arithmetic", "bytes": "bytes", "launch": "launch"}


# ---- transfers


def traffic_table(counts: Mapping[str, Mixed]) -> str:
    """Launches, transfers and bytes of a step, by what is moved to the GPU.

    The last line is that of everything, with arrays that stay there.
    """
    rows = []
    for label, count in counts.items():
        sent, fetched = len(count.sent), len(count.fetched)
        words = overheads.MOVED_WORDS.get(label, label)
        rows.append([words, str(count.launches), str(sent), str(fetched), f"{sum(count.sent + count.fetched):,}"])
    last = "everything, and it stays there"
    rows.append([overheads.MOVED_WORDS[last], rows[-1][1], "0", "0", "0"])
    heads = ["moved to the GPU", "launches", "to the GPU", "to the CPU", LIMIT_WORDS["bytes"]]
    return table(heads, rows)


def transfer_costs(trips: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Seconds of the shortest transfer "there" and "back", and the "bandwidth" of the largest, in bytes a second."""
    small = [trip for trip in trips if trip["bytes"] <= 4096]
    shortest = {way: min(trip[way] for trip in small) for way in ("there", "back")}
    return shortest | {"bandwidth": trips[-1]["bytes"] / trips[-1]["there"]}


def plot_transfers(trips: Sequence[Mapping[str, float]], where: str) -> Described:
    """Plot the time of a transfer over its bytes; the title has t0 and the bandwidth."""
    sizes, costs = [trip["bytes"] for trip in trips], transfer_costs(trips)
    ways = [(sizes, [trip[way] for trip in trips]) for way in ("there", "back")]
    lines = dict(zip(["to the GPU", "to the CPU"], ways, strict=True))
    start = f"t0 = {duration(costs['there'])} to the GPU, {duration(costs['back'])} to the CPU"
    whole = (
        f"B = {costs['bandwidth'] / 1e9:.1f} GB/s: {costs['there'] * costs['bandwidth'] / 1e3:,.0f} kB in a time of t0"
    )
    shown = plot_lines(lines, "bytes", "time, s", f"One transfer of an ordinary array ({where})\n{start}\n{whole}")
    return Described(shown.figure, f"{start}; {whole}. {shown.words}")


def plot_moved(measured: Mapping[str, float], calculated: Mapping[str, float], where: str) -> Described:
    """Plot seconds of a step by what is moved to the GPU, measured, and as hollow marks calculated."""
    bars, marks = (
        {overheads.MOVED_WORDS.get(label, label): seconds for label, seconds in times.items()}
        for times in (measured, calculated)
    )
    title = f"A step of 30-60-10-1, batch 10, by what is moved to the GPU ({where})"
    return plot_bars(bars, "time of a step, s", title, marks=marks)


def moved_in_words(measured: Mapping[str, float], calculated: Mapping[str, float]) -> str:
    """Both orders from fast to slow, and by which factors the calculation is too low."""

    def order(times: Mapping[str, float]) -> str:
        return " < ".join(overheads.MOVED_WORDS.get(label, label) for label in sorted(times, key=times.__getitem__))

    factors = ", ".join(f"{measured[label] / calculated[label]:.2g}" for label in measured)
    lines = [f"measured:    {order(measured)}", f"calculated:  {order(calculated)}"]
    return "\n".join([*lines, f"measured / calculated, from top to bottom: {factors}"])


# ---- launches and limits


def lie_table(cases: Sequence[Mapping[str, float]], limit: float) -> str:
    """Times and rates of dense_forward on square matrices, without and with a wait; `limit` in FLOP per second."""
    rows = []
    for case in cases:
        cells = [f"{case['side']:,}"]
        for way in ("without", "with"):
            cells += [duration(case[way]), f"{2 * case['side'] ** 3 / case[way] / 1e12:,.2f}"]
        rows.append(cells)
    heads = ["side", "without waiting", "TFLOP/s", "waiting", "TFLOP/s"]
    return f"{table(heads, rows)}\nat most {limit / 1e12:.0f} TFLOP/s; {overheads.where()}"


def least_table(
    names: Sequence[str], floors: Mapping[str, np.ndarray], least: np.ndarray, took: Mapping[str, float]
) -> str:
    """Microseconds of a call of each operation: its floors, the highest of them, what it took, and which floor it is.

    floors: "arithmetic", "bytes", "launch" -> seconds of each call.
    """
    rows = []
    for number, name in enumerate(names):
        each = {floor: seconds[number] for floor, seconds in floors.items()}
        cells = [f"{1e6 * seconds:.3f}" for seconds in (*each.values(), least[number])]
        taken = f"{1e6 * took[name]:.1f}" if name in took else "–"
        rows.append([name, *cells, taken, LIMIT_WORDS[max(each, key=each.__getitem__)]])
    heads = ["µs, for one call of", *(LIMIT_WORDS[floor] for floor in floors), "at least", "took", "limited by"]
    return f"{table(heads, rows)}\nGPU: {overheads.where('gpu')}"


# ---- epochs


def plot_epochs(found: Mapping[str, Mapping[str, float]], where: str) -> Described:
    """Plot seconds of a step, network -> contender -> seconds, on one axis; the course's are orange."""
    title = f"Time of a step ({where})"
    figure = Figure(figsize=(7.0, 1.2 + 1.9 * len(found)), layout="constrained")
    figure.suptitle(title, fontsize=10)
    said, places = [], figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (network, times) in zip(places, found.items(), strict=True):
        slow_first = dict(sorted(times.items(), key=lambda pair: -pair[1]))
        colours = ["tab:orange" if _of_the_course(label) else "tab:blue" for label in slow_first]
        draw_dots(axes, list(slow_first), list(slow_first.values()), size=40, color=colours, fontsize=9)
        axes.set_title(network, fontsize=9, loc="left")
        axes.margins(y=0.15)
        axes.grid(True, axis="x", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        said.append(f"{network}: {'; '.join(f'{label} {duration(each)}' for label, each in slow_first.items())}.")
    everything = [each for times in found.values() for each in times.values()]
    places[-1].set_xlim(min(everything) / 2, max(everything) * 4)
    places[-1].set_xlabel("time of a step, s")
    return Described(figure, with_title(title, *said))


def _of_the_course(contender: str) -> bool:
    return contender.split()[0] == "nncourse"


def fused_in_words(found: Mapping[str, Mapping[str, float]]) -> str:
    """How many times as fast as separate kernels one_kernel is, for each network."""
    lines = []
    for network, times in found.items():
        steps, fused = (times.get(f"nncourse {name}") for name in ("steps", "one_kernel"))
        if steps and fused:
            lines.append(f"{network}: one_kernel is {times_as_fast(steps / fused)} as fast as steps")
    return "\n".join(lines)


def whole_epoch(sizes: Sequence[int], place: Backend) -> tuple[Callable[..., Array], str]:
    """train_epoch(parameters, X, Y, batch, rate) for a network of sigmoids, in place, and what computes it, in words.

    It is one kernel, or steps where the package with such kernels is missing.
    """
    operation, network, name = find("dense_sgd_epoch"), make_network(sizes), "numpy"
    if place.device == "gpu":
        name = "one_kernel"

    def by_kernel(parameters: Array, X: Array, Y: Array, batch: int, rate: float) -> Array:
        return operation[name](parameters, DenseArchitecture.of(network), X, Y, batch, rate)

    def by_steps(parameters: Array, X: Array, Y: Array, batch: int, rate: float) -> Array:
        train_step_by_step(network.with_flat_parameters(parameters), X, Y, batch, rate, place, SGD())
        return parameters

    if name in operation.kernels:
        return by_kernel, name
    return by_steps, "single steps, which take longer: the package fused_epochs is missing here"
