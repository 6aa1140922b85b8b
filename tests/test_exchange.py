"""What many devices exchange, as operations: the course's kernels, and what the verdicts say of a student's."""

import os
import time
from functools import partial

import numpy as np
import psutil
import pytest
from exercise_operations import ALL_SEND_FIRST, all_reduce_of, text_of
from processes import in_processes

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.nb12 import all_reduce, averaging_round, pipeline, server_update, shards, weighted_gradient
from nnclassroom.judge import answer
from nnclassroom.judge.group_operation import GroupOperation
from nncourse.errors import CourseError
from nncourse.group import ALONE, shard
from nncourse.parallel.simulation import Link, ring_seconds, root_seconds, simulate, tree_seconds

LINK = Link(1e-5, 1e9)


judged = partial(kept_kernels.check, "all_reduce")


# ---- the course's kernels


@pytest.mark.parametrize(
    ("kernel", "seconds"), [("root", root_seconds), ("tree", tree_seconds), ("ring", ring_seconds)]
)
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_an_all_reduce_takes_the_time_of_its_closed_form(kernel, seconds, size):
    arguments = [(np.ones(8 * size, np.float32),) for _ in range(size)]
    run = simulate(all_reduce[kernel], size, arguments, link=LINK)
    one_after_the_other = 2 if kernel == "ring" else 1  # each second rank receives before it sends
    assert run.seconds == pytest.approx(one_after_the_other * seconds(LINK, 32 * size, size))


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_ring_that_sends_while_it_receives_takes_the_time_of_its_closed_form(size):
    arguments = [(np.ones(8 * size, np.float32),) for _ in range(size)]
    run = simulate(all_reduce_of(ALL_SEND_FIRST), size, arguments, link=LINK)
    assert run.seconds == pytest.approx(ring_seconds(LINK, 32 * size, size))


@pytest.mark.full
def test_sending_first_everywhere_is_right_and_the_verdict_tells_of_sends_that_wait():
    verdict = judged("ring", ALL_SEND_FIRST)
    assert verdict and "but if a send waits" in verdict.line and "deadlock: ranks 0, 1, 2 and 3 wait" in verdict.line
    for kernel in all_reduce.kernels:
        verdict = judged(kernel, text_of(kernel))
        assert verdict and "waits" not in verdict.line


@pytest.mark.parametrize("kernel", all_reduce.kernels)
@pytest.mark.parametrize("size", [2, 3, 4, 5, 8])
def test_the_courses_kernels_never_wait_for_ever_even_if_sends_wait(kernel, size):
    arguments = [(np.full(11, rank, np.float32),) for rank in range(size)]
    simulate(all_reduce[kernel], size, arguments, buffered=False)
    for (vector,) in arguments:
        np.testing.assert_array_equal(vector, np.full(11, size * (size - 1) / 2))


def test_called_with_all_vectors_a_kernel_runs_on_a_simulated_group_and_with_a_group_it_is_a_members_part():
    V = np.arange(12, dtype=np.float32).reshape(3, 4)
    wanted = np.tile(V.sum(axis=0), (3, 1))
    assert all_reduce["ring"](V) is V
    np.testing.assert_array_equal(V, wanted)
    vector = np.ones(3, np.float32)
    all_reduce["root"](ALONE, vector)
    np.testing.assert_array_equal(vector, np.ones(3))
    with pytest.raises(CourseError, match="rank 0 at step 1"):
        all_reduce.made("root", "cpu", "", lambda group, vector: group.send(vector, 7))(V)


def test_shards_are_those_that_training_uses():
    for rows, ranks in ((10, 4), (3, 5), (0, 2), (128, 8)):
        bounds = shards["numpy"](rows, ranks)
        cut = [shard(rows, rank, ranks) for rank in range(ranks)]
        assert [(part.start, part.stop) for part in cut] == list(zip(bounds[:-1], bounds[1:], strict=True))


def test_unequal_shards_have_the_gradient_of_all_rows(rng):
    rows = np.array([5, 1, 10], np.int32)
    each_row = rng.standard_normal((16, 4))
    means = np.stack([part.mean(axis=0) for part in np.split(each_row, np.cumsum(rows)[:-1])]).astype(np.float32)
    np.testing.assert_allclose(weighted_gradient["numpy"](means, rows)[1], each_row.mean(axis=0), rtol=1e-5)


def test_averaging_after_one_step_is_sgd_with_the_mean_gradient():
    W, G, rate = np.array([[1.0], [2.0]], np.float32), np.array([[[1.0]], [[8.0]]], np.float32), 0.1
    np.testing.assert_allclose(averaging_round["numpy"](W, G, rate), [[1.5 - rate * 4.5]] * 2, rtol=1e-6)


def test_equal_workers_in_turn_have_a_staleness_of_one_less_than_their_number():
    worker = np.tile(np.arange(4, dtype=np.int32), 5)
    _, staleness = server_update["loops"](np.zeros(1, np.float32), np.zeros((20, 1), np.float32), worker, 0.1)
    assert (staleness[4:] == 3).all() and staleness[:4].tolist() == [0, 1, 2, 3]


def test_the_bubble_of_a_pipeline_of_equal_devices():
    begin = pipeline["loops"](np.ones(4, np.float32), 8)
    assert begin.max() + 1 == 4 + 8 - 1


# ---- over MPI


def by_each_kernel(group):
    """In each process: the sums of all kernels, and a mean and a gradient."""
    found = []
    for n in (1, 3, 200_000):
        for kernel in all_reduce.kernels.values():
            vector = np.random.default_rng([group.rank, n]).standard_normal(n).astype(np.float32)
            kernel(group, vector)
            found.append(vector)
    gradient = np.full(3, group.rank + 1.0, np.float32)
    weighted_gradient["numpy"](group, gradient, 2 * group.rank)
    W = np.full(2, group.rank, np.float32)
    averaging_round["numpy"](group, W, np.ones((2, 2), np.float32), 0.5)
    return [*found, gradient, W]


@pytest.mark.parametrize("count", [2, 3])
def test_the_same_kernels_run_over_mpi(count):
    real = in_processes(by_each_kernel, count)
    simulated = simulate(by_each_kernel, count).results
    for ours, theirs in zip(simulated, real, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)  # MPI's own all-reduce may add in another order
        for one, other in zip(ours[:9], theirs[:9], strict=True):
            assert one.tobytes() == other.tobytes()


# ---- verdicts


def test_a_deadlock_is_reported_at_once_and_names_ranks_steps_and_lines_of_the_text():
    text = "def all_reduce(group, vector):\n    group.receive(vector, (group.rank + 1) % group.size)\n"
    began = time.perf_counter()
    verdict = judged("root", text)
    assert verdict.kind == "deadlock" and time.perf_counter() - began < 20  # on a busy machine; 0.2 on a quiet one
    assert "wait at step 1 (line 2), each to receive, 0 for 1, 1 for 2, 2 for 3, 3 for 0: a circle" in verdict.line


@pytest.mark.parametrize(
    ("kernel", "before", "after", "said"),
    [
        (
            "root",
            "vector += part",
            "vector += 2 * part",
            "numbers 0 to 7 of rank 0: ranks 1, 2 and 3 are counted twice",
        ),
        ("root", "vector += part", "pass", "numbers 0 to 7 of rank 0: only its own, no sum"),
        ("tree", "vector += part", "vector += part * (group.rank < 2)", "numbers 0 to 7 of rank 0: rank 3 is missing"),
        ("ring", "chunks[(rank + 1 - step) % size]", "chunks[(rank - step) % size]", "from another chunk"),
        ("ring", "chunk += part", "chunk += 0", "the ring goes wrong in step 2"),
        ("ring", "range(size - 1):  # each", "range(size - 2):  # each", "rank 1 is missing"),
    ],
)
def test_a_wrong_sum_says_whose_numbers_are_missing_or_when_they_came(kernel, before, after, said):
    text = text_of(kernel)
    assert before in text
    verdict = judged(kernel, text.replace(before, after))
    assert verdict.kind == "wrong value" and said in verdict.line, verdict.line


EACH_ADDS_IN_ITS_OWN_ORDER = """
def all_reduce(group, vector):
    own, part = vector.copy(), np.empty_like(vector)
    for step in range(1, group.size):
        group.send(own, (group.rank + step) % group.size)
    for step in range(1, group.size):
        group.receive(part, (group.rank + step) % group.size)
        vector += part
"""
ROUNDS_ONCE_MORE = text_of("root").rstrip() + "\n        vector *= np.float32(1 + 2e-7)\n"
SENDS_WITHOUT_AN_END = """
def all_reduce(group, vector):
    while True:
        group.send(vector, (group.rank + 1) % group.size)
        group.receive(vector, (group.rank - 1) % group.size)
"""
COUNTS_CALLS = "calls = []\n" + text_of("root").rstrip() + "\n    calls.append(0)\n    vector += len(calls) > 3\n"
FAILS = "def all_reduce(group, vector):\n    if group.rank == 2:\n        vector[99]\n"


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (EACH_ADDS_IN_ITS_OWN_ORDER, "traffic", "expected one root"),
        (ROUNDS_ONCE_MORE, "different bits", "let one rank do each addition"),
        (SENDS_WITHOUT_AN_END, "endless exchange", "steps and goes on at step"),
        (COUNTS_CALLS, "remembers", ""),
        (FAILS, "raised", "rank 2: raised IndexError"),
        ("def all_reduce(group, vector):\n    raise NotImplementedError\n", "open", ""),
        ("def all_reduce(group, vector)\n    pass\n", "compile", ""),
        ("def other(group, vector):\n    pass\n", "name", ""),
        ("import nncourse\ndef all_reduce(group, vector):\n    pass\n", "forbidden", ""),
    ],
)
def test_what_else_is_no_answer_has_a_verdict_of_its_own(text, kind, said):
    verdict = judged("root", text)
    assert verdict.kind == kind and said in verdict.line, str(verdict)


def test_a_kernel_of_another_name_is_refused():
    assert judged("numpy", text_of("root")).kind == "build"  # its kernels are root, tree and ring


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("group.send(3, 1)", "send() wants a NumPy array, got 3"),
        ("group.send(vector, 0.5)", "send() wants the whole number to, got 0.5"),
        ("group.send(vector)", "send(vector, to, tag) is missing to"),
        ("group.receive(vector, 1, 2, 3)", "receive() wants vector, source, tag"),
        ("group.broadcast(vector)", "there is no broadcast; there are send, receive, barrier"),
    ],
)
def test_calls_of_the_group_that_do_not_fit(call, said):
    assert said in judged("root", f"def all_reduce(group, vector):\n    {call}\n").line


FORGERIES = {
    "memory that ranks share": """
import sys
def all_reduce(group, vector):
    box = sys.modules.setdefault("box", {})
    box[group.rank] = vector.copy()
    group.barrier()
    vector[:] = sum(box[rank] for rank in range(group.size))
""",
    "another rank's name": """
def all_reduce(group, vector):
    real = group.rank
    if real:
        group.send(vector, 0)
    group.rank = 0
    part = vector.copy()
    for other in range(1, group.size):
        group.receive(part, other)
        vector += part
""",
    "a file that ranks share": """
import numpy
def all_reduce(group, vector):
    numpy.ndarray.tofile(vector, "/tmp/vector%d" % group.rank)
    group.barrier()
""",
    "a message made by hand": """
def all_reduce(group, vector):
    talk = group._talk
    talk.send({"ask": 0, "method": "meet", "arguments": [], "named": {}, "line": 0})
    talk.receive()
""",
    "a claim of another method": """
def all_reduce(group, vector):
    group._methods.append("all_reduce")
    group.all_reduce(vector)
""",
    "calls that fail, without an end": """
def all_reduce(group, vector):
    while True:
        try:
            group.send(3, 0)
        except Exception:
            pass
""",
    "results made up": """
def all_reduce(group, vector):
    group._talk.send({"refused": "", "several": None, "results": [{"what": "nothing"}], "in_place": {}, "changed": []})
    group.barrier()
""",
}


SLOW = "calls that fail, without an end"


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, id=name, marks=[pytest.mark.full] * (name == SLOW)) for name, text in FORGERIES.items()],
)
def test_forgeries_are_refused(text):
    verdict = judged("root", text)
    assert not verdict and verdict.kind != "open", str(verdict)


@pytest.mark.skipif(not answer.CAN_FORK, reason="there is no nursery here")
def test_the_processes_of_all_ranks_end_with_the_check():
    for text in (text_of("root"), "def all_reduce(group, vector):\n    group.receive(vector, 1)\n"):
        judged("root", text)
        assert not psutil.Process(answer._nursery(os.getpid()).child.process.pid).children()


def test_processes_may_be_started_by_a_command_as_where_marks_are_given():
    assert kept_kernels.check("all_reduce", "tree", text_of("tree"), sandbox=("env",))


def test_what_ranks_print_begins_with_their_rank(capsys):
    text = "def all_reduce(group, vector):\n    print('here', group.size)\n    raise NotImplementedError\n"
    judged("root", text)
    assert capsys.readouterr().out.startswith("rank 0: here 4")


def test_group_operations_want_a_row_for_each_rank():
    with pytest.raises(CourseError, match="a row for each of the ranks"):
        GroupOperation("odd", "", contract="V (ranks, n) -> s (n,)", reference=lambda V: V[0], flops=None)


@pytest.mark.parametrize(("kernel", "said"), [("tree", "it has no partner in this round"), ("ring", "in a ring")])
def test_a_rank_that_is_not_there_is_told_in_words_of_the_kernel(kernel, said):
    verdict = judged(kernel, "def all_reduce(group, vector):\n    group.send(vector, group.rank - 1)\n")
    assert verdict.kind == "wrong rank" and said in verdict.line, verdict.line
