"""A student's copy of version 0.2, with half of the exercises done, is brought to today's course.

version_0_2.json holds what such a copy had: some cells of two notebooks as they were handed out, attempts typed into
them and cells of the student's own; kept kernels with their record; a model that Adam had trained.
"""

import base64
import inspect
import json
from importlib import import_module
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbformat import v4

from cuda_on_cpu import emulate
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.handing_out import notebook_files, old_names, update
from nnclassroom.handing_out.own_copy import bring
from nnclassroom.zips import write_zip
from nncourse import device
from nncourse.backend import choose
from nncourse.language import ROOT
from nncourse.model import files

KEPT = json.loads(Path(__file__).with_suffix(".json").with_name("version_0_2.json").read_text("utf-8"))
ABOUT = {"kind": "course", "language": "en"}


def cells_of(some: list[dict]) -> list:
    made = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell}
    return [made[cell["cell_type"]](cell["source"], id=cell["id"]) for cell in some]


@pytest.fixture
def copy(tmp_path) -> Path:
    """The student's folder: cells as handed out, then what was typed."""
    folder = tmp_path / "course"
    handed_out = {name: cells_of(each["handed_out"]) for name, each in KEPT["notebooks"].items()}
    contents = {name: notebook_files.to_bytes(v4.new_notebook(cells=cells)) for name, cells in handed_out.items()}
    (folder / "notebooks").mkdir(parents=True)
    update.write_manifest(folder, notebook_files.manifest_of(contents, ABOUT) | {"course": "0.2.0"})
    for name, each in KEPT["notebooks"].items():
        for cell in handed_out[name]:
            cell.source = each["typed"].get(cell.id, cell.source)
        own = [v4.new_code_cell(text, id=key) for key, text in each["own"].items()]
        nbformat.write(v4.new_notebook(cells=handed_out[name] + own), folder / name)
    return folder


@pytest.fixture
def new(tmp_path) -> Path:
    """Today's hand-out of these two notebooks."""
    return handed_out(tmp_path, *KEPT["notebooks"])


def handed_out(folder: Path, *names: str) -> Path:
    contents = {name: notebook_files.clean((ROOT / name).read_bytes(), name) for name in names}
    write_zip(folder / "new.zip", notebook_files.packed(contents, "course", ABOUT))
    return folder / "new.zip"


def test_half_solved_cells_survive_and_old_imports_are_named(copy, new):
    said = update.update(new, copy)
    for name, each in KEPT["notebooks"].items():
        cells = {cell.id: cell.source for cell in nbformat.read(copy / name, as_version=4).cells}
        today = {cell.id: cell.source for cell in nbformat.read(ROOT / name, as_version=4).cells}
        assert {key: cells[key] for key in each["typed"] | each["own"]} == each["typed"] | each["own"]
        assert cells["setup"] == today["setup"] and "nncourse.classroom" not in cells["setup"]
        assert set(today) <= set(cells)
    told = [line for line in said if ": for " in line]
    assert [line.partition(" (")[2].partition(")")[0] for line in told] == [
        *("ada-1", "ada-2", "ada-2", "ada-3", "ada-4", "ada-4")
    ]
    assert all(line.startswith(("02_activations, cell ", "06_training, cell ")) for line in told)
    words = [line.partition(": for ")[2].partition(" write ") for line in told]
    assert words[0][0] == "theirs.check('numpy')" and words[0][2].startswith("check(theirs, 'numpy'), and add: from")
    assert words[1][::2] == ("from nncourse.kernels.backend import choose", line_for("choose"))
    assert words[2][0] == "from nncourse.classroom import picture, timing"
    assert words[3][0] == "from nncourse.kernels import kept_kernels"
    assert words[-1][0].endswith("update=Adam(l2=0.01))") and words[-1][2].endswith("optimizer=Adam(l2=0.01))")
    again = update.update(new, copy)  # until they are gone
    assert again[0].startswith("nothing to do") and again[1:] == told
    assert bring(copy, copy / "notebooks") == told  # what `make lab` calls


def test_a_half_written_kernel_goes_where_its_exercise_has_gone(copy, tmp_path):
    old, home = "notebooks/02_activations.ipynb", "notebooks/02b_a_first_kernel.ipynb"
    update.update(handed_out(tmp_path, *KEPT["notebooks"], home), copy)
    cells = {name: {c.id: c.source for c in nbformat.read(copy / name, as_version=4).cells} for name in (old, home)}
    assert cells[home]["sigmoid-naive"] == KEPT["notebooks"][old]["typed"]["sigmoid-naive"]
    assert "sigmoid-naive" not in cells[old] and cells[old]["softmax-numpy"].count("E = np.exp")


def line_for(name: str) -> str:
    return f"from {old_names.today('nncourse.kernels.backend', name)[0]} import {name}"


def test_every_replacement_is_there():
    table = old_names.table()
    for old, today in table["modules"].items():
        assert inspect.ismodule(import_module(today)), old
    for old, today in table["names"].items():
        home, _, name = today.rpartition(".")
        assert hasattr(import_module(home), name), old
    assert not {*table["modules"], *table["names"]} & {*table["modules"].values(), *table["names"].values()}
    homes = ("model.training.train", "model.network.training_step", "model.files.Model")
    homes += ("parallel.averaging.train_by_averaging", "parallel.pipeline.train_pipeline")
    homes += ("model.network.backpropagation", "backend.choose")
    for old, new in table["arguments"].items():
        function, _, argument = old.partition(".")
        (home,) = {home.rpartition(".")[0] for home in homes if home.endswith(f".{function}")}
        parameters = inspect.signature(getattr(import_module(f"nncourse.{home}"), function)).parameters
        assert argument not in parameters, old
        if "(…" not in new:  # of another function
            assert new.partition("=")[0] in parameters, old
    home, name = old_names.today("nncourse.kernels.backend", "choose")
    assert getattr(import_module(home), name)("numpy", mine=False).name == "numpy"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from nncourse.model.training import train", []),
        ("import nncourse.classroom.gantt as g", ["import nnclassroom.figures.nb12"]),
        ("def f(:\n    from nncourse.classroom.course import hint as h", [" import hint as h"]),
        ("%%px\nfrom nncourse.cuda.emulate import run", ["from cuda_on_cpu.emulate import run"]),
        ("%%cuda relu naive\n// import nncourse.cli", []),
        ("%load_ext nncourse.classroom.exercise\nx = 1", ["%load_ext nnclassroom"]),
        ("from nncourse import device, silhouettes", ["import device, datasets_silhouettes as silhouettes"]),
        ("training_step(n, X, Y, 0.1, course, update=u)", ["training_step(…, optimizer=u)"]),
        ("from nncourse.model.updates import SGD, make_update as m", ["import SGD", "import make_optimizer as m"]),
        (
            "from nncourse.classroom import plots\nplots.plot_neuron(w, b)\nplots.plot_network(n)",
            ["common as plots", "plot_neuron, and add: from nnclassroom.figures.nb", "plot_network, and add: from "],
        ),
        ("from nncourse.model.updates import make_update", ["import make_optimizer as make_update"]),
        ("from nncourse.classroom.course import no_such_thing", ["from nnclassroom.exercises.hints import no_such"]),
        ("from nnclassroom.timing import networks, pytorch", ["from nnexperiment.trainers import networks", "pytorch"]),
        ("np.linalg.norm(update=3)", []),
    ],
)
def test_a_line_for_each_old_name(old, new):
    said = old_names.replaced(old)
    assert bool(said) == bool(new) and all(any(part in line for _, line in said) for part in new), said


def test_the_extension_to_load_registers_the_magic():
    ((_, line),) = old_names.replaced("%load_ext nncourse.classroom.exercise")
    assert callable(import_module(line.split()[1]).load_ipython_extension)


# ---- what lies beside the notebooks


def test_kept_kernels_are_read_and_judged(my_kernels):
    my_kernels.mkdir()
    for name, text in KEPT["my_kernels"].items():
        (my_kernels / name).write_text(text, "utf-8")
    assert set(kept_kernels.progress()) == {"sigmoid.numpy", "softmax.numpy", "relu.naive"}
    (my_kernels / "softmax.numpy.py").write_text("def softmax(Z):\n    return Z\n")
    for key, entry in kept_kernels.progress().items():
        name, _, kernel = key.partition(".")
        if entry.get("launch") and not device.gpu_available() and emulate.why_not():
            continue
        verdict = kept_kernels.verdict_of(find(name), kernel, entry)
        assert bool(verdict) == (name != "softmax"), verdict


def test_a_model_is_read_with_the_state_of_its_training(tmp_path):
    (tmp_path / "old.npz").write_bytes(base64.b64decode(KEPT["model.npz"]))
    model = files.load(tmp_path / "old.npz")
    found = model.network.predict(np.array([[0.5, 0.25], [1, -0.5]], np.float32), choose("numpy"))
    np.testing.assert_allclose(found.ravel(), KEPT["predictions"], rtol=1e-6)
    assert model.provenance["epochs"] == 2
    files.save(model, tmp_path / "again.npz")  # with all that training goes on with
    with np.load(tmp_path / "old.npz") as old, np.load(tmp_path / "again.npz") as again:
        assert old.files == again.files
        assert all(np.array_equal(old[name], again[name]) for name in old.files if name != "about")
