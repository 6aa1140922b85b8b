"""What pages and notebooks refer to is there: files, notebooks by their numbers, exercises by their notebooks."""

import re
import tomllib
from pathlib import Path

import nbformat
import pytest

from nnclassroom.exercises.hints import exercises
from nncourse.language import english_files

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*/README.md")])
NUMBERS = {path.stem.partition("_")[0] for path in NOTEBOOKS}

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)[^)]*\)|(?:src|href)=[\"']()([^\"']+)")
CODE = re.compile(r"```.*?```|`[^`\n]*`|^    .*$", re.DOTALL | re.MULTILINE)
ONE = r"\d\d[a-z]?\b"
NUMBERED = re.compile(rf"\b[Nn]otebooks? ({ONE}(?:(?:,? and |,? or | to |, |–){ONE})*)")
EXERCISE_OF = re.compile(rf"((?:`\w+`(?:, | and )?)+) (?:of|in|from) notebook ({ONE})")


def words(path: Path) -> str:
    """What a reader reads of a notebook or a page."""
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def texts(path: Path) -> str:
    """All that is written in it, the code of a notebook included."""
    if path.suffix != ".ipynb":
        return path.read_text("utf-8")
    return "\n\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)


def links(path: Path) -> list[tuple[str, str]]:
    """Text and target of each link to a file, anchors cut off."""
    found = [(match[1] or "", match[2] or match[4]) for match in LINK.finditer(CODE.sub("", words(path)))]
    outside = re.compile(r"https?:|mailto:|data:|attachment:|#")
    return [(text, target.partition("#")[0]) for text, target in found if not outside.match(target)]


def referring() -> list[Path]:
    """Pages, notebooks, and the texts of the package that speak of notebooks."""
    packages = [path for path in english_files() if path.suffix in (".py", ".cu", ".toml")]
    return [*PAGES, *NOTEBOOKS, *(path for path in packages if NUMBERED.search(path.read_text("utf-8")))]


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=ids)
def test_links_lead_to_files_that_exist(path):
    for _, target in links(path):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", NOTEBOOKS, ids=ids)
def test_links_of_a_notebook_lead_to_notebooks_beside_it(path):
    """Then they work in every copy, wherever it lies. The number in a link's text is its target's."""
    for text, target in links(path):
        assert target in {each.name for each in NOTEBOOKS}, target
        number = re.search(ONE, text)
        assert not number or number[0] == target.partition("_")[0], f"{text}: {target}"


@pytest.mark.parametrize("path", referring(), ids=ids)
def test_notebooks_that_are_named_exist(path):
    named = {number for match in NUMBERED.finditer(texts(path)) for number in re.findall(ONE, match[1])}
    assert named <= NUMBERS


@pytest.mark.parametrize("path", [*PAGES, *NOTEBOOKS], ids=ids)
def test_an_exercise_is_said_to_be_where_it_is(path):
    """`adam_update` of notebook 09: only names that are exercises are looked at."""
    where: dict[str, set[str]] = {}
    for each in exercises():
        where.setdefault(each.operation, set()).add(each.notebook.partition("_")[0])
    for match in EXERCISE_OF.finditer(words(path)):
        for name in re.findall(r"\w+", match[1]):
            assert match[2] in where.get(name, {match[2]}), match[0]


def test_the_lists_of_notebooks_name_each_once():
    rows = re.findall(rf"^\| \[({ONE}) .*\| ([\d¼½¾]+) \|$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    hours = [re.search(r"Time: about ([\d¼½¾]+) hour", texts(path))[1] for path in NOTEBOOKS]
    assert rows == list(zip(sorted(NUMBERS), hours, strict=True))
    whole = sum(int("0" + text.rstrip("¼½¾")) + max(0, " ¼½¾".find(text[-1])) / 4 for text in hours)
    assert f"about {whole:.0f} hours" in (ROOT / "README.md").read_text("utf-8")
    linked = [target for _, target in links(ROOT / "notebooks/00_start_here.ipynb")]
    assert sorted(set(linked)) == [path.name for path in NOTEBOOKS[1:]]


def test_names_that_students_have_kept_are_still_there():
    stay = tomllib.loads((ROOT / "tests" / "names_that_stay.toml").read_text("utf-8"))
    assert set(stay["exercises"]) <= {each.key for each in exercises()}
    assert set(stay["notebooks"]) <= {path.stem for path in NOTEBOOKS}
