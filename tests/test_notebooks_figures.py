"""The figures of the committed notebooks: each has words, for eyes and for screen readers."""

import re
from html import escape
from pathlib import Path

import nbformat
import pytest

from nnclassroom.widgets.widget import SAVED

PATHS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SHORTEST = 30  # letters: fewer cannot describe a figure
NAMELESS = ("<Figure", "<IPython", "Figure: Figure")


def fault(data: dict) -> str:
    """Why the figure is not accessible to a blind reader; "" if it is."""
    said = data.get("text/plain", "").removeprefix(f"{SAVED} ")  # the still picture of a widget
    words = said.removeprefix("Figure: ")
    if said.startswith(NAMELESS) or len(words) < SHORTEST:
        return f"its words are {said[:60]!r}"
    images = re.findall(r"<img\b[^>]*>", data.get("text/html", ""))
    if len(images) != 1 or f'alt="{escape(words)}"' not in images[0]:
        return "JupyterLab shows it without its words"
    return ""


def faults(notebook) -> list[str]:
    """The faults of all figures, each with its cell."""
    shown = [(cell.id, output.get("data", {})) for cell in notebook.cells for output in cell.get("outputs", ())]
    return [f"{name}: {fault(data)}" for name, data in shown if "image/png" in data and fault(data)]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_each_figure_has_words(path):
    found = faults(nbformat.read(path, as_version=4))
    assert not found, "\n".join(found)


def test_a_figure_without_words_is_found():
    words = "Cost over 20 epochs: 0.69 after the first, 0.06 after the last."
    whole = {"image/png": "…", "text/html": f'<img class="x" alt="{words}" src="…">', "text/plain": f"Figure: {words}"}
    assert fault(whole) == ""
    assert "<Figure" in fault(whole | {"text/plain": "<Figure size 600x300 with 1 Axes>"})
    assert "too" in fault(whole | {"text/plain": "Figure: too short"})
    assert "without its words" in fault(whole | {"text/html": '<img src="…">'})
    assert "without its words" in fault({key: value for key, value in whole.items() if key != "text/html"})
