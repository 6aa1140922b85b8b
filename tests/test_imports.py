"""The import rule: parts of the package use only those below them, and slow packages are imported late."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import nncourse

FOLDER = Path(nncourse.__file__).parent
LANGUAGES = FOLDER / "languages"  # generated from the files here
FILES = sorted(file for file in FOLDER.rglob("*.py") if LANGUAGES not in file.parents)

# What each part may import of the package; a part is a folder or a file of nncourse/. There are no exceptions.
BELOW = {
    "nncourse": {"language"},
    "language": set(),
    "errors": set(),
    "arguments": set(),
    "architecture": set(),
    "calls": set(),
    "reading": {"errors"},
    "device": {"nncourse", "errors"},
    "group": {"errors", "calls", "device"},
    "silhouettes": set(),
    "datasets": {"errors", "language", "reading", "device", "silhouettes"},
    "child": set(),
    "sandbox": set(),
    "cuda": {"errors", "device", "child"},
    "worker": {"errors", "child"},
    "simulation": {"errors"},
    "text_process": {"device"},  # only to measure times, when it judges nothing
    "kernels": {
        "errors", "language", "architecture", "calls", "device", "group", "cuda", "worker", "text_process",
        "simulation",
    },
    "model": {"errors", "architecture", "calls", "device", "group", "datasets", "kernels"},
    "parallel": {
        "errors", "architecture", "calls", "child", "device", "group", "simulation", "silhouettes", "datasets",
        "kernels", "model",
    },
    "classroom": {
        "arguments", "errors", "language", "architecture", "calls", "reading", "device", "group", "datasets", "cuda",
        "worker", "kernels", "model", "parallel", "nncourse", "sandbox",
    },
    "cli": {
        "nncourse", "arguments", "errors", "language", "reading", "device", "datasets", "cuda", "kernels", "model",
        "classroom", "parallel",
    },
    "__main__": {"cli"},
}  # fmt: skip
# Networks are handed a backend: of the model only metrics.py computes something without one.
WITHOUT_KERNELS = ("layers", "network", "updates", "training", "files")
LATE = {"cupy", "cudnn", "numba", "torch", "tqdm", "cuda", "mpi4py", "sklearn", "IPython", "pynvml", "threadpoolctl"}
LATE |= {"matplotlib", "ipywidgets", "anywidget"}
CORNER_NAMES = """
    deep_networks descents described downpour drawing drawn exchanges filter_by_hand gantt images laws matrices
    on_the_gpu paths perceptron picture playground playground_still plots scaling sums training_figures valley way_back
    widgets
"""
CORNERS = {f"classroom/{name}.py" for name in CORNER_NAMES.split()}


def part_of(file: Path) -> str:
    first = file.relative_to(FOLDER).parts[0].removesuffix(".py")
    return "nncourse" if first == "__init__" else first


def imported(tree: ast.AST) -> set[str]:
    """Every module that an import statement below `tree` names, in full."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "wanted imports in full: from nncourse.… import …"
            # `from nncourse import device` imports a module, `from nncourse import __version__` a value
            found |= {
                f"{node.module}.{alias.name}" if node.module == "nncourse" else node.module for alias in node.names
            }
    return found


def parts(modules: set[str]) -> set[str]:
    """The parts of the package among them."""
    names = [module.split(".") for module in modules if module.split(".")[0] == "nncourse"]
    return {name[1] if len(name) > 1 and name[1] in BELOW else "nncourse" for name in names}


def at_module_level(tree: ast.Module) -> ast.Module:
    """The same without the bodies of functions, which run later."""

    class Without(ast.NodeTransformer):
        def visit_FunctionDef(self, node):  # noqa: N802
            return None

        visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef  # noqa: N815

    return Without().visit(tree)


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_imports_run_one_way(file):
    part = part_of(file)
    assert part in BELOW, f"say in BELOW what {part} may import"
    assert parts(imported(parsed(file))) <= BELOW[part] | {part}


@pytest.mark.parametrize("name", WITHOUT_KERNELS)
def test_networks_know_no_kernels(name):
    assert "kernels" not in parts(imported(parsed(FOLDER / "model" / f"{name}.py")))


def without_type_checking(tree: ast.Module) -> ast.Module:
    """The same without `if TYPE_CHECKING:`, whose imports are for type checkers and never run."""

    class Without(ast.NodeTransformer):
        def visit_If(self, node):  # noqa: N802
            return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    return Without().visit(tree)


def modules_imported(file: Path, known: set[str]) -> set[str]:
    """The modules of the package that a file imports, inside of functions too, by their full names."""
    found = set()
    for node in ast.walk(without_type_checking(parsed(file))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & known or {node.module}
            if inner - known:  # a name of the module itself is used too
                found.add(node.module)
    return found & known


def circle_in(graph: dict[str, set[str]]) -> list[str]:
    """The modules of one circle, or none."""
    done: set[str] = set()

    def follow(module: str, path: list[str]) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for other in sorted(graph.get(module, ())):
            if found := follow(other, [*path, module]):
                return found
        done.add(module)
        return []

    return next((found for module in graph if (found := follow(module, []))), [])


def name_of(file: Path) -> str:
    parts = file.relative_to(FOLDER.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_module_imports_itself_by_a_detour_through_functions_either():
    known = {name_of(file) for file in FILES}
    graph = {name_of(file): modules_imported(file, known) for file in FILES}
    assert circle_in(graph) == []
    assert graph["nncourse.kernels.dense"] == {"cuda_on_cpu.source", "nncourse.kernels.operation"}
    upwards = graph | {"nncourse.kernels.contract": {"nncourse.backend"}}
    assert {"nncourse.kernels.contract", "nncourse.backend"} <= set(circle_in(upwards))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_slow_packages_are_imported_late(file):
    if str(file.relative_to(FOLDER)) in CORNERS:
        pytest.skip("the corner of matplotlib and ipywidgets")
    names = {module.split(".")[0] for module in imported(at_module_level(parsed(file)))}
    assert not names & LATE


def test_the_rule_has_no_circle_and_finds_what_it_should():
    for part, below in BELOW.items():
        assert all(part not in BELOW[other] for other in below)
    tree = ast.parse("from nncourse.model.layers import Dense\nfrom nncourse import device\ndef f():\n    import cupy")
    assert parts(imported(tree)) == {"model", "device"}
    assert imported(tree) - imported(at_module_level(tree)) == {"cupy"}
    assert len(FILES) > 25


def loaded_by(statement: str) -> set[str]:
    """The packages in memory after a statement in a fresh interpreter."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=FOLDER.parent)
    return {module.split(".")[0] for module in done.stdout.split()}


@pytest.mark.parametrize(
    ("module", "late"),
    [
        ("nncourse", LATE | {"numpy"}),
        ("nnclassroom.commands", LATE | {"numpy"}),
        ("nncourse.backend", LATE),
        ("nncourse.model.training", LATE),
        ("nncourse.model.files", LATE),
        ("nnclassroom.timing", LATE),
    ],
)
def test_a_fresh_interpreter_loads_none_of_them(module, late):
    assert not loaded_by(f"import {module}") & late


def test_choosing_and_using_a_cpu_backend_loads_no_gpu_package_and_compiles_nothing():
    use = "from nncourse.backend import choose; import numpy; choose('numpy').sigmoid(numpy.zeros(3))"
    assert not loaded_by(use) & LATE


def test_every_package_is_declared():
    """A folder that pyproject.toml does not name is missing in an installed copy."""
    import tomllib

    text = (FOLDER.parent / "pyproject.toml").read_text()
    declared = set(tomllib.loads(text)["tool"]["setuptools"]["packages"])
    assert declared == {
        ".".join(file.parent.relative_to(FOLDER.parent).parts) for file in FILES if file.name == "__init__.py"
    }
