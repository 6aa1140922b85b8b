"""Write the source tree that Sphinx reads: an edition's front page, notebooks, reference, and other pages."""

import posixpath
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat

from book import front, live, notebook_pages, outputs, reference
from book.editions import ROOT, Edition
from book.files import Tree
from book.markdown import part, table, without_dead_links
from nnclassroom.handing_out.notebook_files import clean

INSTRUCTORS = (
    "docs/instructors.md",
    "docs/syllabus.md",
    "docs/marking.md",
    "docs/answers.md",
    "docs/jupyterhub.md",
    "slurm/README.md",
)
MORE = (
    "docs/install.md",
    "docs/command-line.md",
    "docs/training.md",
    "docs/speed.md",
    "docs/report.md",
    "docs/accessibility.md",
    "benchmarks/README.md",
    "datasets/README.md",
)
HANDOUT = "handout"  # notebooks to download, which are no pages
IMAGE = re.compile(r"^!\[[^\]]+\]\([^)]+\)\n\n", re.MULTILINE)  # in a line of its own: the page has it live
BY_NUMBER = re.compile(r"\| \[(?P<number>\d\d\w?) (?P<rest>[^|]*)\|(?P<teaches>[^|]*)\|")


@dataclass(frozen=True)
class Choice:
    """What of the book is built: all of it, or some notebooks and topics and no other pages, for a test."""

    notebooks: Collection[str] | None = None  # names without .ipynb
    topics: Collection[str] | None = None

    @property
    def whole(self) -> bool:
        return self.notebooks is None and self.topics is None


def assemble(
    edition: Edition,
    source: Path,
    cache: Path,
    choice: Choice,
    address: str = "",
    say: Callable[[str], None] = lambda words: None,
) -> None:
    """Write the source tree. `cache` keeps what takes long to make, `address` is where the course can be cloned from.

    `say` is told what is being done. CourseError if a text is missing, or a notebook that had to be run failed.
    """
    words = edition.words()
    notebooks = chosen_notebooks(edition, choice)
    loaded = {}
    for number, path in enumerate(notebooks, 1):
        say(f"notebook {number} of {len(notebooks)}: {path.stem}")
        loaded[path.name] = outputs.with_outputs(path, edition.language, cache / "notebooks")
    texts = [*INSTRUCTORS, *MORE] if choice.whole else []
    pages = {
        "index.md",
        *(f"notebooks/{name}" for name in loaded),
        *reference.pages(choice.topics),
        *texts,
    }
    tree = Tree(source)
    kept = live.Kept(cache / live.FOLDER, edition.language)
    for path in notebooks:
        notebook, widgets = loaded[path.name], {}
        for place in notebook_pages.widgets_of(notebook):
            cell = notebook.cells[place].id
            say(f"widget: {path.stem}, {cell}")
            widget = kept.live(live.sources(notebook, place), f"{path.stem}.{cell}")
            tree.write_all(f"{live.STATIC}/", widget.texts)
            widgets[cell] = live.html(widget, "../", words)
        page = notebook_pages.as_page(notebook, path.name, words, pages, widgets, address)
        tree.write(f"notebooks/{path.name}", nbformat.writes(page))
        tree.write(f"{HANDOUT}/{path.name}", clean(path.read_bytes(), path.name))
    say("reference, and the front page")
    titles = {Path(name).stem: title_of(notebook) for name, notebook in loaded.items()}
    reference.write(tree, words, titles, cache / "pictures", choice.topics)
    for name in texts:
        text = edition.text(name)
        tree.write(name, without_dead_links(text, name, pages))
        for picture in re.findall(r"!\[[^\]]*\]\(([^):]+)\)", text):
            tree.write(f"{posixpath.dirname(name)}/{picture}", (ROOT / posixpath.dirname(name) / picture).read_bytes())
    readme = edition.text("README.md")
    first = kept.live(list(front.PLAYGROUND), "front")
    tree.write_all(f"{live.STATIC}/", first.texts)
    begin = front.beginning(live.html(first, "", words), words, cache)
    tree.write("index.md", without_dead_links(front_page(readme, titles, texts, words, begin), "index.md", pages))
    tree.remove_others()


def chosen_notebooks(edition: Edition, choice: Choice) -> list[Path]:
    """The files of the notebooks in order."""
    there = sorted(edition.notebooks.glob("*.ipynb"))
    return [path for path in there if choice.notebooks is None or path.stem in choice.notebooks]


def title_of(notebook: Any) -> str:
    """The heading with which a notebook begins."""
    return notebook.cells[0].source.splitlines()[0].lstrip("# ")


def front_page(readme: str, titles: dict[str, str], texts: Collection[str], words: ModuleType, begin: str) -> str:
    """The page's beginning, the notebooks with links, README's marked parts, the lists of pages for the side."""
    lists = [
        toctree(words.NOTEBOOKS, [f"notebooks/{name}" for name in titles]),
        toctree(words.REFERENCE, [f"{reference.FOLDER}/index"]),
        toctree(words.INSTRUCTORS, [name for name in INSTRUCTORS if name in texts]),
        toctree(words.MORE, [name for name in MORE if name in texts]),
    ]
    about, heading, how = IMAGE.sub("", part(readme, "front")).partition("\n## ")
    title, about = about.split("\n\n", 1)
    contents = [f"## {words.NOTEBOOKS}", notebook_list(readme, titles, words)]
    pieces = [title, begin, *contents, f"## {words.HOW}", about, heading + how, part(readme, "foot"), *lists]
    return "\n\n".join([*filter(None, pieces), ""])


def notebook_list(readme: str, titles: dict[str, str], words: ModuleType) -> str:
    """README's table of notebooks, those that are pages with links."""
    rows = []
    for match in BY_NUMBER.finditer(part(readme, "notebooks")):
        name = next((name for name in titles if name.partition("_")[0] == match["number"]), None)
        if name:
            rows.append((f"[{titles[name]}](notebooks/{name}.ipynb)", match["teaches"].strip()))
    return table(words.NOTEBOOK_HEADINGS, rows)


def toctree(caption: str, entries: Collection[str]) -> str:
    """A list of pages for the side, not shown on the page itself; "" without pages."""
    if not entries:
        return ""
    return "\n".join(["```{toctree}", ":hidden:", f":caption: {caption}", *entries, "```"])
