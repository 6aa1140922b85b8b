"""`nncourse handout`: what students get, in one .zip."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from nnclassroom.arguments import whole
from nncourse import language


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, metavar="COURSE.ZIP")
    parser.add_argument(
        "--language", default=language.current(), help="of the notebooks, such as en (default %(default)s)"
    )
    parser.add_argument("--notebooks-only", action="store_true", help="for a shared installation of the course")
    parser.add_argument("--exam", type=Path, metavar="EXAM.TOML", help="an examination: its questions alone")
    parser.add_argument("--variants", type=whole, default=1, help="of the examination, one file each (default 1)")


def run(options: Namespace) -> int:
    from nnclassroom.handing_out import examination, handout

    if options.exam:
        print(examination.write(options.out, options.exam, options.language, options.variants))
    else:
        print(handout.write(options.out, options.language, options.notebooks_only))
    return 0
