"""Optimizers and schedules: as PyTorch computes them, resumed exactly, and kept with the parameters they belong to."""

import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused
from trainings import by_steps, same, stop_after

from fused_epochs import catalogue
from fused_epochs.architecture import Windows
from fused_epochs.network import network_epoch
from nnclassroom.exercises.catalogue import find
from nncourse import datasets
from nncourse.backend import choose
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.model import files, training
from nncourse.model.layers import Dense, LayerSequence
from nncourse.model.network import Network, make_network, training_step
from nncourse.model.optimizers import OPTIMIZERS, Adam, cosine_decay, make_optimizer, make_schedule
from nncourse.model.plans import train_step_by_step
from nncourse.model.training import History, train

STEPS = {name: by_steps(name) for name in ("numpy", "numba")}
# Every optimizer with its usual options, and with L2; and some with others.
KINDS = {kind: partial(make_optimizer, kind) for kind in OPTIMIZERS}
KINDS |= {f"{kind} and l2": partial(make_optimizer, kind, l2=0.05) for kind in OPTIMIZERS}
KINDS |= {
    "momentum": partial(make_optimizer, "sgd", momentum=0.9),
    "momentum and l2": partial(make_optimizer, "sgd", momentum=0.8, l2=0.02),
    "adam with others": partial(make_optimizer, "adam", beta1=0.7, beta2=0.97, epsilon=1e-3),
    "rmsprop with others": partial(make_optimizer, "rmsprop", beta=0.7, epsilon=1e-3),
    "adagrad with others": partial(make_optimizer, "adagrad", epsilon=0.1),
}
optimizer_kinds = pytest.mark.parametrize("kind", KINDS)
PYTORCH = {
    "l2": "weight_decay",
    "momentum": "momentum",
    "beta": "alpha",
    "epsilon": "eps",
}  # PyTorch's names for our options


@pytest.fixture(scope="module")
def moons():
    data = datasets.moons(53, seed=2)
    return datasets.fit_scaling(data.X, "standardization").apply(data.X), data.Y


def in_pytorch(torch, parameters, optimizer, rate: float):
    """PyTorch's optimizer with the same options."""
    options = {PYTORCH[name]: value for name, value in optimizer.options.items() if name in PYTORCH}
    if "beta1" in optimizer.options:
        options["betas"] = optimizer.beta1, optimizer.beta2
    there = {name.lower(): name for name in dir(torch.optim)}
    if optimizer.kind not in there:
        pytest.skip(f"PyTorch has no {optimizer.kind}")
    return getattr(torch.optim, there[optimizer.kind])(parameters, lr=rate, **options)


# ---- the numbers


@optimizer_kinds
@pytest.mark.parametrize(
    ("backend", "dtype", "tolerance"),
    [("numpy", "float64", 1e-12), ("numpy", "float32", 1e-5), ("numba", "float32", 1e-5)],
)
def test_twenty_steps_are_those_of_pytorch(kind, backend, dtype, tolerance):
    torch = pytest.importorskip("torch")
    rng, optimizer, rate = np.random.default_rng(4), KINDS[kind](), 0.05
    sizes = [4, 5, 3]
    pairs = zip(sizes[:-1], sizes[1:], strict=True)
    arrays = [(rng.normal(size=(m, n)).astype(dtype), rng.normal(size=m).astype(dtype)) for n, m in pairs]
    network = Network([Dense(W, b, "sigmoid") for W, b in arrays])
    parameters = [torch.tensor(array, requires_grad=True) for pair in arrays for array in pair]
    theirs = in_pytorch(torch, parameters, optimizer, rate)
    start = network.flat_parameters.copy()
    for _ in range(20):
        X, Y = rng.normal(size=(6, 4)).astype(dtype), rng.random((6, 3)).astype(dtype)
        training_step(network, X, Y, rate, STEPS[backend], optimizer)
        a = torch.tensor(X)
        for W, b in zip(parameters[0::2], parameters[1::2], strict=True):
            a = torch.sigmoid(torch.nn.functional.linear(a, W, b))
        theirs.zero_grad()
        (((a - torch.tensor(Y)) ** 2).sum() / 2 / len(X)).backward()
        theirs.step()
    wanted = np.concatenate([parameter.detach().numpy().ravel() for parameter in parameters])
    assert network.flat_parameters.dtype == dtype
    assert np.abs(start - wanted).max() > 0.01
    np.testing.assert_allclose(network.flat_parameters, wanted, rtol=tolerance, atol=tolerance)


def test_a_kept_adam_update_moves_parameters_unless_other_options_are_asked_for():
    """The exercise adam_update has the usual β and ε built in; general_adam_update takes any."""
    called = []

    class Noting:
        def __getattr__(self, name):
            return lambda *arguments: called.append(name)

    for optimizer in (Adam(), Adam(0.9, 0.999, 1e-8), Adam(beta1=0.8), Adam(beta2=0.99), Adam(epsilon=1e-7)):
        optimizer.step(np.ones(3, "f"), np.ones(3, "f"), 0.1, Noting())
    assert called == ["adam_update"] * 2 + ["general_adam_update"] * 3


# ---- schedules


@pytest.mark.parametrize(
    ("text", "rates"),
    [
        ("constant", [0.8, 0.8, 0.8, 0.8, 0.8]),
        ("step,2,0.5", [0.8, 0.8, 0.4, 0.4, 0.2]),
        ("step,1,1", [0.8, 0.8, 0.8, 0.8, 0.8]),
        ("exponential,0.5", [0.8, 0.4, 0.2, 0.1, 0.05]),
        ("cosine,4", [0.8, 0.4 + 0.4 * math.sqrt(0.5), 0.4, 0.4 - 0.4 * math.sqrt(0.5), 0.4 - 0.4 * math.sqrt(0.5)]),
        ("cosine,1", [0.8, 0.8, 0.8, 0.8, 0.8]),
        ("cosine,4,2", [0.4, 0.8, 0.6, 0.2, 0.2]),
        ("cosine,3,3", [0.8 / 3, 1.6 / 3, 0.8, 0.8, 0.8]),
        ("warmup,4", [0.2, 0.4, 0.6, 0.8, 0.8]),
        ("warmup,1", [0.8, 0.8, 0.8, 0.8, 0.8]),
    ],
)
def test_schedules(text, rates):
    schedule = make_schedule(text, 0.8)
    assert [schedule(epoch) for epoch in range(1, 6)] == pytest.approx(rates, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    ["", "linear", "Constant", "constant,2", "constant,", "step", "step,2", "step,2,0.5,1", "step,0,0.5", "step,-1,0.5"]
    + ["step,1.5,0.5", "step,x,0.5", "step,2,0", "step,2,1.1", "step,2,-0.5", "step,2,nan", "step,2,x", "exponential"]
    + ["exponential,0", "exponential,2", "exponential,inf", "exponential,", "cosine", "cosine,0", "cosine,2.5"]
    + ["cosine,4,0.5", "cosine,4,0", "cosine,4,5", "cosine,4,2,1", "cosine 4", "warmup", "warmup,0", "warm-up,3"],
)
def test_schedules_that_are_refused(text):
    assert repr(text) in refused(make_schedule, text, 0.8)


def test_a_warm_up_longer_than_its_schedule_is_refused():
    assert "at most the 4 epochs of the schedule; got 5" in refused(cosine_decay, 0.8, 4, warm=5)


def test_a_schedule_with_a_warm_up_is_that_of_the_exercise():
    written = find("warm_up_cosine")["numpy"](np.arange(1, 21, dtype=np.int32), 0.8, 4, 20)
    assert written == pytest.approx([cosine_decay(0.8, 20, warm=4)(epoch) for epoch in range(1, 21)], rel=1e-6)


def test_each_epoch_has_the_rate_of_its_number(moons):
    X, Y = moons
    network, by_hand = make_network([2, 3, 1]), make_network([2, 3, 1])
    schedule = make_schedule("exponential,0.5", 0.8)
    train(network, X, Y, STEPS["numpy"], epochs=3, learning_rate=schedule, after=History(before=1), seed=6)
    for epoch in (2, 3, 4):
        train(
            by_hand,
            X,
            Y,
            STEPS["numpy"],
            epochs=1,
            learning_rate=schedule(epoch),
            after=History(before=epoch - 1),
            seed=6,
        )
    assert network.flat_parameters.tobytes() == by_hand.flat_parameters.tobytes()


# ---- what is refused, and what is usual


# An optimizer's option → values that it refuses.
WRONG = {
    ("sgd", "momentum"): (1.0, -0.1, math.nan),
    ("sgd", "l2"): (-1e-9, math.inf, math.nan),
    ("sgd", "beta"): (0.9,),  # of RMSprop
    ("sgd", "state"): ({},),
    ("sgd", "steps"): (3,),
    ("rmsprop", "beta"): (1.0, -0.1),
    ("adam", "momentum"): (0.9,),  # of SGD
    ("adam", "beta2"): (1.0,),
    ("adam", "epsilon"): (0.0,),
    ("adagrad", "epsilon"): (math.nan, 1e-60),
}


@pytest.mark.parametrize(("kind", "option", "value"), [(*names, value) for names in WRONG for value in WRONG[names]])
def test_options_that_are_refused(kind, option, value):
    refused(make_optimizer, kind, **{option: value})


@pytest.mark.parametrize("kind", ["sdg", "Adam", "", None])
def test_optimizers_that_are_refused(kind):
    refused(make_optimizer, kind)


# ---- resume


@pytest.mark.parametrize("backend", STEPS)
@pytest.mark.parametrize("text", ["constant", "step,2,0.5"])
@optimizer_kinds
def test_resume_is_exact(tmp_path, moons, kind, text, backend):
    options = {"learning_rate": make_schedule(text, 0.05), "seed": 3}
    at_once, optimizer = make_network([2, 4, 1]), KINDS[kind]()
    train(at_once, *moons, STEPS[backend], epochs=6, optimizer=optimizer, **options)
    first, halfway = make_network([2, 4, 1]), KINDS[kind]()
    train(first, *moons, STEPS[backend], epochs=3, optimizer=halfway, **options)
    assert not same((at_once, optimizer), (first, halfway))
    files.save(files.Model(first, optimizer=halfway), tmp_path / "half.npz")
    model = files.load(tmp_path / "half.npz")
    assert same((first, halfway), (model.network, model.optimizer))
    assert model.optimizer.describe() == halfway.describe()
    train(
        model.network, *moons, STEPS[backend], epochs=3, after=History(before=3), optimizer=model.optimizer, **options
    )
    assert same((at_once, optimizer), (model.network, model.optimizer))
    assert optimizer.steps == 36  # six epochs of six batches
    if optimizer.remembers:  # without its memory it goes elsewhere
        train(first, *moons, STEPS[backend], epochs=3, optimizer=KINDS[kind](), **options)
        assert first.flat_parameters.tobytes() != at_once.flat_parameters.tobytes()


def after(kind: str, epochs: int, moons, rate: float) -> tuple[Network, object]:
    network, optimizer = make_network([2, 4, 1]), KINDS[kind]()
    train(network, *moons, STEPS["numpy"], epochs=epochs, learning_rate=rate, optimizer=optimizer)
    return network, optimizer


@pytest.mark.parametrize(("kind", "rate"), [("sgd", 9.0), ("momentum", 9.0), ("adam", 1.5)])
def test_ctrl_c_keeps_the_state_of_the_best_parameters(moons, kind, rate):
    network, optimizer = make_network([2, 4, 1]), KINDS[kind]()
    options = {"epochs": 20, "learning_rate": rate, "optimizer": optimizer, "on_epoch": stop_after(8)}
    history = train(network, *moons, STEPS["numpy"], **options)
    best = int(np.argmin(history.costs)) + 1
    assert len(history.epochs) == 8 and best < 8, "the data should make a later epoch worse"
    assert history.stopped.startswith("interrupted")
    assert same((network, optimizer), after(kind, best, moons, rate))
    assert not same((network, optimizer), after(kind, 8, moons, rate))


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam"])
def test_a_cost_that_is_not_finite_keeps_the_state_of_the_best_parameters(moons, kind):
    X, Y = moons[0], moons[1].copy()
    options = {"activation": ["sigmoid", "identity"]}
    network, optimizer = make_network([2, 4, 1], **options), KINDS[kind]()

    def spoil(epoch):
        if epoch.number == 2:
            Y.fill(3e38)

    history = train(network, X, Y, STEPS["numpy"], epochs=9, learning_rate=0.01, optimizer=optimizer, on_epoch=spoil)
    assert len(history.epochs) == 3 and not math.isfinite(history.costs[-1])
    wanted, remembered = make_network([2, 4, 1], **options), KINDS[kind]()
    train(wanted, *moons, STEPS["numpy"], epochs=2, learning_rate=0.01, optimizer=remembered)
    assert same((network, optimizer), (wanted, remembered))
    assert all(np.isfinite(array).all() for array in optimizer.state.values())


@optimizer_kinds
def test_the_text_form_takes_only_optimizers_without_a_memory(tmp_path, moons, kind):
    network, optimizer = after(kind, 1, moons, 0.01)
    path = tmp_path / "model.m"
    if not optimizer.remembers:
        files.save(files.Model(network, optimizer=optimizer), path)
        model = files.load(path)
        assert same((network, optimizer), (model.network, model.optimizer)) and model.optimizer.l2 == optimizer.l2
        return
    assert ".npz" in refused(files.save, files.Model(network, optimizer=optimizer), path)
    assert not path.exists()


# ---- fused epochs, and what happens before the clock starts


@optimizer_kinds
def test_a_fused_epoch_is_for_plain_sgd_only(moons, kind):
    fused, stepped, untouched = (make_network([2, 4, 1]) for _ in range(3))
    optimizer = KINDS[kind]()
    history = train(fused, *moons, choose("numpy"), epochs=1, optimizer=optimizer)
    assert optimizer.steps == 6
    train(stepped, *moons, STEPS["numpy"], epochs=1, optimizer=KINDS[kind]())
    assert history.plan == ("numpy" if kind == "sgd" else "gradient")
    np.testing.assert_allclose(fused.flat_parameters, stepped.flat_parameters, rtol=1e-5, atol=1e-6)
    if kind != "sgd":  # asked for by name
        optimizer = KINDS[kind]()
        with pytest.raises(CourseError) as caught:
            train(untouched, *moons, choose("numpy"), plan="numpy", epochs=1, optimizer=optimizer)
        assert "\n" not in str(caught.value)
        assert same((untouched, optimizer), (make_network([2, 4, 1]), KINDS[kind]()))


@pytest.fixture
def any_rule(monkeypatch):
    """A kernel `numpy` of network_epoch: the reference in float32, for chains without a pool."""
    monkeypatch.setattr(network_epoch, "kernels", dict(network_epoch.kernels))
    monkeypatch.setitem(catalogue.KINDS, "network", (("network",), ()))

    @network_epoch.kernel("numpy", device="cpu")
    def by_reference(parameters, M, V, architecture, *arguments):
        if any(isinstance(layer, Windows) for layer in architecture.layers):
            raise DoesNotFitError("expected no pool")
        results = network_epoch.reference(*(a.astype(float) for a in (parameters, M, V)), architecture, *arguments)
        for array, result in zip((parameters, M, V), results, strict=True):
            array[...] = result


@optimizer_kinds
def test_a_fused_epoch_of_a_chain_is_for_every_optimizer(moons, kind, any_rule):
    fused, stepped = make_network([2, 4, 1]), make_network([2, 4, 1])
    optimizer, other = KINDS[kind](), KINDS[kind]()
    history = train(fused, *moons, choose("numpy"), epochs=2, optimizer=optimizer)
    train(stepped, *moons, STEPS["numpy"], epochs=2, optimizer=other)
    assert (history.plan, history.note, optimizer.steps) == ("numpy", "", other.steps)
    np.testing.assert_allclose(fused.flat_parameters, stepped.flat_parameters, rtol=1e-5, atol=1e-6)
    for name in optimizer.remembers:
        np.testing.assert_allclose(optimizer.state[name], other.state[name], rtol=1e-5, atol=1e-6)


def test_a_chain_of_images_is_fused_and_what_does_not_fit_goes_step_by_step(any_rule):
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((7, 1, 6, 6)).astype(np.float32), np.eye(2, dtype=np.float32)[rng.integers(0, 2, 7)]
    for words, kernel in (("image1x6x6,conv2x3same,3,2", "numpy"), ("image1x6x6,pool2,conv2x3same,2", "operations")):
        optimizer = KINDS["momentum"]
        fused, stepped = (make_network(words, "tanh", initialiser="xavier", seed=3) for _ in range(2))
        history = train(fused, X, Y, choose("numpy"), epochs=1, batch_size=3, optimizer=optimizer())
        assert history.plan == kernel and (history.note == "") == (kernel == "numpy")
        options = {"epochs": 1, "batch_size": 3, "optimizer": optimizer()}
        train(stepped, X, Y, choose("numpy"), plan="operations", **options)
        np.testing.assert_allclose(fused.flat_parameters, stepped.flat_parameters, rtol=1e-5, atol=1e-6)


def test_a_fused_epoch_is_for_dense_networks_only(moons):
    dense = make_network([2, 4, 1])
    nested = Network([LayerSequence(dense.layers)], input_shape=(2,))
    assert train(nested, *moons, choose("numpy"), epochs=1).plan == "operations"
    assert train(dense, *moons, choose("numpy"), epochs=1).plan == "numpy"
    np.testing.assert_allclose(nested.flat_parameters, dense.flat_parameters, rtol=1e-5, atol=1e-6)
    refused(train, nested, *moons, choose("numpy"), plan="numpy", epochs=1)


class Watched:
    """A backend that notes the operation and the types of each call: Numba compiles once for each of these."""

    def __init__(self, backend):
        self.backend, self.seen = backend, []
        for name in ("name", "device", "kernels", "fusable", "notes", "yours", "asked", "unused", "to_device"):
            setattr(self, name, getattr(backend, name))

    def __getattr__(self, name: str):
        def call(*arguments):
            self.seen.append((name, *map(_type, arguments)))
            return getattr(self.backend, name)(*arguments)

        return call


def _type(value):
    if isinstance(value, np.ndarray):
        return value.dtype.name, value.ndim, value.flags.c_contiguous, value.flags.writeable
    return type(value).__name__


@pytest.fixture
def calls_of(monkeypatch):
    """A function that trains for two epochs: what is called before the clock starts, and in the first epoch."""

    def trained(network, X, Y, backend, **options):
        watched, marks = Watched(backend), []
        clock = SimpleNamespace(perf_counter=lambda: marks.append(len(watched.seen)) or 0.0)
        monkeypatch.setattr(training, "time", clock)
        train(network, X, Y, watched, epochs=2, **options)
        assert len(marks) == 4
        return set(watched.seen[: marks[0]]), set(watched.seen[marks[0] : marks[1]])

    return trained


@pytest.mark.parametrize("apart", [1, 2])  # columns of the samples and targets: beside each other, or every other one
@optimizer_kinds
def test_nothing_is_called_for_the_first_time_while_the_clock_runs(calls_of, moons, kind, apart):
    X, Y = (np.repeat(array, apart, axis=1)[:, ::apart] for array in moons)
    network, optimizer = make_network([2, 4, 1]), KINDS[kind]()
    before, timed = calls_of(network, X, Y, STEPS["numba"], optimizer=optimizer, validation=(X, Y))
    assert len({name for name, *_ in timed}) >= 7
    assert timed <= before
    assert same((network, optimizer), two_epochs_step_by_step(kind, moons))


def test_nothing_of_a_network_for_images_is_called_for_the_first_time_either(calls_of, rng):
    """NumPy's kernels stand in for Numba's: what counts is the types that they are called with."""
    X, Y = rng.random((20, 1, 6, 6), np.float32), rng.random((20, 2), np.float32)
    words = "image1x6x6,conv2x2,dropout0.2,conv3x2sames2,pool2s1,averagepool2,4,dropout0.5,2"
    before, timed = calls_of(make_network(words, "relu"), X, Y, STEPS["numpy"], batch_size=8, optimizer=Adam())
    assert {"convolution_input_gradient", "maxpool_backward", "dropout"} <= {name for name, *_ in timed}
    assert timed <= before


def two_epochs_step_by_step(kind: str, moons) -> tuple[Network, object]:
    """Two epochs by Numba without anything tried before."""
    network, optimizer = make_network([2, 4, 1]), KINDS[kind]()
    for epoch in (1, 2):
        order = np.random.default_rng([0, epoch]).permutation(53)
        X, Y = (array[order] for array in moons)
        train_step_by_step(network, X, Y, 10, 0.1, STEPS["numba"], optimizer)
    return network, optimizer
