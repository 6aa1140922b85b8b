"""`nncourse take`: kept kernels from another machine, out of the file that `nncourse submit` wrote there."""

import hashlib
from pathlib import Path

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.kept_kernels import MOST_RECORD, MOST_TEXT
from nnclassroom.marking import pieces
from nncourse.errors import CourseError, reason_of


def take(path: Path) -> list[str]:
    """Judge the file's kernels on this machine, and keep those that are right; of two answers the newer one stays.

    Returns a line for each that was judged, and one with the numbers. CourseError if the file cannot be read.
    """
    try:
        with pieces.opened(path) as found:
            files = {each.place.name: each for each in found if each.place.parent.name == "my_kernels"}
            said = files["progress.json"].read(MOST_RECORD).decode()
            texts = {name: each.read(MOST_TEXT).decode() for name, each in files.items() if name[-3:] in (".py", ".cu")}
    except (KeyError, *pieces.UNREADABLE) as error:
        why = "it has no record of kernels" if isinstance(error, KeyError) else reason_of(error)
        raise CourseError(f"{path}: wanted a file of `nncourse submit`: {why}") from None
    theirs = kept_kernels.record_in(said)
    if theirs is None:
        raise CourseError(f"{path}: wanted a file of `nncourse submit`: its record of kernels is damaged")
    own, lines = kept_kernels.progress(), []
    taken = stayed = 0
    for key, entry in sorted(theirs.items()):
        operation_name, _, name = key.partition(".")
        launch = entry.get("launch")
        try:
            operation = find(operation_name)
            text = texts[kept_kernels.file_name(operation, name, launch)]
        except CourseError:
            lines.append(f"✗ {key}: not an exercise of this course")
            continue
        except KeyError:
            lines.append(f"✗ {key}: its text is not in the file")
            continue
        here = own.get(key, {})
        is_same = here.get("hash") == hashlib.sha256(text.encode()).hexdigest()
        if is_same or here.get("date", "") > entry.get("date", ""):
            stayed += 1
            continue
        verdict = kept_kernels.judged(operation, name, text, launch)
        lines.append(f"{'✓' if verdict else '✗'} {verdict.line}")
        if verdict:
            kept_kernels.keep(operation, name, text, launch, date=entry.get("date", ""))
            taken += 1
    return [*lines, f"{taken} of {len(theirs)} taken; {stayed} are here already, or newer here"]
