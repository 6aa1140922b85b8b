"""The simulated group: sums and messages, clocks, and the words for what goes wrong."""

import pickle
import time

import numpy as np
import pytest
from refusals import refused

from nnclassroom.exercises.nb12 import through_a_root
from nncourse.errors import CourseError
from nncourse.parallel.simulation import (
    ExchangeError,
    Link,
    fit_link,
    ring_seconds,
    root_seconds,
    simulate,
    tree_seconds,
)

LINK = Link(latency=2.0, bandwidth=4.0)  # a float a second


def vectors(size: int, n: int = 8) -> list[tuple[np.ndarray]]:
    return [(np.arange(n, dtype=np.float32) + 10 * rank,) for rank in range(size)]


def failed(part, size: int = 4, n: int = 8, **options) -> ExchangeError:
    with pytest.raises(ExchangeError) as caught:
        simulate(part, size, vectors(size, n), **options)
    return caught.value


# ---- what arrives


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_meetings_do_what_a_group_promises(size):
    def part(group, vector):
        total, root = vector.copy(), group.size - 1
        group.all_reduce(total)
        group.barrier()
        shown = vector.copy()
        group.broadcast(shown, root)
        return total, shown, group.gather(np.full(group.rank + 1, group.rank), root)

    results = simulate(part, size, vectors(size)).results
    given = np.stack([vector for (vector,) in vectors(size)])
    for rank, (total, shown, parts) in enumerate(results):
        np.testing.assert_array_equal(total, given.sum(axis=0))
        np.testing.assert_array_equal(shown, given[-1])
        assert (parts is None) == (rank != size - 1)
    assert [part.tolist() for part in results[-1][2]] == [[rank] * (rank + 1) for rank in range(size)]


def test_messages_are_copied_and_keep_their_order_and_their_tags():
    def part(group):
        box = np.zeros(1)
        if group.rank == 0:
            for number, tag in ((1, 0), (2, 5), (3, 0)):
                box[0] = number
                group.send(box, 1, tag)
            box[0] = 99
            return None
        received = []
        for tag in (5, 0, 0):
            group.receive(box, 0, tag)
            received.append(box[0])
        return received

    assert simulate(part, 2).results[1] == [2, 1, 3]


def test_every_run_is_the_same():
    def part(group):
        seen, box = [], np.zeros(1)
        if group.rank:
            for number in range(3):
                group.work(0.1 * group.rank)
                group.send(box + number, 0)
            return None
        while (sender := group.next_sender()) is not None:
            group.receive(box, sender)
            seen.append((sender, int(box[0]), round(group.clock(), 6)))
        return seen

    first, second = (simulate(part, 4, link=Link(0.01)) for _ in range(2))
    assert first.results == second.results and first.events == second.events
    assert [sender for sender, _, _ in first.results[0]] == [1, 2, 1, 3, 1, 2, 3, 2, 3]


# ---- clocks


def test_a_message_takes_latency_and_its_bytes_over_the_bandwidth():
    run = simulate(through_a_root, 2, vectors(2, 8), link=LINK)
    assert run.seconds == 2 * (2.0 + 8.0)
    of_rank_1 = [(event.kind, event.begin, event.end) for event in run.events if event.rank == 1]
    assert of_rank_1 == [("send", 0.0, 10.0), ("receive", 10.0, 20.0)]
    assert run.sent(0) == run.sent(1) == 32


@pytest.mark.parametrize("size", [2, 3, 8])
def test_one_root_takes_one_message_after_the_other(size):
    run = simulate(through_a_root, size, vectors(size), link=LINK)
    assert run.seconds == pytest.approx(root_seconds(LINK, 32, size))


def test_the_groups_own_all_reduce_takes_as_long_as_the_best_way():
    for n in (1, 1000):
        run = simulate(lambda group, vector: group.all_reduce(vector), 8, vectors(8, n), link=LINK)
        assert run.seconds == min(seconds(LINK, 4 * n, 8) for seconds in (root_seconds, tree_seconds, ring_seconds))
    assert tree_seconds(LINK, 4, 8) < ring_seconds(LINK, 4, 8)
    assert ring_seconds(LINK, 4e3, 8) < tree_seconds(LINK, 4e3, 8)


def test_slow_members_and_slow_links_are_waited_for():
    def part(group):
        group.work(1.0)
        group.barrier()

    assert simulate(part, 4).seconds == 1.0
    assert simulate(part, 4, slow={2: 5.0}).clocks == [5.0] * 4
    slower = simulate(through_a_root, 3, vectors(3), link=LINK, links={(2, 0): Link(100.0, 4.0)})
    assert slower.seconds > simulate(through_a_root, 3, vectors(3), link=LINK).seconds + 90

    def one_way(group, vector):
        group.send(vector, 0) if group.rank else group.receive(vector, 1)

    for link, seconds in (((1, 0), 100.0), ((0, 1), 0.0)):  # by sender and receiver
        assert simulate(one_way, 2, vectors(2), links={link: Link(100.0)}).seconds == seconds


def test_a_member_that_died_is_waited_for_no_longer_than_its_messages():
    def part(group):
        box = np.zeros(1)
        if group.rank:
            for _ in range(4):
                group.work(1.0)
                group.send(box, 0)
            return "done"
        heard = []
        while (sender := group.next_sender()) is not None:
            group.receive(box, sender)
            heard.append(sender)
        return heard

    run = simulate(part, 3, dies={2: 2.5})
    assert run.results == [[1, 2, 1, 2, 1, 1], "done", None] and run.died == {2} and run.clocks[2] == 2.5


def test_what_is_sent_to_one_that_died_is_not_lost():
    def part(group):
        group.work(1.0) if group.rank == 0 else group.send(np.zeros(1), 0)

    assert simulate(part, 2, dies={0: 0.5}).died == {0}


def test_next_sender_ends_with_its_patience():
    def part(group):
        if group.rank:
            group.work(10.0)
            group.send(np.zeros(1), 0)
            return None
        first = group.next_sender(patience=3.0), group.clock()
        second = group.next_sender(patience=30.0), group.clock()
        group.receive(np.zeros(1), 1)
        return first, second

    assert simulate(part, 2).results[0] == ((None, 3.0), (1, 10.0))


def test_a_thousand_members_take_seconds():
    start = time.perf_counter()
    run = simulate(lambda group, vector: group.all_reduce(vector), 1024, vectors(1024, 10), link=Link(1e-5, 1e9))
    assert run.seconds == tree_seconds(Link(1e-5, 1e9), 40, 1024)
    assert time.perf_counter() - start < 30


# ---- what a link costs


def test_fitted_links():
    sizes = np.array([4, 64, 1024, 65536, 1 << 20])
    link = fit_link(sizes, [Link(3e-6, 5e9).seconds(size) for size in sizes])
    assert (link.latency, link.bandwidth) == pytest.approx((3e-6, 5e9))
    noise = np.random.default_rng(0).uniform(0.9, 1.1, len(sizes))
    link = fit_link(sizes, Link(3e-6, 5e9).latency * noise + sizes / 5e9 * noise)
    assert (link.latency, link.bandwidth) == pytest.approx((3e-6, 5e9), rel=0.15)
    assert fit_link([100, 200], [1.0, 3.0]).latency == 0  # a fitted line would have a latency below 0
    assert fit_link([100, 200], [2.0, 1.0]).bandwidth == np.inf


@pytest.mark.parametrize(
    ("sizes", "seconds"), [([], []), ([1], [1.0]), ([1, 1], [1.0, 1.0]), ([1, 2], [1.0]), ([1, 2], [0.0, 1.0])]
)
def test_what_cannot_be_fitted(sizes, seconds):
    assert "two different sizes" in refused(fit_link, sizes, seconds)


@pytest.mark.parametrize("wrong", [{"latency": -1.0}, {"bandwidth": 0.0}, {"latency": np.nan}])
def test_links_that_are_none(wrong):
    assert "expected a latency" in refused(Link, **wrong)


# ---- what goes wrong


def all_receive_first(group, vector):
    group.receive(vector, (group.rank - 1) % group.size)
    group.send(vector, (group.rank + 1) % group.size)


def all_send_first(group, vector):
    group.send(vector, (group.rank + 1) % group.size)
    group.receive(vector, (group.rank - 1) % group.size)


def test_a_circle_of_members_that_wait_is_shown_at_once_with_ranks_steps_and_lines():
    start = time.perf_counter()
    error = failed(all_receive_first)
    assert time.perf_counter() - start < 20
    line = all_receive_first.__code__.co_firstlineno + 1
    assert error.kind == "deadlock" and error.circle == (0, 3, 2, 1) and (error.rank, error.step) == (0, 1)
    assert f"step 1 (line {line})" in str(error) and "0 for 3, 3 for 2, 2 for 1, 1 for 0: a circle" in str(error)
    assert "must send before it receives" in str(error)


def test_all_send_first_is_right_where_sends_are_buffered_and_a_deadlock_where_they_wait():
    assert simulate(all_send_first, 4, vectors(4)).seconds == 0
    error = failed(all_send_first, buffered=False)
    assert error.run and [message.to for message in error.run.messages] == [1, 2, 3, 0]
    assert error.circle == (0, 1, 2, 3) and "must receive before it sends" in str(error)

    def one_receives_first(group, vector):
        (all_send_first if group.rank else all_receive_first)(group, vector.copy())

    assert simulate(one_receives_first, 4, vectors(4), buffered=False, link=LINK).seconds > 0


def test_a_circle_of_some_is_told_from_those_behind():
    def part(group, vector):
        group.receive(vector, {0: 1, 1: 0, 2: 0, 3: 2}[group.rank])

    error = failed(part)
    assert error.circle == (0, 1) and "ranks 2 and 3 wait behind them" in str(error)


def test_waiting_for_a_member_that_has_ended():
    def forgets_the_last(group, vector):
        if group.rank == 0:
            for other in range(1, group.size - 1):
                group.send(vector, other)
        else:
            group.receive(vector, 0)

    error = failed(forgets_the_last)
    assert (error.rank, error.step) == (3, 1)
    assert "to receive from rank 0, which sends only to ranks 1 and 2, and has ended" in str(error)

    def receives_twice(group, vector):
        if group.rank == 0:
            group.send(vector, 1)
        elif group.rank == 1:
            group.receive(vector, 0)
            group.receive(vector, 0)

    error = failed(receives_twice)
    assert error.step == 2 and "whose only message to it was received at step 1" in str(error)


def test_a_tag_that_nobody_sends():
    def part(group, vector):
        if group.rank == 0:
            group.receive(vector, 1, tag=2)
        elif group.rank == 1:
            group.send(vector, 0, tag=3)

    assert "rank 1's message has tag 3, rank 0 expects tag 2" in str(failed(part))


def test_a_member_that_died_is_named():
    def part(group, vector):
        group.work(1.0)
        through_a_root(group, vector)

    error = failed(part, dies={2: 0.5})
    assert error.kind == "deadlock" and "rank 2, which sends nothing, and died at 0.5 s" in str(error)


def test_lost_and_doubled_messages():
    def lost(group, vector):
        if group.rank == 1:
            group.send(vector, 2)

    def doubled(group, vector):
        if group.rank == 1:
            group.send(vector, 2)
            group.send(vector, 2)
        if group.rank == 2:
            group.receive(vector, 1)

    assert "rank 1 sends 8 numbers to rank 2 at step 1" in str(failed(lost)) and failed(lost).kind == "lost message"
    error = failed(doubled)
    assert error.kind == "doubled message" and (error.rank, error.step) == (1, 2)
    assert "at step 1 and again at step 2" in str(error)


def test_chunks_of_another_size_or_type():
    def part(group, vector):
        if group.rank == 1:
            group.send(vector[:3], 0)
        if group.rank == 0:
            group.receive(vector, 1)

    def doubles(group, vector):
        all_send_first(group, vector if group.rank else vector.astype(np.float64))

    error = failed(part)
    assert error.kind == "wrong chunk" and (error.rank, error.step) == (0, 1)
    assert "expects 8 numbers" in str(error) and "sent 3 numbers" in str(error)
    assert "float64" in str(failed(doubles))


@pytest.mark.parametrize("to", [-1, 4, 2])
def test_partners_that_do_not_exist(to):
    def part(group, vector):
        if group.rank == 2:
            group.send(vector, to)

    error = failed(part)
    assert error.kind == "wrong rank" and error.rank == 2 and f"send to rank {to}" in str(error)
    error = failed(lambda group, vector: group.broadcast(vector, 4))
    assert error.kind == "wrong rank" and "tries to broadcast with root 4, but ranks go from 0 to 3" in str(error)


def test_members_that_meet_for_different_things():
    def part(group, vector):
        group.barrier() if group.rank == 3 else group.all_reduce(vector)

    def sizes(group, vector):
        group.all_reduce(vector[: 8 - group.rank])

    def missing(group, vector):
        if group.rank != 2:
            group.all_reduce(vector)

    assert failed(part).kind == failed(sizes).kind == "mismatch"
    error = failed(missing)
    assert error.kind == "deadlock" and "rank 2 has ended without a send or receive" in str(error)


def test_what_a_member_raises_is_raised_with_its_rank():
    def part(group, vector):
        if group.rank == 2:
            return vector[99]
        return group.all_reduce(vector)

    with pytest.raises(IndexError) as caught:
        simulate(part, 4, vectors(4))
    assert "rank 2 of 4" in caught.value.__notes__[0]


def test_an_endless_loop_is_stopped():
    def part(group):
        while group.rank == 1:
            pass
        group.barrier()

    start = time.perf_counter()
    with pytest.raises(CourseError, match="rank 1 has computed for over 0.2 s"):
        simulate(part, 3, patience=0.2)
    assert time.perf_counter() - start < 30


def test_errors_can_be_pickled_and_arguments_are_counted():
    error = failed(all_receive_first)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.kind, again.circle) == (str(error), error.kind, error.circle)
    assert "arguments for each of 3 members" in refused(simulate, all_send_first, 3, vectors(2))
    for size in (0, -1, 2.5, "2", 1_000_000):
        assert "expected a group of 1 to 4096 members" in refused(simulate, lambda group: None, size)
    assert "expected a function of the group" in refused(simulate, 2, 2)
    for strange in ({"slow": {7: 2.0}}, {"dies": {-1: 2.0}}, {"links": {(0, 2): Link()}}):
        assert "expected ranks from 0 to 1 in links, slow and dies" in refused(
            simulate, lambda group: None, 2, **strange
        )
