"""The evidence for what notebook 08 claims."""

import functools

import numpy as np

from claims import Claim
from nnclassroom import PretendGpu, anatomy, choose, find, overheads, speedup, step_profile
from nnclassroom.exercises.nb08 import MOST
from nncourse import make_network, metrics, train

SIZES = (30, 60, 10, 1)
BY_HAND = "source: timed by hand with CuPy 14.2 and in C++ on an H200 on 2026-11-28; no script records it"


def most_arithmetic_is_in_the_products() -> bool:
    parts = step_profile(make_network(SIZES), *overheads.samples(SIZES, 10), choose("numpy")).by_operation
    flops = {part.operation: part.flops for part in parts}
    return bool(0.85 < sum(flops[name] for name in anatomy.PRODUCTS) / sum(flops.values()) < 0.95)


def hardly_any_difference() -> bool:
    """For products that take up to 40 % of a step; the ceiling of a share is never passed."""
    for p in (0.2, 0.3, 0.4):
        few, many, endless = (1 / (1 - p + p / s) for s in (20, 1000, 1e9))
        if many / few > 1.04 or endless > 1 / (1 - p):
            return False
    return True


@functools.cache
def scores(seed: int, size: int, rate: float) -> float:
    """F1 of fraud after five epochs, on the stand-in for the transactions."""
    data, test = speedup.scaled(*speedup.load_sets()[:2])
    network = make_network(SIZES, seed=seed)
    train(network, data.X, data.Y, choose("numpy"), epochs=5, batch_size=size, learning_rate=rate, seed=seed)
    return float(metrics.f1(metrics.confusion(network, test.X, test.Y, choose("numpy")))[1])


def small_batches_learn_most(seed: int) -> bool:
    few, ten, hundred, thousand = (scores(seed, size, 0.5) for size in (1, 10, 100, 1000))
    return min(few, ten) > max(hundred, thousand)


def a_large_batch_learns_nothing(seed: int) -> bool:
    return scores(seed, 100, 0.5) == scores(seed, 1000, 0.5) == 0 < scores(seed, 10, 0.5)


def a_growing_rate_makes_up(seed: int) -> bool:
    return scores(seed, 100, 5.0) > max(0.6, scores(seed, 100, 0.5))


def at_50_nothing_is_learnt(seed: int) -> bool:
    return scores(seed, 1000, 50.0) == 0


def copies_to_the_cpu_get_slower() -> bool:
    rate = {trip["bytes"]: trip["bytes"] / trip["back"] for trip in overheads.recorded("overheads")["transfers"]}
    return bool(max(size for size in rate if rate[size] > 5e9) < 64e6 and max(rate[1 << 26], rate[1 << 28]) < 3e9)


def queued(kernel: float, count: int) -> PretendGpu:
    gpu = PretendGpu(5e-6, kernel, compiling=0)
    for _ in range(count):
        gpu.launch()
    return gpu


def the_cpu_is_done_and_the_gpu_never_idle() -> bool:
    gpu = queued(20e-6, 5)
    ends = [end for _, end in gpu.runs]
    return bool(np.isclose(gpu.now, 25e-6) and np.allclose(ends[:-1], [begin for begin, _ in gpu.runs[1:]]))


def idle_most_of_the_time() -> bool:
    """Also with kernels that take no time: the last one ends hardly earlier."""
    gpu, faster = queued(2e-6, 5), queued(0, 5)
    return bool(sum(end - begin for begin, end in gpu.runs) < gpu.free_at / 2 and faster.free_at > 0.9 * gpu.free_at)


def a_product_in_a_nanosecond() -> bool:
    flops = find("dense_forward").flops
    return bool(flops is not None and flops(10, 30, 60) == 36_000 and 36_000 / 50e12 < 1e-9)


def launching_was_most_of_the_step() -> bool:
    found = {
        (each["contender"], each["network"], each["optimizer"]): each["seconds_a_step"]
        for each in overheads.recorded("recorded")["records"]
    }
    pairs = [(found[key], found["recorded", *key[1:]]) for key in found if key[0] == "launched"]
    naive = [(found[key], found["naive, recorded", *key[1:]]) for key in found if key[0] == "naive, launched"]
    factors, slower = ([launched / recorded for launched, recorded in some] for some in (pairs, naive))
    return bool(min(factors + slower) > 2 and all(a > b for a, b in zip(factors, slower, strict=True)))


def seven_in_place_of_five() -> bool:
    gpu = PretendGpu(5e-6, 2e-6, compiling=0)
    for _ in range(10):
        gpu.launch()
        gpu.synchronise()
    return bool(np.isclose(gpu.now / 10, 7e-6))


def the_limits_are_those_of_the_kernel() -> bool:
    return MOST == "n_in <= 32, n_hidden <= 32, n_out <= 4, batch <= 16, batch >= 1"


def one_of_132() -> bool:
    chip, floors = overheads.recorded("overheads")["chip"], overheads.table("floors")
    return bool(chip["multiprocessors"] == 132 and floors[0]["network"] == "30-60-10-1" and floors[0]["blocks"] == 1)


CLAIMS = [
    Claim("my-step-answer", "16 blocks occupy at most 16", why="derived: a block stays on its multiprocessor"),
    Claim("travel-answer", "12 transfers per step", why="derived: nine and three"),
    Claim("travel-answer", "56 transfers for twenty launches", why="derived: 36 and 20 in the table above"),
    Claim("profile-answer", "Suppose the products move", why="definition: an assumption"),
    Claim("profile-answer", "as it is, with products ten times as fast", why="definition: what the bars are"),
    Claim("profile-answer", "nine tenths of the arithmetic", once=most_arithmetic_is_in_the_products),
    Claim(
        "profile-answer",
        "(of ten times as many weights)",
        why="derived: 23,860 parameters against 2,481; the share was 25 % on one machine, 38 % on another",
    ),
    Claim("amdahl", "times as fast, the whole step gets", why="derived: the time that is left is (1 − p) + p / s"),
    Claim("amdahl", "times as fast.", why="derived: p / s is positive, so (1 − p) is the least that is left"),
    Claim("amdahl-answer", "are worth no more than that", once=hardly_any_difference),
    Claim("amdahl-answer", "20 or 1,000 times as fast", once=hardly_any_difference),
    Claim("amdahl-answer", "not enough to move what computes most", why="derived: the ceilings of the figure"),
    Claim("moved-words", "at 6 to 12 GB/s from pageable memory", why=BY_HAND),
    Claim("moved-words", "copies to the CPU get slower from 64 MB on", once=copies_to_the_cpu_get_slower),
    Claim("once", "samples and targets | once", why="definition: what the functions below do"),
    Claim("once", "never: they are made there", why="definition: what the functions below do"),
    Claim("once", "never: they are counted there", why="definition: what the functions below do"),
    Claim("once", "its four numbers", why="definition: what the functions below do"),
    Claim("host-words", "you have written most of them", why="source: exercises of notebooks 02 to 06"),
    Claim("host-answer", "You need two blocks", why="derived: 500 / 256, rounded up, is 2"),
    Claim("host-unchecked-words", "because it asks", why="derived: without the checks, below, it reports nothing"),
    Claim("host-unchecked-words", "CUDA 13 calls it", why="source: CUDA 12 and 13, tests/test_host_side.py"),
    Claim("host-unchecked-answer", "31 that idle", why="derived: a warp has 32 threads"),
    Claim("timeline-answer", "after 25 µs", once=the_cpu_is_done_and_the_gpu_never_idle),
    Claim("timeline-answer", "idle most of the time", once=idle_most_of_the_time),
    Claim("timeline-answer", "36,000 FLOPs for ten samples", once=a_product_in_a_nanosecond),
    Claim("launch-cost-words", "7.7 µs with CuPy and about 4 µs from C++", why=BY_HAND),
    Claim("lie-words", "A launch takes 5 µs", why="definition: arguments of PretendGpu below"),
    Claim("lie-real-words", "400 times too fast", why="derived: 2,005 µs / 5 µs"),
    Claim("limits-predict", "a batch of 50", why="source: overheads.NETWORKS"),
    Claim("batch-words", "batches of 1, 10, 100 and 1,000", why="definition: the cell below"),
    Claim("batch-answer", "batches of 1 and 10 learn most", seeds=small_batches_learn_most),
    Claim("batch-answer", "At 100 and at 1,000 no fraud has a score above 0.5", seeds=a_large_batch_learns_nothing),
    Claim("batch-answer", "makes up for it at 100", seeds=a_growing_rate_makes_up),
    Claim("batch-answer", "nothing is learnt", seeds=at_50_nothing_is_learnt),
    Claim("record-words", "for up to 20 steps at a time", why="source: nncourse/model/recorded_steps.py"),
    Claim("record-answer", "Launching was most of the step", once=launching_was_most_of_the_step),
    Claim("epoch-words", "The times are made up: 5 µs for a launch", why="definition: of the figure"),
    Claim("epoch-words", "there are still 20 kernels per step", why="source: the profile above has 20 calls"),
    Claim("epoch-words", "20 per step, and a copy that joins the gradients", why="source: the profile above"),
    Claim("epoch-words", "1 for 20 steps", why="source: nncourse/model/recorded_steps.py"),
    Claim("one-block-words", "at most 32 inputs", once=the_limits_are_those_of_the_kernel),
    Claim("gpu-epoch-words", "how many times as fast as JAX", why="definition: the column"),
    Claim("floors-after", "out of 132", once=one_of_132),
    Claim("cc-after", "300 · 440 steps of 1.42 µs are 187", why="derived: 300 · 440 · 1.42 µs"),
    Claim("cc-after", "if reading a file takes most of the time", why="derived: Amdahl's law"),
    Claim("try-answers", "the first of the ten launches never did", why="derived: there is no kernel before it"),
    Claim("try-answers", "7 µs in place of 5", once=seven_in_place_of_five),
]
