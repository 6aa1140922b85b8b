"""network_epoch of dense layers in C, for one core: products in register tiles, and the rest of a step around them.

network_tiles.c is compiled at first use, for the vectors of this processor. Without a C compiler the kernel is missing,
and train() uses a different plan.
"""

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fused_epochs import in_c
from fused_epochs.architecture import ChainArchitecture, Rule, State
from fused_epochs.dense import COSTS, codes
from fused_epochs.network import network_epoch
from nncourse.errors import DoesNotFitError
from nncourse.kernels.dense_epoch import CROSS_ENTROPIES

FILES = tuple(Path(__file__).with_name(name) for name in ("dense_functions.c", "network_tiles.c"))
HEAD = """
#include <math.h>
#include <stdlib.h>
#include <string.h>
typedef float real;
static inline float exponential(float x) /* 2^n exp(r), |r| <= ln 2 / 2, in SIMD: of a series, and of a float's bits */
{
    float n = floorf(x * 1.44269504f + 0.5f), r = x - n * 0.693147181f, series = 1;
    for (int k = 7; k > 0; k--)
        series = 1 + r / k * series;
    union { int bits; float power; } two = {((int)n + 127) << 23};
    return two.power * series;
}
#define exp exponential
#define tanh(z) (2 / (1 + exponential(-2 * limited(z))) - 1)
#define fabs fabsf
#define log1p log1pf
"""
OPTIONS = ("-O3", in_c.NATIVE, "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
KINDS = {"sgd": 0, "adam": 2, "rmsprop": 3, "adagrad": 4}  # their numbers in C; with momentum SGD is 1
NAMES = "momentum", "l2", "beta1", "beta2", "epsilon"


@functools.cache
def program() -> Callable[..., int]:
    """network_epoch() of the text. Raises CourseError if it cannot be compiled or loaded."""
    arrays = [in_c.CHANGED, in_c.ADDRESS, in_c.ADDRESS, in_c.INT, in_c.INTS, in_c.INTS, in_c.INTS]
    more = [in_c.INT, in_c.INT, in_c.DOUBLES, in_c.NUMBERS, in_c.NUMBERS, in_c.LONGS, in_c.LONG, in_c.LONG, in_c.LONG]
    return in_c.function("network_epoch", FILES, HEAD, OPTIONS, arrays + more)


@functools.cache
def why_not() -> str:
    return in_c.reason(program)


@functools.cache
def _multiply() -> Callable[..., int]:
    three = [in_c.ADDRESS, in_c.LONG, in_c.LONG] * 2 + [in_c.ADDRESS, in_c.LONG]
    return in_c.function("multiply", FILES, HEAD, OPTIONS, three + [in_c.LONG] * 3)


def prepared_product(A: np.ndarray, B: np.ndarray, C: np.ndarray) -> Callable[[], None]:
    """A function that computes C = A B in float32: rows of C, and rows or columns of B, are contiguous in memory."""
    function, size = _multiply(), A.itemsize
    from_a, from_b, from_c = ((array.ctypes.data, *(step // size for step in array.strides)) for array in (A, B, C))
    numbers = *from_a, *from_b, *from_c[:2], *C.shape, len(B)

    def product(arrays: tuple[np.ndarray, ...] = (A, B, C)) -> None:  # which keeps them alive
        if function(*numbers):
            raise MemoryError("a product by tiles: too little memory")

    return product


@network_epoch.kernel("tiles", device="cpu", missing=why_not, otherwise="gradient")  # the plan of that name
def tiles(
    parameters: np.ndarray, M: np.ndarray, V: np.ndarray, architecture: ChainArchitecture, rule: Rule, X: np.ndarray,
    Y: np.ndarray, batch: int, rate: float, steps: int, order: np.ndarray | None = None,
) -> State:  # fmt: skip
    """Any optimizer. `order`: the rows of X and Y to use, one after the other; by default all of them.

    DoesNotFitError if a layer is not dense.
    """
    dense = architecture.dense
    if dense is None:
        raise DoesNotFitError(f"tiles expected dense layers only, got {architecture}")
    activations = codes(dense.activations)
    slopes = activations[:-1] + (codes(["identity"]) if dense.cost in CROSS_ENTROPIES else activations[-1:])
    options = dict(rule.options) | {"rate": rate}
    options.setdefault("beta2", options.get("beta", 0.0))
    kind = KINDS[rule.kind] + (rule.kind == "sgd" and options["momentum"] != 0)
    means = (array.ctypes.data if name in rule.memory else None for name, array in (("M", M), ("V", V)))
    order = np.arange(len(X)) if order is None else order
    failed = program()(
        parameters,
        *means,
        len(activations),
        *(np.array(numbers, np.intc) for numbers in (dense.sizes, activations, slopes)),
        COSTS[dense.cost],
        kind,
        np.array([options.get(name, 0.0) for name in ("rate", *NAMES)]),
        *(np.ascontiguousarray(array, np.float32) for array in (X, Y)),
        np.ascontiguousarray(order, np.int_),
        len(order),
        min(batch, max(1, len(order))),
        steps,
    )  # fmt: skip
    if failed:
        raise MemoryError("network_epoch (tiles): too little memory")
    return parameters, M, V
