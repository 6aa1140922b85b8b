"""The hand-out: what students get, and that updates keep their work."""

import json
import random
import re
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from refusals import command_refused, refused

from nnclassroom.commands import COMMANDS, main
from nnclassroom.exercises.hints import exercises
from nnclassroom.handing_out import assistants, notebook_files, own_copy, update
from nnclassroom.zips import write_zip
from nncourse.errors import CourseError
from nncourse.language import PACKAGES, ROOT, english_files
from nnmarking import handout, readme, repository, solved

NOTEBOOK = "notebooks/02_activations.ipynb"


def unpacked(zip_path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(zip_path) as archive:
        archive.extractall(folder)
    return folder / "course"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    path = tmp_path_factory.mktemp("handout") / "course.zip"
    assert main(["handout", "--out", str(path)]) == 0
    return path


def test_a_hand_out_has_what_runs_the_course_and_nothing_that_gives_it_away(course, tmp_path):
    copy = unpacked(course, tmp_path)
    digits = "datasets/mnist_sample/train-images-idx3-ubyte.gz"
    for name in ("Makefile", "README.md", "tools/setup.py", "requirements/base.txt", digits):
        assert (copy / name).is_file()
    assert (copy / "nncourse/kernels/dense.cu").is_file() and (copy / "cuda_on_cpu/cuda_on_cpu.h").is_file()
    packages = {path.relative_to(ROOT) for path in english_files()}
    assert {path.relative_to(copy) for name in PACKAGES for path in (copy / name).rglob("*.*")} == packages
    assert len(list((copy / "notebooks").glob("*.ipynb"))) >= 9
    assert not (copy / "tests").exists() and not list(copy.rglob("__pycache__"))
    for path in (copy / "notebooks").glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        assert all(not cell.outputs and cell.execution_count is None for cell in cells if cell.cell_type == "code")


def test_a_hand_out_is_the_same_file_each_time(course, tmp_path):
    handout.write(tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == course.read_bytes()


def test_its_readme_is_its_own_and_its_links_lead_somewhere(course, tmp_path):
    copy = unpacked(course, tmp_path)
    text = (copy / "README.md").read_text("utf-8")
    links = re.findall(r"\]\((?!http)([^)#]+)", text)
    assert links and all((copy / link).exists() for link in links)
    for name in ("make test", "make book", "git ", "instructors", "my_notebooks"):
        assert name not in text
    assert 'pip install -e ".[lab,' in text  # `jupyter lab` is called below
    named = set(re.findall(r"nncourse (\w+)", text))
    assert {"progress", "submit", "update"} <= named <= set(COMMANDS)


def test_links_to_the_repository_stand_there_if_its_address_is_known(tmp_path, capsys):
    out = tmp_path / "course.zip"
    assert "https:" not in readme.text("en")
    assert main(["handout", "--out", str(out), "--address", "https://github.com/a/b.git"]) == 0
    with zipfile.ZipFile(out) as archive:
        text = archive.read("course/README.md").decode()
    for link in (
        "<https://github.com/a/b>",
        "https://codespaces.new/a/b",
        "mybinder.org/v2/git/https%3A%2F%2Fgithub.com",
    ):
        assert link in text
    assert "the repository's address, https://…; got 'git@example.org:a/b'" in command_refused(
        capsys, ["handout", "--out", str(out), "--address", "git@example.org:a/b"]
    )


def test_the_address_is_one_setting(tmp_path):
    project = "[project]\nname = 'nncourse'\n"
    (tmp_path / "pyproject.toml").write_text(project)
    assert repository.address(tmp_path) == "" and repository.hosts("") == {}
    (tmp_path / "pyproject.toml").write_text(f"{project}[project.urls]\nRepository = 'https://course.example/c/'\n")
    assert repository.address(tmp_path) == "https://course.example/c"
    assert repository.address(tmp_path, "https://other.example/d.git") == "https://other.example/d"
    assert list(repository.hosts("https://course.example/c")) == ["Binder"]  # Codespaces are for GitHub


@pytest.mark.parametrize("language", ["en", "es"])
def test_a_link_opens_the_copy_in_the_language_of_the_hand_out(language, monkeypatch):
    """binder/postBuild makes these copies."""
    made = (ROOT / "binder" / "postBuild").read_text("utf-8")
    assert f"nncourse notebooks {own_copy.copy_name(language)}\n" in made
    assert f"tree%2F{own_copy.copy_name(language)}%2F" in readme.text(language, "https://course.example/c")


def test_the_version_changes_with_a_notebook_and_not_with_its_outputs():
    def version(cells: list) -> str:
        files = {NOTEBOOK: notebook_files.to_bytes(v4.new_notebook(cells=cells))}
        return notebook_files.manifest_of(files, {})["course"]

    run = cell("one", "x = 1")
    run.outputs, run.execution_count = [v4.new_output("stream", text="1")], 7
    assert version(BASE) == version([BASE[0], run, *BASE[2:]]) != version(NEW_ONE)


def test_notebooks_alone_for_a_shared_installation(tmp_path):
    handout.write(tmp_path / "notebooks.zip", notebooks_only=True)
    copy = unpacked(tmp_path / "notebooks.zip", tmp_path)
    assert {path.name for path in copy.iterdir()} == {"notebooks", "AGENTS.md", "MANIFEST.json"}


def test_assistants_find_their_rules_in_both_hand_outs(course, tmp_path):
    """test_own_copy.py reads them."""
    assert (unpacked(course, tmp_path) / assistants.FILE).read_text("utf-8") == assistants.text("en")
    handout.write(tmp_path / "es.zip", "es", notebooks_only=True)
    assert (unpacked(tmp_path / "es.zip", tmp_path / "es") / assistants.FILE).read_text("utf-8") == assistants.text(
        "es"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--out", "course.tar"], "ends with .zip"),
        (["--out", "course.zip", "--language", "tlh"], "'tlh'"),
        (["--out", "no/folder/course.zip"], "in a folder that exists"),
        (["--out", "course.zip", "--exam", "none.toml"], "none.toml"),
        (["--out", "course.zip", "--only", "02"], "--only works only with --solved"),
        (["--out", "course.zip", "--solved", "--only", "77"], "got '77'"),
    ],
)
def test_what_cannot_be_handed_out_is_said_in_one_line(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert said in command_refused(capsys, ["handout", *arguments])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", notebook_files.notebooks(ROOT, "en"), ids=lambda path: path.stem)
def test_each_exercise_is_filled_in_for_assistants(path):
    cells = nbformat.read(path, as_version=4).cells
    own = [each for each in exercises() if each.notebook == path.stem]
    blanks = [cell.source for cell in cells if cell.cell_type == "code" and solved.EXERCISE.search(cell.source)]
    assert len(blanks) == len(own)
    for blank, each in zip(blanks, own, strict=True):
        text = solved.filled(blank, each.operation, each.kernel)
        assert text != blank and "your code here" not in text and "NotImplementedError" not in text
        assert text.partition("\n")[0] == blank.partition("\n")[0]


@pytest.mark.full
def test_notebooks_for_assistants_are_solved_and_run(tmp_path, capsys):
    assert main(["handout", "--solved", "--only", "2", "--out", str(tmp_path / "solved.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "solved.zip") as archive:
        (name,) = archive.namelist()
        book = nbformat.reads(archive.read(name).decode(), as_version=4)
    said = [str(output) for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert name == "solved/02_activations.ipynb" and sum("✓ s" in each for each in said) == 3
    assert "1 notebooks and 3 exercises" in capsys.readouterr().out


@pytest.mark.full
def test_a_cell_that_fails_in_a_notebook_for_assistants_is_said_in_one_line():
    book = v4.new_notebook(cells=[cell("fine", "1"), cell("bad", "raise KeyError(7)")])
    said = refused(solved._run, book, "01.ipynb", "en")
    assert said == "01.ipynb, cell bad: KeyError: 7"


# ---- updates


def cell(name: str, text: str, kind: str = "code"):
    return (v4.new_code_cell if kind == "code" else v4.new_markdown_cell)(text, id=name)


def zipped(path: Path, cells: list, others: dict[str, str] | None = None, name: str = NOTEBOOK) -> Path:
    files = {name: notebook_files.to_bytes(v4.new_notebook(cells=cells))}
    files |= {name: text.encode() for name, text in (others or {}).items()}
    write_zip(path, notebook_files.packed(files, "course", {"kind": "course", "language": "en"}))
    return path


BASE = [cell("title", "# Title", "markdown"), cell("one", "x = 1"), cell("two", "y = 2"), cell("three", "z = 3")]
NEW_ONE, NEWER_ONE = ([BASE[0], cell("one", f"x = '{text}'"), *BASE[2:]] for text in ("new", "newer"))
OTHERS = {"nncourse/a.py": "A = 1\n", "nncourse/b.py": "B = 1\n", "README.md": "read\n"}


@pytest.fixture
def copy(tmp_path):
    """A student's copy of BASE."""
    return unpacked(zipped(tmp_path / "base.zip", BASE, OTHERS), tmp_path)


def change(copy: Path, edit) -> None:
    """Let edit(cells) change the student's notebook."""
    path = copy / NOTEBOOK
    notebook = nbformat.read(path, as_version=4)
    edit(notebook.cells)
    nbformat.write(notebook, path)


def change_one(copy: Path) -> None:
    change(copy, lambda cells: cells[1].update(source="x = 'mine'"))


def sources(copy: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(copy / NOTEBOOK, as_version=4).cells]


def updated(copy: Path, cells: list, others=None) -> list[str]:
    return update.update(zipped(copy.parent / "new.zip", cells, OTHERS if others is None else others), copy)


def test_what_only_the_course_has_changed_is_taken_over(copy):
    updated(copy, [BASE[0], cell("one", "x = 11"), cell("new", "n = 0"), BASE[3]])
    assert sources(copy) == ["# Title", "x = 11", "n = 0", "z = 3"]


def test_what_the_student_has_changed_added_or_deleted_stays(copy):
    def edit(cells):
        cells[1].source = "x = 'half written"
        cells[1].outputs = [v4.new_output("stream", text="mine")]
        del cells[3]
        cells.insert(2, cell("my-own", "print('tried')"))

    change(copy, edit)
    updated(copy, [*BASE, cell("four", "w = 4")])
    assert sources(copy) == ["# Title", "x = 'half written", "print('tried')", "y = 2", "w = 4"]
    notebook = nbformat.read(copy / NOTEBOOK, as_version=4)
    assert notebook.cells[1].outputs[0].text == "mine"


def test_where_both_have_changed_a_cell_the_students_stays_and_the_new_one_follows_marked(copy):
    change_one(copy)
    said = updated(copy, NEW_ONE)
    found = sources(copy)
    assert found[1] == "x = 'mine'" and "Update of the course" in found[2] and found[3] == "x = 'new'"
    assert found[4:] == ["y = 2", "z = 3"]
    assert any("changed them: 1" in line for line in said)
    nbformat.validate(nbformat.read(copy / NOTEBOOK, as_version=4))


def test_the_same_update_again_changes_nothing_and_the_next_replaces_an_untouched_mark(copy):
    change_one(copy)
    updated(copy, NEW_ONE)
    before = (copy / NOTEBOOK).read_bytes()
    assert updated(copy, NEW_ONE)[0].startswith("nothing to do")
    assert (copy / NOTEBOOK).read_bytes() == before
    updated(copy, NEWER_ONE)
    found = sources(copy)
    assert found[1] == "x = 'mine'" and found[3] == "x = 'newer'" and "x = 'new'" not in found


def test_a_new_version_that_the_student_has_begun_to_edit_is_not_replaced(copy):
    change_one(copy)
    updated(copy, NEW_ONE)
    change(copy, lambda cells: cells[3].update(source="x = 'new, and mine'"))
    updated(copy, NEWER_ONE)
    assert {"x = 'mine'", "x = 'new, and mine'", "x = 'newer'"} <= set(sources(copy))


def test_an_update_that_was_interrupted_goes_on(copy, monkeypatch):
    change_one(copy)
    changed = {**OTHERS, "nncourse/a.py": "A = 2\n"}

    def fail(path, content):
        if path.name == "MANIFEST.json":
            raise CourseError("no space")
        path.write_bytes(content)

    with monkeypatch.context() as patched:
        patched.setattr(update, "_write", fail)
        with pytest.raises(CourseError, match="no space"):
            updated(copy, NEW_ONE, changed)
    before = sources(copy)
    updated(copy, NEW_ONE, changed)
    assert sources(copy) == before and before.count("x = 'new'") == 1
    assert updated(copy, NEW_ONE, changed)[0].startswith("nothing to do")


def test_other_files_and_what_was_replaced(copy):
    (copy / "nncourse/b.py").write_text("B = 'mine'\n")
    (copy / "README.md").write_text("my notes\n")
    (copy / "my_kernels").mkdir()
    (copy / "my_kernels/sigmoid.numpy.py").write_text("kept")
    (copy / "notebooks/My tries.ipynb").write_text("mine")
    before = (copy / NOTEBOOK).read_bytes()
    new = {"nncourse/b.py": "B = 2\n", "nncourse/c.py": "C = 1\n", "README.md": "read\n"}
    updated(copy, [*BASE[:3], cell("three", "z = 33")], new)
    assert (copy / "nncourse/b.py").read_text() == "B = 2\n"  # a package in two versions would not run
    assert (copy / "backups/001/nncourse/b.py").read_text() == "B = 'mine'\n"
    assert (copy / "backups/001" / NOTEBOOK).read_bytes() == before
    assert (copy / "README.md").read_text() == "my notes\n"  # the course has not changed it
    assert not (copy / "nncourse/a.py").exists() and (copy / "nncourse/c.py").exists()
    assert (copy / "my_kernels/sigmoid.numpy.py").read_text() == "kept"
    assert (copy / "notebooks/My tries.ipynb").read_text() == "mine"


def test_an_own_file_with_the_name_of_a_new_one_is_in_the_backup(copy):
    (copy / "notebooks/03.ipynb").write_text("my own")
    updated(copy, BASE, {**OTHERS, "notebooks/03.ipynb": notebook_files.to_bytes(v4.new_notebook(cells=BASE)).decode()})
    assert (copy / "backups/001/notebooks/03.ipynb").read_text() == "my own"
    assert len(nbformat.read(copy / "notebooks/03.ipynb", as_version=4).cells) == len(BASE)


def test_any_mixture_of_changes_loses_no_text_of_the_student(tmp_path):
    """Every cell that the student has written or changed survives any changes on both sides."""
    for seed in range(60):
        rng = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        base = [cell(f"c{i}", f"base {i}") for i in range(8)]
        copy = unpacked(zipped(folder / "base.zip", base), folder)
        mine: set[str] = set()

        def edit(cells, rng=rng, mine=mine):
            for number in range(rng.randrange(6)):
                place = rng.randrange(len(cells))
                action = rng.choice(["change", "add", "delete", "move"])
                if action == "change":
                    cells[place].source = f"mine {number}"
                elif action == "add":
                    cells.insert(place, cell(f"own{number}", f"mine {number}"))
                elif action == "delete" and len(cells) > 2:
                    del cells[place]
                else:
                    cells.insert(rng.randrange(len(cells)), cells.pop(place))
            mine |= {each.source for each in cells if each.source.startswith("mine")}

        change(copy, edit)
        for version in ("second", "third"):
            new = [cell(f"c{i}", f"{version} {i}" if rng.random() < 0.4 else f"base {i}") for i in range(9)]
            rng.random() < 0.3 and rng.shuffle(new)
            del new[rng.randrange(9)]
            updated(copy, new, {})
            assert mine <= set(sources(copy)), seed
            ids = [each.id for each in nbformat.read(copy / NOTEBOOK, as_version=4).cells]
            assert len(set(ids)) == len(ids)
            there = set(sources(copy))
            assert all(each.source in there for each in new if each.id in ids and version in each.source)


def damaged(path: Path, edit) -> Path:
    """The hand-out with its files changed by edit(files)."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    edit(files)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def manifest(files: dict, edit) -> None:
    found = json.loads(files["course/MANIFEST.json"])
    edit(found)
    files["course/MANIFEST.json"] = json.dumps(found).encode()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda files: files.update({"course/README.md": b"other"}), "damaged"),
        (lambda files: files.pop("course/MANIFEST.json"), "MANIFEST"),
        (lambda files: manifest(files, lambda found: found.update(language="es")), "language"),
        (lambda files: manifest(files, lambda found: found.update(kind="notebooks")), "kind"),
    ],
)
def test_what_is_no_hand_out_for_this_copy_changes_nothing(edit, said, copy, capsys):
    new = zipped(copy.parent / "new.zip", [*BASE, cell("four", "w = 4")], OTHERS)
    damaged(new, edit)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    assert said in command_refused(capsys, ["update", str(new), "--folder", str(copy)])
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["../outside.py", "my_kernels/sigmoid.numpy.py", "a/../../outside.py"])
def test_an_update_writes_nowhere_else(name, copy):
    new = zipped(copy.parent / "new.zip", BASE, {**OTHERS, name: "evil"})
    with pytest.raises(CourseError, match=re.escape(name)):
        update.update(new, copy)
    assert not (copy.parent / "outside.py").exists() and not (copy / "my_kernels").exists()


def test_a_folder_that_is_no_copy_is_said(tmp_path, course, capsys):
    assert "MANIFEST.json" in command_refused(capsys, ["update", str(course), "--folder", str(tmp_path)])
