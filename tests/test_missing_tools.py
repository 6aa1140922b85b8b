"""A machine without g++, fork, bubblewrap and NVIDIA's compiler library, as Windows and macOS: what is said there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import v4

from nnclassroom.judge import limits, sandbox
from nnclassroom.judge.check import check
from nncourse.catalogue import find
from nncourse.language import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
WITHOUT = ROOT / "tests" / "without"  # on PYTHONPATH it takes tools away
RUN_CUDA = ("02b", "03b", "04", "05b", "07", "10")  # notebooks that run CUDA kernels before anything is filled in
REASON = re.compile(r".*(?:C\+\+ compiler|compiler library|bubblewrap|emulator of CUDA (?:expected|runs)).*")
ADVICE = re.compile(r"apt install g\+\+|apt install bubblewrap|pip install cuda-core")


def bare(folder: Path, *missing: str) -> dict[str, str]:
    """The environment of a process that has neither a compiler nor bubblewrap on its path, nor what is `missing`."""
    found = {"PATH": str(Path(sys.executable).parent), "HOME": str(folder), "NNCOURSE_MY_KERNELS": str(folder / "kept")}
    kept = ("LANG", "JUPYTER_PATH", "OMP_NUM_THREADS", "NNCOURSE_DATA")
    found |= {name: os.environ[name] for name in kept if name in os.environ}
    return found | {"PYTHONPATH": os.pathsep.join([str(WITHOUT), str(ROOT)]), "NNCOURSE_WITHOUT": ",".join(missing)}


def run(notebook: nbformat.NotebookNode, folder: Path, *missing: str) -> list[str]:
    """Run a notebook there. Returns what each code cell said, as text; an error of a cell is raised."""
    NotebookClient(notebook, timeout=900, resources={"metadata": {"path": str(folder)}}).execute(
        env=bare(folder, *missing)
    )
    return [
        "\n".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def python(code: str, folder: Path, *missing: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=bare(folder, *missing), capture_output=True, text=True, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


CELLS = [
    "import numpy as np\nfrom nnclassroom import find\nfrom nncourse.cuda.compile import resources",
    '%%cuda sigmoid naive --block 256\nextern "C" __global__ void f(const float* z, float* a, int n) { a[0] = 1; }',
    "seen = find('relu')['naive'](np.ones(3, np.float32))\n'never'",
    "seen.sum()",
    "'goes on'",
    "kernel = find('relu')['naive']\nneeds = resources(kernel.source, kernel.entry)",
]


def test_a_cell_that_lacks_a_tool_says_so_and_the_notebook_goes_on(tmp_path):
    said = run(v4.new_notebook(cells=[v4.new_code_cell(text) for text in CELLS]), tmp_path, "nvrtc")
    assert said[1].startswith("○ sigmoid (naive): cannot be checked here: ") and "apt install g++" in said[1]
    for place in (2, 3):
        assert said[place].startswith("– Not run here: kernels/activations.cu: ") and "apt install g++" in said[place]
    assert said[4] == "'goes on'"
    assert said[5].startswith("– Not run here: ") and "pip install cuda-core" in said[5]


def test_any_other_error_stays_one(tmp_path):
    from nbclient.exceptions import CellExecutionError

    cells = [v4.new_code_cell(text) for text in ("import nnclassroom", "no_such_name + 1")]
    with pytest.raises(CellExecutionError, match="no_such_name"):
        run(v4.new_notebook(cells=cells), tmp_path)


def test_a_kernel_is_not_called_wrong_where_it_cannot_be_checked(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    verdict = check(find("relu"), "naive", device="emulator")
    assert not verdict and str(verdict).startswith("– relu (naive): cannot be checked here: ")
    assert "no-such-compiler" in verdict.line and "install it" in verdict.line


def test_answers_are_judged_without_fork(tmp_path):
    code = """
import os
from nnclassroom.exercises import kept_kernels
assert not hasattr(os, "fork")
for text in ("np.maximum(z, 0)", "np.minimum(z, 0)"):
    print(kept_kernels.check("relu", "numpy", f"def relu(z):\\n    return {text}"))
"""
    right, wrong = python(code, tmp_path, "fork").splitlines()[:2]
    assert right.startswith("✓ relu (numpy)") and wrong.startswith("✗ relu (numpy)")


def test_without_the_compiler_library_its_packages_are_named(tmp_path):
    code = "from cuda_on_cpu.nvrtc import why_no_nvrtc; print(why_no_nvrtc())"
    assert "pip install cuda-core cuda-bindings nvidia-cuda-nvrtc" in python(code, tmp_path, "nvrtc")


def test_an_answer_with_ones_own_rights_is_told_with_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(limits, "_why_not_confined", lambda: "only Linux can")
    monkeypatch.setattr(sandbox.shutil, "which", lambda program: None)
    limits.prefix.cache_clear()
    assert limits.prefix() == ()
    limits.prefix.cache_clear()
    assert "apt install bubblewrap" in capsys.readouterr().out


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_runs_and_says_what_is_missing(path, tmp_path):
    said = run(nbformat.read(path, as_version=4), tmp_path, "fork", "nvrtc")
    lacking = [line for text in said for line in REASON.findall(text)]
    assert all(ADVICE.search(line) for line in lacking), lacking
    assert lacking or path.stem.partition("_")[0] not in RUN_CUDA
