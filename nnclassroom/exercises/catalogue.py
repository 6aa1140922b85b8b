"""All operations of the notebooks: those of networks, and those that only exercises use."""

from nnclassroom.exercises import nb03b, nb04, nb06, nb08_to_10, nb09, nb12, nb13, nb14
from nncourse.catalogue import TOPICS, defined_in, epoch_topics
from nncourse.errors import refuse_unknown
from nncourse.kernels.operation import Operation
from nncourse.kernels.peer import all_reduce

EXERCISES = (nb03b, nb04, nb06, nb08_to_10, nb09, nb12, all_reduce, nb13, nb14)
WHOLE_STEP = "algorithm_1"  # training steps run a student's kept one


def find(name: str) -> Operation:
    """The operation of that name, those that only exercises have included. Raises CourseError for another.

    >>> find("neuron").equation
    '(1)'
    """
    known = defined_in((*TOPICS, *epoch_topics(), *EXERCISES))
    refuse_unknown("an operation", name, known)
    return known[name]
