"""The evidence for notebook 12b: its own cells on the simulated group, and checkpoints of processes that are killed."""

import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from claims import Claim
from claims.cells import defined
from nnclassroom.notebook import engines
from nnclassroom.widgets import downpour
from nncourse import SGD, Adam, History, datasets, make_network, train
from nncourse.model import files
from nncourse.parallel import Link, simulate

EQUAL, SLOW = downpour.Settings(slowness=1.0), downpour.Settings()
ALONE = downpour.Settings(workers=1, slowness=1.0)


@functools.cache
def names(*ids: str) -> dict[str, Any]:
    return defined("12b_other_ways", "setup", "data", *ids)


# ---- averages


@functools.cache
def averaged(seed: int, optimizer: type, rounds: int) -> tuple[float, float, float]:
    """How far averages end from synchronous training, as a share of its way; their way as a share; numbers sent."""
    there = names("averaging-run")
    there["new_network"].__defaults__ = (seed,)
    rate = 0.1 if optimizer is SGD else 0.001
    one, start = there["new_network"](), there["new_network"]().flat_parameters
    options = {"epochs": 1, "batch_size": 64, "learning_rate": rate, "optimizer": optimizer()}
    train(one, there["X"][:1280], there["Y"][:1280], there["course"], **options)
    run = simulate(lambda group: there["average"](group, rounds, optimizer, rate), 4)
    way, own = one.flat_parameters - start, run.results[0].flat_parameters - start
    length = np.linalg.norm(way)
    return float(np.linalg.norm(own - way) / length), float(np.linalg.norm(own) / length), run.sent(1)


def only_plain_sgd_with_one_batch_is_the_same(seed: int) -> bool:
    others = [averaged(seed, SGD, 5), averaged(seed, SGD, 20), averaged(seed, Adam, 1)]
    return averaged(seed, SGD, 1)[0] < 1e-4 and min(far for far, _, _ in others) > 0.05


def adams_steps_are_shorter(seed: int) -> bool:
    return averaged(seed, Adam, 1)[1] < 0.9


def what_is_sent() -> bool:
    sent = {key: averaged(1, *key)[2] for key in ((SGD, 1), (SGD, 5), (SGD, 20), (Adam, 1))}
    shares = [sent[SGD, 1] / sent[key] for key in ((SGD, 5), (SGD, 20))]
    return bool(np.allclose(shares, [5, 20], rtol=0.05) and np.isclose(sent[Adam, 1] / sent[SGD, 1], 3, rtol=0.05))


# ---- Downpour


def pushes_and_staleness() -> bool:
    there = names("downpour-run")
    pushes, staleness = there["arrivals"].pushes, there["arrivals"].staleness
    own = max(staleness, key=lambda age: staleness[age] if age > 5 else 0)
    often = [age for age, count in staleness.items() if count > 20]
    return [round(pushes[rank] / pushes[4]) for rank in (1, 2, 3)] == [4] * 3 and sorted(often) == [2, 3] and own == 12


def cost_at(course: downpour.Course, time: float) -> float:
    return float(course.costs[np.searchsorted(course.times, time, side="right") - 1])


def what_the_widget_shows() -> bool:
    slow, quick, one = downpour.synchronous(SLOW), downpour.asynchronous(SLOW), downpour.synchronous(ALONE)
    updates = len(slow.costs) - 1, len(quick.costs) - 1
    alike = abs(slow.costs[15] / quick.costs[15] - 1) < 0.2
    over_time = cost_at(quick, 50) < cost_at(one, 50) < cost_at(slow, 50)
    equal = cost_at(downpour.asynchronous(EQUAL), 50) < cost_at(downpour.synchronous(EQUAL), 50)
    return updates == (19, 319) and alike and over_time and equal


def largest_rates() -> bool:
    def comes_down(workers: int, rate: float) -> bool:
        course = downpour.asynchronous(downpour.Settings(workers, 1.0, rate))
        return bool(course.costs[-1] < 0.05 * course.costs[0])

    return [comes_down(16, 0.1), comes_down(16, 0.15), comes_down(4, 0.4), comes_down(4, 0.5)] == [True, False] * 2


# ---- pipelines


def bubbles() -> bool:
    def bubble(M: int, K: int = 4) -> float:
        return (K - 1) / (M + K - 1)

    there, link = names("pipeline-one"), Link(50e-6, 1e9)
    idle = [there["timeline"].idle_share(there["pipelined"](count, link=link)[0]) for count in (16, 32)]
    least = [next(M for M in range(1, 99) if bubble(M, K) < 0.1) for K in (4, 8)]
    return least == [28, 64] and idle[1] > idle[0]


# ---- checkpoints

SAVES = """
from nncourse import Adam, make_network
from nncourse.model import files
model = files.Model(make_network((784, 192, 10), "relu", "mse", seed=1), optimizer=Adam())
for epochs in range(10_000):
    model.provenance["epochs"] = epochs
    files.save(model, "kept.npz")
    print(epochs, flush=True)
"""


def a_checkpoint_is_whole_whenever_its_writer_dies(seed: int) -> bool:
    rng = np.random.default_rng(seed)
    for _ in range(4):
        with tempfile.TemporaryDirectory() as folder:
            writer = subprocess.Popen([sys.executable, "-c", SAVES], cwd=folder, stdout=subprocess.PIPE, text=True)
            assert writer.stdout
            seen = [int(writer.stdout.readline()) for _ in range(rng.integers(1, 20))]
            try:
                writer.wait(rng.uniform(0, 0.02))  # somewhere in one of the next saves
            except subprocess.TimeoutExpired:
                writer.kill()
            writer.communicate()
            if files.load(Path(folder) / "kept.npz").provenance["epochs"] < seen[-1]:
                return False
    return True


@functools.cache
def six_epochs(seed: int, resumed: str = "") -> np.ndarray:
    """The parameters; `resumed` after three epochs from a file, "with" or "without" what Adam remembers."""
    data, backend = datasets.mnist("train", name="mnist_sample"), names()["course"]
    model = files.Model(make_network((784, 32, 10), "relu", "categorical_cross_entropy", seed=seed), optimizer=Adam())
    for done in range(6):
        if done == 3 and resumed:
            with tempfile.TemporaryDirectory() as folder:
                files.save(model, Path(folder) / "kept.npz")
                model = files.load(Path(folder) / "kept.npz")
        optimizer = Adam() if done == 3 and resumed == "without" else model.optimizer
        model = files.Model(model.network, optimizer=optimizer)
        options = {"epochs": 1, "batch_size": 64, "learning_rate": 0.001, "optimizer": model.optimizer}
        train(model.network, data.X, data.Y, backend, after=History(before=done), **options)
    return model.network.flat_parameters


def resumed_it_is_the_same_network(seed: int) -> bool:
    return bool((six_epochs(seed) == six_epochs(seed, "with")).all())


def without_adams_memory_it_goes_further(seed: int) -> bool:
    lengths = [float(np.linalg.norm(six_epochs(seed, resumed))) for resumed in ("", "without")]
    return lengths[1] > lengths[0] + 0.1


def half_a_minute() -> bool:
    return engines.SECONDS == 30


CLAIMS = [
    Claim(
        "averaging-answer", "Only plain SGD with one batch per round", seeds=only_plain_sgd_with_one_batch_is_the_same
    ),
    Claim("averaging-answer", "It sends a fifth or a twentieth", once=what_is_sent),
    Claim("averaging-answer", "so its steps are shorter", seeds=adams_steps_are_shorter),
    Claim("averaging-answer", "so three times as much is sent", once=what_is_sent),
    Claim("downpour-answer", "push four times as often as the slow one", once=pushes_and_staleness),
    Claim("downpour-answer", "Their staleness is 2, or 3", once=pushes_and_staleness),
    Claim("downpour-why", "19 updates while Downpour makes 319", once=what_the_widget_shows),
    Claim("downpour-why", "With equal workers Downpour is still ahead", once=what_the_widget_shows),
    Claim("downpour-why", "about 0.1 with 16 workers, 0.4 with 4", once=largest_rates),
    Claim("bubble-answer", "From M = 28 on it is below 10 %", once=bubbles),
    Claim("bubble-answer", "32 micro-batches are no better than 16", once=bubbles),
    Claim("real-words", "A cell may take 30 seconds", once=half_a_minute),
    Claim("own-program-answer", "ends with the same numbers", seeds=resumed_it_is_the_same_network),
    Claim("own-program-answer", "rank 0 lost 3 of 21 races", why="source: 21 starts on two busy cores, November 2026"),
    Claim(
        "torn-words",
        "The checkpoint is whole, whoever wins",
        seeds=a_checkpoint_is_whole_whenever_its_writer_dies,
    ),
    Claim("more", "ends more than 0.1 above", seeds=without_adams_memory_it_goes_further),
    Claim("more", "Eight devices need 64 micro-batches", once=bubbles),
]
