"""Pages for a marked class: feedback for each student, which names nobody else, and the instructor's overview."""

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from itertools import groupby
from pathlib import Path

from nnclassroom.handing_in.caught import caught
from nnclassroom.judge.kinds import STATE_WORDS, kind_in_words
from nnclassroom.pages import document, page
from nnclassroom.zips import write_zip
from nncourse.errors import CourseError, reason_of, write_atomically
from nnmarking.marks import NOT_ASKED, Mark, Standing
from nnmarking.similarity import Comparison

SIGNS = {"right": "✓", "wrong": "✗", "open": "○", "missing": "○", NOT_ASKED: "–"}
COLOURS = {"right": "#2a9d3a", "wrong": "#d1453b"}
LONGEST_NAME = 180  # bytes of a file's name
STUCK = 5  # attempts without a right answer, from which on a student is listed as stuck
MOST_GROUPS, MOST_NAMES = 60, 12  # groups of similar answers on the page, and names in a line
# The overview is as wide as the window. The names of its table stay in place while it is scrolled.
WIDE = """
@page { size: A4 landscape }
body { max-width: none; margin: 1em }
p, ul { max-width: 60em }
td, th { padding: 1px 1.2em 1px 1px; text-align: left }
.matrix { overflow: auto; max-height: 95vh; width: fit-content; max-width: 100% }
.matrix table { border-collapse: separate; border-spacing: 0; font-size: 8pt }
.matrix td { padding: 0 1px; text-align: center; white-space: nowrap }
.matrix small { font-size: 6pt; letter-spacing: -.05em }
.matrix th { background: #fff; position: sticky; left: 0; text-align: left; white-space: nowrap }
.matrix thead th { top: 0; z-index: 1; vertical-align: bottom; text-align: center; font-weight: normal; padding: 0 }
.matrix thead th:not(:first-child) { left: auto }
.matrix thead th:first-child { z-index: 2 }
.matrix thead span { display: inline-block; writing-mode: vertical-rl; transform: rotate(180deg) }
.matrix tbody th { border: none; padding-right: .6em }
.matrix tbody th[scope=row] { font-weight: normal; padding-left: .8em }
.matrix tbody tr:hover * { background: #eef }
@media print { .matrix { overflow: visible; max-height: none } }
"""


def write_feedback(folder: Path, standings: Sequence[Standing], title: str, version: str) -> None:
    """Write a page for each student into `folder`, and remove pages of an earlier marking that belong to nobody now.

    A .zip beside the folder has the same pages, under the names by which a learning platform takes them back.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise CourseError(f"{folder}: cannot be made: {reason_of(error)}") from None
    written: set[str] = set()
    uploaded: dict[str, bytes] = {}
    for each in standings:
        name = _file_name(each.student, written)
        written.add(name)
        body = caught(partial(feedback, each, title, version), lambda said: f"<p>{escape(said)}</p>")
        text = document(f"{each.student}: {title}", body)
        write_atomically(folder / name, partial(Path.write_text, data=text, encoding="utf-8"))
        uploaded[each.submission.feedback or name] = text.encode("utf-8", "replace")
    for old in folder.glob("*.html"):
        if old.name not in written:
            old.unlink()
    write_zip(folder.with_name(f"{folder.name}.zip"), uploaded)


def _file_name(student: str, taken: set[str]) -> str:
    """A file name that is valid on every file system and differs from those in `taken`."""
    plain = re.sub(r"[^\w-]+", "_", student).encode()[:LONGEST_NAME].decode(errors="ignore") or "_"
    name, number = f"{plain}.html", 2
    while name.lower() in {other.lower() for other in taken}:
        name, number = f"{plain}_{number}.html", number + 1
    return name


def feedback(given: Standing, title: str, version: str) -> str:
    """A student's feedback: the points, and for each exercise the verdict, a hint if the answer is wrong, and the
    reason for a mark changed by hand.
    """
    asked = [mark for mark in given.marks if mark.state != NOT_ASKED]
    right = sum(mark.state == "right" for mark in asked)
    said = f"{given.points:g} of {given.of:g} points, {right} of {len(asked)} exercises right."
    parts = [f"<h1>{escape(given.student)}</h1><p>{escape(title)}: {said} Judged by nncourse {escape(version)}.</p>"]
    parts += [f"<p>About your hand-in: {escape(said)}.</p>" for said in given.said]
    notebook = ""
    for mark in asked:
        if mark.exercise.notebook != notebook:
            notebook = mark.exercise.notebook
            parts.append(f"<h2>{escape(notebook)}</h2>")
        parts.append(_verdict(mark))
    return "".join(parts)


def _verdict(mark: Mark) -> str:
    """One exercise on a feedback page."""
    first, *excerpt = (mark.line or f"{mark.exercise.operation} ({mark.exercise.kernel}): not handed in").splitlines()
    said = f"{SIGNS[mark.state]} {escape(first)}"
    said += f"<pre>{escape(chr(10).join(excerpt))}</pre>" if excerpt else "<br>"
    notes = [f"{mark.points:g} of {mark.weight:g} points"]
    if mark.override is not None:
        notes.append(f"changed by hand: {mark.reason}")
    if mark.state == "wrong" and mark.exercise.hints:
        notes.append(f"Hint: {mark.exercise.hints[-1]}")
    if mark.attempts:
        count = sum(mark.attempts.values())
        notes.append("1 attempt recorded" if count == 1 else f"{count} attempts recorded")
    return page(said + "<br>".join(f"<small>{escape(note)}</small>" for note in notes), mark.state)


def write_overview(
    path: Path, standings: Sequence[Standing], alike: Mapping[str, Comparison], title: str, version: str
) -> None:
    """Write the instructor's page."""
    text = document(f"Overview: {title}", overview(standings, alike, title, version), WIDE)
    write_atomically(path.absolute(), lambda new: new.write_text(text, "utf-8"))


def overview(standings: Sequence[Standing], alike: Mapping[str, Comparison], title: str, version: str) -> str:
    """A table of exercises × students, mistakes by exercise, students who are stuck, and similar answers."""
    every = [mark for each in standings for mark in each.marks]
    shares = [each.points / each.of for each in standings if each.of]
    middle = f", median {100 * statistics.median(shares):.0f} % of the points" if shares else ""
    said = f"<p>{students(len(standings))}{middle}. Judged by nncourse {escape(version)}.</p>"
    return "".join([
        f"<h1>Overview: {escape(title)}</h1>{said}",
        "<h2>Results</h2><p>✓ right, ✗ wrong, ○ missing or open, – not asked. Small numbers count attempts.</p>",
        _who_has_what(standings),
        "<h2>Mistakes</h2>" + _mistakes(every),
        f"<h2>Students who are stuck</h2><p>At least {STUCK} attempts, and no right answer.</p>" + _stuck(every),
        "<h2>Similar answers</h2><p>They have most of their code in common, apart from names; long ones first. Short "
        "answers and the course's own code do not count. Read before you suspect anybody.</p>" + _alike(alike),
        "<h2>Notes on the hand-ins</h2>" + _list(_about(standings)),
    ])  # fmt: skip


def _about(standings: Sequence[Standing]) -> Iterator[str]:
    """Notes on hand-ins, with one line for all hand-ins of which answers were read from notebooks."""
    if in_cells := sum(bool(each.from_cells) for each in standings):
        yield read_from_notebooks(in_cells)
    yield from (f"{each.student}: {said}" for each in standings for said in each.noted)


def read_from_notebooks(count: int) -> str:
    """The line about the students whose answers were read from notebooks."""
    return f"{students(count)}: answers were read from notebooks, since no kept kernel was handed in for them"


def students(count: int) -> str:
    return "1 student" if count == 1 else f"{count} students"


def _who_has_what(standings: Sequence[Standing]) -> str:
    """The table of exercises × students, with a part for each notebook."""
    names = "".join(f"<th scope=col><span>{escape(each.student)}</span></th>" for each in standings)
    parts = [f"<thead><tr><th></th><th><span>right</span></th>{names}</tr></thead>"]
    columns = zip(*(each.marks for each in standings), strict=True)
    for notebook, own in groupby(columns, key=lambda column: column[0].exercise.notebook):
        parts.append(f"<tbody><tr><th scope=rowgroup>{escape(notebook)}</th></tr>{''.join(map(_row, own))}</tbody>")
    return f'<div class="matrix"><table>{"".join(parts)}</table></div>'


def _row(column: Sequence[Mark]) -> str:
    """One exercise, with all students' marks."""
    right, asked = (sum(test(mark.state) for mark in column) for test in ("right".__eq__, NOT_ASKED.__ne__))
    cells = "".join(_cell(mark) for mark in column)
    return f"<tr><th scope=row>{escape(column[0].exercise.key)}</th><td>{right}/{asked}</td>{cells}</tr>"


def _cell(mark: Mark) -> str:
    count = sum(mark.attempts.values()) if mark.attempts else 0
    tried = f"<small>{count}</small>" if count else ""
    colour = f' style="color:{COLOURS[mark.state]}"' if mark.state in COLOURS else ""
    about = escape(f"{mark.student}, {mark.exercise.key}: {STATE_WORDS[mark.state]}")
    return f'<td{colour} title="{about}">{SIGNS[mark.state]}{tried}</td>'


def _mistakes(marks: Sequence[Mark]) -> str:
    """For each exercise, the number of wrong verdicts of each kind, in the hand-ins and in the recorded attempts."""
    found: dict[str, tuple[Counter[str], Counter[str]]] = {}
    for mark in marks:
        now, tried = found.setdefault(mark.exercise.key, (Counter(), Counter()))
        if mark.state == "wrong":
            now[mark.kind] += 1
        tried.update({kind: n for kind, n in (mark.attempts or {}).items() if kind not in ("right", "open")})
    rows = "".join(
        f"<tr><td>{escape(key)}</td><td>{_counted(now)}</td><td>{_counted(tried)}</td></tr>"
        for key, (now, tried) in found.items()
        if now or tried
    )
    head = "<tr><th>exercise</th><th>in hand-ins</th><th>in recorded attempts</th></tr>"
    return f"<table>{head}{rows}</table>" if rows else _list(())


def _counted(kinds: Counter[str]) -> str:
    ordered = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))
    return escape(", ".join(f"{kind_in_words(kind)} {count}×" for kind, count in ordered))


def _stuck(marks: Sequence[Mark]) -> str:
    tried = [(sum(mark.attempts.values()), mark) for mark in marks if mark.attempts and mark.state != "right"]
    listed = [(count, mark) for count, mark in tried if count >= STUCK]
    listed.sort(key=lambda item: (-item[0], item[1].student, item[1].exercise.key))
    return _list(f"{mark.student}: {mark.exercise.key}, {count} attempts" for count, mark in listed)


def _alike(alike: Mapping[str, Comparison]) -> str:
    """A line for each group of similar answers, long exercises first, and for each exercise the copies of ours."""
    lines = []
    for key, found in sorted(alike.items(), key=lambda item: (-item[1].length, item[0])):
        for group in found.groups():
            shares = sorted({round(100 * pair.share) for pair in found.pairs if pair.one in group})
            least = f"{shares[0]} to " if len(shares) > 1 else ""
            lines.append(f"{key}: {_few(group)}, {least}{shares[-1]} %")
    of_the_course = {key: sorted(found.of_the_course) for key, found in alike.items() if found.of_the_course}
    took = [f"{key}: {_few(names)}" for key, names in of_the_course.items()]
    left = f"<p>{len(lines) - MOST_GROUPS} more groups are in the marks file.</p>" if len(lines) > MOST_GROUPS else ""
    return f"{_list(lines[:MOST_GROUPS])}{left}<h3>Similar to the course's own kernel</h3>{_list(took)}"


def _few(names: Sequence[str]) -> str:
    """The names, or the first and how many more."""
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{items}</ul>" if items else "<p>None.</p>"
