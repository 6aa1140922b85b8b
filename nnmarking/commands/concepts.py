"""`nncourse concepts`: a test before and after the course, and what a class has gained."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from nncourse.errors import CourseError


def add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--paper", choices=("A", "B"), help="print this form of the test, in Markdown, with a line for the answers")
    add("--notebook", choices=("A", "B"), help="write this form of the test as a notebook, to the file --out")
    add("--out", type=Path, metavar="FILE", help="file for the notebook, which writes answers.csv when it is run")
    add("--before", type=Path, metavar="CSV", help="table of a class's answers before the course")
    add("--after", type=Path, metavar="CSV", help="table of the class's answers after the course")


def run(options: Namespace) -> int:
    from nnmarking import concept_forms, gains

    if options.paper:
        print(concept_forms.paper(options.paper))
    elif options.notebook and options.out:
        print(concept_forms.write(options.notebook, options.out))
    elif options.before and options.after:
        print(*gains.report(gains.read(options.before), gains.read(options.after)), sep="\n")
    else:
        raise CourseError("expected --paper A, or --notebook A with --out FILE, or --before CSV with --after CSV")
    return 0
