"""An examination: exercises from the instructor's file, on operations that need not be in the package.

    title = "Midterm"
    minutes = 90                        # from the first answer on; may be left out

    [[operation]]                       # see nnclassroom/exercises/exam_operations.py
    …

    [[exercise]]
    operation = "running_mean"
    kernel = "numpy"                    # loops, numpy, numba, cupy; any other name is a kernel in CUDA C
    points = 2
    question = "Write … without a loop."
    stub = '''
    def running_mean(x, k):
        raise NotImplementedError
    '''
    sample = [{ arguments = [[1.0, 2.0, 3.0], 2], result = [1.5, 2.5] }]     # may be left out
    answer = '''…'''                  # yours, which is judged when the examination is made; may be left out
    choice = "means"                    # each variant has one of the exercises of this choice; may be left out

questions() is what students get of it: everything but the references and your answers.
"""

import ast
import functools
import json
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nnclassroom.exercises import exam_operations, kept_kernels
from nnclassroom.exercises.hints import Exercise
from nnclassroom.judge.cases import KINDS, VALUES
from nnclassroom.notebook import cuda_cell
from nncourse.errors import CourseError, decoded, refuse_unknown
from nncourse.kernels.operation import Operation

OPTIONS = ("points", "question", "sample", "answer", "choice")  # of an exercise
QUESTIONS = "exam.json"  # what students get, beside the notebook


@dataclass(frozen=True)
class Question:
    """One exercise of an examination."""

    operation: str
    kernel: str
    stub: str
    points: float = 1.0
    question: str = ""
    sample: tuple[dict[str, Any], ...] = ()
    answer: str = ""
    choice: str = ""

    @property
    def key(self) -> str:
        return f"{self.operation}.{self.kernel}"


@dataclass(frozen=True)
class Exam:
    """An examination, and the text of its file, which defines its operations."""

    title: str
    text: str
    questions: tuple[Question, ...]
    minutes: float = 0.0

    def variant(self, number: int) -> "Exam":
        """The examination of a student: of each choice one exercise, another for each number from 1."""
        choices = dict.fromkeys(each.choice for each in self.questions if each.choice)
        chosen = [own[(number - 1) % len(own)] for own in map(self._of, choices)]
        return replace(self, questions=tuple(each for each in self.questions if not each.choice or each in chosen))

    def asked(self, answered: Collection[str]) -> set[str]:
        """The keys of the exercises that a student was asked, who answered those: of each choice the one answered."""
        keys = {each.key for each in self.questions if not each.choice}
        for choice in {each.choice for each in self.questions if each.choice}:
            own = [each.key for each in self._of(choice)]
            keys.add(next((key for key in own if key in answered), own[0]))
        return keys

    def _of(self, choice: str) -> list[Question]:
        return [each for each in self.questions if each.choice == choice]

    @property
    def exercises(self) -> tuple[Exercise, ...]:
        """Its questions as exercises of one notebook."""
        return tuple(Exercise(self.title, each.operation, each.kernel, ()) for each in self.questions)


def read(path: Path) -> Exam:
    """The examination in a file. CourseError says what is missing or wrong."""
    try:
        text = decoded(path.read_bytes())
    except (OSError, UnicodeDecodeError):
        raise CourseError(f"{path}: expected an examination as TOML in UTF-8; it cannot be read") from None
    try:
        exam_operations.operations_of(text)
        found = tuple(_question(entry, text) for entry in exam_operations.entries(text, "exercise"))
        title, minutes = exam_operations.title_of(text) or path.stem, exam_operations.minutes_of(text)
    except CourseError as error:
        raise CourseError(f"{path}: {error}") from None
    keys = [question.key for question in found]
    if not keys or len(set(keys)) < len(keys):
        raise CourseError(f"{path}: expected [[exercise]] tables, each operation and kernel once")
    return Exam(title, text, found, minutes)


def _question(entry: dict[str, Any], text: str) -> Question:
    what = f"exercise {entry.get('operation')} ({entry.get('kernel')})"
    exam_operations.texts_in(entry, ("operation", "kernel", "stub"), OPTIONS, what)
    operation = exam_operations.find(entry["operation"], text)
    if not entry["kernel"].isidentifier():
        raise CourseError(f"{what}: expected a kernel's name of letters, digits and _")
    points = entry.get("points", 1)
    if type(points) not in (int, float) or not 0 <= points < math.inf:
        raise CourseError(f"{what}: expected points as a number from 0; got {points!r}")
    _refuse_stub(operation, entry["kernel"], entry["stub"].strip("\n"), what)
    sample = entry.get("sample", [])
    count = len(operation.arguments)
    for each in sample if isinstance(sample, list) else [{}]:
        fits = isinstance(each, dict) and set(each) == {"arguments", "result"} and isinstance(each["arguments"], list)
        if not fits or len(each["arguments"]) != count:
            raise CourseError(f"{what}: expected a sample as {{ arguments = [… {count} of them …], result = … }}")
        _refuse_wrong_sample(operation, each, what)
    for key in ("question", "answer", "choice"):
        if not isinstance(entry.get(key, ""), str):
            raise CourseError(f"{what}: expected {key} as text; got {entry[key]!r}")
    question, answer = entry.get("question", "").strip(), entry.get("answer", "").strip("\n")
    about = (float(points), question, tuple(sample), answer, entry.get("choice", "").strip())
    return Question(operation.name, entry["kernel"], entry["stub"].strip("\n"), *about)


def refuse_wrong_answers(given: Exam) -> list[str]:
    """Judge the file's own answers, and raise CourseError for one that is not right.

    Returns a line for each that cannot be judged on this machine.
    """
    said = []
    for each in given.questions:
        if not each.answer:
            continue
        launch, text = None, each.answer + "\n"
        if is_cuda(each.kernel):
            line = launch_line(replace(each, stub=each.answer if each.answer.startswith("%%cuda") else each.stub))
            operation = exam_operations.find(each.operation, given.text)
            launch = cuda_cell.launch_options(operation, cuda_cell.parsed(line))
            text = text.partition("\n")[2] if text.startswith("%%cuda") else text
        verdict = kept_kernels.check(each.operation, each.kernel, text, launch, definitions=given.text)
        if verdict.kind == "cannot be checked":
            said.append(f"{each.key}: its answer is not judged here: {verdict.line}")
        elif not verdict:
            raise CourseError(f"{each.key}: the file's own answer is not right: {verdict.line.splitlines()[0]}")
    return said


def tried(operation: Operation) -> str:
    """What values an answer is tried on, for the student's page."""
    kinds = [VALUES[kind] for name in operation.trial.edge_cases for kind in KINDS[name]]
    if not kinds:
        return "Your answer is tried on ordinary numbers: no infinities, no NaN, nothing very large."
    return f"Your answer is tried on ordinary numbers, and on: {', '.join(dict.fromkeys(kinds))}."


def launch_line(question: Question) -> str:
    """The text after %%cuda for a stub in CUDA C: from its own first line, else only operation and kernel."""
    first = question.stub.partition("\n")[0]
    own = first.removeprefix("%%cuda").strip() if first.startswith("%%cuda") else ""
    return own or f"{question.operation} {question.kernel}"


def _refuse_stub(operation: Operation, kernel: str, stub: str, what: str) -> None:
    """CourseError for a stub that no student could complete: invalid Python, or a CUDA kernel with other parameters."""
    if not is_cuda(kernel):
        try:
            names = [node.name for node in ast.parse(stub).body if isinstance(node, ast.FunctionDef)]
        except SyntaxError as error:
            raise CourseError(f"{what}: its stub is not Python: {error}") from None
        if names != [operation.name]:
            raise CourseError(f"{what}: expected a stub with one function {operation.name}; got {names}")
        return
    line = launch_line(Question(operation.name, kernel, stub))
    body = stub.partition("\n")[2] if stub.startswith("%%cuda") else stub
    options = cuda_cell.parsed(line)
    if (options.operation, options.kernel) != (operation.name, kernel):
        raise CourseError(f"{what}: its stub begins with %%cuda {line}")
    kept_kernels.build(operation, kernel, body, cuda_cell.launch_options(operation, options))


def _refuse_wrong_sample(operation: Operation, sample: dict[str, Any], what: str) -> None:
    """CourseError for an example that does not agree with the reference."""
    try:
        found = operation.reference(*arguments_of(operation, sample["arguments"], np.float64))
        right = agree(found, sample["result"], len(operation.results))
    except Exception as error:  # the instructor's text may raise anything
        raise CourseError(f"{what}: the reference of its sample {sample['arguments']}: {error}") from None
    if not right:
        raise CourseError(f"{what}: its sample {sample['arguments']} says {sample['result']}, its reference {found}")


def arguments_of(operation: Operation, values: list[Any], floats: type = np.float32) -> list[Any]:
    """A sample's arguments as a kernel takes them."""
    pairs = zip(operation.arguments, values, strict=True)
    kinds = {"int": np.int32, "float": floats}
    return [np.array(v, kinds[a.kind]) if a.dims else int(v) if a.is_size else float(v) for a, v in pairs]


def agree(got: Any, wanted: Any, count: int) -> bool:
    """Whether a result, or each of several, agrees with a sample, in shape and to a few digits."""
    pairs = zip(got, wanted, strict=True) if count > 1 else [(got, wanted)]
    return all(np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in pairs)


def questions(given: Exam) -> str:
    """What students get, as JSON: contracts and stubs, and samples where there are some; no references."""
    entries = []
    for each in given.questions:
        operation = exam_operations.find(each.operation, given.text)
        about = {"formula": operation.formula, "contract": operation.contract, "output": operation.output}
        entries.append(
            {"operation": each.operation, "kernel": each.kernel, **about, "sample": list(each.sample)}
            | {"stub": each.stub, "question": each.question, "points": each.points}
        )
    exam = {"title": given.title, "minutes": given.minutes, "exercise": entries}
    return json.dumps(exam, indent=1, ensure_ascii=False) + "\n"


def is_cuda(kernel: str) -> bool:
    """Whether a kernel of this name is written in CUDA C."""
    return kernel not in kept_kernels.PYTHON_DEVICES


def minutes(text: str) -> float:
    """The minutes in the text that questions() made; 0 without a limit."""
    return float(json.loads(text).get("minutes", 0))


@functools.lru_cache(maxsize=4)
def asked(text: str) -> dict[str, dict[str, Any]]:
    """The exercises in the text that questions() made, by key. CourseError if it is something else."""
    try:
        entries = json.loads(text)["exercise"]
        return {f"{entry['operation']}.{entry['kernel']}": entry for entry in entries}
    except (ValueError, KeyError, TypeError):
        raise CourseError(
            f"expected the examination's {QUESTIONS}, but it is damaged: take it from the .zip again"
        ) from None


def question(text: str, operation: str, kernel: str) -> dict[str, Any]:
    """One exercise of the text that questions() made; CourseError lists those there are."""
    known = asked(text)
    refuse_unknown("an exercise of this examination", f"{operation}.{kernel}", known)
    return known[f"{operation}.{kernel}"]
