"""Every exercise's right answer is timed: with a stand-in for a GPU, and on a GPU where there is one.

The stand-in says that a GPU is there, leaves all arrays on the CPU, and computes the reference in place of a CUDA
kernel. Nothing is measured.
"""

import numpy as np
import pytest

from cuda_on_cpu.nvrtc import Resources
from nnclassroom import timing
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import exercises
from nnclassroom.judge import check
from nnclassroom.notebook import cuda_cell, exercise
from nncourse import device
from nncourse.errors import CourseError
from nncourse.kernels.kernel import CudaKernel, Kernel
from tests.exercise_answers import RIGHT

ANSWERS = {f"{right['operation']}-{right['kernel']}": right for right in RIGHT}


@pytest.fixture
def stand_in(monkeypatch):
    """A GPU that is not there, and measurements that take no time."""

    def seconds(work, where="cpu", **_):
        work()
        return 1e-3

    def on_the_cpu(kernel, *arguments, **options):
        if kernel.device == "cpu" or kernel.name == "cupy":
            return call(kernel, *arguments, **options)
        results = check.references_of(kernel.operation, arguments)
        made = [
            np.asarray(value, result.dtype)
            for result, value in zip(kernel.operation.results, results.values(), strict=True)
        ]
        return made[0] if len(made) == 1 else tuple(made)

    call = Kernel.__call__
    monkeypatch.setenv("NNCOURSE_STRICT", "1")
    monkeypatch.setattr(device, "why_no_gpu", lambda: "")
    monkeypatch.setattr(device, "to_device", lambda array, where: np.array(array))
    monkeypatch.setattr(device, "seconds", seconds)
    monkeypatch.setattr(device, "limits", lambda where="cpu": {"copy": 1e12, "matrix": 1e13})
    for kind in (Kernel, CudaKernel):
        monkeypatch.setattr(kind, "__call__", on_the_cpu)
    monkeypatch.setattr(device, "capability", lambda: (9, 0))
    monkeypatch.setattr(timing, "seconds_of_nothing", lambda where: 1e-6)
    monkeypatch.setattr(timing, "default_sizes", small)
    monkeypatch.setattr(timing.pytorch, "installed", lambda where: None)
    monkeypatch.setattr(timing.neighbours, "gpu_in_words", lambda: "")
    monkeypatch.setattr(exercise, "resources", lambda source, entry: Resources(32, 0, 0))
    monkeypatch.setattr("nnclassroom.judge.answer.seconds_of_text", lambda *_, **__: 1e-3)
    monkeypatch.setattr(exercise.worker, "call", lambda function, *arguments, seconds: function(*arguments))
    monkeypatch.setattr(exercise.worker, "end", lambda: None)


def small(operation, where=None):
    if operation.trial.sizes_to_check:
        return dict(operation.trial.sizes_to_check[0])
    return dict.fromkeys(operation.shapes.free_names, 5)


def timed(name, kernel, text, launch):
    """The operation, and the table of an answer, which may be the package's own kernel: then `text` is None."""
    operation = find(name)
    made = kept_kernels.build(operation, kernel, text, launch) if launch or text is None else None
    return operation, exercise.timed(operation, kernel, text, launch, made)[0]


def complete(operation, table, on_gpu: bool) -> None:
    """The table begins with the answer, ends with the transfers, and nothing in it has failed."""
    if operation.flops is None:
        assert table is None
        return
    assert table.rows[0].seconds > 0
    assert ("transfers" in [row.kernel for row in table.rows[1:]]) == on_gpu
    assert [row.kernel for row in table.rows if "failed" in row.note] == []
    lines = str(table).splitlines()
    assert all(len(line) <= 80 for line in lines[1 : len(table.rows) + 2])


def launch_of(answer) -> dict | None:
    operation = find(answer["operation"])
    return cuda_cell.launch_options(operation, cuda_cell.parsed(answer["line"])) if "line" in answer else None


def on_gpu(answer) -> bool:
    return "line" in answer or answer["kernel"] == "cupy"


def test_there_is_an_answer_for_each_exercise():
    assert sorted(ANSWERS) == sorted(f"{blank.operation}-{blank.kernel}" for blank in exercises())


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_right_answer_is_timed_on_a_gpu_that_is_not_there(answer, stand_in):
    name, kernel, launch = answer["operation"], answer["kernel"], launch_of(answer)
    complete(*timed(name, kernel, answer["text"], launch), on_gpu(answer))
    complete(*timed(name, kernel, None, launch), on_gpu(answer))


# Answers that are no exercises: a kernel that the package does not have, of an operation that lacks others too.
NOTHING = 'extern "C" __global__ void {name}({parameters}) {{}}'


def cuda_answer(operation: str, kernel: str) -> tuple:
    found = find(operation)
    whole = {each.name for each in (*found.arguments, *found.results) if each.kind == "int"} | set(found.size_names)
    parameters = [
        f"{'int' if name in whole else 'float'}{'*' if name in found.cuda_arrays else ''} {name}"
        for name in found.cuda_arguments
    ]
    return operation, kernel, NOTHING.format(name=operation, parameters=", ".join(parameters)), {"block": [256]}


OTHERS = {
    "another idea": cuda_answer("dense_transposed", "tiled"),
    "CuPy of an operation that has none": (
        "dense_transposed",
        "cupy",
        "def dense_transposed(A, W_t, b):\n    return A",
        None,
    ),
    "an operation with a single CUDA kernel": cuda_answer("mse_gradient", "vectorised"),
    "two results in place": cuda_answer("momentum_update", "vectorised"),
    "new results, one of whole numbers": cuda_answer("maxpool_forward", "shared"),
    "another matrix of whole numbers": cuda_answer("confusion_matrix", "shared"),
    "one number": cuda_answer("mse", "warps"),
}


@pytest.mark.parametrize("given", OTHERS.values(), ids=OTHERS)
def test_any_right_answer_is_timed(given, stand_in):
    complete(*timed(*given), on_gpu=True)


@pytest.mark.parametrize(
    "name", ("train_on_gpu", "all_reduce", "algorithm_1", "descent_step", "dense_transposed", "mse")
)
@pytest.mark.parametrize("cuda", (True, False))
def test_there_is_a_kernel_of_the_course_for_any_answer(name, cuda):
    assert exercise._course_kernel(find(name), "of one's own", cuda).operation is find(name)


class OutOfMemoryError(Exception):
    """As CuPy and PyTorch raise it: no CourseError."""


@pytest.mark.parametrize("failing", ("limits", "to_device", "seconds"))
def test_a_right_answer_stays_right_if_timing_fails(failing, stand_in, monkeypatch):
    def fails(*_, **__):
        raise OutOfMemoryError("Out of memory allocating 2,147,483,648 bytes")

    monkeypatch.setattr(device, failing, fails)
    with pytest.raises(OutOfMemoryError):  # tests must see it
        timed(*cuda_answer("dense_transposed", "coalesced"))
    monkeypatch.delenv("NNCOURSE_STRICT")
    name, kernel, text, launch = cuda_answer("dense_transposed", "coalesced")
    made = kept_kernels.build(find(name), kernel, text, launch)
    table, notes = exercise.timed(find(name), kernel, text, launch, made)
    assert table is None and "OutOfMemoryError" in notes[-1] and "\n" not in notes[-1]


def test_a_right_answer_stays_right_if_its_resources_are_not_known(stand_in, monkeypatch):
    def refuses(source, entry):
        raise CourseError("sigmoid.naive.cu:2: error: no such function")

    monkeypatch.delenv("NNCOURSE_STRICT")
    monkeypatch.setattr(exercise, "resources", refuses)
    name, kernel, text, launch = cuda_answer("sigmoid", "naive")
    table, notes = exercise.timed(
        find(name), kernel, text, launch, kept_kernels.build(find(name), kernel, text, launch)
    )
    assert table is None and "no such function" in notes[-1]


@pytest.mark.parametrize("failing", ("PyTorch", "cupy", "transfers", "loops"))
def test_a_table_keeps_its_other_rows_if_one_fails(failing, stand_in, monkeypatch):
    def fails(*_):
        raise OutOfMemoryError

    if failing in ("PyTorch", "transfers"):
        monkeypatch.setattr(timing, f"_time_{failing.lower()}", fails)
    else:
        call = Kernel.__call__
        monkeypatch.setattr(
            Kernel, "__call__", lambda kernel, *of: (fails if kernel.name == failing else call)(kernel, *of)
        )
    _, table = timed(*cuda_answer("sigmoid", "naive"))
    notes = {row.kernel: row.note for row in table.rows}
    assert [name for name, note in notes.items() if "failed" in note] == [failing]
    assert "OutOfMemoryError" in notes[failing] and table.rows[0].seconds
    assert max(map(len, str(table).splitlines()[1 : len(notes) + 2])) <= 80


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_a_right_answer_is_judged_and_timed_on_a_gpu(answer, gpu, monkeypatch, record_property):
    monkeypatch.setenv("NNCOURSE_STRICT", "1")
    operation, name, text, launch = find(answer["operation"]), answer["kernel"], answer["text"], launch_of(answer)
    kernel, verdict = exercise.judged(operation, name, text, launch)
    assert verdict, verdict.line
    table = exercise.timed(operation, name, text, launch, kernel)[0]
    complete(operation, table, on_gpu(answer))
    record_property("timed", table is not None)
