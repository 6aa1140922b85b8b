"""The time of a message, α + n/β, from latency and bandwidth of a link, or fitted; and the times of all-reduces."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, log2

import numpy as np

from nncourse.errors import CourseError


@dataclass(frozen=True)
class Link:
    """A message of n bytes takes `latency` + n / `bandwidth` seconds (bandwidth in bytes per second); by default 0."""

    latency: float = 0.0
    bandwidth: float = inf

    def __post_init__(self) -> None:
        if not (self.latency >= 0 and self.bandwidth > 0):
            raise CourseError(f"expected a latency of at least 0 and a bandwidth above 0; got {self}")

    def seconds(self, size: float) -> float:
        """The time of a message of `size` bytes."""
        return self.latency + size / self.bandwidth


def fit_link(sizes: Sequence[float], seconds: Sequence[float]) -> Link:
    """The link whose times are closest to measured ones: least squares of the relative errors.

    sizes: bytes of the messages, with at least two different values.
    seconds: the measured time of each message, above 0.

    Raises CourseError for other sizes and times.

    >>> link = fit_link([1e3, 1e6], [2e-3, 1.001])  # 1 ms, and 1 MB/s
    >>> round(link.latency, 6), round(link.bandwidth)
    (0.001, 1000000)
    """
    n, t = np.asarray(sizes, float), np.asarray(seconds, float)
    if n.ndim != 1 or n.shape != t.shape or len(set(n.tolist())) < 2 or not (np.isfinite(t).all() and t.min() > 0):
        raise CourseError(
            f"expected at least two different sizes and a time above 0 for each; got {sizes} and {seconds}"
        )
    # Each row is divided by its time: otherwise only the largest messages would count, and their noise set the latency.
    rows = np.stack([1 / t, n / t], axis=1)
    latency, slope = np.linalg.lstsq(rows, np.ones_like(t), rcond=None)[0]
    if latency < 0:
        latency, slope = 0.0, np.linalg.lstsq(rows[:, 1:], np.ones_like(t), rcond=None)[0][0]
    if slope <= 0:  # larger messages were not slower
        return Link(float(1 / np.mean(1 / t)), inf)
    return Link(float(latency), float(1 / slope))


def root_seconds(link: Link, size: float, members: int) -> float:
    """Seconds of an all-reduce through one root: it receives K − 1 messages one after the other, then sends as many.

    link: the link between any two members.
    size: bytes of the vector.
    members: their number, K.

    >>> root_seconds(Link(1e-3, 1e6), 4e3, members=4)  # 4 kB with 1 ms and 1 MB/s
    0.03
    """
    return 2 * (members - 1) * link.seconds(size)


def tree_seconds(link: Link, size: float, members: int) -> float:
    """Seconds of an all-reduce in a tree: ⌈log₂ K⌉ rounds up, and as many down.

    link: the link between any two members.
    size: bytes of the vector.
    members: their number, K.

    >>> tree_seconds(Link(1e-3, 1e6), 4e3, members=4)  # 4 kB with 1 ms and 1 MB/s
    0.02
    """
    return 2 * ceil(log2(members)) * link.seconds(size)


def ring_seconds(link: Link, size: float, members: int) -> float:
    """Seconds of an all-reduce in a ring: 2 (K − 1) rounds, in each of which every member sends 1/K of the vector.

    link: the link between any two members.
    size: bytes of the vector.
    members: their number, K.

    Members send while they receive. If every second member receives before it sends, this takes twice as long.

    >>> ring_seconds(Link(1e-3, 1e6), 4e3, members=4)  # 4 kB with 1 ms and 1 MB/s
    0.012
    """
    return 2 * (members - 1) * link.seconds(size / members)
