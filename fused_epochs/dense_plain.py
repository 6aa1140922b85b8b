"""dense_sgd_epoch as the handout's baseline: a plain C program of one thread, dense_plain.c, compiled at first use.

    c, c_float              gcc -O3, in double like the handout's program, and in float
    c_fast, c_float_fast    the same text with -march=native -ffast-math: SIMD, sums in another order

All four are for comparisons. One trains only when asked for: train(…, plan="c").
"""

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cuda_on_cpu.host_compiler import shared_library
from fused_epochs.dense import COSTS, codes
from nncourse.errors import CourseError
from nncourse.kernels.activations import ALPHA
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch

TEXT = Path(__file__).with_name("dense_plain.c")
PLAIN, FAST = ("-O3",), ("-O3", "-march=native", "-ffast-math")
FORMS = {
    "c": ("double", PLAIN),
    "c_float": ("float", PLAIN),
    "c_fast": ("double", FAST),
    "c_float_fast": ("float", FAST),
}


@functools.cache
def program(name: str) -> Callable[..., int]:
    """dense_epoch() of the text in one of FORMS. Raises CourseError if it cannot be compiled or loaded."""
    real, flags = FORMS[name]
    options = [*flags, f"-Dreal={real}", f"-DALPHA={ALPHA}"]
    library = shared_library(TEXT.read_text(encoding="utf-8"), options, for_this_processor=flags == FAST)
    try:
        function = ctypes.CDLL(str(library)).dense_epoch
    except OSError as error:
        raise CourseError(f"{library}: cannot be loaded: {error}; set XDG_CACHE_HOME to another folder") from None
    numbers, ints = (np.ctypeslib.ndpointer(dtype, flags="C") for dtype in (np.float32, np.intc))
    changed = np.ctypeslib.ndpointer(np.float32, flags=("C", "W"))
    code, count = ctypes.c_int, ctypes.c_long
    function.argtypes = [changed, code, ints, ints, code, numbers, numbers, count, count, ctypes.c_double]
    return function


@functools.cache
def why_not(name: str) -> str:
    """Why a form cannot be used on this machine, in one line; "" if it can."""
    try:
        program(name)
    except CourseError as error:
        return str(error)
    return ""


def _register(name: str) -> None:
    @dense_sgd_epoch.kernel(name, device="cpu", missing=lambda: why_not(name))
    def in_c(
        parameters: np.ndarray, architecture: DenseArchitecture, X: np.ndarray, Y: np.ndarray, batch: int, rate: float
    ) -> np.ndarray:
        sizes = np.array(architecture.sizes, np.intc)
        activations = np.array(codes(architecture.activations), np.intc)
        rows = [np.ascontiguousarray(array, np.float32) for array in (X, Y)]
        cost = COSTS[architecture.cost]
        if program(name)(parameters, len(sizes), sizes, activations, cost, *rows, len(X), batch, rate):
            raise MemoryError(f"dense_sgd_epoch ({name}): too little memory")
        return parameters


for form in FORMS:
    _register(form)
