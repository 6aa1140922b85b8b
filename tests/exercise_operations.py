"""What holds for each operation that only exercises need."""

from collections.abc import Iterable

from nncourse.classroom.course import solution
from nncourse.kernels.backend import choose
from nncourse.kernels.catalogue import find, operations
from nncourse.kernels.operation import Operation


def kernel_is_right_and_can_be_shown(operation: Operation, name: str, capsys, seeds: Iterable[int | None] = (None,)):
    """One of the course's kernels passes its check with these seeds, and its text is a solution to look at."""
    for seed in seeds:
        verdict = operation.check(name, seed=seed)
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
