"""What imports what: rooms by import-linter, circles by tools/circles.py, slow packages late, little for a backend."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nnclassroom.exercises.catalogue import exercise_topics
from nnclassroom.exercises.index import OPERATIONS as INDEX
from nncourse.calls import OPERATIONS
from nncourse.catalogue import TOPICS, defined_in, epoch_topics, topics
from tools import circles

ROOT = Path(__file__).resolve().parents[1]
LATE = {"cupy", "cudnn", "numba", "torch", "tqdm", "cuda", "mpi4py", "sklearn", "IPython", "pynvml", "threadpoolctl"}
LATE |= {"matplotlib", "ipywidgets", "anywidget"}
# Only modules below these may import matplotlib and ipywidgets at module level.
CORNER = ("nnclassroom/figures/", "nnclassroom/widgets/")
# After choose("numpy"): modules of the packages, and their lines. None of them reads what .cu texts declare.
MOST_MODULES, MOST_LINES = 21, 8_730  # of modules besides the topics
MOST_FOR_A_CHECK = 60  # modules of the packages in a notebook, and in its worker


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
    assert len(own) <= MOST_MODULES + len(TOPICS), sorted(own)
    assert lines <= MOST_LINES


SIGMOID = """
import json, sys
import numpy as np
from nnclassroom import exercise

@exercise("sigmoid", kernel="numpy")
def sigmoid(z):
    return 1 / (1 + np.exp(-z))

assert sigmoid.outcome.state == "right", sigmoid.outcome
from nnclassroom.judge import worker
there = worker.call(eval, "sorted(__import__('sys').modules)", seconds=60)
print(json.dumps({"notebook": sorted(sys.modules), "worker": there}))
"""


def test_checking_a_sigmoid_loads_no_other_topic_and_few_modules(tmp_path):
    """What an exercise needs that is open, wrong or right: it is judged, timed and kept."""
    (tmp_path / "cell.py").write_text(SIGMOID, "utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "NNCOURSE_"))}
    environment |= {"PYTHONPATH": str(ROOT), "NNCOURSE_MY_KERNELS": str(tmp_path / "kept")}
    command = [sys.executable, str(tmp_path / "cell.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    for process, loaded in json.loads(done.stdout.splitlines()[-1]).items():
        own = [name for name in loaded if name.split(".")[0] in circles.PACKAGES]
        assert len(own) <= MOST_FOR_A_CHECK, f"{process}: {len(own)} modules: {', '.join(own)}"
        topics = [name for name in own if name in {*OPERATIONS, *INDEX} or name.startswith("nncourse.parallel")]
        assert topics == ["nncourse.kernels.activations"], process


EACH_ALONE = """
import json, os
import numpy
from nnclassroom.exercises.catalogue import OPERATIONS, find, index

def found(name):
    into, out_of = os.pipe()
    if os.fork() == 0:
        os.write(out_of, json.dumps(list(find(name).kernels)).encode())
        os._exit(0)
    os.close(out_of)
    os.wait()
    with open(into) as answer:
        return json.loads(answer.read())

names = [name for names in (OPERATIONS | index.OPERATIONS).values() for name in names]
print(json.dumps({name: found(name) for name in names}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_an_operation_that_is_found_alone_has_all_its_kernels():
    done = subprocess.run([sys.executable, "-c", EACH_ALONE], capture_output=True, text=True, check=True, cwd=ROOT)
    known = defined_in((*topics(), *epoch_topics(), *exercise_topics()))
    indexed = {name for names in (OPERATIONS | INDEX).values() for name in names}
    assert json.loads(done.stdout) == {name: list(known[name].kernels) for name in indexed}
    assert set(known) - set(defined_in(epoch_topics())) == indexed - set(defined_in(epoch_topics()))
