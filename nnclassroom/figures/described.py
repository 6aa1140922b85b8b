"""A figure and its words: how a notebook shows it, to eyes and to screen readers, on a light page and on a dark one.

    Described(figure, "Cost over 20 epochs: 0.69 after the first, 0.06 after the last.")    # of any matplotlib figure
    WordedFigure(figsize=(6, 3.4), words="…")                                               # a figure that has its own

JupyterLab gives a PNG no text alternative, whatever the metadata of the output say. So the figure is saved three times:
as HTML, an image with its words, which JupyterLab and web pages prefer; as PNG, for readers without HTML; and as plain
text, the words alone. On a dark page the style in the HTML turns the figure's lightness round and keeps its hues. It
does so only where JupyterLab trusts the notebook; elsewhere the figure stays on its white ground.
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
BOTH_INK = "0.46"  # can be read on white and on black
COLOURS = 256  # of a PNG with a palette, which takes a third of the room


class WordedFigure(Figure):
    """A matplotlib figure that has its own words."""

    def __init__(self, *args, words: str = "", **kwargs):
        super().__init__(*args, **kwargs)
        self.words = words

    def __repr__(self) -> str:
        return f"Figure: {self.words}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict[str, str], dict[str, Any]]:
        return bundle(self, self.words)


@dataclass(frozen=True)
class Described:
    """A figure with a text alternative. A notebook displays the figure and saves both.

    A figure is `photographs` if the lightness of its pictures means something: it is shown as it is on any page, so its
    ground should be transparent and its ink BOTH_INK.
    """

    figure: Figure
    words: str
    photographs: bool = False

    def __repr__(self) -> str:
        return f"Figure: {self.words}"

    def _repr_mimebundle_(self, include=None, exclude=None) -> tuple[dict[str, str], dict[str, Any]]:
        return bundle(self.figure, self.words, self.photographs)


def bundle(figure: Figure, words: str, photographs: bool = False) -> tuple[dict[str, str], dict[str, Any]]:
    """What a notebook saves of a figure: the picture and its words by MIME type, and their metadata."""
    if "matplotlib.pyplot" in sys.modules:  # else the notebook would show a figure of pyplot's a second time
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
    if picture.getextrema()[3] == (255, 255):
        picture, method = picture.convert("RGB"), Image.Quantize.MAXCOVERAGE  # keeps colours of a few pixels too
    else:
        method = Image.Quantize.FASTOCTREE  # the one for transparent pictures
    picture = picture.quantize(COLOURS, method, dither=Image.Dither.NONE)
    picture.save(file, "png", optimize=True)
    return file.getvalue(), picture.width, picture.height
