"""Launch a CUDA kernel: on the GPU for CuPy arrays, on the CPU emulator for NumPy arrays. All launches go through here.

A launch passes raw addresses and bytes, so the arguments are first checked against the kernel's declaration.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cuda_on_cpu.arguments import checked, in_three, refuse_unlaunchable
from cuda_on_cpu.source import Parameter, constant_arrays, parameters
from cuda_on_cpu.text import CudaSource
from nncourse.device import on_gpu
from nncourse.errors import CourseError

__all__ = ["launch", "parameters", "prepared", "refuse_unlaunchable"]

DEFAULT_SHARED = 48 * 1024  # bytes of dynamic shared memory that a kernel may use without setting an attribute


def launch(
    source: CudaSource,
    function: str,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: Sequence[Any],
    shared_bytes: int = 0,
    cooperative: bool = False,
    constants: Mapping[str, str] | None = None,
    **emulator_options: Any,
) -> None:
    """Launch the kernel `function` of a .cu text on `grid` blocks of `block` threads each.

    arguments: in the order in which the kernel declares them.
    shared_bytes: of dynamic shared memory.
    cooperative: blocks may wait for each other.
    constants: {"filters": "W"} first copies W, or as much of it as fits, to the text's __constant__ array `filters`.
    emulator_options: those of emulate.run, such as `order`.

    Raises CourseError if sizes or arguments do not fit the kernel or the hardware.
    """
    declared = parameters(source, function)
    where = f"{source.file}: {function}"
    passed = checked(source, function, grid, block, arguments, shared_bytes)
    arrays = _arrays(passed, declared)
    filled = _filled(constants or {}, arrays, source, where)
    if _all_on_gpu(arrays, where):
        if emulator_options:
            options = ", ".join(emulator_options)
            raise CourseError(f"{where}: {options} is for the emulator, got CuPy arrays; leave it out")
        kernel = _compiler().gpu_kernel(source, function, cooperative)
        if shared_bytes > DEFAULT_SHARED:
            kernel.max_dynamic_shared_size_bytes = shared_bytes
        for name, values in filled.items():
            there = _compiler().gpu_constant(source, name, values.data.device_id, cooperative)
            there.copy_from_device_async(values.data, values.nbytes)
        kernel(grid, block, passed, shared_mem=shared_bytes)
    else:
        from cuda_on_cpu import emulate  # most networks never need it

        more = {"constants": filled, **emulator_options}
        emulate.run(source, function, in_three(grid), in_three(block), passed, shared_bytes, **more)


def prepared(
    source: CudaSource, function: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any]
) -> Callable[[], None]:
    """A function that repeats this launch on the current GPU, without checking again. It keeps the arrays.

    Call it with the same GPU in use. CourseError as for launch(), and for NumPy arrays.
    """
    where = f"{source.file}: {function}"
    passed = checked(source, function, grid, block, arguments, 0)
    if not _all_on_gpu(_arrays(passed, parameters(source, function)), where):
        raise CourseError(f"{where}: expected CuPy arrays, to prepare a launch; got NumPy's: take launch()")
    return functools.partial(_compiler().gpu_kernel(source, function), grid, block, passed)


@functools.cache  # an import statement costs half a microsecond even for an imported module
def _compiler() -> ModuleType:
    """The module that compiles for a GPU; a launch on the CPU never needs it."""
    from nncourse.cuda import compile

    return compile


def _arrays(passed: list[Any], declared: tuple[Parameter, ...]) -> dict[str, Any]:
    """The arrays among the arguments, by name."""
    return {parameter.name: value for value, parameter in zip(passed, declared, strict=True) if parameter.pointer}


def _filled(constants: Mapping[str, str], arrays: dict[str, Any], source: CudaSource, where: str) -> dict[str, Any]:
    """The contents of each __constant__ array: the first elements of an argument, as many as fit."""
    there = constant_arrays(source)
    for name, argument in constants.items():
        if name not in there:
            raise CourseError(f"{where}: expected `__constant__ float {name}[…]`, with a number, in the text; got none")
        if argument not in arrays or arrays[argument].dtype != np.float32:
            raise CourseError(f"{where}: expected an argument `const float* {argument}` for {name}; got none")
    return {name: arrays[argument].reshape(-1)[: there[name]] for name, argument in constants.items()}


def _all_on_gpu(arrays: dict[str, Any], where: str) -> bool:
    """True if all arrays are CuPy arrays on the current GPU, False if all are NumPy arrays, else CourseError."""
    places = {name: _device_of(array.__class__) for name, array in arrays.items()}
    if "gpu" not in places.values():
        return False
    if "cpu" in places.values():
        gpu, cpu = (", ".join(n for n, place in places.items() if place == device) for device in ("gpu", "cpu"))
        raise CourseError(
            f"{where}: expected all arrays on one device, got {gpu} on the GPU and {cpu} on the CPU; "
            "move them with cupy.asarray or .get()"
        )
    import cupy

    in_use = cupy.cuda.runtime.getDevice()
    for name, array in arrays.items():
        if (lies_on := array.data.device_id) != in_use:  # a GPU cannot read another GPU's memory
            raise CourseError(
                f"{where}: expected {name} on GPU {in_use}, which is in use, but it lies on GPU {lies_on}; "
                f"launch inside `with cupy.cuda.Device({lies_on}):`"
            )
    return True


@functools.cache  # cached by type, because testing each CuPy array costs a microsecond
def _device_of(array_type: type) -> str | None:
    if on_gpu(array_type):
        return "gpu"
    return "cpu" if issubclass(array_type, np.ndarray) else None
