"""The widgets without a browser: what a slider does to the picture and to its words; and the still figures."""

import re

import numpy as np
import pytest
from figures import fits_on_its_page
from matplotlib.figure import Figure
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from nncourse.classroom import plots, widgets

PNG = b"\x89PNG\r\n"


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


def words_of(panel):
    return re.sub("<[^>]*>", "", panel.words.value)


def numbers(text):
    return [float(number) for number in re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", text)]


@pytest.mark.parametrize("name", ["neuron", "activations", "descent", "threshold"])
def test_every_control_has_a_label_and_a_tooltip_and_changes_picture_and_words(made, scores, name):
    panel = made(getattr(widgets, name)(*(scores if name == "threshold" else ())))
    assert panel.caption.value and 'aria-live="polite"' in panel.words.value
    for control in panel.controls.values():
        assert control.description and control.tooltip
        before = panel.image.value, panel.words.value
        assert bytes(before[0]).startswith(PNG)
        if hasattr(control, "options"):
            control.value = next(option for option in control.options if option != control.value)
        else:
            control.value = control.min + 0.7 * (control.max - control.min)
        assert panel.image.value != before[0]
        if name == "neuron" and control is panel.controls["activation"]:
            assert panel.words.value == before[1]  # step and sigmoid part the plane at the same line
        else:
            assert panel.words.value != before[1]


def test_the_points_on_the_wrong_side_are_counted(made, rng):
    X, y = rng.normal(size=(50, 2)), rng.integers(0, 2, 50)
    panel = made(widgets.neuron(X, y))
    for name, value in (("w1", -2), ("w2", 1.5), ("b", 0.3)):
        panel.controls[name].value = value
    wrong = sum((-2 * x1 + 1.5 * x2 + 0.3 > 0) != bool(label) for (x1, x2), label in zip(X, y, strict=True))
    assert f"{wrong} of 50 points" in words_of(panel)


def test_a_neuron_whose_weights_are_zero_has_no_line(made, rng):
    X, y = rng.normal(size=(9, 2)), np.array([0, 1, 1] * 3)
    assert (plots.neuron_says((0, 0), 0, X) == 0).all()  # step(0) = 0
    figure = plots.plot_neuron((0, 0), 0, X, y)
    assert "z = 0" not in [text.get_text() for text in figure.legends[0].texts]


@pytest.mark.parametrize("name", widgets.ACTIVATIONS)
def test_value_and_slope_of_an_activation_are_right(made, name):
    at = 0.7
    value = {
        "identity": at,
        "step": 1,
        "sigmoid": 1 / (1 + np.exp(-at)),
        "tanh": np.tanh(at),
        "relu": at,
        "leaky_relu": at,
        "softplus": np.log(1 + np.exp(at)),
    }[name]
    slope = {
        "identity": 1,
        "step": 0,
        "sigmoid": value * (1 - value),
        "tanh": 1 - value**2,
        "relu": 1,
        "leaky_relu": 1,
        "softplus": 1 / (1 + np.exp(-at)),
    }[name]
    panel = made(widgets.activations())
    panel.controls["name"].value, panel.controls["z"].value = name, at
    assert numbers(words_of(panel))[:3] == pytest.approx([at, value, slope], rel=1e-3)


def test_a_descent_goes_down_and_a_large_learning_rate_diverges(made):
    path, costs = plots.descend("bowl", (-1.8, 1.0), 0.05, 20)
    assert path[-1] == pytest.approx([-1.8 * 0.95**20, 0.5**20])  # each step shrinks w1 by 1 - η, w2 by 1 - 10 η
    assert (np.diff(costs) < 0).all()
    panel = made(widgets.descent())
    assert "diverges" not in words_of(panel)
    panel.controls["rate"].value = 0.3  # 1 - 10 η is below -1
    assert "diverges" in words_of(panel)
    panel.controls["surface"].value, panel.controls["rate"].value = "two valleys", 1.0
    assert "diverges" in words_of(panel)


@pytest.mark.parametrize("surface", plots.SURFACES)
def test_gradients_of_the_surfaces_are_right(rng, surface):
    cost, gradient = plots.SURFACES[surface]
    for x, y in rng.uniform(-2, 2, (10, 2)):
        h = 1e-6
        differences = (cost(x + h, y) - cost(x - h, y)) / (2 * h), (cost(x, y + h) - cost(x, y - h)) / (2 * h)
        assert gradient(x, y) == pytest.approx(differences, abs=1e-6)


def test_a_start_in_the_other_valley_ends_there():
    assert plots.descend("two valleys", (-1.5, 1.0), 0.05, 200)[0][-1, 0] < -0.9
    assert plots.descend("two valleys", (1.5, 1.0), 0.05, 200)[0][-1, 0] > 0.9


@pytest.mark.parametrize("threshold", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_the_numbers_at_a_threshold_are_those_of_scikit_learn(made, scores, threshold):
    values, labels = scores
    panel = made(widgets.threshold(values, labels))
    panel.controls["threshold"].value = threshold
    predictions = (values > threshold).astype(int)
    (tn, fp), (fn, tp) = confusion_matrix(labels, predictions)
    quality = precision_recall_fscore_support(labels, predictions, average="binary", zero_division=0)[:3]
    found = numbers(words_of(panel).replace("F1", ""))
    assert found[:4] == [tp, fp, fn, tn]
    assert found[4:7] == pytest.approx(quality, abs=6e-4)


@pytest.mark.parametrize("column", [False, True])
def test_outputs_of_a_network_are_taken_as_they_come(made, scores, column):
    values, labels = (array.reshape(-1, 1) if column else array for array in scores)
    assert "True positives" in words_of(made(widgets.threshold(values.astype(np.float32), labels)))


def test_scores_beyond_zero_and_one_widen_the_slider(made):
    slider = made(widgets.threshold([-3.0, 4.0], [0, 1])).controls["threshold"]
    assert (slider.min, slider.max) == (-3, 4)


def test_a_class_without_samples_does_not_break_the_picture(scores):
    assert isinstance(plots.plot_threshold(scores[0], np.zeros(200, int)), Figure)


def still_figures(scores):
    """Every still figure, with its defaults as far as it has some."""
    X = np.random.default_rng(1).normal(size=(20, 2))
    return {
        "neuron": plots.plot_neuron((1, -1), 0.5, X, (X[:, 0] > 0).astype(int), "title"),
        "activation": plots.plot_activation(widgets.ACTIVATIONS, "title"),
        "descent": plots.plot_descent(title="title"),
        "threshold": plots.plot_threshold(*scores, title="title"),
    }


def test_still_figures_have_labels_and_fit_on_their_page(scores):
    for name, figure in still_figures(scores).items():
        assert widgets.png(figure).startswith(PNG)
        for axes in figure.axes:
            assert axes.get_xlabel() or axes.get_ylabel(), name
        assert fits_on_its_page(figure), name


def test_a_closed_panel_is_closed_in_all_its_parts():
    panel = widgets.activations()
    parts = [panel, panel.image, panel.words, *panel.controls.values()]
    panel.close()
    assert all(part.comm is None for part in parts)
