"""Model files: both forms load bit for bit, the C program can read ours, and a damaged file gives one clear line."""

import codecs
import json
import os
import pickle
import shutil
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import refused

from nncourse import datasets
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model import files
from nncourse.model.network import make_network
from nncourse.model.optimizers import SGD, Adam
from nncourse.model.training import train

FORMS = ("model.npz", "model.m")
NETWORKS = [
    {"activation": [hidden, output], "cost": cost}
    for cost, output in [
        ("mse", "identity"),
        ("mae", "tanh"),
        ("mse", "step"),
        ("binary_cross_entropy", "sigmoid"),
        ("categorical_cross_entropy", "softmax"),
    ]
    for hidden in ("sigmoid", "tanh", "relu", "leaky_relu", "softplus", "identity", "step")
]


def a_model(options=NETWORKS[0], kind="standardization", seed=1) -> files.Model:
    rng = np.random.default_rng(seed)
    network = make_network([3, 4, 2], **options, initialiser="normal", seed=seed)
    network.layers[0].W *= np.float32(10) ** rng.integers(-44, 38, (4, 3)).astype(np.float32)  # hard to print
    network.layers[1].b[:] = (np.float32(-0.0), np.finfo(np.float32).max)
    network.layers[1].W[0, 0] = np.nextafter(np.float32(1000), np.float32(2000))  # it needs nine digits
    scaling = datasets.fit_scaling(rng.normal(3, 1e-3, (7, 3)).astype(np.float32), kind)
    return files.Model(network, scaling, ("α, β", 'the "other"'), {"epochs": 3, "seed": 5, "dataset": "ñ\n"})


ALL_KINDS = "image1x8x8,conv3x2same,dropout0.25,conv2x3p1s2,pool3s1p1,averagepool2s1,6,dropout0.5,10"


def an_image_model(words: str = ALL_KINDS, kind: str = "standardization") -> files.Model:
    """A model with all kinds of layers, trained for an epoch by Adam."""
    data = datasets.load("digits")
    images = data.images[:64]
    scaling, optimizer = datasets.fit_scaling(images, kind), Adam()
    network = make_network(words, "relu", "categorical_cross_entropy", seed=2)
    X, Y = scaling.apply(images), data.Y[:64]
    train(network, X, Y, choose("numpy"), epochs=1, optimizer=optimizer, batch_size=16)
    return files.Model(network, scaling, data.classes, {"epochs": 1, "seed": 5}, optimizer)


def bits(array) -> tuple:
    return array.dtype.str, array.shape, array.tobytes()


def same(one: files.Model, other: files.Model) -> bool:
    def parts(model):
        network, scaling = model.network, model.scaling
        numbers = [*network.parameters, *((scaling.offset, scaling.factor) if scaling else ())]
        words = network.activations, network.cost, scaling and scaling.kind, model.classes, model.provenance
        return [*map(bits, numbers), words]

    return parts(one) == parts(other)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", NETWORKS, ids=lambda o: f"{'-'.join(o['activation'])} {o['cost']}")
def test_round_trip(tmp_path, form, options):
    model = a_model(options)
    files.save(model, tmp_path / form)
    assert same(files.load(tmp_path / form), model)
    assert not same(files.load(tmp_path / form), a_model(options, seed=2))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", datasets.SCALINGS)
def test_round_trip_of_the_scaling(tmp_path, form, kind, rng):
    model = a_model(kind=kind)
    files.save(model, tmp_path / form)
    X = rng.normal(3, 1e-3, (5, 3)).astype(np.float32)
    back = files.load(tmp_path / form)
    np.testing.assert_array_equal(back.scaled(X), model.scaled(X))
    model.scaling = None
    files.save(model, tmp_path / form)
    assert same(files.load(tmp_path / form), model) or kind == "none"
    assert files.load(tmp_path / form).scaled(X) is X


def c_reader(text: str):
    """Read as the C program does, by fscanf("%d") and fscanf("%lf"), and ignore the rest."""
    tokens = iter(text.split())
    sizes = [int(next(tokens)) for _ in range(int(next(tokens)))]
    biases = [[float(next(tokens)) for _ in range(size)] for size in sizes[1:]]
    pairs = zip(sizes[:-1], sizes[1:], strict=True)
    weights = [[[float(next(tokens)) for _ in range(n)] for _ in range(m)] for n, m in pairs]
    return sizes, biases, weights


def test_the_c_program_can_read_our_text(tmp_path):
    model = a_model()
    files.save(model, tmp_path / "model.m")
    sizes, biases, weights = c_reader((tmp_path / "model.m").read_text())
    assert sizes == [3, 4, 2]
    for layer, b, W in zip(model.network.layers, biases, weights, strict=True):
        np.testing.assert_array_equal(layer.b, np.float32(b))
        np.testing.assert_array_equal(layer.W, np.float32(W))
    assert (tmp_path / "model.m").read_text().splitlines()[:2] == ["3", "3 4 2"]


def test_a_text_of_the_c_program_means_sigmoids_and_no_scaling(tmp_path):
    (tmp_path / "c.txt").write_text("3\n2 2 1 \n0.5 -0.25 \n1 \n\n1 2 \n3 -4 \n0.125 8 \n")
    model = files.load(tmp_path / "c.txt")
    assert model.network.activations == ("sigmoid", "sigmoid")
    assert (model.network.cost, model.scaling) == ("mse", None)
    assert model.network.layers[0].W.tolist() == [[1, 2], [3, -4]]
    assert model.network.layers[0].b.tolist() == [0.5, -0.25]
    assert model.network.layers[1].W.tolist() == [[0.125, 8]]


def test_the_real_model_of_the_c_program(real_data, rng):
    path = real_data / "c_program" / "model.m"
    network = files.load(path).network
    assert network.sizes == (30, 60, 10, 1)
    assert network.layers[0].b[0] == np.float32(0.840188)
    sizes, biases, weights = c_reader(path.read_text())
    X = rng.normal(0, 0.1, size=(8, 30)).astype(np.float32)
    A = X.astype(np.float64)
    for b, W in zip(biases, weights, strict=True):
        A = 1 / (1 + np.exp(-(A @ np.array(W).T + b)))
    np.testing.assert_allclose(network.predict(X, choose("numpy")), A, rtol=1e-5)


# ---- damage


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a good file of each form, and of one with layers for images."""
    folder = tmp_path_factory.mktemp("models")
    models = dict.fromkeys(FORMS, a_model()) | {"images.npz": an_image_model()}
    for name, model in models.items():
        files.save(model, folder / name)
    return {name: (folder / name).read_bytes() for name in models}


def loads_or_says_why(path) -> bool:
    """True if it loads and can predict; False if it is refused in one line. Anything else fails, warnings too."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            model = files.load(path)
        except CourseError as error:
            assert len(str(error).splitlines()) == 1
            assert str(path) in str(error)
            return False
    with np.errstate(all="ignore"):
        X = np.ones((2, *model.network.input_shape), np.float32)
        outputs = model.network.predict(model.scaled(X), choose("numpy"))
    assert outputs.shape == (2, model.network.sizes[-1])
    return True


WRONG_WORDS = ["nan", "-inf", "1e300", "9" * 5000, "-1", "0", "1.5", "{}", "[[", '{"activations": 3}', "\0", "é"]
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", ("model.npz", "images.npz"))
@FUZZ
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_files(tmp_path, whole, name, share):
    (tmp_path / name).write_bytes(whole[name][: int(share * len(whole[name]))])
    assert not loads_or_says_why(tmp_path / name)


def test_a_text_model_that_is_cut_is_refused(tmp_path, whole):
    """Cut exactly before our extra line it is a complete file of the C program, and loads."""
    content = whole["model.m"]
    for length in range(len(content)):
        (tmp_path / "cut.m").write_bytes(content[:length])
        assert not loads_or_says_why(tmp_path / "cut.m") or content[:length] == content.partition(b"about ")[0]


@pytest.mark.parametrize("name", (*FORMS, "images.npz"))
@FUZZ
@given(st.data())
def test_files_with_wrong_bytes(tmp_path, whole, name, data):
    content = bytearray(whole[name])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / name).write_bytes(content)
    loads_or_says_why(tmp_path / name)


@FUZZ
@given(st.data(), st.sampled_from(WRONG_WORDS))
def test_texts_with_wrong_words(tmp_path, whole, data, word):
    lines = [line.split(" ") for line in whole["model.m"].decode().splitlines()]
    line = lines[data.draw(st.integers(0, len(lines) - 1))]
    line[data.draw(st.integers(0, len(line) - 1))] = word
    (tmp_path / "model.m").write_text("".join(" ".join(line) + "\n" for line in lines))
    loads_or_says_why(tmp_path / "model.m")


@pytest.mark.parametrize("name", ("x.npz", "x.m"))
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        b"V1,V2,Class\n1.5,2,0\n",
        b"\n\n",
        b"1\n5\n",
        b"3\n2 2\n",
        b"2\n0 1\n",
        b"PK\x03\x04",
        bytes(range(256)),
    ],
)
def test_foreign_files_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert not loads_or_says_why(tmp_path / name)


@pytest.mark.parametrize("name", ("x.npz", "x.m", "folder", "a" * 300, "a" * 300 + ".npz", "no/where.npz"))
def test_no_file_at_all(tmp_path, name):
    (tmp_path / "folder").mkdir()
    assert not loads_or_says_why(tmp_path / name)


def save_arrays(path, **changed):
    """A good .npz with some of its arrays changed; None takes one away."""
    files.save(a_model(), path)
    with np.load(path) as file:
        arrays = dict(file) | changed
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})


def about(**changed) -> np.ndarray:
    return np.array(json.dumps(json.loads(files._description(a_model())) | changed))


def scaling_with(**changed) -> np.ndarray:
    return about(scaling={"kind": "standardization", "offset": [0, 0, 0], "factor": [1, 1, 1]} | changed)


WRONG_DESCRIPTIONS = [
    np.array("[1, 2]"),
    np.array("no json"),
    about(cost=["mse"]),
    about(cost="categorical_cross_entropy"),
    about(classes=3),
    about(provenance=[1]),
    about(scaling={"kind": "standardization", "offset": [0, 0, 0]}),
    about(scaling="standardization"),
    scaling_with(offset=[0, 0]),
    scaling_with(offset=["x", "x", "x"]),
    scaling_with(offset=[0, 0, float("inf")]),
    scaling_with(factor=[1, 1, 0]),
    scaling_with(factor=[1, 1, float("nan")]),
]


@pytest.mark.parametrize(
    "description",
    [
        *WRONG_DESCRIPTIONS,
        *(about(activations=wrong) for wrong in ("sigmoid", ["sigmoid"], ["sigmoid", {}])),
    ],
    ids=str,
)
def test_a_text_whose_description_does_not_fit_is_refused(tmp_path, description):
    files.save(a_model(), tmp_path / "x.m")
    numbers, _, good = (tmp_path / "x.m").read_text().partition("about ")
    assert json.loads(good) and loads_or_says_why(tmp_path / "x.m")
    (tmp_path / "x.m").write_text(f"{numbers}about {description}\n")
    assert not loads_or_says_why(tmp_path / "x.m")


def dense(n_in, n_out, activation="sigmoid", kind="dense"):
    return {"kind": kind, "n_in": n_in, "n_out": n_out, "activation": activation}


def vector(value=0.5, size=None, dtype=np.float32):
    """As many numbers as the model of these tests has parameters."""
    return np.full(a_model().network.flat_parameters.size if size is None else size, value, dtype)


@pytest.mark.parametrize(
    "changed",
    [
        *({"about": wrong} for wrong in (None, np.array(3.0), *WRONG_DESCRIPTIONS)),
        {"about": about(layers=[])},
        {"about": about(layers=[dense(3, 4)])},
        {"about": about(layers=[dense(3, 4), dense(4, 3)])},
        {"about": about(layers=[dense(3, 4), dense(5, 2)])},
        {"about": about(layers=[dense(3, 4), dense(4, 2, kind="convolutional")])},
        {"about": about(layers=[dense(3, 4), dense(4, 2, "sigmoidal")])},
        {"about": about(layers=[dense(3, 4), dense(4, -2)])},
        {"about": about(layers=[dense(1 << 40, 1 << 40)])},
        {"about": about(layers=[{"kind": "dense"}])},
        {"about": about(layers=3)},
        {"about": about(input_shape=[4])},
        {"about": about(input_shape="three")},
        {"about": about(optimizer={"kind": "adagard"})},
        {"about": about(optimizer={"kind": "sgd", "momentum": 2.0})},
        {"about": about(optimizer={"kind": "adam", "momentum": 0.9})},
        {"about": about(optimizer={"kind": "adam", "l2": 0, "steps": 7})},
        {"about": about(optimizer={"kind": "adam", "l2": 0, "steps": 7}), "state_M": vector()},
        {"about": about(optimizer={"kind": "sgd", "l2": 0, "steps": -7})},
        {"state_V": vector()},
        {"about": about(optimizer={"kind": "sgd", "momentum": 0.9, "steps": 7}), "state_V": vector(np.nan)},
        {"about": about(optimizer={"kind": "sgd", "momentum": 0.9, "steps": 7}), "state_V": vector(size=3)},
        *({"parameters": wrong} for wrong in (None, np.zeros((0,), "f"), np.zeros((), "f"), np.full(26, "x"))),
        *({"parameters": wrong} for wrong in (vector(size=3), vector(np.nan), vector(1e300, dtype=np.float64))),
    ],
    ids=str,
)
def test_parts_that_do_not_fit_are_refused(tmp_path, changed):
    save_arrays(tmp_path / "x.npz")
    assert loads_or_says_why(tmp_path / "x.npz")
    save_arrays(tmp_path / "x.npz", **changed)
    assert not loads_or_says_why(tmp_path / "x.npz")


class Trap:
    """Unpickling it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


ABOUT_0_2 = """{"layers": [{"kind": "dense", "n_in": 2, "n_out": 1, "activation": "sigmoid"}], "input_shape": [2],
 "activations": ["sigmoid"], "cost": "mse", "scaling": {"kind": "none"}, "classes": ["a"],
 "provenance": {"epochs": 2, "seed": 0}, "update": UPDATE}"""
TEXT_0_2 = "2\n2 1\n0.0260119066\n0.389668494 -0.637081325\nabout "


def test_models_of_version_0_2_bring_their_update_as_optimizer(tmp_path):
    """As that version wrote them, after two epochs by SGD, and by Adam."""
    update = '{"kind": "sgd", "momentum": 0.0, "l2": 0.01, "steps": 4}'
    (tmp_path / "old.m").write_text(TEXT_0_2 + ABOUT_0_2.replace("UPDATE", update).replace("\n", "") + "\n")
    model = files.load(tmp_path / "old.m")
    assert model.optimizer == SGD(l2=0.01, steps=4)
    assert bits(model.network.flat_parameters) == bits(np.array([0.389668494, -0.637081325, 0.0260119066], "f"))

    parameters = np.array([0.04621794819831848, -0.2622585594654083, 0.1707638055086136], "f")
    state = {
        "M": np.array([0.038521844893693924, -0.0939221978187561, -0.0005652937106788158], "f"),
        "V": np.array([8.052043995121494e-05, 0.0003217299235984683, 1.747180249367375e-05], "f"),
    }
    about = np.array(ABOUT_0_2.replace("UPDATE", '{"kind": "adam", "l2": 0.5, "steps": 4}'))
    arrays = {f"state_{name}": array for name, array in state.items()}
    np.savez(tmp_path / "old.npz", about=about, parameters=parameters, **arrays)
    model = files.load(tmp_path / "old.npz")
    assert model.optimizer.describe() == Adam(beta1=0.9, beta2=0.999, epsilon=1e-8, l2=0.5).describe()
    assert model.optimizer.steps == 4 and bits(model.network.flat_parameters) == bits(parameters)
    assert {n: bits(a) for n, a in model.optimizer.state.items()} == {n: bits(a) for n, a in state.items()}
    files.save(model, tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as file:
        kept = json.loads(str(file["about"]))
    assert "update" not in kept and kept["optimizer"]["steps"] == 4


def test_a_pickle_is_refused_and_not_run(tmp_path):
    trap = pickle.dumps(Trap(tmp_path / "sprung"))
    (tmp_path / "bare.npz").write_bytes(trap)
    np.savez(tmp_path / "array.npz", about=np.array([Trap(tmp_path / "sprung")], dtype=object))
    with zipfile.ZipFile(tmp_path / "inside.npz", "w") as archive:
        archive.writestr("about.npy", trap)
        archive.writestr("about", trap)
    for name in ("bare.npz", "array.npz", "inside.npz"):
        assert not loads_or_says_why(tmp_path / name)
    assert not (tmp_path / "sprung").exists()
    pickle.loads(trap)
    assert (tmp_path / "sprung").exists(), "the trap works"


# ---- writing


@pytest.mark.parametrize("form", FORMS)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, form, monkeypatch):
    files.save(a_model(), tmp_path / form)
    old = (tmp_path / form).read_bytes()

    def full_disk(model, path):
        path.write_bytes(b"half of")
        raise OSError(28, "No space left on device")

    for writer in ("_write_npz", "_write_text"):
        monkeypatch.setattr(files, writer, full_disk)
    assert "No space left" in refused(files.save, a_model(seed=2), tmp_path / form)
    assert (tmp_path / form).read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == [form]


@pytest.mark.parametrize("form", FORMS)
def test_a_reader_sees_the_old_model_until_the_new_one_is_whole(tmp_path, form, monkeypatch):
    files.save(a_model(), tmp_path / form)
    replace, seen = files.os.replace, []

    def look(source, target):
        seen.append(same(files.load(target), a_model()))
        shutil.copy(source, tmp_path / f"new-{form}")
        seen.append(same(files.load(tmp_path / f"new-{form}"), a_model(seed=2)))
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", look)
    files.save(a_model(seed=2), tmp_path / form)
    assert seen == [True, True]
    assert same(files.load(tmp_path / form), a_model(seed=2))


def test_a_model_cannot_be_saved_over_a_folder_or_a_device_or_nowhere(tmp_path):
    (tmp_path / "folder.npz").mkdir()
    os.mkfifo(tmp_path / "pipe.m")  # it stands for /dev/null, which must not be replaced by a file
    for name in ("folder.npz", "pipe.m", "no/where.npz", "a" * 300 + ".m"):
        refused(files.save, a_model(), tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder.npz", "pipe.m"]
    assert (tmp_path / "pipe.m").is_fifo()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be with a mark"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("of_c_program", [False, True])
def test_kind_11_a_model_as_text(encoding, end, of_c_program, tmp_path):
    path = tmp_path / "model.m"
    wanted = make_network([2, 3, 1], seed=5)
    files.save(files.Model(wanted, classes=("sí", "no")), path)
    text = path.read_text("utf-8")
    text = (text.partition("about ")[0] if of_c_program else text).replace("\n", end)
    mark, name = (codecs.BOM_UTF16_BE, "utf-16-be") if "mark" in encoding else (b"", encoding)
    path.write_bytes(mark + text.encode(name))
    model = files.load(path)
    np.testing.assert_array_equal(model.network.flat_parameters, wanted.flat_parameters)
    assert model.classes == (() if of_c_program else ("sí", "no"))
    path.write_bytes(mark + text.encode(name)[: -len(end.encode(name.removesuffix("-sig")))])
    if of_c_program:
        assert "name another file" in refused(files.load, path)  # cut off
