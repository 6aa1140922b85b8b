"""The widgets without a browser: what a slider does to the picture and to its words; and the still figures."""

import re

import numpy as np
import pytest
from drawn_widgets import MADE, every_control_is_described_and_changes_picture_and_words
from figures import assert_whole
from matplotlib.figure import Figure

from nnclassroom.figures import nb02, nb06, nb07
from nnclassroom.widgets import downpour, laws, race, simple


@pytest.fixture
def made():
    """Lets a test make panels that are closed after it."""
    panels = []

    def keep(panel):
        panels.append(panel)
        return panel

    yield keep
    for panel in panels:
        panel.close()


@pytest.fixture
def scores(rng):
    """Scores of 200 samples, and their labels: one in four is of class 1."""
    labels = (np.arange(200) % 4 == 0).astype(int)
    return rng.random(200) * 0.7 + 0.3 * labels, labels


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)]


@pytest.mark.parametrize("name", MADE)
def test_every_control_has_a_label_and_a_tip_and_changes_picture_and_words(made, name):
    panel = made(MADE[name]())
    same = ("activation",) if name == "neuron" else ()  # step and sigmoid divide the plane along the same line
    every_control_is_described_and_changes_picture_and_words(panel, same)


def test_the_line_of_a_neuron_is_where_z_is_zero(made):
    panel = made(simple.neuron())
    panel.set(w1=2, w2=-0.5, b=0.25)
    line = np.frombuffer(panel.frame["line"]["bytes"], np.float32).reshape(2, 2)
    assert line @ (2, -0.5) + 0.25 == pytest.approx([0, 0], abs=1e-5)
    along = np.array(panel.frame["tip"]) - panel.frame["foot"]
    assert along[0] / along[1] == pytest.approx(2 / -0.5)
    panel.set(w1=0, w2=0)
    assert set(panel.frame) == {"plane", "wrong"}


def test_the_plane_of_a_neuron_is_its_output(made):
    panel = made(simple.neuron(np.array([[-1.0, -1.0], [1.0, 1.0]]), np.array([0, 1])))
    panel.set(activation="sigmoid", w1=3, w2=0, b=0)
    shades = np.frombuffer(panel.frame["plane"]["bytes"], np.uint8).reshape(panel.frame["plane"]["shape"])
    x1 = np.linspace(-1.4, 1.4, shades.shape[1])
    assert shades == pytest.approx(np.broadcast_to(255 / (1 + np.exp(-3 * x1)), shades.shape), abs=1)


def test_the_points_on_the_wrong_side_are_counted(made, rng):
    X, y = rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
    panel = made(simple.neuron(X, y))
    for name, value in (("w1", -2), ("w2", 1.5), ("b", 0.3)):
        panel.set(**{name: value})
    wrong = sum((-2 * x1 + 1.5 * x2 + 0.3 > 0) != bool(label) for (x1, x2), label in zip(X, y, strict=True))
    assert f"{wrong} of 50 points" in panel.words


def test_a_neuron_whose_weights_are_zero_has_no_line(made, rng):
    X, y = rng.normal(size=(9, 2)), np.array([0, 1, 1] * 3)
    assert (nb02.neuron_says((0, 0), 0, X) == 0).all()  # step(0) = 0
    figure = nb02.plot_neuron((0, 0), 0, X, y)
    assert "z = 0" not in [text.get_text() for text in figure.legends[0].texts]


@pytest.mark.parametrize(
    ("name", "value", "slope"),
    [
        ("identity", 0.7, 1),
        ("step", 1, 0),
        ("sigmoid", 0.66819, 0.22171),
        ("tanh", 0.60437, 0.63474),
        ("relu", 0.7, 1),
        ("leaky_relu", 0.7, 1),
        ("softplus", 1.10319, 0.66819),
        ("gelu", 0.53057, 0.97636),
    ],
)
def test_value_and_slope_of_an_activation_are_right(made, name, value, slope):
    panel = made(simple.activations())
    panel.set(name=name, z=0.7)
    assert numbers(panel.words)[:3] == pytest.approx([0.7, value, slope], rel=1e-3)


def test_a_descent_goes_down_and_a_large_learning_rate_diverges(made):
    path, costs = nb06.descend("bowl", (-1.8, 1.0), 0.05, 20)
    assert path[-1] == pytest.approx([-1.8 * 0.95**20, 0.5**20])  # each step shrinks w1 by 1 - η, w2 by 1 - 10 η
    assert (np.diff(costs) < 0).all()
    panel = made(simple.descent())
    assert "diverges" not in panel.words
    panel.set(rate=0.3)  # 1 - 10 η is below -1
    assert "diverges" in panel.words
    panel.set(rate=1.0)
    assert "no further step is taken" in panel.words
    panel.set(surface="two valleys", rate=1.0)
    assert "diverges" in panel.words
    panel.set(rate=0.3, w1=-1.0, w2=0.0)  # it oscillates about the minimum
    assert "does not settle" in panel.words and "diverges" not in panel.words


@pytest.mark.parametrize("surface", nb06.SURFACES)
def test_gradients_of_the_surfaces_are_right(rng, surface):
    cost, gradient = nb06.SURFACES[surface]
    for x, y in rng.uniform(-2, 2, (10, 2)):
        h = 1e-6
        differences = (cost(x + h, y) - cost(x - h, y)) / (2 * h), (cost(x, y + h) - cost(x, y - h)) / (2 * h)
        assert gradient(x, y) == pytest.approx(differences, abs=1e-6)


def test_a_start_in_the_other_valley_ends_there():
    assert nb06.descend("two valleys", (-1.5, 1.0), 0.05, 200)[0][-1, 0] < -0.9
    assert nb06.descend("two valleys", (1.5, 1.0), 0.05, 200)[0][-1, 0] > 0.9


@pytest.mark.parametrize("threshold", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_the_numbers_at_a_threshold_are_those_of_scikit_learn(made, scores, threshold):
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support  # only here, since it is slow

    values, labels = scores
    panel = made(simple.threshold(values, labels))
    panel.set(threshold=threshold)
    predictions = (values > threshold).astype(int)
    (tn, fp), (fn, tp) = confusion_matrix(labels, predictions)
    quality = precision_recall_fscore_support(labels, predictions, average="binary", zero_division=0)[:3]
    found = numbers(panel.words.replace("F1", ""))
    assert found[:4] == [tp, fp, fn, tn]
    assert found[4:7] == pytest.approx(quality, abs=6e-4)


@pytest.mark.parametrize("column", [False, True])
def test_outputs_of_a_network_are_taken_as_they_come(made, scores, column):
    values, labels = (array.reshape(-1, 1) if column else array for array in scores)
    assert "True positives" in made(simple.threshold(values.astype(np.float32), labels)).words


def test_scores_beyond_zero_and_one_widen_the_slider(made):
    slider = made(simple.threshold([-3.0, 4.0], [0, 1])).by_name["threshold"]
    assert (slider.low, slider.high) == (-3, 4)


def test_a_class_without_samples_does_not_break_the_picture(scores):
    assert isinstance(nb07.plot_threshold(scores[0], np.zeros(200, int)), Figure)


X = np.random.default_rng(1).normal(size=(20, 2))
STILL = {
    "neuron": lambda scores: nb02.plot_neuron((1, -1), 0.5, X, (X[:, 0] > 0).astype(int), "title"),
    "activation": lambda scores: nb02.plot_activation(simple.ACTIVATIONS, "title"),
    "descent": lambda scores: nb06.plot_descent(title="title"),
    "threshold": lambda scores: nb07.plot_threshold(*scores, title="title"),
    "downpour": lambda scores: downpour.plot_downpour("title", workers=3, slowness=2.0),
    "1 device": lambda scores: laws.plot_laws("title", devices=1),
    "6 devices": lambda scores: laws.plot_laws("title", devices=6),
    "1024 devices": lambda scores: laws.plot_laws("title", devices=1024),
    **{name: lambda scores, name=name: race.plot_race(valley=name, rate=0.01, title="title") for name in race.VALLEYS},
}
SAID = {"downpour": ("stale by", "Synchronous: 5")}
SAID |= {name: (name, "momentum", "Step 150") for name in race.VALLEYS}


@pytest.mark.parametrize("name", STILL)
def test_a_still_figure_has_labels_and_fits_on_its_page(scores, name):
    shown = STILL[name](scores)
    assert_whole(getattr(shown, "figure", shown), all if name == "downpour" else any)
    words = (name,) if "device" in name else SAID.get(name, ())
    assert all(said in shown.words for said in words)


@pytest.mark.parametrize(
    "name, z, words",
    [("step", 0, "jumps"), ("step", 1, "changes nothing"), ("relu", 0, "kink"), ("sigmoid", 0, "0.25 times")],
)
def test_the_words_on_a_small_change_are_true_at_jumps_and_kinks_too(made, name, z, words):
    shown = made(simple.activations())
    shown.set(name=name, z=z)
    assert words in shown.words
