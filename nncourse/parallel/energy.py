"""Energy: read from counters, never estimated.

A GPU counts its joules since the driver was loaded (NVML, package nvidia-ml-py). Processors of Intel and AMD count
theirs too (RAPL, below /sys/class/powercap), but virtual machines hide these counters, and reading may need permission.
Without a counter the energy is "not measurable here".

    meters, missing = meters_here()
    idle = idle_power(meters)                       # watts of each, while nothing runs
    with measured(meters, idle) as measurement:
        train(…)
    for energy in measurement.energies: print(energy)

A counter is updated only every 20 to 100 ms: short work has to be repeated for LEAST seconds, as energy_of() does.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from nncourse import device as devices
from nncourse import threads
from nncourse.errors import CourseError, reason_of

LEAST = 2.0  # seconds of work, so that an update of a counter is at most 5 % of it
EVERY = 0.5  # seconds between two readings: with less, a figure would show the counter's updates
POWERCAP = Path("/sys/class/powercap")
NOWHERE = "not measurable here"
BUSY = 0.1  # share of a device in use above which it is not idle
NOT_IDLE = "idle was not idle: others computed when it was measured"


@dataclass(frozen=True)
class Meter:
    """One device's counter: `read()` gives joules since some moment. After `range` joules it starts from 0 again."""

    name: str
    kind: str  # "gpu" or "cpu"
    read: Callable[[], float]
    range: float = 0.0
    number: int = 0  # of the device among those of its kind, as CUDA counts them
    in_use: Callable[[], float] = lambda: 0.0  # a GPU's: the share of the last second in which anybody computed


@dataclass(frozen=True)
class Energy:
    """The energy of one device over a time.

    `idle_watts` is its power while nothing runs: None if unknown, NaN if others computed when it was measured.
    """

    name: str
    kind: str
    number: int
    joules: float
    seconds: float
    idle_watts: float | None = None

    @property
    def watts(self) -> float:
        return self.joules / self.seconds

    @property
    def above_idle(self) -> float | None:
        """The joules minus those that the device would have used while idle; None if these are unknown."""
        return self.joules - self.idle_watts * self.seconds if self.idle_watts is not None and self.was_idle else None

    @property
    def was_idle(self) -> bool:
        """False if others computed when the idle power was measured, or if it is above the power now."""
        return self.idle_watts is None or self.idle_watts <= self.watts

    def __str__(self) -> str:
        said = f"{self.name}: {self.joules:.4g} J in {self.seconds:.3g} s ({self.watts:.3g} W)"
        if not self.was_idle:
            return f"{said}; {NOT_IDLE}"
        return said + ("" if self.above_idle is None else f", {self.above_idle:.4g} J above idle")


@dataclass
class Measurement:
    """The result of `measured`: the joules of each meter so far, at each of `times` (seconds from the start)."""

    meters: Sequence[Meter]
    idle: Sequence[float | None]
    times: list[float] = field(default_factory=list)
    joules: list[list[float]] = field(default_factory=list)  # a list for each of the times

    @property
    def seconds(self) -> float:
        return self.times[-1] - self.times[0]

    @property
    def energies(self) -> list[Energy]:
        """The energy of each meter over the whole time."""
        return [
            Energy(meter.name, meter.kind, meter.number, last, self.seconds, idle)
            for meter, idle, last in zip(self.meters, self.idle, self.joules[-1], strict=True)
        ]

    def power(self) -> tuple[list[float], list[list[float]]]:
        """For a figure: the middle of each interval between two readings, and each meter's watts in it."""
        pairs = [
            (earlier, later)
            for earlier, later in pairwise(zip(self.times, self.joules, strict=True))
            if later[0] > earlier[0]
        ]
        middles = [(earlier[0] + later[0]) / 2 for earlier, later in pairs]
        watts = [
            [(later[1][place] - earlier[1][place]) / (later[0] - earlier[0]) for earlier, later in pairs]
            for place in range(len(self.meters))
        ]
        return middles, watts


def edp(energies: Sequence[Energy]) -> float:
    """The energy-delay product in joule seconds: the longest time, times the energy of all devices."""
    return max(energy.seconds for energy in energies) * sum(energy.joules for energy in energies)


@contextlib.contextmanager
def measured(
    meters: Sequence[Meter],
    idle: Sequence[float | None] | None = None,
    every: float = EVERY,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Measurement]:
    """Read all meters before the block, every `every` seconds in it, and after it. The block must wait for GPU work."""
    found = Measurement(meters, idle or [None] * len(meters))
    start = clock()
    last = [meter.read() for meter in meters]
    so_far = [0.0] * len(last)
    over = threading.Event()

    def read() -> None:
        for place, meter in enumerate(meters):
            now = meter.read()
            step = now - last[place]
            so_far[place] += step + meter.range if step < 0 else step  # below 0: the counter has started again
            last[place] = now
        found.times.append(clock() - start)
        found.joules.append(list(so_far))

    def keep_reading() -> None:
        while not over.wait(every):
            read()

    thread = threading.Thread(target=keep_reading, daemon=True)
    read()
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
        read()


def idle_power(
    meters: Sequence[Meter], seconds: float = LEAST, sleep: Callable[[float], None] = time.sleep, **options: Any
) -> list[float]:
    """The watts of each meter while this process sleeps; NaN for a device on which others compute meanwhile."""
    before = threads.look()
    with measured(meters, **options) as found:
        sleep(seconds)
    load = threads.since(before)
    of_cores = load.others / load.seconds / load.cores
    in_use = [of_cores if meter.kind == "cpu" else meter.in_use() for meter in meters]
    return [math.nan if used > BUSY else each.watts for each, used in zip(found.energies, in_use, strict=True)]


def energy_of(
    work: Callable[[], object],
    meters: Sequence[Meter],
    idle: Sequence[float | None] | None = None,
    least: float = LEAST,
    clock: Callable[[], float] = time.perf_counter,
    **options: Any,
) -> tuple[list[Energy], int]:
    """The energy of one call of work(), averaged over calls for `least` seconds; and the number of calls.

    work() must wait for its GPU work. Raises CourseError if there is no meter.
    """
    if not meters:
        raise CourseError(f"expected a counter of energy; there is none: {NOWHERE}")
    calls = 0
    with measured(meters, idle, clock=clock, **options) as found:
        start = clock()
        while not calls or clock() - start < least:
            work()
            calls += 1
    return [replace(each, joules=each.joules / calls, seconds=each.seconds / calls) for each in found.energies], calls


# ---- the counters of this machine


def meters_here(powercap: Path = POWERCAP) -> tuple[list[Meter], list[str]]:
    """The counters that can be read here, GPUs first, and a line for each kind of device without one."""
    gpus, no_gpus = gpu_meters()
    cpus, no_cpus = cpu_meters(powercap)
    return [*gpus, *cpus], [line for line in (no_gpus, no_cpus) if line]


def gpu_meters() -> tuple[list[Meter], str]:
    """A meter for each GPU that CUDA sees, in CUDA's order; or none, and the reason."""
    try:
        import pynvml
    except ImportError:
        return [], f"energy of GPUs: {NOWHERE}, since nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
        handles = devices.gpu_handles(pynvml)
        for handle in handles:
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        return [], f"energy of GPUs: {NOWHERE} ({error})"
    meters = [
        Meter(name, "gpu", _counter(pynvml, handle), 0.0, number, _use(pynvml, handle))
        for number, handle in enumerate(handles)
        for name in [f"GPU {number}, {_text(pynvml.nvmlDeviceGetName(handle))}"]
    ]
    return meters, "" if meters else f"energy of GPUs: {NOWHERE}, since there is none"


def _counter(pynvml: Any, handle: Any) -> Callable[[], float]:
    return lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000  # from millijoules


def _use(pynvml: Any, handle: Any) -> Callable[[], float]:
    return lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100  # from per cent


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def cpu_meters(powercap: Path = POWERCAP) -> tuple[list[Meter], str]:
    """A meter for each processor package that RAPL counts; or none, and the reason."""
    packages = sorted(path for path in powercap.glob("intel-rapl:*") if path.name.count(":") == 1)
    meters = []
    for number, package in enumerate(packages):
        try:
            name, most = ((package / file).read_text().strip() for file in ("name", "max_energy_range_uj"))
            int((package / "energy_uj").read_text())
        except (OSError, ValueError) as error:
            said = reason_of(error) if isinstance(error, OSError) else "not a number"
            return [], f"energy of the CPU: {NOWHERE} ({package / 'energy_uj'}: {said})"
        meters.append(Meter(f"CPU {name}", "cpu", _file_counter(package / "energy_uj"), int(most) / 1e6, number))
    return meters, "" if meters else f"energy of the CPU: {NOWHERE} ({powercap} has no RAPL counters)"


def _file_counter(file: Path) -> Callable[[], float]:
    return lambda: int(file.read_text()) / 1e6  # from microjoules
