"""Turn a notebook into a page: figures as files with descriptions, live widgets, folded answers, and how to run it."""

import copy
from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

from nbformat.v4 import new_markdown_cell, new_output

from book.markdown import without_dead_links
from nnclassroom.widgets import digit_pad, widget
from nnmarking.repository import hosts

STILL = "nncourse-still"  # the class of what a saved notebook shows in a widget's place
FOLDED = "hide-output"  # myst-nb's tag
AT_REST = (widget.SAVED, digit_pad.SAVED)  # what a saved notebook shows of a widget, as plain text
FIGURE, TURNED = (
    "nncourse-figure",
    "nncourse-turned",
)  # classes of a figure's HTML: see nnclassroom/figures/described.py
LEXER = "nncourse"  # of the book's extension: %%cuda cells are CUDA C


def as_page(
    notebook: Any, name: str, words: ModuleType, pages: Collection[str], live: Mapping[str, str], address: str = ""
) -> Any:
    """The notebook as Sphinx reads it.

    name: its file's name.
    live: the HTML of widgets, by the ids of their cells.
    address: where the course can be cloned from.
    """
    page = copy.deepcopy(notebook)
    page.metadata["language_info"] = {"name": "python", "pygments_lexer": LEXER}
    predicted = False  # what the next code cells show is first to be predicted
    for cell in page.cells:
        if cell.cell_type == "markdown":
            predicted = words.PREDICT in cell.source
            cell.source = without_dead_links(cell.source, f"notebooks/{name}", pages)
        elif cell.cell_type == "code":
            if cell.id in live:
                cell.outputs = [new_output("display_data", {"text/html": live[cell.id]}), *_beside_widget(cell.outputs)]
            elif predicted and cell.outputs:
                cell.metadata["tags"] = [*cell.metadata.get("tags", ()), FOLDED]
            cell.outputs = [shown(output) for output in cell.outputs]
    page.cells.insert(1, new_markdown_cell(try_it(name, words, address), id="book-try-it"))
    return page


def shown(output: Any) -> Any:
    """An output as the page shows it: a figure without its HTML, all else as it is."""
    data = output.get("data", {})
    if FIGURE in data.get("text/html", "") and "image/png" in data:
        described = dict(output.metadata.get("image/png", {}), turned=TURNED in data["text/html"].rpartition("<img")[2])
        kept = {"image/png": data["image/png"], "text/plain": data["text/plain"]}
        return new_output("display_data", kept, metadata={"image/png": described})
    return output


def widgets_of(notebook: Any) -> list[int]:
    """The places of the cells that show a widget."""
    cells = enumerate(notebook.cells)
    return [i for i, cell in cells if cell.cell_type == "code" and any(map(is_widget, cell.outputs))]


def _beside_widget(outputs: list[Any]) -> list[Any]:
    """A cell's outputs without the widget, and without the picture that a saved notebook has in its place."""
    return [each for each in outputs if not is_widget(each) and STILL not in each.get("data", {}).get("text/html", "")]


def is_widget(output: Any) -> bool:
    """Whether an output is what a saved notebook holds of a widget."""
    data = output.get("data", {})
    return set(data) == {"text/plain"} and data["text/plain"] in AT_REST


def try_it(name: str, words: ModuleType, address: str = "") -> str:
    """The box on a notebook's page: what to download, and how to run it."""
    link = f"{{download}}`{name} <../handout/{name}>`"
    clone = f" (`git clone {address}`)" if address else ""
    online = ", ".join(f"[{host}]({link})" for host, link in hosts(address, name).items())
    lines = [
        f"- {words.TRY_DOWNLOAD.format(link=link)}",
        *([f"- {words.TRY_ONLINE.format(links=online)}"] if online else []),
        f"- {words.TRY_RUN.format(address=clone)} {words.TRY_ELSEWHERE.format(front='../index.md')}".replace("\n", " "),
    ]
    return "\n".join([f"```{{admonition}} {words.TRY_IT}", ":class: nncourse-try", "", *lines, "```"])
