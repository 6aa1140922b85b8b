"""Model files: .npz (no pickle), and the text form that the handout's C program writes and reads.

An .npz holds `parameters`, the network's flat vector; `statistics`, if layers have some; `state_…`, the vectors that
the optimizer remembers; and `about`, a line of JSON with everything else. Files of version 0.2, in which the optimizer
is called `update`, can be read too.

The text form is for dense networks: number of layers; sizes; for each layer a line of biases; a line of weights for
each neuron, layer by layer. One more line, which the C program ignores, has the same JSON.
"""

import itertools
import json
import math
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nncourse.datasets import Scaling
from nncourse.errors import CourseError, decoded, reason_of, write_atomically
from nncourse.model.layers import Dense, Shape
from nncourse.model.network import Network, refuse_huge
from nncourse.model.optimizers import SGD, Optimizer, make_optimizer
from nncourse.model.registry import rebuilt
from nncourse.spreadsheets import lines_of

VECTOR, STATISTICS, STATE = "parameters", "statistics", "state_"  # names in an .npz


@dataclass
class Model:
    """A network, the scaling of its inputs, its class names, provenance, optimizer and the optimizer's state."""

    network: Network
    scaling: Scaling | None = None
    classes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    optimizer: Optimizer = field(default_factory=SGD)

    def scaled(self, X: np.ndarray) -> np.ndarray:
        """The samples X, scaled for the network."""
        return X if self.scaling is None else self.scaling.apply(X)


def save(model: Model, path: str | Path) -> None:
    """Write a model atomically: .npz by its ending, otherwise the C program's text, if it fits (else CourseError)."""
    path = Path(path)
    refuse_text_form(model.network, model.optimizer, path)
    write = _write_npz if path.suffix == ".npz" else _write_text
    write_atomically(path, lambda temporary: write(model, temporary))


def refuse_text_form(network: Network, optimizer: Optimizer, path: Path) -> None:
    """Raise CourseError if `path` is for the C program's text, which cannot hold the network or the optimizer."""
    if path.suffix == ".npz":
        return
    if not network.is_dense:
        raise CourseError(f"{path}: expected a name that ends in .npz: the C program's text holds dense layers only")
    if optimizer.remembers:
        kind = optimizer.describe()["kind"]
        wanted = "expected a name that ends in .npz: the C program's text cannot hold what the optimizer remembers"
        raise CourseError(f"{path}: {wanted}; got {kind}")


@np.errstate(over="ignore")  # weights beyond float32 are refused as infinite
def load(path: str | Path) -> Model:
    """Read a model in either form. Raises CourseError for a file that is not a complete, undamaged model."""
    path = Path(path)
    if not os.path.isfile(path):
        raise CourseError(f"{path}: expected a model file, found {'a folder' if os.path.isdir(path) else 'nothing'}")
    read = _read_npz if zipfile.is_zipfile(path) or path.suffix == ".npz" else _read_text
    try:
        return read(path)
    except CourseError as error:
        raise CourseError(f"{path}: {error}: name another file, or train it again") from None
    except OSError as error:
        raise CourseError(f"{path}: cannot be read: {reason_of(error)}") from error
    except MemoryError:
        raise
    except Exception as error:  # NumPy, zipfile and json raise many types for a damaged file
        wanted = "expected a model, .npz or the C program's text; it is damaged, or something else"
        raise CourseError(f"{path}: {wanted}: name another file, or train it again") from error


# ---- the contents of both forms


def _description(model: Model) -> str:
    """Everything except the arrays, as one line of JSON, which keeps floats exactly."""
    network = model.network
    about = {
        "layers": [layer.describe() for layer in network.layers],
        "input_shape": network.input_shape,
        "activations": network.activations,
        "cost": network.cost,
        "scaling": vars(model.scaling) if model.scaling else {"kind": "none"},
        "classes": model.classes,
        "provenance": model.provenance,
        "optimizer": model.optimizer.describe() | {"steps": model.optimizer.steps},
    }
    return json.dumps(about, default=np.ndarray.tolist)


def _model(network: Network, about: dict[str, Any], state: dict[str, np.ndarray]) -> Model:
    """A model from its parts. Raises CourseError if they do not fit together."""
    if not np.isfinite(network.flat_parameters).all():
        finite = [all(np.isfinite(array).all() for array in layer.parameters) for layer in network.layers]
        raise CourseError(f"layer {finite.index(False) + 1} has weights that are not finite")
    if not np.isfinite(network.flat_statistics).all():
        raise CourseError("it has statistics that are not finite")
    scaling = _scaling(about.get("scaling", {"kind": "none"}), network.input_shape)
    options = dict(about.get("optimizer") or about.get("update", {"kind": "sgd"}))
    steps = int(options.pop("steps", 0))
    optimizer = make_optimizer(options.pop("kind"), **options)
    if steps < 0 or (state or steps) and set(state) != set(optimizer.remembers):
        wanted = f"{', '.join(optimizer.remembers) or 'nothing'} of {options or 'its optimizer'} after {steps} steps"
        raise CourseError(f"expected {wanted}; got {', '.join(sorted(state)) or 'nothing'}")
    for name, array in state.items():
        if array.shape != network.flat_parameters.shape or not np.isfinite(array).all():
            raise CourseError(f"expected {network.flat_parameters.size} finite numbers for {name} of its optimizer")
    optimizer.state, optimizer.steps = state, steps
    provenance = dict(about.get("provenance", {}))
    return Model(network, scaling, tuple(map(str, about.get("classes", ()))), provenance, optimizer)


def _scaling(about: dict[str, Any], shape: Shape) -> Scaling | None:
    """The scaling in a description: a number for each input, or one for all. Raises CourseError if it does not fit."""
    if about["kind"] == "none":
        return None
    offset, factor = (np.array(about[name], np.float64) for name in ("offset", "factor"))
    fits = offset.shape == factor.shape and offset.shape in ((), shape if len(shape) == 1 else ())
    if not (fits and np.isfinite([offset, factor]).all() and factor.all()):
        count = f"{shape[0]} finite numbers" if len(shape) == 1 else "one finite number"
        raise CourseError(f"expected {count}, not 0, for the offset and the factor of its scaling")
    return Scaling(str(about["kind"]), offset, factor)


# ---- .npz


def _write_npz(model: Model, path: Path) -> None:
    state = {STATE + name: array for name, array in model.optimizer.state.items()}
    statistics = {STATISTICS: model.network.flat_statistics} if model.network.statistics else {}
    vectors = {VECTOR: model.network.flat_parameters} | statistics
    np.savez(path, about=np.array(_description(model)), **vectors, **state)


def _read_npz(path: Path) -> Model:
    with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    description = str(arrays.pop("about"))
    floats = {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}
    about, vector = json.loads(description), floats.pop(VECTOR)
    layers = [rebuilt(each) for each in about["layers"]]
    statistics = floats.pop(STATISTICS, np.empty(0, np.float32))
    _refuse_other_sizes("parameters", vector, [array for layer in layers for array in layer.parameters])
    _refuse_other_sizes("statistics", statistics, [array for layer in layers for array in layer.statistics])
    shape = tuple(map(int, about["input_shape"]))
    refuse_huge(layers, shape)
    network = Network(layers, about["cost"], shape, vector, statistics)
    return _model(network, about, {name.removeprefix(STATE): array for name, array in floats.items()})


def _refuse_other_sizes(what: str, vector: np.ndarray, arrays: Sequence[np.ndarray]) -> None:
    wanted = sum(array.size for array in arrays)
    if vector.shape != (wanted,):
        raise CourseError(f"expected {wanted} {what} for its layers, got an array of shape {vector.shape}")


# ---- the C program's text


def _write_text(model: Model, path: Path) -> None:
    network = model.network
    lines = [str(len(network.sizes)), " ".join(map(str, network.sizes))]
    pairs = [layer.parameters for layer in network.layers]  # W and b: refuse_text_form lets only dense layers through
    rows = [b for _, b in pairs] + [weights for W, _ in pairs for weights in W]
    lines += [" ".join(f"{number:.9g}" for number in row) for row in rows]  # nine digits keep a float32 exactly
    path.write_text("\n".join([*lines, f"about {_description(model)}"]) + "\n")


def _read_text(path: Path) -> Model:
    text = "\n".join(lines_of(decoded(path.read_bytes())))
    body, mark, description = text.partition("about ")
    count, *words = body.split()
    sizes = [int(word) for word in words[: int(count)]]
    numbers = np.array(words[len(sizes) :], np.float32)
    if len(sizes) != int(count) or len(sizes) < 2 or min(sizes) < 1:
        raise CourseError(f"expected the number of layers, 2 or more, and the size of each; got {body[:40]!r}")
    shapes = [(n_out,) for n_out in sizes[1:]] + list(zip(sizes[1:], sizes[:-1], strict=True))
    ends = list(itertools.accumulate(map(math.prod, shapes)))
    if len(numbers) != ends[-1] or not text.endswith("\n"):  # the last number may have lost digits
        wanted = f"{ends[-1]} biases and weights, and the end of the line"
        raise CourseError(f"expected {wanted}; got {len(numbers)}: the file is truncated, or not a model")
    arrays = [part.reshape(shape) for part, shape in zip(np.split(numbers, ends[:-1]), shapes, strict=True)]
    biases, weights = arrays[: len(sizes) - 1], arrays[len(sizes) - 1 :]
    # The C program writes no description: all its layers are sigmoid.
    about = json.loads(description) if mark else {"activations": ["sigmoid"] * len(weights)}
    layers = [Dense(W, b, name) for W, b, name in zip(weights, biases, about["activations"], strict=True)]
    return _model(Network(layers, str(about.get("cost", "mse"))), about, {})
