"""Compile .cu text to a GPU kernel with CuPy, and count the resources of one."""

import atexit
import functools
from typing import Any

from cuda_on_cpu.nvrtc import STANDARD, CudaCompileError, Resources, compile_check, readable_errors
from cuda_on_cpu.source import parameters, refuse_misspelt
from cuda_on_cpu.text import CudaSource
from nncourse import device


@functools.cache
def gpu_kernel(source: CudaSource, function: str, cooperative: bool = False) -> Any:
    """The kernel as a cupy.RawKernel, compiled immediately so that errors are raised here.

    Blocks of a `cooperative` kernel may wait for each other: it can be launched only if all fit on the GPU at once.
    Raises CudaCompileError if the text does not compile, CourseError if it has no such function.
    """
    import cupy

    refuse_misspelt(source)
    parameters(source, function)  # raises CourseError if there is no such function
    kernel = cupy.RawKernel(source.compilable(), function, **_options(cooperative))
    try:
        kernel.compile()
    except cupy.cuda.compiler.CompileException as error:
        raise CudaCompileError(readable_errors(error.get_message(), source.file)) from None
    return kernel


@functools.cache
def gpu_constant(source: CudaSource, name: str, gpu: int, cooperative: bool = False) -> Any:
    """The cupy.cuda.MemoryPointer to the __constant__ array that gpu_kernel's kernels of this text read on that GPU."""
    import cupy

    with cupy.cuda.Device(gpu):  # with the same options, CuPy returns the module of the kernels
        return cupy.RawModule(code=source.compilable(), **_options(cooperative)).get_global(name)


def _options(cooperative: bool) -> dict[str, Any]:
    return {"options": (f"--std={STANDARD}",), "backend": "nvrtc", "enable_cooperative_groups": cooperative}


# unloading the kernels after CuPy has been torn down prints errors
atexit.register(gpu_kernel.cache_clear)
atexit.register(gpu_constant.cache_clear)


def resources(source: CudaSource, function: str) -> Resources:
    """A kernel's resources on this machine's GPU or, without one, on an H100 or H200 (sm_90), by NVIDIA's compiler.

    source: the kernel's text, kernel.source.
    function: its name in the text, kernel.entry.

    Returns registers a thread, bytes of shared memory a block, and bytes a thread that do not fit into registers.
    Raises CourseError without the compiler, and for a text that it refuses.

    >>> tiled = find("dense_forward")["tiled"]
    >>> resources(tiled.source, tiled.entry).shared_bytes  # two tiles of 16 × 17 numbers, less a column
    2112
    """
    parameters(source, function)
    if not device.gpu_available():
        return compile_check(source)[function]
    kernel = gpu_kernel(source, function)
    return Resources(kernel.num_regs, kernel.shared_size_bytes, kernel.local_size_bytes)
