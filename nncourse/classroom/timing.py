"""How fast is a kernel? All kernels of an operation on the same data, beside what this machine can reach at all."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nncourse import device as devices
from nncourse.errors import CourseError
from nncourse.kernels import check
from nncourse.kernels.operation import Operation

LOOPS_RATE = 5e6  # FLOP/s of Python loops, roughly: only decides whether timing them is worth the wait
LONGEST = 2.0  # seconds


@dataclass(frozen=True)
class Row:
    """One kernel's time. `limit` is the share of the machine's measured limit; None where nothing was timed."""

    kernel: str
    device: str
    seconds: float | None
    flops: int
    bytes: int
    limit: float | None
    note: str = ""


def default_sizes(operation: Operation) -> dict[str, int]:
    """Sizes that keep this machine busy for a while: larger where there is a GPU."""
    side, length = (1024, 1 << 26) if devices.gpu_available() else (128, 1 << 17)
    if operation.letters == ("n",):
        return {"n": length}
    return dict.fromkeys(operation.letters, side) | ({"classes": 10} if "classes" in operation.letters else {})


def time_kernels(operation: Operation, sizes: dict[str, int] | None = None, names: Sequence[str] = ()) -> list[Row]:
    """Time kernels of an operation (all that run here, unless named) on random data of these sizes.

    A kernel is timed as a training step calls it, with the arrays on its device already; transfers are not counted.
    """
    sizes = default_sizes(operation) | (sizes or {})
    unknown = sizes.keys() - set(operation.letters)
    if unknown:
        raise CourseError(f"{operation.name} has the sizes {', '.join(operation.letters)}; got {', '.join(unknown)}")
    arguments = check.random_case(operation, sizes).arguments
    flops, count = operation.count(*arguments)
    rows = []
    for name in names or operation.kernels:
        kernel = operation[name]
        if kernel.device == "gpu" and not devices.gpu_available():
            rows.append(Row(name, "gpu", None, flops, count, None, "no GPU here"))
        elif name == "loops" and flops / LOOPS_RATE > LONGEST:
            rows.append(Row(name, "cpu", None, flops, count, None, f"about {flops / LOOPS_RATE:.0f} s: not timed"))
        else:
            there = [devices.to_device(a, kernel.device) if isinstance(a, np.ndarray) else a for a in arguments]
            seconds = devices.seconds(lambda kernel=kernel, there=there: kernel(*there), kernel.device)
            limits = devices.limits(kernel.device)
            floor = max(flops / limits["matrix"], count / limits["copy"])
            rows.append(Row(name, kernel.device, seconds, flops, count, floor / seconds))
    return rows


def table(operation: Operation, rows: list[Row], sizes: dict[str, int]) -> str:
    """The rows as lines of text, at most 80 columns wide."""
    said = ", ".join(f"{name} {size}" for name, size in sizes.items())
    lines = [
        f"{operation.name}, {said}",
        f"{'kernel':12}{'on':5}{'time':>10}{'rate':>17}{'of the limit':>14}{'speedup':>10}",
    ]
    slowest = next((row.seconds for row in rows if row.seconds), None)
    for row in rows:
        if row.seconds is None:
            lines.append(f"{row.kernel:12}{row.device:5}{'–':>10}  {row.note}")
            continue
        share = "in cache" if row.limit > 1 else f"{100 * row.limit:.2g} %"
        speedup = f"{_three_digits(slowest / row.seconds)}×"
        lines.append(
            f"{row.kernel:12}{row.device:5}{duration(row.seconds):>10}{_rate(row):>17}{share:>14}{speedup:>10}"
        )
    first = next((row.kernel for row in rows if row.seconds), "")
    lines.append(f"Speedup over {first}. The limit: this machine's copy bandwidth or matrix rate.")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """A time with three digits and its unit."""
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _three_digits(value: float) -> str:
    """Three digits, and no more decimals than that."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _rate(row: Row) -> str:
    """FLOP/s where the arithmetic is what counts, else bytes a second."""
    if row.flops > 2 * row.bytes:
        return f"{_three_digits(row.flops / row.seconds / 1e9)} GFLOP/s"
    return f"{_three_digits(row.bytes / row.seconds / 1e9)} GB/s"
