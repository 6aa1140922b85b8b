"""What CuPy does for you: a training step as a CUDA C++ program with its own host side, part by part.

host_side.show()                            # each part of nb08_host_side.cu, with blanks, and what CuPy does instead
host_side.fill(…)                           # lines for the blanks: is the program right with them?
host_side.run(block=2048)                   # more threads per block than a GPU allows: the program stops with a message
host_side.run(block=2048, checked=False)    # the same, ignoring CUDA's error codes

If there are a GPU and nvcc, nvcc compiles the program; otherwise it is emulated on the CPU.
"""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from cuda_on_cpu.errors import MissingToolError
from cuda_on_cpu.host_program import nvcc, program_for
from cuda_on_cpu.text import CudaSource
from nnclassroom.pages import page
from nncourse import device
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.kernels.dense_epoch import random_targets
from nncourse.model.network import Network, make_network, training_step

SOURCE = CudaSource.read(Path(__file__).with_suffix(".cu"))
SIZES, BATCH, RATE = (30, 10), 50, 0.5
MOST_SECONDS = 60
BLANKS = {  # what the lines of the program that a student writes begin with, and what is given of each
    "CHECK(cudaMemcpy(there,": "CHECK(cudaMemcpy(____, ____, here.size() * sizeof(float), ____));",
    "CHECK(cudaMemcpy(here.": "CHECK(cudaMemcpy(____, ____, here.size() * sizeof(float), ____));",
    "dense_forward<<<": "dense_forward<<<____, ____>>>(x, w, c, z, batch, n, m);",
    "sigmoid<<<": "sigmoid<<<____, ____>>>(z, a, batch * m);",
    "weight_gradient<<<": "weight_gradient<<<____, ____>>>(d, x, dw, batch, m, n);",
}
NOT_RUN = -1  # the status of a program that has blanks, or does not compile
LARGE = 200  # samples: a block cannot have a thread for each of their outputs
PART = re.compile(r"^ *// ---- (.+)\n", re.MULTILINE)
WITH_CUPY = (  # for each part of the program, in order
    "CuPy looks at the code of every call, and raises an exception with its name.",
    'The same text, with extern "C" before each: cupy.RawKernel(text, name). NVRTC compiles it while Python '
    "runs, and CuPy keeps the result.",
    "X = np.fromfile(…), or a data set. A NumPy array knows its shape and type; a pointer knows neither.",
    "cupy.empty(count, np.float32). CuPy keeps a pool: it seldom has to ask CUDA for memory.",
    "cupy.asarray(X): room for it and the copy in one, in the right direction and with the right length.",
    "array.get()",
    "The same sum, in Python. `%%cuda` makes it from the size of the result and `--block`.",
    "x, y, w, c = map(cupy.asarray, (X, Y, W, b)). The result of an array expression needs no room made beforehand.",
    "kernel(grid, block, (x, w, c, z, np.int32(batch), …)), with a tuple for the grid and one for the block. In the "
    "course it is backend.dense_forward(A, W, b), which looks at types, shapes and devices before it launches.",
    "array.get() waits for all that was queued before it. An error of a kernel is an exception there.",
    "W, b = w.get(), c.get()",
    "Nothing: an array that no name refers to goes back to the pool.",
)


@dataclass(frozen=True)
class Run:
    """The end of a run: `status` 0 and the `parameters` after the step, or the message in `said`. NOT_RUN without one.

    `where` names the device. `right`: the parameters equal those after the package's own step. `moved`: they changed.
    """

    where: str
    status: int
    said: str
    parameters: np.ndarray | None
    right: bool
    moved: bool

    def __str__(self) -> str:
        if self.status == NOT_RUN:
            return f"✗ {self.said}" if self.said else "○ open: put something for each ____"
        if self.status:
            words = f"✗ It stopped with status {self.status}: {self.said}"
        elif self.right:
            words = "✓ It ended with status 0, and W and b are those of the package's training step, to rounding."
        else:
            moved = "they have other values" if self.moved else "none of them has moved"
            words = (
                "✗ It ended with status 0 and said nothing. But W and b are not those of the package's training step"
            )
            words += f": {moved}."
        return f"{words}\n  {self.where}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *more = str(self).splitlines()
        small = "".join(f"<br><small>{escape(line)}</small>" for line in more)
        return page(escape(first) + small, "right" if self.right else "" if first.startswith("○") else "wrong")


@dataclass(frozen=True)
class Page:
    """The parts of the program, each with what CuPy does instead."""

    parts: tuple[tuple[str, str], ...]  # name, text

    def __str__(self) -> str:
        parts = zip(self.parts, WITH_CUPY, strict=True)
        said = [f"---- {name}\n{text}\n  with CuPy: {with_cupy}" for (name, text), with_cupy in parts]
        return "\n\n".join(said)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        cell = 'style="text-align:left;vertical-align:top;background:none;padding:.3em .7em"'
        head = f"<tr><th {cell}>part</th><th {cell}>in C++</th><th {cell}>with CuPy</th></tr>"
        rows = "".join(
            f'<tr><th {cell} scope="row">{escape(name)}</th><td {cell}><pre style="margin:0">{escape(text)}</pre></td>'
            f"<td {cell}>{escape(with_cupy)}</td></tr>"
            for (name, text), with_cupy in zip(self.parts, WITH_CUPY, strict=True)
        )
        return f"<table>{head}{rows}</table>"


def show() -> Page:
    """The program with its blanks, part by part beside what CuPy does instead."""
    return Page(parts(with_lines(BLANKS.values())))


def fill(*lines: str) -> Run:
    """Run the program with these lines in its blanks, in the order of BLANKS: twice, the second time with blocks of one
    thread and with more samples. Returns the run that fails, or the first.

    Raises CourseError for another number of lines.
    """
    if len(lines) != len(BLANKS):
        raise CourseError(f"expected {len(BLANKS)} lines, one for each blank; got {len(lines)}")
    if any("____" in line for line in lines):
        return Run("", NOT_RUN, "", None, right=False, moved=False)
    source = with_lines(lines)
    try:
        runs = [run(source=source), run(block=1, source=source, batch=LARGE)]
    except MissingToolError:
        raise
    except CourseError as error:  # it does not compile
        return Run("", NOT_RUN, str(error), None, right=False, moved=False)
    return next((each for each in runs if not each.right), runs[0])


def with_lines(lines: Iterable[str]) -> CudaSource:
    """The program with other lines in the places of BLANKS."""
    texts = SOURCE.text.split("\n")
    for start, line in zip(BLANKS, lines, strict=True):
        (number,) = [place for place, each in enumerate(SOURCE.text.split("\n")) if each.strip().startswith(start)]
        texts[number] = f"    {line}"
    return CudaSource("\n".join(texts), SOURCE.file)


def parts(source: CudaSource = SOURCE) -> tuple[tuple[str, str], ...]:
    """Name and text of each part of the program."""
    _, *pieces = PART.split(source.text)
    return tuple((name, text.strip("\n")) for name, text in zip(pieces[::2], pieces[1::2], strict=True))


def why_not_on_gpu() -> str:
    """Why the program cannot run on a GPU here, in a few words; "" if it can."""
    if not device.gpu_available():
        return "no GPU here"
    return "" if nvcc() else "no nvcc here"


def run(block: int = 256, checked: bool = True, source: CudaSource | None = None, batch: int = BATCH) -> Run:
    """Compile the program unless that was done before, run it, and compare the result with the package's training step.

    block: threads per block. checked: whether the program checks the codes that CUDA's calls return. source: a program
        with other lines. batch: samples.
    """
    if block < 1:
        raise CourseError(f"expected at least 1 thread a block, got {block}")
    why_not = why_not_on_gpu()
    for_gpu = () if why_not else (True, "-arch=native")
    program = program_for(source or SOURCE, () if checked else ("UNCHECKED",), *for_gpu)
    network, X, Y = _problem(batch)
    before = network.flat_parameters.copy()
    sizes = map(str, (batch, *SIZES, RATE, block))
    numbers = b"".join(array.tobytes() for array in (X, Y, before))
    try:
        done = subprocess.run([program, *sizes], input=numbers, capture_output=True, timeout=MOST_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CourseError(f"{SOURCE.file}: the compiled program cannot be run: {error}") from None
    training_step(network, X, Y, RATE, choose("numpy"))
    where = f"on the CPU, emulated: {why_not}" if why_not else f"on {device.describe('gpu')}, compiled by nvcc"
    lines = done.stderr.decode(errors="replace").splitlines()
    said = next((line.strip() for line in lines if line.strip("= ")), "")  # AddressSanitizer begins with =====
    found = np.frombuffer(done.stdout, np.float32) if done.returncode == 0 else None
    right = moved = False
    if found is not None and found.shape == before.shape:
        right = bool(np.allclose(found, network.flat_parameters, rtol=1e-5, atol=1e-6))
        moved = not np.array_equal(found, before)
    return Run(f"{where}; {block} thread{'s' * (block > 1)} a block", done.returncode, said, found, right, moved)


def _problem(batch: int) -> tuple[Network, np.ndarray, np.ndarray]:
    """The network before the step, samples and targets."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((batch, SIZES[0]), dtype=np.float32)
    return make_network(SIZES, cost="binary_cross_entropy"), X, random_targets(rng, (batch, SIZES[-1]))
