"""A figure and its words in a notebook: what is saved, and that the words are those of what is drawn."""

import base64
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from nnclassroom.figures import common, nb00, nb02, nb06, nb07
from nnclassroom.figures.described import Described, WordedFigure
from nnclassroom.timing import Row
from nncourse.model.training import Epoch, History

WORDS = 'A line from "3" up to <5> & more.'


def line() -> Figure:
    figure = Figure(figsize=(4, 3), dpi=100, layout="constrained")
    figure.subplots().plot([1, 2], [3, 5])
    return figure


def test_a_figure_is_saved_with_its_words_in_each_kind():
    saved, metadata = Described(line(), WORDS)._repr_mimebundle_()
    assert set(saved) == {"text/html", "image/png", "text/plain"}
    assert saved["text/plain"] == f"Figure: {WORDS}" == repr(Described(line(), WORDS))
    assert 'alt="A line from &quot;3&quot; up to &lt;5&gt; &amp; more."' in saved["text/html"]
    assert saved["image/png"] in saved["text/html"] and metadata["image/png"]["alt"] == WORDS
    with Image.open(io.BytesIO(base64.b64decode(saved["image/png"]))) as picture:
        assert picture.size == (400, 300) and picture.convert("RGB").getpixel((2, 2)) == (255, 255, 255)


def test_photographs_are_not_turned_on_a_dark_page():
    turned, kept = (Described(line(), WORDS, kind)._repr_mimebundle_()[0]["text/html"] for kind in (False, True))
    assert 'class="nncourse-figure nncourse-turned"' in turned and 'class="nncourse-figure"' in kept


def test_a_colour_of_a_few_pixels_is_kept():
    figure = line()
    (axes,) = figure.axes
    axes.imshow(np.random.default_rng(0).random((40, 40, 3)), extent=(1, 2, 3, 5), aspect="auto")
    axes.plot([1.5], [4], "s", color=(1.0, 0.0, 0.0), markersize=9)
    saved, _ = Described(figure, WORDS)._repr_mimebundle_()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    before = np.asarray(canvas.buffer_rgba())[..., :3].astype(int)
    with Image.open(io.BytesIO(base64.b64decode(saved["image/png"]))) as picture:
        after = np.asarray(picture.convert("RGB")).astype(int)
    red = (before == (255, 0, 0)).all(axis=2)
    assert 20 < red.sum() < 300 and np.abs(before - after)[red].max() <= 16


def test_a_transparent_ground_stays_transparent():
    figure = line()
    figure.set_facecolor("none")
    saved, _ = Described(figure, WORDS, photographs=True)._repr_mimebundle_()
    with Image.open(io.BytesIO(base64.b64decode(saved["image/png"]))) as picture:
        assert picture.convert("RGBA").getpixel((2, 2))[3] == 0


def history(costs, held_out) -> History:
    rows = enumerate(zip(costs, held_out, strict=True), 1)
    return History([Epoch(number, cost, other, 0.0) for number, (cost, other) in rows])


MANY = np.diag([5, 6, 7, 8])
MANY[3, 0], MANY[1, 2], MANY[0, 1], MANY[2, 3] = 4, 3, 2, 1
TIMED = [("loops", "cpu", 1.5e-3), ("numba", "cpu", None), ("naive", "gpu", 2e-6)]
ROWS = [Row(*one, flops=1, bytes=1, limit=None) for one in TIMED]
POINTS = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]), np.array([0, 1, 0])


@pytest.mark.parametrize(
    ("figure", "words"),
    [
        (lambda: nb02.plot_activation("relu", at=2.0), "At z = 2 it is 2, and the tangent there has the slope 1."),
        (lambda: nb02.plot_activation(("sigmoid", "tanh")), "tanh: −1 at z = −5, 0 at 0, 1 at 5"),
        (lambda: nb06.plot_descent((0.02, 0.21)), "Learning rate 0.21: cost 6.62, after 30 steps"),
        (lambda: nb07.plot_threshold(np.array([0.1, 0.9, 0.6]), np.array([0, 1, 0])), "1 true positives, 1 false"),
        (
            lambda: common.plot_speedups({"numpy": 3}, "loops", {"numba": {1: 0.5, 10: 2.0}}),
            "numba: 0.5 at 1, 2 at 10",
        ),
        (lambda: nb00.plot_progress(), "In all, 0 are done."),
        (
            lambda: common.plot_history(history([0.7, 0.3, 0.1], [0.8, 0.4, 0.5]), "Curves"),
            "Curves. Cost over 3 epochs. training: 0.7 at 1, 0.1 at 3. held out: 0.8 at 1, 0.5 at 3, lowest 0.4 at 2.",
        ),
        (
            lambda: common.plot_history(history([0.7, np.inf, np.nan], [np.nan] * 3)),
            "training: 0.7 at 1, nan at 3. held out: no finite value.",
        ),
        (
            lambda: common.plot_confusion(np.array([[40, 2], [1, 71]]), ("malignant", "benign")),
            "Correct: malignant 40 of 42; benign 71 of 72. "
            "Wrong: malignant taken for benign 2×; benign taken for malignant 1×.",
        ),
        (
            lambda: common.plot_confusion(MANY, tuple("abcd")),
            "The most frequent mistakes: d taken for a 4×; b taken for c 3×; a taken for b 2×.",
        ),
        (lambda: nb00.plot_timing(ROWS, "dense"), "loops (cpu) 1.5 ms; naive (gpu) 2 µs"),
        (
            lambda: nb02.plot_neuron((1, 1), -1, *POINTS),
            "1 of 3 points are on the wrong side of the line z = 0, and circled",
        ),
    ],
)
def test_every_figure_of_the_package_has_words_made_from_its_data(figure, words, monkeypatch, tmp_path):
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(tmp_path))
    drawn = figure()
    assert isinstance(drawn, WordedFigure) and words in drawn.words, drawn.words
    json.dumps(drawn._repr_mimebundle_())


def test_titles_of_figures_begin_with_a_capital():
    texts = {path.name: path.read_text("utf-8") for path in Path(common.__file__).parent.glob("*.py")}
    titles = re.compile(r'(?:set_title\(|suptitle\(|figure_with_axes\(|\btitle=|\btitle = )\s*f?"([^"]+)')
    assert sum(len(titles.findall(text)) for text in texts.values()) > 30
    small = [(name, title) for name, text in texts.items() for title in titles.findall(text) if title[0].islower()]
    assert small == []
