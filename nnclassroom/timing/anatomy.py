"""A training step taken apart: its calls, and the transfers if only some of its operations run on the GPU."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from nnclassroom.exercises.catalogue import find
from nncourse import device as devices
from nncourse.backend import Backend, Through, choose
from nncourse.device import Array
from nncourse.kernels.kernel import Kernel
from nncourse.model.network import Network, make_network, training_step

PRODUCTS = ("dense_forward", "hidden_delta", "weight_gradient")
RATE = 0.1


def calls_of_step(network: Network, X: Array, Y: Array, backend: Backend) -> list[tuple[str, tuple[Any, ...]]]:
    """The calls of one training step, in order: the operation's name, and copies of the arguments.

    The network is not changed.
    """
    calls: list[tuple[str, tuple[Any, ...]]] = []

    def call(kernel: Kernel, *arguments: Any) -> Any:
        calls.append((kernel.operation.name, tuple(a.copy() if hasattr(a, "copy") else a for a in arguments)))
        return kernel(*arguments)

    training_step(network.on(backend), backend.to_device(X), backend.to_device(Y), RATE, Through(backend, call))
    return calls


def seconds_of_step(network: Network, X: Array, Y: Array, backend: "Backend | Mixed") -> float:
    """Time of a whole step, in seconds: all its calls and the Python code between them."""
    calls: Any = backend  # a Mixed one has every operation too
    there, X, Y = network.on(calls), calls.to_device(X), calls.to_device(Y)
    return devices.seconds(lambda: training_step(there, X, Y, RATE, calls), calls.device)


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

    def __getattr__(self, name: str) -> Any:
        if name not in self.moved:
            return getattr(self.cpu, name)
        backend = self.gpu or self.cpu

        def call(*arguments: Any) -> Any:
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


def traffic(sizes: tuple[int, ...], X: Array, Y: Array, moved: Collection[str]) -> Mixed:
    """Count the launches and transfers of one step if the operations `moved` run on the GPU, all others on the CPU."""
    counted = Mixed(moved)
    backend: Any = counted  # it has every operation
    training_step(make_network(sizes), X, Y, RATE, backend)
    return counted
