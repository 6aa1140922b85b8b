"""The playground after some training as a figure: for print, for the web, and without a running kernel."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator

from nnclassroom.figures import common
from nnclassroom.figures.described import Described
from nnclassroom.widgets.playground.engine import DATA_WORDS, FEATURES, Engine, Settings, as_shares, features_of
from nnclassroom.widgets.playground.frames import GRID, SMALL, as_bytes, grid, thinned
from nncourse import device as devices

COLOURS = np.array([[0.12, 0.47, 0.71], [1.0, 0.5, 0.05], [0.17, 0.63, 0.17]])  # of the classes 0, 1, 2
MARKS = "o^s"
CURVES = "training", "held out", "epoch"
PLAIN = "seen", "not seen", "rounds"  # as in taste()
SAYS = LinearSegmentedColormap.from_list("says", [COLOURS[0], (1, 1, 1), COLOURS[1]])  # low, middle, high


def still(epochs: int = 100, plain: bool = False, **settings: Any) -> Described:
    """The playground after some epochs of training as a figure; `settings` as in Settings.

    plain: in the order and the words of taste().
    """
    engine = Engine(Settings(**settings))
    while engine.epoch < epochs:
        engine.train(epochs=max(1, epochs // 100))
        engine.measure()
    figure = Figure(figsize=(9.6, 3.6), dpi=100)
    activities = engine.activities(grid(engine))
    lefts, curves = ((0.455, 0.8, 0.015), PLAIN) if plain else ((0.075, 0.41, 0.62), CURVES)
    _plane(figure.add_axes((lefts[0], 0.14, 0.265, 0.75)), engine, as_shares(activities[-1]), curves)
    _costs(figure.add_axes((lefts[1], 0.14, 0.185, 0.75)), engine, curves)
    _net(figure.add_axes((lefts[2], 0.03, 0.37, 0.9)), engine, activities)
    return Described(figure, in_plain_words(engine) if plain else in_words(engine))


def in_words(engine: Engine) -> str:
    """The picture in words."""
    now = engine.settings
    return (
        f"A network {engine.network.in_words} of {now.activation} neurons with the inputs {', '.join(now.features)}, "
        f"on the data set {DATA_WORDS.get(now.data, now.data)}: {engine.words()}. Left: the points, on the colour "
        "of the class that the network gives to each place. Middle: the costs. Right: what each neuron computes over "
        "the plane, and the weights."
    )


def in_plain_words(engine: Engine) -> str:
    """The picture of taste() in words."""
    return (
        f"A network {engine.network.in_words} after round {engine.epoch}: of the points that it has not seen it gets "
        f"{engine.right():.0%} right. Left: the network; each square shows what a neuron answers over the plane, each "
        "line is a weight. Middle: the points, on the colour of its answer. Right: how wrong it was after each "
        "round."
    )


def _plane(axes: Axes, engine: Engine, shares: np.ndarray, curves: tuple[str, str, str]) -> None:
    classes = len(engine.training.classes)
    sure = (shares.max(axis=1, keepdims=True) - 1 / classes) / (1 - 1 / classes)
    pale = 1 - 0.55 * sure * (1 - COLOURS[shares.argmax(axis=1)])  # white where all classes are equally likely
    extent = (engine.low[0], engine.high[0], engine.low[1], engine.high[1])
    axes.imshow(pale.reshape(GRID, GRID, 3), extent=extent, origin="lower", aspect="auto", interpolation="bilinear")
    axes.set(xlabel="input x1", ylabel="input x2")
    axes.set_title(f"filled: {curves[0]}, hollow: {curves[1]}", fontsize=9)
    for data, filled in ((engine.training, True), (engine.held_out, False)):
        for label, colour in enumerate(COLOURS[: len(data.classes)]):
            face, edge = (colour, "white") if filled else ("white", colour * 0.7)
            style: dict[str, Any] = {
                "markersize": 5,
                "markerfacecolor": face,
                "markeredgecolor": edge,
                "markeredgewidth": 0.7,
            }
            axes.plot(*data.X[data.labels == label].T, MARKS[label], **style)


def _costs(axes: Axes, engine: Engine, curves: tuple[str, str, str]) -> None:
    epochs, training, held_out = np.array(engine.history).T
    axes.plot(epochs, training, color="tab:blue", label=curves[0])
    axes.plot(epochs, held_out, color="tab:orange", linestyle="--", label=curves[1])
    axes.set(xlabel=curves[2], ylabel="cost", yscale="log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    common.plain_numbers(axes.yaxis)
    axes.grid(True, alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower left", bbox_to_anchor=(-0.1, 0.98), ncols=2, columnspacing=1)


def _net(axes: Axes, engine: Engine, activities: list[np.ndarray]) -> None:
    """Draw inputs and neurons as small pictures of what they compute, and the weights between them as lines."""
    network = engine.network
    sizes, names = network.sizes, network.activations
    inputs = np.stack([features_of(grid(engine), [name])[:, 0] for name in engine.settings.features], axis=1)
    levels = [as_bytes(inputs), *(as_bytes(A, name) for A, name in zip(activities, names, strict=True))]
    heights = [np.linspace(1, -1, size + 2)[1:-1] for size in sizes]
    lines = [
        ((level, below), (level + 1, above))
        for level in range(len(sizes) - 1)
        for above in heights[level + 1]
        for below in heights[level]
    ]
    W = np.concatenate([devices.to_device(layer.parameters[0], "cpu").ravel() for layer in network.layers])
    size = np.abs(W) / max(np.abs(W).max(), 1e-6)
    colours = [COLOURS[1] if weight > 0 else COLOURS[0] for weight in W]
    axes.add_collection(LineCollection(lines, linewidths=0.2 + 2.8 * size, colors=colours, zorder=1))
    high = min(0.085, 0.85 / (max(sizes) + 1))  # half the height of a picture
    wide = high * (len(sizes) + 0.25) / 2.2 * (3.6 * 0.9) / (9.6 * 0.37)  # as many inches
    for level, (column, pictures) in enumerate(zip(heights, levels, strict=True)):
        for height, picture in zip(column, thinned(pictures), strict=True):
            left, right, bottom, top = place = (level - wide, level + wide, height - high, height + high)
            axes.imshow(picture.reshape(SMALL, SMALL), SAYS, vmin=1, vmax=255, extent=place, origin="lower", zorder=2)
            frame: dict[str, Any] = {"fill": False, "edgecolor": common.INK, "linewidth": 0.7, "zorder": 3}
            axes.add_patch(Rectangle((left, bottom), right - left, top - bottom, **frame))
        axes.text(level, -1.07, str(len(column)), ha="center", va="center", fontsize=9)
    for name, height in zip((name for name in FEATURES if name in engine.settings.features), heights[0], strict=True):
        axes.text(-wide - 0.05, height, name, ha="right", va="center", fontsize=9)
    axes.text(-0.35, -1.07, "neurons", ha="right", va="center", fontsize=9)
    axes.set_title("what each neuron computes; weights: orange +, blue −", fontsize=9)
    axes.set(xlim=(-0.95, len(sizes) - 0.7), ylim=(-1.2, 1), aspect="auto")
    axes.set_axis_off()
