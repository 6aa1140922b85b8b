"""Widgets on a page without Python: what their JavaScript needs there, and what answers in Python's place.

    script(widget)    # the text of a function that returns { drawn, mind, standIn }
    state(widget)     # the traits for its model, and what its mind needs, as JSON has it

A widget with a file of its name in this folder is answered by that: it computes what answer() computes. Any other is
answered by frames that are recorded here, at all positions of all controls.
"""

import inspect
import itertools
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import Any

import anywidget
import numpy as np

from nnclassroom.widgets import digit_pad, downpour, laws, widget
from nnclassroom.widgets.playground.engine import DATA_WORDS, HELD_OUT
from nncourse import datasets
from nncourse.errors import CourseError
from nncourse.model.image_layers import Convolution, Flatten, MaxPool
from nncourse.model.layers import Dense
from nncourse.model.network import Network

HERE = Path(__file__).parent
MOST = 1500  # frames of a widget
OTHERS = ("layout", "tabbable", "tooltip")  # traits of every widget, which ours do not use
DIGITS = 6  # of a number that is recorded


def name_of(shown: anywidget.AnyWidget) -> str:
    """The name of the widget's file: "neuron"."""
    return PurePath(shown.script).stem


def script(shown: anywidget.AnyWidget) -> str:
    """The body of a JavaScript function: the widget as JupyterLab draws it, and what answers it."""
    own = HERE / f"{name_of(shown)}.js"
    drawn = re.sub(r"^export default ", "const drawn = ", str(shown._esm), flags=re.MULTILINE)
    files = (HERE / "alone.js", own if own.is_file() else HERE / "recorded.js", HERE / "end.js")
    return "\n".join([drawn, *(path.read_text("utf-8") for path in files)])


def state(shown: anywidget.AnyWidget) -> dict[str, Any]:
    """The widget's traits, and what its mind has instead of Python."""
    traits = {name: value for name, value in shown.get_state().items() if name[0] != "_" and name not in OTHERS}
    name = name_of(shown)
    if name in NEEDED:
        traits |= NEEDED[name](shown)
    elif not (HERE / f"{name}.js").is_file():
        traits["recorded"] = recorded(shown)
    return plain(traits)


def plain(tree: Any) -> Any:
    """A tree as JSON has it: bytes as {"base64": …}, arrays as widgets send them, floats with a few digits."""
    if isinstance(tree, np.ndarray):
        return plain(widget.packed(tree))
    if isinstance(tree, (bytes, memoryview)):
        return {"base64": b64encode(tree).decode()}
    if isinstance(tree, Mapping):
        return {str(key): plain(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [plain(value) for value in tree]
    if isinstance(tree, float):
        return float(f"{tree:.{DIGITS}g}")
    return tree.item() if isinstance(tree, np.generic) else tree


# ---- frames


def positions_of(control: widget.Control) -> list[float | str]:
    """The values that a control can take."""
    if control.kind == "menu":
        return [value for value, _ in control.options]
    if control.log:
        raise CourseError(f"the slider {control.label!r} has factors: expected a file in {HERE.name}/ that computes")
    assert control.low is not None and control.high is not None and control.step is not None
    count = round((control.high - control.low) / control.step) + 1
    values = (round(control.low + number * control.step, 10) for number in range(count))
    return [int(value) if control.step == 1 else value for value in values]


def recorded(shown: widget.BrowserWidget) -> dict[str, Any]:
    """Frames and words at all positions, the last control changing first, and where each button leads.

    Menus come first: a widget may remember what was seen since the last change of its menu.
    """
    moved = {name: control for name, control in shown.by_name.items() if control.value is not None}
    positions = {name: positions_of(moved[name]) for name in sorted(moved, key=lambda name: moved[name].kind != "menu")}
    every = [dict(zip(positions, values, strict=True)) for values in itertools.product(*positions.values())]
    if len(every) > MOST:
        raise CourseError(f"{len(every)} positions: expected at most {MOST}, or a file in {HERE.name}/ that computes")
    frames = []
    for values in every:
        shown.set(**values)
        frames.append((shown.frame, shown.words))
    pressed: dict[str, list[int]] = {}
    for name in (name for name, control in shown.by_name.items() if control.kind == "button"):
        pressed[name] = [every.index(_after(shown, name, values)) for values in every]
    return {"positions": positions, "frames": frames, "pressed": pressed}


def _after(shown: widget.BrowserWidget, button: str, values: dict[str, Any]) -> dict[str, Any]:
    shown.set(**values)
    assert shown.pressed
    shown.pressed(button)
    return {name: shown.values[name] for name in values}


# ---- what minds that compute need


def _laws(shown: anywidget.AnyWidget) -> dict[str, Any]:
    return {"networks": laws.NETWORKS}


def _downpour(shown: anywidget.AnyWidget) -> dict[str, Any]:
    problem = downpour.Problem()
    generator = problem.rng.bit_generator.state["state"]
    exact = {"best": problem.best.tolist(), "least": problem.least, "curvatures": downpour.CURVATURES.tolist()}
    seed = [str(generator["state"]), str(generator["inc"])]
    return {"problem": exact | {"X": problem.X, "y": problem.y, "seed": seed}}


def _playground(shown: anywidget.AnyWidget) -> dict[str, Any]:
    """The points of each data set: where they are without noise, and what noise 1 adds; the held-out ones last."""
    settings = shown.state["settings"]
    points = {}
    for name in DATA_WORDS:
        without, one = (_points(name, noise, settings) for noise in (0.0, 1.0))
        training, held_out = datasets.split(without, HELD_OUT, seed=settings["seed"])
        noisy = datasets.split(one, HELD_OUT, seed=settings["seed"])
        clean = np.concatenate([training.X, held_out.X])
        points[name] = {
            "clean": clean,
            "noise": np.concatenate([part.X for part in noisy]) - clean,
            "labels": np.concatenate([training.labels, held_out.labels]).astype(np.uint8),
            "training": len(training.X),
        }
    return {"points": points}


def _points(name: str, noise: float, settings: Mapping[str, Any]) -> datasets.Dataset:
    known = {key: settings[key] for key in ("samples", "seed")}
    return datasets.generate(name, noise=noise, **known)


def _digit_pad(shown: anywidget.AnyWidget) -> dict[str, Any]:
    """The network that the pad's function asks, and the scaling of its images."""
    assert isinstance(shown, digit_pad.Pad)
    seen = inspect.getclosurevars(shown.says)
    network, scaling = seen.nonlocals.get("network"), seen.globals.get("scaling")
    if not isinstance(network, Network) or scaling is None:
        raise CourseError("a pad on a page: expected a function of `network` and `scaling`")
    form = digit_pad.FORMS[shown.seen_side]
    reader = {"layers": [LAYERS[type(layer)](layer) for layer in network.layers], "first": digit_pad.FIRST}
    numbers = {"offset": float(scaling.offset), "factor": float(scaling.factor)}
    return {"reader": reader | numbers | {"form": {"box": form.box, "centre": form.centre}}}


LAYERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Convolution: lambda layer: {"kind": "convolution", "W": layer.W, "b": layer.b, "before": layer.before},
    MaxPool: lambda layer: {"kind": "pool", "size": layer.size},
    Flatten: lambda layer: {"kind": "flatten"},
    Dense: lambda layer: {"kind": "dense", "W": layer.W, "b": layer.b, "activation": layer.activation},
}
NEEDED: dict[str, Callable[[anywidget.AnyWidget], dict[str, Any]]] = {
    "laws": _laws,
    "downpour": _downpour,
    "playground": _playground,
    "digit_pad": _digit_pad,
}
