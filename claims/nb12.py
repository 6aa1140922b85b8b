"""The evidence for notebook 12: its own cells on the simulated group, larger batches, and what was recorded on GPUs."""

import functools
from typing import Any

import numpy as np

from claims import Claim
from claims.cells import defined
from nnclassroom.exercises.nb12 import all_gather, all_reduce, reduce_scatter, shards
from nnclassroom.figures.overheads import recorded
from nncourse.group import shard_sizes
from nncourse.parallel import Link, fit_link, ring_seconds, root_seconds, simulate, tree_seconds

KERNELS = {f"by_{name}": all_reduce[name] for name in ("root", "tree", "ring")}
MEMBERS = (2, 4, 8, 16, 32)
LINK, N = Link(50e-6, 1e9), 25_450


@functools.cache
def names() -> dict[str, Any]:
    halves = {"reduce_scatter": reduce_scatter["ring"], "all_gather": all_gather["ring"], "kernel": send_first}
    ids = ("setup", "data", "by-hand", "root-figure", "speedup", "overlap", "zero", "arrivals")
    return defined("12_many_devices", *ids, all_reduce=all_reduce["root"], **halves, **KERNELS)


def send_first(group, vector):
    """A ring that sends while it receives."""
    size, rank, chunks = group.size, group.rank, np.array_split(vector, group.size)
    for step in range(2 * size - 2):
        into = chunks[(rank - step - 1) % size]
        part = np.empty_like(into)
        group.send(chunks[(rank - step) % size], (rank + 1) % size)
        group.receive(part, (rank - 1) % size)
        into[:] = into + part if step < size - 1 else part


def root_of_eight() -> bool:
    message = 4 * N / LINK.bandwidth
    return round(1e6 * message) == 102 and bool(
        np.isclose(names()["summed"](all_reduce["root"], 8).seconds, 14 * 152e-6, rtol=0.01)
    )


def turns_take_twice_as_long() -> bool:
    ring, quick = (
        [names()["summed"](each, K).seconds for K in (4, 8, 16)] for each in (all_reduce["ring"], send_first)
    )
    return bool(np.allclose(ring, 2 * np.array(quick), rtol=0.05))


def rounds_of_64_and_where_they_cross() -> bool:
    rounds = [round(at(Link(latency=1.0), 4, 64)) for at in (tree_seconds, root_seconds, ring_seconds)]
    ahead = [n for n in range(100_000, 200_000, 1_000) if ring_seconds(LINK, 4 * n, 64) < tree_seconds(LINK, 4 * n, 64)]
    return rounds == [12, 126, 126] and 130_000 < ahead[0] < 150_000


def ring_is_ahead_up_to_8() -> bool:
    ahead = [ring_seconds(LINK, 4 * N, K) < tree_seconds(LINK, 4 * N, K) for K in MEMBERS]
    return ahead == [True, True, True, False, False]


def rows_of_members() -> bool:
    return np.diff(shards["numpy"](64, 3)).tolist() == [22, 21, 21] and shard_sizes(64, 2, [3, 1]) == [48, 16]


def best_members(link: Link = LINK) -> list[int]:
    """Of MEMBERS, for root, tree, course's ring and (12c); that both rings are slower at 32 than at 4 comes with it."""
    step = names()["one_step"]
    times = [[simulate(lambda g, w=w: step(g, w), K, link=link).seconds for K in MEMBERS] for w in KERNELS.values()]
    times.append([8e-3 / K + ring_seconds(link, 4 * N, K) for K in MEMBERS])
    return [MEMBERS[int(np.argmin(each))] for each in times] + [int(each[4] > each[1]) for each in times[2:]]


def eight_or_sixteen_are_best() -> bool:
    return best_members() == [4, 16, 8, 8, 1, 1]


def on_the_fast_network() -> bool:
    return best_members(Link(5e-6, 25e9))[:4] == [16, 32, 16, 32]


def overlapped_by_a_ring_that_sends_first() -> bool:
    found = [1e3 * names()["overlapped"](parts).seconds for parts in (1, 4, 16, 100)]
    return bool(np.allclose(found, [10.7, 8.9, 8.45, 32.5], atol=0.05))


@functools.cache
def plans(seed: int) -> list[float]:
    """The shares that are right, by plan."""
    shipped = [names()["datasets"].mnist(part, name="mnist_sample") for part in ("train", "test")]
    found = names()["larger_batches"](*shipped, names()["course"], epochs=12, warm=4, seeds=(seed,))
    return [100 * share for (share,) in found.values()]


def fewer_steps_lose(seed: int) -> bool:
    return 1.5 < plans(seed)[0] - plans(seed)[1] < 4.5


def warm_up_is_ahead(seed: int) -> bool:
    return plans(seed)[3] > plans(seed)[1]


def the_large_rate_depends_on_the_seed() -> bool:
    gains = [plans(seed)[2] - plans(seed)[1] for seed in range(1, 6)]
    return max(gains) > 1.5 and min(gains) <= 0


def digits_that_ship() -> bool:
    shipped = [names()["datasets"].mnist(part, name="mnist_sample") for part in ("train", "test")]
    return [len(part.X) for part in shipped] == [3000, 600]


def zero_has_the_same_bits(seed: int) -> bool:
    def zero_step(group, W, G, adam):  # as in the answer
        reduce_scatter["ring"](group, G)
        own = (group.rank + 1) % group.size
        adam.step(np.array_split(W, group.size)[own], np.array_split(G, group.size)[own], 0.001, names()["course"])
        all_gather["ring"](group, W)

    names()["new_network"].__defaults__ = (seed,)
    run = [simulate(lambda g, s=s: names()["five_steps"](g, s), 4).results for s in (names()["usual_step"], zero_step)]
    bits = all((run[0][0][0] == W).all() for results in run for W, _ in results)
    return bits and all(round(run[0][0][1] / size) == 4 for _, size in run[1])


def sums_and_steps_on_gpus() -> bool:
    """What gpu-answer says of the recorded times."""
    sums, steps = recorded("all_reduce")["records"], recorded("data_parallel")["records"]
    long = [each["seconds"] for each in sums if (each["devices"], each["n"]) == (2, 21_283_017)]
    nccl = {
        K: {e["n"]: e["seconds"] for e in sums if (e["devices"], e["contender"]) == (K, "NCCL, launched")}
        for K in (2, 4)
    }
    betas = [fit_link([4 * n for n in by], list(by.values())).bandwidth * 2 * (K - 1) / K for K, by in nccl.items()]
    least = {
        (batch, K): min(e["seconds_a_step"] for e in steps if (e["batch"], e["devices"]) == (batch, K))
        for batch in (64, 256, 4096)
        for K in (1, 2, 4)
    }
    pays = [least[batch, 2] < least[batch, 1] for batch in (64, 256)]
    gains = [round(least[4096, 1] / least[4096, K], 1) for K in (2, 4)]
    rounded = [round(beta / 1e9) for beta in betas]
    return max(long) < 1.25 * min(long) and pays == [False, True] and gains == [1.8, 3.2] and rounded == [273, 357]


@functools.cache
def waits(seed: int) -> tuple[float, ...]:
    """Mean waits in ms: one, two and four devices with 80 images a second, two with 160."""
    mean = names()["arrival_to_answer"]
    return tuple(mean(K, rate, seed, images=50_000) - 10 for K, rate in ((1, 80), (2, 80), (4, 80), (2, 160)))


def two_thirds_are_wait(seed: int) -> bool:
    return 18 < waits(seed)[0] < 22


def more_devices_shorten_the_wait(seed: int) -> bool:
    one, two, four, _ = waits(seed)
    return round(two) == 1 and 0 <= four < 0.05 * two < one


def the_queue_grows(seed: int) -> bool:
    first, later = (names()["arrival_to_answer"](1, 160, seed, images=images) for images in (2_000, 4_000))
    return bool(1.8 < later / first < 2.2)


def two_wait_half_as_long(seed: int) -> bool:
    return 0.4 < waits(seed)[3] / waits(seed)[0] < 0.55


SLIDES = "source: the UNIR slides, distributed training"

CLAIMS = [
    Claim("why", "several cheap machines often cost less", why=SLIDES),
    Claim("why", "In practice data parallelism, the subject of this notebook, is used more often", why=SLIDES),
    Claim("why", "It usually keeps all devices at work", why=f"{SLIDES}; notebook 12b, cell pipeline-answer"),
    Claim("why", "It survives the loss of a device", why=SLIDES),
    Claim("why", "The more machines there are, the more likely it is that one fails", why=SLIDES),
    Claim("by-hand-answer", "each of the 8 rows counts three times", why="derived: (1/2)/8 against (1/2)/24"),
    Claim("root-words", "50 + 102 = 152 µs", once=root_of_eight),
    Claim("root-answer", "14 times 152 µs, 2.1 ms", once=root_of_eight),
    Claim("ring-answer", "So it takes twice as long", once=turns_take_twice_as_long),
    Claim("curves-answer", "the tree has 12, ring and root have 126", once=rounds_of_64_and_where_they_cross),
    Claim("curves-answer", "They cross at about 140,000 numbers", once=rounds_of_64_and_where_they_cross),
    Claim("curves-answer", "Our 25,450 numbers are in between", once=ring_is_ahead_up_to_8),
    Claim("curves-answer", "Up to 8 members a ring by (12c) is ahead", once=ring_is_ahead_up_to_8),
    Claim("unbuffered-answer", "then takes twice as long", once=turns_take_twice_as_long),
    Claim("training-words", "gives rank 0 three times as many rows as rank 1", once=rows_of_members),
    Claim("training-answer", "Three members get 22, 21 and 21 rows", once=rows_of_members),
    Claim("speedup-answer", "8 or 16 are best for the tree and the rings", once=eight_or_sixteen_are_best),
    Claim("overlap-words", "Four devices need 8 ms", why="definition: of the simulation"),
    Claim("overlap-answer", "10.7, 8.9, 8.5 and 32 ms", once=overlapped_by_a_ring_that_sends_first),
    Claim("large-words", "12 epochs on the 3,000 digits that ship with the course", once=digits_that_ship),
    Claim("large-answer", "Plan 2 loses two to four percentage points", seeds=fewer_steps_lose),
    Claim(
        "large-answer",
        "brings back some of it with some seeds, and nothing with others",
        once=the_large_rate_depends_on_the_seed,
    ),
    Claim("large-answer", "plan 4 is ahead of plan 2 with each seed", seeds=warm_up_is_ahead),
    Claim("large-answer", "6 of 600 test digits", once=digits_that_ship),
    Claim("pipeline-words", "18.75 MB of activations per image", why="source: notebook 14, cells plan and memory-run"),
    Claim("zero-words", "each weight brings 16 bytes", why="derived: four float32 numbers"),
    Claim("zero-words", "the optimiser 12", why="source: Rajbhandari and others, ZeRO (2020), section 3.1"),
    Claim("zero-answer", "the same to the last bit", seeds=zero_has_the_same_bits),
    Claim("gpu-answer", "differ by less than a quarter", once=sums_and_steps_on_gpus),
    Claim("gpu-answer", "Two GPUs pay from 256 rows on", once=sums_and_steps_on_gpus),
    Claim("gpu-answer", "With 4,096 rows two are 1.8 times as fast", once=sums_and_steps_on_gpus),
    Claim("gpu-answer", "The links carry 273 and 357", once=sums_and_steps_on_gpus),
    Claim("arrivals-words", "A device takes 10 ms for an image", why="definition: of the simulation"),
    Claim("arrivals-answer", "one device answers after about 30 ms", seeds=two_thirds_are_wait),
    Claim("arrivals-answer", "so 20 of the 30 ms are wait", seeds=two_thirds_are_wait),
    Claim("arrivals-answer", "more devices shorten the wait", seeds=more_devices_shorten_the_wait),
    Claim("arrivals-answer", "its queue grows until the images stop", seeds=the_queue_grows),
    Claim("arrivals-answer", "the images wait only half as long", seeds=two_wait_half_as_long),
    Claim(
        "arrivals-answer",
        "images arrive one after the other, at random times, or all at once",
        why="source: Reddi and others, MLPerf Inference Benchmark (2020): single stream, server, offline",
    ),
    Claim("more-answer", "slower with 32; the tree and a ring by (12c) still gain at 32", once=on_the_fast_network),
    Claim("appendix", "With 128 images on each it reached 74 %", why="source: the Cantabria thesis"),
    Claim("appendix", "for later work", why="source: the Cantabria thesis, section 5.2"),
]
