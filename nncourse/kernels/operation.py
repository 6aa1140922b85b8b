"""The heart of the package: an *operation* is an equation with a contract, a *kernel* is one way to compute it.

    dense_forward = Operation("dense_forward", "Z = A Wᵀ + b", "A (batch, n_in), … -> Z (batch, n_out)",
                              truth=…, flops=…)

    @dense_forward.array_kernel                         # the decorator is the registration; there is no other list
    def array(A, W, b): return A @ W.T + b              # as `numpy` and as `cupy`

    dense_forward.cuda_kernel("tiled", cuda_beside(__file__), block=(16, 16))   # dense_forward_tiled in the .cu file

    print(dense_forward.check("tiled"))                 # ✓ or ✗, in one line: see check.py
    Z = dense_forward["tiled"](A, W, b)                 # the arguments of the contract in, the result out

Which arrays a kernel takes follows from its device: NumPy on "cpu", CuPy on "gpu". A CUDA kernel given NumPy arrays
runs on the CPU emulator, slowly, for checking.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nncourse.cuda.source import CudaSource, kernels_in, line_of
from nncourse.errors import CourseError
from nncourse.kernels import check as checker
from nncourse.kernels import contract as contracts
from nncourse.kernels import jit
from nncourse.kernels.cases import HOSTILE
from nncourse.kernels.contract import Argument, Sizes
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.verdict import Verdict

OUTPUTS = ("overwritten", "accumulated")
PYTHON_DEVICES = {"loops": "cpu", "numpy": "cpu", "numba": "cpu", "cupy": "gpu"}
LISTED_FIRST = ("loops", "numpy", "numba", "cupy")  # others follow: for the CPU, then the rest, as registered
PACKAGE = Path(__file__).parents[1]


@dataclass(eq=False)
class Operation:
    """An equation with a fixed contract, and the kernels that compute it.

    The `contract` is text, arguments -> results: `A (batch, n_in)` is an array, `z (*n)` an array of any shape with n
    elements, `rate ()` one number. Elements are float32; those of `labels (n,) int` are int32. batch, n_in and n are
    the names of sizes; an argument `classes () int` is a size too. Every size of a result is stated by an argument, or
    derived from sizes that are: `… -> Z (batch, n_out) where n_out = n_in // 2`. See contract.py.

    A result with the name of an argument is computed in place: the kernel changes that argument. The other results are
    new arrays. A kernel returns its result, or a tuple of all results where the contract has several. `output` says
    what a CUDA kernel does with the new array that it is given: it writes every element ("overwritten"), or it adds to
    zeros ("accumulated").

    For check(): `truth` gets the arguments in float64 and computes the result in another way than the kernels do; it
    returns a tuple where there are several results, and so does `magnitude`. An error of `tolerance` × 2⁻²³ × magnitude
    is allowed. The magnitude adds up the absolute values of what is added up: it is the truth on absolute values, or
    `magnitude(*arguments)`, which must be given where the truth subtracts. `values[name](rng, shape, sizes)` makes an
    argument for which not every number will do. `hostile` are those of cases.py's HOSTILE values that are tried; with
    "nan", a NaN of the truth must come out as NaN, and nothing else may. `advice(place, *arguments)` says more about a
    wrong element there. `decided(*arguments)` is False where rounding alone may decide on a result, such as which of
    two values is the larger; then other numbers are drawn. Where the usual sizes do not fit, or miss typical cases,
    `sizes_to_check` lists others, small ones first: a dictionary of the sizes that are not derived for each case. The
    first of them are those of the hostile values too. Beside them, `draw_sizes(rng)` draws small sizes at random, and
    `large_sizes` lists some above 65,536 in one direction; a Python loop should do each in a second.

    For timing: `flops(**sizes)` counts; it is None where a time would say nothing. `sizes_to_time("cpu")`, or "gpu",
    are the sizes that are taken unless others are asked for.
    """

    name: str
    formula: str
    contract: str
    truth: Callable[..., Any]
    flops: Callable[..., int] | None
    equation: str = ""  # its number in the handout
    output: str = "overwritten"
    tolerance: float = 8.0
    magnitude: Callable[..., Any] | None = None
    values: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    hostile: tuple[str, ...] = ("zeros", "large", "infinite")
    advice: Callable[..., str] | None = None
    decided: Callable[..., bool] | None = None
    sizes_to_check: Sequence[Sizes] = ()
    draw_sizes: Callable[[np.random.Generator], Sizes] | None = None
    large_sizes: Sequence[Sizes] = ()
    sizes_to_time: Callable[[str], Sizes] | None = None  # from "cpu" or "gpu"
    whole_epoch: bool = False  # computes an epoch of training at once: a backend may do without it
    fuses: tuple[str, ...] = ()  # operations that it does at once: where you choose a kernel for one, it is left out
    kernels: dict[str, Kernel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            self.shapes = contracts.parse(self.contract)
        except CourseError as error:
            raise CourseError(f"{self.name}: {error}") from None
        if self.magnitude is None:
            self.magnitude = lambda *arguments: self.truth(*map(np.abs, arguments))
        unknown = set(self.hostile) - set(HOSTILE) | {self.output} - set(OUTPUTS)
        unknown |= set(self.values) - set(self.names)
        if (self.draw_sizes or self.large_sizes) and not self.sizes_to_check:
            raise CourseError(f"{self.name}: wanted sizes_to_check beside draw_sizes and large_sizes; got none")
        if unknown:
            wanted = "arguments, hostile values and an output that are known"
            raise CourseError(f"{self.name}: wanted {wanted}; got {', '.join(sorted(unknown))}")

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        return self.shapes.arguments

    @cached_property
    def results(self) -> tuple[Argument, ...]:
        return self.shapes.results

    @cached_property
    def result(self) -> Argument:
        """The first result, which most operations have alone."""
        return self.shapes.results[0]

    @cached_property
    def in_place(self) -> bool:
        """True where kernels change arguments and make no new array."""
        return not self.shapes.new

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The arguments' names."""
        return self.shapes.names

    @cached_property
    def size_names(self) -> tuple[str, ...]:
        """The sizes that the contract speaks of, each once, derived ones last: ("batch", "n_in", "n_out")."""
        return self.shapes.size_names

    @property
    def letters(self) -> tuple[str, ...]:
        """The name that size_names had before version 0.2."""
        return self.size_names

    @cached_property
    def cuda_arguments(self) -> tuple[str, ...]:
        """What a CUDA function takes: arguments, new results, sizes, each once. A, W, b, Z, batch, n_in, n_out."""
        arrays = [name for name in self.names if name not in self.size_names]
        return tuple(dict.fromkeys([*arrays, *(result.name for result in self.shapes.new), *self.size_names]))

    def kernel(
        self, name: str, device: str, compiled: bool = False, written: Callable[..., Any] | None = None, **options: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: register the function below as kernel `name`. `compiled` lets Numba compile it at its first call.

        `written` is the function to show to readers where the one below only wraps it, as in activations.py.
        The other options are those of Kernel.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            code = (written or function).__code__
            where = f"{_short(Path(code.co_filename))}:{code.co_firstlineno}"
            call = jit.at_first_call(lambda: jit.jit(function)) if compiled else function
            self._add(self.made(name, device, where, call, **options))
            return function

        return register

    def made(self, name: str, device: str, where: str, function: Callable[..., Any] | None, **options: Any) -> Kernel:
        """A Python kernel of this operation, which is not registered."""
        return Kernel(self, name, device, where, function, **options)

    @property
    def python_devices(self) -> Mapping[str, str]:
        """The names that Python kernels of students may have here, each with its device."""
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
        """Register a `__global__` function of a .cu text, <operation>_<kernel> unless it is named, as kernel `name`.

        It takes `cuda_arguments`. `block` counts threads in x, y; each thread computes one element of the first result,
        unless `tile` says how many elements a block computes. Networks get the kernel with `default=True`, else the
        last one. The other options are those of CudaKernel.
        """
        function = function or f"{self.name}_{name}"
        if function not in kernels_in(source):
            raise CourseError(f"{source.file}: wanted a kernel {function}; there are {', '.join(kernels_in(source))}")
        block = (block,) if isinstance(block, int) else tuple(block)
        where = f"{source.file}:{line_of(source, function)}"
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
            raise CourseError(f"{self.name}: wanted one of its kernels {', '.join(self.kernels)}; got {name!r}")
        return self.kernels[name]

    def check(
        self,
        kernel: str | Kernel | Callable[..., Any],
        device: str | None = None,
        seed: int | None = None,
        sandbox: tuple[str, ...] = (),
    ) -> Verdict:
        """Compare a kernel (its name, a Kernel, or any Python function of the arguments) with the float64 truth.

        CUDA kernels run on the GPU where there is one, else under the emulator, which finds races too;
        `device="emulator"` asks for the latter. What is tried is told in cases.py. Numbers are new without a `seed`.
        """
        return checker.check(self, self.kernel_of(kernel, device), device, seed, sandbox)

    def runner(self, kernel: Kernel, device: str) -> checker.Runner:
        """What runs a kernel in this process on the cases of one check; another where kernels are called otherwise."""
        return partial(checker.run_here, self, kernel, device, checker.Memory())

    def kernel_of(self, kernel: str | Kernel | Callable[..., Any], device: str | None = None) -> Kernel:
        """The kernel of that name, the kernel itself, or a function as one; the function's name becomes its name."""
        if isinstance(kernel, str):
            return self[kernel]
        if isinstance(kernel, Kernel):
            return kernel
        return self.made(getattr(kernel, "__name__", "kernel"), device or "cpu", "", kernel)

    def sizes(self, *arguments: Any) -> Sizes:
        """The contract's sizes for these arguments; CourseError where these do not agree with it."""
        return self.shapes.sizes(arguments, self.name)

    def place(self, named: Argument, index: tuple[int, ...], arguments: tuple[Any, ...]) -> str:
        """An element of a result in words, as verdicts name it: Z[0, 2]."""
        return f"{named.name}[{', '.join(map(str, index))}]" if index else named.name

    def count(self, *arguments: Any) -> tuple[int, int]:
        """FLOPs of the equation for these arguments, and the fewest bytes it has to read and write."""
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
        kernels = [f"  {kernel}" for kernel in self.kernels.values()]
        return "\n".join([f"{title}: {self.formula}", f"  {self.contract}", *cuda, *kernels])

    __repr__ = __str__


def _short(file: Path) -> str:
    """The file as a reader finds it: kernels/dense.py in this package, else its name and its folder's."""
    return file.relative_to(PACKAGE).as_posix() if file.is_relative_to(PACKAGE) else "/".join(file.parts[-2:])


def cuda_beside(python_file: str, *defines: str, before: tuple[CudaSource, ...] = ()) -> CudaSource:
    """The .cu text beside a topic's Python file; `defines` are constants for it, such as "ALPHA=0.01f"."""
    return CudaSource.read(Path(python_file).with_suffix(".cu"), defines, before)
