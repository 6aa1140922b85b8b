"""Recorded steps: on a GPU the same numbers as the plain loop, bit for bit; without one, with a stand-in for CUDA."""

import contextlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from trainings import same

from cuda_on_cpu.source import parameters
from nncourse.backend import choose
from nncourse.group import ALONE
from nncourse.kernels import kernel as kernels
from nncourse.model import recorded_steps, training
from nncourse.model.data_parallel import parts_of_epoch
from nncourse.model.image_layers import Dropout
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, make_network
from nncourse.model.optimizers import SGD, AdaGrad, Adam, RMSProp
from nncourse.model.recorded_steps import RecordedEpoch
from nncourse.model.training import train_step_by_step


class Recording:
    """A recording of launches on the emulator."""

    now: list | None = None

    def __init__(self, work):
        Recording.now = self.launches = []
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
    really = kernels.launch

    def launch(source, function, grid, block, arguments, *more, **options):
        def begin(arguments):
            really(source, function, grid, block, arguments, *more, **options)

        assert len(arguments) == len(parameters(source, function))
        begin(arguments) if Recording.now is None else Recording.now.append((begin, list(arguments)))

    event = SimpleNamespace(record=lambda: None, synchronize=lambda: None)
    stream = contextlib.nullcontext()
    stream.record, stream.wait_event, stream.synchronize = (lambda *events: event,) * 3
    streams = {"Stream": lambda **options: stream, "get_current_stream": lambda: stream}
    memory = {"MemoryPool": lambda: SimpleNamespace(malloc=None), "using_allocator": contextlib.nullcontext}
    events = {"Event": lambda **options: event}
    cupy = SimpleNamespace(cuda=SimpleNamespace(**streams, **memory, **events))
    cupy.empty, cupy.asarray, cupy.take = np.empty, np.asarray, np.take
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    for name, there in (("Recording", Recording), ("Launch", Launch)):
        monkeypatch.setattr(recorded_steps, name, there)
    monkeypatch.setattr(kernels, "launch", launch)
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


def own_step(network, X, Y, part, rate, backend, optimizer, position, group):
    training.own_step(network, X, Y, part, rate, backend, optimizer, position, group)


@pytest.mark.parametrize("name, kind", CASES)
def test_replayed_steps_are_the_plain_steps(cuda, name, kind):
    batch, n = 3, 17  # five full batches, so two recordings of two steps, and one with the last and a smaller batch
    trained = []
    for recorded in (False, True):
        network, optimizer = NETWORKS[name](), OPTIMIZERS[kind]()
        X, Y = problem(network, n)
        if recorded:
            before = network.flat_parameters.copy()
            parts = parts_of_epoch(n, batch, ALONE)
            epoch = RecordedEpoch(
                network, optimizer, cuda, X, Y, 0.1, 7, parts=parts, step=training.own_step, rate_changes=True
            )
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
