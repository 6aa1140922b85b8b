"""The heart of the package: an *operation* is an equation with a contract, a *kernel* is one way to compute it.

    dense_forward = Operation("dense_forward", "Z = A Wᵀ + b", "A (batch, n_in), … -> Z (batch, n_out)",
                              reference=…, flops=…)

    @dense_forward.array_kernel                         # the decorator is the registration; there is no other list
    def array(A, W, b): return A @ W.T + b              # as `numpy` and as `cupy`

    dense_forward.cuda_kernel("tiled", cuda_beside(__file__), block=(16, 16))   # dense_forward_tiled in the .cu file

    Z = dense_forward["tiled"](A, W, b)                 # the arguments of the contract in, the result out

A kernel's device determines its arrays: NumPy on "cpu", CuPy on "gpu". A CUDA kernel called with NumPy arrays runs on
the CPU emulator, slowly, for checking.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from cuda_on_cpu.text import CudaSource
from nncourse.errors import CourseError
from nncourse.kernels import jit
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.signature import Signature
from nncourse.kernels.trial import Trial

PYTHON_DEVICES = {"loops": "cpu", "numpy": "cpu", "numba": "cpu", "cupy": "gpu"}
LISTED_FIRST = ("loops", "numpy", "numba", "cupy")  # then others for the CPU, then the rest, as registered
PACKAGE = Path(__file__).parents[1]
NOT_FINITE = "an answer that is wrong for NaN or infinity alone still passes, with a note"


@dataclass(eq=False)
class Operation(Signature):
    """An equation with a fixed contract, and the kernels that compute it. The first fields are those of Signature.

    reference: computes the result from arguments in float64, in another way than the kernels do; a tuple for several
        results.
    flops: flops(**sizes), the number of FLOPs; None if the operation is not timed.
    equation: its number in the handout: `(1)`.
    fuses: operations that it computes at once; if a user chooses a kernel for one of these, a backend leaves it out.
    trial: what check() has to know: see trial.py.
    """

    reference: Callable[..., Any]
    flops: Callable[..., int] | None
    equation: str = ""
    fuses: tuple[str, ...] = ()
    trial: Trial = field(default_factory=Trial)
    kernels: dict[str, Kernel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := set(self.trial.values) - set(self.names):
            raise CourseError(f"{self.name}: expected values of its arguments; got {', '.join(sorted(unknown))}")

    def kernel(
        self, name: str, device: str, compiled: bool = False, written: Callable[..., Any] | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: register the function below as kernel `name`.

        compiled: Numba compiles it at its first call.
        written: the function to show to readers if the one below only wraps it, as in activations.py.
        options: those of Kernel.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            code = (written or function).__code__
            where = f"{_short(Path(code.co_filename))}:{code.co_firstlineno}"
            call = jit.at_first_call(lambda: jit.jit(function)) if compiled else function
            self._add(self.made(name, device, where, call, **options))
            return function

        return register

    def made(self, name: str, device: str, where: str, function: Callable[..., Any] | None, **options: Any) -> Kernel:
        """A Python kernel of this operation that is not registered."""
        return Kernel(self, name, device, where, function, **options)

    @property
    def python_devices(self) -> Mapping[str, str]:
        """The names that students' Python kernels may have, each with its device."""
        return PYTHON_DEVICES

    def loops_kernel(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the loops below are the kernel `loops` and, compiled, the kernel `numba`."""
        self.kernel("loops", device="cpu")(function)
        return self.kernel("numba", device="cpu", compiled=True)(function)

    def array_kernel(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the function below is the kernels `numpy` and `cupy`. NumPy's functions also take CuPy arrays."""
        self.kernel("numpy", device="cpu")(function)
        return self.kernel("cupy", device="gpu")(function)

    def cuda_kernel(
        self, name: str, source: CudaSource, function: str = "", block: int | tuple[int, ...] = 256, **launch: Any
    ) -> None:
        """Register a `__global__` function of a .cu text, by default <operation>_<name>, as kernel `name`.

        The function takes `cuda_arguments`; its text is read at the first launch. block: threads in x, y. launch: the
        other options of CudaKernel.
        """
        function = function or f"{self.name}_{name}"
        block = (block,) if isinstance(block, int) else tuple(block)
        where = f"{source.file}:{source.line_of(function)}"
        self._add(CudaKernel(self, name, "gpu", where, None, source, function, block, **launch))

    def _add(self, kernel: Kernel) -> None:
        if kernel.name in self.kernels:
            there = self.kernels[kernel.name].where
            raise CourseError(f"{self.name}: there is a kernel {kernel.name!r} already, at {there}")
        unsorted = {**self.kernels, kernel.name: kernel}
        first = [name for name in LISTED_FIRST if name in unsorted]
        first += [each.name for each in unsorted.values() if each.device == "cpu"]
        self.kernels = {name: unsorted[name] for name in dict.fromkeys([*first, *unsorted])}

    def __getitem__(self, name: str) -> Kernel:
        """The kernel of that name; CourseError lists those there are."""
        if name not in self.kernels:
            raise CourseError(f"{self.name}: expected one of its kernels {', '.join(self.kernels)}; got {name!r}")
        return self.kernels[name]

    def kernel_of(self, kernel: str | Kernel | Callable[..., Any], device: str | None = None) -> Kernel:
        """The kernel of that name, the kernel itself, or a function as a kernel with the function's name."""
        if isinstance(kernel, str):
            return self[kernel]
        if isinstance(kernel, Kernel):
            return kernel
        return self.made(getattr(kernel, "__name__", "kernel"), device or "cpu", "", kernel)

    def count(self, *arguments: Any) -> tuple[int, int]:
        """FLOPs of the equation for these arguments, and the least number of bytes to read and write."""
        if self.flops is None:
            raise CourseError(f"{self.name} is not timed: no network calls it")
        known = self.sizes(*arguments)
        shapes = self.shapes.result_shapes(arguments, known)
        numbers = sum(map(prod, shapes)) + sum(value.size for value in arguments if hasattr(value, "size"))
        return self.flops(**known), 4 * numbers

    def __str__(self) -> str:
        title = f"{self.name} {self.equation}".strip()
        has_cuda = any(isinstance(kernel, CudaKernel) for kernel in self.kernels.values())
        cuda = [f"  a CUDA kernel takes {', '.join(self.cuda_arguments)}"] if has_cuda else []
        cuda += [f"  {NOT_FINITE}"] if {"infinite", "special", "nan"}.intersection(self.trial.edge_cases) else []
        kernels = [f"  {kernel}" for kernel in self.kernels.values()]
        budgets = [f"  {name}: {budget}" for name, budget in self.trial.budgets.items()]
        return "\n".join([f"{title}: {self.formula}", f"  {self.contract}", *cuda, *kernels, *budgets])

    __repr__ = __str__


def _short(file: Path) -> str:
    """The path for readers: kernels/dense.py in this package, else <folder>/<file>."""
    return file.relative_to(PACKAGE).as_posix() if file.is_relative_to(PACKAGE) else "/".join(file.parts[-2:])


def cuda_beside(python_file: str, *defines: str, name: str = "", before: tuple[CudaSource, ...] = ()) -> CudaSource:
    """The .cu text beside a topic's Python file, `name`.cu or that of the same name.

    `defines` are constants for it, such as "ALPHA=0.01f"; the texts `before` are compiled before it.
    """
    path = Path(python_file)
    return CudaSource.read(path.with_name(f"{name or path.stem}.cu"), defines, before)
