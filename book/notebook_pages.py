"""A notebook as a page: figures as files with their words, widgets at rest, and a box that says how to run it."""

import copy
from collections.abc import Collection, Iterator
from types import ModuleType
from typing import Any

from nbformat.v4 import new_markdown_cell, new_output

from book.markdown import without_dead_links
from nnclassroom.handing_out.repository import hosts
from nnclassroom.widgets import digit_pad, widget

AT_REST = (widget.SAVED, digit_pad.SAVED)  # what a saved notebook shows of a widget, as plain text
FIGURE, TURNED = (
    "nncourse-figure",
    "nncourse-turned",
)  # classes of a figure's HTML: see nnclassroom/figures/described.py
LEXER = "nncourse"  # of the book's extension: %%cuda cells are CUDA C


def as_page(notebook: Any, name: str, words: ModuleType, pages: Collection[str], address: str = "") -> Any:
    """The notebook as Sphinx reads it. `name` is its file's name, `address` is where the course can be cloned from."""
    page = copy.deepcopy(notebook)
    page.metadata["language_info"] = {"name": "python", "pygments_lexer": LEXER}
    for cell in page.cells:
        if cell.cell_type == "markdown":
            cell.source = without_dead_links(cell.source, f"notebooks/{name}", pages)
        elif cell.cell_type == "code":
            cell.outputs = [shown(output, words) for output in cell.outputs]
    page.cells.insert(1, new_markdown_cell(try_it(name, words, address), id="book-try-it"))
    return page


def shown(output: Any, words: ModuleType) -> Any:
    """An output as the page shows it: a figure without its HTML, a note in place of a widget, all else as it is."""
    data = output.get("data", {})
    if is_widget(output):
        return new_output("display_data", {"text/markdown": words.WIDGET, "text/plain": words.WIDGET})
    if FIGURE in data.get("text/html", "") and "image/png" in data:
        described = dict(output.metadata.get("image/png", {}), turned=TURNED in data["text/html"].rpartition("<img")[2])
        kept = {"image/png": data["image/png"], "text/plain": data["text/plain"]}
        return new_output("display_data", kept, metadata={"image/png": described})
    return output


def is_widget(output: Any) -> bool:
    """Whether an output is what a saved notebook holds of a widget."""
    data = output.get("data", {})
    return set(data) == {"text/plain"} and data["text/plain"] in AT_REST


def widgets_without_figure(notebook: Any) -> list[str]:
    """The ids of cells with a widget that no figure follows, in its own cell or in the next code cell."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    lonely = []
    for cell, following in zip(code, [*code[1:], None], strict=True):
        after = [*cell.outputs, *(following.outputs if following else ())]
        if any(map(is_widget, cell.outputs)) and not any(FIGURE in html for html in _html(after)):
            lonely.append(cell.id)
    return lonely


def _html(outputs: list[Any]) -> Iterator[str]:
    return (output.data.get("text/html", "") for output in outputs if "data" in output)


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
