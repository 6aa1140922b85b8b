"""Matrix products with NVIDIA's library cuBLAS, in float32: kernels for the dense layers of large networks.

CuPy's products call the same library, but CuPy refuses them while steps are recorded. These kernels give the library
its memory, one array for each stream, so that its calls can be recorded.

Our arrays are stored row by row, those of cuBLAS column by column. So cuBLAS takes each array for its transpose, and
computes Cᵀ = op(B)ᵀ op(A)ᵀ instead of C = op(A) op(B). Its part cuBLASLt also adds the biases.
"""

import ctypes
import functools
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

from nncourse.device import Array
from nncourse.errors import CourseError
from nncourse.kernels.backpropagation import hidden_delta, weight_gradient
from nncourse.kernels.dense import dense_forward
from nncourse.kernels.kernel import Kernel
from nncourse.kernels.libraries import aligned
from nncourse.kernels.operation import Operation

WORKSPACE = 1 << 25  # bytes, as NVIDIA advises
# Of cublasLt.h and library_types.h: float32 for numbers and sums, and what a description of a product has.
R_32F, COMPUTE_32F = 0, 68
TURN_FIRST, TURN_SECOND, EPILOGUE, BIAS = 3, 4, 7, 8
ADDS_BIAS = 4


@functools.cache
def missing() -> str:
    """Why cuBLAS cannot be used on this machine with a GPU; "" if it can."""
    try:
        _library()
    except Exception as error:  # its type depends on what is missing
        return f"cuBLAS is missing: {error}"
    return ""


@functools.cache
def _library() -> ctypes.CDLL:
    import cupy

    _ = cupy.cuda.Device().cublas_handle  # CuPy finds and loads the library
    return ctypes.CDLL(f"libcublasLt.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}")


@functools.cache
def _handle(device: int) -> ctypes.c_void_p:
    """The library's state for the GPU in use, which is number `device`."""
    return _made(_library().cublasLtCreate)


@functools.cache
def _workspace(device: int, stream: int) -> Any:
    """Memory for the products on a stream. It is never freed, since a recording uses it whenever it is replayed."""
    import cupy

    return cupy.cuda.memory.alloc(WORKSPACE)


def _made(create: Callable[..., int], *options: Any) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _done(create(ctypes.byref(made), *options))
    return made


def _done(status: int) -> None:
    if status:
        raise CourseError(f"cuBLAS failed with status {status}")


def product(
    A: Array, B: Array, C: Array, turned: tuple[bool, bool] = (False, False), factor: float = 1, b: Array | None = None
) -> None:
    """C = factor · op(A) op(B) + b, where op transposes the matrices that are `turned`; b is added to each row."""
    import cupy

    library, handle, stream = _library(), _handle(A.data.device_id), cupy.cuda.get_current_stream().ptr
    matrices = aligned(B), aligned(A), aligned(C)
    layouts = [_layout(*each.shape) for each in matrices]
    described = _made(library.cublasLtMatmulDescCreate, COMPUTE_32F, R_32F)
    facts: dict[int, Any] = {TURN_FIRST: ctypes.c_int32(turned[1]), TURN_SECOND: ctypes.c_int32(turned[0])}
    if b is not None:
        b = aligned(b)
        facts |= {EPILOGUE: ctypes.c_int32(ADDS_BIAS), BIAS: ctypes.c_void_p(b.data.ptr)}
    for name, value in facts.items():
        about = ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value))
        _done(library.cublasLtMatmulDescSetAttribute(described, name, *about))
    first, second, result = (
        (ctypes.c_void_p(each.data.ptr), layout) for each, layout in zip(matrices, layouts, strict=True)
    )
    scale, before = (ctypes.byref(ctypes.c_float(number)) for number in (factor, 0))
    memory = ctypes.c_void_p(_workspace(A.data.device_id, stream).ptr), ctypes.c_size_t(WORKSPACE)
    given = scale, *first, *second, before, *result, *result
    _done(library.cublasLtMatmul(handle, described, *given, None, *memory, ctypes.c_void_p(stream)))
    for layout in layouts:
        library.cublasLtMatrixLayoutDestroy(layout)
    library.cublasLtMatmulDescDestroy(described)
    if matrices[2].data.ptr != C.data.ptr:
        C[...] = matrices[2]


def _layout(rows: int, columns: int) -> ctypes.c_void_p:
    """A matrix (rows, columns), row by row: for the library its transpose."""
    sizes = ctypes.c_uint64(columns), ctypes.c_uint64(rows), ctypes.c_int64(columns)
    return _made(_library().cublasLtMatrixLayoutCreate, R_32F, *sizes)


def _forward(A: Array, W: Array, b: Array) -> Array:
    import cupy

    Z = cupy.empty((len(A), len(W)), np.float32)
    product(A, W, Z, (False, True), b=b)
    return Z


def _hidden_delta(D: Array, W: Array, S: Array | None) -> Array:
    import cupy

    D_below = cupy.empty((len(D), W.shape[1]), np.float32)
    product(D, W, D_below)
    if S is not None:
        D_below *= S
    return D_below


def _weight_gradient(D: Array, A: Array, out: Array | None = None) -> Array:
    import cupy

    dW = cupy.empty((D.shape[1], A.shape[1]), np.float32) if out is None else out
    product(D, A, dW, (True, False), 1 / len(D))
    return dW


def _kernel(operation: Operation, function: Callable[..., Array], **options: Any) -> Kernel:
    return Kernel(operation, "cublas", "gpu", "kernels/libraries/cublas.py", function, missing=missing, **options)


KERNELS = MappingProxyType(
    {
        "dense_forward": _kernel(dense_forward, _forward),
        "hidden_delta": _kernel(hidden_delta, _hidden_delta, optional=("S",)),
        "weight_gradient": _kernel(weight_gradient, _weight_gradient, takes_out=True),
    }
)
