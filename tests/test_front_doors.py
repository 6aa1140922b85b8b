"""The front doors: what notebooks import, how quickly, and the examples in the docstrings of what they offer."""

import ast
import doctest
import importlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nnclassroom
import nncourse

ROOT = Path(__file__).resolve().parents[1]
DOORS = ("nncourse", "nncourse.model", "nncourse.parallel", "nnclassroom")  # later ones before earlier, in examples
LAZY = (*DOORS, "nnclassroom.figures", "nnclassroom.notebook", "nnclassroom.widgets")
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
HEAVY = ("numpy", "cupy", "numba", "matplotlib", "anywidget", "IPython", "mpi4py", "torch")
MOST_SECONDS = 0.05
MOST_IMPORTS = 6  # of a first cell
OWN_CELLS = {"AdaGrad", "RMSProp"}  # beside SGD and Adam, for cells that students write


def offered(door: str) -> dict[str, object]:
    """What a door offers, by name."""
    module = importlib.import_module(door)
    return {name: getattr(module, name) for name in dir(module)}


FUNCTIONS = {
    f"{door}.{name}": value for door in DOORS for name, value in offered(door).items() if inspect.isfunction(value)
}


def in_a_fresh_interpreter(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.parametrize("door", LAZY)
def test_a_door_offers_what_its_stub_says(door):
    module = importlib.import_module(door)
    stub = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text("utf-8"))
    aliases = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.name == alias.asname for alias in aliases), "without `as` editors take a name for private"
    names = [alias.name for alias in aliases]
    assert sorted(names) == sorted(set(names)) == list(offered(door))


@pytest.mark.parametrize("door", LAZY)
def test_a_door_loads_nothing_heavy(door):
    modules = in_a_fresh_interpreter(f"import sys, {door}; print(*sys.modules)").split()
    assert not {module.split(".")[0] for module in modules} & set(HEAVY)


def test_importing_nncourse_is_quick():
    """The best of some, in the process's own time: other programs may keep the machine busy."""
    code = "import time; start = time.process_time(); import nncourse; print(time.process_time() - start)"
    assert min(float(in_a_fresh_interpreter(code)) for _ in range(9)) < MOST_SECONDS


def test_functions_are_those_of_the_doors_although_files_have_their_names():
    """resnet() lies in resnet.py: whoever imports the file must not put it in the function's place."""
    code = "import nncourse.model.resnet\nfrom nncourse.model import resnet\nprint(callable(resnet))"
    assert in_a_fresh_interpreter(code).strip() == "True"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_of_a_function_runs(name, my_kernels, monkeypatch):
    monkeypatch.delenv("NNCOURSE_SOLVE", raising=False)
    known = {name: value for door in DOORS for name, value in offered(door).items()}
    globs = {**known, "np": np, "nncourse": nncourse, "nnclassroom": nnclassroom}
    (example,) = doctest.DocTestFinder(recurse=False).find(FUNCTIONS[name], name, globs=globs)
    assert example.examples
    said: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.append)
    assert not said, "".join(said)


def test_the_example_of_the_readme_runs():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    shown = in_a_fresh_interpreter(block).splitlines()
    assert [line[0] for line in shown if line[0] in "✓✗"] == ["✓", "✗"] and shown[0].startswith("dense_forward (1)")


def code_cells(path: Path) -> list[str]:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def imports(cell: str) -> list[ast.Import | ast.ImportFrom]:
    """The import statements of a cell, those inside of blocks included."""
    if cell.startswith("%%cuda"):
        return []
    python = "\n".join(line for line in cell.splitlines() if not line.startswith("%"))
    return [node for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Import | ast.ImportFrom)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_begins_with_its_own_few_lines(path):
    first, *later = code_cells(path)
    assert len(imports(first)) <= MOST_IMPORTS and "%load_ext" not in first
    ours = [node for cell in (first, *later) for node in imports(cell)]
    ours = [node for node in ours if isinstance(node, ast.ImportFrom) and re.match(r"nn|cuda_on_cpu", node.module)]
    assert {node.module for node in ours} <= {*DOORS, "nnclassroom.figures"}
    assert all(alias.name in offered(node.module) for node in ours for alias in node.names)
    drawn = [alias.name for node in ours if node.module == "nnclassroom.figures" for alias in node.names]
    assert drawn == ["nb" + path.stem[:2]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_draws_what_its_figures_offer(path):
    module = importlib.import_module(f"nnclassroom.figures.nb{path.stem[:2]}")
    used = set(re.findall(r"\bfigures\.(\w+)", "\n".join(code_cells(path))))
    assert used <= set(module.__all__) and all(hasattr(module, name) for name in module.__all__)


def test_what_a_door_or_a_module_of_figures_offers_is_used():
    text = "\n".join(cell for path in NOTEBOOKS for cell in code_cells(path)) + (ROOT / "README.md").read_text("utf-8")
    names = {name for door in (*DOORS, "nnclassroom.widgets") for name in offered(door)} - OWN_CELLS
    for path in sorted((ROOT / "nnclassroom" / "figures").glob("nb??.py")):
        names |= set(importlib.import_module(f"nnclassroom.figures.{path.stem}").__all__)
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []
