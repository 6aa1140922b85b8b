"""The data from which the browser draws the playground: arrays of bytes and numbers."""

from typing import Any

import numpy as np

from nnclassroom.widgets.playground.engine import FEATURES, Engine, as_shares, features_of
from nncourse import device as devices

GRID, EVERY = 60, 3  # the large picture has GRID x GRID points, a small one every third
SMALL = GRID // EVERY


def grid(engine: Engine) -> np.ndarray:
    """The points of the large picture, (GRID · GRID, 2), row by row from the lowest x2."""
    across, up = np.linspace(engine.low, engine.high, GRID).T
    return np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2).astype(np.float32)


def thinned(values: np.ndarray) -> np.ndarray:
    """Columns (GRID · GRID, n) as small pictures, (n, SMALL · SMALL)."""
    corner = EVERY // 2
    small = values.reshape(GRID, GRID, -1)[corner::EVERY, corner::EVERY]
    return small.reshape(SMALL * SMALL, -1).T


def as_bytes(values: np.ndarray, activation: str = "") -> np.ndarray:
    """Values (n, neurons) as uint8: 128 is the middle of the activation's range, 1 and 255 are its ends.

    If the activation has no limits, the ends are ± the largest absolute value of each neuron.
    """
    values = np.nan_to_num(values, posinf=0, neginf=0)
    if activation in ("sigmoid", "softmax", "step"):
        middle, half = 0.5, 0.5
    elif activation == "tanh":
        middle, half = 0.0, 1.0
    else:
        middle, half = 0.0, np.maximum(np.abs(values).max(axis=0), 1e-6)
    return (128 + 127 * ((values - middle) / half).clip(-1, 1)).astype(np.uint8)


def scene(engine: Engine) -> dict[str, Any]:
    """The data that stay the same while the engine trains: the shape of the network, the points, the features."""
    sets = (engine.training, engine.held_out)
    every = np.stack([features_of(grid(engine), [name])[:, 0] for name in FEATURES], axis=1)
    return {
        "sizes": list(engine.network.sizes),
        "activations": list(engine.network.activations),
        "features": list(FEATURES),
        "chosen": list(engine.settings.features),
        "pictures": thinned(as_bytes(every)),
        "grid": GRID,
        "small": SMALL,
        "extent": [float(value) for pair in zip(engine.low, engine.high, strict=True) for value in pair],
        "classes": len(engine.training.classes),
        "points": np.concatenate([data.X for data in sets]).astype(np.float32),
        "labels": np.concatenate([data.labels for data in sets]).astype(np.uint8),
        "training": len(engine.training.X),
    }


def frame(engine: Engine, look: list[int] | None = None) -> dict[str, Any]:
    """The data that change: the shares of the classes over the plane, each neuron's small picture, weights, costs.

    `look` is the level (1 is the first layer) and the number of a neuron to be shown as a large picture too.
    """
    activities = engine.activities(grid(engine))
    names = engine.network.activations
    small = [thinned(as_bytes(A, name)) for A, name in zip(activities, names, strict=True)]
    ranges = np.concatenate([np.stack([A.min(axis=0), A.max(axis=0)], axis=1) for A in activities])
    drawn = {
        "plane": np.uint8(255 * as_shares(activities[-1])[:, 1:]),  # of class 1, 2, …; class 0 is the rest
        "neurons": np.concatenate(small),
        "ranges": ranges.astype(np.float32),
        "weights": devices.to_device(engine.network.flat_parameters, "cpu").astype(np.float32),
        "history": np.array(engine.history, np.float32),
        "right": engine.right(),
        "epoch": engine.epoch,
        "look": [],
        "large": np.zeros(0, np.uint8),
    }
    if look and 1 <= look[0] < len(engine.network.sizes) and look[1] < engine.network.sizes[look[0]]:
        level, number = look
        column = activities[level - 1][:, number : number + 1]
        drawn |= {"look": list(look), "large": as_bytes(column, names[level - 1])}
    return drawn
