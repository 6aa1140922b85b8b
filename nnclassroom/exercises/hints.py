"""The hints of the exercises, and the student's progress."""

import functools
import sys
from collections.abc import Iterator
from itertools import count, groupby
from operator import attrgetter

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.blanks import Exercise, exercises
from nnclassroom.exercises.catalogue import find
from nnclassroom.formats import duration
from nncourse.errors import CourseError


def hint(operation: str, kernel: str = "") -> None:
    """Print a hint for an exercise: first a question, at the next call the idea, then everything but the code.

    Raises CourseError for an unknown exercise.

    >>> hint("dense_forward", "numpy")
    Which shapes do A and W have, and which must the product have?
    """
    known = {(exercise.operation, exercise.kernel): exercise for exercise in exercises()}
    if (operation, kernel) not in known:
        there = [name for other, name in known if other == operation]
        wanted = f"one of its kernels {', '.join(there)}" if there else "an exercise of the notebook"
        asked = f"{operation} ({kernel})" if kernel else f"{operation} without a kernel" if there else operation
        raise CourseError(f"there is no exercise {asked}; expected {wanted}")
    steps = known[operation, kernel].hints
    print(steps[min(next(_calls(operation, kernel)), len(steps) - 1)])


@functools.cache
def _calls(operation: str, kernel: str) -> Iterator[int]:
    """Counts the calls of hint() for this exercise, from 0."""
    return count()


def by_notebook() -> dict[str, list[Exercise]]:
    """The exercises of each notebook, in the order of the course."""
    return {name: list(group) for name, group in groupby(exercises(), attrgetter("notebook"))}


def progress_lines() -> list[str]:
    """One line per exercise: ✓, ✗ or ○, and date and speed of its kept kernel. The last line says how many are done.

    Each kept kernel is judged now. Its date and its speed are what the record says.

    >>> progress_lines()[-1]
    '0 of ... exercises; kept in ...'
    """
    record, lines, done = kept_kernels.progress(), [], 0
    for notebook, group in by_notebook().items():
        lines.append(notebook)
        for exercise in group:
            entry, title = record.get(exercise.key), f"{exercise.operation} ({exercise.kernel})"
            if entry and (verdict := kept_kernels.verdict_of(find(exercise.operation), exercise.kernel, entry)):
                done += 1
                speed = duration(entry["seconds"]) if entry.get("seconds") else "not timed"
                lines.append(f"  ✓ {title:36} {str(entry.get('date', ''))[:10]}  {speed:>10}")
            elif entry:
                lines.append(f"  ✗ {title:36} {verdict.line.splitlines()[0]}")
            else:
                lines.append(f"  ○ {title}")
    return [*lines, f"{done} of {len(exercises())} exercises; kept in {kept_kernels.folder()}"]


if __name__ == "__main__":  # for NNCOURSE_SOLVE, so that tests walk through half-solved notebooks; "1": the other half
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    print(",".join(exercise.key for exercise in exercises()[first::2]))
