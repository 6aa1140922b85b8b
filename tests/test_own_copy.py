"""A student's copy of a clone: made without outputs, and brought up to date without loss."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from refusals import command_refused

import nnclassroom
from nnclassroom.commands import COMMANDS, main
from nnclassroom.handing_out import assistants, own_copy
from nnclassroom.handing_out.notebook_files import MANIFEST
from nncourse import language
from nncourse.errors import CourseError

ROOT = Path(__file__).resolve().parent.parent
needs_git = pytest.mark.skipif(not shutil.which("git"), reason="git is not here")


def write(path: Path, **cells: str) -> None:
    """A notebook as the course has it: run once from top to bottom, with outputs. Cells m… are words."""
    made, number = [], 0
    for name, text in cells.items():
        if name.startswith("m"):
            made.append(v4.new_markdown_cell(text, id=name))
        else:
            number, output = number + 1, v4.new_output("stream", text="the answer")
            made.append(v4.new_code_cell(text, id=name, outputs=[output], execution_count=number))
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(v4.new_notebook(cells=made), path)


def edit(path: Path, **texts: str) -> None:
    """Let a student type into cells, and add those that are not there at the end."""
    notebook = nbformat.read(path, as_version=4)
    cells = {cell.id: cell for cell in notebook.cells}
    for name, text in texts.items():
        if name in cells:
            cells[name].source = text
        else:
            notebook.cells.append(v4.new_code_cell(text, id=name))
    nbformat.write(notebook, path)


def delete(path: Path, name: str) -> None:
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if cell.id != name]
    nbformat.write(notebook, path)


def texts(path: Path) -> dict[str, str]:
    return {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}


def git(root: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True, env=environment)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "course")


FIRST = {"mtitle": "# 01", "predict": "mine = None", "blank": "raise NotImplementedError", "last": "z = 3"}
SECOND = {"mtwo": "# 02", "relu": "raise NotImplementedError"}


def make_course(root: Path) -> Path:
    write(root / "notebooks/01_neurons.ipynb", **FIRST)
    write(root / "notebooks/02_activations.ipynb", **SECOND)
    (root / ".gitignore").write_text("my_notebooks/\n")
    return root


@pytest.fixture
def clone(tmp_path) -> Path:
    """A clone of a small course."""
    root = make_course(tmp_path / "clone")
    git(root, "init", "--quiet")
    commit(root)
    return root


@pytest.fixture(params=["git", "no git"])
def course(request, tmp_path) -> Path:
    """A clone, and a course that came without git."""
    if request.param == "no git":
        return make_course(tmp_path / "course")
    if not shutil.which("git"):
        pytest.skip("git is not here")
    return request.getfixturevalue("clone")


def bring(root: Path) -> str:
    return "\n".join(own_copy.bring(root, root / "my_notebooks"))


@pytest.fixture
def copy(course) -> Path:
    """The student's copy of the course."""
    bring(course)
    return course / "my_notebooks"


def publish(root: Path) -> None:
    """Commit the new notebooks that lie in the folder, as a git pull would."""
    if (root / ".git").exists():
        commit(root)


def pull(root: Path) -> str:
    """What is said when the copy follows the new notebooks that lie in the folder."""
    publish(root)
    return bring(root)


# The copy of a clone


def test_it_has_no_outputs_and_a_second_start_says_nothing(course):
    before = {path: path.read_bytes() for path in (course / "notebooks").iterdir()}
    assert bring(course).count("\n") == 0
    copy = course / "my_notebooks"
    names = {"01_neurons.ipynb", "02_activations.ipynb", "AGENTS.md", MANIFEST}
    assert {path.name for path in copy.iterdir()} == names
    assert texts(copy / "01_neurons.ipynb") == FIRST
    for path in copy.glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            assert cell.cell_type == "markdown" or (not cell.outputs and cell.execution_count is None)
    assert bring(course) == ""
    assert {path: path.read_bytes() for path in (course / "notebooks").iterdir()} == before


def test_what_a_student_has_done_survives_a_new_course(course, copy):
    edit(copy / "01_neurons.ipynb", predict="mine = 0.75", blank="def neuron(x, w", own="print('tried')")
    delete(copy / "01_neurons.ipynb", "last")
    (copy / "My tries.ipynb").write_text("mine")
    (copy / "02_activations.ipynb").unlink()
    write(course / "notebooks/01_neurons.ipynb", **(FIRST | {"mtitle": "# 01, new"}), more="w = 1")
    write(course / "notebooks/03_dense_layers.ipynb", mdense="# 03")
    said = pull(course)
    assert "updated 01_neurons" in said and "new: 03_dense_layers" in said and said.count("\n") <= 3
    found = texts(copy / "01_neurons.ipynb")
    assert found["mtitle"] == "# 01, new" and found["more"] == "w = 1"
    assert (found["predict"], found["blank"], found["own"]) == ("mine = 0.75", "def neuron(x, w", "print('tried')")
    assert "last" not in found and not (copy / "02_activations.ipynb").exists()
    assert (copy / "My tries.ipynb").read_text() == "mine"
    assert bring(course) == ""


def test_a_cell_that_moves_to_another_notebook_takes_the_attempt_along(course):
    """As 03's kernels for the GPU move to 03b, with the student's own cell below one of them."""
    dense = {"mdense": "# 03", "numpy": "raise A", "mgpu": "## GPU", "naive": "raise B", "tiled": "raise C"}
    write(course / "notebooks/03_dense_layers.ipynb", **dense, mend="end")
    pull(course)
    copy = course / "my_notebooks"
    edit(copy / "03_dense_layers.ipynb", numpy="A @ W.T", naive="int i = half written")
    notebook = nbformat.read(copy / "03_dense_layers.ipynb", as_version=4)
    notebook.cells.insert(4, v4.new_code_cell("why not?", id="own"))  # below naive
    nbformat.write(notebook, copy / "03_dense_layers.ipynb")
    write(course / "notebooks/03_dense_layers.ipynb", mdense="# 03", numpy="raise A", mend="now 03b")
    gpu = {"mnew": "# 03b", "setup": "import", "mgpu": "## The GPU", "naive": "raise B", "tiled": "raise C"}
    write(course / "notebooks/03b_dense_on_the_gpu.ipynb", **gpu)
    said = pull(course)
    assert "moved 2 of your cells" in said and "03b_dense_on_the_gpu" in said
    assert texts(copy / "03_dense_layers.ipynb") == {"mdense": "# 03", "numpy": "A @ W.T", "mend": "now 03b"}
    found = texts(copy / "03b_dense_on_the_gpu.ipynb")
    assert found == gpu | {"naive": "int i = half written", "own": "why not?"}
    assert list(found).index("own") == list(found).index("naive") + 1
    assert bring(course) == ""


def test_a_cell_that_moves_to_a_notebook_that_was_there(course, copy):
    edit(copy / "01_neurons.ipynb", blank="half written")
    edit(copy / "02_activations.ipynb", relu="np.maximum(z, 0)")
    write(course / "notebooks/01_neurons.ipynb", **{name: FIRST[name] for name in ("mtitle", "predict", "last")})
    write(course / "notebooks/02_activations.ipynb", mtwo="# 02", blank=FIRST["blank"], relu=SECOND["relu"])
    pull(course)
    assert list(texts(copy / "01_neurons.ipynb")) == ["mtitle", "predict", "last"]
    found = {"mtwo": "# 02", "blank": "half written", "relu": "np.maximum(z, 0)"}
    assert texts(copy / "02_activations.ipynb") == found and list(texts(copy / "02_activations.ipynb")) == list(found)


def test_the_same_id_in_another_notebook_is_no_move(course, copy):
    edit(copy / "01_neurons.ipynb", last="half written")
    write(course / "notebooks/01_neurons.ipynb", **{name: FIRST[name] for name in ("mtitle", "predict", "blank")})
    write(course / "notebooks/02_activations.ipynb", **SECOND, last="something else")
    pull(course)
    assert texts(copy / "01_neurons.ipynb")["last"] == "half written"
    assert texts(copy / "02_activations.ipynb") == SECOND | {"last": "something else"}


def test_a_cell_that_moves_and_changes_stands_below_the_attempt(course, copy):
    edit(copy / "01_neurons.ipynb", blank="half written")
    write(course / "notebooks/01_neurons.ipynb", **{name: FIRST[name] for name in ("mtitle", "predict")})
    write(course / "notebooks/01b_more.ipynb", mb="# 01b", blank="raise NotImplementedError  # new", last=FIRST["last"])
    pull(course)
    found = list(texts(copy / "01b_more.ipynb").values())
    assert found[:2] == ["# 01b", "half written"] and "Update of the course" in found[2]
    assert found[3:] == ["raise NotImplementedError  # new", FIRST["last"]]


def test_a_renamed_notebook_takes_everything_along(course, copy):
    edit(copy / "01_neurons.ipynb", blank="half written", own="mine too")
    (course / "notebooks/01_neurons.ipynb").rename(course / "notebooks/01_one_neuron.ipynb")
    said = pull(course)
    assert "moved 2 of your cells" in said and "removed 01_neurons" in said
    assert not (copy / "01_neurons.ipynb").exists()
    assert texts(copy / "01_one_neuron.ipynb") == FIRST | {"blank": "half written", "own": "mine too"}


def test_a_notebook_that_the_course_drops_keeps_what_is_the_students(course, copy):
    edit(copy / "02_activations.ipynb", relu="half written")
    (course / "notebooks/02_activations.ipynb").unlink()
    pull(course)
    assert texts(copy / "02_activations.ipynb")["relu"] == "half written"


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_move_that_was_interrupted_loses_nothing(course, copy, monkeypatch, allowed):
    edit(copy / "01_neurons.ipynb", blank="half written")
    write(course / "notebooks/01_neurons.ipynb", mtitle="# 01", predict="mine = None", last="z = 3")
    write(course / "notebooks/01b_more.ipynb", mb="# 01b", blank=FIRST["blank"])
    publish(course)
    written = []

    def failing(path, content):  # the disk is full after so many files
        if len(written) >= allowed:
            raise CourseError("no space")
        written.append(path)
        path.write_bytes(content)

    with monkeypatch.context() as patched:
        patched.setattr(own_copy.update, "_write", failing)
        with pytest.raises(CourseError, match="no space"):
            bring(course)
    assert "half written" in [text for path in copy.glob("*.ipynb") for text in texts(path).values()]
    bring(course)
    assert texts(copy / "01b_more.ipynb") == {"mb": "# 01b", "blank": "half written"}
    assert "blank" not in texts(copy / "01_neurons.ipynb")


def test_a_damaged_notebook_is_replaced_and_kept(course, copy):
    (copy / "01_neurons.ipynb").write_text("{ broken")
    assert "01_neurons.ipynb; your version is no longer a notebook" in bring(course)
    assert texts(copy / "01_neurons.ipynb") == FIRST
    assert (copy / "backups/001/01_neurons.ipynb").read_text() == "{ broken"
    assert bring(course) == ""


def test_a_copy_without_its_manifest_stays_as_it_is(course, copy):
    edit(copy / "01_neurons.ipynb", blank="half written")
    (copy / MANIFEST).unlink()
    before = {path: path.read_bytes() for path in copy.iterdir()}
    assert f"its {MANIFEST} is missing" in bring(course)
    assert {path: path.read_bytes() for path in copy.iterdir()} == before


def test_a_folder_of_that_name_with_other_files_keeps_them(course):
    (course / "my_notebooks").mkdir()
    (course / "my_notebooks/diary.ipynb").write_text("mine")
    bring(course)
    assert (course / "my_notebooks/diary.ipynb").read_text() == "mine"
    assert texts(course / "my_notebooks/01_neurons.ipynb") == FIRST


def test_a_copy_that_cannot_be_written_is_said_in_one_line(course):
    (course / "my_notebooks").write_text("a file")
    with pytest.raises(CourseError, match="my_notebooks: cannot be made") as caught:
        bring(course)
    assert "\n" not in str(caught.value) and "NNCOURSE_MY_NOTEBOOKS" in str(caught.value)
    assert {path.name for path in course.iterdir()} <= {"notebooks", "my_notebooks", ".git", ".gitignore"}


def test_an_update_that_cannot_be_written_is_said_in_one_line(course):
    bring(course)
    write(course / "notebooks/01_neurons.ipynb", **FIRST, more="w = 1")
    publish(course)
    (course / "my_notebooks/backups").write_text("a file")
    with pytest.raises(CourseError, match="cannot be made: .*; nothing was changed"):
        bring(course)
    assert texts(course / "my_notebooks/01_neurons.ipynb") == FIRST


# AGENTS.md, for coding assistants


@pytest.mark.parametrize("code", ["en", "es"])
def test_assistants_are_told_to_tutor_in_the_language_of_the_copy(course, code):
    write(course / "notebooks" / "es" / "01_neurons.ipynb", **FIRST)
    folder = own_copy.folder_of(course, code)
    own_copy.bring(course, folder, code)
    text = (folder / "AGENTS.md").read_text("utf-8")
    assert text == assistants.text(code) and ("student" in text) == (code == "en")
    for name in ("| ○ ", "| ✗ ", "| ✓ ", "`my_kernels/`", "`exam.json`", "`NNCOURSE_SOLVE`"):
        assert name in text
    assert text.index("hint(") > text.index("solution(")  # first what is forbidden, then how to help
    assert all(hasattr(nnclassroom, name) for name in re.findall(r"(\w+)\(", text))
    assert {"info", "progress"} <= set(re.findall(r"(?m)^    nncourse (\w+)", text)) <= set(COMMANDS)


def test_rules_for_assistants_follow_the_course_and_a_students_own_stay(course, copy, monkeypatch):
    (copy / "AGENTS.md").write_text("My own rules.")
    write(course / "notebooks/03_dense_layers.ipynb", mdense="# 03")
    pull(course)
    assert (copy / "AGENTS.md").read_text() == "My own rules."
    monkeypatch.setattr(assistants, "TEXT", "The course's new rules.")
    assert "AGENTS.md; your version of it is in the backup" in bring(course) and bring(course) == ""
    assert (copy / "AGENTS.md").read_text() == "The course's new rules."
    assert (copy / "backups/001/AGENTS.md").read_text() == "My own rules."


def test_rules_that_were_there_before_the_copy_stay(course):
    (course / "my_notebooks").mkdir()
    (course / "my_notebooks/AGENTS.md").write_text("My own rules.")
    bring(course)
    assert bring(course) == "" and (course / "my_notebooks/AGENTS.md").read_text() == "My own rules."
    assert texts(course / "my_notebooks/01_neurons.ipynb") == FIRST


# Work that is older than the copy


@needs_git
def test_what_was_typed_into_a_clone_is_taken_over(clone):
    edit(clone / "notebooks/01_neurons.ipynb", predict="mine = 0.75", blank="half written", own="mine")
    write(clone / "notebooks/Untitled.ipynb", mine="all mine")
    before = (clone / "notebooks/01_neurons.ipynb").read_bytes()
    assert "01_neurons" in bring(clone).splitlines()[1]
    assert (clone / "notebooks/01_neurons.ipynb").read_bytes() == before
    copy = clone / "my_notebooks"
    typed = {"predict": "mine = 0.75", "blank": "half written", "own": "mine"}
    assert texts(copy / "01_neurons.ipynb") == FIRST | typed
    assert texts(copy / "Untitled.ipynb") == {"mine": "all mine"}
    git(clone, "checkout", "--", "notebooks")
    write(clone / "notebooks/01_neurons.ipynb", **(FIRST | {"mtitle": "# new"}))
    pull(clone)
    assert texts(copy / "01_neurons.ipynb") == FIRST | typed | {"mtitle": "# new"}


@needs_git
@pytest.mark.parametrize("popped", [False, True])
def test_what_was_stashed_for_a_pull_is_taken_over(clone, popped):
    """The course has changed the same cell meanwhile, and moved another."""
    edit(clone / "notebooks/01_neurons.ipynb", predict="mine = 0.75", blank="half written")
    git(clone, "stash")
    write(clone / "notebooks/01_neurons.ipynb", mtitle="# 01", predict="mine = 1  # new", last="z = 3")
    write(clone / "notebooks/01b_more.ipynb", mb="# 01b", blank=FIRST["blank"])
    commit(clone)
    if popped:  # git writes its marks into the notebook, and keeps the stash
        with pytest.raises(subprocess.CalledProcessError):
            git(clone, "stash", "pop")
    bring(clone)
    found = texts(clone / "my_notebooks/01_neurons.ipynb")
    assert found["predict"] == "mine = 0.75" and "mine = 1  # new" in found.values()
    assert texts(clone / "my_notebooks/01b_more.ipynb") == {"mb": "# 01b", "blank": "half written"}


@needs_git
def test_what_is_typed_into_a_clone_later_is_told_once(clone):
    bring(clone)
    edit(clone / "notebooks/01_neurons.ipynb", blank="half written")
    assert "not taken over: 01_neurons" in bring(clone)
    assert bring(clone) == "" and texts(clone / "my_notebooks/01_neurons.ipynb") == FIRST


def test_what_was_typed_where_there_is_no_git_is_taken_over_and_never_replaced(tmp_path):
    course = make_course(tmp_path / "course")
    edit(course / "notebooks/01_neurons.ipynb", blank="half written")
    notebook = nbformat.read(course / "notebooks/01_neurons.ipynb", as_version=4)
    notebook.cells[2].execution_count = 17
    nbformat.write(notebook, course / "notebooks/01_neurons.ipynb")
    bring(course)
    write(course / "notebooks/01_neurons.ipynb", **FIRST)  # unpacked anew
    bring(course)
    assert texts(course / "my_notebooks/01_neurons.ipynb")["blank"] == "half written"


# Where it lies


def test_a_hand_out_is_its_own_copy(tmp_path, monkeypatch):
    monkeypatch.delenv("NNCOURSE_MY_NOTEBOOKS", raising=False)
    root = make_course(tmp_path)
    assert own_copy.folder_of(root) == root / "my_notebooks"
    (root / MANIFEST).write_text(json.dumps({}))
    assert own_copy.folder_of(root) == root / "notebooks"
    assert own_copy.bring(root, root / "notebooks") == [] and not (root / "my_notebooks").exists()
    monkeypatch.setenv("NNCOURSE_MY_NOTEBOOKS", str(tmp_path / "elsewhere"))
    assert own_copy.folder_of(root) == tmp_path / "elsewhere"


def test_where_the_course_cannot_be_written_it_lies_in_the_home(tmp_path, monkeypatch):
    monkeypatch.delenv("NNCOURSE_MY_NOTEBOOKS", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    monkeypatch.setattr(own_copy.os, "access", lambda path, mode: False)
    assert own_copy.folder_of(tmp_path / "course") == tmp_path / "home" / "my_notebooks"


def test_the_courses_own_notebooks_are_copied_without_outputs(tmp_path, capsys):
    assert main(["notebooks", str(tmp_path / "copy")]) == 0
    assert capsys.readouterr().out.startswith("Your notebooks are in")
    names = {path.name for path in (tmp_path / "copy").glob("*.ipynb")}
    assert len(names) >= 15 and "00_start_here.ipynb" in names
    for path in (tmp_path / "copy").glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            assert cell.cell_type == "markdown" or not cell.outputs


def test_why_a_copy_cannot_be_made_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(language, "COURSE", tmp_path)
    assert "expected the course's notebooks, found none" in command_refused(
        capsys, ["notebooks", str(tmp_path / "copy")]
    )


def test_another_language_has_a_copy_of_its_own(course):
    generated = course / "notebooks" / "es" / "01_neurons.ipynb"
    write(generated, **(FIRST | {"mtitle": "# Uno"}))
    folder = own_copy.folder_of(course, "es")
    assert folder == course / "mis_cuadernos"
    assert len(own_copy.bring(course, folder, "es")) == 1
    copy = folder / "01_neurons.ipynb"
    assert texts(copy)["mtitle"] == "# Uno" and own_copy.bring(course, folder, "es") == []
    edit(copy, blank="return 1")
    write(generated, **(FIRST | {"mtitle": "# Las neuronas"}))
    assert own_copy.bring(course, folder, "es")[0] == "mis_cuadernos/: updated 01_neurons"
    assert texts(copy)["mtitle"] == "# Las neuronas" and texts(copy)["blank"] == "return 1"
    bring(course)
    assert texts(course / "my_notebooks" / "01_neurons.ipynb") == FIRST


def test_a_copy_is_not_turned_into_another_language(course):
    write(course / "notebooks" / "es" / "01_neurons.ipynb", **FIRST)
    bring(course)
    with pytest.raises(CourseError, match="expected your notebooks in es; they are in en"):
        own_copy.bring(course, course / "my_notebooks", "es")
