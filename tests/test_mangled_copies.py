"""What lies in students' copies: notebooks of every age and damage beside the course's and in their place.

An update ends with its usual lines and loses nothing: what was in the copy is afterwards in it, in the backup byte for
byte, or merged with its answers intact.
"""

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from ipykernel.ipkernel import IPythonKernel
from refusals import command_refused

from nnclassroom.commands import main
from nnclassroom.handing_out import lab, old_names, own_copy, update
from nnclassroom.handing_out.notebook_files import MANIFEST, clean, manifest_of, parsed
from nncourse.errors import CourseError

NOTEBOOK, OTHER = "notebooks/01_neurons.ipynb", "notebooks/02_activations.ipynb"
ABOUT = {"kind": "course", "language": "en"}


def made(*texts: str, ids: bool = True) -> dict:
    """A notebook of these cells as JSON; texts that begin with # are words."""
    kinds = ["markdown" if text.startswith("#") else "code" for text in texts]
    of_code = {"outputs": [], "execution_count": None}
    cells = [
        {"cell_type": kind, "metadata": {}, "source": text} | (of_code if kind == "code" else {})
        for kind, text in zip(kinds, texts, strict=True)
    ]
    for number, cell in enumerate(cells if ids else []):
        cell["id"] = f"c{number}"
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5 if ids else 0}


def content(notebook: Any) -> bytes:
    return json.dumps(notebook, indent=1).encode()


def handed_out(folder: Path, **texts: str) -> Path:
    """A hand-out of two notebooks and two more files, unpacked; the texts take the place of its own."""
    given = {"title": "# Neurons", "first": "x = 1", "blank": "raise NotImplementedError", "last": "z = 3"} | texts
    words = {name: given.pop(name) for name in ("readme", "program") if name in given}
    files = {
        NOTEBOOK: clean(content(made(*given.values())), NOTEBOOK),
        OTHER: clean(content(made("# Activations", "raise NotImplementedError", *list(given.values())[4:])), OTHER),
        "README.md": words.get("readme", "Read me").encode(),
        "nncourse/program.py": words.get("program", "x = 1\n").encode(),
    }
    for name, one in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(one)
    update.write_manifest(folder, manifest_of(files, ABOUT))
    return folder


@pytest.fixture(scope="module")
def course(tmp_path_factory) -> tuple[Path, Path]:
    """The hand-out as students got it, and the next one."""
    folder = tmp_path_factory.mktemp("course")
    old = handed_out(folder / "old")
    changed = {"first": "x = 2", "more": "w = 4", "readme": "Read me again", "program": "x = 2\n"}
    return old, handed_out(folder / "new", **changed)


@pytest.fixture
def copy(course, tmp_path) -> Path:
    shutil.copytree(course[0], tmp_path / "copy")
    return tmp_path / "copy"


def files_in(folder: Path) -> dict[str, bytes]:
    paths = (Path(where) / name for where, _, names in os.walk(folder) for name in names)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.is_file()}


def sources(one: bytes) -> set[str]:
    """The texts of a notebook's cells; none of what is no notebook."""
    try:
        return {cell.source.strip() for cell in parsed(one, "it").cells}
    except CourseError:
        return set()


def lost(before: dict[str, bytes], copy: Path, course: tuple[Path, Path]) -> list[str]:
    """The files of before that are neither there, nor in a backup, nor merged, and not the course's own."""
    after, handed_out = files_in(copy), {*files_in(course[0]).values()}
    there = {*after.values()}
    answers = {""}.union(*(sources(one) for name, one in after.items() if name.endswith(".ipynb")))
    gone = {
        name: one for name, one in before.items() if name != MANIFEST and one not in there and one not in handed_out
    }
    return [name for name, one in gone.items() if not sources(one) or not sources(one) <= answers]


def updated(course: tuple[Path, Path], copy: Path) -> list[str]:
    """The lines of an update by which nothing was lost; and a second one, which has nothing to do."""
    before = files_in(copy)
    said = update.update(course[1], copy)
    assert not lost(before, copy, course)
    again = files_in(copy)
    update.update(course[1], copy)
    assert files_in(copy) == again
    assert said and not any("\n" in line or "Traceback" in line for line in said)
    return said


# ---- kind 10: notebooks without ids, and everything else that Jupyter still opens, or somebody calls a notebook

COLAB = {
    "cells": [
        {
            "cell_type": "code",
            "execution_count": None,
            "metadata": {"id": "x0"},
            "outputs": [],
            "source": "from nncourse import make_network",
        }
    ],
    "metadata": {"colab": {"provenance": []}},
    "nbformat": 4,
    "nbformat_minor": 0,
}
OF_2012 = {
    "metadata": {"name": "old"},
    "nbformat": 3,
    "nbformat_minor": 0,
    "worksheets": [
        {"cells": [{"cell_type": "code", "collapsed": False, "input": ["y = 7"], "language": "python", "outputs": []}]}
    ],
}


def with_cell(**changes: Any) -> dict:
    """A notebook with one cell that is changed so; None takes a field away."""
    notebook = made("y = 7")
    notebook["cells"][0] |= changes
    notebook["cells"][0] = {name: value for name, value in notebook["cells"][0].items() if value is not None}
    return notebook


def without(notebook: dict, *names: str) -> dict:
    return {name: value for name, value in notebook.items() if name not in names}


OPENED = {  # Jupyter opens them
    "from Colab, without ids": COLAB,
    "nbformat 3": OF_2012,
    **{f"nbformat 4.{minor}": made("y = 7", ids=False) | {"nbformat_minor": minor} for minor in range(6)},
    "ids of numbers": with_cell(id=7),
    "an empty id": with_cell(id=""),
    "the same id twice": {**made("y = 7"), "cells": made("y = 7")["cells"] * 2},
    "an id that is none": with_cell(id="¡ñ! " * 40),
    "a list as source": with_cell(source=["y = ", "7"]),
    "no source": with_cell(source=None, cell_type="markdown"),
    "no metadata of a cell": with_cell(metadata=None),
    "metadata that are a list": with_cell(metadata=[]),
    "no metadata": without(made("y = 7"), "metadata"),
    "no minor": without(made("y = 7"), "nbformat_minor"),
    "no outputs": with_cell(outputs=None),
    "no count": with_cell(execution_count=None),
    "an output without fields": with_cell(outputs=[{}]),
    "an output of no kind": with_cell(outputs=[{"output_type": "stream"}, {"output_type": "display_data"}]),
    "an unknown kind of cell": with_cell(cell_type="sql"),
    "no cells in it": {**made(), "cells": []},
    "half a character": with_cell(source="y = '\ud800'"),
    "a null": with_cell(source="y = '\0'"),
    "deep brackets": with_cell(source="(" * 5000),
    "deep sums": with_cell(source="y = " + "+".join(["1"] * 5000)),
    "a magic": with_cell(source="%time y = '\\s'\n!ls\n"),
}
BROKEN = {
    "no notebook at all": b"y = 7\n",
    "an empty file": b"",
    "null": b"null",
    "a list": b"[]",
    "a number": b"7",
    "no cells": content(without(made(), "cells")),
    "cells that are none": content({**made(), "cells": ["y = 7", None, 3]}),
    "cut off": content(made("y = 7"))[:70],
    "deeper than Python": b"[" * 100_000,
    "latin-1": content(COLAB).replace(b"import", "ñ".encode("latin-1")),
    "nbformat 99": content({**made("y = 7"), "nbformat": 99}),
    "nbformat in words": content({**made("y = 7"), "nbformat": "four"}),
}
CODED = {
    "bom": b"\xef\xbb\xbf" + content(made("y = 7")),
    "utf-16": content(made("y = 7")).decode().encode("utf-16"),
    "crlf and bom": b"\xef\xbb\xbf" + content(made("y = 7")).replace(b"\n", b"\r\n"),
}
ALL = {name: content(one) for name, one in OPENED.items()} | CODED | BROKEN
each_file = pytest.mark.parametrize("mine", ALL.values(), ids=ALL)


@each_file
def test_no_ids_and_its_like_beside_the_courses_notebooks(course, copy, mine):
    (copy / "notebooks/mine.ipynb").write_bytes(mine)
    said = updated(course, copy)
    assert (copy / "notebooks/mine.ipynb").read_bytes() == mine
    assert any(line.startswith("updated notebooks/01_neurons.ipynb") for line in said)
    if mine == ALL["from Colab, without ids"]:
        assert not any("mine" in line for line in said)


@each_file
def test_no_ids_and_its_like_in_place_of_a_notebook(course, copy, mine):
    (copy / NOTEBOOK).write_bytes(mine)
    said = " ".join(updated(course, copy))
    now = sources((copy / NOTEBOOK).read_bytes())
    assert "w = 4" in now and ("your version is no longer a notebook" in said) == (mine in BROKEN.values())
    if b"y = 7" in mine and mine not in BROKEN.values():
        assert "y = 7" in now


def test_no_ids_with_an_old_name_are_told_by_the_cells_number(course, copy):
    text = "from nncourse.model.layers import Turn"
    assert old_names.replaced(text)
    (copy / "notebooks/mine.ipynb").write_bytes(content(made("# words", text, ids=False)))
    assert any(line.startswith("mine, cell 2: for ") for line in update.update(course[1], copy))


@pytest.mark.parametrize("ids", ["gone", "of numbers", "the same"])
def test_no_ids_in_the_courses_own_notebook_keep_the_answers(course, copy, ids):
    """As a student's Colab saves it: cells that are unchanged are known by their texts."""
    notebook = json.loads((copy / NOTEBOOK).read_bytes())
    notebook["cells"][2]["source"] = "def neuron(x): return x"
    for cell in notebook["cells"]:
        cell["id"] = {"gone": None, "of numbers": 7, "the same": "c0"}[ids]
        if ids == "gone":
            del cell["id"]
    (copy / NOTEBOOK).write_bytes(content(notebook))
    updated(course, copy)
    now = [cell.source for cell in parsed((copy / NOTEBOOK).read_bytes(), NOTEBOOK).cells]
    assert now[0] == "# Neurons" and "x = 2" in now and "def neuron(x): return x" in now and "x = 1" not in now


@pytest.mark.parametrize("name", ["notebooks/mine.ipynb", NOTEBOOK])
@pytest.mark.parametrize("what", ["a folder", "a link to nothing", "a link to itself", "a pipe"])
def test_what_is_no_file_stays_where_it_is(course, copy, name, what):
    path = copy / name
    path.unlink(missing_ok=True)
    if what == "a folder":
        path.mkdir()
        (path / "thesis.txt").write_text("mine")
    elif what == "a pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(path if "itself" in what else copy / "drive" / "01.ipynb")
    said = updated(course, copy)
    assert os.path.lexists(path) and not path.is_file() and (copy / "README.md").read_text() == "Read me again"
    assert (name == NOTEBOOK) == any("it is not a file" in line for line in said)


def test_a_link_to_a_notebook_on_a_drive_loses_nothing(course, copy, tmp_path):
    mine = content(made("# Neurons", "mine = 1"))
    (tmp_path / "drive.ipynb").write_bytes(mine)
    (copy / NOTEBOOK).unlink()
    (copy / NOTEBOOK).symlink_to(tmp_path / "drive.ipynb")
    (copy / "notebooks/mine.ipynb").symlink_to(tmp_path / "drive.ipynb")
    updated(course, copy)
    assert (tmp_path / "drive.ipynb").read_bytes() == mine and "mine = 1" in sources((copy / NOTEBOOK).read_bytes())


def test_what_cannot_be_read_is_one_line_or_passed_over(course, copy, monkeypatch):
    def refuse(path, really=Path.read_bytes):
        if path in unreadable:
            raise PermissionError(13, "Permission denied", str(path))
        return really(path)

    (copy / "notebooks/mine.ipynb").write_bytes(content(COLAB))
    monkeypatch.setattr(Path, "read_bytes", refuse)
    unreadable = {copy / NOTEBOOK}
    with pytest.raises(CourseError, match=r"01_neurons.ipynb: cannot be updated: Permission denied"):
        update.update(course[1], copy)
    unreadable = {copy / "notebooks/mine.ipynb"}
    assert any(line.startswith("updated") for line in update.update(course[1], copy))


@pytest.mark.parametrize(
    "damage",
    [
        {"files": {NOTEBOOK: 7}},
        {"files": [NOTEBOOK]},
        {"notebooks": {NOTEBOOK: ["c0"]}},
        {"notebooks": {NOTEBOOK: {"c0": None}}},
        {"course": 7},
        {"language": None},
    ],
)
def test_a_manifest_of_other_types_is_one_line(course, copy, damage, capsys):
    about = json.loads((copy / MANIFEST).read_bytes()) | damage
    (copy / MANIFEST).write_text(json.dumps(about))
    before = files_in(copy)
    assert command_refused(capsys, ["update", str(course[1]), "--folder", str(copy)]) and files_in(copy) == before
    assert lab.language(copy, "") == "en"


def test_a_manifest_with_a_bom_is_read(course, copy):
    (copy / MANIFEST).write_bytes(b"\xef\xbb\xbf" + (copy / MANIFEST).read_bytes())
    assert lab.language(copy, "") == "en" and updated(course, copy)


def test_a_manifest_that_names_files_elsewhere_removes_none(course, copy):
    (copy.parent / "thesis.txt").write_text("mine")
    about = json.loads((copy / MANIFEST).read_bytes())
    mine = manifest_of({"thesis.txt": b"mine"}, ABOUT)["files"]["thesis.txt"]
    about["files"] |= {"../thesis.txt": mine, str(copy.parent / "thesis.txt"): mine}
    (copy / MANIFEST).write_text(json.dumps(about))
    updated(course, copy)
    assert (copy.parent / "thesis.txt").read_text() == "mine"


# ---- the copy of a clone: `nncourse notebooks` and `nncourse lab`


@pytest.fixture
def clone(tmp_path, monkeypatch) -> Path:
    root = tmp_path / "clone"
    (root / "notebooks").mkdir(parents=True)
    (root / "notebooks/01_neurons.ipynb").write_bytes(content(made("# Neurons", "x = 1")))
    monkeypatch.setattr("nncourse.language.COURSE", root)
    return root


@each_file
def test_no_ids_and_its_like_do_not_stop_the_notebooks_of_a_clone(clone, mine, capsys):
    """The notebook is beside the student's notebooks, and in the clone's own folder before there is a copy."""
    if mine in BROKEN.values():
        (clone / "notebooks/tried.ipynb").write_bytes(mine)
    folder = clone / "my_notebooks"
    assert main(["notebooks", str(folder)]) == 0
    (folder / "mine.ipynb").write_bytes(mine)
    (clone / "notebooks/01_neurons.ipynb").write_bytes(content(made("# Neurons", "x = 2")))
    lab.notebooks(clone, folder, "en")
    said = capsys.readouterr()
    assert "x = 2" in sources((folder / "01_neurons.ipynb").read_bytes()) and not said.err, said.err
    assert (folder / "mine.ipynb").read_bytes() == mine


@pytest.mark.parametrize("name", [name for name in ALL if name not in BROKEN])
def test_no_ids_in_the_notebooks_of_a_clone_are_taken_over(clone, name):
    (clone / "notebooks/tried.ipynb").write_bytes(ALL[name])
    for text in ("x = 2", "x = 3"):
        own_copy.bring(clone, clone / "my_notebooks")
        (clone / "notebooks/01_neurons.ipynb").write_bytes(content(made("# Neurons", text)))
    own_copy.bring(clone, clone / "my_notebooks")
    assert sources((clone / "my_notebooks/tried.ipynb").read_bytes()) == sources(ALL[name])


def test_a_folder_and_an_unreadable_file_among_the_notebooks_of_a_clone(clone):
    (clone / "notebooks/folder.ipynb").mkdir()
    assert own_copy.bring(clone, clone / "my_notebooks")
    (clone / "my_notebooks/01_neurons.ipynb").unlink()
    (clone / "my_notebooks/01_neurons.ipynb").mkdir()
    (clone / "notebooks/01_neurons.ipynb").write_bytes(content(made("# Neurons", "x = 2")))
    assert "it is not a file" in " ".join(own_copy.bring(clone, clone / "my_notebooks"))
    assert own_copy.bring(clone, clone / "my_notebooks") == []


# ---- JupyterLab finds nothing to add


def test_a_copy_has_all_that_a_kernel_says_of_its_language(clone, course):
    own_copy.bring(clone, clone / "my_notebooks")
    for path in (clone / "my_notebooks/01_neurons.ipynb", course[0] / NOTEBOOK):
        notebook = nbformat.read(path, as_version=4)
        assert notebook.metadata.language_info == IPythonKernel.language_info


@pytest.mark.parametrize("other", [{"name": "python"}, {"name": "python", "version": "3.8.1"}, None, "python", []])
def test_what_a_kernel_says_of_its_language_is_no_change(course, copy, other):
    for name in (NOTEBOOK, OTHER):
        notebook = json.loads((copy / name).read_bytes())
        notebook["metadata"]["language_info"] = other
        (copy / name).write_bytes(content(notebook))
    before = (copy / OTHER).read_bytes()
    assert update.update(course[0], copy) == [f"nothing to do: your copy is at course {_course_of(course[0])}"]
    assert (copy / OTHER).read_bytes() == before
    updated(course, copy)
    if other == {"name": "python"}:
        notebook = json.loads((copy / NOTEBOOK).read_bytes())
        assert notebook["metadata"]["language_info"] == IPythonKernel.language_info


def test_a_notebook_that_was_deleted_stays_so_where_only_its_language_is_another(course, copy):
    about = json.loads((copy / MANIFEST).read_bytes())
    about["files"][OTHER] = "of another Python"
    (copy / MANIFEST).write_text(json.dumps(about))
    (copy / OTHER).unlink()
    update.update(course[0], copy)
    assert not (copy / OTHER).exists()


def _course_of(handout: Path) -> str:
    return update.read_manifest(handout)["course"]


# ---- a fuzz with kept seeds

NAMES = (
    "mine", "mío", "作业", "домашнее", "तत्व", "עבודה", "🙂", "a b", "x" * 120, "-rf", "ﬁ", "e\u0301", "%s{}", "$(ls)",
)  # fmt: skip
VALUES = (None, 7, -1.5, True, "", "text", [], {}, [None], {"a": 1}, "\ud800", 10**40, float("nan"))
KINDS = ("bytes changed", "bytes cut", "bytes doubled", "types", "fields gone", "names", "folders", "places", "several")


def random_bytes(rng: random.Random, kind: str, one: bytes) -> bytes:
    begin = rng.randrange(len(one) + 1)
    end = min(len(one), begin + rng.choice((1, 2, 7, 40, 400)))
    if kind == "bytes changed":
        return one[:begin] + rng.randbytes(end - begin) + one[end:]
    return one[:begin] + (one[begin:end] * 2 if kind == "bytes doubled" else b"") + one[end:]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or dictionary within a value, with each of its indices or keys."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def random_types(rng: random.Random, kind: str, one: bytes) -> bytes:
    try:
        value = json.loads(one)
    except ValueError:  # mangled before
        return random_bytes(rng, "bytes changed", one)
    for _ in range(rng.choice((1, 1, 2, 5))):
        holder, key = rng.choice(list(places(value)) or [([None], 0)])
        if kind == "fields gone":
            del holder[key]
        else:
            holder[key] = deepcopy(rng.choice(VALUES))
    return json.dumps(value).encode()


def mangle(rng: random.Random, kind: str, copy: Path) -> None:
    """Do something of this kind to a student's copy."""
    notebooks = [path for path in sorted(copy.rglob("*.ipynb")) if path.is_file()]
    path = rng.choice([*notebooks, *notebooks, copy / "README.md", copy / MANIFEST])
    match kind:
        case "types" | "fields gone":
            path = rng.choice([*notebooks, *notebooks, copy / MANIFEST])
            path.write_bytes(random_types(rng, kind, path.read_bytes()))
        case "names":
            source = rng.choice(notebooks)
            target = source.with_name(rng.choice(NAMES) + rng.choice((".ipynb", ".ipynb", ".IPYNB", ".txt", "")))
            target.write_bytes(source.read_bytes() if rng.random() < 0.5 else rng.randbytes(50))
            if rng.random() < 0.5:
                os.replace(
                    source, source.with_name(os.fsdecode(b"\xff\xe9" + rng.randbytes(1).hex().encode() + b".ipynb"))
                )
        case "folders":
            deep = copy / "notebooks" / "/".join(rng.choice(NAMES)[:20] for _ in range(rng.randrange(1, 30)))
            deep.mkdir(parents=True, exist_ok=True)
            (deep / "a.ipynb").write_bytes(notebooks[0].read_bytes())
        case "places":
            path.unlink()
            rng.choice((path.mkdir, lambda: None, lambda: path.symlink_to(copy / "nothing"), lambda: os.mkfifo(path)))()
        case "several":
            for each in rng.choices(KINDS[:7], k=3):
                mangle(rng, each, copy)
        case _:
            path.write_bytes(random_bytes(rng, kind, path.read_bytes()))


def with_answer(rng: random.Random, path: Path) -> None:
    """Let the student type into some cells of a notebook."""
    notebook = json.loads(path.read_bytes())
    for cell in notebook["cells"]:
        if rng.random() < 0.4:
            cell["source"] = f"answer = {rng.random()}"
    path.write_bytes(json.dumps(notebook, indent=1).encode())


def outcome(course: tuple[Path, Path], copy: Path, seed: int) -> str:
    """Mangle a fresh copy, and update it; how that ended."""
    rng = random.Random(seed)
    shutil.copytree(course[0], copy)
    for name in (NOTEBOOK, OTHER):
        with_answer(rng, copy / name)
    mangle(rng, KINDS[seed % len(KINDS)], copy)
    before = files_in(copy)
    try:
        said = update.update(course[1], copy)
    except CourseError as error:
        assert "\n" not in str(error) and not lost(before, copy, course)
        return "refused in one line"
    assert not lost(before, copy, course), (seed, said)
    assert not any("\n" in line for line in said)
    if any("no longer a notebook" in line for line in said):
        return "into the backup, since it was no notebook any more"
    if any("in your copy it is not a file" in line for line in said):
        return "left alone, since it was no file"
    merged_answers = b"answer = " in b"".join(one for name, one in files_in(copy).items() if "backups" not in name)
    return "merged with answers" if merged_answers else "brought up to date"


def check_fuzz(course: tuple[Path, Path], tmp_path: Path, seeds: range) -> Counter:
    found: Counter = Counter()
    for seed in seeds:
        found[outcome(course, tmp_path / f"{seed}", seed)] += 1
        shutil.rmtree(tmp_path / f"{seed}")
    print(f"{len(seeds)} copies: " + ", ".join(f"{count} {name}" for name, count in found.most_common()))
    return found


def test_mangled_copies_lose_nothing(course, tmp_path):
    found = check_fuzz(course, tmp_path, range(45))
    assert found.total() == 45 and len(found) >= 3


@pytest.mark.full
def test_many_mangled_copies_lose_nothing(course, tmp_path):
    found = check_fuzz(course, tmp_path, range(1000, 1720))
    assert found.total() == 720 and len(found) == 5 and found["refused in one line"] < 150
