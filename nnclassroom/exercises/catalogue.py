"""All operations of the notebooks: those of networks, and those that only exercises use."""

from importlib import import_module
from types import ModuleType

from nnclassroom.exercises import index
from nncourse.calls import OPERATIONS
from nncourse.catalogue import defined_in, epoch_topics, imported, topics
from nncourse.errors import refuse_unknown
from nncourse.kernels.operation import Operation

NOTEBOOKS = (
    "nb02b", "nb03", "nb03b", "nb04", "nb05c", "nb06", "nb08", "nb08c", "nb08_to_10", "nb09", "nb12", "nb13", "nb14",
    "nb15", "nb15b",
)  # fmt: skip
WHOLE_STEP = "algorithm_1"  # training steps run a student's kept one


def exercise_topics() -> tuple[ModuleType, ...]:
    """The modules of the operations that only exercises use."""
    return tuple(import_module(f"nnclassroom.exercises.{name}") for name in NOTEBOOKS)


def find(name: str) -> Operation:
    """The operation of that name, those that only exercises have included. Raises CourseError for another.

    >>> find("neuron").equation
    '(1)'
    """
    if found := imported(name, OPERATIONS | index.OPERATIONS):
        return found
    known = defined_in((*topics(), *epoch_topics(), *exercise_topics()))
    refuse_unknown("an operation", name, known)
    return known[name]
