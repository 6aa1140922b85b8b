"""`nncourse take`: import kept kernels from another machine, packed there by `nncourse submit`, or any hand-in."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import exercises
from nnclassroom.handing_in import submission
from nnclassroom.handing_in.kernel_files import FIRST_LINE, file_of, launch_of
from nncourse.errors import CourseError


def take(path: Path) -> list[str]:
    """Judge the kernels of a hand-in on this machine, and keep the right ones, unless a newer one is kept already.

    It reads hand-ins as `nncourse grade` does. An answer's date is the one in progress.json, otherwise the hand-in's.
    Returns a line for each kernel that was judged, and a line with the counts. CourseError if nothing can be read.
    """
    if not path.exists():
        raise CourseError(f"{path}: no such file: expected a file that `nncourse submit` wrote")
    given = submission.read(path, "", frozenset(map(file_of, exercises())))
    if not given.texts:
        raise CourseError(f"{path}: expected a file that `nncourse submit` wrote; {given.reason}")
    own, lines = kept_kernels.progress(), []
    taken = stayed = 0
    usual = given.time.isoformat(timespec="seconds") if given.time else ""
    for file, text in sorted(given.texts.items()):
        key = file.rpartition(".")[0]
        claim = given.claims.get(key, {})
        date = claim.get("date") or usual
        here = own.get(key, {})
        if here.get("hash") == hashlib.sha256(text.encode()).hexdigest() or here.get("date", "") > date:
            stayed += 1
            continue
        line, is_right = _kept(key, file, text, claim, date)
        lines.append(line)
        taken += is_right
    lines += [f"✗ {said}" for said in given.problems]
    return [*lines, f"{taken} of {len(given.texts)} taken; {stayed} are here already, or in a newer version"]


def _kept(key: str, file: str, text: str, claim: Mapping[str, Any], date: str) -> tuple[str, bool]:
    """A line about a text that was judged, and whether it was right and is kept."""
    operation_name, _, name = key.partition(".")
    try:
        operation = find(operation_name)
    except CourseError:
        return f"✗ {key}: not an exercise of this course", False
    try:
        claimed = claim.get("launch") if not FIRST_LINE.match(text) else None  # a kernel that was kept without its line
        launch = (claimed or launch_of(operation, name, text)) if file.endswith(".cu") else None
        verdict = kept_kernels.judged(operation, name, text, launch)
        if verdict:
            kept_kernels.keep(operation, name, text, launch, date=date)
    except CourseError as error:
        return f"✗ {operation.name} ({name}): {error}", False
    return f"{'✓' if verdict else '✗'} {verdict.line}", bool(verdict)
