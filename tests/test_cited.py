"""What others cite or join by: CITATION.cff, the paper, and the page on accessibility, which names its tests."""

import re
import tomllib
from pathlib import Path

import pytest

import nncourse
from nnclassroom.exercises.hints import exercises

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PAPER, BIBLIOGRAPHY = ((ROOT / "paper" / name).read_text("utf-8") for name in ("paper.md", "paper.bib"))
SECTIONS = ["Summary", "Statement of need", "Contents", "Instructional design", "How it was tested", "Adoption"]
SECTIONS += ["Experience of use", "Story", "Acknowledgements", "References"]
ROW = re.compile(r"^\| \d\d[a-z]? .* \|$", re.MULTILINE)  # of the table of notebooks


@pytest.fixture
def yaml():
    return pytest.importorskip("yaml", reason="no PyYAML here: the extra test brings it")


def test_the_citation_is_of_this_version(yaml):
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited) and cited["cff-version"] == "1.2.0"
    assert cited["version"] == PROJECT["version"] == nncourse.__version__
    assert cited["license"] == PROJECT["license"] and cited["keywords"] == PROJECT["keywords"]
    assert cited["authors"] == PROJECT["authors"] or all("family-names" in each for each in cited["authors"])


def test_the_paper_has_the_parts_that_jose_asks_for(yaml):
    head = yaml.safe_load(PAPER.split("---\n")[1])
    assert {"title", "tags", "authors", "affiliations", "date", "bibliography"} <= set(head)
    assert {each["affiliation"] for each in head["authors"]} <= {each["index"] for each in head["affiliations"]}
    assert re.findall(r"(?m)^# (.+)$", PAPER.split("---\n", 2)[2]) == SECTIONS


def test_every_reference_is_cited_and_every_citation_has_one():
    entries = re.findall(r"^@\w+\{(\w+),$", BIBLIOGRAPHY, re.MULTILINE)
    cited = re.findall(r"@(\w+)", " ".join(re.findall(r"\[(@[^\]]+)\]", PAPER)))
    assert len(entries) == len(set(entries)) and set(entries) == set(cited)


def test_the_papers_numbers_are_those_of_the_course():
    table = ROW.findall(PAPER)
    readme = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", (ROOT / "README.md").read_text("utf-8"))  # without links
    assert table == ROW.findall(readme)
    assert f"{len(table)} Jupyter notebooks" in PAPER and f"{len(exercises())} exercises" in PAPER
    files = {*re.findall(r"`((?:benchmarks|docs)/\w+\.\w+)`", PAPER)}
    assert len(files) > 4 and all((ROOT / name).is_file() for name in files)
    for number, name in ((917, "speed"), (449, "speed"), (64.4, "speed"), (129, "confirmed"), (124, "confirmed")):
        assert f" {number} " in (ROOT / "docs" / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["README.md", "CITATION.cff"])
def test_the_notebooks_are_counted_rightly(name):
    count = len(list((ROOT / "notebooks").glob("*.ipynb")))
    assert f"{count} Jupyter notebooks" in " ".join((ROOT / name).read_text("utf-8").split())


def test_the_page_on_accessibility_names_files_that_exist():
    named = set(re.findall(r"`((?:tests|book|nnclassroom)/[\w/]+\.\w+)`", (ROOT / "docs/accessibility.md").read_text()))
    assert len(named) > 9 and all((ROOT / name).is_file() for name in named), named
