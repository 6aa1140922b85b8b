"""Operations on a whole network of dense layers: their kernels call other operations through an argument, `k`.

    algorithm_1 = NetworkOperation("algorithm_1", "W ← W − η dC/dW, …",
                                   contract="network (p,), layers () object, … -> network (p,)", reference=…)

    @algorithm_1.kernel("loops", device="cpu")
    def layer_by_layer(W, b, X, Y, rate, k): …     # W and b are lists, an array for each layer; k.dense_forward(…)

In the contract `network` is the vector of all parameters, and `layers`, a DenseArchitecture, says where W and b of each
layer lie in it. Called with the arguments of the contract, a kernel gets views into that vector and a `k` that computes
with NumPy. Called with lists, as in training, it gets these lists and the backend.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nnclassroom.judge.answer_process.results import said_of
from nnclassroom.judge.compare import place_of
from nnclassroom.judge.run import BROKEN_OFF, Returned, Runner, raised, runner
from nnclassroom.judge.verdict import Case, Fault
from nncourse.errors import CourseError
from nncourse.kernels import activations, backpropagation, cost, dense, update
from nncourse.kernels.contract import Argument
from nncourse.kernels.dense_epoch import DenseArchitecture
from nncourse.kernels.kernel import Kernel
from nncourse.kernels.operation import Operation

NAMES = ("W", "b", "X", "Y", "rate", "k")  # a kernel's arguments
FORWARD = (dense.dense_forward, activations.sigmoid)
BACK = (activations.sigmoid_derivative, cost.mse_gradient, backpropagation.output_delta, backpropagation.hidden_delta)
LAST = (backpropagation.weight_gradient, backpropagation.bias_gradient, update.sgd_update)
OPERATIONS = {operation.name: operation for operation in (*FORWARD, *BACK, *LAST)}  # what k has


class Asked:
    """The `k` of a check: it computes with NumPy, refuses arguments that do not fit, and records what was called.

    `updated` has the bytes of all parameters that came out of sgd_update. It computes in double precision, so that
    their last bits tell them from those of W -= rate * G.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.updated = b""

    def ask(self, name: str, *arguments: Any) -> Any:
        """Call an operation. CourseError if k does not have it, or if the arguments do not fit."""
        if name not in OPERATIONS:
            raise CourseError(f"k has no {name}; it has {', '.join(OPERATIONS)}")
        operation = OPERATIONS[name]
        try:
            operation.sizes(*arguments)
        except CourseError as error:
            raise CourseError(f"k.{error}") from None
        self.names.append(name)
        if name != "sgd_update":
            return operation["numpy"](*arguments)
        W, G, rate = arguments
        W[...] = operation.reference(W.astype(np.float64), G.astype(np.float64), rate)
        self.updated += W.tobytes()
        return W

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self.ask, name)


@dataclass(frozen=True, eq=False)
class NetworkKernel(Kernel):
    """A function of the lists W and b, of a batch, of the learning rate and of a backend."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if not arguments or isinstance(arguments[0], list | tuple):
            return super().__call__(*arguments, **options)
        network, layers, *others = arguments
        W, b = lists(layers, network)
        super().__call__(W, b, *others, Asked())
        return network


@dataclass(eq=False)
class NetworkOperation(Operation):
    """An operation whose kernels change W and b of all layers: see above. All else is as in Operation.

    `advice` gets, after the arguments, the vector of parameters that came out. What a kernel returns does not matter.
    """

    def made(self, name: str, device: str, where: str, function: Callable[..., Any] | None, **options: Any) -> Kernel:
        return NetworkKernel(self, name, device, where, function, **options)

    @property
    def python_devices(self) -> Mapping[str, str]:
        return dict.fromkeys(self.kernels, "cpu")

    def __str__(self) -> str:
        first, _, *kernels = super().__str__().splitlines()
        handed = f"  a kernel is called as {self.name}({', '.join(NAMES)}); W and b are lists, changed in place"
        return "\n".join([first, handed, f"  k has {', '.join(OPERATIONS)}", *kernels])

    __repr__ = __str__


@place_of.register
def _(operation: NetworkOperation, named: Argument, index: tuple[int, ...], arguments: tuple[Any, ...]) -> str:
    """An element of the vector as W[1][0, 2] or b[0][3]."""
    at = index[0]
    for layer, pair in enumerate(arguments[1].views(arguments[0])):
        for name, array in zip(NAMES, pair, strict=False):
            if at < array.size:
                return f"{name}[{layer}][{', '.join(map(str, np.unravel_index(at, array.shape)))}]"
            at -= array.size
    return f"{named.name}[{index[0]}]"


@runner.register
def _(operation: NetworkOperation, kernel: Kernel, device: str) -> Runner:
    """With lists of W and b, and a `k` that computes with NumPy."""
    return partial(run_here, operation, kernel)


def lists(layers: DenseArchitecture, network: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """W and b of each layer, as views into the vector of all parameters."""
    pairs = layers.views(network)
    return [W for W, _ in pairs], [b for _, b in pairs]


def listed(W: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays of both lists by their names: W[0], W[1], …, b[0], …"""
    return {
        f"{name}[{at}]": array for name, arrays in zip(NAMES, (W, b), strict=False) for at, array in enumerate(arrays)
    }


def run_here(operation: NetworkOperation, kernel: Kernel, case: Case, options: Mapping[str, Any]) -> Returned | Fault:
    """Call a kernel in this process: what it made of the network, or the fault that ended it."""
    network, layers, X, Y, rate = case.arguments
    W, b = lists(layers, network.copy())
    before, k, batch = listed(W, b), Asked(), (X.copy(), Y.copy())
    try:
        with np.errstate(all="ignore"):
            kernel(W, b, *batch, rate, k)
    except CourseError as error:
        return Fault("forbidden", {"said": str(error)})
    except (Exception, SystemExit) as error:  # a student's function may raise anything
        return raised(said_of(error), ())
    after = listed(W, b)
    replaced = [name for name, array in before.items() if after.get(name) is not array]
    changed = [name for name, was, is_now in zip("XY", (X, Y), batch, strict=True) if not np.array_equal(was, is_now)]
    return collected(case, before, replaced, changed, k)


def collected(
    case: Case, arrays: Mapping[str, np.ndarray], replaced: Sequence[str], changed: Sequence[str], k: Asked
) -> Returned | Fault:
    """What a kernel made of a network, as the result of the operation.

    `arrays` are W[0], b[0], … after the call, `replaced` the names of those whose place in the lists another array has
    taken, and `changed` the arguments that the kernel has changed although it must not.
    """
    network, layers = case.arguments[:2]
    if replaced:
        return Fault("not in place", {"name": replaced[0], "listed": True})
    after = np.empty_like(network)
    for name, array in listed(*lists(layers, after)).items():
        if name not in arrays or arrays[name].shape != array.shape:
            return BROKEN_OFF
        array[...] = arrays[name]
    moved = ["network"] if after.tobytes() != network.tobytes() else []
    about = {"what": "array", "dtype": after.dtype.str, "shape": list(after.shape), "writable": True, "same": "network"}
    arguments = (*case.arguments, after)
    by_itself = _by_itself(case, arrays, k)
    return Returned([about], None, [after], {"network": after}, [*moved, *changed], arguments, otherwise=by_itself)


def _by_itself(case: Case, arrays: Mapping[str, np.ndarray], k: Asked) -> Fault | None:
    """The fault if a kernel did something itself that it should have asked k for."""
    needed = set(OPERATIONS) - ({"hidden_delta"} if len(case.arguments[1].shapes) == 1 else set())
    missing = [f"k.{name}" for name in OPERATIONS if name in needed.difference(k.names)]
    for name, array in arrays.items() if not missing else ():
        if not all(row.tobytes() in k.updated for row in np.atleast_2d(array)):
            missing = [f"k.sgd_update for {name}"]  # at most for a copy of it
            break
    return Fault("not asked", {"missing": ", ".join(missing)}) if missing else None
