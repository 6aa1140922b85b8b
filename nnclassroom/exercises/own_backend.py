"""choose(): a backend with the student's own kernels."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

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
    fast = jit.jit(kernel.function)
    try:
        with np.errstate(all="ignore"):
            fast(*next(iter(cases(kernel.operation))).arguments)
    except Exception:  # Numba has many kinds of its own
        return kernel
    return replace(kernel, function=fast)
