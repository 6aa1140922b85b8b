"""`nncourse grade`: judge a class's hand-ins in a sandbox, and write marks, feedback and an overview.

Besides marks.csv it writes marks_by_student.csv, marks_overview.html, a page for each student in marks_feedback/ and in
marks_feedback.zip, and marks_roster.csv, the class's list with the points. An interrupted run continues from
marks_journal.jsonl. All files but the journal depend only on the hand-ins, the course's version and the seed.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cuda_on_cpu import emulate, program
from nnclassroom.exercises import exam_operations as definitions
from nnclassroom.exercises import hints
from nnclassroom.exercises.hints import Exercise
from nnclassroom.exercises.solutions import solution_text
from nnclassroom.handing_in.caught import caught
from nnclassroom.handing_in.hand_in import Submission
from nnclassroom.handing_in.kernel_files import file_of, launch_of
from nnclassroom.judge import sandbox
from nnclassroom.judge.answer import PROGRAM
from nnclassroom.judge.kinds import kind_in_words
from nnclassroom.notebook import cuda_cell, exams
from nnclassroom.version import course_version
from nncourse import device as devices
from nncourse.errors import CourseError, nearest, refuse_unwritable
from nncourse.language import PACKAGES, ROOT
from nnmarking import assignment, class_folder, marks, pages, roster
from nnmarking.marks import NOT_ASKED, Mark, Standing
from nnmarking.queue import Journal, Judged, Task, Terms, judge_all
from nnmarking.roster import Roster
from nnmarking.similarity import NOT_COMPARED, Comparison, compared

GRACE = 1.0  # minutes beyond an examination's limit that are not reported
# Verdicts that may be due to this machine and not to the answer.
BY_HAND = ("crash", "time limit", "memory", "missing in the emulator")


def grade(
    folders: Sequence[Path],
    out: Path,
    weights: Path | None = None,
    seed: int | None = None,
    jobs: int = 2,
    exam: Path | None = None,
    overrides: Path | None = None,
    sandboxed: bool = True,
    say: Callable[[str], None] = print,
    limits: tuple[float, float] | None = None,
    only: str = "",
    due: str = "",
    late: float = 0.0,
    listed: Path | None = None,
    column: str = "",
) -> list[Mark]:
    """Judge all hand-ins, and write the tables and pages. Returns the marks.

    Only the journal is written before all answers are judged.

    limits: seconds for an answer in Python and for one in CUDA C.
    only, due, late: the assignment; see assignment.py.
    listed, column: the class's list, and its column for the points; see roster.py.
    """
    refuse_unwritable(out.absolute(), "the marks")
    if jobs < 1:
        raise CourseError(f"expected --jobs of at least 1; got {jobs}")
    given = exams.read(exam) if exam else None
    every = given.exercises if given else hints.exercises()
    usual = {each.key: each.points for each in given.questions} if given else {}
    points = marks.read_weights(weights or (None if given else marks.SUGGESTED), every, usual)
    exercises, deadline = assignment.chosen(every, only), assignment.deadline(due, late)
    known = roster.read(listed, say) if listed else None
    submissions = class_folder.find(folders, frozenset(map(file_of, every)), known)
    if not submissions:
        raise CourseError(f"{folders[0]}: expected hand-ins, such as a folder or a .zip for each student; found none")
    changed = marks.read_overrides(overrides, [e.key for e in every], say) if overrides else {}
    for line in _of_nobody_read(changed, submissions):
        say(f"{overrides}: {line}")
    journal = Journal(_beside(out, "_journal.jsonl"))
    if seed is None:
        seed = journal.seed if journal.seed is not None else secrets.randbelow(10**9)
    terms = Terms(
        seed,
        course_version(),
        "gpu" if devices.gpu_available() else "cpu",
        given.text if given else "",
        _sandbox(folders) if sandboxed else (),
        **({"limits": limits} if limits else {}),
    )
    of_exercises = "1 exercise" if len(exercises) == 1 else f"{len(exercises)} exercises"
    say(f"{pages.students(len(submissions))}, {of_exercises}, course {terms.version}, seed {seed}")
    answers = {(each.student, e.key): _answer(each, e, terms) for each in submissions for e in exercises}
    tasks = {answer.key(terms): answer for answer in answers.values() if isinstance(answer, Task)}
    _refuse_what_cannot_run(tasks.values())
    try:
        verdicts = judge_all(tasks, terms, jobs, journal, say)
    except KeyboardInterrupt:
        say(f"interrupted: {journal.path} has the verdicts so far; run the same command again to continue")
        raise
    alike = {exercise.key: _compared(submissions, exercise, given is None) for exercise in exercises}
    standings = []
    for each in submissions:
        found = []
        asked = given.asked([e.key for e in every if file_of(e) in each.texts]) if given else set()
        for exercise in exercises:
            if given and exercise.key not in asked:
                found.append(Mark(each.student, exercise, NOT_ASKED, weight=0.0))
                continue
            answer = answers[each.student, exercise.key]
            judged = verdicts[answer.key(terms)] if isinstance(answer, Task) else answer
            override, reason = changed.get((each.student, exercise.key), (None, ""))
            attempts = each.attempts.get(exercise.key, Counter()) if each.attempts else None
            state = judged.kind if judged.kind in ("right", "open", "missing") else "wrong"
            mark = Mark(each.student, exercise, state, judged.kind, judged.line, points[exercise.key], attempts)
            same = alike[exercise.key].said_of(each.student)
            found.append(replace(mark, override=override, reason=reason, alike=same))
        if given and given.minutes and each.minutes > given.minutes + GRACE:
            over = f"{each.minutes:.0f} minutes from the first to the last answer; {given.minutes:g} were allowed"
            each = replace(each, notes=(*each.notes, over))
        days = deadline.days_late(each.time)
        standings.append(Standing(each, tuple(found), days, deadline.share(days)))
    every_mark = [mark for each in standings for mark in each.marks]
    for mark in (mark for mark in every_mark if mark.kind in BY_HAND):
        say(f"look at this by hand: {mark.student}, {mark.exercise.key}: {kind_in_words(mark.kind)}")
    _write(out, standings, alike, terms, _title(given, exercises if only else ()))
    if known:
        for line in _written_back(out, known, standings, column):
            say(line)
    if too_late := [f"{each.student}, {each.late}" for each in standings if each.late]:
        say(f"late: {'; '.join(too_late)}")
    for line in _counted([each.submission for each in standings]):
        say(line)
    return every_mark


def _title(given: exams.Exam | None, exercises: Sequence[Exercise]) -> str:
    """A title for the marks: the examination's, the chosen notebooks, or the course."""
    notebooks = dict.fromkeys(each.notebook for each in exercises)
    return given.title if given else ", ".join(notebooks) or "the course"


def _written_back(out: Path, known: Roster, standings: Sequence[Standing], column: str) -> Iterator[str]:
    """Write the class's list, with points for every student whose answers were read or marked by hand."""
    path = _beside(out, "_roster.csv")
    counted = [each for each in standings if each.submission.texts or any(m.override is not None for m in each.marks)]
    points = {each.submission.row: each.points for each in counted if each.submission.row is not None}
    of = max(each.of for each in standings)
    column = roster.write_points(path, known, points, of, column)
    if (most := known.most(column)) not in (None, of):
        yield f"{known.path}: its maximum is {most:g} points, but here it is {of:g}: change it on the platform first"
    yield f"{path}: {len(points)} of {sum(map(bool, known.names))} students have points, in the column {column}"


def _counted(submissions: Sequence[Submission]) -> Iterator[str]:
    """Lines that say what was read and what was not, for each entry that was handed in."""
    absent = [each.student for each in submissions if not each.entry]
    submissions = [each for each in submissions if each.entry]
    if absent:
        yield f"no hand-in from {', '.join(absent)}"
    for each in submissions:
        if not each.texts:
            yield f"not read: {each.entry}: {each.reason}"
        for said in (*each.notes, *each.problems) if each.texts else ():
            yield f"look at this: {each.entry}: {said}"
    if in_cells := sum(bool(each.in_cells) for each in submissions):
        yield pages.read_from_notebooks(in_cells)
    read, older = sum(bool(each.texts) for each in submissions), sum(each.replaced for each in submissions)
    entries, unread = sum(each.entries for each in submissions), sum(not each.texts for each in submissions)
    by = pages.students(len(submissions))
    yield f"hand-ins: {entries} from {by}; {read} read, {unread} not read, {older} replaced by newer ones"


def _of_nobody_read(changed: Iterable[tuple[str, str]], submissions: Sequence[Submission]) -> Iterator[str]:
    """A warning for each student whose marks are changed by hand although nothing of theirs was read."""
    names = {each.student: bool(each.texts) for each in submissions}
    for student in sorted({student for student, _ in changed}):
        if student not in names:
            yield f"nobody called {student!r} handed anything in, so their points are left out{nearest(student, names)}"
        elif not names[student]:
            yield f"nothing from {student} could be read, but the points that you give count"


def _beside(out: Path, ending: str) -> Path:
    return out.with_name(out.stem + ending)


def _sandbox(folders: Sequence[Path]) -> tuple[str, ...]:
    """The sandbox in which every answer runs. Neither the course nor any hand-in is visible in it."""
    if reason := sandbox.why_none():
        raise CourseError(f"{reason}; with --no-sandbox, submissions run with your permissions")
    readable = [PROGRAM, *program.read_in_a_sandbox()]
    return sandbox.prefix(readable=readable, hidden=[*(ROOT / name for name in PACKAGES), *folders])


def _answer(given: Submission, exercise: Exercise, terms: Terms) -> Task | Judged:
    """The answer to judge, or a verdict if there is nothing to judge."""
    file, title = file_of(exercise), f"{exercise.operation} ({exercise.kernel})"
    if given.reason:
        return Judged("missing", f"{title}: {given.reason}")
    if file not in given.texts:
        said = given.problem_of(file)
        return Judged("unreadable", f"{title}: {said}") if said else Judged("missing", "")
    text = given.texts[file]
    return caught(lambda: _task(exercise, text, terms), lambda said: Judged("launch", f"{title}: {said}"))


def _task(exercise: Exercise, text: str, terms: Terms) -> Task | Judged:
    if not exams.is_cuda(exercise.kernel):
        return Task(exercise.operation, exercise.kernel, text, None)
    if cuda_cell.is_empty(text):
        return Judged("open", f"{exercise.operation} ({exercise.kernel}): the kernel is empty")
    operation = definitions.find(exercise.operation, terms.definitions)
    launch = launch_of(operation, exercise.kernel, text, terms.definitions)
    return Task(exercise.operation, exercise.kernel, text, launch)


def _refuse_what_cannot_run(tasks: Iterable[Task]) -> None:
    """CourseError if there is CUDA C that this machine cannot run: all those answers would be called wrong."""
    if any(task.launch for task in tasks) and not devices.gpu_available() and (reason := emulate.why_not()):
        raise CourseError(f"kernels in CUDA C cannot be judged here: {reason}")


def _compared(given: Sequence[Submission], exercise: Exercise, of_course: bool) -> Comparison:
    file = file_of(exercise)
    texts = {each.student: each.texts[file] for each in given if file in each.texts}
    solution = solution_text(exercise.operation, exercise.kernel) if of_course else ""
    is_cuda = exams.is_cuda(exercise.kernel)
    return caught(lambda: compared(texts, is_cuda, solution or ""), lambda said: NOT_COMPARED)


def _write(out: Path, standings: Sequence[Standing], alike: Mapping[str, Comparison], terms: Terms, title: str) -> None:
    """Write the tables and pages."""
    marks.write_marks(out, standings, terms.version, terms.seed)
    marks.write_totals(_beside(out, "_by_student.csv"), standings, terms.version, terms.seed)
    pages.write_feedback(_beside(out, "_feedback"), standings, title, terms.version)
    pages.write_overview(_beside(out, "_overview.html"), standings, alike, title, terms.version)
