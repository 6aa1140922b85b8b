"""An error in one hand-in becomes that hand-in's reason, and does not stop the marking of the others."""

from collections.abc import Callable
from typing import TypeVar

from nncourse.errors import CourseError, printable

Made = TypeVar("Made")
FAILED = "the course itself failed on this"  # how the reason for a fault of ours begins


def caught(work: Callable[[], Made], otherwise: Callable[[str], Made]) -> Made:
    """The result of work(); or, if it raises an exception, the result of otherwise() for the reason.

    The reason is the message of a CourseError. Any other exception is a fault of the course, and the reason says so.
    """
    try:
        return work()
    except CourseError as error:
        return otherwise(str(error))
    except Exception as error:  # the hand-ins of the others must still be marked
        said = printable(" ".join(f"{type(error).__name__}: {error}".split()))[:200]
        return otherwise(f"{FAILED} ({said}): look at it by hand, and report it")
