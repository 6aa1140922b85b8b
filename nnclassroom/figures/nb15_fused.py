"""Figures of notebook 15b: a softmax whose numbers are carried, tiles that pass, times by length, recorded texts.

nb15.py offers them.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnclassroom.figures.common import (
    Lines,
    draw_arrow,
    draw_grid,
    drawing,
    few_ticks,
    plain_numbers,
    plot_lines,
    row_of_axes,
)
from nnclassroom.figures.described import Described, WordedFigure
from nnclassroom.figures.recorded import table
from nnclassroom.formats import duration
from nnclassroom.recorded_words import in_words
from nncourse import language

ORANGE = "#e07b00"
ROWS, WIDTH, BLOCK, TILE = 8, 3, 4, 2  # of a drawing: positions, numbers of each, queries of a block, keys of a tile
SHOWN = "fused_attention", "fused_attention, shared", "attention_forward", "scores stored, cuBLAS", "PyTorch SDPA"


def plot_carried(scores: Sequence[float]) -> WordedFigure:
    """Draw scores that come one after the other: the largest so far, and the exponentials in the sum after each."""
    figure, (left, right) = row_of_axes(None, 2, 8.6, 3.2)
    keys, tops = np.arange(len(scores)), np.maximum.accumulate(scores)
    left.bar(keys, scores, color="0.8")
    left.step(keys, tops, where="mid", color=ORANGE, label="top: the largest so far")
    left.set(xlabel="key", ylabel="score", xticks=keys, ylim=(0, 1.35 * max(scores)))
    left.legend(frameon=False, fontsize=9, loc="upper left")
    below, said = np.zeros(len(scores)), []
    for key, score in enumerate(scores):
        weights = np.where(keys >= key, np.exp(score - tops), 0)
        style = {"edgecolor": "white", "hatch": ("", "///", "...", "xx")[key % 4]}
        right.bar(keys, weights, bottom=below, label=f"key {key}", **style)
        below += weights
    for key, total in enumerate(below):
        right.annotate(f"{total:.2f}", (key, total), (0, 3), textcoords="offset points", ha="center", fontsize=9)
        said.append(f"after key {key} with the score {scores[key]:g}: top {tops[key]:g}, total {total:.2f}")
    right.set(xlabel="after key", ylabel="total: exp(score − top), added up", xticks=keys, ylim=(0, 1.25 * below.max()))
    right.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.words = f"Two numbers that are carried through a row of scores. {'; '.join(said)}."
    return figure


def plot_passing() -> WordedFigure:
    """Draw who loads what in fused attention: a block's queries stay, tiles of keys and values pass."""
    figure, (axes,) = drawing(1, 9.0, 3.9)
    number = np.arange(ROWS)[:, None]
    queries = ((number >= BLOCK) & (number < 2 * BLOCK)).repeat(WIDTH, 1).astype(int)
    tile = ((number >= TILE) & (number < 2 * TILE)).repeat(WIDTH, 1).astype(int)
    scores = 2 * ((queries[:, :1] == 1) & (tile[:, :1].T == 1)).astype(int)
    grids = (0, "Q", queries), (5, "K", tile), (10, "V", tile), (15, "S", scores), (25, "O", queries)
    for x, name, marks in grids:
        draw_grid(axes, (x, 0), marks, name)
    for x in (5, 10):
        draw_arrow(axes, (x + WIDTH + 0.5, -2 * TILE), (x + WIDTH + 0.5, -ROWS + 0.5), ORANGE, linewidth=1.5)
    notes = (
        (0, "stay: one query\nper thread"),
        (5, "pass: one tile\nat a time"),
        (15, "hatched: in registers\nalone"),
        (25, "written once,\nat the end"),
    )
    for x, note in notes:
        axes.text(x, -ROWS - 0.4, note, ha="left", va="top", fontsize=9)
    axes.set(xlim=(-0.5, 29), ylim=(-ROWS - 2.4, 1.2), aspect="equal")
    figure.words = (
        f"Q, K, V and O with {ROWS} rows each, and the scores S. A block has the queries {BLOCK} to {2 * BLOCK - 1}, "
        f"which stay. Tiles of {TILE} keys and values pass, one after the other; now those from {TILE} on. The scores "
        "of these queries and keys are in registers; no others exist. The block writes its rows of O once, at the end."
    )
    return figure


def _times(records: Sequence[Mapping[str, Any]], causal: bool) -> dict[str, tuple[list[int], list[float]]]:
    """The lengths and the milliseconds of each contender."""
    found = [each for each in records if each["causal"] == causal]
    of_length = [each["length"] for each in found]
    return {in_words(name): (of_length, [each["milliseconds"][name] for each in found]) for name in SHOWN}


def plot_lengths(records: Sequence[Mapping[str, Any]], causal: bool) -> Described:
    """Plot recorded times of attention alone over the length of the sequence."""
    return plot_times(_times(records, causal), "positions", "time, ms")


def plot_times(lines: Lines, xlabel: str, ylabel: str) -> Described:
    """Plot times over lengths, which are the ticks."""
    found = plot_lines(lines, xlabel, ylabel)
    (axes,), (ticks, _) = found.figure.axes, next(iter(lines.values()))
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
    axes.minorticks_off()
    few_ticks(axes)
    plain_numbers(axes.yaxis)
    return found


def lengths(records: Sequence[Mapping[str, Any]], causal: bool, shown: Sequence[int]) -> str:
    """The same times as a table: a line for each contender, a column for each of some lengths."""
    lines = []
    for name, (of_length, milliseconds) in _times(records, causal).items():
        of = dict(zip(of_length, milliseconds, strict=True))
        lines.append([name, *(duration(of[length] / 1e3) for length in shown)])
    return table(["", *(f"{length:,}" for length in shown)], lines)


def texts(records: Sequence[Mapping[str, Any]]) -> str:
    """What a recorded network wrote, in the course's language, after some epochs; the range of the costs over seeds."""
    found = [each for each in records if each["language"] == language.current()]
    lines = []
    for epoch, text in found[0]["texts"].items():
        costs = [each["costs"][int(epoch) - 1] for each in found]
        lines += [f"epoch {epoch}, cost {min(costs):.2f} to {max(costs):.2f}:"]
        lines += textwrap.wrap(" ".join(text.split()), 76, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)
