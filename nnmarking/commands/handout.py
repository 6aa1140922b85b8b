"""`nncourse handout`: write a .zip with everything that students get."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from nnclassroom.arguments import whole
from nncourse import language
from nncourse.errors import CourseError


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="COURSE.ZIP", help="file to write")
    parser.add_argument(
        "--language", default=language.current(), help="language of the notebooks, such as en (default %(default)s)"
    )
    parser.add_argument(
        "--notebooks-only", action="store_true", help="leave out the packages, for a shared installation of the course"
    )
    parser.add_argument(
        "--hosted", action="store_true", help="write notebooks that install the course, for a hosted Jupyter"
    )
    parser.add_argument("--wheel", metavar="URL_OR_FILE", help="address or file of the course's wheel, for --hosted")
    parser.add_argument(
        "--address", help="address of the repository, for links to it (default: the one in pyproject.toml)"
    )
    parser.add_argument(
        "--solved", action="store_true", help="write notebooks for assistants instead: exercises solved, cells run"
    )
    parser.add_argument("--only", default="", metavar="02,03", help="notebooks for --solved (default: all)")
    parser.add_argument(
        "--exam", type=Path, metavar="EXAM.TOML", help="file of an examination; hand out only its questions"
    )
    parser.add_argument(
        "--variants", type=whole, default=1, help="number of variants of the examination, one file each (default 1)"
    )


def run(options: Namespace) -> int:
    from nnmarking import examination, handout, hosted, solved

    if options.hosted != (options.wheel is not None):
        raise CourseError("--hosted and --wheel URL_OR_FILE go together: the notebooks install that wheel")
    if options.only and not options.solved:
        raise CourseError("--only works only with --solved: a hand-out for students has all notebooks")
    if options.solved:
        print(solved.write(options.out, options.language, options.only, say=lambda line: print(line, flush=True)))
    elif options.hosted:
        print(hosted.write(options.out, options.wheel, options.language))
    elif options.exam:
        print(examination.write(options.out, options.exam, options.language, options.variants))
    else:
        print(handout.write(options.out, options.language, options.notebooks_only, options.address))
    return 0
