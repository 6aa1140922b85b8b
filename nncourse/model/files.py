"""Model files: .npz (no pickle), and the text form that the handout's C program writes and reads.

The text form is: number of layers; sizes; for each layer a line of biases; a line of weights for each neuron, layer by
layer. Lines after that, which the C program ignores, say what it takes for granted: activations, cost, scaling.
"""

import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nncourse.datasets import Scaling
from nncourse.errors import CourseError
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
    _atomically(path, lambda temporary: write(model, temporary))


@np.errstate(over="ignore")  # weights beyond float32 are refused as infinite
def load(path: str | Path) -> Model:
    """Read a model in either form; CourseError, one line, for anything that is not a whole model."""
    path = Path(path)
    if not os.path.isfile(path):
        raise CourseError(f"{path}: wanted a model file, found {'a folder' if os.path.isdir(path) else 'nothing'}")
    try:
        return _read_npz(path) if zipfile.is_zipfile(path) or path.suffix == ".npz" else _read_text(path)
    except OSError as error:
        raise CourseError(f"{path}: cannot be read: {error.strerror}") from error


# ---- what both forms hold


def _about(model: Model) -> dict:
    return {
        "activations": list(model.network.activations),
        "cost": model.network.cost,
        "scaling": model.scaling.kind if model.scaling else "none",
        "classes": list(model.classes),
        "provenance": model.provenance,
    }


def _assemble(path: Path, parameters: list[tuple], about: dict, offset, factor) -> Model:
    """A model from its parts; CourseError where they do not fit together."""
    count = len(parameters)
    activations = about.get("activations", ["sigmoid"] * count)
    if not isinstance(activations, list) or len(activations) != count:
        raise CourseError(f"{path}: wanted {count} activations, one a layer; got {activations}")
    for number, (W, b) in enumerate(parameters, 1):
        below = parameters[number - 2][0].shape[0] if number > 1 else W.shape[-1]
        if W.ndim != 2 or b.shape != W.shape[:1] or W.shape[1] != below or not W.size:
            raise CourseError(
                f"{path}: the weights {W.shape} and biases {b.shape} of layer {number} do not fit the network"
            )
        if not (np.isfinite(W).all() and np.isfinite(b).all()):
            raise CourseError(f"{path}: layer {number} has weights that are not finite: train the model again")
    layers = [Dense(W, b, str(name)) for (W, b), name in zip(parameters, activations, strict=True)]
    scaling = None
    kind = about.get("scaling", "none")
    if kind != "none":
        n_in = layers[0].W.shape[1]
        for part in (offset, factor):
            if part is None or part.shape != (n_in,) or not np.isfinite(part).all():
                raise CourseError(f"{path}: wanted {n_in} finite numbers for the offset and the factor of the scaling")
        if not factor.all():
            raise CourseError(f"{path}: a factor of its scaling is 0: train the model again")
        scaling = Scaling(str(kind), offset, factor)
    provenance = about.get("provenance", {})
    classes = about.get("classes", [])
    if not isinstance(provenance, dict) or not isinstance(classes, list):
        raise CourseError(f"{path}: its description is damaged: wanted a list of classes and a table of provenance")
    try:
        network = Network(layers, str(about.get("cost", "mse")))
    except CourseError as error:
        raise CourseError(f"{path}: {error}") from None
    return Model(network, scaling, tuple(map(str, classes)), provenance)


# ---- .npz


def _write_npz(model: Model, path: Path) -> None:
    arrays = {"about": np.array(json.dumps(_about(model)))}
    for number, layer in enumerate(model.network.layers, 1):
        arrays |= {f"W{number}": layer.W, f"b{number}": layer.b}
    if model.scaling:
        arrays |= {"offset": model.scaling.offset, "factor": model.scaling.factor}
    with open(path, "wb") as file:
        np.savez(file, **arrays)


def _read_npz(path: Path) -> Model:
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about")))
        count = sum(name.startswith("W") for name in arrays)
        parameters = [(_floats(arrays[f"W{n}"]), _floats(arrays[f"b{n}"])) for n in range(1, count + 1)]
        scaling = [arrays[name].astype(np.float64) if name in arrays else None for name in ("offset", "factor")]
        if not count or not isinstance(about, dict):
            raise ValueError("no weights in it")
    except OSError:
        raise
    except Exception as error:  # NumPy, zipfile and json each have their own for a damaged file
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise CourseError(
            f"{path}: wanted a model saved by nncourse, but it is damaged or something else ({what})"
        ) from None
    return _assemble(path, parameters, about, *scaling)


def _floats(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.float32)


# ---- the C program's text


def _write_text(model: Model, path: Path) -> None:
    network = model.network
    lines = [str(len(network.sizes)), " ".join(map(str, network.sizes))]
    lines += [_row(layer.b) for layer in network.layers]
    lines += [_row(weights) for layer in network.layers for weights in layer.W]
    lines.append("activations " + " ".join(network.activations))
    lines.append(f"cost {network.cost}")
    if model.scaling:
        lines += [f"scaling {model.scaling.kind}", "offset " + _row(model.scaling.offset, 17)]
        lines.append("factor " + _row(model.scaling.factor, 17))
    lines.append("about " + json.dumps({"classes": list(model.classes), "provenance": model.provenance}))
    path.write_text("\n".join(lines) + "\n")


def _row(numbers: np.ndarray, digits: int = 9) -> str:
    """Nine digits bring a float32 back exactly, seventeen a float64."""
    return " ".join(f"{number:.{digits}g}" for number in numbers)


def _read_text(path: Path) -> Model:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        raise CourseError(f"{path}: wanted a model, .npz or the C program's text; this is neither") from None
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    lines.reverse()  # pop() then takes the first line that is left
    (count,) = _numbers(path, lines, 1, "the number of layers", int)
    if count < 2:
        raise CourseError(f"{path}, line 1: wanted 2 layers or more, got {count}")
    sizes = _numbers(path, lines, count, "the size of each layer", int)
    if min(sizes) < 1:
        raise CourseError(f"{path}, line 2: wanted sizes of at least 1, got {min(sizes)}")
    biases = [_numbers(path, lines, size, f"the biases of layer {n}") for n, size in enumerate(sizes[1:], 2)]
    parameters = []
    for number, (n_in, n_out) in enumerate(zip(sizes[:-1], sizes[1:], strict=True), 2):
        rows = [_numbers(path, lines, n_in, f"the weights of a neuron of layer {number}") for _ in range(n_out)]
        parameters.append((np.array(rows, np.float32), np.array(biases[number - 2], np.float32)))
    if not text.endswith("\n"):  # a number may have lost digits
        raise CourseError(f"{path}: its last line has no end: the file is truncated")
    return _assemble(path, parameters, *_extra_lines(path, lines))


def _numbers(path: Path, lines: list[tuple[int, str]], count: int, what: str, kind: Callable = float) -> list:
    """The next line's numbers: `count` of them, or CourseError."""
    if not lines:
        raise CourseError(f"{path}: ends before {what}: the file is truncated, or no model")
    number, line = lines.pop()
    words = line.split()
    try:
        values = [kind(word) for word in words]
    except ValueError:
        raise CourseError(f"{path}, line {number}: wanted {what}, got {line[:30]!r}") from None
    if len(values) != count:
        raise CourseError(f"{path}, line {number}: wanted {what}, {count} numbers; got {len(values)}")
    return values


def _extra_lines(path: Path, lines: list[tuple[int, str]]) -> tuple[dict, np.ndarray | None, np.ndarray | None]:
    """What follows the weights, if anything: the description, and the scaling's offset and factor."""
    about: dict = {}
    scaling: dict = {}
    word = ""
    for number, line in reversed(lines):
        word, _, rest = line.strip().partition(" ")
        try:
            if word == "activations":
                about[word] = rest.split()
            elif word in ("cost", "scaling"):
                about[word] = rest
            elif word in ("offset", "factor"):
                scaling[word] = np.array(rest.split(), np.float64)
            elif word == "about":
                about |= json.loads(rest)
            else:
                raise ValueError
        except (ValueError, TypeError, RecursionError):
            raise CourseError(f"{path}, line {number}: wanted the end of the model, got {line[:30]!r}") from None
    if word not in ("", "about"):
        raise CourseError(f"{path}: ends after the line {word!r}, before the line 'about': the file is truncated")
    return about, scaling.get("offset"), scaling.get("factor")


def _atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write beside the target, then rename: a reader sees the old file or the new one, never half of it."""
    if os.path.exists(path) and not os.path.isfile(path):  # a folder, or a device such as /dev/null
        raise CourseError(f"{path}: cannot be written: it is there, and no file")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        try:
            write(temporary)
            temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CourseError(f"{path}: cannot be written: {error.strerror}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
