"""Training steps of networks beside PyTorch's and JAX's, for `nncourse time --network` and benchmarks/networks.py.

A record of a network that was timed is a dictionary, as benchmarks/README.md describes it.
"""

import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

from nnclassroom.formats import duration, three_digits, times_as_fast
from nnclassroom.timing import jax_training, pytorch_training
from nnclassroom.timing.training import Problem, Trainer, drawn, error_of, own
from nncourse.model.network import Network, flops
from nncourse.model.optimizers import Optimizer

SAMPLES, MOST_STEPS = 50_000, {"gpu": 5_000, "cpu": 2_000}  # of an epoch, at most
WORK = 4e9  # FLOPs of an epoch on a CPU
COMPILED = "PyTorch compile + graph"
# Of error_of(). Float32 gives 1e-5, and up to 5e-3 where rounding decides which pixel is the largest, or above zero.
TOLERANCE = 0.02
OURS = "nncourse "  # begins the name of each of the course's contenders; a backend follows
# Steps that are timed on a GPU, of contenders without a cost of their own for each epoch.
TIMED = {"PyTorch eager": 200, "PyTorch graph": 2_000, COMPILED: 2_000}
SHORT = {"PyTorch eager": "eager", "PyTorch graph": "graph", COMPILED: "compile", "JAX scan": "JAX"}
REFERENCES = {"gpu": ("JAX scan", "PyTorch graph", "PyTorch eager"), "cpu": ("PyTorch eager", "JAX scan")}
WIDTH, COLUMN, PLAN, CASE = 80, 7, 11, 16  # of the table: all, of a time, of a plan, of batch and optimizer


def problem_of(network: Network, batch: int, optimizer: Optimizer, device: str, least: int = 3) -> Problem:
    """Random samples for an epoch of whole batches, at least so many; on a CPU fewer of a larger network."""
    steps = min(SAMPLES // batch, MOST_STEPS[device])
    if device == "cpu":
        steps = min(steps, int(WORK / (3 * batch * sum(flops(network)))))
    return drawn(network, batch, optimizer, batch * max(least, steps))


def contenders(device: str, backends: dict[str, Any], threads: int | None = None) -> dict[str, Callable]:
    """make(problem) -> Trainer of each contender. `backends`: ours, by name. On a CPU `threads` is for all but JAX."""
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
    """Why contenders of these names are left out here: their library is missing."""
    libraries = {name: "jax" if name.startswith("JAX") else "torch" for name in names if not name.startswith(OURS)}
    return {name: f"{library} is not installed" for name, library in libraries.items() if not find_spec(library)}


def seconds_a_step(trainer: Trainer, steps: int) -> float:
    """The mean of the first steps, from the first parameters on."""
    trainer.begin()
    return trainer.train(steps) / steps


def prepared(name: str, make: Callable[[Problem], Trainer], problem: Problem, device: str, check: bool) -> tuple:
    """A contender that is compiled and warm, and the steps to time. Raises DisagreesError if its steps are wrong."""
    trainer = make(problem)
    if check:
        trainer.facts["error"] = error_of(trainer, problem, TOLERANCE)
    steps = min(problem.steps, TIMED.get(name, problem.steps)) if device == "gpu" else problem.steps
    seconds_a_step(trainer, steps)
    return trainer, steps


def compare(problem: Problem, makers: dict[str, Callable], device: str, rounds: int) -> dict:
    """The record of contenders that are timed in turn, round by round, in this process."""
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


def record(times: dict[str, list[float]], facts: dict[str, dict], left_out: dict[str, str]) -> dict:
    """Seconds a step of each round, the facts of each contender, and why others are missing."""
    there = {name: {"seconds_a_step": min(rounds), "rounds": rounds} | facts[name] for name, rounds in times.items()}
    return {"contenders": there, "left_out": left_out}


def best_of_ours(found: dict) -> str | None:
    """The name of the course's fastest contender in a record."""
    ours = {name: each["seconds_a_step"] for name, each in found["contenders"].items() if name.startswith(OURS)}
    return min(ours, key=ours.__getitem__) if ours else None


def ratio(found: dict, other: str) -> float | None:
    """How many times as fast as another contender the course's fastest is, in a record; None if one is missing."""
    ours, there = best_of_ours(found), found["contenders"]
    return there[other]["seconds_a_step"] / there[ours]["seconds_a_step"] if ours and other in there else None


def reference(records: Sequence[dict], device: str) -> str:
    """The contender to compare with: the first of REFERENCES that ran in any record."""
    ran = {name for found in records for name in found["contenders"]}
    return next((name for name in REFERENCES[device] if name in ran), REFERENCES[device][0])


def names_of(records: Sequence[dict]) -> list[str]:
    """The contenders of the records: the course's, then the others."""
    found = dict.fromkeys(name for each in records for name in each["contenders"])
    return sorted(found, key=lambda name: list(SHORT).index(name) if name in SHORT else -1)


# ---- as text of 80 columns


def in_words(found: dict) -> str:
    """A line for each contender of one record, and the reasons why others are missing."""
    there = found["contenders"]
    lines = [f"{'':24} {'a step':>10} {'× PyTorch':>10}  plan"]
    for name, each in there.items():
        base = there.get("PyTorch eager")
        speed = times_as_fast(base["seconds_a_step"] / each["seconds_a_step"]) if base else "–"
        plan = f"  {each['kernel']}" if "kernel" in each else ""
        lines.append(f"{name:24} {duration(each['seconds_a_step']):>10} {speed:>10}{plan}")
    return "\n".join([*lines, *(wrapped(f"{name}: {why}") for name, why in found["left_out"].items())])


def wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def head(names: Sequence[str], over: str) -> str:
    """The first line of a table of records with these contenders."""
    columns = "".join(f"{short(name):>{COLUMN}}" for name in names)
    first = f"{'µs a step':{_network_width(names)}}{'batch optimizer':{CASE}}"
    return f"{first}{columns} {'plan':{PLAN - 1}}{'× ' + short(over):>{COLUMN}}"


def line(found: dict, names: Sequence[str], over: str) -> str:
    """A record's line: its number and network, batch and optimizer, times, the plan of the fastest of ours, a ratio.

    A long network has a line of its own before it.
    """
    there, best, times, wide = found["contenders"], best_of_ours(found), ratio(found, over), _network_width(names)
    layers = found["layers"].replace(",", " " if found["layers"].startswith("image") else "-")
    network = f"{found.get('row', ''):>2} {layers}"
    first = f"{network:{wide}}" if len(network) < wide else f"{network}\n{'':{wide}}"
    case = f"{found['batch']} {found['optimizer'].replace('momentum=', 'm').replace(',', ' ')}"
    columns = "".join(f"{micro(there[name]['seconds_a_step']) if name in there else '–':>{COLUMN}}" for name in names)
    plan = there[best].get("kernel", "").removesuffix("_steps") if best else "–"  # "recorded" says it too
    last = f"{three_digits(times)}×" if times else "–"
    return f"{first}{case:{CASE}}{columns} {plan:{PLAN - 1}}{last:>{COLUMN}}"


def summary(records: Sequence[dict], names: Sequence[str]) -> list[str]:
    """For each contender that is not ours: the least and the median ratio of our speed to its."""
    lines = []
    for name in names:
        found = {id(each): times for each in records if (times := ratio(each, name))}
        if name.startswith(OURS) or not found:
            continue
        least = min((each for each in records if id(each) in found), key=lambda each: found[id(each)])
        median = statistics.median(found.values())
        lines.append(
            f"times {name}'s speed: least {three_digits(ratio(least, name))} (row {least.get('row', '–')}), "
            f"median {three_digits(median)}, of {len(found)} rows"
        )
    return lines


def short(name: str) -> str:
    return SHORT.get(name, name.removeprefix(OURS))


def _network_width(names: Sequence[str]) -> int:
    return WIDTH - CASE - PLAN - COLUMN * (len(names) + 1)


def micro(seconds: float) -> str:
    """Microseconds, with three digits."""
    return f"{1e6 * seconds:.3g}" if seconds < 1e-3 else f"{1e6 * seconds:.0f}"
