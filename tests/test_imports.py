"""What imports what: rooms by import-linter, circles by tools/circles.py, slow packages late, little for a backend."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import circles

ROOT = Path(__file__).resolve().parents[1]
LATE = {"cupy", "cudnn", "numba", "torch", "tqdm", "cuda", "mpi4py", "sklearn", "IPython", "pynvml", "threadpoolctl"}
LATE |= {"matplotlib", "ipywidgets", "anywidget"}
# Only modules below these may import matplotlib and ipywidgets at module level.
CORNER = ("nnclassroom/figures/", "nnclassroom/widgets/")
# After choose("numpy"): modules of the packages, and their lines. Six of them read what .cu texts declare.
MOST_MODULES, MOST_LINES = 44, 8_200


def test_imports_run_downwards():
    """import-linter's contracts in pyproject.toml."""
    from importlinter.cli import lint_imports

    assert lint_imports(str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True) == 0


def test_no_module_imports_itself_by_a_detour():
    graph = circles.graph()
    assert circles.circles(graph) == []
    heart = {"nncourse.kernels.operation", "nncourse.kernels.trial"}
    assert graph["nncourse.kernels.dense"] == heart | {"nncourse.device"}
    upwards = graph | {"nncourse.kernels.contract": {"nncourse.kernels.dense"}}
    (found,) = circles.circles(upwards)
    assert {"nncourse.kernels.contract", "nncourse.kernels.dense"} <= set(found)


def test_imports_in_functions_and_for_annotations_count():
    text = "from a import b\nif TYPE_CHECKING:\n    from a.c import D\ndef f():\n    import a.e\n"
    assert circles.imported(text, {"a", "a.b", "a.c", "a.e"}) == {"a.b", "a.c", "a.e"}


def at_module_level(tree: ast.Module) -> ast.Module:
    """The same without the bodies of functions, which run later."""

    class Without(ast.NodeTransformer):
        def visit_FunctionDef(self, node):  # noqa: N802
            return None

        visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef  # noqa: N815

    return Without().visit(tree)


def packages_imported(tree: ast.AST) -> set[str]:
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {module.split(".")[0] for module in modules}


def test_slow_packages_are_imported_late():
    early = {}
    for name, path in circles.modules().items():
        if not path.relative_to(ROOT).as_posix().startswith(CORNER):
            found = packages_imported(at_module_level(ast.parse(path.read_text("utf-8")))) & LATE
            early |= {name: found} if found else {}
    assert early == {}


def loaded_by(statement: str) -> dict[str, str | None]:
    """The modules in memory after a statement in a fresh interpreter, and their files."""
    told = "print(json.dumps({name: getattr(module, '__file__', None) for name, module in sys.modules.items()}))"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-c", f"{statement}\nimport json, sys\n{told}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def packages_in(modules: dict[str, str | None]) -> set[str]:
    return {name.split(".")[0] for name in modules}


@pytest.mark.parametrize(
    ("module", "late"),
    [
        ("nncourse", LATE | {"numpy"}),
        ("nnclassroom", LATE | {"numpy"}),
        ("nnclassroom.commands", LATE | {"numpy"}),
        ("nncourse.backend", LATE),
        ("nncourse.model.training", LATE),
        ("nncourse.model.files", LATE),
        ("nnclassroom.timing", LATE),
        ("cuda_on_cpu.emulate", LATE | {"nncourse", "nnclassroom"}),
    ],
)
def test_a_fresh_interpreter_loads_none_of_them(module, late):
    assert not packages_in(loaded_by(f"import {module}")) & late


def test_choosing_a_backend_loads_little_and_no_judge():
    loaded = loaded_by("from nncourse.backend import choose; import numpy; choose('numpy').sigmoid(numpy.zeros(3))")
    own = {name: file for name, file in loaded.items() if name.split(".")[0] in circles.PACKAGES and file}
    lines = sum(len(Path(file).read_text("utf-8").splitlines()) for file in own.values())
    assert not packages_in(loaded) & (LATE | {"nnclassroom"})
    assert len(own) <= MOST_MODULES, sorted(own)
    assert lines <= MOST_LINES
