"""Updates and schedules: as PyTorch computes them, resumed exactly, and kept with the parameters they belong to."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from nncourse import datasets
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.kernels.update import sgd_update
from nncourse.model import files, training
from nncourse.model.layers import Dense, LayerSequence
from nncourse.model.network import Network, backpropagation, make_network, training_step
from nncourse.model.training import train
from nncourse.model.updates import SGD, Adam, make_schedule, make_update, usual_rate

STEPS = {name: choose(name, dense_sgd_epoch="steps") for name in ("numpy", "numba")}
KINDS = {
    "sgd": lambda: SGD(),
    "l2": lambda: SGD(l2=0.01),
    "momentum": lambda: SGD(momentum=0.9),
    "momentum and l2": lambda: SGD(momentum=0.8, l2=0.02),
    "adam": lambda: Adam(),
    "adam and l2": lambda: Adam(l2=0.05),
}
update_kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def moons():
    data = datasets.moons(53, seed=2)
    return datasets.fit_scaling(data.X, "standardization").apply(data.X), data.Y


def same(one: tuple[Network, object], other: tuple[Network, object]) -> bool:
    """Equal parameters, state and steps, bit for bit."""
    (network, update), (other_network, other_update) = one, other
    return (
        network.flat_parameters.tobytes() == other_network.flat_parameters.tobytes()
        and update.steps == other_update.steps
        and update.state.keys() == other_update.state.keys()
        and all(update.state[name].tobytes() == other_update.state[name].tobytes() for name in update.state)
    )


def stop_after(last: int):
    """An on_epoch that presses Ctrl-C."""

    def press(epoch):
        if epoch.number == last:
            raise KeyboardInterrupt

    return press


# ---- the numbers


@update_kinds
@pytest.mark.parametrize(
    ("backend", "dtype", "tolerance"),
    [("numpy", "float64", 1e-12), ("numpy", "float32", 1e-5), ("numba", "float32", 1e-5)],
)
def test_twenty_steps_are_those_of_pytorch(kind, backend, dtype, tolerance):
    torch = pytest.importorskip("torch")
    rng, update, rate = np.random.default_rng(4), KINDS[kind](), 0.05
    sizes = [4, 5, 3]
    pairs = zip(sizes[:-1], sizes[1:], strict=True)
    arrays = [(rng.normal(size=(m, n)).astype(dtype), rng.normal(size=m).astype(dtype)) for n, m in pairs]
    network = Network([Dense(W, b, "sigmoid") for W, b in arrays])
    parameters = [torch.tensor(array, requires_grad=True) for pair in arrays for array in pair]
    if isinstance(update, Adam):
        optimiser = torch.optim.Adam(parameters, rate, weight_decay=update.l2)
    else:
        optimiser = torch.optim.SGD(parameters, rate, momentum=update.momentum, weight_decay=update.l2)
    start = network.flat_parameters.copy()
    for _ in range(20):
        X, Y = rng.normal(size=(6, 4)).astype(dtype), rng.random((6, 3)).astype(dtype)
        training_step(network, X, Y, rate, STEPS[backend], update)
        a = torch.tensor(X)
        for W, b in zip(parameters[0::2], parameters[1::2], strict=True):
            a = torch.sigmoid(torch.nn.functional.linear(a, W, b))
        optimiser.zero_grad()
        (((a - torch.tensor(Y)) ** 2).sum() / 2 / len(X)).backward()
        optimiser.step()
    wanted = np.concatenate([parameter.detach().numpy().ravel() for parameter in parameters])
    assert network.flat_parameters.dtype == dtype
    assert np.abs(start - wanted).max() > 0.01
    np.testing.assert_allclose(network.flat_parameters, wanted, rtol=tolerance, atol=tolerance)


def test_the_six_updates_differ():
    found = {}
    for kind, make in KINDS.items():
        network, update = make_network([3, 4, 2]), make()
        for _ in range(3):
            training_step(network, np.ones((5, 3), "f"), np.zeros((5, 2), "f"), 0.05, STEPS["numpy"], update)
        found[kind] = network.flat_parameters.tobytes()
        assert update.steps == 3 and set(update.state) == set(update.remembers)
    assert len(set(found.values())) == len(KINDS)


@pytest.mark.parametrize("backend", STEPS)
def test_plain_sgd_of_the_vector_is_that_of_each_array_bit_for_bit(moons, backend):
    X, Y = moons
    whole, by_array = (make_network([2, 6, 3, 1], seed=3) for _ in range(2))
    for start in range(0, 50, 10):
        rows = slice(start, start + 10)
        training_step(whole, X[rows], Y[rows], 0.7, STEPS[backend])
        for layer, gradients in zip(
            by_array.layers, backpropagation(by_array, X[rows], Y[rows], STEPS[backend]), strict=True
        ):
            for parameter, gradient in zip(layer.parameters, gradients, strict=True):
                sgd_update[backend](parameter, gradient, 0.7)
    assert whole.flat_parameters.tobytes() == by_array.flat_parameters.tobytes()
    assert whole.flat_parameters.tobytes() != make_network([2, 6, 3, 1], seed=3).flat_parameters.tobytes()


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
    + ["cosine,4,0.5", "cosine 4", "warmup", "warmup,0", "warm-up,3"],
)
def test_schedules_that_are_refused(text):
    with pytest.raises(CourseError) as caught:
        make_schedule(text, 0.8)
    assert repr(text) in str(caught.value) and "\n" not in str(caught.value)


def test_each_epoch_has_the_rate_of_its_number(moons):
    X, Y = moons
    network, by_hand = make_network([2, 3, 1]), make_network([2, 3, 1])
    schedule = make_schedule("exponential,0.5", 0.8)
    train(network, X, Y, STEPS["numpy"], epochs=3, schedule=schedule, learning_rate=77, epochs_done=1, seed=6)
    for epoch in (2, 3, 4):
        train(by_hand, X, Y, STEPS["numpy"], epochs=1, learning_rate=schedule(epoch), epochs_done=epoch - 1, seed=6)
    assert network.flat_parameters.tobytes() == by_hand.flat_parameters.tobytes()


# ---- what is refused, and what is usual


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("sdg", {}),
        ("Adam", {}),
        ("", {}),
        (None, {}),
        ("adam", {"momentum": 0.9}),
        ("sgd", {"beta": 0.9}),
        ("sgd", {"state": {}}),
        ("sgd", {"steps": 3}),
        ("sgd", {"momentum": 1.0}),
        ("sgd", {"momentum": -0.1}),
        ("sgd", {"momentum": math.nan}),
        ("sgd", {"l2": -1e-9}),
        ("sgd", {"l2": math.inf}),
        ("adam", {"l2": math.nan}),
    ],
)
def test_updates_that_are_refused(kind, options):
    with pytest.raises(CourseError) as caught:
        make_update(kind, **options)
    assert "\n" not in str(caught.value)


@update_kinds
def test_an_update_is_made_again_from_its_description(kind):
    update = KINDS[kind]()
    options = update.describe()
    assert make_update(options.pop("kind"), **options) == update


def test_usual_rates():
    assert [usual_rate(KINDS[kind]()) for kind in KINDS] == [0.1, 0.1, 0.01, 0.01, 0.001, 0.001]


# ---- resume


@pytest.mark.parametrize("backend", STEPS)
@pytest.mark.parametrize("text", ["constant", "step,2,0.5"])
@pytest.mark.parametrize("kind", ["sgd", "momentum and l2", "adam", "adam and l2"])
def test_resume_is_exact(tmp_path, moons, kind, text, backend):
    options = {"schedule": make_schedule(text, 0.05), "seed": 3}
    at_once, update = make_network([2, 4, 1]), KINDS[kind]()
    train(at_once, *moons, STEPS[backend], epochs=6, update=update, **options)
    first, halfway = make_network([2, 4, 1]), KINDS[kind]()
    train(first, *moons, STEPS[backend], epochs=3, update=halfway, **options)
    assert not same((at_once, update), (first, halfway))
    files.save(files.Model(first, update=halfway), tmp_path / "half.npz")
    model = files.load(tmp_path / "half.npz")
    assert same((first, halfway), (model.network, model.update))
    assert model.update.describe() == halfway.describe()
    train(model.network, *moons, STEPS[backend], epochs=3, epochs_done=3, update=model.update, **options)
    assert same((at_once, update), (model.network, model.update))
    assert update.steps == 36  # six epochs of six batches
    if update.remembers:  # without its memory it goes elsewhere
        train(first, *moons, STEPS[backend], epochs=3, epochs_done=3, update=KINDS[kind](), **options)
        assert first.flat_parameters.tobytes() != at_once.flat_parameters.tobytes()


def test_steps_are_counted_in_whole_epochs_too(moons):
    update = SGD()
    network = make_network([2, 4, 1])
    history = train(network, *moons, choose("numpy"), epochs=2, batch_size=10, update=update)
    assert history.kernel == "numpy"
    assert update.steps == 12


def after(kind: str, epochs: int, moons, rate: float) -> tuple[Network, object]:
    network, update = make_network([2, 4, 1]), KINDS[kind]()
    train(network, *moons, STEPS["numpy"], epochs=epochs, learning_rate=rate, update=update)
    return network, update


@pytest.mark.parametrize(("kind", "rate"), [("momentum", 9.0), ("adam", 1.5)])
def test_ctrl_c_keeps_the_state_of_the_best_parameters(moons, kind, rate):
    network, update = make_network([2, 4, 1]), KINDS[kind]()
    history = train(
        network, *moons, STEPS["numpy"], epochs=20, learning_rate=rate, update=update, on_epoch=stop_after(8)
    )
    best = int(np.argmin(history.costs)) + 1
    assert len(history.epochs) == 8 and best < 8, "the data should make a later epoch worse"
    assert same((network, update), after(kind, best, moons, rate))
    assert not same((network, update), after(kind, 8, moons, rate))


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_a_cost_that_is_not_finite_keeps_the_state_of_the_best_parameters(moons, kind):
    X, Y = moons[0], moons[1].copy()
    options = {"activation": ["sigmoid", "identity"]}
    network, update = make_network([2, 4, 1], **options), KINDS[kind]()

    def spoil(epoch):
        if epoch.number == 2:
            Y.fill(3e38)

    history = train(network, X, Y, STEPS["numpy"], epochs=9, learning_rate=0.01, update=update, on_epoch=spoil)
    assert len(history.epochs) == 3 and not math.isfinite(history.costs[-1])
    wanted, remembered = make_network([2, 4, 1], **options), KINDS[kind]()
    train(wanted, *moons, STEPS["numpy"], epochs=2, learning_rate=0.01, update=remembered)
    assert same((network, update), (wanted, remembered))
    assert all(np.isfinite(array).all() for array in update.state.values())


@update_kinds
def test_the_text_form_takes_only_updates_without_a_memory(tmp_path, moons, kind):
    network, update = after(kind, 1, moons, 0.01)
    path = tmp_path / "model.m"
    if not update.remembers:
        files.save(files.Model(network, update=update), path)
        model = files.load(path)
        assert same((network, update), (model.network, model.update)) and model.update.l2 == update.l2
        return
    with pytest.raises(CourseError, match=r"\.npz"):
        files.save(files.Model(network, update=update), path)
    assert not path.exists()


# ---- whole epochs, and what happens before the clock starts


@update_kinds
def test_a_fused_epoch_is_for_plain_sgd_only(moons, kind):
    fused, by_steps = make_network([2, 4, 1]), make_network([2, 4, 1])
    history = train(fused, *moons, choose("numpy"), epochs=1, update=KINDS[kind]())
    train(by_steps, *moons, STEPS["numpy"], epochs=1, update=KINDS[kind]())
    assert history.kernel == ("numpy" if kind == "sgd" else "steps")
    np.testing.assert_allclose(fused.flat_parameters, by_steps.flat_parameters, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "sgd"])
def test_a_fused_epoch_by_name_for_another_update_is_an_error(moons, kind):
    network, update = make_network([2, 4, 1]), KINDS[kind]()
    with pytest.raises(CourseError) as caught:
        train(network, *moons, choose("numpy", dense_sgd_epoch="numpy"), epochs=1, update=update)
    assert "\n" not in str(caught.value)
    assert same((network, update), (make_network([2, 4, 1]), KINDS[kind]()))
    assert train(network, *moons, choose("numpy", dense_sgd_epoch="numpy"), epochs=1).kernel == "numpy"


def test_a_fused_epoch_is_for_dense_networks_only(moons):
    dense = make_network([2, 4, 1])
    nested = Network([LayerSequence(dense.layers)], input_shape=(2,))
    assert train(nested, *moons, choose("numpy"), epochs=1).kernel == "steps"
    assert train(dense, *moons, choose("numpy"), epochs=1).kernel == "numpy"
    np.testing.assert_allclose(nested.flat_parameters, dense.flat_parameters, rtol=1e-5, atol=1e-6)
    with pytest.raises(CourseError):
        train(nested, *moons, choose("numpy", dense_sgd_epoch="numpy"), epochs=1)


class Watched:
    """A backend that notes the operation and the types of each call: Numba compiles once for each of these."""

    def __init__(self, backend):
        self.backend, self.seen = backend, []
        for name in ("device", "kernels", "epochs", "notes", "yours", "asked", "unused", "to_device"):
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


@pytest.mark.parametrize("apart", [1, 2])  # columns of the samples and targets: beside each other, or every other one
@update_kinds
def test_nothing_is_called_for_the_first_time_while_the_clock_runs(monkeypatch, moons, kind, apart):
    watched, marks = Watched(STEPS["numba"]), []
    clock = SimpleNamespace(perf_counter=lambda: marks.append(len(watched.seen)) or 0.0)
    monkeypatch.setattr(training, "time", clock)
    X, Y = (np.repeat(array, apart, axis=1)[:, ::apart] for array in moons)
    network, update = make_network([2, 4, 1]), KINDS[kind]()
    train(network, X, Y, watched, epochs=2, update=update, validation=(X, Y))
    assert len(marks) == 4
    before, timed = set(watched.seen[: marks[0]]), watched.seen[marks[0] : marks[1]]
    assert len({name for name, *_ in timed}) >= 7
    assert set(timed) <= before
    assert same((network, update), two_epochs_step_by_step(kind, moons))


def test_nothing_of_a_network_for_images_is_called_for_the_first_time_either(monkeypatch, rng):
    """NumPy's kernels stand in for Numba's: what counts is the types that they are called with."""
    watched, marks = Watched(STEPS["numpy"]), []
    clock = SimpleNamespace(perf_counter=lambda: marks.append(len(watched.seen)) or 0.0)
    monkeypatch.setattr(training, "time", clock)
    X, Y = rng.random((20, 1, 6, 6), np.float32), rng.random((20, 2), np.float32)
    words = "image1x6x6,conv2x2,dropout0.2,conv3x2sames2,pool2s1,averagepool2,4,dropout0.5,2"
    train(make_network(words, "relu"), X, Y, watched, epochs=2, batch_size=8, update=Adam())
    before, timed = set(watched.seen[: marks[0]]), watched.seen[marks[0] : marks[1]]
    assert {"convolution_input_gradient", "maxpool_backward", "dropout"} <= {name for name, *_ in timed}
    assert set(timed) <= before


def two_epochs_step_by_step(kind: str, moons) -> tuple[Network, object]:
    """Two epochs by Numba without anything tried before."""
    network, update = make_network([2, 4, 1]), KINDS[kind]()
    for epoch in (1, 2):
        order = np.random.default_rng([0, epoch]).permutation(53)
        X, Y = (array[order] for array in moons)
        training.train_step_by_step(network, X, Y, 10, 0.1, STEPS["numba"], update)
    return network, update
