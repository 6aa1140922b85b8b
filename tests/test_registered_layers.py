"""Every registered layer goes wherever networks go, and so does one of a student's own, registered here.

A network with the layer is made from what `wanted` of its word shows, so a new layer needs no line here.
"""

import json
import re
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from finite_differences import compare_gradients
from random_layers import dense
from refusals import refused

from cuda_on_cpu import emulate
from nnclassroom.commands import main
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model import files, registry, words
from nncourse.model.image_layers import Flatten, WithoutParameters
from nncourse.model.initialisers import INITIALISERS, initialised
from nncourse.model.layers import (
    Dense,
    Forward,
    LayerSequence,
    StepPosition,
    WithoutStatistics,
    WithWeights,
    delta_below,
)
from nncourse.model.network import (
    OF_TOKENS,
    Network,
    backpropagation,
    make_network,
    refuse_other_layers,
    training_step,
)
from nncourse.model.registry import rebuilt, words_of
from nncourse.model.residual import Residual
from nncourse.model.training import train

# ---- six layers, each of another make


class WithoutActivation(WithoutStatistics):
    """What some of them share: any parameters, no activation. Each adds value() and gradients()."""

    activation = ""

    def __init__(self, *parameters):
        self.parameters = parameters

    def with_parameters(self, parameters):
        return type(self)(*parameters)

    def shape_after(self, shape):
        return shape

    def forward(self, A_below, backend, training=None):
        return Forward(self.value(A_below))

    def slope(self, Z, backend):
        return None

    def backward(self, D, here, A_below, S_below, backend, below=True):
        G, *gradients = self.gradients(D, A_below)
        return delta_below(G, S_below, backend) if below else None, tuple(gradients)


@registry.layer("scaleshift", word="scaleshift", wanted="scaleshift", below=lambda shape: {"n": shape[0]})
class ScaleShift(WithoutActivation):
    """A = scale x + shift, a factor and a summand for each of n features. It begins with its own values."""

    def shape_after(self, shape):
        if shape != self.parameters[0].shape:
            raise CourseError(f"expected samples of shape {self.parameters[0].shape}; got {shape}")
        return shape

    def value(self, A):
        return A * self.parameters[0] + self.parameters[1]

    def gradients(self, D, A):
        return D * self.parameters[0], (D * A).mean(axis=0), D.mean(axis=0)

    def describe(self):
        return {"kind": "scaleshift", "n": len(self.parameters[0])}

    @classmethod
    def from_description(cls, about):
        return cls(np.ones(about["n"]), np.zeros(about["n"]))


@registry.layer("gain", word="gain", wanted="gain, without numbers")
class Gain(WithoutActivation):
    """A = g x, one number for all of them: a parameter without axes."""

    def value(self, A):
        return A * self.parameters[0]

    def gradients(self, D, A):
        return D * self.parameters[0], (D * A).reshape(len(D), -1).sum(axis=1).mean()

    def initial(self, rng, initialiser):
        return Gain(np.asarray(rng.uniform(0.5, 1)))  # float64: NumPy's usual

    def describe(self):
        return {"kind": "gain"}

    @classmethod
    def from_description(cls, about):
        return cls(np.zeros((), np.float32))


@registry.layer(
    "groups",
    word="groups",
    pattern=r"groups(\d+)x(\d+)",
    wanted="groups, their number and the neurons of each, such as groups2x3",
    below=lambda shape: {"inputs": shape[0]},
)
class Groups(WithoutActivation):
    """W (groups, outputs, inputs): each group of neurons sees its own part of the inputs."""

    sizes = "groups", "n_out"

    def shape_after(self, shape):
        groups, n_out, n_in = self.parameters[0].shape
        if shape != (groups * n_in,):
            raise CourseError(f"expected samples of {groups * n_in} numbers for {groups} groups; got {shape}")
        return (groups * n_out,)

    def _apart(self, A):
        return A.reshape(len(A), len(self.parameters[0]), -1)

    def value(self, A):
        return np.einsum("bgi,goi->bgo", self._apart(A), self.parameters[0]).reshape(len(A), -1)

    def gradients(self, D, A):
        D, A, (W,) = self._apart(D), self._apart(A), self.parameters
        return np.einsum("bgo,goi->bgi", D, W).reshape(len(D), -1), np.einsum("bgo,bgi->goi", D, A) / len(D)

    def initial(self, rng, initialiser):
        groups, n_out, n_in = self.parameters[0].shape
        return Groups(np.stack([initialiser(rng, (n_out, n_in), n_in, n_out)[0] for _ in range(groups)]))

    def describe(self):
        groups, n_out, n_in = self.parameters[0].shape
        return {"kind": "groups", "groups": groups, "n_out": n_out, "inputs": groups * n_in}

    @classmethod
    def from_description(cls, about):
        return cls(np.zeros((about["groups"], about["n_out"], about["inputs"] // about["groups"]), np.float32))


@registry.layer(
    "free",
    word="free",
    pattern=r"free(\d+)",
    wanted="free and its neurons, such as free8",
    below=lambda shape: {"n_in": shape[0]},
)
class Free(WithWeights):
    """A dense layer without biases, with the activation that it is given. It begins as layers with weights do."""

    sizes = ("n_out",)

    takes_activation = True

    def __init__(self, W, activation):
        self.parameters, self.activation = (W,), activation

    def with_parameters(self, parameters):
        return Free(*parameters, self.activation)

    def shape_after(self, shape):
        if shape != self.W.shape[1:]:
            raise CourseError(f"expected samples of shape {self.W.shape[1:]}; got {shape}")
        return self.W.shape[:1]

    def forward(self, A_below, backend, training=None):
        Z = backend.dense_forward(A_below, self.W, np.zeros_like(self.W, shape=len(self.W)))
        return Forward(getattr(backend, self.activation)(Z), Z)

    def slope(self, Z, backend):
        return getattr(backend, f"{self.activation}_derivative")(Z)

    def backward(self, D, here, A_below, S_below, backend, below=True):
        gradients = (backend.weight_gradient(D, A_below),)
        S = np.ones_like(A_below) if S_below is None else S_below
        return (backend.hidden_delta(D, self.W, S) if below else None), gradients

    def describe(self):
        return {"kind": "free", "n_in": self.W.shape[1], "n_out": len(self.W), "activation": self.activation}

    @classmethod
    def from_description(cls, about):
        return cls(np.zeros((about["n_out"], about["n_in"]), np.float32), about["activation"])


@registry.layer("bent", word="bent", wanted="bent, without numbers", below=lambda shape: {"n": shape[0]})
class Bent(WithoutActivation):
    """A = x + p sin x, and its activation's name is one that nobody else knows: backward() goes through it itself."""

    activation = "bent"

    def value(self, A):
        return A + self.parameters[0] * np.sin(A)

    def gradients(self, D, A):
        return D * (1 + self.parameters[0] * np.cos(A)), (D * np.sin(A)).mean(axis=0)

    def describe(self):
        return {"kind": "bent", "n": len(self.parameters[0])}

    @classmethod
    def from_description(cls, about):
        return cls(np.full(about["n"], 0.5, np.float32))


@registry.layer("reversed", word="Reversed_2", wanted="Reversed_2")
class Reversed(WithoutParameters):
    """The features in the opposite order: nothing to learn."""

    def shape_after(self, shape):
        return shape

    def forward(self, A_below, backend, training=None):
        return Forward(np.ascontiguousarray(A_below[:, ::-1]))

    def gradient_below(self, D, here, A_below, backend):
        return np.ascontiguousarray(D[:, ::-1])


COURSE = {kind: each for kind, each in registry.registered().items() if not each.layer.__module__.endswith(__name__)}
OWN = {kind: registry.KINDS.pop(kind) for kind in list(registry.KINDS) if kind not in COURSE}
KINDS = COURSE | OWN


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    for kind in OWN:
        monkeypatch.setitem(registry.KINDS, kind, OWN[kind])


@pytest.mark.parametrize(("kind", "word", "taken"), [("gain", "other", "kind gain"), ("other", "pool", "word pool")])
def test_a_kind_or_a_word_that_is_taken_is_refused(kind, word, taken, monkeypatch):
    monkeypatch.setattr(registry, "KINDS", dict(registry.KINDS))
    there = next(each.layer for name, each in KINDS.items() if name == kind or (each.form and each.form.word == word))
    with pytest.raises(CourseError, match=f"{taken} of .*Other is already used by .*{there.__name__}: choose a diff"):
        registry.layer(kind, word=word, wanted=word)(type("Other", (WithoutActivation,), {}))
    assert "other" not in registry.KINDS and registry.layer(there.kind)(there) is there


def network_with(form: registry.Form) -> str:
    """A network with layers of that word, of two sizes; the word's numbers are those in its error message."""
    word = [*re.findall(r"such as ([\w.]+)", form.wanted), form.word][0]
    return {
        "": f"4,{word},6,{word},3",
        registry.IMAGE: f"image1x8x8,conv2x3s2,{word},10",
        registry.TOKENS: f"tokens5x4,{word},4",
        registry.SEQUENCE: f"tokens5x4,embed8,{word},12,{word},4",
    }[form.after]


EVERY = ",free6,scaleshift,bent,groups2x4,gain,Reversed_2,batchnorm,dropout0.1,5,batchnorm,"
NETWORKS = {kind: network_with(each.form) for kind, each in KINDS.items() if each.form}
NETWORKS |= {"first": "4,scaleshift,3", "all of them": f"4{EVERY}3", "rows of pixels": f"image1x8x8,4{EVERY}10"}
NETWORKS |= {
    "unordered": "tokens5x4,embed8unordered,dropout0.1,6,gain,4",
    "block": "tokens5x4,embed8,block4x6,layernorm,4",
}
each_network = pytest.mark.parametrize("text", NETWORKS.values(), ids=NETWORKS)
WITHOUT_WORDS = {
    "flatten": Flatten(),
    "sequence": LayerSequence([dense(3, 4), dense(4, 5, "relu")]),
    "residual": Residual([dense(6, 6)], [dense(6, 6, "identity")]),
}


def made(text, *options, **more):
    """The network of that text, with a cost that fits."""
    cost = OF_TOKENS if text.startswith("tokens") else "mse"
    return make_network(text, *options, cost=cost, **more)


def samples(network=None, count=20):
    """Samples that fit the network; by default one with 4 inputs and 3 outputs."""
    rng, shape = np.random.default_rng(5), network.input_shape if network else (4,)
    if network and network.cost == OF_TOKENS:
        kinds = network.shapes[-1][-1]
        return rng.integers(0, kinds, (count, *shape)).astype("f"), rng.integers(-1, kinds, (count, *shape)).astype("f")
    X = rng.standard_normal((count, *shape), dtype=np.float32)
    n_out = network.sizes[-1] if network else 3
    return X, np.eye(n_out, dtype=np.float32)[np.argmax(X.reshape(count, -1)[:, :n_out], axis=1)]


def test_every_module_with_a_registered_layer_is_in_modules():
    files_with = {path.stem for path in Path(registry.__file__).parent.glob("*.py") if registers(path)}
    assert files_with == set(registry.MODULES)


def registers(path: Path) -> bool:
    return bool(re.search(r"(?m)^@registry\.layer\(", path.read_text("utf-8"))) and path.stem != "registry"


# ---- words and first values


@each_network
def test_its_word_means_the_layer_and_the_layer_has_its_word(text):
    network = made(text, "tanh")
    assert network.in_words.replace("-", ",") == text and network.in_words in repr(network)
    again = [rebuilt(json.loads(json.dumps(layer.describe()))) for layer in network.layers]
    assert [layer.describe() for layer in again] == [layer.describe() for layer in network.layers]
    assert all(layer.activation for layer in network.layers if getattr(layer, "takes_activation", False))
    taken = words.activations_of(network.layers)
    assert made(text, taken).activations == network.activations
    refuse_other_layers(network, text, "it")
    assert all(words_of(layer) == layer.describe()["kind"] for layer in network.layers)


@pytest.mark.parametrize("kind", [kind for kind, each in KINDS.items() if not each.form])
def test_one_without_a_word_comes_back_from_its_description(kind):
    layer = WITHOUT_WORDS[kind]
    again = rebuilt(json.loads(json.dumps(layer.describe())))
    assert type(again) is KINDS[kind].layer and again.describe() == layer.describe()
    assert [array.shape for array in again.parameters] == [array.shape for array in layer.parameters]


def test_activations_go_to_the_layers_that_take_one():
    wanted = ("tanh", "", "bent", "", "", "", "tanh", "", "identity", "tanh", "sigmoid")
    assert make_network(NETWORKS["all of them"], "tanh").activations == wanted
    assert make_network("4,6,groups2x4,3", "tanh").activations == ("tanh", "", "sigmoid")


def test_words_that_do_not_fit_are_refused_in_one_line():
    for text, said in (
        ("image1x4x4,scaleshift,3", "scaleshift: expected samples of shape"),
        ("4,5,groups2x4,3", "groups2x4: expected samples of 4 numbers"),
        ("4,groups2,3", "such as groups2x3"),
        ("4,scaleshift2,3", "expected scaleshift; got"),
        ("4,scalshift,3", "did you mean scaleshift?"),
        ("4,scaleshift", "expected a number of outputs as the last word"),
    ):
        assert said in refused(make_network, text)
    with pytest.raises(CourseError, match="each of the 2 layers that take one; got 3"):
        make_network("4,6,scaleshift,3", ["tanh", "relu", "sigmoid"])


@pytest.mark.parametrize("initialiser", INITIALISERS)
@each_network
def test_each_initialiser_begins_it(text, initialiser):
    network = made(text, initialiser=initialiser, seed=3)
    assert network.flat_parameters.dtype == np.float32 and np.isfinite(network.flat_parameters).all()
    np.testing.assert_array_equal(network.flat_parameters, made(text, initialiser=initialiser, seed=3).flat_parameters)
    for layer in network.layers:
        first = layer.parameters[0] if layer.parameters else np.ones(1)
        if isinstance(layer, ScaleShift):
            assert (first == 1).all() and not layer.parameters[1].any()
        elif isinstance(layer, Bent):
            assert (first == 0.5).all()
        else:  # weights are drawn, and a number for each feature is the same for all
            assert first.all() and (first.size < 2 or (first.std() > 0) == (first.ndim > 1))


def test_a_layer_that_begins_in_another_shape_is_told():
    class Grown(Gain):
        def initial(self, rng, initialiser):
            return Grown(np.ones(3))

    with pytest.raises(CourseError, match=r"initial\(\) of Grown: expected parameters of the shapes \[\(\)\]; got"):
        initialised(Grown(np.zeros(())), "he", np.random.default_rng(1))


def test_weights_for_each_feature_and_a_third_parameter_begin_with_their_own_values():
    """Derived from the class of layers with weights, though no neuron sees several inputs."""

    class Own(WithWeights):
        activation = ""

        def __init__(self, *parameters):
            self.parameters = parameters

        def with_parameters(self, parameters):
            return Own(*parameters)

    rng = np.random.default_rng(2)
    begun = initialised(Own(np.full(3, 2.0), np.ones(3)), "xavier", rng)
    assert [array.tolist() for array in begun.parameters] == [[2, 2, 2], [1, 1, 1]]
    begun = initialised(Own(np.zeros((3, 2)), np.zeros(3), np.full(4, 7.0)), "normal", rng)
    assert begun.W.all() and begun.b.all() and begun.parameters[2].tolist() == [7, 7, 7, 7]


# ---- training


@each_network
@pytest.mark.parametrize("name", ["loops", "numba", "cuda"])
def test_backends_train_it_alike(text, name):
    if name == "cuda" and emulate.why_not():
        pytest.skip(emulate.why_not())
    (X, Y), trained = samples(made(text)), {}
    for each in ("numpy", name):
        network = made(text, "tanh", seed=1)
        backend = choose(each, emulate=each == "cuda")
        train(network, X, Y, backend, epochs=2, batch_size=10, learning_rate=0.3)
        trained[each] = network
    wanted = trained["numpy"].flat_parameters
    np.testing.assert_allclose(trained[name].flat_parameters, wanted, rtol=1e-3, atol=1e-5)
    before = made(text, "tanh", seed=1)
    for layer, was in zip(trained[name].layers, before.layers, strict=True):
        for array, old in zip(layer.parameters, was.parameters, strict=True):
            assert (array != old).any()


def in_float64(network):
    return network.with_flat_parameters(network.flat_parameters.astype(np.float64))


@each_network
def test_gradients_are_those_of_finite_differences(text):
    network = in_float64(made(text, "tanh", seed=4))
    X, Y = samples(network, 5)
    compare_gradients(network, X.astype(np.float64), Y, StepPosition(), rtol=1e-4)


@each_network
def test_two_halves_of_a_batch_are_the_whole(text):
    network, numpy = in_float64(made(text, "tanh", seed=4)), choose("numpy")
    if network.statistics:
        pytest.skip("it computes with statistics of the batch")
    X, Y = samples(network, 8)
    flat = []
    for first, end in ((0, 8), (0, 4), (4, 8)):
        there = backpropagation(network, X[first:end], Y[first:end], numpy, StepPosition(first=first))
        flat.append(np.concatenate([np.ravel(array) for layer in there for array in layer]))
    np.testing.assert_allclose((flat[1] + flat[2]) / 2, flat[0], rtol=1e-6, atol=1e-12)


def test_inside_of_a_block_with_a_shortcut():
    """A block has no word, so its network is built by hand; it begins as its layers do."""
    empty = [np.zeros((6, 6)), np.zeros(6)]
    parts = [Dense(*empty, "tanh"), ScaleShift(np.ones(6), np.zeros(6)), Gain(np.zeros(()))]
    block, rng = Residual(parts, [Bent(np.full(6, 0.5))]), np.random.default_rng(1)
    block = initialised(block, "he", rng)
    dense_layer, scale, gain, bent = block.layers
    assert dense_layer.W.any() and (scale.parameters[0] == 1).all() and gain.parameters[0] and bent.parameters[0].all()
    network = Network([dense(4, 6), block, LayerSequence([scale]), dense(6, 3, "sigmoid")])
    X, Y = samples(count=6)
    compare_gradients(in_float64(network), X.astype(np.float64), Y, StepPosition())
    training_step(network, X, Y, 0.1, choose("numpy"))


def test_a_layer_derived_from_a_dense_one_is_not_taken_for_it(tmp_path):
    """Kernels of whole epochs, and the C program's text, would leave out what it adds."""

    class Doubled(Dense):
        def with_parameters(self, parameters):
            return Doubled(*parameters, self.activation)

        def forward(self, A_below, backend, training=None):
            A, Z, _ = super().forward(2 * A_below, backend)
            return Forward(A, Z)

        def backward(self, D, here, A_below, S_below, backend, below=True):
            G, gradients = super().backward(D, here, 2 * A_below, S_below, backend, below)
            return G if G is None else 2 * G, gradients

    network, (X, Y) = Network([Doubled(*make_network([4, 3]).parameters, "sigmoid")]), samples()
    outputs = network.predict(X, choose("numpy"))
    assert not network.is_dense and train(network, X, Y, choose("numpy"), epochs=1).plan == "operations"
    assert not np.array_equal(outputs, network.predict(X, choose("numpy")))
    assert "npz" in refused(files.save, files.Model(network), tmp_path / "model.m")


# ---- model files and the command line


@each_network
def test_its_models_come_back(text, tmp_path):
    network, numpy = made(text, "tanh"), choose("numpy")
    X, Y = samples(network)
    train(network, X, Y, numpy, epochs=1, batch_size=5, learning_rate=0.3)
    files.save(files.Model(network), tmp_path / "own.npz")
    again = files.load(tmp_path / "own.npz").network
    assert again.in_words == network.in_words and again.activations == network.activations
    np.testing.assert_array_equal(again.predict(X, numpy), network.predict(X, numpy))
    if not network.is_dense:
        assert "npz" in refused(files.save, files.Model(network), tmp_path / "own.m")


def test_without_it_a_model_file_is_refused_in_one_line(tmp_path, monkeypatch):
    files.save(files.Model(make_network("4,6,scaleshift,3")), tmp_path / "own.npz")
    monkeypatch.delitem(registry.KINDS, "scaleshift")
    assert "got 'scaleshift'" in refused(files.load, tmp_path / "own.npz")


@pytest.fixture
def table(tmp_path):
    X, Y = samples(count=40)
    lines = [",".join([*(f"{number:.4f}" for number in x), str(y.argmax())]) for x, y in zip(X, Y, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["a,b,c,d,label", *lines]) + "\n")
    return tmp_path / "table.csv"


@pytest.fixture
def tokens(tmp_path):
    """Five columns of tokens, and five of targets."""
    rows = np.hstack(samples(made("tokens5x4,embed8,4"), 40)).astype(int)
    (tmp_path / "tokens.csv").write_text("\n".join(",".join(map(str, row)) for row in rows) + "\n")
    return tmp_path / "tokens.csv"


def command(capsys, *arguments):
    status = 0
    with suppress(SystemExit):
        status = main(list(map(str, arguments)))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return status, said.out + said.err


@each_network
def test_the_command_line_trains_resumes_and_tests_it(text, table, tokens, tmp_path, capsys):
    model, after = tmp_path / "own.npz", tmp_path / "after.npz"
    is_text = text.startswith("tokens")
    of = ("--dataset", "digits" if text.startswith("image") else tokens if is_text else table)
    new = ("train", *of, "--layers", text, "--activation", "tanh")
    new += ("--cost", OF_TOKENS, "--scaling", "none") if is_text else ()
    status, said = command(capsys, *new, "--epochs", 2, "--model", model)
    assert status == 0 and "cost" in said, said
    assert command(capsys, *new, "--epochs", 3, "--model", tmp_path / "at_once.npz")[0] == 0
    whole = files.load(tmp_path / "at_once.npz").network
    again = ("train", *of, "--resume", model, "--epochs", 1, "--model", after)
    for layers in ((), ("--layers", text), ("--layers", text.replace(",", ", "))):
        status, said = command(capsys, *again, *layers)
        assert status == 0, said
        assert files.load(after).provenance["epochs"] == 3
        resumed = files.load(after).network
        assert np.array_equal(resumed.flat_parameters, whole.flat_parameters), "it goes on as if it had never stopped"
        assert np.array_equal(resumed.flat_statistics, whole.flat_statistics)
        assert files.load(after).network.activations == made(text, "tanh").activations
    for other in ("4,3", "4,6,3", text.replace("6", "7"), text.replace(",", ",gain,", 1), "4,7,scaleshift,3"):
        if other != text:
            status, said = command(capsys, *again, "--layers", other)
            assert status == 2 and said.count("\n") == 1 and "expected --layers as in" in said, (other, said)
    status, said = command(capsys, "test", *of, "--model", after)
    assert status == 0 and ("of the tokens right" if is_text else "accuracy") in said


@pytest.mark.parametrize("text", ["30,20,scaleshift,10,1", "30,scaleshift,20,10,1", "30,20,dropout0.2,scaleshift,1"])
def test_networks_as_a_student_tried_them(text, tmp_path, capsys):
    """The network that died with "not enough values to unpack", and its like."""
    for options in ((), ("--initialiser", "he"), ("--activation", "relu"), ("--optimizer", "adam", "--l2", "0.01")):
        model = tmp_path / "m.npz"
        of = ("train", "--dataset", "breast_cancer", "--epochs", 1, "--model", model, "--layers", text)
        status, said = command(capsys, *of, *options)
        assert status == 0, said
        status, said = command(capsys, *of, "--resume", model)
        assert status == 0, said
