"""dense_sgd_epoch as the handout's baseline: a plain C program of one thread, dense_plain.c, compiled at first use.

    c, c_float              gcc -O3, in double like the handout's program, and in float
    c_fast, c_float_fast    the same with -march=native -ffast-math: SIMD, sums in a different order

All four are for comparisons. train() uses one of them only if asked to: train(…, plan="c").
"""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fused_epochs import in_c
from fused_epochs.dense import COSTS, codes
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch

FILES = tuple(Path(__file__).with_name(name) for name in ("dense_functions.c", "dense_plain.c"))
HEAD = "#include <stdlib.h>\n#include <tgmath.h> /* exp() of a float is a float */\ntypedef {} real;"
PLAIN, FAST = ("-O3",), ("-O3", in_c.NATIVE, "-ffast-math")
FORMS = {
    "c": ("double", PLAIN),
    "c_float": ("float", PLAIN),
    "c_fast": ("double", FAST),
    "c_float_fast": ("float", FAST),
}


@functools.cache
def program(name: str) -> Callable[..., int]:
    """dense_epoch() of the text in one of FORMS. Raises CourseError if it cannot be compiled or loaded."""
    real, options = FORMS[name]
    arrays = [in_c.CHANGED, in_c.INT, in_c.INTS, in_c.INTS, in_c.INT, in_c.NUMBERS, in_c.NUMBERS]
    more = [in_c.LONG, in_c.LONG, in_c.DOUBLE]
    return in_c.function("dense_epoch", FILES, HEAD.format(real), options, arrays + more)


@functools.cache
def why_not(name: str) -> str:
    return in_c.reason(lambda: program(name))


def _register(name: str) -> None:
    @dense_sgd_epoch.kernel(name, device="cpu", missing=lambda: why_not(name))
    def in_plain_c(
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
