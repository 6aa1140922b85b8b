"""What holds for each operation that only exercises need."""

from collections.abc import Iterable

from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import solution
from nnclassroom.judge.check import check
from nncourse.backend import choose
from nncourse.catalogue import operations
from nncourse.kernels.operation import Operation


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
