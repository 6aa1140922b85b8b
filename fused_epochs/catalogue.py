"""The operations of this package, and its kernels for an operation of nncourse; all are imported at first use."""

from collections.abc import Iterable
from importlib import import_module
from types import ModuleType

from nncourse.catalogue import defined_in
from nncourse.kernels import dense_epoch
from nncourse.kernels.operation import Operation

# Modules by kind of network, and for the sum over GPUs: first those for the backends numpy and numba, then the others.
KINDS = {
    "dense": (("dense_cpu",), ("dense_plain", "dense_one_kernel")),
    "convolutional": (
        ("convolutional", "convolutional_cpu", "gradient_loops"),
        ("convolutional_one_kernel",),
    ),
    "network": (
        ("gradient", "gradient_cpu", "gradient_loops", "network", "network_tiles"),
        ("dense_one_kernel", "streamed"),
    ),
    "peer": ((), ("all_reduce",)),
}


def topics(kinds: Iterable[str] = KINDS, gpu: bool = True) -> tuple[ModuleType, ...]:
    """The modules of these kinds. Without `gpu` only those for the backends numpy and numba, which import faster."""
    names = [name for kind in kinds for part in KINDS[kind][: 1 + gpu] for name in part]
    return tuple(import_module(f"fused_epochs.{name}") for name in dict.fromkeys(names))


def found(name: str, gpu: bool = True) -> Operation | None:
    """The operation of that name with its kernels; None if the modules do not define it."""
    return defined_in((dense_epoch, *topics([name.partition("_")[0]], gpu))).get(name)
