"""A kernel is one way to compute an operation on one device: a Python function, or a CUDA function to launch."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, prod
from typing import TYPE_CHECKING

from nncourse import device as devices
from nncourse.cuda.launch import launch
from nncourse.cuda.source import CudaSource, parameters
from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels import contract

if TYPE_CHECKING:
    from nncourse.kernels.operation import Operation


@dataclass(frozen=True)
class Kernel:
    """A Python function that computes an operation. It is called with the contract's arguments, which it may trust."""

    operation: "Operation"
    name: str
    device: str  # "cpu", "gpu", or "any": the device of its arrays
    where: str  # file and line of the definition
    function: Callable | None = None
    cuda: bool = field(default=False, kw_only=True)  # launches CUDA C; with NumPy arrays it runs on the CPU emulator
    with_backend: bool = field(default=False, kw_only=True)  # takes its backend as the argument `backend=`
    otherwise: str = field(default="", kw_only=True)  # fallback: the kernel to use if this one does not fit

    def __call__(self, *arguments, **options):
        return self.function(*arguments, **options)

    def __str__(self) -> str:
        return f"{self.name:<15} {self.device}  {self.where}"


@dataclass(frozen=True, eq=False)
class CudaKernel(Kernel):
    """A `__global__` function of a .cu text, and its launch configuration.

    block: threads per block in x, y, z.
    grid: blocks in x, y, z, as numbers or names of sizes: grid=("batch",). By default the grid has one thread per
        element of the result.
    over: launch one thread per element of this shape instead: over=("n",).
    tile: elements in x, y that a block computes, if that differs from its threads: tile=(128, 128).
    default: the backend "cuda" uses this kernel instead of the last one registered.
    deterministic: False if the result depends on the order of threads; no backend uses such a kernel unless asked to.

    Raises CourseError if parameters, sizes or block do not fit the operation.
    """

    cuda: bool = field(default=True, kw_only=True)
    source: CudaSource | None = None
    entry: str = ""  # the function's name in the text
    block: tuple[int, ...] = (256,)
    grid: tuple[int | str, ...] | None = None
    over: tuple[str, ...] | None = None
    tile: tuple[int, ...] | None = None
    default: bool = False
    deterministic: bool = True
    shared: int = 0  # bytes of dynamic shared memory
    plans: dict = field(default_factory=dict, repr=False)  # cache: shapes of the arguments -> result of _plan()

    def __post_init__(self):
        operation = self.operation
        declared = [parameter.name for parameter in parameters(self.source, self.entry)]
        wanted = list(operation.cuda_arguments)
        if len(declared) != len(wanted) or (declared != wanted and sorted(declared) == sorted(wanted)):
            raise CourseError(f"{self.where}: {self.entry} takes {', '.join(declared)}; wanted {', '.join(wanted)}")
        for size in (*(self.grid or ()), *(self.over or ())):
            if isinstance(size, str):
                refuse_unknown(f"a size for {self}", size, operation.letters)
        axes, covered = len(self.over or operation.result.dims), self.tile or self.block
        if self.grid is None and len(covered) not in (1, axes):
            raise CourseError(f"{self}: wanted a block with 1 or {axes} axes, as many as it covers; got {covered}")

    def __call__(self, *arguments, out=None, **emulator):
        """Launch the kernel and return `out`, which is allocated unless given; an in-place result is its argument.

        With NumPy arrays the kernel runs on the CPU emulator. `emulator` takes options of emulate.run, such as `order`
        and `races`; with CuPy arrays they raise CourseError.
        """
        operation = self.operation
        key = contract.shapes(operation.arguments, arguments)
        if key not in self.plans:
            self.plans[key] = self._plan(arguments)
        shape, sizes, grid = self.plans[key]
        passed = dict(zip(operation.names, arguments, strict=True)) | sizes
        if operation.output == "in place":
            out = passed[operation.result.name]
        elif out is None:
            xp = devices.array_module(arguments[0])
            new = xp.zeros if operation.output == "accumulated" else xp.empty
            out = new(shape, operation.result.dtype)
        elif out.shape != shape:
            raise CourseError(f"{operation.name} ({self.name}): wanted out of shape {shape}, got {out.shape}")
        elif operation.output == "accumulated":
            out.fill(0)
        passed[operation.result.name] = out
        if 0 not in grid:  # CUDA refuses an empty grid; then there is nothing to compute
            chosen = [passed[name] for name in operation.cuda_arguments]
            launch(self.source, self.entry, grid, self.block, chosen, shared_bytes=self.shared, **emulator)
        return out

    def _plan(self, arguments: tuple) -> tuple[tuple[int, ...], dict[str, int], tuple[int, ...]]:
        """Shape of the result, sizes by letter, and grid (x, y, z). x runs along rows, so that writes coalesce."""
        sizes = self.operation.sizes(*arguments)
        shape = contract.result_shape(self.operation.result, arguments, sizes)
        if self.grid is not None:
            return shape, sizes, tuple(sizes.get(size, size) for size in self.grid)
        cells = shape if self.over is None else tuple(sizes[letter] for letter in self.over)
        covered = self.tile or self.block
        wanted = (prod(cells),) if len(covered) == 1 else tuple(reversed(cells))
        return shape, sizes, tuple(ceil(count / width) for count, width in zip(wanted, covered, strict=True))
