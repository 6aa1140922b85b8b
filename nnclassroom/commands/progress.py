"""`nncourse progress`: which exercises are done."""

from argparse import ArgumentParser, Namespace


def add_options(parser: ArgumentParser) -> None:
    """There are none."""


def run(options: Namespace) -> int:
    from nnclassroom.exercises.hints import progress_lines

    print("\n".join(progress_lines()))
    return 0
