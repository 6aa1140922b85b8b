"""Which plan was chosen by timing, kept on disk: later processes need not time all plans again.

A file holds the name of one plan, and its own name is a hash of all that the choice depends on: it is never out of
date, and all processes may share the folder. Those that start at once choose each for itself, on GPUs of their own; the
choice that is written last stays.
"""

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cuda_on_cpu.cache import cache_folder, is_there, remove_unused
from nncourse.errors import CourseError, read_text, write_atomically

MOST_BYTES = 4096  # of a name
AnyPlan = TypeVar("AnyPlan")


def file_for(*made_of: Any) -> Path | None:
    """Where the choice is kept that depends on all this; None if there is no folder to keep it in."""
    key = "\0".join(map(str, made_of))
    with contextlib.suppress(CourseError):
        return cache_folder("nncourse/plans") / hashlib.sha256(key.encode()).hexdigest()[:32]
    return None


def kept_name(file: Path) -> str:
    """The name that is kept there, and the file marked as used; "" if there is none."""
    with contextlib.suppress(OSError, CourseError):  # none there, or a damaged one
        if is_there(file):
            return read_text(file, MOST_BYTES)
    return ""


def keep_name(file: Path, name: str) -> None:
    """Keep it, if the folder can be written."""
    with contextlib.suppress(OSError, CourseError):
        write_atomically(file, lambda new: new.write_text(name, encoding="utf-8"))
        remove_unused(file.parent)


def kept_or_chosen(
    file: Path | None, named: Callable[[str], AnyPlan | None], choose: Callable[[], AnyPlan | None]
) -> AnyPlan | None:
    """The plan that is kept there or else, or if named(its name) is None, the one that choose() finds, which is kept.

    A plan has a `name`. None, where nothing was found, is not kept.
    """
    name = kept_name(file) if file else ""
    plan = named(name) if name else None
    if plan is None:
        plan = choose()
        if plan is not None and file:
            keep_name(file, plan.name)
    return plan
