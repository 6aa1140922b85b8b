"""Measurements and figures of notebook 13.

Without MPI, times of several processes are simulated from those of one; `source` says so.
"""

import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from nnclassroom.figures import overheads, recorded
from nnclassroom.figures.common import Lines, figure_with_axes, line_style, plain_numbers, row_of_axes
from nnclassroom.figures.described import Described
from nnclassroom.formats import duration
from nncourse import device as devices
from nncourse.errors import CourseError
from nncourse.model.network import make_network
from nncourse.parallel import energy, scaling
from nncourse.parallel.launch import start
from nncourse.parallel.launch.together import together
from nncourse.parallel.simulation import Link, fit_link, ring_seconds

__all__ = [
    "GRADIENT",
    "example_joules",
    "example_power",
    "exchanges",
    "fit_steps",
    "link_in_words",
    "measure_all_reduce",
    "measure_messages",
    "measure_steps",
    "medians",
    "own_energy",
    "plot_lines",
    "plot_messages",
    "plot_power",
    "plot_runs",
    "plot_steps",
    "why_no_processes",
]

LOADS_MPI = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI"  # without MPI_Init
MADE_UP = Link(5e-6, 4e9)  # between two processes, if there is no MPI
GRADIENT = 4 * make_network(list(scaling.SIZES)).flat_parameters.size  # bytes
EXAMPLE = 2.5, 1.0, 0.5  # seconds of training between two validations, of a validation, and between two peaks
WATTS = 150.0, 120.0, 95.0  # at a peak of training, between peaks, in validation

Runs = dict[int, list[float]]  # batch -> seconds of a step in each round


@dataclass(frozen=True)
class Steps:
    """Seconds of a step by batch size: one process alone, all together, and their exchange."""

    alone: Runs
    together: Runs
    exchange: Runs
    processes: int
    source: str
    simulated: bool = False


def why_no_processes() -> str:
    """Why several processes cannot run here; "" if they can."""
    try:
        start.refuse_without_mpi()
        start.find_mpiexec()
    except CourseError as missing:
        return str(missing)
    if error := _import_error(LOADS_MPI):
        return f"mpi4py is installed, but cannot be imported: {error}"
    return ""


@cache
def _import_error(text: str) -> str:
    """The last line of Python's error output for this text, run in a process of its own; "" without an error."""
    tried = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    return (tried.stderr.strip().splitlines() or ["no reason given"])[-1] if tried.returncode else ""


def measure_steps(alone: Sequence[int], together_: Sequence[int], processes: int = 2, **options: Any) -> Steps:
    """Steps of 784-192-10 by one process and by several, alternately: scaling.steps()."""
    if why := why_no_processes():
        parts = {batch: max(1, batch // processes) for batch in together_}
        found = _numbered(scaling.alone_here(sorted({*alone, *parts.values()}), **options))
        exchange = ring_seconds(MADE_UP, GRADIENT, processes)
        by_all = {batch: [seconds + exchange for seconds in found[rows]] for batch, rows in parts.items()}
        exchanges = {batch: [exchange] * len(seconds) for batch, seconds in by_all.items()}
        source = f"one process measured, {processes} simulated: {why}"
        alone_ = {batch: found[batch] for batch in alone}
        return Steps(alone_, by_all, exchanges, processes, source, simulated=True)
    answer = together(scaling.steps, processes, alone=list(alone), together=list(together_), **options)[0]
    source = f"measured here: {processes} processes, {devices.describe('cpu')}"
    alone_, by_all, exchanges = (_numbered(answer[part]) for part in ("alone", "together", "exchange"))
    return Steps(alone_, by_all, exchanges, processes, source)


def measure_messages(sizes: Sequence[int], **options: Any) -> tuple[Runs, str]:
    """Seconds of a message by its bytes, and the source of these numbers."""
    if why := why_no_processes():
        return {size: [MADE_UP.seconds(size)] for size in sizes}, f"made up: {why}"
    return _numbered(together(scaling.messages, 2, sizes=list(sizes), **options)[0]), "measured here"


def measure_all_reduce(size: int, processes: int = 2) -> float:
    """The shortest seconds of an all-reduce of `size` bytes after a barrier; without MPI, those of a ring."""
    if why_no_processes():
        return ring_seconds(MADE_UP, size, processes)
    return min(together(scaling.all_reduces, processes, size=size)[0])


def _numbered(found: Mapping[str, list[float]]) -> Runs:
    return {int(size): seconds for size, seconds in found.items()}


def medians(runs: Runs) -> dict[int, float]:
    return {size: statistics.median(seconds) for size, seconds in runs.items()}


def fit_steps(runs: Runs) -> Link:
    """Fit seconds of a step = `latency` + rows / `bandwidth`, to the shortest: its fixed cost, and rows per second."""
    shortest = {size: min(seconds) for size, seconds in runs.items()}
    return fit_link(list(shortest), list(shortest.values()))


def exchanges(step: Link, link: Link) -> dict[tuple[str, int], tuple[Link, Link]]:
    """Steps of 784-192-10 and the links they are exchanged over: yours, and recorded ones of GPUs if there are any.

    Keys: words, and a number of devices. A step's `latency` is its fixed part, its `bandwidth` rows per second.
    """
    found = {("your processes", 2): (step, link)}
    steps, records = recorded.shared_steps(), (overheads.recorded("all_reduce") or {"records": []})["records"]
    if steps and records:
        count = max(steps)
        reduced = {
            4 * each["n"]: each["seconds"]
            for each in records
            if (each["devices"], each["contender"]) == (count, "peer memory, in a graph")
        }
        whole = fit_link(list(reduced), list(reduced.values()))  # (12c): 2 (K − 1) messages of a K-th of the bytes
        messages = 2 * (count - 1)
        between = Link(whole.latency / messages, whole.bandwidth * messages / count)
        found["recorded GPUs", count] = fit_link(list(steps[1]), list(steps[1].values())), between
    return found


def own_energy(work: Callable[[], object], least: float = energy.LEAST) -> list[str]:
    """Lines on the energy of one call of work(), on idle power, and on devices without a counter."""
    meters, missing = energy.meters_here()
    if not meters:
        return missing
    found, calls = energy.energy_of(work, meters, energy.idle_power(meters), least)
    said = [str(each) for each in found]
    return [*said, f"EDP {energy.edp(found):.3g} J s; the mean of {calls} calls", *missing]


# ---- a made-up example of power over time


def example_power(seconds: Sequence[float]) -> np.ndarray:
    """Watts of a made-up GPU at these times: epochs of 3.5 s whose last second is validation."""
    training, validation, peak = EXAMPLE
    t = np.asarray(seconds, float) % (training + validation)
    at_peak = t % peak < peak / 2
    return np.where(t < training, np.where(at_peak, WATTS[0], WATTS[1]), WATTS[2])


def example_joules(seconds: float) -> float:
    """The exact energy of the made-up GPU from the start to this time."""
    training, validation, peak = EXAMPLE
    epochs, rest = divmod(seconds, training + validation)
    mean = (WATTS[0] + WATTS[1]) / 2
    whole, part = divmod(min(rest, training), peak)
    in_peak = min(part, peak / 2) * WATTS[0] + max(0.0, part - peak / 2) * WATTS[1]
    of_rest = whole * peak * mean + in_peak + max(0.0, rest - training) * WATTS[2]
    return epochs * (training * mean + validation * WATTS[2]) + of_rest


# ---- figures


def plot_runs(runs: Mapping[str, Sequence[float]], title: str = "") -> Described:
    """Plot a row for each kind of run: a dot for each run, a bar at the median."""
    figure, axes = figure_with_axes(title, 8.0, 1.3 + 0.45 * len(runs))
    said = []
    for place, (label, seconds) in enumerate(runs.items()):
        times, middle = np.asarray(seconds) * 1e3, statistics.median(seconds) * 1e3
        axes.plot(times, [place] * len(times), "o", color="tab:blue", alpha=0.5, markersize=6)
        axes.plot([middle] * 2, [place - 0.3, place + 0.3], color="tab:orange", linewidth=3)
        said.append(f"{label}: median {middle:.3g} ms, from {times.min():.3g} to {times.max():.3g}")
    axes.set_yticks(range(len(runs)), list(runs))
    axes.set(xlabel="time of a step, ms; the bar is the median", ylim=(len(runs) - 0.5, -0.5))
    axes.set_xlim(left=0)
    return Described(figure, f"Times of single runs. {'; '.join(said)}.")


def plot_steps(steps: Steps, title: str = "") -> Described:
    """Plot strong and weak speedups over the batch, with the range of the rounds; and the parts of a step of all."""
    figure, (left, right) = row_of_axes(title, 2, 9.4)
    count, said = steps.processes, []
    for label, times, style in (("strong: the batch is shared", 1, "o-"), ("weak: a batch for each", count, "s--")):
        S, below, above = {}, [], []
        for batch, one in steps.alone.items():
            if all_ := steps.together.get(times * batch):
                S[batch] = times * statistics.median(one) / statistics.median(all_)
                rounds = [times * a / b for a, b in zip(one, all_, strict=True)]
                below.append(max(0.0, S[batch] - min(rounds)))
                above.append(max(0.0, max(rounds) - S[batch]))
        left.errorbar(list(S), list(S.values()), [below, above], fmt=style, capsize=4, label=label)
        said.append(f"{label}: " + ", ".join(f"{value:.2f} at {batch}" for batch, value in S.items()))
    left.axhline(count, color="0.7", linewidth=3, label="ideal")
    left.axhline(1, color="0.7", linewidth=1, linestyle=":", label="one process alone")
    left.set(xlabel="batch of one process alone, samples", ylabel=f"speedup with {count} processes")
    left.set_ylim(0, max(1.15 * count, left.get_ylim()[1]))  # a cache may make it more than ideal
    batches = list(steps.together)
    whole, exchange = (np.array([medians(part)[b] for b in batches]) * 1e3 for part in (steps.together, steps.exchange))
    places = range(len(batches))
    right.bar(places, (whole - exchange) / whole, color="tab:blue", label="computes")
    right.bar(places, exchange / whole, bottom=(whole - exchange) / whole, color="tab:purple", hatch="////",
              edgecolor="white", label="exchanges, and waits for the other")  # fmt: skip
    for place, time in zip(places, whole, strict=True):
        right.text(place, 1.02, f"{time:.3g} ms", ha="center", fontsize=8)
    right.set_xticks(places, [str(batch) for batch in batches])
    right.set(xlabel="batch of all processes together, samples", ylabel="part of a step", ylim=(0, 1.12))
    for axes in (left, right):
        axes.set_axisbelow(True)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False, fontsize=8)
        if steps.simulated:
            axes.text(0.98, 0.03, "simulated", transform=axes.transAxes, ha="right", color="0.3", fontsize=14)
    left.set_xscale("log", base=2)
    left.set_xticks(list(steps.alone))
    plain_numbers(left.xaxis)
    share = ", ".join(f"{part:.0%} at {batch}" for batch, part in zip(batches, exchange / whole, strict=True))
    return Described(figure, f"Speedups. {'. '.join(said)}. Share of the exchange in a step: {share}.")


def plot_messages(runs: Runs, link: Link, title: str = "") -> Described:
    """Plot the time of a message over its bytes: the shortest and all rounds, and the fitted line."""
    figure, axes = figure_with_axes(title, 7.0, 3.6)
    sizes = list(runs)
    for number in range(max(map(len, runs.values()))):
        axes.plot(
            sizes, [runs[size][min(number, len(runs[size]) - 1)] for size in sizes], ".", color="0.7", markersize=5
        )
    axes.plot(sizes, [min(runs[size]) for size in sizes], "o", color="tab:blue", label="shortest of the rounds")
    fine = np.geomspace(min(sizes), max(sizes), 100)
    axes.plot(fine, [link.seconds(size) for size in fine], color="tab:orange", label="α + b/β")
    axes.plot([], [], ".", color="0.7", label="all rounds")
    axes.set(xscale="log", yscale="log", xlabel="size of the message, bytes", ylabel="time, s")
    axes.legend(frameon=False, fontsize=9)
    words = ", ".join(f"{size:,} bytes take {duration(min(runs[size]))}" for size in (min(sizes), max(sizes)))
    return Described(figure, f"Time of a message over its size: {words}; fitted: {link_in_words(link)}.")


def link_in_words(link: Link) -> str:
    return f"latency {duration(link.latency)}, bandwidth {link.bandwidth / 1e9:.3g} GB/s"


def plot_power(
    t: Sequence[float], P: np.ndarray, title: str = "", names: Sequence[str] = ("GPU 0", "GPU 1")
) -> Described:
    """Plot readings of power over time, a line for each device; the area below it is the energy."""
    figure, axes = figure_with_axes(title, 8.0, 3.2)
    axes.set_axisbelow(True)
    said = []
    for number, row in enumerate(np.atleast_2d(P)):
        style: dict[str, Any] = {"color": f"C{number}", "linestyle": ("-", "--")[number % 2]}
        axes.plot(t, row, marker="os"[number % 2], markersize=4, label=names[number], **style)
        axes.fill_between(t, row, color=f"C{number}", alpha=0.12)
        said.append(f"{names[number]} between {row.min():.3g} and {row.max():.3g} W")
    axes.set(xlabel="time, s", ylabel="power, W", ylim=(0, None))
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return Described(figure, f"{len(t)} readings of power over {t[-1] - t[0]:g} s: {'; '.join(said)}.")


def plot_lines(lines: Lines, xlabel: str, ylabel: str, title: str = "", simulated: bool = False) -> Described:
    """Plot lines over a logarithmic x axis; `simulated` writes that word into the figure."""
    figure, axes = figure_with_axes(title, 7.5, 3.8)
    said = []
    for number, (label, (x, y)) in enumerate(lines.items()):
        axes.plot(x, y, label=label, markersize=5, **line_style(number))
        said.append(f"{label}: {y[0]:.3g} at {x[0]:g}, {y[-1]:.3g} at {x[-1]:g}")
    axes.set(xlabel=xlabel, ylabel=ylabel, xscale="log")
    plain_numbers(axes.xaxis)
    axes.set_ylim(bottom=0)
    if simulated:
        axes.text(0.99, 0.98, "simulated", transform=axes.transAxes, ha="right", va="top", color="0.4", fontsize=16)
    axes.legend(frameon=False, fontsize=9)
    over = f"{'Simulated. ' * simulated}{title + ': ' if title else ''}{ylabel} over {xlabel}"
    return Described(figure, f"{over}. {'; '.join(said)}.")
