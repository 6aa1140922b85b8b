"""Numbers as people read them: times, rates, ratios."""

from nncourse.language import ENGLISH, current


def duration(seconds: float) -> str:
    """A time with three digits and a unit, such as "1.25 ms"."""
    return in_units(seconds, {"s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9})


def times_as_fast(ratio: float) -> str:
    """A speedup with three digits, such as "12.5×"; below 0.01 as a fraction, such as "1/250"."""
    return f"{three_digits(ratio)}×" if ratio >= 0.01 else f"1/{whole(1 / ratio)}"


def three_digits(value: float) -> str:
    """The number with three significant digits; from 100 on rounded to an integer."""
    return whole(value) if value >= 100 else f"{value:.3g}"


def whole(value: float) -> str:
    """The number rounded to an integer: "12,345"; in other languages "12 345", and "2345" without a space."""
    text = f"{value:,.0f}"
    return text if current() == ENGLISH else text.replace(",", "" if len(text) == len("2,345") else " ")


def rate(per_second: float, unit: str) -> str:
    """A rate with three digits and a unit: "51.2 TFLOP/s"."""
    return in_units(per_second, {f"T{unit}": 1e12, f"G{unit}": 1e9, f"M{unit}": 1e6, f"k{unit}": 1e3})


def in_units(value: float, units: dict[str, float]) -> str:
    """The value with three digits, in the largest unit not above it; if all are above it, in the last unit."""
    fitting = [name for name, size in units.items() if value >= size]
    unit = fitting[0] if fitting else list(units)[-1]
    return f"{three_digits(value / units[unit])} {unit}"
