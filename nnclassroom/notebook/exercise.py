"""Exercises: a kernel that the student writes in a notebook is open, wrong or right; a right one is kept.

    @exercise("sigmoid", kernel="numpy")        %%cuda sigmoid naive --block 256
    def sigmoid(z):                             extern "C" __global__ void sigmoid(const float* z, float* a, int n) {
        raise NotImplementedError               }

Each defines an Answer in the notebook: `sigmoid` for the function, `sigmoid_naive` for the CUDA cell. The text is
checked in other processes, so that a crash or hang cannot affect the notebook.
"""

import ast
import contextlib
import html
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cuda_on_cpu.nvrtc import warnings as compiler_warnings
from cuda_on_cpu.nvrtc import why_no_nvrtc
from nnclassroom import timing
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.solutions import solution_text
from nnclassroom.judge import worker
from nnclassroom.judge.python_text import tree
from nnclassroom.judge.verdict import OPEN, UNCHECKED, Verdict
from nnclassroom.notebook import cuda_cell, python_cell
from nnclassroom.notebook.waiting import Line, waiting
from nnclassroom.pages import page
from nncourse import device as devices
from nncourse.cuda.compile import resources
from nncourse.errors import CourseError, refuse_unknown
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

SLOW_LOOP = 5.0  # a numpy kernel with a loop gets a note if it takes so many times as long as the course's
MOST_WARNINGS = 3  # of the compiler, that are shown
# Texts with these verdicts are not run in the notebook's process.
NOT_HERE = ("build", "launch", "compile", "crash", "forbidden", "time limit")
SIGNS = {"open": "○", "wrong": "✗", "right": "✓"}


@dataclass(frozen=True)
class Outcome:
    """The outcome of an exercise: the state "open", "wrong" or "right", a message, and times if it was timed."""

    state: str
    line: str
    notes: tuple[str, ...] = ()
    table: timing.Table | None = None

    def __str__(self) -> str:
        below = [*self.notes, *([self.table.in_one_line] if self.table else [])]
        return "\n".join([f"{SIGNS[self.state]} {self.line}", *(f"  {each}" for each in below)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.html()

    def html(self, folded: bool = True) -> str:
        """The verdict, the notes and the table of times, by default in a fold below its line."""
        first, *excerpt = self.line.splitlines()
        code = f"<pre>{html.escape(chr(10).join(excerpt))}</pre>" if excerpt else ""
        notes = "".join(f"<br><small>{html.escape(note)}</small>" for note in self.notes)
        body = f"{SIGNS[self.state]} {html.escape(first)}{code}{notes}"
        if self.table is None:
            return page(body, self.state)
        if not folded:
            return page(body, self.state) + self.table._repr_html_()
        summary = f"<summary><small>{html.escape(self.table.in_one_line)}</small></summary>"
        return page(f"{body}<details>{summary}{self.table._repr_html_()}</details>", self.state)


@dataclass(frozen=True, repr=False)
class Answer:
    """The result of an exercise in the notebook. Calling it calls your kernel if it is right, otherwise the course's.

    `attempt` is your own kernel, right or not (the course's while the exercise is open). If it failed, `case` holds the
    arguments: attempt(*case) reproduces the failure.
    """

    kernel: Kernel
    attempt: Kernel
    outcome: Outcome
    case: tuple[Any, ...] | None = None

    def __call__(self, *arguments: Any) -> Any:
        return self.kernel(*arguments)

    def __repr__(self) -> str:
        return f"{self.kernel.operation.name} ({self.kernel.name}) from {self.kernel.where}"


def exercise(operation: str, kernel: str) -> Callable[[Callable[..., Any]], Answer]:
    """Decorator for the student's kernel of an operation: it is checked, timed and kept.

    operation: its name.
    kernel: loops, numpy, numba or cupy.

    Returns an Answer in the place of the function: your kernel if it is right, otherwise the course's.
    Raises CourseError for an unknown operation or kernel, and for a function whose text cannot be read.

    >>> @exercise("relu", kernel="numpy")
    ... def relu(z):
    ...     raise NotImplementedError
    ○ relu (numpy): open. The course goes on with its own kernel.
    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    chosen = find(operation)
    refuse_unknown("a kernel", kernel, chosen.python_devices)

    def answer(function: Callable[..., Any]) -> Answer:
        text = python_cell.text_of(function, chosen.name)
        return _answer(chosen, kernel, text, python_cell.is_empty(text))

    return answer


def cuda(line: str, body: str) -> Answer:
    """Run a cell `%%cuda OPERATION KERNEL [--block 16,16]`; `line` is the text after %%cuda."""
    options = cuda_cell.parsed(line)
    operation = find(options.operation)
    text = cuda_cell.text_to_keep(line, body)
    launch = cuda_cell.launch_options(operation, options)
    return _answer(operation, options.kernel, text, cuda_cell.is_empty(text), launch)


def _answer(operation: Operation, name: str, text: str, is_open: bool, launch: dict[str, Any] | None = None) -> Answer:
    """Check the text, keep it if it is right, display the outcome."""
    with waiting(f"{operation.name} ({name}): checking") as line:
        answer = _judged_and_kept(operation, name, text, is_open, launch, line)
    line.end(answer.outcome)
    state = answer.outcome.state
    if strict() and (state == "wrong" or (_to_be_solved(operation, name) and state == "open")):
        raise CourseError(answer.outcome.line)
    return answer


def _judged_and_kept(
    operation: Operation, name: str, text: str | None, is_open: bool, launch: dict[str, Any] | None, line: Line
) -> Answer:
    """The answer; a right one is timed and kept. The line says what is being done."""
    course = _course_kernel(operation, name, cuda=bool(launch))
    to_solve = _to_be_solved(operation, name)
    solved = to_solve and name in operation.kernels
    if solved:
        text, is_open = None, False
    attempt, verdict = (None, None) if is_open else judged(operation, name, text, launch)
    if verdict is not None and not solved:
        kept_kernels.note_attempt(operation, name, verdict)
    if verdict is None:
        kept = _kept(operation, name)
        words = (
            "open in this cell. Your kept kernel is still used."
            if kept
            else "open. The course goes on with its own kernel."
        )
        outcome = Outcome("open", f"{operation.name} ({name}): {words}")
        answer = Answer(kept or course, kept or course, outcome)
    elif verdict:
        if _is_timed(operation, name, launch):
            line.words = f"{SIGNS['right']} {verdict.line}. Timing it and others to compare, at most about 20 s"
        assert attempt  # what is right can be called
        table, notes = timed(operation, name, text, launch, attempt)
        warnings: list[str] = []
        if isinstance(attempt, CudaKernel) and not why_no_nvrtc():
            warnings += list(compiler_warnings(attempt.source))[:MOST_WARNINGS]
        no_loop = _no_loop(operation, name, text)
        notes = warnings + notes + _slow_loop(operation, name, text, table) + no_loop
        if text is not None:
            # The first row is the student's kernel. The time of another idea is nothing to compare loops with.
            own = table.rows[0].seconds if table and not no_loop else None
            faster = kept_kernels.keep(operation, name, text, launch, own, table.title if table else "")
            if faster and own and table and not table.rows[0].note:  # which says why a time is unreliable
                times = f"{timing.duration(faster)} against {timing.duration(own)}"
                notes.append(f"Your kept kernel was faster: {times}; this one takes its place.")
            notes.append(f"Kept as {kept_kernels.file_name(operation, name, launch)}.")
            attempt = replace(attempt, whose="yours")
        answer = Answer(attempt, attempt, Outcome("right", verdict.line, tuple(notes), table))
    elif verdict.kind == UNCHECKED:
        answer = Answer(kept := _kept(operation, name) or course, kept, Outcome("open", verdict.line))
    else:
        kept = _kept(operation, name)
        goes_on = (
            "Your earlier correct kernel is still kept and used" if kept else "The course goes on with its own kernel"
        )
        shown = attempt and replace(attempt, whose="yours, wrong")
        nowhere = "" if shown else "; .attempt is the course's too, since your version cannot run"
        more = (f'Stuck? hint("{operation.name}", "{name}")', f"Not kept. {goes_on}{nowhere}.")
        outcome = Outcome("wrong", verdict.line, (*filter(None, [verdict.numbers]), *more))
        answer = Answer(kept or course, shown or course, outcome, verdict.case.arguments if verdict.case else None)
    return answer


def judged(
    operation: Operation, name: str, text: str | None, launch: dict[str, Any] | None
) -> tuple[Kernel | None, Verdict | None]:
    """The kernel, and the verdict of its check; both None for a stub that raises NotImplementedError.

    The kernel is also None if its text cannot be run here.
    """
    try:
        kernel = kept_kernels.build(operation, name, text, launch) if launch or text is None else None
        verdict = kept_kernels.judged(operation, name, text, launch)
        if verdict.kind == OPEN:
            return None, None
    except CourseError as error:
        return None, kept_kernels.refused(operation, name, launch, error)
    if kernel is None and verdict.kind not in NOT_HERE:
        with contextlib.suppress(CourseError):  # the verdict says why it cannot be built
            kernel = kept_kernels.build(operation, name, text, launch)
    return kernel, verdict


def _is_timed(operation: Operation, name: str, launch: dict[str, Any] | None) -> bool:
    """Whether a kernel of this name is timed on this machine."""
    on_gpu = bool(launch) or operation.python_devices.get(name) == "gpu"
    return operation.flops is not None and (devices.gpu_available() or not on_gpu)


def timed(
    operation: Operation, name: str, text: str | None, launch: dict[str, Any] | None, kernel: Kernel | None
) -> tuple[timing.Table | None, list[str]]:
    """The table of times and notes. The table is None if the operation is not timed or its device is missing."""
    notes: list[str] = []
    if operation.flops is None:
        return None, notes
    try:
        if isinstance(kernel, CudaKernel) and (devices.gpu_available() or why_no_nvrtc() is None):
            notes.append(_resources_in_words(kernel))
        if not _is_timed(operation, name, launch):
            return None, [
                f"Checked {'on the CPU emulator' if launch else 'with NumPy'}, not timed: no GPU here.",
                *notes,
            ]
        return worker.call(timing.compare_text, operation.name, name, text, launch, seconds=timing.TIMING_LIMIT), notes
    except Exception as error:  # a GPU without free memory raises CuPy's, and a right answer stays right
        worker.end()
        if strict():
            raise
        said = str(error) if isinstance(error, CourseError) else f"{type(error).__name__}: {error}"
        return None, [*notes, f"Right, but not timed: {said}"]


def _resources_in_words(kernel: CudaKernel) -> str:
    """A sentence on a CUDA kernel's registers and memory."""
    need = resources(kernel.source, kernel.entry)
    spilt = f", {need.spill_bytes} bytes of local memory a thread" if need.spill_bytes else ""
    return f"{need.registers} registers a thread, {need.shared_bytes} bytes of shared memory a block{spilt}."


def _slow_loop(operation: Operation, name: str, text: str | None, table: timing.Table | None) -> list[str]:
    """A note for a numpy kernel with a loop in Python, if it is much slower than the course's, which has none."""
    if name not in ("numpy", "cupy") or table is None or text is None:
        return []
    course = next((row.seconds for row in table.rows[1:] if row.kernel == name and row.seconds), None)
    own = table.rows[0].seconds
    if not (course and own and own > SLOW_LOOP * course):
        return []
    if not _has_loop(text) or _has_loop(solution_text(operation.name, name)):
        return []
    return [f"Right, but {own / course:.0f}× slower than the course's: it loops in Python. Use array expressions."]


def _no_loop(operation: Operation, name: str, text: str | None) -> list[str]:
    """A note for a kernel `loops` that has none, nor a function that calls itself, where `numpy` is for such."""
    if name != "loops" or text is None or "numpy" not in operation.kernels:
        return []
    nodes = list(ast.walk(tree(text)))
    named = {node.name for node in nodes if isinstance(node, ast.FunctionDef)} | {"map"}
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    if named & called or any(isinstance(node, ast.For | ast.While | ast.comprehension) for node in nodes):
        return []
    return ["Right, but it has no loop: this kernel is for loops, and the kernel numpy for array expressions."]


def _has_loop(text: str) -> bool:
    """Whether a text has a loop whose turns may grow with its arrays."""
    nodes = list(ast.walk(tree(text)))
    fors = [node.iter for node in nodes if isinstance(node, ast.For | ast.comprehension)]
    return any(isinstance(node, ast.While) for node in nodes) or not all(map(_is_short, fors))


def _is_short(turns: ast.expr) -> bool:
    """Whether what a loop goes through is as long whatever the arrays: a list as written, or an array's axes."""
    match turns:
        case ast.Tuple() | ast.List() | ast.Constant() | ast.Attribute(attr="ndim" | "shape"):
            return True
        case ast.Call(func=ast.Name(id="range" | "zip" | "enumerate" | "reversed" | "len"), args=given):
            return all(map(_is_short, given))
    return False


def _course_kernel(operation: Operation, name: str, cuda: bool) -> Kernel:
    """The package's kernel of that name, otherwise its last one of the same kind (CUDA or Python), or its last one."""
    kernels = [kernel for kernel in operation.kernels.values() if kernel.name != "cudnn"]
    alike = [kernel for kernel in kernels if isinstance(kernel, CudaKernel) == cuda]
    return operation.kernels.get(name) or (alike or kernels)[-1]


def _kept(operation: Operation, name: str) -> Kernel | None:
    """The student's kept kernel, if it is still right."""
    entry = kept_kernels.progress().get(f"{operation.name}.{name}")
    kernel = kept_kernels.load(operation, name, entry) if entry else None
    return replace(kernel, whose="yours") if isinstance(kernel, Kernel) else None


def strict() -> bool:
    """NNCOURSE_STRICT=1, for tests: a fault that is otherwise only shown is raised."""
    return os.environ.get("NNCOURSE_STRICT") == "1"


def _to_be_solved(operation: Operation, name: str) -> bool:
    """NNCOURSE_SOLVE=all or a list of names, for tests: the course's own kernel is the answer to these exercises."""
    chosen = names_to_solve("NNCOURSE_SOLVE", os.environ.get("NNCOURSE_SOLVE", ""))
    return bool({"all", operation.name, f"{operation.name}.{name}"} & chosen)


def names_to_solve(what: str, text: str) -> set[str]:
    """The names in a list such as sigmoid,dense_forward.naive; `what` says in messages where it was.

    Raises CourseError for an unknown name, with which an exercise would silently stay open.
    """
    chosen = set(filter(None, map(str.strip, text.split(","))))
    for entry in sorted(chosen - {"all"}):
        other, _, kernel = entry.partition(".")
        try:
            known = find(other).kernels
            if kernel:
                refuse_unknown(f"a kernel of {other}", kernel, known)
        except CourseError as error:
            raise CourseError(f"{what} has {entry}: {error}") from None
    return chosen
