"""What notebooks 12 and 12b show of exchanges."""

import numpy as np
import pytest
from figures import fits_on_its_page, png

from nnclassroom.exercises.nb12 import all_gather, all_reduce, reduce_scatter
from nnclassroom.figures import nb12, overheads
from nnclassroom.figures.nb12 import plot_gantt
from nnclassroom.notebook.exercise import Answer, Outcome
from nncourse.errors import CourseError
from nncourse.kernels.kernel import Kernel
from nncourse.parallel.simulation import Link, simulate
from nncourse.parallel.subgroup import Subgroup
from nncourse.parallel.timeline import Span, simulated


@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_the_picture_of_a_ring_says_which_chunk_goes_when_and_ends_whole(size):
    shown = nb12.plot_ring(size=size)
    assert "Sent in step 1: rank 0 chunk 0, rank 1 chunk 1" in shown.words
    assert f"then {size} of {size * size} chunks are whole. Sent in step {size}: " in shown.words
    assert shown.words.endswith(f"then {size * size} of {size * size} chunks are whole.")
    titles = [axes.get_title() for axes in shown.figure.axes if axes.get_title()]
    assert titles[0] == "Start" and titles[-1] == f"After step {2 * size - 2}: done" and len(titles) == 2 * size - 1
    assert png(shown.figure).startswith(b"\x89PNG")


def test_what_is_no_ring_has_no_picture():
    for kernel, size in (("root", 4), ("tree", 4), ("ring", 1), ("ring", 9)):
        with pytest.raises(CourseError, match="expected"):
            nb12.plot_ring(all_reduce[kernel], size)


def test_the_picture_of_a_ring_that_goes_round_to_the_left_says_so():
    class Mirrored:
        """The group with ranks counted the other way round."""

        def __init__(self, group):
            self.group, self.size, self.rank = group, group.size, -group.rank % group.size

        def send(self, vector, to):
            self.group.send(vector, -to % self.size)

        def receive(self, vector, source):
            self.group.receive(vector, -source % self.size)

    def words(shown):
        return " ".join(text.get_text() for text in shown.figure.texts)

    ring = all_reduce["ring"]
    left = nb12.plot_ring(lambda group, vector: ring(Mirrored(group), vector), 4)
    assert "to the rank above (rank 0 to the last)" in words(left)
    assert "to the rank below (the last to rank 0)" in words(nb12.plot_ring(ring, 4))


def test_a_wrong_ring_is_drawn_from_what_it_sends():
    def attempt(group, vector):
        K, r = group.size, group.rank
        chunks = np.array_split(vector, K)
        for step in range(2 * K - 2):  # adds in the second half too
            part = np.empty_like(chunks[0])
            group.send(chunks[(r - step) % K], (r + 1) % K)
            group.receive(part, (r - 1) % K)
            chunks[(r - step - 1) % K] += part

    answer = Answer(all_reduce["ring"], Kernel(all_reduce, "ring", "cpu", "", attempt), Outcome("wrong", ""))
    shown = nb12.plot_ring(answer)
    assert "Sent in step 4: rank 0 chunk 1, " in shown.words and shown.words.count("than what is due") == 2
    texts = [text.get_text() for axes in shown.figure.axes for text in axes.texts]
    assert "00123" in texts and any(axes.get_title() == "After step 6: not done" for axes in shown.figure.axes)


def test_a_half_of_a_ring_is_drawn_until_it_is_done():
    def titles(shown):
        return [axes.get_title() for axes in shown.figure.axes if axes.get_title()]

    half = nb12.plot_ring(reduce_scatter["ring"])
    assert titles(half)[-1] == "After step 3: done" and half.words.endswith("then 4 of 16 chunks are whole.")
    rest = nb12.plot_ring(all_gather["ring"])
    assert titles(rest)[-1] == "After step 3: done" and rest.words.endswith("then 16 of 16 chunks are whole.")
    wrong = nb12.plot_ring(Kernel(all_gather, "ring", "cpu", "", reduce_scatter["ring"].function))
    assert titles(wrong)[-1] == "After step 3: not done" and "than what is due is sent by: rank 0" in wrong.words


def test_a_ring_that_hangs_is_drawn_until_it_does():
    def attempt(group, vector):
        group.send(vector, (group.rank + 1) % group.size)
        group.receive(vector, (group.rank + 1) % group.size)

    shown = nb12.plot_ring(attempt)
    assert "rank 0 chunks 0 to 3" in shown.words and "Then: deadlock: " in shown.words
    with pytest.raises(CourseError, match="cannot be drawn: it raised IndexError"):
        nb12.plot_ring(lambda group, vector: vector[9])


def test_letters_tell_when_they_leave_and_come():
    def part(group):
        if group.rank:
            group.receive(np.empty(2), 0)
        else:
            group.work(3)
            group.send(np.ones(2), 1)

    run = simulate(part, 2, link=Link(latency=1))
    assert nb12.letters(run.messages) == "rank 0 → rank 1: 2 numbers, leaves at 3 s, arrives at 4 s"


def test_half_of_the_filters_are_drawn_on_each_of_two_devices():
    words = nb12.plot_split_layers(6).words
    assert "half of the 6 filters" in words


def test_what_is_not_recorded_is_said_in_one_line(monkeypatch):
    monkeypatch.setattr(overheads, "recorded", lambda name: {})
    for text in (nb12.recorded_all_reduce(), nb12.recorded_epochs()):
        assert text.endswith(": not recorded yet.") and "\n" not in text


def test_recorded_times_are_shown_with_machine_and_date(monkeypatch):
    records = [
        {"devices": devices, "n": n, "contender": "NCCL", "seconds": 1e-6 * (15 + n / 50_000)}
        for devices in (2, 4)
        for n in (1000, 10_000, 100_000, 1_000_000)
    ]
    found = {"machine": "GPU X, 1 GiB", "date": "2026-01-02", "records": [*records, records[0] | {"contender": "ours"}]}
    monkeypatch.setattr(overheads, "recorded", lambda name: found)
    lines = nb12.recorded_all_reduce().splitlines()
    assert lines[0].startswith("2 × GPU X, 2026-01-02") and any(line.startswith("4 × GPU X") for line in lines)
    (nccl, _) = [line.split() for line in lines if line.startswith("NCCL")]
    assert nccl == ["NCCL", "15.0", "15.2", "17.0", "35.0", "15.0", "200"]
    assert "–" in next(line for line in lines if line.startswith("ours"))


def test_recorded_epochs_show_the_step_of_each_batch_and_number_of_gpus(monkeypatch):
    measured = (1, "graph", 64, 13), (1, "one_kernel", 64, 10), (2, "shared batches", 64, 18), (1, "graph", 1024, 55)
    records = [
        {"devices": devices, "contender": contender, "batch": batch, "seconds_a_step": 1e-6 * times}
        for devices, contender, batch, times in measured
    ]
    found = {"machine": "GPU X, 1 GiB", "date": "2026-01-02", "records": records}
    monkeypatch.setattr(overheads, "recorded", lambda name: found)
    lines = nb12.recorded_epochs().splitlines()
    assert lines[0] == "GPU X, 2026-01-02; µs a step"
    assert [name.strip() for name in lines[1].split("   ")[1:]] == ["1 GPU", "1 GPU, one kernel", "2 GPUs"]
    assert [line.split() for line in lines[2:]] == [["64", "13", "10", "18"], ["1,024", "55", "–", "–"]]


# ---- the Gantt chart of a group's work


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
