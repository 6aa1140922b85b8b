"""The heart of the package: an *operation* is an equation with a contract, a *kernel* is one way to compute it.

    dense_forward = Operation("dense_forward", "Z = A Wᵀ + b", arguments="A (batch, n_in), …",
                              result="Z (batch, n_out)", truth=…, flops=…)

    @dense_forward.kernel("numpy", device="cpu")        # the decorator is the registration; there is no other list
    def array(A, W, b): return A @ W.T + b

    dense_forward.cuda_kernel("tiled", source=…, function="dense_forward_tiled", block=(16, 16))

    print(dense_forward.check("tiled"))                 # ✓ or ✗, in one line: see check.py

A kernel is called with the arguments of the contract and gives back the result. Which arrays it takes follows from its
device: NumPy on "cpu", CuPy on "gpu". A CUDA kernel given NumPy arrays runs on the CPU emulator, slowly, for checking.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, prod
from pathlib import Path

from nncourse import device as devices
from nncourse.cuda.launch import launch
from nncourse.cuda.source import CudaSource
from nncourse.errors import CourseError
from nncourse.kernels import check as checker
from nncourse.kernels import contract, jit

SLOW_TO_FAST = {"loops": 0, "numpy": 1, "numba": 2, "cupy": 3}  # CUDA kernels follow, in the order they are registered


@dataclass(frozen=True)
class Kernel:
    """One way to compute an operation, on one device."""

    operation: "Operation"
    name: str
    device: str
    function: Callable
    where: str

    def __call__(self, *arguments):
        return self.function(*arguments)

    def __str__(self) -> str:
        return f"{self.name:<8} {self.device}  {self.where}"


@dataclass(frozen=True)
class CudaKernel(Kernel):
    """A `__global__` function of a .cu text, and how many threads it wants.

    `grid` counts blocks in numbers or in the contract's letters; without it there is one thread for each number of the
    result, or of the shape `over` (letters too). `shared` is dynamic shared memory in bytes.
    """

    source: CudaSource
    block: tuple[int, ...]
    grid: tuple[int | str, ...] | None = None
    over: tuple[str, ...] | None = None
    deterministic: bool = True
    shared: int = 0

    def __call__(self, *arguments, out=None, **emulator):
        """Launch, and give back `out`: made here unless given. An in-place result is the argument of its name."""
        operation = self.operation
        known = contract.sizes(operation.arguments, arguments, operation.name)
        values = {argument.name: value for argument, value in zip(operation.arguments, arguments, strict=True)}
        shape = contract.result_shape(operation.result, arguments, known)
        if operation.output == "in place":
            out = values[operation.result.name]
        elif out is None:
            xp = devices.array_module(arguments[0])
            new = xp.zeros if operation.output == "accumulated" else xp.empty
            out = new(shape, contract.DTYPES[operation.result.kind])
        elif out.shape != shape:
            raise CourseError(f"{operation.name} ({self.name}): wanted out of shape {shape}, got {out.shape}")
        elif operation.output == "accumulated":
            out.fill(0)
        passed = known | values | {operation.result.name: out}
        grid = self.grid_for(shape, known)
        if 0 in grid:  # nothing to compute: CUDA refuses an empty grid
            return out
        chosen = [passed[name] for name in operation.cuda_arguments]
        launch(self.source, self.function, grid, self.block, chosen, shared_bytes=self.shared, **emulator)
        return out

    def grid_for(self, shape: tuple[int, ...], known: dict[str, int]) -> tuple[int, ...]:
        """Blocks in x, y, z: as given, or a thread an element, with x along a row so that a warp reads in order."""
        if self.grid is not None:
            return tuple(known[size] if isinstance(size, str) else size for size in self.grid)
        shape = shape if self.over is None else tuple(known[dim] for dim in self.over)
        threads = (prod(shape),) if len(self.block) == 1 else tuple(reversed(shape))
        return tuple(ceil(wanted / width) for wanted, width in zip(threads, self.block, strict=True))


@dataclass(eq=False)
class Operation:
    """An equation with a fixed contract, and the kernels that compute it.

    `arguments` and `result` give names and shapes (see contract.py). A result with the name of an argument is computed
    in place; `output="accumulated"` means that CUDA kernels add to zeros, and "overwritten" that they write every cell.
    A CUDA function takes the arguments, then the result (unless in place), then the sizes, in the contract's order.
    `truth` computes the result in float64, in another way than the kernels do. `flops` counts floating-point operations
    from the contract's letters; the bytes are those of reading each argument once and writing the result once.
    `tolerance` allows an error of so many float32 roundings of `magnitude`: the truth on absolute values unless given.
    `values` makes arguments that cannot be any number, such as labels; `hostile` names the hard data that make sense.
    """

    name: str
    formula: str
    arguments: str | tuple[contract.Argument, ...]
    result: str | contract.Argument
    truth: Callable
    flops: Callable
    equation: str = ""
    output: str = "overwritten"
    tolerance: float = 8.0
    magnitude: Callable | None = None
    values: dict[str, Callable] = field(default_factory=dict)
    hostile: tuple[str, ...] = ("zeros", "large", "infinite")
    kernels: dict[str, Kernel] = field(default_factory=dict)

    def __post_init__(self):
        self.arguments = contract.parse(self.arguments)
        (self.result,) = contract.parse(self.result)
        if self.result.name in {argument.name for argument in self.arguments}:
            self.output = "in place"

    @cached_property
    def letters(self) -> tuple[str, ...]:
        """The sizes that the contract speaks of, each once: ("batch", "n_in", "n_out")."""
        dims = [dim.lstrip("*") for argument in self.arguments for dim in argument.dims or (argument.size_name,)]
        return tuple(dict.fromkeys(filter(None, dims)))

    @cached_property
    def cuda_arguments(self) -> tuple[str, ...]:
        """What a CUDA function takes: the arguments, the result, the sizes. A, W, b, Z, batch, n_in, n_out."""
        given = [argument.name for argument in self.arguments if argument.name not in self.letters]
        result = [] if self.output == "in place" else [self.result.name]
        return (*given, *result, *self.letters)

    def kernel(self, name: str, device: str, compiled: bool = False, written: Callable | None = None) -> Callable:
        """Decorator: register the function below as kernel `name`. `compiled` lets Numba compile it at its first call.

        `written` is the function that a reader should be shown, where it is not the one below.
        """

        def register(function: Callable) -> Callable:
            code = (written or function).__code__
            where = f"{_short(code.co_filename)}:{code.co_firstlineno}"
            call = jit.at_first_call(lambda: jit.jit(function)) if compiled else function
            self._add(Kernel(self, name, device, call, where))
            return function

        return register

    def cuda_kernel(
        self, name: str, source: CudaSource, function: str, block: tuple[int, ...], **launch_options
    ) -> None:
        """Register a `__global__` function of a .cu text as kernel `name`; options as in CudaKernel."""
        lines = source.text.splitlines()
        line = next((i for i, text in enumerate(lines, 1) if f" {function}(" in text and "__global__" in text), 0)
        self._add(CudaKernel(self, name, "gpu", function, f"{source.file}:{line}", source, block, **launch_options))

    def _add(self, kernel: Kernel) -> None:
        if kernel.name in self.kernels:
            raise CourseError(
                f"{self.name}: there is a kernel {kernel.name!r} already, at {self.kernels[kernel.name].where}"
            )
        self.kernels[kernel.name] = kernel
        ranked = sorted(self.kernels.values(), key=lambda known: SLOW_TO_FAST.get(known.name, len(SLOW_TO_FAST)))
        self.kernels = {known.name: known for known in ranked}

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of that name; CourseError lists those there are."""
        if name not in self.kernels:
            raise CourseError(f"{self.name}: wanted one of its kernels {', '.join(self.kernels)}; got {name!r}")
        return self.kernels[name]

    def check(self, kernel, device: str | None = None, seed: int = 0) -> "checker.Verdict":
        """Compare a kernel (its name, or any Python function with the contract's arguments) with the float64 truth.

        CUDA kernels run on the GPU where there is one, else under the emulator in three thread orders;
        `device="emulator"` asks for the latter. What is tried is told in check.py.
        """
        if isinstance(kernel, str):
            kernel = self[kernel]
        elif not isinstance(kernel, Kernel):
            kernel = Kernel(self, getattr(kernel, "__name__", "kernel"), device or "cpu", kernel, "")
        return checker.check(self, kernel, device, seed)

    def sizes(self, *arguments) -> dict[str, int]:
        """The contract's letters for these arguments."""
        return contract.sizes(self.arguments, arguments, self.name)

    def count(self, *arguments) -> tuple[int, int]:
        """FLOPs of the equation for these arguments, and the fewest bytes it has to read and write."""
        known = self.sizes(*arguments)
        shape = contract.result_shape(self.result, arguments, known)
        numbers = prod(shape) + sum(value.size for value in arguments if hasattr(value, "size"))
        return self.flops(**known), 4 * numbers

    def __str__(self) -> str:
        title = f"{self.name} {self.equation}".strip()
        shapes = f"{', '.join(map(str, self.arguments))} -> {self.result}"
        return "\n".join(
            [f"{title}: {self.formula}", f"  {shapes}"] + [f"  {kernel}" for kernel in self.kernels.values()]
        )

    __repr__ = __str__


def read_cuda(python_file: str, *defines: str) -> CudaSource:
    """The .cu text that lies beside a topic's Python file."""
    return CudaSource.read(Path(python_file).with_suffix(".cu"), defines)


def _short(path: str) -> str:
    """kernels/dense.py, not the whole path; other files by their own name."""
    return "/".join(Path(path).parts[-2:])
