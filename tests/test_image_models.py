"""Networks for images in files and on the command line: saved, loaded, resumed exactly; damage gives one line."""

import json
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from test_model_files import ALL_KINDS, an_image_model, loads_or_says_why
from trainings import same

from nnclassroom.commands import main
from nncourse import datasets
from nncourse.backend import choose
from nncourse.model import files
from nncourse.model.image_layers import MaxPool
from nncourse.model.network import Network, make_network

NUMPY = choose("numpy")


# ---- files


@pytest.mark.parametrize("kind", datasets.SCALINGS)
def test_a_model_comes_back(tmp_path, kind):
    model, path = an_image_model(kind=kind), tmp_path / "model.npz"
    files.save(model, path)
    again = files.load(path)
    assert repr(again.network) == repr(model.network) and again.network.input_shape == (1, 8, 8)
    assert again.optimizer.steps == 4 and same((model.network, model.optimizer), (again.network, again.optimizer))
    X = datasets.load("digits").images[100:120]
    assert kind == "none" or again.scaling.offset.shape == ()
    np.testing.assert_array_equal(again.scaled(X), model.scaled(X))
    outputs = [each.network.predict(each.scaled(X), NUMPY) for each in (model, again)]
    np.testing.assert_array_equal(*outputs)


def test_the_c_program_s_text_is_for_dense_networks(tmp_path):
    for words in (ALL_KINDS, "4,dropout0.5,2"):
        assert ".npz" in refused(files.save, files.Model(make_network(words)), tmp_path / "model.m")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("models") / "model.npz"
    files.save(an_image_model(), path)
    return path.read_bytes()


def changed_file(path: Path, whole: bytes, change) -> None:
    """Write the good file with a description that `change` has edited in place."""
    path.write_bytes(whole)
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays["about"]))
    change(about)
    np.savez(path, **arrays | {"about": np.array(json.dumps(about))})


CONVOLUTION, DROPOUT, POOL, AVERAGE = 0, 1, 3, 4
NUMBERS = [
    *((CONVOLUTION, name) for name in ("c_in", "c_out", "k", "stride", "before", "after")),
    *((POOL, name) for name in ("size", "stride", "padding")),
    *((AVERAGE, name) for name in ("size", "stride")),
]


@pytest.mark.parametrize("value", [-1, 10**12, 10**40, 1.5, True, None, "2", [2], {}, float("nan")], ids=str)
@pytest.mark.parametrize(("layer", "name"), NUMBERS)
def test_wrong_numbers_of_a_layer_are_refused(tmp_path, whole, layer, name, value):
    changed_file(tmp_path / "x.npz", whole, lambda about: None)
    assert loads_or_says_why(tmp_path / "x.npz")
    changed_file(tmp_path / "x.npz", whole, lambda about: about["layers"][layer].update({name: value}))
    assert not loads_or_says_why(tmp_path / "x.npz")


def layer_with(layer, **parts):
    return lambda about: about["layers"][layer].update(parts)


def images_of(shape):
    return lambda about: about.update(input_shape=shape)


def scaling_with(**parts):
    return lambda about: about["scaling"].update(parts)


@pytest.mark.parametrize(
    "change",
    [
        *(layer_with(DROPOUT, rate=rate) for rate in (1, -0.5, float("nan"), "half")),
        *(layer_with(CONVOLUTION, activation=name) for name in ("softmax", "conv")),
        layer_with(CONVOLUTION, kind="convolution3d"),
        lambda about: about["layers"][CONVOLUTION].pop("k"),
        lambda about: about["layers"].pop(CONVOLUTION),
        lambda about: about["layers"].pop(5),  # Flatten
        lambda about: about["layers"].insert(0, {"kind": "flatten"}),
        *(images_of(shape) for shape in ([8, 8], [2, 8, 8], [1, 80_000, 80_000], [1, 8, -8])),
        *(scaling_with(offset=[0.0] * count, factor=[1.0] * count) for count in (64, 1)),
        *(scaling_with(factor=factor) for factor in (0.0, float("inf"))),
        *(scaling_with(offset=offset) for offset in ("x", None)),
    ],
)
def test_descriptions_that_do_not_fit_are_refused(tmp_path, whole, change):
    changed_file(tmp_path / "x.npz", whole, change)
    assert not loads_or_says_why(tmp_path / "x.npz")


def test_a_file_of_a_huge_network_is_refused(tmp_path):
    """Its parameters are few, but a sample would take 4 GB."""
    layers = [MaxPool(1), MaxPool(30_000), *make_network("image1x1x1,10").layers]
    files.save(files.Model(Network(layers, input_shape=(1, 30_000, 30_000))), tmp_path / "x.npz")
    assert "numbers per sample" in refused(files.load, tmp_path / "x.npz")


# ---- the command line


@pytest.fixture
def folder(tmp_path, monkeypatch, my_kernels) -> Path:
    """A working folder with the first 60 digits as a CSV file, and a model of a dense network."""
    data = datasets.load("digits")
    rows = [",".join(f"{value:g}" for value in (*x, y)) for x, y in zip(data.X[:60], data.labels[:60], strict=True)]
    work = tmp_path / "work"
    work.mkdir()
    (work / "pixels.csv").write_text("\n".join(rows) + "\n")
    files.save(files.Model(make_network([64, 5, 10], cost="categorical_cross_entropy")), work / "dense.npz")
    files.save(an_image_model(), work / "images.npz")
    monkeypatch.chdir(work)
    return work


def run(capsys, line: str) -> tuple[int, str, str]:
    status = main(line.split())
    return status, *capsys.readouterr()


CNN = "--layers image1x8x8,conv4x2same,pool2,16,10 --activation relu --cost categorical_cross_entropy"
TRAIN = f"train --dataset digits {CNN} --optimizer adam --batch-size 32 --epochs 1 --model new.npz"


def test_the_digits_are_learnt_and_tested(capsys, folder):
    status, out, err = run(capsys, f"{TRAIN} --epochs 12 --learning-rate 0.005 --validation 0.1")
    assert (status, err) == (0, "") and "held-out" in out
    model = files.load("new.npz")
    assert model.network.in_words == "image1x8x8,conv4x2same,pool2,16,10"
    pixels = datasets.split(datasets.load("digits"), 0.1)[0].X.astype(np.float64)
    assert (float(model.scaling.offset), float(model.scaling.factor)) == pytest.approx((pixels.mean(), pixels.std()))
    status, out, err = run(capsys, "test --dataset digits --model new.npz")
    assert (status, err) == (0, "") and "network image1x8x8,conv4x2same,pool2,16,10, cost" in out
    assert float(out.split("accuracy")[1]) > 0.9


@pytest.mark.parametrize("options", ["", "--dropout 0.3", "--dropout 0.3 --schedule cosine,4 --validation 0.2"])
def test_resume_is_exact(capsys, folder, options):
    """Bit for bit, by fused epochs and with dropout step by step: parameters, and what Adam remembers."""
    assert run(capsys, f"{TRAIN} {options} --seed 3 --epochs 4 --model whole.npz")[0] == 0
    assert run(capsys, f"{TRAIN} {options} --seed 3 --epochs 1 --model half.npz")[0] == 0
    validation = "--validation 0.2" * ("validation" in options)
    dropout = ",dropout0.3" * ("dropout" in options)
    again = f"train --dataset digits --resume half.npz --epochs 3 --model half.npz {validation}"
    assert run(capsys, f"{again} --layers image1x8x8,conv4x2same,pool2,16{dropout},10")[0] == 0
    whole, half = files.load("whole.npz"), files.load("half.npz")
    assert whole.optimizer.steps > 0
    assert same((whole.network, whole.optimizer), (half.network, half.optimizer))
    assert whole.provenance["epochs"] == half.provenance["epochs"] == 4


def test_dropout_is_a_layer_behind_each_hidden_dense_layer(capsys, folder):
    status, _, err = run(capsys, f"{TRAIN} --dropout 0.25")
    assert status == 0 and "step by step" in err and err.count("\n") == 1
    assert files.load("new.npz").network.in_words == "image1x8x8,conv4x2same,pool2,16,dropout0.25,10"
    line = "train --dataset digits --layers 64,9,8,10 --dropout 0.5 --epochs 1 --model dense.npz"
    assert run(capsys, line)[0] == 0
    assert files.load("dense.npz").network.in_words == "64,9,dropout0.5,8,dropout0.5,10"


def test_rows_of_a_csv_file_are_pixels(capsys, folder):
    status, _, err = run(capsys, f"{TRAIN} --dataset pixels.csv")
    assert (status, err) == (0, "")
    status, out, _ = run(capsys, "test --dataset pixels.csv --model new.npz")
    assert status == 0 and "pixels: 60 samples" in out


@pytest.mark.parametrize("plan", ("operations", "numpy"))
def test_plans_by_name_in_place_of_kernels(capsys, folder, plan):
    assert run(capsys, f"{TRAIN} --plan {plan}")[0] == 0
    old = {"operations": "steps"}.get(plan, plan)
    status, _, err = run(capsys, f"{TRAIN} --use convolutional_adam_epoch={old}")
    assert status == 2 and f"or --plan {plan}\n" in err


WRONG = [
    *(f"{TRAIN} --layers {sizes},conv4x2same,10" for sizes in ("image1x4x16", "image4x4x4", "image1x28x28", "64")),
    f"{TRAIN} --layers image1x8x8,conv4x2sam,10",
    f"{TRAIN} --layers image1x8x8,conv4x2same,9",
    *(f"{TRAIN} --dropout {rate}" for rate in ("1", "-0.1", "nan", "inf", "x")),
    f"{TRAIN} --dropout 0.5 --layers image1x8x8,conv4x2same,10",
    f"{TRAIN} --activation relu,relu",
    f"{TRAIN} --activation softmax",
    f"{TRAIN} --model new.m",
    f"{TRAIN} --dataset breast_cancer",
    f"{TRAIN} --l2 0.1 --plan numpy",
    f"{TRAIN} --dropout 0.5 --plan numpy",
    "train --resume images.npz --dataset digits --dropout 0.5 --model new.npz",
    "train --resume images.npz --dataset digits --layers 64,10 --model new.npz",
    "train --resume images.npz --dataset digits --layers image1x8x8,conv3x2same,10 --model new.npz",
    "train --resume images.npz --dataset digits --layers image1x8x8,conv --model new.npz",
    "train --resume dense.npz --dataset digits --layers image1x8x8,5,10 --model new.npz",
    "train --resume images.npz --dataset breast_cancer --model new.npz",
    "test --dataset breast_cancer --model images.npz",
]


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_ends_in_one_line_and_touches_nothing(capsys, folder, line):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    status, _, err = run(capsys, line)
    assert status == 2
    assert err.startswith("nncourse: ") and err.count("\n") == 1 and len(err) < 500
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


# ---- MNIST


def test_one_epoch_of_mnist(capsys, folder, real_data, monkeypatch):
    """The command of the course, on half of the test part, which loads quickly; tested on the other half."""
    load = datasets.load

    def some(*arguments, part="train", **options):
        data, rows = load(*arguments, part="test", **options), slice(0, 5000) if part == "train" else slice(5000, None)
        return datasets.replace(data, X=data.X[rows], Y=data.Y[rows])

    monkeypatch.setattr(datasets, "load", some)
    layers = "image1x28x28,conv4x2same,conv4x2same,pool4,128,10"
    line = f"train --dataset mnist --layers {layers} --activation relu --cost categorical_cross_entropy"
    line += " --optimizer adam --learning-rate 0.001 --batch-size 32 --epochs 1 --model new.npz"
    assert run(capsys, line)[0] == 0
    status, out, _ = run(capsys, "test --dataset mnist --model new.npz")
    assert status == 0 and float(out.split("accuracy")[1]) > 0.75
