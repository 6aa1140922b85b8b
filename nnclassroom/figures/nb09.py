"""Figures of notebook 09: curvatures, sizes of gradients, a running mean, the effect of optimisers and schedules."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from nnclassroom.figures.common import plain_numbers
from nnclassroom.figures.described import Described
from nnclassroom.figures.images import mosaic, plot_images

__all__ = [
    "mosaic",
    "plot_courses",
    "plot_curvatures",
    "plot_images",
    "plot_map",
    "plot_means",
    "plot_schedules",
    "plot_search",
    "plot_sizes",
]

MARKS = "os^Dv"
MOST = 3.0  # higher costs are drawn as this one
FLAT = 1e-6  # lower curvatures are left out

Searches = Mapping[tuple[str, int], Sequence[float]]  # (optimiser, batch size) -> the cost with each learning rate
Courses = Mapping[tuple[str, int], np.ndarray]  # (optimiser, batch size) -> costs (seeds, epochs)


def plot_curvatures(curvatures: np.ndarray, title: str = "") -> Described:
    """Plot curvatures, the largest first, without those that are as good as 0."""
    positive = curvatures[curvatures > FLAT]
    figure = Figure(figsize=(6.5, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(range(1, len(positive) + 1), positive)
    axes.set(xlabel="direction, the steepest first", ylabel="curvature", yscale="log", title=title)
    axes.grid(alpha=0.3)
    words = f"{title}. {len(positive)} curvatures, on a logarithmic axis: {positive[0]:.3g}, {positive[1]:.3g}, "
    return Described(figure, words + f"then falling to {positive[-1]:.1g}.")


def plot_map(rate: np.ndarray, momentum: np.ndarray, steps: np.ndarray, most: int, title: str = "") -> Described:
    """Plot the steps for each learning rate and momentum, arrays (momenta, rates); white from `most` on.

    A red ring marks the fewest.
    """
    figure = Figure(figsize=(6.5, 3.6), layout="constrained")
    axes = figure.subplots()
    shown = np.ma.masked_greater_equal(steps, most)
    mesh = axes.pcolormesh(rate, momentum, shown, norm=LogNorm(), cmap="viridis_r", shading="nearest")
    bar = figure.colorbar(mesh, label="steps", ticks=LogLocator(subs=(1, 2, 5)))
    plain_numbers(bar.ax.yaxis)
    best = np.unravel_index(np.argmin(steps), steps.shape)
    axes.plot(rate[best], momentum[best], "o", markersize=12, fillstyle="none", color="tab:red")
    axes.set(xlabel="learning rate η", ylabel="momentum μ", title=title)
    alone = int(np.argmin(steps[0]))
    words = (
        f"{title}. A ridge of few steps: the fewest, {steps[best]:.0f}, at η = {rate[best]:.3f}, "
        f"μ = {momentum[best]:.2f}. "
    )
    words += f"With μ = {momentum[0, 0]:g} the fewest are {steps[0, alone]:.0f}, at η = "
    return Described(figure, words + f"{rate[0, alone]:.3f}.")


def plot_sizes(sizes: np.ndarray, title: str = "") -> Described:
    """Plot how many gradients have which size."""
    figure = Figure(figsize=(6.5, 3), layout="constrained")
    axes = figure.subplots()
    axes.hist(sizes, np.geomspace(sizes.min(), sizes.max(), 60).tolist(), color="tab:blue")
    axes.set(xlabel="size of the gradient", xscale="log", ylabel="how many weights", title=title)
    words = f"{title}. {len(sizes):,} gradients, from {sizes.min():.1g} to {sizes.max():.2g}, "
    return Described(figure, words + f"most near {np.median(sizes):.1g}.")


def plot_means(numbers: np.ndarray, from_zero: np.ndarray, corrected: np.ndarray, title: str = "") -> Described:
    """Plot numbers, their running mean that starts at 0, and the corrected one."""
    figure = Figure(figsize=(6.5, 3.2), layout="constrained")
    axes, steps = figure.subplots(), range(1, len(numbers) + 1)
    axes.plot(steps, numbers, ".", color="0.6", label="the numbers")
    axes.plot(steps, from_zero, "--", color="tab:red", label="running mean from 0")
    axes.plot(steps, corrected, "-", color="tab:blue", label="corrected")
    low, high = min(numbers.min(), 0), max(numbers.max(), from_zero.max())
    axes.set(xlabel="step", ylabel="mean", title=title, ylim=(low - 0.2, high + 0.2 * (high - low)))  # room for labels
    axes.legend(frameon=False, ncols=3, loc="upper center")
    axes.grid(alpha=0.3)
    early = min(3, len(numbers))
    words = f"{title}. After {early} numbers: from 0 {from_zero[early - 1]:.2f}, corrected {corrected[early - 1]:.2f}; "
    return Described(figure, words + f"after {len(numbers)}: {from_zero[-1]:.2f} and {corrected[-1]:.2f}.")


def plot_search(rates: Mapping[str, Sequence[float]], costs: Searches, ylabel: str) -> Described:
    """Plot costs over learning rates, a panel for each batch size; a red ring marks the best rate of each optimiser."""
    figure, said = Figure(figsize=(9, 3.4), layout="constrained"), []
    sizes = list(dict.fromkeys(size for _, size in costs))
    for axes, size in zip(figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0], sizes, strict=True):
        for number, (name, tried) in enumerate(rates.items()):
            found = np.minimum(np.nan_to_num(costs[name, size], nan=MOST), MOST)
            axes.plot(tried, found, label=name, color=f"C{number}", marker=MARKS[number])
            best = tried[int(found.argmin())]
            axes.plot(best, found.min(), "o", markersize=14, fillstyle="none", color="tab:red")
            worst = f"{tried[-1]:g} with {found[-1]:.2f}{' or more' if found[-1] == MOST else ''}"
            said.append(f"{name}, batches of {size}: best {best:g} with {found.min():.3f}, largest {worst}")
        axes.set(xscale="log", xlabel="learning rate", title=f"Batches of {size}")
        _costs(axes)
    figure.axes[0].set_ylabel(ylabel)
    figure.axes[0].legend(frameon=False)
    return Described(figure, f"{ylabel.capitalize()} over the learning rate. {'; '.join(said)}.")


def plot_courses(costs: Courses, ylabel: str) -> Described:
    """Plot costs over the epochs, a panel for each batch size: the mean of the seeds, and their range as a shade."""
    figure, said = Figure(figsize=(9, 3.4), layout="constrained"), []
    names, sizes = (list(dict.fromkeys(part)) for part in zip(*costs, strict=True))
    for axes, size in zip(figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0], sizes, strict=True):
        for number, name in enumerate(names):
            seeds = np.asarray(costs[name, size])
            epochs, colour = range(1, seeds.shape[1] + 1), f"C{number}"
            axes.fill_between(epochs, seeds.min(axis=0), seeds.max(axis=0), alpha=0.2, color=colour)
            axes.plot(epochs, seeds.mean(axis=0), label=name, marker=MARKS[number], color=colour)
            last = f"{seeds[:, -1].mean():.3f} ({seeds[:, -1].min():.3f} to {seeds[:, -1].max():.3f})"
            said.append(f"{name}, batches of {size}: {last} after the last epoch")
        axes.set(xlabel="epoch", xticks=epochs, title=f"Batches of {size}")
        _costs(axes)
    figure.axes[0].set_ylabel(ylabel)
    figure.axes[0].legend(frameon=False)
    return Described(figure, f"{ylabel.capitalize()} over the epochs, mean and range of the seeds. {'; '.join(said)}.")


def plot_schedules(schedules: Mapping[str, Callable[[int], float]], epochs: int, title: str = "") -> Described:
    """Plot the learning rate that each schedule has in each epoch."""
    figure = Figure(figsize=(6.5, 3), layout="constrained")
    axes, said = figure.subplots(), []
    for number, (name, schedule) in enumerate(schedules.items()):
        rates = [schedule(epoch) for epoch in range(1, epochs + 1)]
        axes.plot(range(1, epochs + 1), rates, marker=MARKS[number], label=name)
        highest = f", up to {max(rates):.2g} in epoch {int(np.argmax(rates)) + 1}" if rates[0] < max(rates) else ""
        said.append(f"{name} from {rates[0]:.2g}{highest} to {rates[-1]:.2g}")
    axes.set(xlabel="epoch", ylabel="learning rate", title=title)
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    return Described(figure, f"{title}. Learning rates over {epochs} epochs: {'; '.join(said)}.")


def _costs(axes: Axes) -> None:
    """A logarithmic axis of costs, with plain numbers at 1, 2 and 5."""
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plain_numbers(axes.yaxis)
