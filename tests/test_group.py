"""Groups of processes: what they exchange, and how rows are shared out."""

import itertools
import sys

import numpy as np
import pytest
from processes import in_processes
from refusals import refused

from nncourse.errors import CourseError
from nncourse.group import ALONE, Alone, shard, shard_sizes, total

SIZES = (0, 1, 2, 3, 7, 1000, 152_650)
TYPES = ("float32", "float64", "int64")


# ---- shards


@pytest.mark.parametrize("shares", [None, (1, 1, 1), (0.5, 0.3, 0.2), (0, 3, 1), (1e-9, 1, 0)])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 10, 128, 1001])
def test_shards_are_disjoint_in_order_and_together_all_rows(rows, shares):
    together = np.concatenate([np.arange(rows)[shard(rows, rank, 3, shares)] for rank in range(3)])
    np.testing.assert_array_equal(together, np.arange(rows))
    counts = shard_sizes(rows, 3, shares)
    exact = rows * np.array(shares or (1, 1, 1)) / sum(shares or (1, 1, 1))
    assert sum(counts) == rows and (np.abs(counts - exact) < 1).all()


def test_without_shares_the_first_members_have_one_row_more():
    assert shard_sizes(10, 4) == [3, 3, 2, 2] and shard_sizes(2, 4) == [1, 1, 0, 0]
    assert shard_sizes(10, 4) == shard_sizes(10, 4, (0.1,) * 4)


def test_rows_left_over_go_to_the_largest_remainders():
    assert shard_sizes(10, 3, (0.55, 0.27, 0.18)) == [5, 3, 2]  # exact: 5.5, 2.7, 1.8
    assert shard_sizes(25, 3, (24, 12, 1)) == [16, 8, 1]  # 16.2, 8.1, 0.7: the CPU beside two GPUs
    assert shard_sizes(10, 2, (1, 1e-9)) == [10, 0]


def test_equal_remainders_go_to_the_first_members_whatever_is_lost_by_rounding():
    """Exact: 1/3, 4/3, 1/3 rows. With shares of 0.1, 0.4 and 0.1, rounding makes the last remainder larger."""
    assert shard_sizes(2, 3, (1, 4, 1)) == shard_sizes(2, 3, (0.1, 0.4, 0.1)) == [1, 1, 0]


@pytest.mark.parametrize("shares", [(1, 1), (1, -1, 1), (0, 0, 0), (1, np.nan, 1), (1, np.inf, 1), 1.0])
def test_wrong_shares_are_refused(shares):
    assert "a share of at least 0 for each of 3 members" in refused(shard, 10, 0, 3, shares)


# ---- alone


def test_a_group_of_one_changes_nothing_and_has_nobody_to_send_to():
    vector = np.arange(3.0)
    for each in (ALONE.all_reduce, ALONE.broadcast):
        each(vector)
    ALONE.barrier()
    np.testing.assert_array_equal(vector, np.arange(3.0))
    (gathered,) = ALONE.gather(vector)
    vector[0] = 5
    np.testing.assert_array_equal(gathered, np.arange(3.0))
    for each in (ALONE.send, ALONE.receive):
        assert "alone" in refused(each, vector, 1)
    assert (ALONE.rank, ALONE.size, ALONE.device, Alone("gpu").device) == (0, 1, "cpu", "gpu")


# ---- real processes


def vectors(rank: int, xp=np):
    """One of each size and type. The magnitudes differ so much that the order of a sum changes its bits."""
    for size, kind in itertools.product(SIZES, TYPES):
        rng = np.random.default_rng([rank, size])
        values = rng.standard_normal(size) * 10.0 ** rng.integers(-3, 4, size)
        yield xp.asarray((values * 1000 if kind == "int64" else values).astype(kind))


def host(array):
    return array.get() if hasattr(array, "get") else array


def everything(group):
    from nncourse import device as devices

    xp = devices.array_module(devices.to_device(np.zeros(1), group.device))
    found = {"rank": group.rank, "size": group.size, "all_reduce": [], "broadcast": [], "gather": []}
    last = group.size - 1
    for vector in vectors(group.rank, xp):
        if vector.size:
            group.all_reduce(vector)
            found["all_reduce"].append(host(vector))
    for vector in vectors(group.rank, xp):
        if vector.size:
            group.broadcast(vector, last)
            found["broadcast"].append(host(vector))
    own = xp.arange(2 + 3 * group.rank, dtype=np.float32) + 100 * group.rank
    gathered = [group.gather(own), group.gather(own, last)]
    found["gather"] = [parts and [host(part) for part in parts] for parts in gathered]
    found["messages"] = ring(group, xp)
    group.barrier()
    found["total"] = total(np.array([group.rank + 1, 10]), group)
    return found


def ring(group, xp):
    """Each process sends two vectors to the next and then changes them; returns what the previous process sent."""
    if group.size == 1:
        return None
    mine = [xp.full(length, group.rank + 1.0, np.float32) for length in (5, 200_000)]
    theirs = [xp.zeros_like(vector) for vector in mine]

    def give():
        for tag, vector in enumerate(mine):
            group.send(vector, (group.rank + 1) % group.size, tag)
            vector[...] = -1

    def take():
        for tag, vector in enumerate(theirs):
            group.receive(vector, (group.rank - 1) % group.size, tag)

    for each in (take, give) if group.rank % 2 else (give, take):  # the even ones send, the odd ones receive first
        each()
    return [host(vector) for vector in theirs]


def agree(results: list[dict]) -> None:
    """The results of everything() are right, and the sums have the same bits in each process."""
    count = len(results)
    inputs = [[each for each in vectors(rank) if each.size] for rank in range(count)]
    assert [(found["rank"], found["size"]) for found in results] == [(rank, count) for rank in range(count)]
    for number, parts in enumerate(zip(*inputs, strict=True)):
        sums = [found["all_reduce"][number] for found in results]
        for other in sums:
            assert other.tobytes() == sums[0].tobytes()
        kind = parts[0].dtype
        error = np.abs(sums[0] - np.sum(parts, axis=0, dtype=kind if kind == "int64" else float))
        bound = 0 if kind == "int64" else count * np.finfo(kind).eps * np.abs(parts).sum(axis=0)
        assert sums[0].dtype == kind and (error <= bound).all()
        for found in results:
            np.testing.assert_array_equal(found["broadcast"][number], parts[-1])
    wanted = [np.arange(2 + 3 * rank) + 100.0 * rank for rank in range(count)]
    for root, gathered in ((0, 0), (count - 1, 1)):
        for rank, found in enumerate(results):
            parts = found["gather"][gathered]
            assert (parts is None) == (rank != root)
            if rank == root:
                assert [part.tolist() for part in parts] == [part.tolist() for part in wanted]
    for rank, found in enumerate(results):
        assert found["total"].tolist() == [count * (count + 1) // 2, 10 * count]
        if count > 1:
            assert [set(vector.tolist()) for vector in found["messages"]] == [{(rank - 1) % count + 1.0}] * 2


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_processes_exchange_by_mpi(processes):
    agree(in_processes(everything, processes))


def too_long(group):
    """In each of two processes: one sends first more, then fewer numbers than the other expects."""
    said = []
    for length in (3, 1):
        if group.rank == 0:
            group.send(np.zeros(length), 1)
        else:
            try:
                group.receive(np.zeros(2), 0)
            except CourseError as error:
                said.append(str(error))
    return said


def test_a_message_of_another_length_is_refused():
    _, said = in_processes(too_long, 2)
    assert len(said) == 2 and "expected 16 bytes from process 0, with tag 0; got 24" in said[0] and "got 8" in said[1]


def test_without_mpi4py_one_line_says_what_to_install(monkeypatch):
    from nncourse.parallel.mpi import MPIGroup

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(CourseError, match=r"expected mpi4py and an MPI.*pip install 'nncourse\[devices\]'"):
        MPIGroup()


def test_vectors_on_a_gpu_go_through_the_hosts_memory_by_mpi(gpu):
    """The processes may share one GPU."""
    agree(in_processes(everything, 2, kind="mpi, gpu", limit=120))


def test_processes_exchange_by_nccl_with_a_gpu_each(gpus):
    agree(in_processes(everything, gpus, kind="nccl", limit=120))


def test_more_processes_than_gpus_are_refused_by_all_alike(gpus):
    with pytest.raises(CourseError, match="expected a GPU for each of"):
        in_processes(total_of_ranks, gpus + 1, kind="nccl", limit=120)


def total_of_ranks(group):
    return total(np.array([group.rank]), group)
