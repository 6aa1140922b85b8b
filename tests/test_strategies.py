"""Averaging, asynchronous training and pipelines, on the simulated group and on real processes."""

import functools
from types import SimpleNamespace

import numpy as np
import pytest
from processes import in_processes

from nncourse import datasets
from nncourse import device as devices
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.group import ALONE, Alone
from nncourse.model.data_parallel import Together
from nncourse.model.network import flops, make_network, training_step
from nncourse.model.optimizers import SGD, Adam
from nncourse.model.training import evaluate, train
from nncourse.parallel import hybrid as hybrid_training
from nncourse.parallel.asynchronous import train_asynchronously
from nncourse.parallel.averaging import train_by_averaging
from nncourse.parallel.hybrid import measured_shares, measured_step, step_seconds, take_device
from nncourse.parallel.larger_batches import larger_batches
from nncourse.parallel.pipeline import SCHEDULES, train_pipeline
from nncourse.parallel.simulation import Link, simulate
from nncourse.parallel.stages import grid, partition
from nncourse.parallel.subgroup import Subgroup
from nncourse.parallel.timeline import gathered, idle_share, made_up

NUMPY = choose("numpy")
ROWS = 43
ROUNDING = 1e-5
SIZES = (6, 8, 7, 5, 3)


def backend_of(group):
    return choose("cuda") if group.device == "gpu" else NUMPY


def data(rows: int = ROWS):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, SIZES[0]), dtype=np.float32)
    return X, np.eye(SIZES[-1], dtype=np.float32)[rng.integers(0, SIZES[-1], rows)]


def network_of(words=SIZES, seed: int = 0):
    return make_network(words, "tanh", "categorical_cross_entropy", seed=seed)


# ---- averaging


def averaged(group, make=SGD, rate: float = 0.3, rounds: int = 1):
    network, optimizer = network_of(seed=group.rank), make()
    options = {"epochs": 2, "batch_size": 10, "learning_rate": rate, "optimizer": optimizer, "batches_a_round": rounds}
    history = train_by_averaging(network, *data(), backend_of(group), group, **options)
    return network.flat_parameters, history.costs, optimizer


def synchronous(make=SGD, rate: float = 0.3):
    network = network_of()
    options = {"epochs": 2, "batch_size": 10, "learning_rate": rate, "optimizer": make()}
    return network, train(network, *data(), NUMPY, **options).costs


MOMENTUM = functools.partial(SGD, momentum=0.9, l2=0.01)


@pytest.mark.parametrize("make", [SGD, MOMENTUM])
@pytest.mark.parametrize("members", [1, 2, 4])  # the last batch has 3 rows: one of 4 members has none
def test_averaging_after_every_batch_is_synchronous_training(members, make):
    run = simulate(functools.partial(averaged, make=make), members)
    network, costs = synchronous(make)
    for parameters, own_costs, optimizer in run.results:
        np.testing.assert_allclose(parameters, network.flat_parameters, atol=ROUNDING)
        np.testing.assert_allclose(own_costs, costs, atol=ROUNDING)
        assert optimizer.steps == 10


@pytest.mark.parametrize(("make", "rounds"), [(Adam, 1), (SGD, 2), (MOMENTUM, 5)])
def test_averaging_is_not_synchronous_training_for_adam_or_with_more_batches_a_round(make, rounds):
    rate = 0.01 if make is Adam else 0.3
    run = simulate(functools.partial(averaged, make=make, rate=rate, rounds=rounds), 2)
    network, costs = synchronous(make, rate)
    parameters, own_costs, optimizer = run.results[0]
    assert abs(parameters - network.flat_parameters).max() > 1e-3
    assert own_costs == pytest.approx(costs, rel=0.1)  # but it learns as well
    assert (run.results[1][0] == parameters).all()
    for name in optimizer.remembers:
        assert (run.results[1][2].state[name] == optimizer.state[name]).all()


def test_running_statistics_are_averaged_or_refused():
    def part(group, apart):
        network = network_of(NETWORKS["normalised"])
        network.flat_statistics += apart * group.rank  # those of the first member are taken
        train_by_averaging(network, *samples_for(network), NUMPY, group, epochs=1, batch_size=10)
        with pytest.raises(CourseError, match="without batch normalisation"):
            train_asynchronously(network, *samples_for(network), NUMPY, group, epochs=1)
        return network.flat_statistics

    one, *others = (found for apart in (0, 1) for found in simulate(functools.partial(part, apart=apart), 2).results)
    assert all((found == one).all() for found in others)
    assert abs(one - network_of(NETWORKS["normalised"]).flat_statistics).max() > 0.01


# ---- asynchronous


def asynchronously(group, seconds: float = 1.0, **options):
    """A worker's gradient takes so many seconds; a simulated group is told so."""
    network = network_of(seed=group.rank)
    takes = {"compute": seconds, "update": seconds / 100}
    timeline = made_up(group, takes) if hasattr(group, "work") else None
    options = {"epochs": 4, "batch_size": 5, "learning_rate": 0.2, "seed": 1} | options
    arrivals = train_asynchronously(network, *learnable(), backend_of(group), group, timeline, **options)
    return network.flat_parameters, arrivals


def learnable(rows: int = 100):
    X, _ = data(rows)
    return X, np.eye(SIZES[-1], dtype=np.float32)[X[:, : SIZES[-1]].argmax(axis=1)]


def mean(staleness) -> float:
    return sum(count * value for value, count in staleness.items()) / staleness.total()


@pytest.mark.parametrize("servers", [1, 3])
def test_one_worker_that_fetches_before_every_gradient_is_plain_sgd(servers):
    parameters, arrivals = simulate(functools.partial(asynchronously, servers=servers), servers + 1).results[0]
    network, (X, Y) = network_of(), learnable()
    for epoch in range(1, 5):
        order = np.random.default_rng([1, epoch, servers]).permutation(100)
        for first in range(0, 100, 5):
            rows = order[first : first + 5]
            training_step(network, X[rows], Y[rows], 0.2, NUMPY)
    np.testing.assert_allclose(parameters, network.flat_parameters, atol=ROUNDING)
    assert arrivals.staleness == {0: 80} and arrivals.pushes == {servers: 80} and not arrivals.lost
    assert len(arrivals.costs) == 4 and arrivals.costs[-1] < arrivals.costs[0]
    assert arrivals.costs[-1] == pytest.approx(evaluate(network, X, Y, NUMPY), abs=ROUNDING)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("workers", [2, 5])
def test_equal_workers_are_stale_by_one_less_than_their_number(workers, servers):
    run = simulate(functools.partial(asynchronously, servers=servers), workers + servers, link=Link(1e-3))
    parameters, arrivals = run.results[0]
    assert mean(arrivals.staleness) == pytest.approx(workers - 1, abs=0.2)
    assert all((each[0] == parameters).all() for each in run.results)
    assert arrivals.costs[-1] < 0.9 * arrivals.costs[0]


def test_a_slow_worker_does_not_hold_up_the_others_and_its_gradients_are_stale():
    run = simulate(asynchronously, 5, slow={3: 10.0})
    _, arrivals = run.results[0]
    assert arrivals.pushes[3] < arrivals.pushes[1] / 5
    assert max(arrivals.staleness) >= 20  # the three others take ten steps each in the meantime
    waiting = simulate(functools.partial(averaging_in_simulated_time, 4), 4, slow={3: 10.0})
    assert arrivals.seconds[-1] < waiting.seconds / 3


def averaging_in_simulated_time(epochs: int, group):
    timeline = made_up(group, {"compute": 1.0})
    options = {"epochs": epochs, "batch_size": 5 * group.size, "timeline": timeline}
    return train_by_averaging(network_of(), *learnable(), NUMPY, group, **options)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("when", [0.5, 3.0, 3.005, 3.0101])  # at work, and while a push is on its way
def test_training_goes_on_without_a_worker_that_dies(servers, when):
    dying = servers + 1
    run = simulate(functools.partial(asynchronously, servers=servers), servers + 3, link=Link(0.01), dies={dying: when})
    parameters, arrivals = run.results[0]
    assert run.died == {dying} and arrivals.lost == [dying] and arrivals.pushes[dying] <= 3
    assert len(arrivals.costs) == 4 and arrivals.costs[-1] < arrivals.costs[0]
    assert all((run.results[rank][0] == parameters).all() for rank in range(servers + 3) if rank != dying)


def test_without_a_server_training_ends():
    with pytest.raises(CourseError, match="rank 1.*died"):
        simulate(functools.partial(asynchronously, servers=2), 4, dies={1: 3.0})


def test_fewer_messages_are_fetched_and_pushed():
    often = simulate(asynchronously, 3)
    seldom = simulate(functools.partial(asynchronously, n_push=2, n_fetch=4), 3)
    assert seldom.results[0][1].pushes.total() == pytest.approx(often.results[0][1].pushes.total() / 2, abs=2)
    assert seldom.sent(0) < often.sent(0) / 2
    assert mean(seldom.results[0][1].staleness) > mean(often.results[0][1].staleness)
    assert seldom.results[0][1].costs[-1] < seldom.results[0][1].costs[0]


@pytest.mark.parametrize(
    "options", [{"servers": 0}, {"servers": 4}, {"n_push": 2}, {"n_fetch": 0}, {"batch_size": 0}, {"n_push": 0}]
)
def test_plans_that_cannot_be_are_refused(options):
    with pytest.raises(CourseError, match="expected"):
        simulate(functools.partial(asynchronously, **options), 4)


def test_groups_that_cannot_hear_from_anyone_are_refused():
    class Deaf(Alone):  # as NCCL's group is
        size = 2

    with pytest.raises(CourseError, match="can hear from anyone"):
        asynchronously(Deaf())
    with pytest.raises(CourseError, match="one server, one worker"):
        asynchronously(ALONE)


# ---- pipelines

NETWORKS = {
    "dense": SIZES,
    "normalised": "image1x6x6,conv3x3same,batchnorm,pool2,8,3",
    "images": "image1x6x6,conv3x3same,pool2,dropout0.3,conv4x2same,8,dropout0.2,3",
}


def through_a_pipeline(group, words: str, stages: int, schedule: str, make=SGD, **options):
    network = network_of(NETWORKS[words], seed=group.rank)
    network.flat_statistics += group.rank
    X, Y = samples_for(network)
    pipeline, replicas = grid(group, stages)
    options = {"epochs": 2, "batch_size": 10, "optimizer": make(), "seed": 7, "schedule": schedule} | options
    history = train_pipeline(network, X, Y, backend_of(group), pipeline, replicas, **options)
    return np.concatenate([network.flat_parameters, network.flat_statistics]), history.costs


def samples_for(network, rows: int = 23):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, *network.input_shape), dtype=np.float32)
    return X, np.eye(network.sizes[-1], dtype=np.float32)[rng.integers(0, network.sizes[-1], rows)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("words", "members", "stages", "micro_batches", "make"),
    [
        ("dense", 1, 1, 3, SGD),
        ("dense", 4, 4, 4, MOMENTUM),
        ("dense", 4, 2, 3, Adam),  # two pipelines
        ("images", 3, 3, 4, Adam),
        ("images", 6, 3, 2, MOMENTUM),
        ("images", 5, 5, 20, SGD),  # more micro-batches than rows
        ("normalised", 3, 3, 1, MOMENTUM),  # each micro-batch would have its own statistics
    ],
)
def test_a_pipeline_learns_what_one_device_learns(schedule, words, members, stages, micro_batches, make):
    options = {"make": make, "micro_batches": micro_batches, "learning_rate": 0.01 if make is Adam else 0.2}
    part = functools.partial(through_a_pipeline, words=words, stages=stages, schedule=schedule, **options)
    run = simulate(part, members, buffered=False)  # a send waits until the other receives, as MPI's may
    network, alone = network_of(NETWORKS[words]), {"epochs": 2, "batch_size": 10, "optimizer": make(), "seed": 7}
    history = train(network, *samples_for(network), NUMPY, learning_rate=options["learning_rate"], **alone)
    for vector, costs in run.results:
        wanted = np.concatenate([network.flat_parameters, network.flat_statistics])
        np.testing.assert_allclose(vector, wanted, atol=ROUNDING)
        np.testing.assert_allclose(costs, history.costs, atol=ROUNDING)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("stages", "count"), [(1, 4), (2, 1), (2, 4), (4, 4), (4, 12)])
def test_the_bubble_is_that_of_theory(schedule, stages, count):
    """Equal stages; the way back takes twice as long as the way forward; messages take no time."""

    def part(group):
        timeline = made_up(group, {"forward": 1.0, "backward": 2.0})
        network = make_network([5] * (2 * group.size + 1), "tanh", "mse")
        X, Y = samples_for(network, count)
        options = {"epochs": 1, "batch_size": count, "micro_batches": count, "schedule": schedule}
        train_pipeline(network, X, Y, NUMPY, group, timeline=timeline, **options)
        return gathered(timeline, group)

    spans = simulate(part, stages).results[0]
    assert idle_share(spans) == pytest.approx((stages - 1) / (count + stages - 1), abs=1e-9)
    assert sum(span.what == "forward" for span in spans) == stages * count


def test_one_forward_one_back_keeps_fewer_activations():
    def most(schedule: str, stage: int) -> int:
        kept = np.cumsum([1 if what == "forward" else -1 for what, _ in SCHEDULES[schedule](stage, 4, 12)])
        return kept.max()

    assert [most("all_forward_first", stage) for stage in range(4)] == [12] * 4
    assert [most("one_forward_one_back", stage) for stage in range(4)] == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("costs", "parts", "ends"),
    [([1, 1, 1, 1], 2, [2, 4]), ([9, 1, 1, 1], 2, [1, 4]), ([1, 2, 3, 4, 5], 3, [3, 4, 5]), ([0, 0, 7], 3, [1, 2, 3])],
)
def test_layers_are_shared_out_so_that_the_dearest_stage_is_cheapest(costs, parts, ends):
    assert [part.stop for part in partition(costs, parts)] == ends


def test_flops_are_those_of_the_matrix_products():
    dense = flops(make_network([784, 192, 10]))
    assert dense == [2 * 784 * 192 + 192, 2 * 192 * 10 + 10]
    convolution = flops(make_network("image1x28x28,conv4x2same,pool4,10"))
    assert convolution[0] == 2 * 4 * 2 * 2 * 28 * 28 + 4 * 28 * 28


def test_stages_that_cannot_be_are_refused():
    with pytest.raises(CourseError, match="from 1 to 4 stages"):
        simulate(functools.partial(through_a_pipeline, words="dense", stages=5, schedule="all_forward_first"), 5)
    with pytest.raises(CourseError, match="1 micro-batch"):
        through_a_pipeline(ALONE, "dense", 1, "all_forward_first", micro_batches=0)
    with pytest.raises(CourseError, match="equal length for 3 members"):
        simulate(functools.partial(through_a_pipeline, words="dense", stages=2, schedule="all_forward_first"), 3)


# ---- larger batches


def test_many_workers_learn_less_in_as_many_epochs_unless_the_rate_grows():
    data = datasets.blobs(480, seed=1)
    first, second = datasets.split(data, 0.25)
    options = {"workers": 12, "batch_size": 4, "rate": 0.01, "epochs": 2, "rows": 240, "seeds": (0, 1)}
    one, many, large, warm = larger_batches(first, second, NUMPY, **options).values()
    assert len(one) == 2 and np.mean(one) > np.mean(many) + 0.05
    assert np.mean(large) > np.mean(many) + 0.05 and np.mean(warm) > np.mean(many)
    part = functools.partial(larger_batches, first, second, NUMPY, **options)
    for together in simulate(lambda group: list(part(group=group).values()), 2).results:
        assert np.ravel(together) == pytest.approx(np.ravel([one, many, large, warm]), abs=0.01)


# ---- subgroups


def test_subgroups_exchange_among_themselves():
    def part(group):
        ranks = [rank for rank in range(group.size) if rank % 3 == group.rank % 3]
        there = Subgroup(group, ranks[::-1])
        results = []
        for size in (0, 1, 2, 100):
            vector = np.random.default_rng([group.rank, size]).standard_normal(size)
            total = sum(np.random.default_rng([rank, size]).standard_normal(size) for rank in ranks)
            reduced = vector.copy()
            there.all_reduce(reduced)
            np.testing.assert_allclose(reduced, total, atol=1e-12)
            there.broadcast(vector, root=there.size - 1)
            np.testing.assert_array_equal(vector, np.random.default_rng([ranks[0], size]).standard_normal(size))
            results.append(reduced)
        own = there.gather(np.full(group.rank, group.rank), root=1 % there.size)
        there.barrier()
        if there.rank == 1 % there.size:
            assert [each.tolist() for each in own] == [[rank] * rank for rank in ranks[::-1]]
        else:
            assert own is None
        return results

    for buffered in (True, False):
        for members in (3, 7, 8):  # of one, two and three
            results = simulate(part, members, buffered=buffered).results
            for rank in range(3, members):
                assert all((a == b).all() for a, b in zip(results[rank], results[rank % 3], strict=True))


@pytest.mark.parametrize("ranks", [[1], [0, 0], [0, 9], []])
def test_wrong_members_are_refused(ranks):
    with pytest.raises(CourseError, match="this one among them"):
        Subgroup(ALONE, ranks)


# ---- CPU and GPU


@pytest.mark.parametrize(("f", "gpus", "share"), [(12, 1, 1 / 13), (12, 2, 1 / 25), (1, 1, 0.5), (5, 3, 1 / 16)])
def test_with_the_ideal_share_all_end_together_and_no_other_is_faster(f, gpus, share):
    best = step_seconds(share, f, gpus)
    assert best == pytest.approx(share * f) and best == pytest.approx((1 - share) / gpus)
    assert all(step_seconds(other, f, gpus) > best for other in (0, share / 2, share * 1.1, 1))
    assert step_seconds(0, f, gpus) / best == pytest.approx(1 / (1 - share))


def test_measured_shares_are_those_of_theory(monkeypatch):
    """The first member takes 12 times as long for a row as each of two others."""
    took: list[float] = []
    monkeypatch.setattr(hybrid_training, "training_step", lambda network, X, *rest: took.append(float(X.sum())))
    monkeypatch.setattr(devices, "seconds", lambda work, device: work() or took.pop())

    def part(group):
        X = np.full((250, 1), 12.0 if group.rank == 0 else 1.0, np.float32)  # seconds of each row
        return measured_shares(network_of((1, 2)), X, np.zeros((250, 2), np.float32), NUMPY, group, batch_size=250)

    assert simulate(part, 3).results == [pytest.approx([1 / 25, 12 / 25, 12 / 25])] * 3


def test_a_step_takes_as_long_as_its_slowest_member(monkeypatch):
    now = [0.0]

    def epoch(*arguments, **options):
        now[0] += 1.0 + arguments[9].group.rank

    monkeypatch.setattr(hybrid_training, "data_parallel_epoch", epoch)
    monkeypatch.setattr(hybrid_training, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def part(group):
        return measured_step(network_of(), *data(), NUMPY, group, [0.5, 0.5], batch_size=10, steps=3)

    assert simulate(part, 2).results == [2.0, 2.0]


# ---- real processes


def all_strategies(group, stages: int = 2):
    """In each process: what every strategy ends with."""
    options = {"micro_batches": 4, "learning_rate": 0.2}
    pipelines = [through_a_pipeline(group, "dense", stages, schedule, **options) for schedule in SCHEDULES]
    found = {"averaged": averaged(group)[0], "pipelines": pipelines}
    if hasattr(group, "next_sender"):
        found["asynchronous"] = asynchronously(group, servers=group.size // 2)
    return found


def hybrid(world):
    group, backend, what = take_device(world)
    backend = backend if backend.device == "gpu" else NUMPY  # numba would have to compile first
    network = network_of((6, 40, 5), seed=world.rank)
    X, Y = samples_for(network, 400)
    shares = measured_shares(network, X, Y, backend, group, batch_size=200)
    seconds = measured_step(network, X, Y, backend, group, shares, batch_size=200, steps=2)
    options = {"epochs": 1, "batch_size": 200, "learning_rate": 0.2}
    train(network, X, Y, backend, together=Together(group, shares), **options)
    return {"parameters": network.flat_parameters, "shares": shares, "seconds": seconds, "what": what}


def agree(results: list[dict], workers: set[int] | None = None) -> None:
    """All members have the same, and it is what one device learns. `workers` are the ranks of asynchronous training."""
    np.testing.assert_allclose(results[0]["averaged"], synchronous()[0].flat_parameters, atol=ROUNDING)
    network = network_of()
    train(network, *samples_for(network), NUMPY, epochs=2, batch_size=10, seed=7, learning_rate=0.2)
    for result in results:
        for parameters, _ in result["pipelines"]:
            np.testing.assert_allclose(parameters, network.flat_parameters, atol=ROUNDING)
        if workers:
            assert (result["asynchronous"][0] == results[0]["asynchronous"][0]).all()
    if workers:
        arrivals = results[0]["asynchronous"][1]
        assert arrivals.pushes.total() == arrivals.staleness.total() >= 80 and set(arrivals.pushes) <= workers
        assert len(arrivals.costs) == 4 and arrivals.costs[-1] < arrivals.costs[0] and not arrivals.lost


def test_on_real_processes():
    agree(in_processes(all_strategies, 4), workers={2, 3})


def test_with_a_gpu(gpu):
    """All on one GPU; what they exchange goes through the host's memory."""
    agree(in_processes(all_strategies, 2, kind="mpi, gpu", limit=200), workers={1})


def test_on_gpus(gpus):
    agree(in_processes(all_strategies, gpus, gpus, kind="nccl", limit=200))


def test_shares_by_speed_on_real_processes():
    results = in_processes(hybrid, 2)
    alone = network_of((6, 40, 5))
    train(alone, *samples_for(alone, 400), NUMPY, epochs=1, batch_size=200, learning_rate=0.2)
    assert sum(results[0]["shares"]) == pytest.approx(1) and min(results[0]["shares"]) > 0
    for each in results:
        np.testing.assert_allclose(each["parameters"], alone.flat_parameters, atol=ROUNDING)
        assert each["shares"] == results[0]["shares"] and each["seconds"] == results[0]["seconds"] > 0
    assert results[0]["what"] != results[1]["what"]


@pytest.mark.parametrize(
    "strategy", [train_by_averaging, train_asynchronously, train_pipeline], ids=lambda each: each.__name__
)
def test_samples_for_another_network_are_refused_in_one_line(strategy):
    X, Y = np.zeros((8, 3), np.float32), np.zeros((8, 1), np.float32)
    for samples, targets in ((X[:, :2], Y), (X, Y[:4]), (X.astype(float), Y)):
        with pytest.raises(CourseError, match=r"expected float32 samples of shape \(n, 3\) and targets"):
            simulate(lambda group: strategy(make_network("3,4,1"), samples, targets, NUMPY, group, epochs=1), 2)  # noqa: B023
