"""Figures of notebooks 04 and 15b: threads put their numbers together, by a tree in shared memory or by shuffles."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnclassroom.figures.common import draw_arrow
from nnclassroom.figures.described import Described

__all__ = ["Described", "plot_exchange", "plot_shuffle", "plot_tree"]

NUMBERS = (3, 1, 7, 0, 4, 1, 6, 3)  # of eight threads
FREE = {"shrinkA": 9, "shrinkB": 9}  # points between a cell's middle and an arrow


def plot_tree() -> Described:
    """Draw the rounds of a tree: the first half of the threads add the second half's numbers to their own."""
    values, half, rounds = list(NUMBERS), len(NUMBERS), ["begin"]
    figure, axes = _figure("A tree: half, a quarter, an eighth", "thread, and its cell of shared memory")
    while half:
        y = 1 - len(rounds)
        for t, value in enumerate(values):
            _cell(axes, t, y, value, "tab:blue" if t < half else "0.8")
        half //= 2
        for t in range(half):
            values[t] += values[t + half]
            draw_arrow(axes, (t + half, y), (t, y - 1), "tab:red", **FREE)
            draw_arrow(axes, (t, y), (t, y - 1), "0.5", **FREE)
        rounds += [f"half = {half}"] if half else []
    axes.set_yticks(range(0, -len(rounds), -1), rounds)
    words = (
        f"Eight threads with the numbers {', '.join(map(str, NUMBERS))}. In the first round threads 0 to 3 add "
        "the numbers of threads 4 to 7, then 0 and 1 those of 2 and 3, then 0 that of 1: "
    )
    return Described(figure, words + f"after three rounds thread 0 has the sum, {values[0]}.")


def plot_shuffle() -> Described:
    """Draw shuffles down with distances 4, 2, 1: each lane adds the number of a lane further to the right."""
    values = np.array(NUMBERS)
    figure, axes = _figure("Shuffles down: lane 0 ends with the sum", "lane of the warp")
    lanes, names = np.arange(len(values)), ["begin"]
    for y, distance in enumerate((4, 2, 1, 0)):
        for lane, value in enumerate(values):
            _cell(axes, lane, -y, value, "tab:orange" if lane < max(2 * distance, 1) else "0.8")
            if distance and lane + distance < len(values):
                alpha = 1.0 if lane < distance else 0.2
                draw_arrow(axes, (lane + distance, -y), (lane, -y - 1), "tab:red", alpha=alpha, **FREE)
        received = values[
            np.where(lanes + distance < len(values), lanes + distance, lanes)
        ]  # its own value if there is none
        values = values + received if distance else values
        names += [f"after distance {distance}"] if distance else []
    axes.set_yticks(range(0, -len(names), -1), names)
    words = (
        f"Eight lanes with the numbers {', '.join(map(str, NUMBERS))}. Each lane adds what the lane 4, then 2, then 1 "
    )
    return Described(figure, words + f"further to the right has. Lane 0 ends with the sum, {values[0]}.")


def plot_exchange() -> Described:
    """Draw an exchange in pairs that are 4, 2 and 1 apart: each lane takes the larger number of the two."""
    values = np.array(NUMBERS)
    figure, axes = _figure("Exchanges: all lanes end with the largest", "lane of the warp")
    lanes, names = np.arange(len(values)), ["begin"]
    for y, apart in enumerate((4, 2, 1, 0)):
        for lane, value in enumerate(values):
            _cell(axes, lane, -y, value, "tab:orange")
            if apart:
                draw_arrow(axes, (lane ^ apart, -y), (lane, -y - 1), "tab:red", **FREE)
        values = np.maximum(values, values[lanes ^ apart])
        names += [f"after {apart} apart"] if apart else []
    axes.set_yticks(range(0, -len(names), -1), names)
    words = (
        f"Eight lanes with the numbers {', '.join(map(str, NUMBERS))}. Lanes 4 apart exchange their numbers, then "
        f"lanes 2 apart, then lanes 1 apart, and each keeps the larger one. All end with the largest, {values[0]}."
    )
    return Described(figure, words)


def _figure(title: str, across: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.7, 7.7), ylim=(-3.5, 0.5), xlabel=across, title=title)
    return figure, axes


def _cell(axes: Axes, x: int, y: int, value: int, colour: str) -> None:
    box = {"boxstyle": "square", "facecolor": colour, "alpha": 0.5}
    axes.text(x, y, str(value), ha="center", va="center", bbox=box)
