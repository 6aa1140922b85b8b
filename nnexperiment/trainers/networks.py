"""Time training steps of a network, compared with PyTorch and JAX, for `nncourse time --network` and
benchmarks/networks.py. nnclassroom/timing/network_records.py describes a record of times in words.
"""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

from nnclassroom.timing.network_records import COMPILED, OURS
from nncourse.model.network import Network, flops
from nncourse.model.optimizers import Optimizer
from nnexperiment.trainers import jax_training, pytorch_training
from nnexperiment.trainers.training import Problem, Trainer, drawn, error_of, own

SAMPLES, MOST_STEPS = 50_000, {"gpu": 5_000, "cpu": 2_000}  # of an epoch, at most
WORK = 4e9  # FLOPs of an epoch on a CPU
# Of error_of(). Float32 gives 1e-5, or up to 0.023 if rounding decides which pixel is the largest, or above zero.
TOLERANCE = 0.05
# Steps that are timed on a GPU, for contenders without extra costs per epoch.
TIMED = {"PyTorch eager": 200, "PyTorch graph": 2_000, COMPILED: 2_000}


def problem_of(network: Network, batch: int, optimizer: Optimizer, device: str, least: int = 3) -> Problem:
    """Random samples for an epoch of at least this many whole batches; on a CPU fewer for a larger network."""
    steps = min(SAMPLES // batch, MOST_STEPS[device])
    if device == "cpu":
        steps = min(steps, int(WORK / (3 * batch * sum(flops(network)))))
    return drawn(network, batch, optimizer, batch * max(least, steps))


def contenders(
    device: str, backends: dict[str, Any], threads: int | None = None
) -> dict[str, Callable[[Problem], Trainer]]:
    """make(problem) -> Trainer for each contender. `backends`: ours, by name. `threads`: on a CPU, for all but JAX."""
    ours = {OURS + name: own(backend, threads) for name, backend in backends.items()}
    if device == "cpu":
        return ours | {
            "PyTorch eager": pytorch_training.eager("cpu", threads=threads),
            "JAX scan": jax_training.scan("cpu"),
        }
    return ours | {
        "PyTorch eager": pytorch_training.eager("cuda"),
        "PyTorch graph": pytorch_training.graph(pytorch_training.eager_step),
        COMPILED: pytorch_training.graph(pytorch_training.compiled_update_step),
        "JAX scan": jax_training.scan("gpu"),
    }


def not_installed(names: Iterable[str]) -> dict[str, str]:
    """The reason why contenders of these names are left out here: a missing library."""
    libraries = {name: "jax" if name.startswith("JAX") else "torch" for name in names if not name.startswith(OURS)}
    return {name: f"{library} is not installed" for name, library in libraries.items() if not find_spec(library)}


def seconds_a_step(trainer: Trainer, steps: int) -> float:
    """The mean time of the first steps, beginning with the initial parameters."""
    trainer.begin()
    return trainer.train(steps) / steps


def prepared(
    name: str, make: Callable[[Problem], Trainer], problem: Problem, device: str, check: bool
) -> tuple[Trainer, int]:
    """A contender that is compiled and warm, and the number of steps to time. DisagreesError if its steps are wrong."""
    trainer = make(problem)
    if check:
        trainer.facts["error"] = error_of(trainer, problem, TOLERANCE)
    steps = min(problem.steps, TIMED.get(name, problem.steps)) if device == "gpu" else problem.steps
    seconds_a_step(trainer, steps)
    return trainer, steps


def compare(
    problem: Problem, makers: dict[str, Callable[[Problem], Trainer]], device: str, rounds: int
) -> dict[str, Any]:
    """Time the contenders in turn, round by round, in this process. Returns the record."""
    ready, left_out = {}, not_installed(makers)
    for name, make in makers.items():
        if name not in left_out:
            try:
                ready[name] = prepared(name, make, problem, device, check=False)
            except Exception as error:  # libraries may raise anything; the others are still of interest
                if name.startswith(OURS):
                    raise
                left_out[name] = next(iter(str(error).splitlines()), type(error).__name__)
    times: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, (trainer, steps) in ready.items():
            times[name].append(seconds_a_step(trainer, steps))
    return record(times, {name: {"steps": steps} | trainer.facts for name, (trainer, steps) in ready.items()}, left_out)


def record(times: dict[str, list[float]], facts: dict[str, dict[str, Any]], left_out: dict[str, str]) -> dict[str, Any]:
    """The seconds per step in each round, the facts about each contender, and why others are missing."""
    there = {name: {"seconds_a_step": min(rounds), "rounds": rounds} | facts[name] for name, rounds in times.items()}
    return {"contenders": there, "left_out": left_out}
