"""The hand-in of one student, and how several hand-ins of a student become one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

MOST_NAMED = 3  # exercises in a note


@dataclass(frozen=True)
class Submission:
    """A student's kernels by file name, the recorded attempts (a claim), and why some files could not be read."""

    student: str
    texts: Mapping[str, str] = field(default_factory=dict)
    attempts: Mapping[str, Counter[str]] = field(default_factory=dict)  # by exercise: verdicts of each kind
    claims: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # by exercise: what progress.json says
    reason: str = ""  # why nothing was read at all
    problems: tuple[str, ...] = ()  # what was not read: "file: reason"
    notes: tuple[str, ...] = ()  # which files were chosen, and which were read under a different name
    in_cells: int = 0  # number of texts that were read from the cells of notebooks
    entry: str = ""  # its name in the class's folder; "" if nothing was handed in
    entries: int = 0  # number of this student's files and folders in the class's folder
    replaced: int = 0  # number of these entries of which nothing counts
    time: datetime | None = None
    is_recorded: bool = False  # whether `nncourse submit` wrote the time; otherwise it is the file's
    minutes: float = 0.0  # between the first and the last recorded attempt: a claim, too
    number: str = ""  # by which a learning platform identifies the student
    row: int | None = None  # of the class's list
    feedback: str = ""  # the name under which the platform takes a page back

    def problem_of(self, file: str) -> str:
        """Why this file could not be read; "" if it could."""
        return next((said for said in self.problems if said.startswith(f"{file}: ")), "")


def together(given: Sequence[Submission]) -> Submission:
    """Join several hand-ins of one student: if an exercise is in two of them, the newer text counts.

    A hand-in with the record of `nncourse submit` counts as newer than one without, whose date is only the file's. The
    notes say which texts are older, and what could not be read.
    """
    if len(given) == 1:
        return given[0]
    ordered = sorted(given, key=_age)
    with_texts = [each for each in ordered if each.texts]
    if not with_texts:
        return replace(ordered[-1], problems=tuple(dict.fromkeys(said for each in given for said in each.problems)))
    newest = with_texts[-1]
    last = {file: number for number, each in enumerate(with_texts) for file in each.texts}
    counted = [each for number, each in enumerate(with_texts) if number in last.values()]
    if len(counted) == 1:
        when = f"{newest.time:%Y-%m-%d %H:%M}" if newest.time else "no date"
        of_what = "by its record" if newest.is_recorded else "by the file's date"
        about = [f"of {len(given)} hand-ins, the newest counts: {newest.entry}, {when} {of_what}"]
    else:
        about = [_older(each, number, with_texts, last) for number, each in enumerate(with_texts)]
    unread = [f"{each.entry} is not read: {each.reason}" for each in given if each.reason and not each.texts]
    attempts = [each.attempts for each in ordered if each.attempts]
    with_problems = [each for each in given if not each.texts or each in counted]
    return replace(
        newest,
        texts={file: text for each in with_texts for file, text in each.texts.items()},
        attempts=attempts[-1] if attempts else {},
        claims={key: entry for each in ordered for key, entry in each.claims.items()},
        problems=tuple(dict.fromkeys(p for each in with_problems for p in each.problems if p != each.reason)),
        notes=tuple(filter(None, [*(said for each in counted for said in each.notes), *about, *unread])),
        in_cells=sum(each.in_cells for each in counted),
        replaced=len(given) - len(counted),
        minutes=max(each.minutes for each in given),
    )


def _age(given: Submission) -> tuple[bool, float, str]:
    return given.is_recorded, given.time.timestamp() if given.time else 0.0, given.entry


def _older(given: Submission, number: int, all_given: Sequence[Submission], last: Mapping[str, int]) -> str:
    """A note on the texts of a hand-in that have a newer version in another one; "" if there are none."""
    older = [file for file, text in given.texts.items() if last[file] > number and
             all_given[last[file]].texts[file] != text]  # fmt: skip
    if not older:
        return ""
    newer = ", ".join(dict.fromkeys(all_given[last[file]].entry for file in older))
    more = f" and {len(older) - MOST_NAMED} more" if len(older) > MOST_NAMED else ""
    return f"{', '.join(older[:MOST_NAMED])}{more} in {given.entry}: the version in {newer} is newer and counts"
