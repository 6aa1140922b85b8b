"""Launch a CUDA kernel: on the GPU for CuPy arrays, on the CPU emulator for NumPy arrays. All launches go through here.

A launch passes raw addresses and bytes, so the arguments are first checked against the kernel's declaration; a mismatch
raises a one-line CourseError.
"""

import functools
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cuda_on_cpu.source import DTYPES, CudaSource, Parameter, constant_arrays, parameters
from nncourse.cuda.compile import gpu_constant, gpu_kernel
from nncourse.device import on_gpu
from nncourse.errors import CourseError

MOST_THREADS = 1024
BLOCK_LIMITS = (1024, 1024, 64)
GRID_LIMITS = (2**31 - 1, 65535, 65535)
DEFAULT_SHARED = 48 * 1024  # bytes of dynamic shared memory that a kernel may use without setting an attribute
MOST_SHARED = 227 * 1024


def launch(
    source: CudaSource,
    function: str,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence,
    shared_bytes: int = 0,
    cooperative: bool = False,
    constants: Mapping[str, str] | None = None,
    **emulator_options,
) -> None:
    """Launch the kernel `function` of a .cu text on `grid` blocks of `block` threads each.

    `arguments` are in the order in which the kernel declares them. `shared_bytes` is the size of dynamic shared memory.
    Blocks of a `cooperative` launch may wait for each other. `constants` fills __constant__ arrays of the text from
    arguments before the launch: {"filters": "W"} copies W, or as much of it as there is room for, to `filters`.
    `emulator_options`, such as `order`, are those of emulate.run. Raises CourseError if sizes or arguments do not fit
    the kernel or the hardware.
    """
    declared = parameters(source, function)
    where = f"{source.file}: {function}"
    grid, block = tuple(grid), tuple(block)
    passed = _checked(declared, grid, block, arguments, shared_bytes, where)
    filled = _filled(constants or {}, passed, declared, source, where)
    if _all_on_gpu(passed, declared, where):
        if emulator_options:
            options = ", ".join(emulator_options)
            raise CourseError(f"{where}: {options} is for the emulator, got CuPy arrays; leave it out")
        kernel = gpu_kernel(source, function, cooperative)
        if shared_bytes > DEFAULT_SHARED:
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        for name, values in filled.items():
            there = gpu_constant(source, name, values.data.device_id, cooperative)
            there.copy_from_device_async(values.data, values.nbytes)
        kernel(grid, block, passed, shared_mem=shared_bytes)
    else:
        full = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        from cuda_on_cpu import emulate  # most networks never need it

        emulate.run(source, function, *full, passed, shared_bytes, constants=filled, **emulator_options)


def prepared(
    source: CudaSource, function: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence
) -> Callable[[], None]:
    """A function that makes this launch on the GPU that is in use now, checked only once: for launches often repeated.

    It keeps the arrays. It is to be called with the same GPU in use. CourseError as for launch(), and for NumPy arrays.
    """
    declared = parameters(source, function)
    where = f"{source.file}: {function}"
    grid, block = tuple(grid), tuple(block)
    passed = _checked(declared, grid, block, arguments, 0, where)
    if not _all_on_gpu(passed, declared, where):
        raise CourseError(f"{where}: wanted CuPy arrays, to prepare a launch; got NumPy's: take launch()")
    return functools.partial(gpu_kernel(source, function), grid, block, passed)


def _checked(
    declared: tuple[Parameter, ...], grid: tuple, block: tuple, arguments: Sequence, shared_bytes: int, where: str
) -> list:
    """The arguments as they are passed; CourseError if they, or the sizes, do not fit the kernel or the hardware."""
    refuse_unlaunchable(grid, block, shared_bytes, where)
    if len(arguments) != len(declared):
        names = ", ".join(map(str, declared))
        raise CourseError(f"{where}: wanted {len(declared)} arguments ({names}), got {len(arguments)}")
    return [
        _array(value, parameter, where) if parameter.pointer else _scalar(value, parameter, where)
        for value, parameter in zip(arguments, declared, strict=True)
    ]


@functools.lru_cache(maxsize=4096)  # a training loop repeats a few launches, and GPU steps take only microseconds
def refuse_unlaunchable(grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, where: str) -> None:
    """CourseError for a grid, a block or shared memory that no GPU takes."""
    for name, sizes, limits in (("grid", grid, GRID_LIMITS), ("block", block, BLOCK_LIMITS)):
        if not 1 <= len(sizes) <= 3:
            raise CourseError(f"{where}: wanted a {name} of 1 to 3 numbers such as (4, 2), got {sizes}")
        for axis, size, limit in zip("xyz", sizes, limits, strict=False):
            if not isinstance(size, numbers.Integral) or not 1 <= size <= limit:
                raise CourseError(f"{where}: wanted {name} {axis} from 1 to {limit}, got {size!r} in {sizes}")
    if math.prod(block) > MOST_THREADS:
        raise CourseError(
            f"{where}: wanted at most {MOST_THREADS} threads in a block, got {block}, which are {math.prod(block)}"
        )
    if not 0 <= shared_bytes <= MOST_SHARED:
        raise CourseError(f"{where}: wanted 0 to {MOST_SHARED} bytes of dynamic shared memory, got {shared_bytes}")


def _filled(
    constants: Mapping[str, str], passed: list, declared: tuple[Parameter, ...], source: CudaSource, where: str
) -> dict:
    """What goes into each __constant__ array: the first elements of an argument, as many as there is room for."""
    there = constant_arrays(source)
    arrays = {parameter.name: value for value, parameter in zip(passed, declared, strict=True) if parameter.pointer}
    for name, argument in constants.items():
        if name not in there:
            raise CourseError(f"{where}: wanted `__constant__ float {name}[…]`, with a number, in the text; got none")
        if argument not in arrays or arrays[argument].dtype != np.float32:
            raise CourseError(f"{where}: wanted an argument `const float* {argument}` for {name}; got none")
    return {name: arrays[argument].reshape(-1)[: there[name]] for name, argument in constants.items()}


def _array(value, parameter: Parameter, where: str):
    """Return `value` unchanged; raise CourseError unless it is a C-contiguous array of the declared type."""
    wanted = parameter.dtype
    if _device_of(type(value)) is None:
        raise CourseError(f"{where}: wanted an array of {wanted} for {parameter.name}, got {_described(value)}")
    if value.dtype != wanted:
        fitting = next((ctype for ctype, name in DTYPES.items() if name == value.dtype.name), None)
        declared = replace(parameter, ctype=fitting) if fitting else "it so"
        ways = f"declare {declared}, or use .astype('{wanted}')"
        raise CourseError(f"{where}: wanted {wanted} for {parameter}, got {value.dtype}; {ways}")
    if not value.flags.c_contiguous:
        raise CourseError(
            f"{where}: wanted contiguous numbers for {parameter.name}, got a view of shape {value.shape} with strides "
            f"{value.strides}; make a copy: ascontiguousarray({parameter.name})"
        )
    return value


def _scalar(value, parameter: Parameter, where: str) -> np.generic:
    """`value` in the declared type: integers exactly, floats rounded. Raises CourseError if it is out of range."""
    if not isinstance(value, (int, numbers.Real, np.bool_)):
        raise CourseError(f"{where}: wanted a number for {parameter}, got {_described(value)}")
    low, high = _range(parameter.dtype)
    if parameter.dtype.kind == "f":
        kind, holds = "a number", not high < abs(value) < math.inf  # infinities and NaN are floats too
    else:
        kind, holds = "a whole number", low <= value <= high and value == int(value)
    if not holds:
        raise CourseError(f"{where}: wanted {kind} from {low} to {high} for {parameter}, got {value!r}")
    return parameter.dtype.type(value)


@functools.cache
def _range(dtype: np.dtype) -> tuple:
    """The smallest and the largest value of a type."""
    if dtype.kind == "b":
        return 0, 1
    info, as_number = (np.finfo(dtype), float) if dtype.kind == "f" else (np.iinfo(dtype), int)
    return as_number(info.min), as_number(info.max)


def _all_on_gpu(passed: list, declared: tuple[Parameter, ...], where: str) -> bool:
    """True if all arrays are CuPy arrays on the current GPU, False if all are NumPy arrays, else CourseError."""
    arrays = {parameter.name: value for value, parameter in zip(passed, declared, strict=True) if parameter.pointer}
    places = {name: _device_of(type(array)) for name, array in arrays.items()}
    if "gpu" not in places.values():
        return False
    if "cpu" in places.values():
        gpu, cpu = (", ".join(n for n, place in places.items() if place == device) for device in ("gpu", "cpu"))
        raise CourseError(
            f"{where}: wanted all arrays on one device, got {gpu} on the GPU and {cpu} on the CPU; "
            "move them with cupy.asarray or .get()"
        )
    import cupy

    in_use = cupy.cuda.runtime.getDevice()
    for name, array in arrays.items():
        if (lies_on := array.data.device_id) != in_use:  # a GPU cannot read another GPU's memory
            raise CourseError(
                f"{where}: wanted {name} on GPU {in_use}, which is in use, but it lies on GPU {lies_on}; "
                f"launch inside `with cupy.cuda.Device({lies_on}):`"
            )
    return True


@functools.cache  # cached by type, because testing each CuPy array costs a microsecond
def _device_of(array_type: type) -> str | None:
    if on_gpu(array_type):
        return "gpu"
    return "cpu" if issubclass(array_type, np.ndarray) else None


def _described(value) -> str:
    return f"an array of shape {value.shape}" if _device_of(type(value)) else f"{type(value).__name__} {value!r}"
