"""The notebook of an examination: it keeps each answer and says whether the form is right. It has no reference.

    exercise = sit("exam.json")

    @exercise("running_mean", kernel="numpy")       %%cuda running_mean naive --block 256
    def running_mean(x, k):                         extern "C" __global__ void running_mean(…) { … }

An answer of the right form is kept in my_kernels/ beside exam.json, right or wrong: it is judged when it is marked. The
first one starts the clock, where there is a limit.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cuda_on_cpu import program
from nnclassroom.exercises import kept_kernels
from nnclassroom.judge import worker
from nnclassroom.notebook import cuda_cell, exams, python_cell
from nnclassroom.pages import running_ipython
from nncourse.errors import CourseError, decoded, reason_of, refuse_unknown, write_atomically
from nncourse.kernels.kernel import CudaKernel
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

FOLDER = "my_kernels"  # beside the questions, apart from the course's kernels
LIMIT = 60.0  # seconds for the form and the examples


def sit(file: str | Path = exams.QUESTIONS) -> Callable[[str, str], Callable[..., Any]]:
    """The decorator `exercise` of this examination, to which %%cuda in the notebook then belongs too.

    Raises CourseError if the file with the questions cannot be read.
    """
    try:
        text = decoded(Path(file).read_bytes())
    except (OSError, UnicodeDecodeError):
        raise CourseError(
            f"{file}: expected the examination's questions; start the notebook in its own folder"
        ) from None
    exams.asked(text)
    folder = Path(file).absolute().parent / FOLDER

    def exercise(operation: str, kernel: str) -> Callable[..., Any]:
        exams.question(text, operation, kernel)
        refuse_unknown("a kernel", kernel, kept_kernels.PYTHON_DEVICES)

        def answer(function: Callable[..., Any]) -> Callable[..., Any]:
            print(keep(folder, text, operation, kernel, python_cell.text_of(function, operation)))
            return function

        return answer

    def cell(line: str, body: str) -> None:
        options = cuda_cell.parsed(line)
        print(keep(folder, text, options.operation, options.kernel, f"// %%cuda {line.strip()}\n{body}", line))

    if notebook := running_ipython():
        notebook.get_ipython().register_magic_function(cell, "cell", "cuda")
    return exercise


def keep(folder: Path, questions: str, name: str, kernel: str, text: str, line: str = "") -> str:
    """Keep an answer in the folder if its form is right. Returns lines that say so, and the time that is left.

    line: the first line of a %%cuda cell.
    """
    asked = exams.question(questions, name, kernel)
    operation = _operation(asked)
    launch = cuda_cell.launch_options(operation, cuda_cell.parsed(line)) if line else None
    title, path = f"{name} ({kernel})", folder / kept_kernels.file_name(operation, kernel, launch)
    if (cuda_cell if launch else python_cell).is_empty(text):
        return f"○ {title}: open."
    clock = _clock(folder, exams.minutes(questions))
    stays = " Your earlier answer stays." if path.exists() else ""
    try:
        fault = worker.call(examined, questions, name, kernel, text, launch, seconds=LIMIT)
    except CourseError as error:
        kept_kernels.note(folder, f"{name}.{kernel}", "refused")
        return f"✗ {title}: {error}. Not kept.{stays}{clock}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(f"{path.parent}: cannot be made: {reason_of(error)}") from None
    write_atomically(path, lambda new: new.write_text(text, "utf-8"))
    kept_kernels.note(folder, f"{name}.{kernel}", "kept")
    if fault:
        return f"✗ {title}: {fault}. Kept as {path.name} all the same.{clock}"
    said = "its form is right, and the examples give what they should" if asked["sample"] else "its form is right"
    return f"✓ {title}: {said}. Kept as {path.name}; it is judged later.{clock}"


def _clock(folder: Path, minutes: float) -> str:
    """The time that is left since the first answer, as a line of its own; "" without a limit."""
    if not minutes:
        return ""
    try:
        record = json.loads(decoded((folder / kept_kernels.ATTEMPTS).read_bytes()).partition("\n")[0])
        start = datetime.fromisoformat(record["date"])
    except (OSError, ValueError, KeyError, TypeError):
        start = datetime.now(UTC)  # this is the first answer
    left = minutes - (datetime.now(UTC) - start).total_seconds() / 60
    began = f"{start.astimezone():%H:%M}"
    if left < 0:
        return f"\nYou began at {began}: the {minutes:g} minutes were over {-left:.0f} minutes ago; this is recorded."
    return f"\nYou began at {began}: {left:.0f} of {minutes:g} minutes are left."


def examined(questions: str, name: str, kernel: str, text: str, launch: dict[str, Any] | None) -> str:
    """In the worker: build the kernel and try the examples. Returns what is wrong with the first that fails, or "".

    Raises CourseError if the form of the text is wrong.
    """
    asked = exams.question(questions, name, kernel)
    operation = _operation(asked)
    made = kept_kernels.build(operation, kernel, text, launch)
    if isinstance(made, CudaKernel) and not program.why_no_compiler():
        program.program_for(made.source)  # CudaCompileError, which is a CourseError
    for sample in asked["sample"]:
        arguments = exams.arguments_of(operation, sample["arguments"])
        try:
            with np.errstate(all="ignore"):
                result = made(*arguments)
            right = exams.agree(result, sample["result"], len(operation.results))
        except CourseError as error:
            return str(error)
        except Exception as error:  # the student's text may raise anything
            return f"the example {sample['arguments']} raised {type(error).__name__}: {error}"[:300]
        if not right:
            shown = result.tolist() if hasattr(result, "tolist") else result
            return f"the example {sample['arguments']} gives {shown}, expected {sample['result']}"[:300]
    return ""


def _operation(asked: dict[str, Any]) -> Operation:
    """The operation as students know it, without its reference."""

    def unknown(*_: Any) -> None:
        raise CourseError(f"{asked['operation']}: its reference is available only where it is marked")

    name, formula, contract = (asked[name] for name in ("operation", "formula", "contract"))
    trial = Trial(error_scale=unknown)
    return Operation(name, formula, contract, unknown, None, output=asked["output"], trial=trial)
