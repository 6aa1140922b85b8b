"""What notebooks 15 and 15b show: a lookup, products, means, curves, attention weights; and a softmax in pieces."""

import numpy as np

from nnclassroom.figures import nb15, nb15_fused


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
    assert "score, d = 64: nine tenths are between 0.40 and 7.60" in figure.words


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


# ---- notebook 15b


def test_what_is_carried_shrinks_where_a_larger_score_comes():
    figure = nb15.plot_carried([1, 3, 2])
    for said in ("score 1: top 1, total 1.00", "score 3: top 3, total 1.14", "score 2: top 3, total 1.50"):
        assert said in figure.words
    first = [bar.get_height() for bar in figure.axes[1].containers[0]]  # the part of key 0 after each key
    np.testing.assert_allclose(first, [1, np.exp(-2), np.exp(-2)])


def test_all_lanes_of_an_exchange_end_with_the_largest():
    axes = nb15.plot_exchange().figure.axes[0]
    rows = {
        y: [text.get_text() for text in axes.texts if text.get_text() and text.get_position()[1] == y] for y in (0, -3)
    }
    assert max(map(int, rows[0])) == 7 and rows[-3] == ["7"] * 8


def test_only_the_scores_of_a_block_and_a_tile_are_hatched():
    axes = nb15.plot_passing().axes[0]
    hatched = [patch.get_xy() for patch in axes.patches if patch.get_hatch()]
    assert len(hatched) == nb15_fused.BLOCK * nb15_fused.TILE and min(x for x, _ in hatched) == 15 + nb15_fused.TILE


def test_times_by_length_are_those_of_the_record():
    names = dict.fromkeys(nb15_fused.SHOWN)
    records = [
        {"length": t, "causal": causal, "milliseconds": {name: t * (n + 1) for n, name in enumerate(names)}}
        for t in (64, 256)
        for causal in (False, True)
    ]
    assert nb15.lengths(records, True, [256]).splitlines()[2].split()[-2:] == ["512", "ms"]
    axes = nb15.plot_lengths(records, True).figure.axes[0]
    assert [list(line.get_ydata()) for line in axes.get_lines()][1] == [128, 512]


def test_texts_are_those_of_the_language_with_the_range_of_the_costs():
    records = [{"language": "es", "costs": [9, 9], "texts": {"1": "no"}}]
    records += [
        {"language": "en", "costs": [3, cost], "texts": {"2": "so it\nis"} if cost == 2 else {}} for cost in (2, 1.5)
    ]
    assert nb15.texts(records).splitlines() == ["epoch 2, cost 1.50 to 2.00:", "  so it is"]
