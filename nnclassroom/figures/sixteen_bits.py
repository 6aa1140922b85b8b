"""Numbers of 16 bits, for notebook 14: what rounding does to them, to running sums, and to a gradient.

rounded(numbers, "bfloat16")          # to the nearest number of that format, and back to float32
running_sum(numbers, "float16")       # each partial sum rounded
plot_gradient(gradient, (1, 1024))    # the sizes of its numbers beside the range of float16
"""

from collections.abc import Sequence

import numpy as np

from nnclassroom.figures.common import figure_with_axes
from nnclassroom.figures.described import Described
from nncourse.errors import CourseError, refuse_unknown

MANTISSA = {"float32": 23, "TF32": 10, "bfloat16": 7}  # bits, of formats with float32's 8 bits of exponent
FORMATS = (*MANTISSA, "float16")
NORMAL, SMALLEST, LARGEST = 2.0**-14, 2.0**-24, 65504.0  # of float16: with all its bits, above 0, and finite


def rounded(numbers: np.ndarray, kind: str) -> np.ndarray:
    """Float32 numbers rounded to the nearest of another format, ties to even, as float32 again.

    kind: "float16", "bfloat16", "TF32" or "float32". What is too large becomes infinite, in float16 above 65,504.

    Raises CourseError for another format.

    >>> rounded(np.float32([1.001, 70_000]), "float16").tolist()
    [1.0009765625, inf]
    """
    refuse_unknown("a format", kind, FORMATS)
    numbers = np.asarray(numbers, np.float32)
    if kind == "float16":
        with np.errstate(over="ignore"):
            return numbers.astype(np.float16).astype(np.float32)
    cut = MANTISSA["float32"] - MANTISSA[kind]
    bits = numbers.view(np.uint32)
    up = bits + (np.uint32(2**cut // 2) - (cut > 0)) + (bits >> np.uint32(cut) & np.uint32(cut > 0))
    found = (up & np.uint32(2**32 - 2**cut)).view(np.float32)
    return np.where(np.isnan(numbers), numbers, found)


def running_sum(numbers: np.ndarray, kind: str) -> float:
    """The sum of numbers added one after the other, each partial sum rounded to a format, as for rounded()."""
    if kind == "float16":
        return float(np.add.accumulate(np.asarray(numbers, np.float16))[-1])
    total = np.zeros((), np.float32)
    for number in rounded(numbers, kind):
        total = rounded(total + number, kind)
    return float(total)


def plot_gradient(gradient: np.ndarray, times: Sequence[float] = (1,), title: str = "") -> Described:
    """Plot how large the numbers of a gradient are, as it is and times other factors, and where float16 loses them.

    Raises CourseError for a gradient without a number other than 0.
    """
    sizes = np.abs(np.asarray(gradient, np.float64)).ravel()
    sizes = sizes[sizes > 0]
    if not sizes.size or not np.isfinite(sizes).all():
        raise CourseError("expected a gradient of finite numbers, some of them other than 0")
    figure, axes = figure_with_axes(title, 7.4, 3.6)
    low, high = np.log2(sizes.min() * min(times)), np.log2(sizes.max() * max(times))
    edges = 2.0 ** np.arange(np.floor(min(low, -26)), np.ceil(high) + 1)
    said = []
    for number, factor in enumerate(times):
        counts = np.histogram(factor * sizes, edges)[0] / sizes.size
        label = "gradient" if factor == 1 else f"gradient × {factor:,g}"
        axes.stairs(
            counts, edges, label=label, color=f"C{number}", linestyle=("-", "--", ":")[number % 3], linewidth=1.8
        )
        kept = rounded((factor * sizes).astype(np.float32), "float16")
        lost, few = (kept == 0).mean(), ((kept > 0) & (kept < NORMAL)).mean()
        infinite = f", {np.isinf(kept).mean():.1%} infinite" if np.isinf(kept).any() else ""
        said.append(f"{label}: in float16 {lost:.1%} become 0, {few:.1%} keep only some of their bits{infinite}")
    spans = [
        (edges[0], SMALLEST / 2, "0.6", "0 in float16"),
        (SMALLEST / 2, NORMAL, "0.8", "fewer bits in float16"),
        (LARGEST, edges[-1], "tab:red", "infinite in float16"),
    ]
    for start, end, colour, label in spans:
        if end > start:
            axes.axvspan(start, end, color=colour, alpha=0.4, linewidth=0, zorder=0, label=label)
    axes.set(xscale="log", xlabel="size of a number", ylabel="share", xlim=(edges[0], edges[-1]), ylim=(0, None))
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    words = "The sizes of the numbers of a gradient other than 0, as shares by powers of two. " + "; ".join(said) + "."
    return Described(figure, words.replace("e-", "e−"))
