"""A figure and its words: how a notebook shows it, to eyes and to screen readers, on a light page and on a dark one.

    Described(figure, "Cost over 20 epochs: 0.69 after the first, 0.06 after the last.")    # any matplotlib figure
    WordedFigure(figsize=(6, 3.4), words="…")                                               # a figure that has its own

JupyterLab gives a PNG no text alternative, whatever the metadata of the output say. So the figure is saved three times:
as HTML, an image with its words, which JupyterLab and web pages prefer; as PNG, for viewers without HTML; and as plain
text, the words alone. On a dark page the style in the HTML inverts the figure's lightness and keeps its hues, but only
if JupyterLab trusts the notebook; otherwise the figure keeps its white ground.
"""

import base64
import io
import sys
from dataclasses import dataclass
from html import escape
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

DARK_PAGES = ("[data-jp-theme-light=false]", "[data-theme=dark]", ".vscode-dark")  # JupyterLab, the web book, an editor
TURNED = "filter:invert(.93) hue-rotate(180deg)"  # white becomes the grey of JupyterLab's dark page
STYLE = (
    ".nncourse-figure{max-width:100%;height:auto}"
    f"{','.join(f'{page} .nncourse-turned' for page in DARK_PAGES)}{{{TURNED}}}"
    f"@media(prefers-color-scheme:dark){{[data-theme=auto] .nncourse-turned{{{TURNED}}}}}"
)
BOTH_INK = "0.46"  # legible on white and on black
COLOURS = 256  # a PNG with a palette has a third of the size


@dataclass(frozen=True)
class Described:
    """A figure with a text alternative. A notebook displays the figure and saves both.

    `photographs` are figures in which lightness has a meaning. They are not inverted on a dark page, so their ground
    should be transparent and their ink BOTH_INK.
    """

    figure: Figure
    words: str
    photographs: bool = False

    def __repr__(self) -> str:
        return f"Figure: {self.words}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        return bundle(self.figure, self.words, self.photographs)


class WordedFigure(Figure):
    """A matplotlib figure that has its own words."""

    def __init__(self, *args: Any, words: str = "", **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.words = words

    def __repr__(self) -> str:
        return f"Figure: {self.words}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, str], dict[str, Any]]:
        return bundle(self, self.words)


def bundle(figure: Figure, words: str, photographs: bool = False) -> tuple[dict[str, str], dict[str, Any]]:
    """The picture and its words by MIME type, and their metadata, as a notebook saves them."""
    if "matplotlib.pyplot" in sys.modules:  # otherwise the notebook would show a pyplot figure a second time
        sys.modules["matplotlib.pyplot"].close(figure)
    picture, width, height = png(figure)
    data = base64.b64encode(picture).decode()
    kind = "nncourse-figure" if photographs else "nncourse-figure nncourse-turned"
    image = f'<img class="{kind}" width="{width}" height="{height}" alt="{escape(words)}" '
    html = f'<style>{STYLE}</style>{image}src="data:image/png;base64,{data}">'
    saved = {"text/html": html, "image/png": data, "text/plain": f"Figure: {words}"}
    return saved, {"image/png": {"alt": words}}


def png(figure: Figure) -> tuple[bytes, int, int]:
    """The figure as a small PNG file, its width and its height in pixels."""
    canvas, file = FigureCanvasAgg(figure), io.BytesIO()
    canvas.draw()
    picture = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba())
    if picture.getchannel("A").getextrema() == (255, 255):
        picture, method = picture.convert("RGB"), Image.Quantize.MAXCOVERAGE  # it keeps rare colours
    else:
        method = Image.Quantize.FASTOCTREE  # the method for transparent pictures
    picture = picture.quantize(COLOURS, method, dither=Image.Dither.NONE)
    picture.save(file, "png", optimize=True)
    return file.getvalue(), picture.width, picture.height
