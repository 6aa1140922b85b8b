"""`nncourse handout --solved`: write notebooks for assistants, filled in with the course's own kernels, and run.

Each exercise is filled in with what solution() shows, and judged like a student's answer. If an answer is not right,
that is an error.
"""

import ast
import os
import re
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import exercises
from nnclassroom.exercises.solutions import text_of
from nnclassroom.handing_out import notebook_files
from nnclassroom.notebook.python_cell import DECORATOR
from nnclassroom.zips import refuse_other_name, write_zip
from nncourse import language as languages
from nncourse.errors import CourseError

TOP = "solved"  # the one folder in the .zip
LIMIT = 300  # seconds for a cell
EXERCISE = re.compile(rf'^@{DECORATOR}\("(\w+)", kernel="(\w+)"\)|^%%cuda (\w+) (\w+)', re.MULTILINE)


def write(out: Path, language: str, only: str = "", say: Callable[[str], None] = print) -> str:
    """Write the .zip. Returns a line that says what is in it; `say` gets a line for each notebook that has been run.

    only: the notebooks, such as 02,03b; all by default.
    """
    refuse_other_name(out)
    paths = notebook_files.chosen(languages.ROOT, language, only)
    if not find_spec("nbclient"):
        raise CourseError("nbclient, which runs the notebooks, is not installed: run `make setup`")
    keys = {each.key for each in exercises()}
    files, count = {}, 0
    for path in paths:
        notebook = notebook_files.parsed(notebook_files.clean(path.read_bytes(), path.name), path.name)
        solved = 0
        for cell in notebook.cells:
            named = EXERCISE.search(cell.source) if cell.cell_type == "code" else None
            operation, kernel = filter(None, named.groups()) if named else ("", "")
            if f"{operation}.{kernel}" in keys:
                cell.source = filled(cell.source, operation, kernel)
                solved += 1
        _run(notebook, path.name, language)
        files[f"{TOP}/{path.name}"] = notebook_files.to_bytes(notebook)
        count += solved
        say(f"{path.name}: {solved} exercises solved")
    write_zip(out, files)
    return f"{out}: {len(files)} notebooks and {count} exercises, solved and run"


def filled(source: str, operation: str, kernel: str) -> str:
    """The cell of an exercise with the course's kernel in place of its blank."""
    text = text_of(find(operation)[kernel])
    lines = source.split("\n")
    if source.startswith("%%"):
        return f"{lines[0]}\n{text}"
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    (blank,) = functions
    own = text.replace(f"def {operation}(", f"def {blank.name}(", 1)
    return "\n".join([*lines[: blank.lineno - 1], own, *lines[blank.end_lineno :]])


def _run(notebook: Any, name: str, language: str) -> None:
    """Run a notebook without any kept kernels. CourseError if a cell fails, or an answer is not right."""
    from jupyter_client import AsyncKernelManager
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    with tempfile.TemporaryDirectory(prefix="nncourse-solved-") as made:
        # This environment's kernel comes before those of the user's. It listens on files: a port could be taken.
        environment = os.environ | {
            "NNCOURSE_LANG": language,
            "NNCOURSE_MY_KERNELS": f"{made}/kernels",
            "NNCOURSE_STRICT": "1",
            "JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter"),
        }
        environment.pop("NNCOURSE_SOLVE", None)
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{made}/socket")
        resources = {"metadata": {"path": made}}
        client = NotebookClient(notebook, manager, timeout=LIMIT, resources=resources, record_timing=False)
        try:
            client.execute(env=environment)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            done = [cell for cell in notebook.cells if cell.get("execution_count")]
            said = str(error).strip().partition("\n")[0]
            if isinstance(error, CellExecutionError):
                said = f"{error.ename}: {error.evalue}".partition("\n")[0]
            raise CourseError(f"{name}, cell {done[-1].get('id') if done else '1'}: {said}") from None
