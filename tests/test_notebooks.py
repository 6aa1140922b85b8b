"""Notebooks as they are committed: run in order, their outputs kept, with cells that nbval really compares.

That they run, in all three ways, is tested by nbval: see the Makefile.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from nnclassroom.exercises.hints import exercises
from nncourse import device
from tests.exercise_answers import RIGHT
from tools.notebooks import client

PATHS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.fixture(params=PATHS, ids=[path.stem for path in PATHS])
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_cells_were_run_in_order_and_left_no_error(notebook):
    assert [cell.execution_count for cell in code_cells(notebook)] == list(range(1, len(code_cells(notebook)) + 1))
    for cell in code_cells(notebook):
        assert all(output.output_type != "error" and output.get("name") != "stderr" for output in cell.outputs), cell.id


def test_some_cell_is_compared_and_has_something_to_compare(notebook):
    compared = [cell for cell in code_cells(notebook) if "nbval-check-output" in cell.metadata.get("tags", [])]
    assert compared and all(cell.outputs for cell in compared)


def test_no_cell_may_fail_or_is_left_out_or_shows_traces_of_the_machine(notebook):
    """With other tags, or with nbval's comments, nbval would let an error pass."""
    for cell in code_cells(notebook):
        assert set(cell.metadata.get("tags", [])) <= {"nbval-check-output", "nbval-ignore-output"}, cell.id
        assert not re.search(r"NBVAL_|PYTEST_VALIDATE|^\s*!", cell.source, re.MULTILINE), cell.id
        for output in cell.outputs:
            assert not re.search(r"/home/|/root/|/tmp/", str(output.get("text", ""))), cell.id
    assert "signature" not in notebook.metadata


def test_ids_are_words_that_stay(notebook):
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-z0-9-]*", name) for name in ids)


EXERCISE = re.compile(r'^@exercise\("(\w+)", kernel="(\w+)"\)|^%%cuda (\w+) (\w+)', re.MULTILINE)


def exercise_cells(notebook) -> list:
    """The operation, the kernel and the cell of each exercise."""
    found = [(EXERCISE.search(cell.source), cell) for cell in code_cells(notebook)]
    return [(*filter(None, match.groups()), cell) for match, cell in found if match]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_its_exercises_are_those_of_the_list_and_open_when_handed_out(path):
    cells = exercise_cells(nbformat.read(path, as_version=4))
    listed = [(entry.operation, entry.kernel) for entry in exercises() if entry.notebook == path.stem]
    assert [(operation, kernel) for operation, kernel, _ in cells] == listed
    for operation, kernel, cell in cells:
        (output,) = cell.outputs
        assert output["data"]["text/plain"].startswith(f"○ {operation} ({kernel}): open"), cell.id
        assert "nbval-check-output" not in cell.metadata.get("tags", []), "what it says depends on who runs it"


def test_cells_are_short(notebook):
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            words = [word for line in cell.source.splitlines() if not line.startswith("|") for word in line.split()]
            assert len(words) <= 180, f"a wall of text: {cell.id}"
        else:
            most = 60 if "____" in cell.source else 26  # a kernel that is given but for its blanks
            assert len(cell.source.splitlines()) <= most, f"a long cell: {cell.id}"


def run(notebook, cells: list, folder: Path):
    """Run some cells of a notebook in their order."""
    notebook.cells = cells
    client(notebook, folder).execute()
    return notebook


def text_of(cells: list) -> str:
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    return "\n".join(str(o.get("text") or o.get("data", {}).get("text/plain")) for o in outputs)


def trained(line: str, folder: Path) -> str:
    """What `nncourse train --mine` prints with these options."""
    command = [sys.executable, "-m", "nnclassroom", "train", "--mine", "--model", "new.npz", *line.split()]
    result = subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def read(stem: str):
    return nbformat.read(PATHS[0].parent / f"{stem}.ipynb", as_version=4)


@pytest.mark.full
def test_what_is_filled_in_notebook_02_trains_in_06_and_on_the_command_line(my_kernels, tmp_path, monkeypatch):
    """In other processes, which share only the files in my_kernels/. On a GPU the CUDA kernel is used."""
    monkeypatch.delenv("NNCOURSE_SOLVE", raising=False)
    second, sixth = read("02_activations"), read("06_training")
    gpu = device.gpu_available()
    kernel, backend = ("naive", "cuda") if gpu else ("numpy", "numpy")
    setup = next(cell for cell in second.cells if cell.id == "setup")
    cell = next(cell for *names, cell in exercise_cells(second) if names == ["sigmoid", kernel])
    if gpu:
        body = "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] = 1.0f / (1.0f + expf(-z[i]));"
        cell.source = re.sub(r"\{.*\}", f"{{ {body} }}", cell.source, flags=re.DOTALL)
    else:
        cell.source = cell.source.replace("raise NotImplementedError", "return 0.5 * np.tanh(0.5 * z) + 0.5")
    run(second, [setup, cell], tmp_path)
    assert f"✓ sigmoid ({kernel}): right" in text_of(second.cells)
    cells = {cell.id: cell for cell in sixth.cells}
    names = ("setup", "data-load", "who-supplies", "step-time", "train-run")
    told = text_of(run(sixth, [cells[name] for name in names], tmp_path).cells)
    assert re.search(rf"sigmoid: +{kernel} +yours", told) and "1 of 11 operations were yours: sigmoid" in told
    told = trained(f"--dataset breast_cancer --layers 30,4,1 --epochs 1 --backend {backend}", tmp_path)
    assert f"sigmoid: {kernel}, yours" in told


def filled_in(notebook, operation: str, kernel: str):
    """The cell of an exercise, with the right answer of tests/answers in it."""
    answer = next(each for each in RIGHT if (each["operation"], each["kernel"]) == (operation, kernel))
    cell = next(cell for *names, cell in exercise_cells(notebook) if names == [operation, kernel])
    head = f"%%cuda {answer['line']}" if "line" in answer else f'@exercise("{operation}", kernel="{kernel}")'
    cell.source = f"{head}\n{answer['text'].strip()}"
    return cell


@pytest.mark.full
def test_kernels_of_notebooks_09_to_11_train_the_digits_cnn_and_on_the_command_line(my_kernels, tmp_path, monkeypatch):
    """On the digits of the package, with CUDA kernels on a GPU. The command line is another process."""
    for name in ("NNCOURSE_SOLVE", "NNCOURSE_DATA"):
        monkeypatch.delenv(name, raising=False)
    gpu = device.gpu_available()
    own = {"adam_update": "numpy", "convolution_forward": "numpy", "maxpool_backward": "loops"}
    own = {operation: "naive" if gpu else kernel for operation, kernel in own.items()}
    notebooks = [read(stem) for stem in ("09_optimisers", "10_convolution", "11_reading_digits")]
    answers = [filled_in(notebook, *pair) for notebook, pair in zip(notebooks, own.items(), strict=True)]
    last = notebooks[-1]
    cells = {cell.id: cell for cell in last.cells}
    training = [cells[name] for name in ("data", "play-network", "mine-who", "mine-train")]
    told = text_of(run(last, [cells["setup"], *answers, *training], tmp_path).cells)
    for operation, kernel in own.items():
        assert re.search(rf"{operation}: +{kernel} +yours", told)
    assert "3 of 16 operations were yours: convolution_forward, maxpool_backward, adam_update" in told
    assert (
        float(re.search(r"([\d.]+)% of the test digits are read correctly", told)[1]) > 30
    )  # guessing among ten digits gives 10
    line = "--dataset digits --layers image1x8x8,conv2x2same,pool2,10 --activation relu --epochs 1 --optimizer adam"
    told = trained(f"{line} --cost categorical_cross_entropy --backend {'cuda' if gpu else 'numpy'}", tmp_path)
    for operation, kernel in own.items():
        assert f"{operation}: {kernel}, yours" in told


@pytest.mark.full
def test_an_all_reduce_of_notebook_12_trains_a_network_there(my_kernels, tmp_path, monkeypatch):
    """On the digits of the package, in the simulated group."""
    for name in ("NNCOURSE_SOLVE", "NNCOURSE_DATA"):
        monkeypatch.delenv(name, raising=False)
    notebook = read("12_many_devices")
    answer = filled_in(notebook, "all_reduce", "ring")
    cells = {cell.id: cell for cell in notebook.cells}
    told = text_of(run(notebook, [cells["setup"], cells["data"], answer, cells["training"]], tmp_path).cells)
    assert "all_reduce (ring): yours" in told and told.count("equal to one device to 1e-6") == 4


@pytest.mark.parametrize(("deaths", "passes"), [(1, True), (99, False)])
@pytest.mark.full
def test_a_kernel_that_dies_as_it_starts_is_started_again(tmp_path, deaths, passes):
    """A conftest.py for nbval alone: the kernel here counts its starts, and dies the first few times."""
    spec = tmp_path / "jupyter" / "kernels" / "frail"
    spec.mkdir(parents=True)
    starts = f"echo >> {tmp_path}/starts; [ $(wc -l < {tmp_path}/starts) -gt {deaths} ] || exit 1; "
    argv = ["sh", "-c", f"{starts} exec {sys.executable} -m ipykernel_launcher -f $0", "{connection_file}"]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "frail", "language": "python"}))
    metadata = {"kernelspec": {"name": "frail", "display_name": "frail", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1")], metadata=metadata)
    nbformat.write(notebook, tmp_path / "one.ipynb")
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    environment = os.environ | {"JUPYTER_PATH": str(tmp_path / "jupyter"), "PYTHONWARNINGS": "default"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])  # conftest.py takes the tiers from there
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--nbval-lax", "one.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode == 0) is passes, done.stdout
    assert done.stdout.count("started again") >= 1
    assert len((tmp_path / "starts").read_text().split("\n")) - 1 == (2 if passes else 3)


def test_nbval_sees_a_mistake_and_where_tests_are_strict_a_wrong_answer(tmp_path, my_kernels):
    """One notebook for all cases, since each takes seconds to start; its fourth cell makes it strict."""
    setup = "from nnclassroom import exercise"
    wrong = '@exercise("relu", kernel="numpy")\ndef relu(z):\n    return z'
    mistake = "exercise('sigmiod', kernel='numpy')"
    sources = (setup, wrong, mistake, "%env NNCOURSE_STRICT=1", wrong)
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "faults.ipynb")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        "NNCOURSE_SOLVE": "",
        "NNCOURSE_STRICT": "",
    }
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--nbval-lax", "faults.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    results = re.findall(r"::Cell \d+ (PASSED|FAILED)", done.stdout)
    assert results == ["PASSED", "PASSED", "FAILED", "PASSED", "FAILED"], done.stdout
