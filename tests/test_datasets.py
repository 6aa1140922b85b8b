"""Data sets: what is read and generated, and the messages for what is refused."""

import functools
import gzip
import hashlib
import http.server
import json
import math
import os
import struct
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from memory import peak_of
from refusals import refused

from nncourse import datasets, datasets_csv, datasets_idx
from nncourse.datasets import fit_scaling, generate, load, mnist, read_csv, split
from nncourse.datasets_idx import fetch, read_idx
from nncourse.errors import CourseError

# ---- CSV files: what is read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ['"a","b","class"\n', "a,b,class\n", ""], ids=["quoted", "bare", "none"])
@pytest.mark.parametrize(
    "row", ['1.5,-2e3,"1"\n"0.25",4,0\n', "1.5,-2e3,1\n0.25,4,0\n", ' 1.5, "-2e3",1\n0.25 ,4, 0\n']
)
def test_header_and_quote_forms(csv_file, header, row):
    data = read_csv(csv_file(header + row))
    np.testing.assert_array_equal(data.X, [[1.5, -2000], [0.25, 4]])
    np.testing.assert_array_equal(data.Y, [[1], [0]])
    assert data.X.dtype == data.Y.dtype == np.float32
    assert data.features == (("a", "b") if header else ("x1", "x2"))
    assert data.classes == ("0", "1")
    assert data.name == "data"


@pytest.mark.parametrize("content", ["\ufeffa,c\r\n1,0\r\n\r\n2,1\r\n", "\n\na,c\n1,0\n   \n2,1", "1,0\r2,1\r"])
def test_byte_order_mark_line_ends_and_blank_lines(csv_file, content):
    data = read_csv(csv_file(content))
    np.testing.assert_array_equal(data.X, [[1], [2]])
    np.testing.assert_array_equal(data.labels, [0, 1])


def test_a_quoted_header_may_hold_commas(csv_file):
    assert read_csv(csv_file('"length, cm",class\n1,0\n')).features == ("length, cm",)


def test_label_column_without_a_network(csv_file):
    several = read_csv(csv_file("5,0\n6,3\n7,1\n"))
    np.testing.assert_array_equal(several.Y, np.eye(4)[[0, 3, 1]])
    assert several.classes == ("0", "1", "2", "3")
    only_zeros = read_csv(csv_file("5,0\n6,0\n"))
    np.testing.assert_array_equal(only_zeros.Y, [[0], [0]])


def test_label_column_for_a_network(csv_file):
    path = csv_file("5,6,0\n7,8,1\n")
    np.testing.assert_array_equal(read_csv(path, inputs=2, outputs=1).Y, [[0], [1]])
    np.testing.assert_array_equal(read_csv(path, inputs=2, outputs=2).Y, [[1, 0], [0, 1]])
    three = read_csv(path, inputs=2, outputs=3)
    np.testing.assert_array_equal(three.Y, [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(read_csv(path, outputs=3).Y, three.Y)
    np.testing.assert_array_equal(three.labels, [0, 1])
    assert three.labels.dtype == np.int32


def test_one_column_for_each_output_is_taken_as_it_is(csv_file):
    path = csv_file("a,b,low,high\n5,6,0.25,-1\n7,8,0,2.5\n")
    for data in (read_csv(path, inputs=2, outputs=2), read_csv(path, inputs=2)):
        np.testing.assert_array_equal(data.X, [[5, 6], [7, 8]])
        np.testing.assert_array_equal(data.Y, np.float32([[0.25, -1], [0, 2.5]]))
        assert data.classes == ("low", "high")
        np.testing.assert_array_equal(data.labels, [0, 1])


NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), width=st.integers(1, 5), form=st.sampled_from(["quoted", "bare", "none"]), quote=st.booleans())
def test_random_tables_come_back(tmp_path_factory, data, width, form, quote):
    sample = st.tuples(st.lists(NUMBERS, min_size=width, max_size=width), st.integers(0, 4))
    samples = data.draw(st.lists(sample, min_size=1, max_size=6))
    assume(form != "none" or not (np.diff([*samples[0][0], samples[0][1]]) == 1).all())  # a header of numbers
    mark = '"' if quote else ""
    lines = [",".join(f"{mark}{value!r}{mark}" for value in [*features, label]) for features, label in samples]
    if form != "none":
        mark = '"' if form == "quoted" else ""
        lines.insert(0, ",".join(f"{mark}column {number}{mark}" for number in range(width + 1)))
    path = tmp_path_factory.mktemp("csv") / "table.csv"
    path.write_text("\n".join(lines))
    result = read_csv(path, inputs=width, outputs=5)
    np.testing.assert_array_equal(result.X, np.float32([features for features, _ in samples]))
    np.testing.assert_array_equal(result.labels, [label for _, label in samples])


@settings(max_examples=300, deadline=None)
@given(
    content=st.binary(max_size=80)
    | st.text(alphabet='0123456789.,;#-+eE"\n\r \tnaifx_\x85\x1c', max_size=60).map(str.encode)
    | st.tuples(
        st.lists(
            st.lists(st.sampled_from(["0", "1", '"2"', "", "nan", "1e39", "a", '"', "1_0", "٣", "y"]), max_size=4)
        ),
        st.sampled_from(",;\t"),
        st.sampled_from(["", "sep=;\n", "# a\n", "\n", "y,id,a\n"]),
    ).map(lambda drawn: (drawn[2] + "\n".join(map(drawn[1].join, drawn[0]))).encode()),
    inputs=st.none() | st.integers(1, 3),
    outputs=st.none() | st.integers(1, 3),
    label=st.none() | st.sampled_from([1, 2, "y", "-1", "٢", ""]),
)
def test_random_bytes_are_read_or_refused_in_one_line(tmp_path_factory, content, inputs, outputs, label):
    path = tmp_path_factory.mktemp("csv") / "random.csv"
    path.write_bytes(content)
    try:
        data = read_csv(path, inputs, outputs, label)
    except CourseError as error:
        assert str(error).startswith(str(path))
        assert len(str(error).splitlines()) == 1
    else:
        assert len(data.X) == len(data.Y) == len(data.labels) > 0
        assert np.isfinite(data.X).all() and np.isfinite(data.Y).all()
        assert data.X.shape[1] == len(data.features)
        assert data.labels.max() < len(data.classes)


# ---- CSV files: what is refused --------------------------------------------------------------------------------------

NO_NUMBERS = ["abc", "", "nan", "-inf", "inf", "-Infinity", "NA", "1e39", "1e999", "1.5.2", "1_0", "٣", "½", "0x10"]
NO_NUMBERS += ["1 234", "$5", "5%"]
FINITE = "expected a finite number of at most 3.4e38 (float32)"
NO_ROWS = "the file has none"
NO_TEXTS = (b"\x89PNG\r\n\x1a\n\0\0", "a,b\n1,0\n".encode("utf-16")[:-1], "año,clase\n1,0\n".encode("latin-1"))


@pytest.mark.parametrize("field", NO_NUMBERS)
def test_wrong_fields_are_named_with_their_place(csv_file, field):
    complaint = f"{FINITE}; got {repr(field) if field else 'an empty field'}"
    path = csv_file(f'"a","b","class"\n1,2,0\n\n3,{field},1\n')
    assert refused(read_csv, path) == f"{path}: row 4, column 2 ('b'): {complaint}"
    path = csv_file(f"1,2,0\n\n3,{field},1\n")
    assert refused(read_csv, path) == f"{path}: row 3, column 2: {complaint}"


def test_long_fields_are_cut(csv_file):
    assert len(refused(read_csv, csv_file("a,class\n" + "x" * 200_000 + ",1\n"))) < 400


@pytest.mark.parametrize(
    "content, complaint",
    [
        ("a,b,class\n1,2,0\n\n3,1\n", "expected 3 columns, as in the first row; row 4 has 2"),
        ("1,2,0\n1,2,0,5\n", "expected 3 columns, as in the first row; row 2 has 4"),
        ("a,b,c,class\n1,2,0\n3,4,1\n", "expected 4 columns, as in the first row; row 2 has 3"),
        ('1,2,0\n1,"2,0\n3",4,0\n', "expected 3 columns, as in the first row; row 2 has 2"),
        *((text, NO_ROWS) for text in ("", "\n \n\r\n", '"a","b","class"\n\n', ",,\n,,\n", "# a\n")),
        ("0,1,class\n1,2,0\n", f"row 1, column 3: {FINITE}; got 'class'"),
        ("1,,0\n1,2,0\n", f"row 1, column 2: {FINITE}; got an empty field"),
        (b"1,2,0\n1,\0,1\n", rf"row 2, column 2: {FINITE}; got '\x00'"),
        *((text, "it is not text in UTF-8") for text in NO_TEXTS),
    ],
)
def test_damaged_files(csv_file, content, complaint):
    path = csv_file(content)
    message = refused(read_csv, path)
    assert message.startswith(f"{path}: ") and complaint in message


@pytest.mark.parametrize(
    "label, outputs, complaint",
    [
        ("2", 1, "expected a label 0 or 1; got '2'"),
        ("0.5", 1, "expected a label 0 or 1; got '0.5'"),
        ("-1", 3, "expected an integer label from 0 to 2; got '-1'"),
        ("3", 3, "expected an integer label from 0 to 2; got '3'"),
        ("1.5", None, "expected an integer label from 0 to 999; got '1.5'"),
        ("123456", None, "expected an integer label from 0 to 999; got '123456'"),
    ],
)
def test_labels_out_of_range(csv_file, label, outputs, complaint):
    path = csv_file(f"a,class\n1,0\n1,{label}\n")
    assert refused(read_csv, path, inputs=1, outputs=outputs) == f"{path}: row 3, column 2 ('class'): {complaint}"


@pytest.mark.parametrize(
    "inputs, outputs, wanted",
    [
        (4, 3, "5 columns (the label last) or 7 (one for each output)"),
        (2, 3, "3 columns (the label last) or 5 (one for each output)"),
        (2, 1, "3 columns (the label last)"),
        (9, None, "10 columns (the label last) or more (a column for each output)"),
    ],
)
def test_widths_that_do_not_fit_the_network(csv_file, inputs, outputs, wanted):
    path = csv_file("1,2,3,0\n")
    message = refused(read_csv, path, inputs=inputs, outputs=outputs)
    assert message == f"{path}: expected {wanted} for this network; the file has 4"


@pytest.mark.parametrize("read", [read_csv, read_idx])
def test_no_file_and_a_folder(read, tmp_path):
    assert "No such file" in refused(read, tmp_path / "none.csv")
    assert "Is a directory" in refused(read, tmp_path)


# ---- load ------------------------------------------------------------------------------------------------------------


def test_shipped_sets_against_scikit_learn():
    sklearn = pytest.importorskip("sklearn.datasets")
    for name, truth in (("breast_cancer", sklearn.load_breast_cancer()), ("digits", sklearn.load_digits())):
        data = load(name)
        np.testing.assert_array_equal(data.X, truth.data.astype(np.float32))
        np.testing.assert_array_equal(data.labels, truth.target if name == "digits" else 1 - truth.target)
        assert data.features == tuple(truth.feature_names)


def test_shipped_sets_are_those_of_the_cards():
    cancer, digits = load("breast_cancer"), load("digits")
    assert cancer.X.shape == (569, 30) and cancer.Y.shape == (569, 1) and cancer.classes == ("benign", "malignant")
    assert np.bincount(cancer.labels).tolist() == [357, 212]
    assert digits.X.shape == (1797, 64) and digits.Y.shape == (1797, 10) and digits.classes == tuple("0123456789")
    cards = (datasets.FOLDER / "README.md").read_text(encoding="utf-8")
    for name in datasets.SHIPPED:
        assert hashlib.sha256((datasets.FOLDER / f"{name}.csv").read_bytes()).hexdigest() in cards
    for published in json.loads((datasets.FOLDER / "mirrors.json").read_text()).values():
        assert all(md5 in cards for md5 in published["md5"].values())
    files = list((datasets.FOLDER / datasets.SAMPLE).iterdir())
    assert len(files) == 4 and sum(file.stat().st_size for file in files) <= 600_000
    assert all(hashlib.md5(file.read_bytes()).hexdigest() in cards for file in files)


def test_load_fits_named_sets_to_a_network():
    cancer = load("breast_cancer", inputs=30, outputs=2)
    np.testing.assert_array_equal(cancer.Y.argmax(axis=1), load("breast_cancer").labels)
    assert load("moons", outputs=2).Y.shape == (400, 2)
    assert refused(load, "digits", outputs=1) == "expected 10 outputs for digits; the network has 1"
    wanted = "expected 30 features for the inputs of the network; digits has 64, images of 1x8x8"
    assert refused(load, "digits", inputs=30, outputs=10) == wanted


def test_load_says_what_there_is():
    message = refused(load, "iris")
    names = *datasets.SHIPPED, *datasets.GENERATORS, "mnist", "fashion_mnist", datasets.SAMPLE, "CSV file"
    assert all(name in message for name in names)
    assert "none.csv: expected a CSV file, but it cannot be read" in refused(load, "none.csv")
    assert "no part 'test'" in refused(load, "digits", part="test")
    refused(load, "x" * 5000)
    refused(load, "a\0b.csv")
    refused(load, "")


def test_paths_are_not_looked_for_in_the_data_folder(csv_file, monkeypatch):
    monkeypatch.setenv("NNCOURSE_DATA", str(csv_file("1,0\n").parent))
    refused(load, "data.csv")


# ---- generated sets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", datasets.GENERATORS)
def test_generated_sets(name):
    data = generate(name, samples=300, seed=1)
    assert data.name == name and len(data.X) == len(data.Y) == 300
    assert data.X.dtype == data.Y.dtype == np.float32 and np.isfinite(data.X).all()
    assert data.X.shape[1] == len(data.features)
    assert len(np.unique(data.labels)) == len(data.classes) == max(2, data.Y.shape[1])
    again, other = generate(name, samples=300, seed=1), generate(name, samples=300, seed=2)
    np.testing.assert_array_equal(data.X, again.X)
    np.testing.assert_array_equal(data.Y, again.Y)
    assert not np.array_equal(data.X, other.X)
    assert load(name).X.shape[1] == data.X.shape[1]
    smallest = generate(name, samples=2)
    assert smallest.X.shape[0] == 2 and smallest.Y.shape[1] == data.Y.shape[1]
    for wrong in ({"samples": 1}, {"noise": -1}, {"noise": math.nan}):
        assert "at least" in refused(generate, name, **wrong)


def test_generated_points_lie_where_they_should():
    circles = generate("circles", noise=0)
    np.testing.assert_allclose(np.hypot(*circles.X.T), np.where(circles.labels == 0, 1, 0.5), rtol=1e-6)
    xor = generate("xor", noise=0)
    np.testing.assert_array_equal(xor.labels, np.prod(xor.X, axis=1) < 0)
    blobs = generate("blobs", samples=301, noise=0)
    assert len(np.unique(blobs.X, axis=0)) == 3
    assert np.bincount(blobs.labels).tolist() == [101, 100, 100]
    assert "credit_card_standin" in refused(generate, "sinus")


def test_neighbours_tell_the_classes_of_the_plane():
    neighbours = pytest.importorskip("sklearn.neighbors")
    for name in ("moons", "circles", "spirals", "blobs", "xor"):
        train, test = generate(name), generate(name, seed=1)
        model = neighbours.KNeighborsClassifier(5).fit(train.X, train.labels)
        assert model.score(test.X, test.labels) > 0.85, name


def test_credit_card_standin_is_learnable_and_not_trivial():
    linear = pytest.importorskip("sklearn.linear_model")
    from sklearn.metrics import f1_score

    train, test = split(generate("credit_card_standin"), 0.2)
    assert train.X.shape[1] == 30 and train.features[0] == "Time" and train.features[-1] == "Amount"
    assert train.classes == ("legitimate", "fraud")
    assert np.concatenate([train.labels, test.labels]).sum() == round(0.09 * 5492)
    assert train.X[:, 0].max() > 1e5 and train.X[:, -1].max() > 100 and train.X[:, -1].min() >= 0
    scaling = fit_scaling(train.X, "standardization")
    model = linear.LogisticRegression(max_iter=1000).fit(scaling.apply(train.X), train.labels)
    assert 0.85 < f1_score(test.labels, model.predict(scaling.apply(test.X))) < 0.95


# ---- splitting and scaling -------------------------------------------------------------------------------------------


def test_split_deals_every_row_once_and_keeps_the_shares():
    data = load("breast_cancer")
    data = replace(data, X=np.arange(569, dtype=np.float32)[:, None])
    first, second = split(data, 0.2, seed=3)
    assert np.bincount(first.labels).tolist() == [286, 170] and np.bincount(second.labels).tolist() == [71, 42]
    rows = np.concatenate([first.X, second.X]).ravel().astype(int)
    assert sorted(rows) == list(range(569))
    np.testing.assert_array_equal(np.concatenate([first.Y, second.Y]), data.Y[rows])
    assert not np.array_equal(first.X, np.sort(first.X, axis=0))
    np.testing.assert_array_equal(split(data, 0.2, seed=3)[0].X, first.X)
    assert not np.array_equal(split(data, 0.2, seed=4)[0].X, first.X)


@pytest.mark.parametrize("fraction", [0, 1, -0.5, 1.5, math.nan, 0.0001, 0.9999])
def test_split_refuses_an_empty_part(fraction):
    assert "leaves one part empty" in refused(split, load("breast_cancer"), fraction)


@pytest.mark.parametrize("kind, oracle", [("standarization", "StandardScaler"), ("normalization", "MinMaxScaler")])
def test_scaling_against_scikit_learn(kind, oracle):
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    train, test = split(load("digits"), 0.3)  # some of its pixels are always 0
    scaling = fit_scaling(train.X, kind)
    truth = getattr(preprocessing, oracle)().fit(train.X.astype(np.float64))
    for X in (train.X, test.X):
        scaled = scaling.apply(X)
        assert scaled.dtype == np.float32
        np.testing.assert_allclose(scaled, truth.transform(X.astype(np.float64)), rtol=1e-6, atol=1e-6)
    assert scaling.kind in ("standardization", "normalization")


def test_scaling_of_constant_columns_and_of_nothing():
    X = np.full((7, 2), [0.1, 3e38], dtype=np.float32)
    for kind in ("standardization", "normalization"):
        np.testing.assert_array_equal(fit_scaling(X, kind).apply(X), np.zeros((7, 2)))
        assert np.isfinite(fit_scaling(X, kind).apply(X / 2)).all()
    same = fit_scaling(X, "none").apply(X)
    np.testing.assert_array_equal(same, X)
    assert not np.shares_memory(same, X)


def test_scaling_refuses():
    X = np.ones((3, 4), dtype=np.float32)
    scaling = fit_scaling(X, "none")
    assert "expected 4 features per row, as when fitted; got the shape (3, 3)" in refused(scaling.apply, X[:, :3])
    assert "got the shape (4,)" in refused(scaling.apply, X[0])
    assert "one of none, normalization, standardization; got 'minmax'" in refused(fit_scaling, X, "minmax")
    assert "at least one sample" in refused(fit_scaling, X[:0], "none")


# ---- images


def test_rows_of_pixels_as_images():
    data = load("digits")
    assert data.image_shape == (1, 8, 8) and data.images.shape == (1797, 1, 8, 8)
    np.testing.assert_array_equal(data.images[5, 0, 3], data.X[5, 24:32])
    assert np.shares_memory(data.images, data.X) and "1x8x8" in repr(data)
    assert split(data, 0.5)[1].images.shape[1:] == (1, 8, 8)
    assert load("breast_cancer").image_shape is None
    assert "breast_cancer has none" in refused(lambda: load("breast_cancer").images)


def test_samples_for_a_network(csv_file):
    digits, cancer = load("digits"), load("breast_cancer")
    assert digits.samples_for((64,)).shape == (1797, 64) and digits.samples_for((1, 8, 8)).shape == (1797, 1, 8, 8)
    assert cancer.samples_for((30,)) is not None and cancer.samples_for((2, 3, 5)).shape == (569, 2, 3, 5)
    assert "expected images of 1x28x28" in refused(digits.samples_for, (1, 28, 28))
    said = refused(digits.samples_for, (1, 4, 16))
    assert "expected images of 1x4x16 for the network; those of digits have 1x8x8" in said
    assert "expected samples of 1x8x8" in refused(cancer.samples_for, (1, 8, 8))
    assert "expected samples of 31 features" in refused(cancer.samples_for, (31,))


def test_images_have_one_scaling_for_all_pixels(rng):
    images = rng.normal(3, 5, (700, 2, 40, 20)).astype(np.float32)  # more than are summed at a time
    images[0, 0, 0, 0] = 90
    wanted = images.astype(np.float64)
    scaling = fit_scaling(images, "standardization")
    assert scaling.offset.shape == scaling.factor.shape == ()
    assert (scaling.offset, scaling.factor) == pytest.approx((wanted.mean(), wanted.std()), rel=1e-12)
    scaled = scaling.apply(images)
    assert scaled.dtype == np.float32 and scaled.shape == images.shape and scaled.flags.c_contiguous
    np.testing.assert_array_equal(scaled, ((images - wanted.mean()) / wanted.std()).astype(np.float32))
    np.testing.assert_array_equal(scaling.apply(images.reshape(700, -1)), scaled.reshape(700, -1))
    scaling = fit_scaling(images, "normalization")
    assert (scaling.offset, scaling.factor) == (images.min(), 90 - np.float64(images.min()))
    scaled = fit_scaling(images, "none").apply(images)
    np.testing.assert_array_equal(scaled, images)
    assert not np.shares_memory(scaled, images)
    one = images[:1, :1, :1, :1]
    np.testing.assert_array_equal(fit_scaling(one, "standardization").apply(one), 0)
    for wrong in (images[:0], images[0], images[0, 0, 0]):
        assert "expected (samples, features)" in refused(fit_scaling, wrong, "none")


def test_scaling_takes_little_memory_beside_the_result():
    images = np.zeros((15_000, 1, 28, 28), np.float32)
    images[::2] = 1
    peak = peak_of(lambda: fit_scaling(images, "standardization").apply(images))
    assert peak < images.nbytes + (32 << 20) < 2 * images.nbytes


# ---- IDX files and MNIST ---------------------------------------------------------------------------------------------


def idx(values: np.ndarray) -> bytes:
    """An IDX file that holds the values as unsigned bytes."""
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(np.uint8).tobytes()


IMAGES = np.arange(5 * 4 * 3).reshape(5, 4, 3)
LABELS = np.array([3, 0, 9, 1, 3])


def write_mnist(folder: Path, images=IMAGES, labels=LABELS, packed=True) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for prefix in ("train", "t10k"):
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            content = gzip.compress(idx(values), mtime=0) if packed else idx(values)
            (folder / f"{prefix}-{kind}-ubyte{'.gz' if packed else ''}").write_bytes(content)
    return folder


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_from_a_folder(tmp_path, packed):
    write_mnist(tmp_path, packed=packed)
    data = mnist("test", folder=tmp_path)
    np.testing.assert_allclose(data.X, IMAGES.reshape(5, 12) / 255, rtol=1e-6)
    np.testing.assert_array_equal(data.Y, np.eye(10)[LABELS])
    assert data.X.dtype == data.Y.dtype == np.float32
    assert data.classes == tuple("0123456789") and data.features[4] == "pixel_1_1"
    assert mnist(folder=tmp_path, name="fashion_mnist").classes[9] == "Ankle boot"


def test_mnist_from_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NNCOURSE_DATA", str(tmp_path))
    write_mnist(tmp_path / "fashion_mnist")
    assert load("fashion_mnist", part="test", inputs=12, outputs=10).X.shape == (5, 12)
    assert refused(load, "fashion_mnist", outputs=1) == "expected 10 outputs for fashion_mnist; the network has 1"


@pytest.fixture
def no_mnist(data_folder, monkeypatch) -> Path:
    """The data folder. MNIST is neither there nor in the package, and must not be fetched."""
    monkeypatch.setattr(datasets_idx, "fetch", lambda *arguments: pytest.fail("it was fetched"))
    return data_folder


def test_some_of_its_digits_stand_in_for_mnist_and_say_so(no_mnist):
    for part, each in (("train", 300), ("test", 60)):
        data = datasets.mnist_or_digits(part)
        assert data.name == "mnist_sample" and data.images.shape == (10 * each, 1, 28, 28)
        assert np.bincount(data.labels).tolist() == [each] * 10
        assert data.X.dtype == np.float32 and (data.X.min(), data.X.max()) == (0, 1)
    assert "expected part train or test" in refused(datasets.mnist_or_digits, "validation")


def test_the_shipped_digits_are_mnist():
    whole = Path(os.environ.get("NNCOURSE_DATA", "")) / "mnist"
    if not os.environ.get("NNCOURSE_DATA") or not whole.is_dir():
        pytest.skip("MNIST is not in NNCOURSE_DATA")
    for part in ("train", "test"):
        known = mnist(part)
        place = {pixels.tobytes(): row for row, pixels in enumerate(known.X)}
        some = load("mnist_sample", part=part)
        rows = [place[pixels.tobytes()] for pixels in some.X]
        assert len(set(rows)) == len(rows) and np.array_equal(known.Y[rows], some.Y)


def test_a_course_without_its_digits_says_so(no_mnist):
    (datasets.FOLDER / datasets.SAMPLE / "train-images-idx3-ubyte.gz").unlink()
    assert "it ships with the course, so get the course again" in refused(datasets.mnist_or_digits)


def test_mnist_comes_as_images_where_it_is(no_mnist):
    write_mnist(no_mnist / "mnist")
    for part in ("train", "test"):
        data = datasets.mnist_or_digits(part)
        assert data.name == "mnist" and data.image_shape == (1, 4, 3)
        np.testing.assert_array_equal(data.images[:, 0], (IMAGES / 255).astype(np.float32))
    (no_mnist / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    assert datasets.mnist_or_digits("train").name == "mnist_sample"  # both parts, or none


def test_a_stand_in_takes_the_place_of_the_credit_card_data_where_a_file_of_them_is_missing(tmp_path, monkeypatch):
    row = ",".join(["0.5"] * 30)
    (tmp_path / "cc").mkdir()
    monkeypatch.setenv("NNCOURSE_DATA", str(tmp_path))
    for file, label, name in (("CC_train.csv", 0, "credit_card_standin"), ("CC_test.csv", 1, "CC_train")):
        (tmp_path / "cc" / file).write_text(f"{row},0\n{row},{label}\n{row},1\n")
        assert datasets.credit_card_or_standin()[0].name == name
    training, test = datasets.credit_card_or_standin()
    assert training.X.shape == (3, 30) and [data.labels.sum() for data in (training, test)] == [1, 2]
    monkeypatch.delenv("NNCOURSE_DATA")
    training, test = datasets.credit_card_or_standin()
    assert (len(training.X), len(test.X)) == (4393, 1099) and test.name == "credit_card_standin"


def test_mnist_refuses(tmp_path):
    assert "train-images-idx3-ubyte.gz is not there" in refused(mnist, folder=tmp_path)
    assert "part train or test of mnist or fashion_mnist or mnist_sample" in refused(
        mnist, "validation", folder=tmp_path
    )
    refused(mnist, folder=tmp_path, name="kmnist")
    for images, labels in ((IMAGES, LABELS[:4]), (IMAGES, LABELS + 1), (LABELS, LABELS), (IMAGES[:0], LABELS[:0])):
        write_mnist(tmp_path, images, labels)
        assert "as many labels from 0 to 9" in refused(mnist, folder=tmp_path)


@pytest.mark.parametrize(
    "content, complaint",
    [
        (b"", "different format"),
        (b"<html>not found</html>", "different format"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 0]), "different format"),
        (bytes([0, 0, 8, 3, 0, 0]), "ends within its header"),
        (idx(IMAGES)[:-1], "59 bytes follow a header that says (5, 4, 3)"),
        (idx(IMAGES) + b"x", "61 bytes follow a header that says (5, 4, 3)"),
        (idx(IMAGES[0]), "a header that says (4, 3)"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12, "a header that says (4294967295, 4294967295, 4294967295)"),
        (gzip.compress(idx(IMAGES), mtime=0)[:-12], "cannot be read"),
        (gzip.compress(idx(IMAGES), mtime=0)[:12] + b"????????", "cannot be read"),
        (b"\x1f\x8b", "cannot be read"),
    ],
    ids=range(11),  # the bytes themselves would make names that no terminal can show
)
def test_damaged_idx_files(tmp_path, content, complaint):
    path = tmp_path / "file"
    path.write_bytes(content)
    message = refused(read_idx, path)
    assert message.startswith(f"{path}: expected an IDX file") and complaint in message


@settings(max_examples=200, deadline=None)
@given(
    content=st.binary(max_size=40)
    | st.binary(max_size=20).map(lambda tail: b"\0\0\x08" + tail)
    | st.binary(max_size=20).map(lambda tail: b"\x1f\x8b\x08" + tail)
    | st.binary(max_size=20).map(lambda tail: idx(np.frombuffer(tail, np.uint8))),
    packed=st.booleans(),
)
def test_random_idx_files_are_read_or_refused(tmp_path_factory, content, packed):
    path = tmp_path_factory.mktemp("idx") / "random"
    path.write_bytes(gzip.compress(content) if packed else content)
    try:
        values = read_idx(path)
    except CourseError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert idx(values) == (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


# ---- fetching --------------------------------------------------------------------------------------------------------


@contextmanager
def serving(handler, **options):
    """The address of a web server on this machine, which prints nothing."""
    quiet = type("Quiet", (handler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(quiet, **options)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def mirror(tmp_path):
    """The address of a server, and the folder that it shows: a tiny MNIST."""
    folder = write_mnist(tmp_path / "server")
    with serving(http.server.SimpleHTTPRequestHandler, directory=folder) as address:
        yield address, folder


UNREACHABLE = "http://127.0.0.1:9"  # the discard port: nobody listens
FILE = "train-labels-idx1-ubyte.gz"


def test_fetch_goes_on_to_the_next_mirror(mirror, tmp_path, capsys):
    address, served = mirror
    md5 = hashlib.md5((served / FILE).read_bytes()).hexdigest()
    target = fetch(FILE, md5, [UNREACHABLE, f"{address}/none", address], tmp_path / "new" / "mnist")
    assert target.read_bytes() == (served / FILE).read_bytes()
    assert [path.name for path in target.parent.iterdir()] == [FILE]
    assert FILE in capsys.readouterr().err  # the progress bar


def test_fetch_refuses_another_content_and_leaves_nothing(mirror, tmp_path):
    address, served = mirror
    message = refused(fetch, FILE, "0" * 32, [address], tmp_path / "mnist")
    assert f"the MD5 is {hashlib.md5((served / FILE).read_bytes()).hexdigest()}, not 0000" in message
    assert not list((tmp_path / "mnist").iterdir())


def test_fetch_offline_says_what_to_put_where(tmp_path):
    message = refused(fetch, FILE, "0" * 32, [UNREACHABLE, "nonsense"], tmp_path / "mnist")
    assert f"cannot download {FILE}" in message and f"put it into {tmp_path / 'mnist'}" in message
    assert UNREACHABLE in message
    (tmp_path / "occupied").write_text("a file where a folder is expected")
    refused(fetch, FILE, "0" * 32, [UNREACHABLE], tmp_path / "occupied")


def test_a_broken_transfer_leaves_nothing(tmp_path):
    class Breaks(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802 (the library's name)
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"only this")

    with serving(Breaks) as address:
        refused(fetch, FILE, "0" * 32, [address], tmp_path / "mnist")
    assert not list((tmp_path / "mnist").iterdir())


def test_mnist_fetches_what_is_missing_once(mirror, tmp_path, monkeypatch):
    address, served = mirror
    md5 = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in served.iterdir()}
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "mirrors.json").write_text(json.dumps({"mnist": {"mirrors": [], "md5": md5}}))
    monkeypatch.setattr(datasets, "FOLDER", tmp_path / "datasets")
    monkeypatch.delenv("NNCOURSE_DATA", raising=False)
    assert "cannot download train-images-idx3-ubyte.gz" in refused(mnist, mirrors=[UNREACHABLE])
    np.testing.assert_array_equal(mnist(mirrors=[address]).labels, LABELS)
    fetched = {path.name for path in (tmp_path / "datasets" / "mnist").iterdir()}
    assert fetched == {name for name in md5 if name.startswith("train")}
    np.testing.assert_array_equal(mnist(mirrors=[UNREACHABLE]).labels, LABELS)


# ---- real data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file, samples, frauds", [("CC_train.csv", 4394, 394), ("CC_test.csv", 1098, 98)])
def test_real_credit_card_data(file, samples, frauds, real_data):
    data = load(real_data / "cc" / file, inputs=30, outputs=1)
    assert data.X.shape == (samples, 30) and data.Y.shape == (samples, 1)
    assert data.labels.sum() == frauds
    assert data.features == ("Time", *(f"V{number}" for number in range(1, 29)), "Amount")


def test_real_credit_card_data_are_read_by_the_fast_reader(monkeypatch, real_data):
    monkeypatch.setattr(datasets_csv, "number", lambda *_: math.nan)  # would refuse every field
    assert len(read_csv(real_data / "cc/CC_train.csv").X) == 4394


@pytest.mark.parametrize(
    "part, counts, mean",
    [
        ("train", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949], 0.1307),
        ("test", [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009], 0.1325),
    ],
)
def test_real_mnist(part, counts, mean, real_data):
    data = load("mnist", part=part)
    assert data.X.shape == (sum(counts), 784) and data.Y.shape == (sum(counts), 10)
    assert data.X.min() == 0 and data.X.max() == 1 and data.X.mean(dtype=float) == pytest.approx(mean, abs=1e-4)
    assert np.bincount(data.labels).tolist() == counts
