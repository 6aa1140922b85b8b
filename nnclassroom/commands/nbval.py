"""`nncourse nbval`: run notebooks of this course from top to bottom, as a test in your own CI does."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

LIMIT = 300  # seconds for a cell


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("notebooks", nargs="*", metavar="02", help="notebooks to run, by number or name (default: all)")
    parser.add_argument(
        "--solve", default="", metavar="all", help="exercises to run solved, such as sigmoid, or all (default: none)"
    )


def run(options: Namespace) -> int:
    """Run copies of the notebooks, without outputs and without anybody's kept kernels, through pytest and nbval."""
    import os
    import subprocess
    import sys
    import tempfile
    from importlib.util import find_spec

    from nnclassroom import arguments
    from nnclassroom.handing_out import notebook_files
    from nncourse import language
    from nncourse.errors import CourseError

    names = {
        path: (path.stem.partition("_")[0], path.stem)
        for path in notebook_files.notebooks(language.COURSE, language.current())
    }
    wanted = arguments.chosen("a notebook", ",".join(options.notebooks), names)
    if not find_spec("nbval"):
        raise CourseError("expected pytest and nbval here: `make setup` installs them, elsewhere `pip install nbval`")
    with tempfile.TemporaryDirectory(prefix="nncourse-nbval-") as made:
        for path in wanted:
            (Path(made) / path.name).write_bytes(notebook_files.clean(path.read_bytes(), path.name))
        # This environment's kernel comes before those of the user's; nothing of a clone's own pytest is taken.
        kept = {"NNCOURSE_MY_KERNELS": str(Path(made) / "no_kernels")}
        environment = os.environ | kept | {"JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter")}
        if options.solve:
            environment |= {"NNCOURSE_SOLVE": options.solve, "NNCOURSE_STRICT": "1"}
        plain = ["-p", "no:cacheprovider", "--rootdir", made, "-c", os.devnull]
        nbval = ["--nbval-lax", "--nbval-cell-timeout", str(LIMIT)]
        return subprocess.run([sys.executable, "-m", "pytest", made, *plain, *nbval], env=environment).returncode
