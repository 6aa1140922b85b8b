"""The plans that timing has chosen, stored on disk: later processes need not time all plans again.

A file contains the name of one plan. The file's name is a hash of everything that the choice depends on: so it is never
out of date, and all processes may share the folder. Processes that start together choose separately; the last one wins.
"""

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from cuda_on_cpu.cache import cache_folder, is_there, remove_unused
from nncourse.errors import CourseError, read_text, write_atomically

MOST_BYTES = 4096  # of a name


class Named(Protocol):
    """A plan, whose name is stored."""

    @property
    def name(self) -> str: ...


AnyPlan = TypeVar("AnyPlan", bound=Named)


def file_for(*made_of: Any) -> Path | None:
    """The file for the choice that depends on all this; None if no folder for it can be made."""
    key = "\0".join(map(str, made_of))
    with contextlib.suppress(CourseError):
        return cache_folder("nncourse/plans") / hashlib.sha256(key.encode()).hexdigest()[:32]
    return None


def kept_name(file: Path) -> str:
    """The name in the file, which is marked as used; "" if there is none."""
    with contextlib.suppress(OSError, CourseError):  # missing or damaged
        if is_there(file):
            return read_text(file, MOST_BYTES)
    return ""


def keep_name(file: Path, name: str) -> None:
    """Store the name, if the folder can be written."""
    with contextlib.suppress(OSError, CourseError):
        write_atomically(file, lambda new: new.write_text(name, encoding="utf-8"))
        remove_unused(file.parent)


def kept_or_chosen(
    file: Path | None, named: Callable[[str], AnyPlan | None], choose: Callable[[], AnyPlan | None]
) -> AnyPlan | None:
    """named(the stored name), or if this is None, the plan that choose() finds, whose `name` is then stored."""
    name = kept_name(file) if file else ""
    plan = named(name) if name else None
    if plan is None:
        plan = choose()
        if plan is not None and file:
            keep_name(file, plan.name)
    return plan
