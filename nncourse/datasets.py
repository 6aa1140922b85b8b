"""Data sets: read and check, generate, split and scale them. Rows are samples.

Most callers need only `load`, which takes the name of a data set or the path of a CSV file. datasets/README.md lists
source, licence and shape of each set.
"""

import json
import math
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nncourse import datasets_sequences as sequences
from nncourse.errors import CourseError, nearest, refuse_unknown
from nncourse.language import COURSE

if TYPE_CHECKING:
    from nncourse.datasets_csv import Rows

FOLDER = COURSE / "datasets"
DIGITS = tuple("0123456789")
FASHION = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")
SAMPLE = "mnist_sample"  # the digits of MNIST that ship with the course
MNIST_SETS = {"mnist": DIGITS, "fashion_mnist": FASHION, SAMPLE: DIGITS}
SHIPPED = {"breast_cancer": ("benign", "malignant"), "digits": DIGITS}
IMAGES = {"digits": (1, 8, 8)} | dict.fromkeys(MNIST_SETS, (1, 28, 28))  # channels, height, width
SILHOUETTES, SEQUENCES = "silhouettes", ("sums", "sums5", "text")
SCALINGS = ("none", "normalization", "standardization")
MOST_PIXELS = (1 << 31) // 9  # in the silhouettes of one class
MOST_CLASSES = 1000  # in a file read without a network, larger integers are measurements, not labels


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Samples with their targets."""

    name: str
    X: np.ndarray  # (samples, features) float32; uint8 only on request, from silhouettes()
    Y: np.ndarray  # (samples, outputs) float32: one column of 0 and 1 for two classes, one-hot for more, or raw targets
    classes: tuple[str, ...]  # the name of each class, in the order of the labels
    features: tuple[str, ...]  # the name of each column of X
    image_shape: tuple[int, int, int] | None = None  # (channels, height, width) if a row is an image
    notes: tuple[str, ...] = ()  # what looks odd in its table, one line each, to be shown to the user

    def __repr__(self) -> str:
        samples, features = self.X.shape
        what = "x".join(map(str, self.image_shape)) + " pixels" if self.image_shape else f"{features} features"
        return f"{self.name}: {samples} samples, {what}, {len(self.classes)} classes"

    @property
    def images(self) -> np.ndarray:
        """X as images, (samples, channels, height, width). Raises CourseError if the samples are not images."""
        if self.image_shape is None:
            raise CourseError(f"expected images, such as those of {' or '.join(IMAGES)}; {self.name} has none")
        return self.X.reshape(-1, *self.image_shape)

    def samples_for(self, shape: tuple[int, ...]) -> np.ndarray:
        """X for a network whose samples have this shape: (features,), or (channels, height, width) for images.

        Rows that are not known to be images become images of that shape, channel by channel, row by row.
        Raises CourseError if they do not fit.
        """
        features = self.X.shape[1]
        if len(shape) == 3 and self.image_shape not in (None, shape):
            wanted, got = ("x".join(map(str, sides)) for sides in (shape, self.image_shape))
            raise CourseError(f"expected images of {wanted} for the network; those of {self.name} have {got}")
        if math.prod(shape) != features:
            wanted = "x".join(map(str, shape)) if len(shape) > 1 else f"{shape[0]} features"
            raise CourseError(f"expected samples of {wanted} for the network; those of {self.name} have {features}")
        return self.X.reshape(-1, *shape)

    @property
    def labels(self) -> np.ndarray:
        """The class of each sample, (samples,) int32."""
        return predicted_classes(self.Y)


def predicted_classes(Y: np.ndarray) -> np.ndarray:
    """Class numbers (n,) int32 from targets or outputs (n, n_out): argmax of each row, or output > ½ if n_out is 1."""
    return (Y[:, 0] > 0.5 if Y.shape[1] == 1 else Y.argmax(axis=1)).astype(np.int32)


def load(
    name_or_path: str | Path,
    outputs: int | None = None,
    inputs: int | None = None,
    part: str = "train",
    label: str | int | None = None,
    shape: tuple[int, ...] = (),
) -> Dataset:
    """Load a data set by its name (see datasets/README.md), or a CSV file or a folder of photographs by its path.

    inputs, outputs: widths of the network's first and last layer, if the data are for a given network.
    shape: (channels, height, width) of the network's images: a folder's photographs are resized to it, as by photos().
    part: "train" or "test"; only MNIST, Fashion-MNIST, "mnist_sample" and the sets of sequences have a "test" part.
    label: the column of a CSV file with the classes, by its name or its number from 1; by default the last.

    Raises CourseError for an unknown name, and for data that do not fit the network.
    """
    name = str(name_or_path)
    if label is not None and (_is_known(name) or os.path.isdir(name)):
        raise CourseError(f"expected a CSV file with a column {label!r} of classes; {name} is not one: leave label out")
    if part != "train" and not has_test_part(name):
        raise CourseError(f"{name} has no part {part!r}: load it whole and split() it")
    if name in SHIPPED:
        data = replace(read_csv(FOLDER / f"{name}.csv"), classes=SHIPPED[name], image_shape=IMAGES.get(name))
    elif name in GENERATORS:
        data = generate(name)
    elif name in MNIST_SETS:
        data = mnist(part, name=name)
    elif name == SILHOUETTES:
        data = silhouettes()
    elif is_sequences(name):
        digits = sequences.digits_of(name)
        data = sums(digits, part) if digits else text(part=part)
    elif os.path.isdir(name):
        data = photos(name, *shape[1:], *shape[:1]) if len(shape) == 3 else photos(name)
    elif is_table(name):
        return read_csv(name, inputs=inputs, outputs=outputs, label=label)
    else:
        names = [*SHIPPED, *GENERATORS, SILHOUETTES, *SEQUENCES, *MNIST_SETS]
        wanted = f"the path of a CSV file or of a folder of photographs, or a data set, one of {', '.join(names)}"
        raise CourseError(f"expected {wanted}; got {name!r}{nearest(name, names)}")
    if inputs not in (None, data.X.shape[1]):
        pixels = f", images of {'x'.join(map(str, data.image_shape))}" if data.image_shape else ""
        got = f"{data.name} has {data.X.shape[1]}{pixels}"
        raise CourseError(f"expected {inputs} features for the inputs of the network; {got}")
    if outputs == 2 and len(data.classes) == 2:  # two classes may take one output or two
        return replace(data, Y=_targets(data.labels, 2))
    if outputs not in (None, data.Y.shape[1]):
        raise CourseError(f"expected {data.Y.shape[1]} outputs for {data.name}; the network has {outputs}")
    return data


def refuse_single_class(data: Dataset) -> None:
    """Raise CourseError if all samples have the same target: then there is nothing to learn."""
    if not (data.Y - data.Y[0]).any():
        advice = "if the classes are in another column of its file, name it with --label"
        raise CourseError(f"{data.name}: expected two classes or more to learn; all samples are of one: {advice}")


def is_table(name: str) -> bool:
    """Whether a name is the path of a file, and not a data set."""
    return not _is_known(name) and (os.path.exists(name) or bool(Path(name).suffix))


def _is_known(name: str) -> bool:
    return name in SHIPPED or name in GENERATORS or has_test_part(name) or name == SILHOUETTES


def has_test_part(name: str) -> bool:
    """Whether load(name, part="test") gives samples that are not in part "train"."""
    return name in MNIST_SETS or is_sequences(name)


def is_sequences(name: str) -> bool:
    """Whether a data set has sequences of tokens: sums, sums3 to sums7, text."""
    return bool(re.fullmatch(sequences.NAMED, name))


def _targets(labels: np.ndarray, outputs: int) -> np.ndarray:
    """One-hot targets (samples, outputs) float32; a single output is 1 for label 1 and 0 for label 0."""
    columns = [1] if outputs == 1 else np.arange(outputs)
    return (labels[:, None] == columns).astype(np.float32)


def _numbered(prefix: str, first: int, count: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in range(first, first + count))


def read_csv(
    path: str | Path, inputs: int | None = None, outputs: int | None = None, label: str | int | None = None
) -> Dataset:
    """Read a CSV file: features first, then one column of labels 0, 1, 2, …, or one column for each output.

    The header may be quoted, unquoted or missing; numbers may be quoted; rows without content are skipped. A single
    column after the features is the label; it becomes one output of 0 or 1, or one-hot targets. Several columns are
    the targets.

    inputs: the number of features; by default all columns but the last.
    outputs: the number of targets; by default the largest label determines the number of classes.
    label: the column with the labels, by its name or its number from 1; by default the last. If it is given, all other
        columns are features.

    Raises CourseError, with file, row (the line of the file) and column, if anything does not fit.
    """
    from nncourse import datasets_columns as columns
    from nncourse.datasets_csv import read_table

    rows, values = read_table(Path(path))
    chosen = None if label is None else columns.chosen(rows, label)
    features = rows.width - 1 if inputs is None else inputs
    targets = rows.width - features
    if targets < 1 or chosen is not None and targets > 1 or outputs not in (None, targets) and targets > 1:
        last = "the label last" if chosen is None else "one of them the label"
        each = "more (a column for each output)" if outputs is None else f"{features + outputs} (one for each output)"
        wanted = f"{features + 1} columns ({last})" + (f" or {each}" if outputs != 1 and chosen is None else "")
        raise CourseError(f"{rows.path}: expected {wanted} for this network; the file has {rows.width}")
    at = rows.width - 1 if chosen is None else chosen
    used = [column for column in range(rows.width) if column != at] if targets == 1 else [*range(features)]
    if chosen is None:
        columns.refuse_misplaced_labels(rows, used)
    columns.refuse_row_of_column_numbers(rows, values, at)
    notes = columns.row_numbers(rows, values, used, [at] if targets == 1 and chosen is None else [])
    if targets == 1:
        advice = "; if the classes are in another column, name it with --label" if rows.width > 2 else ""
        Y, classes = _targets_from_labels(rows, values[:, at], at, outputs, advice if chosen is None else "")
        notes += columns.single_class(rows, values[:, at], at)
    else:
        Y, classes = values[:, features:].astype(np.float32), rows.names[features:] or _numbered("", 0, targets)
    names = tuple(rows.names[column] for column in used) if rows.names else _numbered("x", 1, features)
    X = values[:, :features] if used == [*range(features)] else values[:, used]
    return Dataset(rows.path.stem, X.astype(np.float32), Y, classes, names, notes=notes)


def _targets_from_labels(
    rows: "Rows", labels: np.ndarray, column: int, outputs: int | None, advice: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Targets and class names from a column of labels; two classes share one output unless `outputs` is 2."""
    most = MOST_CLASSES if outputs is None else max(2, outputs)
    wrong = np.flatnonzero((labels != np.floor(labels)) | (labels < 0) | (labels >= most))
    if len(wrong):
        wanted = "a label 0 or 1" if most == 2 else f"an integer label from 0 to {most - 1}"
        raise rows.error(wrong[0], column, wanted, advice)
    labels = labels.astype(int)
    classes = max(2, labels.max() + 1) if outputs is None else most
    targets = 1 if classes == 2 and outputs != 2 else classes
    return _targets(labels, targets), _numbered("", 0, classes)


# ---- generated sets --------------------------------------------------------------------------------------------------


def generate(name: str, **options: float) -> Dataset:
    """Generate a data set by name: X (samples, 2), or 30 columns of credit cards. `options`: samples, noise, seed."""
    refuse_unknown("a generated data set", name, GENERATORS)
    return GENERATORS[name](**options)


def moons(samples: int = 400, noise: float = 0.1, seed: int = 0) -> Dataset:
    """Two interleaved half circles."""
    rng, labels = _start(samples, noise, seed)
    angle = np.pi * rng.random(samples)
    x = np.where(labels == 0, np.cos(angle), 1 - np.cos(angle))
    y = np.where(labels == 0, np.sin(angle), 0.5 - np.sin(angle))
    return _plane("moons", x, y, labels, noise, rng)


def circles(samples: int = 400, noise: float = 0.08, seed: int = 0) -> Dataset:
    """A circle of radius 1 around one of radius 0.5."""
    rng, labels = _start(samples, noise, seed)
    angle, radius = 2 * np.pi * rng.random(samples), np.where(labels == 0, 1.0, 0.5)
    return _plane("circles", radius * np.cos(angle), radius * np.sin(angle), labels, noise, rng)


def spirals(samples: int = 400, noise: float = 0.03, seed: int = 0) -> Dataset:
    """Two arms of a spiral, one and a half turns each."""
    rng, labels = _start(samples, noise, seed)
    radius = np.sqrt(rng.random(samples))  # the root spreads the samples evenly along the arm
    angle = 3 * np.pi * radius + np.pi * labels
    return _plane("spirals", radius * np.cos(angle), radius * np.sin(angle), labels, noise, rng)


def blobs(samples: int = 400, noise: float = 0.3, seed: int = 0) -> Dataset:
    """Three classes, each a round normal cloud of standard deviation `noise`, at the corners of a triangle."""
    rng, labels = _start(samples, noise, seed, classes=3)
    angle = 2 * np.pi * labels / 3
    return _plane("blobs", np.cos(angle), np.sin(angle), labels, noise, rng, classes=3)


def xor(samples: int = 400, noise: float = 0.1, seed: int = 0) -> Dataset:
    """Points in the square from -1 to 1; class 1 if exactly one coordinate is positive. Not linearly separable."""
    rng, _ = _start(samples, noise, seed)
    x, y = rng.uniform(-1, 1, size=(2, samples))
    return _plane("xor", x, y, ((x > 0) != (y > 0)).astype(int), noise, rng)


def credit_card_standin(samples: int = 5492, noise: float = 1.0, seed: int = 0) -> Dataset:
    """SYNTHETIC transactions in the format of the credit-card fraud data: no row is real.

    Time (seconds), V1 to V28 and Amount, unscaled; 9 % frauds. `noise` scales the spread of V1 to V28.
    """
    rng, order = _start(samples, noise, seed, classes=samples)
    labels = (order < max(1, round(0.09 * samples))).astype(int)
    # Frauds are shifted away from the other rows: in V1 to V3 always in the same direction, in V4 to V7 in either
    # direction. So one neuron finds most frauds, a network finds more, and those shifted least cannot be told apart.
    away = np.zeros((samples, 28))
    away[:, :3] = -1
    away[:, 3:7] = rng.choice([-1, 1], size=(samples, 1))
    distance = rng.gamma(6.0, 0.5, size=(samples, 1)) * labels[:, None]
    spread = np.geomspace(2.0, 0.3, 28)  # falls as that of principal components
    V = spread * (distance * away + noise * rng.standard_normal((samples, 28)))
    time = rng.integers(0, 2 * 24 * 3600, size=samples)
    amount = np.round(rng.lognormal(np.where(labels == 1, 3.5, 3.0), 1.5), 2)
    X = np.column_stack([time, V, amount]).astype(np.float32)
    names = ("Time", *_numbered("V", 1, 28), "Amount")
    return Dataset("credit_card_standin", X, _targets(labels, 1), ("legitimate", "fraud"), names)


def _start(samples: int, noise: float, seed: int, classes: int = 2) -> tuple[np.random.Generator, np.ndarray]:
    """A random generator, and labels (samples,) in random order, the same number of each class."""
    if samples < 2 or not 0 <= noise < np.inf:
        raise CourseError(f"expected at least 2 samples and a noise of at least 0; got {samples} and {noise}")
    rng = np.random.default_rng(seed)
    return rng, rng.permutation(samples) % classes


def _plane(
    name: str,
    x: np.ndarray,
    y: np.ndarray,
    labels: np.ndarray,
    noise: float,
    rng: np.random.Generator,
    classes: int = 2,
) -> Dataset:
    """A data set of points (x, y) in the plane, with normal noise added."""
    X = np.column_stack([x, y]) + noise * rng.standard_normal((len(x), 2))
    Y = _targets(labels, 1 if classes == 2 else classes)
    return Dataset(name, X.astype(np.float32), Y, _numbered("", 0, classes), ("x1", "x2"))


def silhouettes(
    n_per_class: int = 1000, seed: int = 0, height: int = 148, width: int = 197, dtype: type[np.generic] = np.float32
) -> Dataset:
    """Generated grey silhouettes of fish in nine classes, a stand-in for photographs: no fish is real.

    Each image is a row of height x width pixels from 0 to 1. The default 9,000 images take 1.05 GB. With dtype np.uint8
    they take a quarter: the pixels are whole numbers from 0 to 255. Raises CourseError for sizes out of range.
    """
    if min(n_per_class, height, width) < 1 or n_per_class * height * width > MOST_PIXELS:
        wanted = "n_per_class, height and width of at least 1, and at most 2^31 pixels in all"
        raise CourseError(f"expected {wanted}; got {n_per_class}, {height} and {width}")
    if dtype not in (np.float32, np.uint8):
        raise CourseError(f"expected pixels of dtype np.float32 or np.uint8; got {dtype}")
    from nncourse import datasets_silhouettes as shapes

    samples, classes = n_per_class * len(shapes.CLASSES), len(shapes.CLASSES)
    labels = np.random.default_rng(seed).permutation(samples) % classes
    X = shapes.drawn(labels, height, width, seed).reshape(samples, -1)
    if dtype == np.float32:
        X = X.astype(np.float32)
        X /= np.float32(255)
    pixels = tuple(f"pixel_{row}_{column}" for row in range(height) for column in range(width))
    return Dataset(SILHOUETTES, X, _targets(labels, classes), shapes.CLASSES, pixels, (1, height, width))


def photos(
    folder: str | Path, height: int = 148, width: int = 197, channels: int = 1, most: int | None = None,
    dtype: type[np.generic] = np.float32,
) -> Dataset:  # fmt: skip
    """Photographs as images of one size, from a folder with a subfolder for each class. Pillow reads the files.

    channels: 1 for grey, 3 for red, green and blue.
    most: the most photographs of each class, the first by name; by default all.

    X has a row of channels x height x width pixels for each photograph, class after class: from 0 to 1, or with dtype
    np.uint8 whole numbers from 0 to 255. Files that cannot be read are left out, and named in `notes`. Raises
    CourseError unless at least two classes have photographs.
    """
    from nncourse import datasets_photos as of_folder

    if channels not in of_folder.MODES or min(height, width, most or 1) < 1:
        raise CourseError(f"expected 1 or 3 channels, and sides of at least 1; got {channels}, {height} and {width}")
    damaged: list[Path] = []
    found = {
        name: list(of_folder.read_all(files, height, width, channels, most, damaged))
        for name, files in of_folder.classes_in(Path(folder)).items()
    }
    if empty := [name for name, images in found.items() if not images]:
        raise CourseError(f"{folder}: no photograph of {', '.join(empty)} can be read")
    X = np.stack([image for images in found.values() for image in images], dtype=dtype)
    if dtype == np.float32:
        X /= np.float32(255)
    labels = np.repeat(np.arange(len(found)), [len(images) for images in found.values()])
    notes = tuple(f"{file} cannot be read, and is left out" for file in damaged)
    shape = channels, height, width
    X, Y = X.reshape(len(X), -1), _targets(labels, len(found) if len(found) > 2 else 1)
    return Dataset(Path(folder).name, X, Y, tuple(found), _numbered("pixel_", 0, X.shape[1]), shape, notes)


def sums(
    digits: int = 3, part: str = "train", samples: int = sequences.SUMS, unseen: int = sequences.UNSEEN, seed: int = 0
) -> Dataset:
    """Sums such as 347+085=2340 as sequences of tokens. The digits of the result are reversed: 347 + 85 = 432.

    digits: the number of digits of both summands, with leading zeros.
    part: "train" for `samples` sums, "test" for `unseen` different ones. The same seed gives the same sums.

    X (samples, 3 digits + 3) holds the index of each character in `classes`. Y is the next token if that is a digit of
    the result, otherwise −1, which does not count. Raises CourseError if there are not enough different sums.
    """
    parts = sequences.sums(digits, samples, unseen, seed)
    return _sequences(f"sums{digits}" if digits != 3 else "sums", parts[part == "test"], sequences.DIGITS_AND_SIGNS)


def text(length: int = sequences.LENGTH, part: str = "train") -> Dataset:
    """The prose of the notebooks, in the course's language, as windows of `length` characters. A character is a token.

    X (samples, length) holds the index of each character in `classes`, Y that of the character after it. Every tenth
    window is in part "test". Raises CourseError if this gives fewer than ten windows.
    """
    return _sequences("text", sequences.text(length)[part == "test"], sequences.CHARACTERS)


def _sequences(name: str, samples: sequences.Samples, kinds: str) -> Dataset:
    X, Y = samples
    return Dataset(name, X, Y, tuple(kinds), _numbered("token_", 1, X.shape[1]))


GENERATORS: dict[str, Callable[..., Dataset]] = {
    maker.__name__: maker for maker in (moons, circles, spirals, blobs, xor, credit_card_standin)
}


# ---- MNIST and Fashion-MNIST -----------------------------------------------------------------------------------------


def mnist(
    part: str = "train", folder: str | Path | None = None, name: str = "mnist", mirrors: Sequence[str] | None = None
) -> Dataset:
    """MNIST or Fashion-MNIST: X (60000 or 10000, 784) has pixels from 0 to 1, row by row, Y ten classes, one-hot.

    name: "mnist", "fashion_mnist", or "mnist_sample": the 3,000 and 600 digits of MNIST that ship with the course.
    folder: the folder of the IDX files; by default $NNCOURSE_DATA/<name> or datasets/<name>, into which missing files
        are downloaded.
    mirrors: addresses to download them from; by default the public mirrors.

    Raises CourseError for files that are missing, damaged or do not belong together.
    """
    _refuse_other_parts(part, name)
    prefix = "train" if part == "train" else "t10k"
    image_file = _idx_file(f"{prefix}-images-idx3-ubyte.gz", folder, name, mirrors)
    label_file = _idx_file(f"{prefix}-labels-idx1-ubyte.gz", folder, name, mirrors)
    from nncourse.datasets_idx import read_idx

    images, labels = read_idx(image_file), read_idx(label_file)
    if images.ndim != 3 or images.size == 0 or labels.shape != images.shape[:1] or labels.max() > 9:
        found = f"got the shapes {images.shape} and {labels.shape}, labels up to {labels.max(initial=0)}"
        raise CourseError(f"{image_file} and {label_file}: expected images and as many labels from 0 to 9; {found}")
    samples, height, width = images.shape
    X = images.reshape(samples, height * width).astype(np.float32) / np.float32(255)
    pixels = tuple(f"pixel_{row}_{column}" for row in range(height) for column in range(width))
    return Dataset(name, X, _targets(labels, 10), MNIST_SETS[name], pixels, (1, height, width))


def mnist_or_digits(part: str = "train") -> Dataset:
    """MNIST if its files are on this machine, otherwise "mnist_sample", the digits that ship with the course.

    Nothing is downloaded. Raises CourseError for a part other than "train" and "test".
    """
    files = (f"{prefix}-{kind}-ubyte.gz" for prefix in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
    return mnist(part, name="mnist" if all(_at_hand(file, None, "mnist") for file in files) else SAMPLE)


def credit_card_or_standin() -> tuple[Dataset, Dataset]:
    """The credit-card transactions for training and for testing, with 30 features; class 1 is fraud.

    The real ones are cc/CC_train.csv and cc/CC_test.csv in the folder NNCOURSE_DATA. If one is missing, both parts are
    from the synthetic "credit_card_standin", a fifth of it for testing.
    """
    files = [Path(os.environ.get("NNCOURSE_DATA", "")) / "cc" / f"CC_{part}.csv" for part in ("train", "test")]
    if os.environ.get("NNCOURSE_DATA") and all(file.is_file() for file in files):
        training, test = (load(file, inputs=30, outputs=1) for file in files)
        return training, test
    return split(load("credit_card_standin"), 0.2, seed=1)


def _refuse_other_parts(part: str, name: str) -> None:
    if part not in ("train", "test") or name not in MNIST_SETS:
        raise CourseError(f"expected part train or test of {' or '.join(MNIST_SETS)}; got {part!r} of {name!r}")


def _at_hand(file: str, folder: str | Path | None, name: str) -> Path | None:
    """The path of an IDX file, gzipped or not, in any spelling of its name; None if there is none."""
    from nncourse.datasets_idx import folders_of, found_below

    folders = [place for root in _roots() for place in folders_of(name, root)] if folder is None else [Path(folder)]
    return next(filter(None, (found_below(place, file, name) for place in folders)), None)


def _roots() -> list[Path]:
    """Where the folders of data sets are: the folder NNCOURSE_DATA, if that is set, and the course's own."""
    own = os.environ.get("NNCOURSE_DATA")
    return [Path(own), FOLDER] if own else [FOLDER]


def _idx_file(file: str, folder: str | Path | None, name: str, mirrors: Sequence[str] | None) -> Path:
    """The path of an IDX file, gzipped or not; it is downloaded if necessary."""
    if found := _at_hand(file, folder, name):
        return found
    from nncourse.datasets_idx import fetch, folders_of, named

    if folder is not None:
        there = named(Path(folder), name)
        files = f"there are {there}" if there else "the folder has no files"
        wanted = f"name the folder that holds the four IDX files of {name}"
        raise CourseError(f"{folder}: {file} is not there; {files}; {wanted}")
    published = json.loads((FOLDER / "mirrors.json").read_text()).get(name)
    if published is None:
        raise CourseError(f"{FOLDER / name}: {file} is not there; it ships with the course, so get the course again")
    root = _roots()[0]
    place = next(iter(folders_of(name, root)), root / name)
    files = named(place, name) if place.is_dir() else named(root, name, deepest=0) if root != FOLDER else ""
    where = f"download it elsewhere and put it into {place}"
    where += f" ({place if place.is_dir() else root} holds {files})" if files else ""
    advice = f"{where}, or use --dataset {SAMPLE}: digits of MNIST that ship with the course"
    return fetch(file, published["md5"][file], mirrors or published["mirrors"], FOLDER / name, advice)


# ---- splitting and scaling -------------------------------------------------------------------------------------------


def split(data: Dataset, fraction: float, seed: int = 0) -> tuple[Dataset, Dataset]:
    """Split the rows at random into two sets: `fraction` of each class goes to the second, the rest to the first.

    Raises CourseError if either would be empty.
    """
    order = np.random.default_rng(seed).permutation(len(data.X))
    labels = data.labels[order]
    in_second = np.zeros(len(order), dtype=bool)
    if 0 < fraction < 1:
        for label in np.unique(labels):
            members = np.flatnonzero(labels == label)
            in_second[members[: round(fraction * len(members))]] = True
    if in_second.all() or not in_second.any():
        raise CourseError(f"{data.name}: splitting {len(order)} rows by {fraction} leaves one part empty")
    first, second = order[~in_second], order[in_second]
    return replace(data, X=data.X[first], Y=data.Y[first]), replace(data, X=data.X[second], Y=data.Y[second])


@dataclass(frozen=True, eq=False)
class Scaling:
    """(X - offset) / factor: fitted on training data, applied to all data.

    A scaling of rows has an offset and a factor for each feature, a scaling of images one of each for all pixels.
    """

    kind: str  # "none", "normalization" or "standardization"
    offset: np.ndarray  # (features,) float64 in the features' units; for images () in the pixels' unit
    factor: np.ndarray  # the same shape, never zero

    def apply(self, X: np.ndarray) -> np.ndarray:
        """Scaled rows or images X, as a new float32 array. Raises CourseError for a different number of features."""
        if self.offset.ndim and (X.ndim != 2 or X.shape[1] != len(self.offset)):
            raise CourseError(f"expected {len(self.offset)} features per row, as when fitted; got the shape {X.shape}")
        scaled = np.empty_like(X, np.float32, order="C")
        for rows in _some_at_a_time(X):
            scaled[rows] = (X[rows] - self.offset) / self.factor
        return scaled


def fit_scaling(X: np.ndarray, kind: str) -> Scaling:
    """Fit a scaling to each feature of X (samples, features), or all pixels of X (samples, channels, height, width).

    `kind` is "normalization" (to the range 0 to 1), "standardization" (to mean 0 and standard deviation 1; also
    "standarization", as the C program spells it) or "none". Numbers that are all equal are only shifted to 0.
    Raises CourseError for any other kind, and for X without numbers.
    """
    kind = {"standarization": "standardization"}.get(kind, kind)
    refuse_unknown("a scaling", kind, SCALINGS)
    if X.ndim not in (2, 4) or X.size == 0:
        wanted = "(samples, features) or (samples, channels, height, width), at least one sample"
        raise CourseError(f"expected {wanted}, to fit a scaling; got the shape {X.shape}")
    axis = 0 if X.ndim == 2 else None
    low, high = (np.asarray(extreme(axis=axis), np.float64) for extreme in (X.min, X.max))
    if kind == "none":
        return Scaling(kind, np.zeros_like(low), np.ones_like(low))
    if kind == "normalization":
        offset, factor = low, high - low
    elif X.ndim == 2:
        X = X.astype(np.float64)
        offset, factor = X.mean(axis=0), X.std(axis=0)
    else:
        offset, factor = _mean_and_deviation(X)
    constant = low == high  # not factor == 0: rounding can make the standard deviation of equal numbers nonzero
    return Scaling(kind, np.where(constant, low, offset), np.where(constant, 1.0, factor))


def _mean_and_deviation(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of all numbers in X, in float64."""
    parts = _some_at_a_time(X)
    mean = sum(X[rows].sum(dtype=np.float64) for rows in parts) / X.size
    squares = sum(((X[rows].astype(np.float64) - mean) ** 2).sum() for rows in parts)
    return np.asarray(mean), np.sqrt(np.asarray(squares / X.size))


def _some_at_a_time(X: np.ndarray) -> list[slice]:
    """Slices of the rows with about a million numbers each, so that copies in float64 are small."""
    some = max(1, (1 << 20) // max(1, math.prod(X.shape[1:])))
    return [slice(start, start + some) for start in range(0, len(X), some)]
