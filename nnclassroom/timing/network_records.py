"""Records of networks whose training steps were timed beside PyTorch's and JAX's, in words of 80 columns.

A record is a dictionary, as benchmarks/README.md describes it; nnexperiment/trainers/networks.py makes it.
"""

import statistics
import textwrap
from collections.abc import Sequence
from typing import Any

from nnclassroom.formats import duration, three_digits, times_as_fast

COMPILED = "PyTorch compile + graph"
OURS = "nncourse "  # begins the name of each of the course's contenders; a backend follows
SHORT = {"PyTorch eager": "eager", "PyTorch graph": "graph", COMPILED: "compile", "JAX scan": "JAX"}
REFERENCES = {"gpu": ("JAX scan", "PyTorch graph", "PyTorch eager"), "cpu": ("PyTorch eager", "JAX scan")}
WIDTH, COLUMN, PLAN, CASE = 80, 7, 11, 16  # of the table: all, of a time, of a plan, of batch and optimizer


def best_of_ours(found: dict[str, Any]) -> str | None:
    """The name of the course's fastest contender in a record."""
    ours = {name: each["seconds_a_step"] for name, each in found["contenders"].items() if name.startswith(OURS)}
    return min(ours, key=ours.__getitem__) if ours else None


def ratio(found: dict[str, Any], other: str) -> float | None:
    """How many times as fast as another contender the course's fastest is, in a record; None if one is missing."""
    ours, there = best_of_ours(found), found["contenders"]
    return there[other]["seconds_a_step"] / there[ours]["seconds_a_step"] if ours and other in there else None


def reference(records: Sequence[dict[str, Any]], device: str) -> str:
    """The contender to compare with: the first of REFERENCES that ran in any record."""
    ran = {name for found in records for name in found["contenders"]}
    return next((name for name in REFERENCES[device] if name in ran), REFERENCES[device][0])


def names_of(records: Sequence[dict[str, Any]]) -> list[str]:
    """The contenders of the records: the course's, then the others."""
    found = dict.fromkeys(name for each in records for name in each["contenders"])
    return sorted(found, key=lambda name: list(SHORT).index(name) if name in SHORT else -1)


def in_words(found: dict[str, Any]) -> str:
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


def line(found: dict[str, Any], names: Sequence[str], over: str) -> str:
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


def summary(records: Sequence[dict[str, Any]], names: Sequence[str]) -> list[str]:
    """For each contender that is not ours: the least and the median ratio of our speed to its."""
    lines = []
    for name in names:
        found = {id(each): times for each in records if (times := ratio(each, name))}
        if name.startswith(OURS) or not found:
            continue
        least = min((each for each in records if id(each) in found), key=lambda each: found[id(each)])
        median = statistics.median(found.values())
        lines.append(
            f"times {name}'s speed: least {three_digits(found[id(least)])} (row {least.get('row', '–')}), "
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
