"""Model files: .npz (no pickle), and the text form that the handout's C program writes and reads.

The text form is: number of layers; sizes; for each layer a line of biases; a line of weights for each neuron, layer by
layer. One more line, which the C program ignores, says what it takes for granted: activations, cost, scaling.
"""

import itertools
import json
import math
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nncourse.datasets import Scaling
from nncourse.errors import CourseError, write_atomically
from nncourse.model.layers import Dense
from nncourse.model.network import Network


@dataclass
class Model:
    """A network and what its user must know: scaling of the inputs, class names, where it comes from."""

    network: Network
    scaling: Scaling | None = None
    classes: tuple[str, ...] = ()
    provenance: dict = field(default_factory=dict)

    def scaled(self, X: np.ndarray) -> np.ndarray:
        """Samples as the network wants them."""
        return X if self.scaling is None else self.scaling.apply(X)


def save(model: Model, path: str | Path) -> None:
    """Write a model: .npz by that ending, else the C program's text. The file is complete or not there at all."""
    path = Path(path)
    write = _write_npz if path.suffix == ".npz" else _write_text
    write_atomically(path, lambda temporary: write(model, temporary))


@np.errstate(over="ignore")  # weights beyond float32 are refused as infinite
def load(path: str | Path) -> Model:
    """Read a model in either form; CourseError, one line, for anything that is not a whole model."""
    path = Path(path)
    if not os.path.isfile(path):
        raise CourseError(f"{path}: wanted a model file, found {'a folder' if os.path.isdir(path) else 'nothing'}")
    read = _read_npz if zipfile.is_zipfile(path) or path.suffix == ".npz" else _read_text
    try:
        return _assemble(*read(path))
    except CourseError as error:
        raise CourseError(f"{path}: {error}: name another file, or train it again") from None
    except OSError as error:
        raise CourseError(f"{path}: cannot be read: {error.strerror}") from error
    except MemoryError:
        raise
    except Exception as error:  # NumPy, zipfile and json have many for a damaged file
        wanted = "wanted a model, .npz or the C program's text; it is damaged, or something else"
        raise CourseError(f"{path}: {wanted}: name another file, or train it again") from error


# ---- what both forms hold


def _description(model: Model) -> str:
    """All but the weights, as one line of JSON; its floats come back exactly."""
    about = {
        "activations": model.network.activations,
        "cost": model.network.cost,
        "scaling": vars(model.scaling) if model.scaling else {"kind": "none"},
        "classes": model.classes,
        "provenance": model.provenance,
    }
    return json.dumps(about, default=np.ndarray.tolist)


def _assemble(parameters: list[tuple], description: str | None) -> Model:
    """A model from its parts; CourseError where they do not fit together. Without a description: as the C program."""
    for number, (W, b) in enumerate(parameters, 1):
        below = parameters[number - 2][0].shape[0] if number > 1 else W.shape[-1]
        if W.ndim != 2 or b.shape != W.shape[:1] or W.shape[1] != below or not W.size:
            raise CourseError(f"weights {W.shape} and biases {b.shape} of layer {number} do not fit the network")
        if not (np.isfinite(W).all() and np.isfinite(b).all()):
            raise CourseError(f"layer {number} has weights that are not finite")
    about = {"activations": ["sigmoid"] * len(parameters)} if description is None else json.loads(description)
    pairs = zip(parameters, about["activations"], strict=True)
    network = Network([Dense(W, b, name) for (W, b), name in pairs], about.get("cost", "mse"))
    scaling = _scaling(about.get("scaling", {"kind": "none"}), network.sizes[0])
    return Model(network, scaling, tuple(map(str, about.get("classes", ()))), dict(about.get("provenance", {})))


def _scaling(about: dict, n_in: int) -> Scaling | None:
    """The scaling that a description tells; CourseError where it does not fit the network."""
    if about["kind"] == "none":
        return None
    offset, factor = (np.array(about[name], np.float64) for name in ("offset", "factor"))
    if not (offset.shape == factor.shape == (n_in,) and np.isfinite([offset, factor]).all() and factor.all()):
        raise CourseError(f"wanted {n_in} finite numbers, not 0, for the offset and the factor of its scaling")
    return Scaling(str(about["kind"]), offset, factor)


# ---- .npz


def _write_npz(model: Model, path: Path) -> None:
    arrays = {"about": np.array(_description(model))}
    for number, layer in enumerate(model.network.layers, 1):
        arrays |= {f"W{number}": layer.W, f"b{number}": layer.b}
    np.savez(path, **arrays)


def _read_npz(path: Path) -> tuple[list[tuple], str]:
    with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    count = sum(name.startswith("W") for name in arrays)
    numbered = [(arrays[f"W{n}"], arrays[f"b{n}"]) for n in range(1, count + 1)]
    parameters = [tuple(np.ascontiguousarray(array, np.float32) for array in pair) for pair in numbered]
    return parameters, str(arrays["about"])


# ---- the C program's text


def _write_text(model: Model, path: Path) -> None:
    network = model.network
    lines = [str(len(network.sizes)), " ".join(map(str, network.sizes))]
    rows = [layer.b for layer in network.layers] + [weights for layer in network.layers for weights in layer.W]
    lines += [" ".join(f"{number:.9g}" for number in row) for row in rows]  # nine digits bring a float32 back exactly
    path.write_text("\n".join([*lines, f"about {_description(model)}"]) + "\n")


def _read_text(path: Path) -> tuple[list[tuple], str | None]:
    text = path.read_text("utf-8")
    body, mark, description = text.partition("about ")
    count, *words = body.split()
    sizes = [int(word) for word in words[: int(count)]]
    numbers = np.array(words[len(sizes) :], np.float32)
    if len(sizes) != int(count) or len(sizes) < 2 or min(sizes) < 1:
        raise CourseError(f"wanted the number of layers, 2 or more, and the size of each; got {body[:40]!r}")
    shapes = [(n_out,) for n_out in sizes[1:]] + list(zip(sizes[1:], sizes[:-1], strict=True))
    ends = list(itertools.accumulate(map(math.prod, shapes)))
    if len(numbers) != ends[-1] or not text.endswith("\n"):  # the last number may have lost digits
        wanted = f"{ends[-1]} biases and weights, and the end of the line"
        raise CourseError(f"wanted {wanted}; got {len(numbers)}: the file is truncated, or no model")
    arrays = [part.reshape(shape) for part, shape in zip(np.split(numbers, ends[:-1]), shapes, strict=True)]
    biases, weights = arrays[: len(sizes) - 1], arrays[len(sizes) - 1 :]
    return list(zip(weights, biases, strict=True)), description if mark else None
