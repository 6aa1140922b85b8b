"""The parts of a training step: its operations, their arguments and times, and the transfers if only some of the
operations run on the GPU."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace

from nnclassroom.exercises.catalogue import find
from nncourse import device as devices
from nncourse.backend import Backend, choose
from nncourse.model.network import Network, make_network, training_step

PRODUCTS = ("dense_forward", "hidden_delta", "weight_gradient")
RATE = 0.1


@dataclass(frozen=True)
class Part:
    """All calls of one operation in a step: their number, and their total seconds, FLOPs and minimal bytes moved."""

    operation: str
    calls: int
    seconds: float
    flops: int
    bytes: int


class Recorder:
    """Wraps a backend and records each call as (operation name, copied arguments) in `calls`."""

    def __init__(self, backend: Backend):
        self.backend, self.device, self.kernels, self.calls = backend, backend.device, backend.kernels, []

    def __getattr__(self, name: str):
        def call(*arguments):
            self.calls.append((name, tuple(a.copy() if hasattr(a, "copy") else a for a in arguments)))
            return getattr(self.backend, name)(*arguments)

        return call


def calls_of_step(network: Network, X, Y, backend: Backend) -> list[tuple[str, tuple]]:
    """The calls of one training step, in order. The network is not changed."""
    recorder = Recorder(backend)
    training_step(network.on(backend), backend.to_device(X), backend.to_device(Y), RATE, recorder)
    return recorder.calls


def parts_of_step(network: Network, X, Y, backend: Backend) -> list[Part]:
    """The operations of one training step, slowest first. Each call is timed separately."""
    found: dict[str, Part] = {}
    for name, arguments in calls_of_step(network, X, Y, backend):
        function = getattr(backend, name)
        seconds = devices.seconds(lambda f=function, a=arguments: f(*a), backend.device, enough=0.03)
        flops, size = find(name).count(*arguments)
        part = found.get(name, Part(name, 0, 0.0, 0, 0))
        more = {"calls": part.calls + 1, "seconds": part.seconds + seconds}
        found[name] = replace(part, flops=part.flops + flops, bytes=part.bytes + size, **more)
    return sorted(found.values(), key=lambda part: -part.seconds)


def seconds_of_step(network: Network, X, Y, backend: Backend) -> float:
    """Time of a whole step, in seconds: all its calls and the Python code between them."""
    there, X, Y = network.on(backend), backend.to_device(X), backend.to_device(Y)
    return devices.seconds(lambda: training_step(there, X, Y, RATE, backend), backend.device)


def seconds_of_products(parts: Collection[Part]) -> float:
    """Seconds of the matrix products, whose work grows with the square of a layer's width."""
    return sum(part.seconds for part in parts if part.operation in PRODUCTS)


@dataclass
class Mixed:
    """The backend `cpu`, except that the operations `moved` run on `gpu`; each call transfers its arrays and result.

    Without a `gpu` they run on the CPU too, and the transfers are only counted. `sent` and `fetched` list the bytes of
    each transfer so far.
    """

    moved: Collection[str]
    cpu: Backend = field(default_factory=lambda: choose("numpy"))
    gpu: Backend | None = None
    launches: int = 0
    sent: list[int] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)

    def __getattr__(self, name: str):
        if name not in self.moved:
            return getattr(self.cpu, name)
        backend = self.gpu or self.cpu

        def call(*arguments):
            there = [backend.to_device(a) if hasattr(a, "nbytes") else a for a in arguments]
            self.sent += [a.nbytes for a in arguments if hasattr(a, "nbytes")]
            self.launches += 1
            returned = getattr(backend, name)(*there)
            operation = find(name)
            results = returned if len(operation.results) > 1 else (returned,)
            fetched = [devices.to_device(array, "cpu") for array in results]
            self.fetched += [array.nbytes for array in fetched]
            own = dict(zip(operation.names, arguments, strict=True))
            for number, named in enumerate(operation.results):
                if named.name in own:
                    own[named.name][...] = fetched[number]
                    fetched[number] = own[named.name]
            return tuple(fetched) if len(fetched) > 1 else fetched[0]

        return call


def traffic(sizes: tuple[int, ...], X, Y, moved: Collection[str]) -> Mixed:
    """Count the launches and transfers of one step if the operations `moved` run on the GPU, all others on the CPU."""
    counted = Mixed(moved)
    training_step(make_network(sizes), X, Y, RATE, counted)
    return counted
