"""Recorded steps: on a GPU the same numbers as the plain loop, bit for bit; without one, with a stand-in for CUDA."""

import contextlib
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from trainings import same, stop_after

from benchmarks.recorded import naive_backend
from cuda_on_cpu.source import parameters
from nnclassroom.exercises.nb06 import algorithm_1
from nncourse.backend import choose
from nncourse.cuda import launch as launches
from nncourse.group import Alone
from nncourse.model import recorded_steps
from nncourse.model.data_parallel import Part, Together, data_parallel_epoch, parts_of_epoch
from nncourse.model.image_layers import Dropout
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, make_network, training_step
from nncourse.model.optimizers import SGD, AdaGrad, Adam, RMSProp, step_decay
from nncourse.model.plans import train_step_by_step
from nncourse.model.recorded_steps import RecordedEpoch
from nncourse.model.task import Task
from nncourse.model.training import History, train


class Stream:
    """A stream. What is recorded on one within another happens as late as it may: when the other waits for it."""

    entered: list = []  # the innermost last

    def __init__(self, **options):
        self.launches, self.waited = [], -1

    def __enter__(self):
        Stream.entered.append(self)

    def __exit__(self, *error):
        Stream.entered.pop()

    def record(self):
        return SimpleNamespace(launches=self.launches, now=len(Recording.now or ()))

    def wait_event(self, event):
        self.waited = event.now
        if event.launches:
            Recording.now += event.launches
            event.launches.clear()

    def synchronize(self):
        pass


class Recording:
    """A recording of launches on the emulator."""

    now: list | None = None
    in_branches = 0

    def __init__(self, work):
        Recording.now, Recording.in_branches = [], 0
        self.launches = Recording.now
        try:
            work()
        finally:
            Recording.now = None

    def change(self, launch, numbers):
        for place, number in numbers.items():
            launch.arguments[place] = launch.dtypes[place].type(number)

    def replay(self):
        for begin, arguments in self.launches:
            begin(arguments)


class Launch:
    def __init__(self, dtypes):
        _, self.arguments = Recording.now[-1]
        self.dtypes = dtypes


@pytest.fixture
def cuda(cuda_somewhere, monkeypatch):
    """Kernels on the emulator; streams and recordings are stand-ins."""
    really = launches.launch

    def launch(source, function, grid, block, arguments, *more, **options):
        def begin(arguments):
            really(source, function, grid, block, arguments, *more, **options)

        assert len(arguments) == len(parameters(source, function))
        if Recording.now is None:
            begin(arguments)
        elif len(Stream.entered) > 1:
            assert Stream.entered[-1].waited == len(Recording.now)  # for all that it may read
            Recording.in_branches += 1
            Stream.entered[-1].launches.append((begin, list(arguments)))
        else:
            Recording.now.append((begin, list(arguments)))

    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    streams = {"Stream": Stream, "get_current_stream": lambda: Stream.entered[-1] if Stream.entered else Stream()}
    memory = {"MemoryPool": lambda: SimpleNamespace(malloc=None), "using_allocator": contextlib.nullcontext}
    events = {"Event": lambda **options: event}
    cupy = SimpleNamespace(cuda=SimpleNamespace(**streams, **memory, **events))
    cupy.empty, cupy.asarray, cupy.take = np.empty, np.asarray, np.take
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for name, there in (("Recording", Recording), ("Launch", Launch)):
        monkeypatch.setattr(recorded_steps, name, there)
    monkeypatch.setattr(launches, "launch", launch)
    monkeypatch.setattr(recorded_steps, "MOST_STEPS", 2)
    return choose("cuda", emulate=True)


def dropping() -> Network:
    first, last = make_network([3, 6, 2], "tanh").layers
    return Network([first, Dropout(0.4), last])


NETWORKS = {
    "dense": lambda: make_network([3, 5, 2]),
    "softmax": lambda: make_network([3, 4, 4, 2], "relu", "categorical_cross_entropy"),
    "dropout": dropping,
    "images": lambda: make_network("image1x3x1,conv2x1,2", "relu"),
}
OPTIMIZERS = {
    "sgd": SGD,
    "momentum": lambda: SGD(momentum=0.9),
    "adam": lambda: Adam(l2=0.01),
    "general adam": lambda: Adam(beta1=0.8),
    "rmsprop": RMSProp,
    "adagrad": AdaGrad,
}
CASES = [("dense", name) for name in OPTIMIZERS] + [(name, "adam") for name in NETWORKS if name != "dense"]


def problem(network: Network, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    Y = np.eye(network.sizes[-1], dtype=np.float32)[rng.integers(0, network.sizes[-1], n)]
    return rng.standard_normal((n, *network.input_shape), dtype=np.float32), Y


@pytest.mark.parametrize("name, kind", CASES)
def test_replayed_steps_are_the_plain_steps(cuda, name, kind):
    batch, n = 3, 17  # five full batches, so two recordings of two steps, and one with the last and a smaller batch
    trained = []
    for recorded in (False, True):
        network, optimizer = NETWORKS[name](), OPTIMIZERS[kind]()
        X, Y = problem(network, n)
        if recorded:
            before = network.flat_parameters.copy()
            parts = parts_of_epoch(n, batch)
            epoch = RecordedEpoch(Task(network, optimizer, cuda, X, Y, batch, 0.1, True, 7), parts)
            assert optimizer.steps == 0 and np.array_equal(before, network.flat_parameters)
            assert len(epoch.recorded) == 2
        for number in (1, 2, 3):
            order = np.random.default_rng(number).permutation(n)
            rate, position = 0.1 / number, StepPosition(7, number)
            if recorded:
                epoch(order, rate, position)
            else:
                train_step_by_step(network, X[order], Y[order], batch, rate, cuda, optimizer, position)
        trained.append((network, optimizer))
    assert same(*trained)


def test_steps_on_the_same_rows_are_recorded(cuda):
    """As step_profile() does."""
    (X, Y), trained = problem(NETWORKS["dense"](), 4), []
    for recorded in (False, True):
        network, optimizer = NETWORKS["dense"](), Adam()
        parts = [Part(slice(0, 4))] * 3
        if recorded:
            RecordedEpoch(Task(network, optimizer, cuda, X, Y, 4, 0.1), parts)(np.arange(4), 0.1, StepPosition())
        for _ in () if recorded else parts:
            training_step(network, X, Y, 0.1, cuda, optimizer)
        trained.append((network, optimizer))
    assert same(*trained)


def recorded_and_plain(make, backend, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The parameters after steps of 3 rows that are replayed, and after the same steps of the plain loop."""
    recorded, plain, n, rate = make(), make(), 3 * steps, 0.5
    (X, Y), parts = problem(plain, n), parts_of_epoch(n, 3)
    RecordedEpoch(Task(recorded, SGD(), backend, X, Y, 3, rate, seed=7), parts)(np.arange(n), rate, StepPosition(7))
    train_step_by_step(plain, X, Y, 3, rate, backend, SGD(), StepPosition(7))
    return recorded.flat_parameters, plain.flat_parameters


@pytest.mark.parametrize("most, in_branches", [(0, 0), (20, 3), (30, 4), (1 << 20, 6)])
def test_gradients_of_few_numbers_are_in_branches(cuda, monkeypatch, most, in_branches):
    monkeypatch.setattr(recorded_steps, "MOST_BESIDE", most)
    recorded, plain = recorded_and_plain(NETWORKS["softmax"], cuda, steps=2)
    assert Recording.in_branches == 2 * in_branches and np.array_equal(recorded, plain)


def biases_first(W, b, X, Y, rate, k):
    """A right algorithm_1 that makes its calls in another order than backpropagation()."""
    Z, A = [], [X]
    for weights, biases in zip(W, b, strict=True):
        Z.append(k.dense_forward(A[-1], weights, biases))
        A.append(k.sigmoid(Z[-1]))
    D = k.output_delta(k.mse_gradient(A[-1], Y), k.sigmoid_derivative(Z[-1]))
    for layer in reversed(range(len(W))):
        db, dW = k.bias_gradient(D), k.weight_gradient(D, A[layer])
        if layer:
            D = k.hidden_delta(D, W[layer], k.sigmoid_derivative(Z[layer - 1]))
        k.sgd_update(W[layer], dW, rate)
        k.sgd_update(b[layer], db, rate)


@pytest.mark.parametrize("sizes", [(3, 2), (3, 4, 4, 2), (3, 4, 4, 4, 2)])
@pytest.mark.parametrize("function", [biases_first, algorithm_1["loops"].function])
def test_an_algorithm_1_of_ones_own_is_recorded_as_it_is(cuda, function, sizes):
    kernel = replace(algorithm_1["loops"], function=function)
    backend = replace(cuda, kernels={**cuda.kernels, "algorithm_1": kernel})
    assert np.array_equal(*recorded_and_plain(lambda: make_network(sizes), backend, steps=4))


# ---- on a GPU, by train()

BY_STEPS = {"dense_forward": "naive"}  # a chosen kernel: no fused epochs
DENSE, HALVED = "30,60,10,2", step_decay(0.01, 1, 0.5)
ON_GPU = [(DENSE, kind, BY_STEPS, HALVED) for kind in OPTIMIZERS]
ON_GPU += [(DENSE, "adam", "naive", 0.1), (DENSE, "sgd", BY_STEPS | {"sgd_update": "cupy"}, 0.1)]
ON_GPU += [("dropout", "adam", BY_STEPS, 0.1)]
ON_GPU += [("image1x8x8,conv4x3same,batchnorm,pool2,conv2x3,pool2,8,2", "momentum", BY_STEPS, 0.1)]


def trained(words: str, kind: str, kernels, **options) -> tuple:
    """Network, optimizer and history of a training. The epochs have a smaller last batch."""
    network = dropping() if words == "dropout" else make_network(words, "relu", "categorical_cross_entropy", seed=1)
    optimizer, (X, Y) = OPTIMIZERS[kind](), problem(network, 1001)
    backend = naive_backend() if kernels == "naive" else choose("cuda", **kernels)
    options = {"epochs": 3, "batch_size": 32, "seed": 5} | options
    return network, optimizer, train(network, X, Y, backend, optimizer=optimizer, **options)


@pytest.mark.parametrize("words, kind, kernels, rate", ON_GPU)
def test_recorded_training_is_the_plain_one(gpu, words, kind, kernels, rate):
    plain = trained(words, kind, kernels, learning_rate=rate, plan="operations")
    recorded = trained(words, kind, kernels, learning_rate=rate)
    assert (plain[-1].plan, recorded[-1].plan) == ("operations", "recorded") and not recorded[-1].note
    assert same(plain, recorded) and np.array_equal(plain[0].flat_statistics, recorded[0].flat_statistics)


@pytest.mark.parametrize(
    "kernels, kind, rate, why",
    [
        ({"dense_forward": "cupy"}, "sgd", 0.1, "dense_forward (cupy) cannot be recorded"),
        (BY_STEPS | {"hidden_delta": "cupy"}, "sgd", 0.1, "hidden_delta (cupy) cannot be recorded"),  # within branches
        (BY_STEPS | {"adam_update": "cupy"}, "adam", 0.1, "adam_update (cupy) gets a different c1 in each step"),
        (BY_STEPS | {"sgd_update": "cupy"}, "sgd", HALVED, "sgd_update (cupy) gets a different rate"),
    ],
)
def test_what_cannot_be_recorded_is_said_and_trained(gpu, kernels, kind, rate, why):
    plain, ours = (trained(DENSE, kind, kernels, learning_rate=rate, plan=plan) for plan in ("operations", None))
    assert ours[-1].plan == "operations" and why in ours[-1].note and not plain[-1].note and same(plain, ours)


def test_a_recorded_training_goes_on_as_if_it_had_never_stopped(gpu):
    import cupy

    whole = trained(DENSE, "adam", BY_STEPS)
    network, optimizer = make_network(DENSE, "relu", "categorical_cross_entropy", seed=1), OPTIMIZERS["adam"]()
    X, Y = problem(network, 1001)
    for done, epochs in ((0, 1), (1, 2)):
        options = {"epochs": epochs, "after": History(before=done), "batch_size": 32, "seed": 5, "optimizer": optimizer}
        with cupy.cuda.Stream(non_blocking=True):  # another stream than the default
            train(network, X, Y, choose("cuda", **BY_STEPS), **options)
    assert same(whole, (network, optimizer))


def test_an_interrupted_recording_keeps_the_best_parameters(gpu):
    network, *_, history = trained(DENSE, "adam", BY_STEPS, epochs=100, on_epoch=stop_after(2))
    assert history.interrupted and len(history.epochs) == 2 and np.isfinite(network.flat_parameters).all()


@pytest.mark.parametrize("words", [DENSE, "image1x8x8,conv4x3same,batchnorm,pool2,8,2"])
def test_exchanges_by_nccl_are_recorded(gpu, words):
    import cupy

    from nncourse.parallel.nccl import nccl

    library, backend = nccl(), choose("cuda", **BY_STEPS)
    members = library.NcclCommunicator(1, library.get_unique_id(), 0)

    class One(Alone):
        def all_reduce(self, vector):
            where, stream = vector.data.ptr, cupy.cuda.get_current_stream().ptr
            members.allReduce(where, where, vector.size, library.NCCL_FLOAT32, library.NCCL_SUM, stream)

    group, found = One("gpu"), []
    together = Together(group, synchronise=True)
    for recorded in (False, True):
        network = make_network(words, "relu", "categorical_cross_entropy", seed=1).on(backend)
        optimizer, (X, Y) = Adam(), map(backend.to_device, problem(network, 101))
        group.all_reduce(network.flat_gradient)
        parts = parts_of_epoch(101, 32, together)
        task = Task(network, optimizer, backend, X, Y, 32, 0.01, seed=5, together=together)
        epoch = RecordedEpoch(task, parts) if recorded else None
        for number in (1, 2):
            order, position = cupy.asarray(np.random.default_rng(number).permutation(101)), StepPosition(5, number)
            if epoch:
                epoch(order, 0.01, position)
            else:
                data_parallel_epoch(network, X, Y, order, 32, 0.01, backend, optimizer, position, together)
        found.append((network, optimizer))
    assert same(*found)
