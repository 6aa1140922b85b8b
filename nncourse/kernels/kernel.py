"""A kernel is one way to compute an operation on one device: a Python function, or a CUDA function to launch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import zip_longest
from math import ceil, prod
from types import ModuleType
from typing import Any

from cuda_on_cpu.text import CudaSource
from nncourse import device as devices
from nncourse.errors import CourseError
from nncourse.kernels.contract import Formula, Sizes
from nncourse.kernels.signature import Signature

MANTISSA = 23  # bits of a float32's
ALIGNED = 64  # numbers; CuPy allocates in multiples of as many bytes times four


@dataclass(frozen=True)
class Kernel:
    """A Python function that computes an operation. It need not check its arguments."""

    operation: Signature
    name: str
    device: str  # "cpu" or "gpu": the device of its arrays
    where: str  # file and line of the definition
    function: Callable[..., Any] | None = None
    cuda: bool = field(default=False, kw_only=True)  # launches CUDA C: with NumPy arrays it runs on the CPU emulator
    takes_out: bool = field(default=False, kw_only=True)  # has the option `out`, an array for the result
    default: bool = field(default=False, kw_only=True)  # the backend "cuda" uses it, not the last one registered
    # False if the result depends on the order of threads; a backend uses such a kernel only on request.
    deterministic: bool = field(default=True, kw_only=True)
    mantissa: int = field(default=MANTISSA, kw_only=True)  # bits of its factors: fewer than float32's if it rounds them
    otherwise: str = field(default="", kw_only=True)  # fallback: the kernel to use if this one does not fit
    optional: tuple[str, ...] = field(default=(), kw_only=True)  # arguments that may be None, which saves work
    # prepare(some arguments, result, more of them) returns a function of the others that writes the result. It keeps
    # its arrays from call to call: for an operation that every training step calls.
    prepare: Callable[..., Callable[..., None]] | None = field(default=None, kw_only=True)
    whose: str = field(default="", kw_only=True)  # for titles of a student's kernel: "yours", or "yours, wrong"
    # Why it cannot be called on this machine, or "": for kernels that need more than their device and NumPy or CuPy.
    missing: Callable[[], str] = field(default=lambda: "", kw_only=True)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if self.function is None:
            raise CourseError(f"{self.operation.name} ({self.name}): expected a kernel with a function; it has none")
        return self.function(*arguments, **options)

    def __str__(self) -> str:
        return f"{self.name:<15} {self.device}  {self.where}"


@dataclass(frozen=True, eq=False)
class CudaKernel(Kernel):
    """A `__global__` function of a .cu text, and its launch configuration.

    block: threads per block in x, y, z.
    grid: blocks in x, y, z, as numbers or formulas of sizes: grid=("batch * n_out",), or a function of them, if it
        depends on the GPU. By default the grid has one thread per element of the first result.
    over: launch one thread per element of this shape instead: over=("n",).
    tile: elements in x, y that a block computes, if that differs from its threads: tile=(128, 128).
    constants: __constant__ arrays of the text to fill before the launch, each with the first elements of an argument:
        constants={"filters": "W"}.

    Raises CourseError if sizes or block do not fit the operation. Its text is read at the first launch.
    """

    cuda: bool = field(default=True, kw_only=True)
    takes_out: bool = field(default=True, kw_only=True)
    source: CudaSource = CudaSource("", "")
    entry: str = ""  # the function's name in the text
    block: tuple[int, ...] = (256,)
    grid: tuple[int | str, ...] | Callable[[Sizes], tuple[int, ...]] | None = None
    over: tuple[str, ...] | None = None
    tile: tuple[int, ...] | None = None
    shared: int = 0  # bytes of dynamic shared memory
    constants: Mapping[str, str] = field(default_factory=dict)
    plans: dict[Any, Any] = field(default_factory=dict, repr=False)  # cache: argument shapes -> _plan()

    def __post_init__(self) -> None:
        operation = self.operation
        formulas = () if callable(self.grid) else self.grid or ()
        used = [*(self.over or ()), *(name for size in formulas for name in Formula(str(size)).names)]
        if unknown := set(used) - set(operation.size_names):
            there = ", ".join(operation.size_names)
            raise CourseError(
                f"{self.where}: expected sizes of {operation.name}, {there}; got {', '.join(sorted(unknown))}"
            )
        axes, covered = len(self.over or operation.result.dims), self.tile or self.block
        if self.grid is None and len(covered) not in (1, axes):
            raise CourseError(
                f"{self.where}: expected a block with 1 axis or {axes}, one for each size it covers; "
                f"got {covered}: change --block, or name the sizes with --over or --grid"
            )

    def refuse_other_parameters(self) -> None:
        """CourseError if the function does not take what the operation hands to it."""
        declared = [parameter.name for parameter in launching().parameters(self.source, self.entry)]
        wanted = list(self.operation.cuda_arguments)
        if len(declared) != len(wanted) or (declared != wanted and sorted(declared) == sorted(wanted)):
            raise CourseError(f"{self.where}: {self.entry} takes {', '.join(declared)}; expected {', '.join(wanted)}")

    def __call__(self, *arguments: Any, out: Any = None, **emulator: Any) -> Any:
        """Launch the kernel and return the result, or a tuple of several. An in-place result is its argument.

        `out` is the array for the new result, or a tuple for several; it is allocated unless given. With NumPy arrays
        the kernel runs on the CPU emulator: `emulator` takes options of emulate.run, such as `order` and `races`; with
        CuPy arrays they raise CourseError.
        """
        operation = self.operation
        key = operation.shapes.key(arguments)
        if key not in self.plans:
            self.plans[key] = self._plan(arguments)
        shapes, sizes, grid = self.plans[key]
        passed = dict(zip(operation.names, arguments, strict=True)) | sizes
        if new := operation.shapes.new:
            made = (out,) if len(new) == 1 else self._together(shapes, arguments[0]) if out is None else out
            if not isinstance(made, tuple) or len(made) != len(new):
                wanted = ", ".join(map(str, new))
                raise CourseError(f"{operation.name} ({self.name}): expected out as a tuple of {wanted}; got {out!r}")
            for result, array in zip(new, made, strict=True):
                name = result.name
                passed[name] = self._made(name, shapes[name], result.dtype, array, arguments[0])
        if 0 not in grid:  # CUDA refuses an empty grid; then there is nothing to compute
            chosen = [passed[name] for name in operation.cuda_arguments]
            shared, constants = self.shared, self.constants
            launching().launch(
                self.source, self.entry, grid, self.block, chosen, shared, constants=constants, **emulator
            )
        if len(operation.results) == 1:
            return passed[operation.result.name]
        return tuple(passed[result.name] for result in operation.results)

    def threads(self, *arguments: Any) -> int:
        """The number of threads of the launch for these arguments. CourseError if no GPU takes it."""
        grid = self._plan(arguments)[2]
        launching().refuse_unlaunchable(grid, self.block, self.shared, f"{self.source.file}: {self.entry}")
        return prod(grid) * prod(self.block)

    def covers(self, *arguments: Any) -> tuple[int, ...]:
        """How many elements the launch for these arguments covers in x, y, z."""
        grid = self._plan(arguments)[2]
        return tuple(blocks * width for blocks, width in zip_longest(grid, self.tile or self.block, fillvalue=1))

    @property
    def fixed_threads(self) -> int:
        """The threads of a launch that is the same for all sizes; 0 if it follows from them."""
        if not self.grid or callable(self.grid) or not all(isinstance(size, int) for size in self.grid):
            return 0
        return prod(map(int, self.grid)) * prod(self.block)

    def _together(self, shapes: Mapping[str, tuple[int, ...]], like: Any) -> tuple[Any, ...]:
        """Several new results: parts of one array if they have one shape and lie as if they were alone, else None."""
        new = self.operation.shapes.new
        kinds = {(shapes[result.name], result.dtype) for result in new}
        (shape, dtype), *others = kinds
        if others or prod(shape) % ALIGNED or not devices.on_gpu(like):
            return (None,) * len(new)
        return tuple(devices.array_module(like).empty((len(new), *shape), dtype))

    def _made(self, name: str, shape: tuple[int, ...], dtype: type, out: Any, like: Any) -> Any:
        """The array for a new result: `out` if it is given; filled with zeros if the kernel adds to it."""
        accumulated = self.operation.output == "accumulated"
        if out is None:
            xp = devices.array_module(like)
            return (xp.zeros if accumulated else xp.empty)(shape, dtype)
        if (got := getattr(out, "shape", None)) != shape:
            got = f"shape {got}" if got is not None else type(out).__name__
            raise CourseError(f"{self.operation.name} ({self.name}): expected {name} of shape {shape}, got {got}")
        if accumulated:
            out.fill(0)
        return out

    def _plan(self, arguments: tuple[Any, ...]) -> tuple[dict[str, tuple[int, ...]], Sizes, tuple[int, ...]]:
        """Shapes of the results, sizes, and blocks in x, y, z. x runs along rows, so that a warp's writes coalesce."""
        operation = self.operation
        self.refuse_other_parameters()
        sizes = operation.sizes(*arguments)
        in_order = operation.shapes.result_shapes(arguments, sizes)
        shapes = {result.name: shape for result, shape in zip(operation.results, in_order, strict=True)}
        if callable(self.grid):
            return shapes, sizes, self.grid(sizes)
        if self.grid is not None:
            return shapes, sizes, tuple(Formula(str(size))(sizes) for size in self.grid)
        elements = in_order[0] if self.over is None else tuple(sizes[name] for name in self.over)
        covered = self.tile or self.block
        wanted = (prod(elements),) if len(covered) == 1 else tuple(reversed(elements))
        return shapes, sizes, tuple(ceil(count / width) for count, width in zip(wanted, covered, strict=True))


@cache
def launching() -> ModuleType:
    """The module that reads CUDA C and launches it. Most processes need neither it nor the eight that it imports."""
    from nncourse.cuda import launch

    return launch
