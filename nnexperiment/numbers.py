"""Numbers computed from the results of an experiment: speedup, efficiency, Amdahl's p, energy and EDP."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnclassroom.exercises.nb13 import amdahl_fit
from nncourse.parallel.energy import Energy, edp
from nnexperiment.plan import Devices, Plan, image_counts

Result = dict[str, Any]  # what run_job() returns


@dataclass(frozen=True)
class Consumed:
    """The energy of one run in joules and its EDP (energy times time), for the devices that it used and for all.

    `above_idle` leaves out the energy that the used devices would take while idle; NaN if that is not known.
    """

    used: float
    above_idle: float
    all: float
    edp_used: float
    edp_above_idle: float
    edp_all: float


@dataclass(frozen=True)
class Row:
    """All runs on the same devices with the same batch. Times are medians over whole runs, in seconds.

    If only some steps were trained, `partial` is their number, `total` and `loop` are estimates for all images at that
    speed, and there is no accuracy.
    """

    label: str
    kind: str
    count: int
    batch: int
    runs: int
    partial: int
    loop: float
    validation: float
    test: float
    total: float
    spread: tuple[float, float]  # the shortest and the longest total
    images_a_second: float
    accuracy: tuple[float, float, float] | None  # least, mean, most
    threads: tuple[int, ...]  # BLAS threads, of different runs
    consumed: Consumed | None
    trusted: bool


@dataclass(frozen=True)
class Experiment:
    """An experiment: the name of its folder, its plan, and the results of its runs."""

    name: str
    plan: Plan
    results: Sequence[Result]

    @property
    def rows(self) -> list[Row]:
        trained, _, tested = image_counts(self.plan)
        return rows_of(self.results, self.plan.epochs, trained, tested)


def rows_of(results: Sequence[Result], epochs: int, images: int, tested: int) -> list[Row]:
    """A row for each combination of devices and batch, in order of appearance.

    epochs, images, tested: the number of epochs of a whole run, of images in an epoch, and of test images.
    """
    groups: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        groups.setdefault((label_of(result), result["batch"]), []).append(result)
    return [_row(group, epochs, images, tested) for group in groups.values()]


def _row(results: list[Result], epochs: int, images: int, tested: int) -> Row:
    first = results[0]
    partial = first["steps_an_epoch"] if first["partial"] else 0
    rates = [sum(each["seconds"]["train"]) / (each["epochs"] * each["images_an_epoch"]) for each in results]
    loops = [rate * epochs * images for rate in rates]
    tests = [sum(each["seconds"]["test"]) / each["images_tested"] * tested for each in results]
    validations = [sum(each["seconds"]["validation"]) for each in results]
    totals = [sum(parts) for parts in zip(loops, validations, tests, strict=True)]
    reached = [each["accuracy"] for each in results if each["accuracy"] is not None]
    consumed = [found for each in results if not partial and (found := consumed_by(each))]
    return Row(
        label_of(first),
        first["kind"],
        first["count"],
        first["batch"],
        len(results),
        partial,
        statistics.median(loops),
        statistics.median(validations),
        statistics.median(tests),
        statistics.median(totals),
        (min(totals), max(totals)),
        1 / statistics.median(rates),
        (min(reached), statistics.mean(reached), max(reached)) if reached else None,
        tuple(sorted({each.get("threads", 1) for each in results})),
        _medians(consumed) if consumed else None,
        all(each["energy_is_trusted"] for each in results),
    )


@dataclass(frozen=True)
class Curve:
    """The least, mean and greatest accuracy over the runs on the same devices, after each of `epochs`."""

    epochs: list[int]
    least: list[float]
    mean: list[float]
    most: list[float]


def curves_of(results: Sequence[Result]) -> dict[str, Curve]:
    """The validation accuracy by devices and batch, if it was measured."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result["accuracies"]:
            groups.setdefault(label_of(result), []).append(result)
    found = {}
    for label, some in groups.items():
        values = np.array([each["accuracies"] for each in some])
        three = (values.min(axis=0), values.mean(axis=0), values.max(axis=0))
        found[label] = Curve(some[0]["validated"], *(each.tolist() for each in three))
    return found


def label_of(result: Result) -> str:
    """The label of a result, such as "2 GPUs, 64 each"."""
    kind, count, batch = result["kind"], result["count"], result["batch"]
    hybrid = "CPU + 1 GPU" if count == 2 else f"CPU + {count - 1} GPUs"
    unlike = {"group": "1 GPU in a group of one", "hybrid": hybrid, "unequal": "2 unequal CPU processes"}
    if kind in unlike:
        return f"{unlike[kind]}, {batch}, counted alike" if result["alike"] else f"{unlike[kind]}, {batch}"
    one, several = ("CPU", "CPU processes") if kind == "cpu" else ("1 GPU", "GPUs")
    label = f"{one}, {batch}" if count == 1 else f"{count} {several}, {batch / count:g} each"
    return f"PyTorch, {label}" if kind == "pytorch" else label


def consumed_by(result: Result) -> Consumed | None:
    """The energy of one run; None if one of the devices that computed, GPU or CPU, has no counter.

    A processor package is always in use, since it launches the kernels. GPUs are used in the order of their numbers.
    """
    energies = [Energy(**each) for each in result["energies"]]
    computed = Devices(result["kind"], result["count"]).each
    gpus = computed.count("gpu")
    used = [each for each in energies if each.kind == "cpu" or each.number < gpus]
    counters = [each.kind for each in used]
    if counters.count("gpu") < gpus or ("cpu" in computed and "cpu" not in counters):
        return None
    above = sum(math.nan if each.above_idle is None else each.above_idle for each in used)
    seconds = used[0].seconds
    joules, whole = sum(each.joules for each in used), sum(each.joules for each in energies)
    return Consumed(joules, above, whole, edp(used), above * seconds, edp(energies))


def _medians(found: Sequence[Consumed]) -> Consumed:
    values = {name: [getattr(each, name) for each in found] for name in Consumed.__dataclass_fields__}
    known = {name: [value for value in each if not math.isnan(value)] for name, each in values.items()}
    return Consumed(**{name: statistics.median(each or [math.nan]) for name, each in known.items()})


def base_of(rows: Sequence[Row]) -> Row | None:
    """The row that speedups are relative to: one GPU, or otherwise one process on the CPU; None if neither was run."""
    singles = [row for row in rows if row.count == 1]
    return next((row for row in singles if row.kind == "gpu"), singles[0] if singles else None)


def speedups(rows: Sequence[Row], base: Row) -> list[tuple[float, float]]:
    """The speedups of each row over the base: for whole runs, and for the training loop alone."""
    return [(base.total / row.total, base.loop / row.loop) for row in rows]


def efficiency(row: Row, base: Row, speedup: float) -> float | None:
    """The speedup per device; None for a different kind of device, and for one device with a different batch."""
    return speedup / row.count if row is base or (row.kind == base.kind and row.count > 1) else None


def series(rows: Sequence[Row], base: Row) -> dict[str, list[Row]]:
    """The rows of the base's kind for each curve of speedups: with the same batch per device, or the same in total."""
    same = [row for row in rows if row.kind == base.kind]
    whole = [row for row in same if row.batch == base.batch * row.count]
    shared = [row for row in same if row.batch == base.batch]
    named = {f"batch {base.batch} per device": whole, f"batch {base.batch} in total": shared}
    return {name: sorted(found, key=lambda row: row.count) for name, found in named.items() if len(found) > 1}


def amdahl(rows: Sequence[Row], base: Row) -> float | None:
    """The p from 0 to 1 that fits the speedups of these rows best; None if no row has several devices."""
    several = [row for row in rows if row.count > 1]
    if not several:
        return None
    counts = np.array([row.count for row in several], np.float32)
    found = np.array([base.total / row.total for row in several], np.float32)
    return float(amdahl_fit["numpy"](counts, found))
