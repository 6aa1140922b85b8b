"""What notebook 15 shows: a lookup, products, means, curves of several seeds, attention weights."""

import numpy as np

from nnclassroom.figures import nb15


def test_the_figure_of_a_lookup_says_weights_and_result_and_marks_the_largest_by_width():
    q, K, V = np.array([1.0, 2]), np.array([[1.0, 0], [0, 1], [-1, 1]]), np.array([[10.0], [20], [60]])
    figure = nb15.plot_lookup(q, K, V)
    for said in ("key 0, value 10: weight 0.21", "key 1, value 20: weight 0.58", "result: 26.4"):
        assert said in figure.words
    arrows = [text for text in figure.axes[0].texts if hasattr(text, "arrow_patch")]
    widths = [arrow.arrow_patch.get_linewidth() for arrow in arrows]
    assert max(widths[:3]) == widths[1] and len(widths) == 4  # the last is the query


def test_histograms_have_a_line_for_each_array_and_say_where_most_numbers_are():
    numbers = np.linspace(0, 1, 1001)
    figure = nb15.plot_histograms({"score": {"d = 4": numbers, "d = 64": 8 * numbers}, "weight": {"d = 4": numbers}})
    assert [axes.get_xlabel() for axes in figure.axes] == ["score", "weight"]
    assert "score, d = 64: nine tenths from 0.40 to 7.60" in figure.words


def test_blue_cells_are_those_that_take_part():
    def marked(axes):
        return [patch for patch in axes.patches if patch.get_facecolor()[:3] != (1, 1, 1)]

    (axes,) = nb15.plot_products(i=1).axes
    assert len(marked(axes)) == 3 + 6 + 2 + 6 + 3  # rows of Q and O, columns of Kᵀ, weights, rows of V
    assert sum(patch.get_hatch() == "///" for patch in axes.patches) == 10
    batch, layer = nb15.plot_means().axes
    assert len(marked(batch)) == 9 and len(marked(layer)) == 8


def test_curves_have_a_label_for_each_network_and_the_table_its_seeds():
    records = [
        {"network": name, "seed": seed, "parameters": 1234, "right": [0.0, end]}
        for name, end in (("transformer", 1.0), ("dense", 0.4))
        for seed in (1, 2)
    ]
    figure = nb15.plot_learnt(records)
    assert len(figure.axes[0].lines) == 4
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["transformer", "dense"]
    head, first, second = nb15.learnt(records).splitlines()
    assert head.split() == ["parameters", "epochs", "seed", "1", "seed", "2"]
    assert " ".join(first.split()) in figure.words
    assert second.split() == ["dense", "1,234", "2", "40.00%", "40.00%"]


def test_weights_show_what_each_position_looks_at():
    P = np.eye(9)
    P[5] = np.array([0, 0.6, 0, 0, 0.4, 0, 0, 0, 0])
    figure = nb15.plot_weights({"block 1": P}, "47+85=231", first=5)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == list("47+85=23")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["= → 2", "2 → 3", "3 → 1"]
    assert "block 1, = at 5: 0.60 on 7 at 1 and 0.40 on 5 at 4" in figure.words
    assert sorted(filter(None, (text.get_text() for text in axes.texts))) == ["0.4", "0.6", "1.0", "1.0"]
