"""The kernels of dense_forward for the tensor cores of Hopper GPUs; their CUDA C is in dense_wgmma.cu.

They use instructions that only these GPUs have; neither the emulator nor CuPy's compiler options know them. So they are
compiled here, and can be run and checked only on such a GPU.
"""

import ctypes
import functools
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nncourse import device
from nncourse.device import Array
from nncourse.errors import CourseError
from nncourse.kernels.dense import ON_TILES, dense_forward
from nncourse.kernels.libraries import aligned
from nncourse.kernels.operation import cuda_beside

SOURCE = cuda_beside(__file__, before=(ON_TILES, cuda_beside(__file__, name="wgmma")))
STEP, ROWS = 32, 128  # numbers of k in a tile, and its rows of A
MAP = np.dtype([("bytes", "u1", (128,))])
# From cuda.h: a matrix of float32, tiles in the order "swizzle 128", fetched into the L2 cache 128 bytes at a time.
FLOAT32, ROW_BY_ROW, SWIZZLE_128, L2_128, ZEROS = 7, 0, 3, 2, 0


class Launch(NamedTuple):
    """How to launch a kernel: threads per block, columns of its tile, tiles in shared memory, and two choices."""

    threads: int
    columns: int
    stages: int
    maps: bool  # does the copy engine load the tiles?
    fixed: bool  # one block for each multiprocessor, or one for each tile?


LAUNCHES: Mapping[str, Launch] = MappingProxyType(
    {
        "wgmma": Launch(256, 128, 1, maps=False, fixed=False),
        "wgmma_buffered": Launch(256, 128, 2, maps=False, fixed=False),
        "tma": Launch(256, 128, 2, maps=True, fixed=False),
        "tma_pipelined": Launch(288, 256, 4, maps=True, fixed=True),
    }
)


def missing() -> str:
    """Why these kernels cannot run on the GPU in use; "" if they can, or there is no GPU."""
    if not device.gpu_available() or (capability := device.capability()) == (9, 0):
        return ""
    return f"wgmma is an instruction of sm_90 (Hopper: H100, H200), this GPU is sm_{capability[0]}{capability[1]}"


def _launched(name: str, A: Array, W: Array, b: Array, out: Array | None = None) -> Array:
    import cupy

    (batch, n_in), n_out = A.shape, len(W)
    Z = cupy.empty((batch, n_out), np.float32) if out is None else out
    if not A.size or not W.size:
        Z[...] = b
        return Z
    how, kernel = LAUNCHES[name], _kernel(name, cupy.cuda.runtime.getDevice())
    first: tuple[Any, ...] = (A, W)
    if how.maps:
        A, W = (_by_fours(matrix) for matrix in (A, W))  # which must live until the launch
        first = _map(A.data.ptr, *A.shape, ROWS), _map(W.data.ptr, *W.shape, how.columns)
        n_in = A.shape[1]
    tiles = ceil(n_out / how.columns), ceil(batch / ROWS)
    grid = (min(tiles[0] * tiles[1], device.multiprocessors()),) if how.fixed else tiles
    sizes = (np.int32(size) for size in (batch, n_in, n_out))
    kernel(grid, (how.threads,), (*first, b, Z, *sizes), shared_mem=_bytes(how))
    return Z


def _bytes(how: Launch) -> int:
    """Of shared memory: tiles of A and W for each stage, and room to begin at a multiple of 1,024."""
    return how.stages * (ROWS + how.columns) * STEP * 4 + 1024


@functools.cache
def _kernel(name: str, gpu: int) -> Any:
    """The compiled kernel for the GPU in use, which is number `gpu`."""
    import tempfile  # at the first call: choosing a backend loads this module too

    import cupy

    from cuda_on_cpu.nvrtc import machine_code

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernels.cubin"
        path.write_bytes(machine_code(SOURCE, "sm_90a"))
        kernel = cupy.RawModule(path=str(path)).get_function(f"dense_forward_{name}")
        kernel.max_dynamic_shared_size_bytes = _bytes(LAUNCHES[name])  # loads it
    return kernel


def _by_fours(matrix: Array) -> Array:
    """The matrix, or a copy, in the form that the copy engine needs: each row begins at a multiple of 16 bytes."""
    import cupy

    if (more := -matrix.shape[1] % 4) == 0:
        return aligned(matrix)
    wider = cupy.zeros((len(matrix), matrix.shape[1] + more), np.float32)
    wider[:, :-more] = matrix
    return wider


@functools.lru_cache(maxsize=256)
def _map(address: int, rows: int, columns: int, tile_rows: int) -> np.ndarray:
    """A matrix as the copy engine sees it, in tiles of STEP numbers of each of tile_rows rows."""
    memory = (ctypes.c_char * 192)()
    start = (ctypes.addressof(memory) + 63) // 64 * 64
    axes = (
        (ctypes.c_uint64 * 2)(columns, rows),
        (ctypes.c_uint64 * 1)(4 * columns),
        (ctypes.c_uint32 * 2)(STEP, tile_rows),
        (ctypes.c_uint32 * 2)(1, 1),
    )
    encode = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    how = ROW_BY_ROW, SWIZZLE_128, L2_128, ZEROS
    if status := encode(ctypes.c_void_p(start), FLOAT32, 2, ctypes.c_void_p(address), *axes, *how):
        raise CourseError(f"CUDA cannot describe a matrix ({rows}, {columns}) to the copy engine: error {status}")
    made = np.zeros((), MAP)
    made["bytes"] = np.frombuffer(ctypes.string_at(start, 128), np.uint8)
    return made


for _name in LAUNCHES:
    _options: dict[str, Any] = {"mantissa": 10, "takes_out": True, "missing": missing}
    dense_forward.kernel(_name, device="gpu", written=_launched, **_options)(functools.partial(_launched, _name))
