"""`nncourse grade`: mark what a class handed in."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from nnclassroom.arguments import number, whole


def add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("folders", nargs="+", type=Path, metavar="FOLDER", help="folder with the hand-ins of a class, or one hand-in")
    add(
        "--out",
        type=Path,
        required=True,
        metavar="MARKS.CSV",
        help="file for the marks; the names of the other files begin with its name",
    )
    add("--only", default="", metavar="02,03", help="notebooks or exercises to mark (default: all)")
    add(
        "--due",
        default="",
        metavar="2026-12-01T23:59",
        help="deadline, in this machine's time zone unless you add one; a date alone means the end of that day",
    )
    add(
        "--late",
        type=number,
        default=0.0,
        metavar="PER_CENT",
        help="per cent of the points lost for each day begun after --due (default 0)",
    )
    add("--roster", type=Path, metavar="CLASS.CSV", help="list of the class, as Moodle or Canvas exports it")
    add("--column", default="", help="column of the list to put the points into (default: Moodle's Grade, or points)")
    add(
        "--weights",
        type=Path,
        metavar="WEIGHTS.TOML",
        help="file with the points for each notebook or exercise (default: the suggested points)",
    )
    add("--seed", type=whole, help="seed for the cases to try (default: a random one, which the marks record)")
    add("--jobs", type=whole, default=2, help="number of submissions to judge in parallel (default 2)")
    add("--exercises", type=Path, metavar="EXAM.TOML", help="file of an examination to mark instead of the course")
    add(
        "--overrides",
        type=Path,
        metavar="CSV",
        help="file with marks changed by hand, with the columns student, exercise, points, reason",
    )
    add("--no-sandbox", action="store_true", help="run submissions with your own permissions, without a sandbox")


def run(options: Namespace) -> int:
    from nnmarking import grade

    if options.no_sandbox:
        print("--no-sandbox: submissions run with your permissions, and could write their own marks")
    grade.grade(
        options.folders,
        options.out,
        options.weights,
        options.seed,
        options.jobs,
        options.exercises,
        options.overrides,
        not options.no_sandbox,
        say=lambda line: print(line, flush=True),
        only=options.only,
        due=options.due,
        late=options.late,
        listed=options.roster,
        column=options.column,
    )
    overview, feedback = (options.out.with_name(options.out.stem + end) for end in ("_overview.html", "_feedback.zip"))
    print(f"marks: {options.out}; feedback: {feedback}; open {overview} first")
    return 0
