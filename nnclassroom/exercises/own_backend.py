"""choose(): a backend with the student's own kernels."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import WHOLE_STEP, find
from nnclassroom.judge.cases import cases
from nncourse import backend
from nncourse.kernels import jit
from nncourse.kernels.kernel import Kernel
from nncourse.kernels.operation import Operation


def choose(
    name: str, mine: bool = False, emulate: bool = False, compiled: bool = False, **overrides: str | Kernel
) -> backend.Backend:
    """A backend, as nncourse.choose makes it, with your own kernels where you want them.

    name: "loops", "numpy" or "numba" on the CPU, "cupy" or "cuda" on the GPU.
    mine: take, for each operation, the fastest of your own kept kernels for that device.
    emulate: run CUDA kernels on the CPU, thread by thread.
    compiled: let Numba compile your kernels `loops`, where it can.
    overrides: a kernel for an operation, or its name: choose("cuda", dense_forward="tiled").

    Raises CourseError for unknown names, for mixed devices, and for a GPU that is not there.

    >>> choose("numpy").sigmoid(np.array([0.0]))
    array([0.5])
    """
    return backend.choose(name, emulate, partial(kept, compiled=compiled) if mine else None, **overrides)


def kept(
    operations: Mapping[str, Operation], device: str, compiled: bool = False
) -> tuple[Mapping[str, Kernel], Mapping[str, str]]:
    """Your fastest kept kernel for each operation, algorithm_1 included, and why others are not used."""
    kernels, refused = kept_kernels.fastest(operations, device)
    if compiled:
        kernels = {name: by_numba(kernel) if kernel.name == "loops" else kernel for name, kernel in kernels.items()}
    # algorithm_1 calls the kernels of the backend, on any device.
    steps, others = kept_kernels.fastest({WHOLE_STEP: find(WHOLE_STEP)}, "cpu")
    return kernels | {name: replace(kernel, device=device) for name, kernel in steps.items()}, refused | others


def by_numba(kernel: Kernel) -> Kernel:
    """The kernel compiled by Numba; the kernel itself if Numba does not know all that it does."""
    _teach_padding()
    operation, function = kernel.operation, kernel.function
    assert isinstance(operation, Operation) and function
    fast = jit.jit(function)
    try:
        with np.errstate(all="ignore"):
            fast(*next(iter(cases(operation))).arguments)
    except Exception:  # Numba has many kinds of its own
        return kernel
    return replace(kernel, function=fast)


@lru_cache(maxsize=1)
def _teach_padding() -> None:
    """Tell Numba what np.pad(images, widths) does, with zeros around four axes: the tasks propose it."""
    from numba.core import types
    from numba.extending import overload

    @overload(np.pad)
    def pad(array: Any, pad_width: Any) -> Callable[..., np.ndarray] | None:
        if not isinstance(array, types.Array) or array.ndim != 4:
            return None

        def padded(array: Any, pad_width: Any) -> np.ndarray:
            (n0, n1, n2, n3), (w0, w1, w2, w3) = array.shape, pad_width
            shape = n0 + w0[0] + w0[1], n1 + w1[0] + w1[1], n2 + w2[0] + w2[1], n3 + w3[0] + w3[1]
            result = np.zeros(shape, array.dtype)
            result[w0[0] : w0[0] + n0, w1[0] : w1[0] + n1, w2[0] : w2[0] + n2, w3[0] : w3[0] + n3] = array
            return result

        return padded
