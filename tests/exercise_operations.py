"""What holds for each operation that only exercises need; texts of an all-reduce."""

from collections.abc import Callable, Iterable

import numpy as np

from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.solutions import solution, solution_text
from nnclassroom.judge.check import check
from nncourse.backend import choose
from nncourse.catalogue import operations
from nncourse.kernels.operation import Operation

ALL_SEND_FIRST = """
def all_reduce(group, vector):
    K, r = group.size, group.rank
    chunks = np.array_split(vector, K)
    for step in range(2 * K - 2):
        coming = chunks[(r - step - 1) % K]
        part = np.empty_like(coming)
        group.send(chunks[(r - step) % K], (r + 1) % K)
        group.receive(part, (r - 1) % K)
        coming[:] = coming + part if step < K - 1 else part
"""


def all_reduce_of(text: str) -> Callable:
    """The function of a text."""
    names = {"np": np}
    exec(text, names)
    return names["all_reduce"]


def text_of(kernel: str) -> str:
    """The course's text of an all-reduce, as a student would write it."""
    _, _, body = solution_text("all_reduce", kernel).partition("(")
    return f"def all_reduce({body}"


def kernel_is_right_and_can_be_shown(operation: Operation, name: str, capsys, seeds: Iterable[int | None] = (None,)):
    """One of the course's kernels passes its check with these seeds, and its text is a solution to look at."""
    for seed in seeds:
        verdict = check(operation, name, seed=seed)
        assert verdict, str(verdict)
    solution(operation.name, name)
    shown = capsys.readouterr().out
    assert f"void {operation.name}_{name}(" in shown if operation[name].cuda else shown.startswith("def ")


def kernels_are_right_and_can_be_shown(operation: Operation, capsys, seeds: Iterable[int | None] = (None,)):
    """All of the course's kernels of the operation do."""
    for name in operation.kernels:
        kernel_is_right_and_can_be_shown(operation, name, capsys, seeds)


def belongs_to_no_backend(operation: Operation):
    """The operation is found by its name alone."""
    assert find(operation.name) is operation
    assert operation.name not in operations() and operation.name not in choose("numpy").kernels
