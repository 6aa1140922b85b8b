"""Who did what, and when: a row for each member of a group, a bar for each piece of work."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from nnclassroom.figures.common import Described
from nnclassroom.formats import duration
from nncourse.errors import CourseError
from nncourse.parallel.timeline import WORK, Span, idle_share


class Style(NamedTuple):
    """Colour and hatch of a bar, the colour of a number in it, and what the legend says."""

    colour: str
    hatch: str
    ink: str
    label: str


STYLES = {
    "compute": Style("tab:blue", "", "white", label="computes"),
    "forward": Style("tab:blue", "", "white", label="forward"),
    "backward": Style("tab:orange", "", "black", label="backward"),
    "update": Style("tab:green", "...", "", label="updates"),
    "send": Style("tab:purple", "", "white", label="sends to"),
    "receive": Style("plum", "", "black", label="receives from"),
    "exchange": Style("tab:purple", "////", "", label="exchanges"),
    "wait": Style("0.93", "", "", label="waits"),
}
NUMBERED = {"forward": "{}", "backward": "{}", "send": "→{}", "receive": "←{}"}  # what stands in a bar
VERBS = {"works": WORK, "exchanges": ("send", "receive", "exchange"), "waits": ("wait",)}
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
NARROW = 0.02  # of the width: a bar that is narrower holds no number


def plot_gantt(
    spans: Sequence[Span], title: str = "", names: Mapping[int, str] | None = None, until: float | None = None
) -> Described:
    """Plot what the members of a group did, from the first start on. `names` are the rows' where "rank 0" will not do.

    Bars of forward and backward hold the number of their micro-batch, those of send and receive the other's rank. With
    `until`, only so many seconds are shown.
    """
    if not spans:
        raise CourseError("wanted the spans of a timeline, at least one; got none")
    start = min(span.start for span in spans)
    end = max(span.end for span in spans) if until is None else start + until
    shown = [span._replace(end=min(span.end, end)) for span in spans if span.start < end]
    ranks = sorted({span.rank for span in spans})
    rows = {rank: (names or {}).get(rank, f"rank {rank}") for rank in ranks}
    unit = next((unit for unit, seconds in UNITS.items() if end - start >= seconds), "µs")
    scale = 1 / UNITS[unit]
    figure = Figure(figsize=(9.0, 1.5 + 0.36 * len(rows)), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    for place, rank in enumerate(ranks):
        for what, (colour, hatch, ink, _) in STYLES.items():
            bars = [span for span in shown if (span.rank, span.what) == (rank, what)]
            places = [((span.start - start) * scale, (span.end - span.start) * scale) for span in bars]
            style = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
            axes.broken_barh(places, (place - 0.4, 0.8), **style)
            for span, (left, width) in zip(bars, places, strict=True):
                if what in NUMBERED and width > NARROW * (end - start) * scale:
                    middle = {"ha": "center", "va": "center", "fontsize": 8, "color": ink}
                    axes.text(left + width / 2, place, NUMBERED[what].format(span.number), **middle)
    axes.set_yticks(range(len(rows)), rows.values(), fontsize=9)
    axes.set(xlabel=f"time, {unit}", xlim=(0, (end - start) * scale), ylim=(len(rows) - 0.5, -0.5))
    there = [what for what in STYLES if any(span.what == what and span.end > span.start for span in shown)]
    marks = [Patch(facecolor=STYLES[what].colour, hatch=STYLES[what].hatch, edgecolor="0.7") for what in there]
    said = [STYLES[what].label for what in there]
    figure.legend(marks, said, loc="outside lower center", ncols=len(said), frameon=False, fontsize=9)
    return Described(figure, _in_words(shown, rows, end - start))


def _in_words(spans: Sequence[Span], rows: Mapping[int, str], seconds: float) -> str:
    """How long it all took, and what share of it each row worked, exchanged and waited."""
    said = []
    for rank, name in rows.items():
        shares = []
        for verb, kinds in VERBS.items():
            share = sum(span.end - span.start for span in spans if span.rank == rank and span.what in kinds) / seconds
            shares += [f"{verb} {share:.0%}"] * (share > 0)
        said.append(f"{name} {', '.join(shares) or 'does nothing'}")
    words = f"Timelines of {len(rows)} members over {duration(seconds)}, and what each does of it: {'; '.join(said)}."
    if any(span.what in WORK for span in spans):
        words += f" {idle_share(spans):.0%} of all members' time is without work."
    return words
