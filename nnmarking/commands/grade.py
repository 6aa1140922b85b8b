"""`nncourse grade`: mark what a class handed in."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from nnclassroom.arguments import number, whole


def add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("folders", nargs="+", type=Path, metavar="FOLDER", help="the class's folder of hand-ins, or one")
    add("--out", type=Path, required=True, metavar="MARKS.CSV")
    add("--only", default="", metavar="02,03", help="these notebooks or exercises, and no others")
    add(
        "--due",
        default="",
        metavar="2026-12-01T23:59",
        help="by this machine's clock, or the end of a day, 2026-12-01; what came later is named",
    )
    add(
        "--late",
        type=number,
        default=0.0,
        metavar="PER_CENT",
        help="of the points, lost for each day begun after --due",
    )
    add("--roster", type=Path, metavar="CLASS.CSV", help="the class's list, as Moodle or Canvas exports it")
    add("--column", default="", help="of that list, for the points (default: Moodle's Grade, else points)")
    add("--weights", type=Path, metavar="WEIGHTS.TOML", help="points by notebook and by exercise")
    add("--seed", type=whole, help="of what is tried (default: at random, and written into the marks)")
    add("--jobs", type=whole, default=2, help="texts judged at a time (default 2)")
    add("--exercises", type=Path, metavar="EXAM.TOML", help="mark this examination, not the course")
    add("--overrides", type=Path, metavar="CSV", help="student, exercise, points, reason")
    add("--no-sandbox", action="store_true", help="run the texts with your own rights")


def run(options: Namespace) -> int:
    from nnmarking import grade

    if options.no_sandbox:
        print("--no-sandbox: every text runs with your rights, and could write its own marks")
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
    feedback = options.out.with_name(f"{options.out.stem}_feedback.zip")
    print(f"marks: {options.out}; feedback: {feedback}")
    return 0
