"""Amdahl's and Gustafson's law with a network between the devices, as a widget and as a still picture.

Strong scaling: K devices share one batch. Weak scaling: each of K has a batch of its own. A part 1 − p of the work for
a batch cannot be divided. Then the gradients are summed over all devices by the fastest of root, tree and ring.
"""

from dataclasses import asdict, dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np
from matplotlib.ticker import NullLocator

from nnclassroom.exercises.nb13 import scaling_laws
from nnclassroom.figures import common
from nnclassroom.figures.described import Described
from nnclassroom.formats import duration
from nnclassroom.widgets import widget
from nncourse.errors import CourseError, refuse_unknown
from nncourse.parallel.simulation import Link, ring_seconds, root_seconds, tree_seconds

MOST = 1024
CAPTION = (
    "Left, the speedup over one device; right, the efficiency. Blue circles: strong scaling, all share one batch; "
    "orange squares: weak scaling, each has its own batch. Dashed, in the same colours: the two laws alone, as if the "
    "exchange took no time. Grey: ideal."
)


class Load(NamedTuple):
    """Seconds of training per sample, and bytes of the gradient."""

    seconds: float
    size: int


# 53.9 ms for 128 images, PyTorch in float32 on an H200; 784-192-10 by NumPy on a core of a server
NETWORKS = {"ResNet-34, on GPUs": Load(4.2e-4, 4 * 21_283_017), "784-192-10, on cores": Load(6.6e-6, 4 * 152_650)}


@dataclass(frozen=True)
class Settings:
    """`batch` belongs to all devices in strong scaling, to each in weak scaling. Latency in µs, bandwidth in GB/s."""

    network: str = "ResNet-34, on GPUs"
    p: float = 0.95
    devices: int = 64
    latency: float = 10.0
    bandwidth: float = 100.0
    batch: int = 128

    def __post_init__(self) -> None:
        refuse_unknown("a network", self.network, NETWORKS)
        whole = 0 <= self.p <= 1 and 1 <= self.devices <= MOST and self.batch >= 1
        if not (whole and 0 <= self.latency < inf and self.bandwidth > 0):
            wanted = f"p from 0 to 1, from 1 to {MOST} devices, a batch of at least 1, a latency of at least 0"
            raise CourseError(f"expected {wanted} and a bandwidth above 0; got {self}")


class Curves(NamedTuple):
    """Speedups over `devices`, with the network and by the two laws alone; seconds of an exchange and of one device."""

    devices: np.ndarray
    strong: np.ndarray
    weak: np.ndarray
    amdahl: np.ndarray
    gustafson: np.ndarray
    exchange: np.ndarray
    alone: float


def exchange_seconds(link: Link, size: int, devices: int) -> float:
    """Seconds of an all-reduce of `size` bytes by the fastest of three algorithms."""
    if devices == 1:
        return 0.0
    return min(way(link, size, devices) for way in (root_seconds, tree_seconds, ring_seconds))


def run(settings: Settings) -> Curves:
    """The speedups over one device, for 1, 2, 4 … devices up to those of the settings."""
    load, link = NETWORKS[settings.network], Link(settings.latency * 1e-6, settings.bandwidth * 1e9)
    counts = np.array(sorted({2**power for power in range(11) if 2**power < settings.devices} | {settings.devices}))
    exchange = np.array([exchange_seconds(link, load.size, int(count)) for count in counts])
    alone = settings.batch * load.seconds
    amdahl, gustafson = scaling_laws["numpy"](settings.p, counts.astype(float))
    strong = alone / (alone / amdahl + exchange)
    weak = gustafson * alone / (alone + exchange)
    return Curves(counts, strong, weak, amdahl, gustafson, exchange, alone)


def words_of(settings: Settings, curves: Curves) -> str:
    """The speedups with the largest number of devices, and where the time goes."""
    count, strong, weak = settings.devices, curves.strong[-1], curves.weak[-1]
    said = [
        f"{count} devices. Strong: {_times(strong)} times as fast, efficiency {_share(strong / count)}; Amdahl alone "
        f"{_times(curves.amdahl[-1])}.",
        f"Weak: {_times(weak)} times, efficiency {_share(weak / count)}; Gustafson alone "
        f"{_times(curves.gustafson[-1])}.",
    ]
    best = int(curves.strong.argmax())
    if best == 0:
        said.append("Strong scaling: one device alone is fastest.")
    elif curves.strong[best] > 1.01 * strong:
        said.append(f"Strong scaling is best with {curves.devices[best]}: {_times(curves.strong[best])} times.")
    batch = duration(curves.alone)
    said.append(f"One device computes a batch in {batch}; an exchange takes {duration(curves.exchange[-1])}.")
    if count == 1:
        return f"1 device: there is nothing to gain. It computes a batch in {batch}."
    return " ".join(said)


def _times(speedup: float) -> str:
    return f"{speedup:.3g}" if speedup < 999 else f"{speedup:,.0f}"


def _share(efficiency: float) -> str:
    return f"{efficiency:.0%}" if efficiency > 0.1 else f"{efficiency:.1%}"


def plot_laws(title: str = "", **settings: Any) -> Described:
    """The still picture; `settings` are fields of Settings."""
    chosen = Settings(**settings)
    curves = run(chosen)
    counts = curves.devices
    figure, (left, right) = common.row_of_axes(title, 2, 9.2, 3.8, layout=None)
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.27, top=0.9 if title else 0.97, wspace=0.2)
    lines = (
        ("strong scaling", curves.strong, "tab:blue", "o-"),
        ("Amdahl", curves.amdahl, "tab:blue", "--"),
        ("weak scaling", curves.weak, "tab:orange", "s-"),
        ("Gustafson", curves.gustafson, "tab:orange", "--"),
    )
    left.plot(counts, counts, color="0.7", linewidth=3, label="ideal")
    right.plot(counts, np.ones(len(counts)), color="0.7", linewidth=3)
    for label, values, colour, style in lines:
        left.plot(counts, values, style, color=colour, markersize=5, linewidth=1.2, label=label)
        right.plot(counts, values / counts, style, color=colour, markersize=5, linewidth=1.2)
    most = max(2, chosen.devices)
    left.set(xlabel="devices K", ylabel="speedup", ylim=(min(0.5, curves.strong.min() / 1.2), 1.3 * most))
    right.set(xlabel="devices K", ylabel="efficiency, speedup / K", ylim=(0, 1.08))
    left.set_yscale("log", base=2)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xlim(0.9, 1.1 * most)
        axes.xaxis.set_minor_locator(NullLocator())
    left.yaxis.set_minor_locator(NullLocator())
    common.plain_numbers(left.xaxis, left.yaxis, right.xaxis)
    figure.legend(loc="lower center", ncols=5, frameon=False, fontsize=9)
    return Described(figure, f"Speedup and efficiency over the number of devices. {words_of(chosen, curves)}")


def laws(**settings: Any) -> widget.BrowserWidget:
    """The widget; `settings` are fields of Settings."""
    now = Settings(**settings)
    batch = "Samples in the batch: of all devices in strong scaling, of each in weak scaling"
    controls = {
        "network": widget.menu("network", "What is trained, and on what", now.network, tuple(NETWORKS)),
        "p": widget.slider("p", "The part of the work that is divided", now.p, 0, 1, 0.005),
        "devices": widget.slider("devices K", "How many devices share the work", now.devices, 1, MOST, 1),
        "latency": widget.factors("latency, µs", "Time of any message, however short", now.latency, 0, 4, 0.1),
        "bandwidth": widget.factors("bandwidth, GB/s", "Of the link between two devices", now.bandwidth, -2, 3, 0.1),
        "batch": widget.powers_of_two("batch", batch, now.batch, 14),
    }

    def answer(batch: int, devices: int, **values: Any) -> tuple[dict[str, Any], str]:
        chosen = Settings(batch=int(batch), devices=int(devices), **values)
        curves = run(chosen)
        return curves._asdict(), words_of(chosen, curves)

    return widget.BrowserWidget("laws.js", controls, answer, CAPTION, still=lambda: plot_laws(**asdict(now)))
