"""`nncourse nbval`: run notebooks of this course from top to bottom, as a test in your own CI does."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

LIMIT = 300  # seconds for a cell
LONGEST_LINE = 80  # characters of a cell's first line


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("notebooks", nargs="*", metavar="02", help="notebooks to run, by number or name (default: all)")
    parser.add_argument(
        "--solve", default="", metavar="all", help="exercises to solve first, such as sigmoid, or all (default: none)"
    )


def run(options: Namespace) -> int:
    """Run copies of the notebooks, without outputs and without anybody's kept kernels, through pytest and nbval."""
    import os
    import subprocess
    import sys
    import tempfile
    from importlib.util import find_spec

    from nnclassroom.handing_out import notebook_files
    from nnclassroom.notebook import exercise
    from nncourse import language
    from nncourse.errors import CourseError

    wanted = notebook_files.chosen(language.COURSE, language.current(), ",".join(options.notebooks))
    solved = exercise.names_to_solve("--solve", options.solve)
    if not find_spec("nbval"):
        raise CourseError("expected pytest and nbval here: `make setup` installs them, elsewhere `pip install nbval`")
    with tempfile.TemporaryDirectory(prefix="nncourse-nbval-") as made:
        for path in wanted:
            (Path(made) / path.name).write_bytes(notebook_files.clean(path.read_bytes(), path.name))
        # This environment's kernel comes before those of the user's; nothing of a clone's own pytest is taken.
        kept = {"NNCOURSE_MY_KERNELS": str(Path(made) / "no_kernels")}
        environment = os.environ | kept | {"JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter")}
        if solved:
            environment |= {"NNCOURSE_SOLVE": ",".join(sorted(solved)), "NNCOURSE_STRICT": "1"}
        results = Path(made) / "results.xml"
        plain = ["-p", "no:cacheprovider", "--rootdir", made, "-c", os.devnull, "-rN", f"--junitxml={results}"]
        nbval = ["--nbval-lax", "--nbval-cell-timeout", str(LIMIT)]
        status = subprocess.run([sys.executable, "-m", "pytest", made, *plain, *nbval], env=environment).returncode
        for line in _failed(results):
            print(line)
        return status


def _failed(results: Path) -> Iterator[str]:
    """A line for each cell that failed, by its id: nbval's own numbers count the cells of code from 0."""
    import json
    from xml.etree import ElementTree

    tests = ElementTree.parse(results).iter("testcase") if results.is_file() else ()
    for test in tests:
        kind, _, number = test.get("name", "").partition(" ")
        path = results.parent / test.get("classname", "")
        if len(test) and kind == "Cell" and path.is_file():
            cells = [each for each in json.loads(path.read_text("utf-8"))["cells"] if each["cell_type"] == "code"]
            cell = cells[int(number)]
            first = "".join(cell["source"]).strip().partition("\n")[0][:LONGEST_LINE]
            yield f"failed: {path.name}, cell {cell.get('id', number)}: {first}"
