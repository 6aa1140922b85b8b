"""The Gantt chart of a group's work."""

import numpy as np
import pytest
from figures import fits_on_its_page, png

from nnclassroom.figures.nb12 import plot_gantt
from nncourse.errors import CourseError
from nncourse.parallel.simulation import Link, simulate
from nncourse.parallel.subgroup import Subgroup
from nncourse.parallel.timeline import Span, simulated

SPANS = [
    Span(0, "forward", 5.000, 5.002, 0),
    Span(0, "wait", 5.002, 5.006),
    Span(0, "backward", 5.006, 5.010, 0),
    Span(3, "wait", 5.000, 5.002),
    Span(3, "exchange", 5.002, 5.0025),
    Span(3, "forward", 5.0025, 5.0055, 1),
    Span(3, "update", 5.01, 5.01),
]


def test_each_member_has_a_row_with_its_bars_and_numbers():
    shown = plot_gantt(SPANS, "title", names={3: "the other"})
    assert png(shown.figure).startswith(b"\x89PNG")
    (axes,) = shown.figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["rank 0", "the other"]
    assert axes.get_xlabel() == "time, ms" and axes.get_xlim() == pytest.approx((0, 10))
    assert [text.get_text() for text in axes.texts] == ["0", "0", "1"]
    bars = {round(path.get_extents().x0, 6) for each in axes.collections for path in each.get_paths()}
    assert bars == {0, 2, 2.5, 6}
    (legend,) = shown.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["forward", "backward", "exchanges", "waits"]
    for words in (
        "2 members over 10 ms",
        "rank 0 works 60%, waits 40%;",
        "the other works 30%, exchanges 5%, waits 20%.",
        "55% of all members' time",
    ):
        assert words in shown.words
    assert fits_on_its_page(shown.figure)


def test_a_part_may_be_shown():
    shown = plot_gantt(SPANS, until=0.0025)
    assert shown.figure.axes[0].get_xlim() == pytest.approx((0, 2.5)) and "over 2.5 ms" in shown.words
    assert "rank 0 works 80%" in shown.words and "rank 3 exchanges 20%, waits 80%." in shown.words


def test_the_rounds_of_an_all_reduce_are_shown_with_who_sends_to_whom():
    def part(group):
        Subgroup(group, range(4)).all_reduce(np.ones(30))

    run = simulate(part, 4, link=Link(1e-5))
    shown = plot_gantt(simulated(run.events))
    (axes,) = shown.figure.axes
    rows = [[text.get_text() for text in axes.texts if text.get_position()[1] == rank] for rank in range(4)]
    assert [set(row) for row in rows] == [{"→1", "←3"}, {"→2", "←0"}, {"→3", "←1"}, {"→0", "←2"}]
    assert [len(row) for row in rows] == [12] * 4  # three rounds in which sums grow, and three in which they go round
    assert axes.get_xlabel() == "time, µs" and "works" not in shown.words and "rank 0 exchanges" in shown.words


def test_without_spans_there_is_no_figure():
    with pytest.raises(CourseError, match="at least one"):
        plot_gantt([])
