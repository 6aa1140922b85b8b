"""Figures and texts of notebooks 12 and 12b on exchanges: letters, the ring, timelines, recorded times."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.typing import ColorType

from nnclassroom.exercises.catalogue import find
from nnclassroom.figures import overheads
from nnclassroom.figures.common import INK, draw_arrow, draw_box, drawing, plot_lines
from nnclassroom.figures.described import Described, WordedFigure
from nnclassroom.formats import duration
from nnclassroom.recorded_words import in_words
from nncourse.errors import CourseError
from nncourse.parallel.simulation import ExchangeError, Message, SimulatedGroup, count, fit_link, simulate
from nncourse.parallel.timeline import WORK, Span, idle_share

__all__ = [
    "letters",
    "plot_gantt",
    "plot_lines",
    "plot_ring",
    "plot_split_layers",
    "recorded_all_reduce",
    "recorded_epochs",
]

MOST_RANKS = 8  # of a ring that is drawn
SHADES = to_rgb("#d6e6f5"), to_rgb("#1f77b4")  # of a chunk with the numbers of one rank, and of all ranks but one
WHOLE = "tab:green"


# ---- letters


def letters(messages: Sequence[Message]) -> str:
    """A line for each message: sender, receiver, size, times of departure and arrival."""
    lines = []
    for message in sorted(messages, key=lambda each: each.begin):
        when = f"leaves at {message.begin:g} s, arrives at {message.arrival:g} s"
        lines.append(f"rank {message.source} → rank {message.to}: {count(message.values.size)}, {when}")
    return "\n".join(lines)


# ---- a layer whose filters are split


def plot_split_layers(filters: int = 4) -> WordedFigure:
    """Draw two devices with half of the filters of two convolutions each, and what goes from the one to the other."""
    figure, (axes,) = drawing(1, 7.2, 3.6)
    half, width = filters // 2, 2.6
    for device, left in enumerate((0.6, 4.4)):
        axes.text(left + width / 2, 5.5, f"device {device}", ha="center", fontsize=11, color=INK)
        own = range(device * half, (device + 1) * half)
        rows: list[tuple[float, str, ColorType]] = [(0.0, "the image, all of it", "0.9")]
        rows += [(1.3, f"convolution 1: filters {own[0]} to {own[-1]}", SHADES[0])]
        rows += [(2.6, f"all {filters} maps of convolution 1", "0.9")]
        rows += [(3.9, f"convolution 2: filters {own[0]} to {own[-1]}", SHADES[0])]
        for height, text, colour in rows:
            draw_box(axes, (left, height), (width, 0.7), text, 9, facecolor=colour, edgecolor=INK)
        for low in (0.7, 2.0, 3.3):
            draw_arrow(axes, (left + width / 2, low + 0.02), (left + width / 2, low + 0.58), INK)
    for start, end in (((3.24, 1.75), (4.36, 2.8)), ((4.36, 1.75), (3.24, 2.8))):
        draw_arrow(axes, start, end, "tab:purple", linewidth=2)
    axes.set(xlim=(0.4, 7.2), ylim=(-0.2, 5.9))
    figure.words = (
        f"Two devices with the same image. Each computes half of the {filters} filters of convolution 1. Then arrows "
        "cross: each sends its maps to the other. Each has all maps, and computes half of the filters of convolution 2."
    )
    return figure


# ---- the ring


class _Watched:
    """A member's group that records the member's vector before each message arrives, and the chunks that it sends."""

    def __init__(self, group: SimulatedGroup, vector: np.ndarray):
        self.group, self.vector = group, vector
        self.rank, self.size = group.rank, group.size
        self.seen: list[np.ndarray] = []
        self.sent: list[range] = []
        self.ways: set[int] = set()

    def send(self, vector: np.ndarray, to: int, tag: int = 0) -> None:
        first = (vector.ctypes.data - self.vector.ctypes.data) // self.vector.itemsize
        self.sent.append(range(first, first + vector.size) if 0 <= first < self.size else range(0))  # none of a copy
        self.ways.add((to - self.rank) % self.size)
        self.group.send(vector, to, tag)

    def receive(self, vector: np.ndarray, source: int, tag: int = 0) -> None:
        self.seen.append(self.vector.copy())
        self.group.receive(vector, source, tag)


class RingState(NamedTuple):
    """How often each rank's numbers are in each chunk of a rank (chunks, ranks), and the chunks that it sends next."""

    counts: np.ndarray
    sent: range

    def due(self, step: int) -> bool:
        """Whether the chunks that it sends in this step of a whole ring, from 0, hold as many ranks as they should."""
        there = self.counts[self.sent.start : self.sent.stop]
        return bool((there <= 1).all() and (there.sum(axis=1) == min(step + 1, len(self.counts))).all())


def ring_states(kernel: Callable[..., Any], size: int, name: str) -> tuple[list[list[RingState]], int, str]:
    """For each rank its state before each message and at the end; how many ranks further it sends; what ended it.

    A chunk is one number, which is a power of `base` for each rank: so a sum shows which ranks contributed. In
    all_gather, by its `name`, a rank begins with its whole chunk, and zeros.
    """
    base, watched = 2 ** (24 // size), {}

    def part(group: SimulatedGroup) -> None:
        vector = np.full(size, base**group.rank, np.float32)
        if name == "all_gather":
            vector[:] = 0
            vector[(group.rank + 1) % size] = sum(base**rank for rank in range(size))
        watched[group.rank] = _Watched(group, vector)
        kernel(watched[group.rank], vector)

    ended = ""
    try:
        simulate(part, size)
    except ExchangeError as error:
        ended = str(error)
    except (ArithmeticError, AttributeError, LookupError, NameError, TypeError, ValueError) as error:  # an attempt's
        raise CourseError(f"this ring cannot be drawn: it raised {type(error).__name__}: {error}") from None
    ways = set[int]().union(*(each.ways for each in watched.values()))
    if len(ways) != 1 or not ways <= {1, size - 1}:
        raise CourseError(f"expected a ring: each rank sends to the same neighbour; {ended or 'this is not one'}")

    def counts(vector: np.ndarray) -> np.ndarray:
        return vector.astype(int)[:, None] // base ** np.arange(size) % base

    states = []
    for rank in range(size):
        vectors = [*watched[rank].seen, watched[rank].vector]
        sent = [*watched[rank].sent, *[range(0)] * len(vectors)]  # nothing at the end
        states.append([RingState(counts(vector), chunks) for vector, chunks in zip(vectors, sent, strict=False)])
    return states, ways.pop(), ended


def plot_ring(kernel: Callable[..., Any] | None = None, size: int = 4, title: str = "") -> Described:
    """Draw the steps of a ring or of one of its halves, by default the course's ring: which ranks are in which chunks.

    Of an exercise's answer your attempt is drawn, right or wrong.
    """
    if not 2 <= size <= MOST_RANKS:
        raise CourseError(f"expected from 2 to {MOST_RANKS} ranks for the picture of a ring; got {size}")
    kernel = getattr(kernel, "attempt", kernel) or find("all_reduce")["ring"]
    name = getattr(getattr(kernel, "operation", None), "name", "all_reduce")
    first = size - 1 if name == "all_gather" else 0  # of the steps of a whole ring
    states, way, ended = ring_states(kernel, size, name)
    steps = max(map(len, states))
    states = [each + [each[-1]] * (steps - len(each)) for each in states]
    rows = 2 if steps > 5 else 1
    columns = -(-steps // rows)
    figure = Figure(figsize=(10.0, 0.75 + rows * (0.55 + 0.33 * size)), dpi=100)
    places = figure.subplots(rows, columns, squeeze=False).ravel()
    figure.subplots_adjust(left=0.07, right=0.99, top=0.84, bottom=0.1, hspace=0.42, wspace=0.08)
    own = [[(rank + 1) % size] if name == "reduce_scatter" else range(size) for rank in range(size)]
    done = not ended and all((each[-1].counts[own[rank]] == 1).all() for rank, each in enumerate(states))
    figure.suptitle(title or ("" if done else "This ring is wrong"), fontsize=11)
    for step, axes in enumerate(places):
        axes.set_axis_off()
        if step >= steps:
            continue
        when = "Start" if step == 0 else f"After step {step}"
        end = f"{when}: done" if done else f"{when}: not done"
        axes.set_title(when if step < steps - 1 else end, fontsize=9)
        for rank in range(size):
            state = states[rank][step]
            for chunk, counts in enumerate(state.counts):
                frame = ("-" if state.due(first + step) else "--") if chunk in state.sent else ""
                _chunk(axes, chunk, rank, counts, frame)
            if step % columns == 0:
                axes.text(-0.2, rank + 0.5, f"rank {rank}", ha="right", va="center", fontsize=9, color=INK)
        axes.set(xlim=(-0.06, size + 0.06), ylim=(size + 0.06, -0.06))
    goes = "below (the last to rank 0)" if way == 1 else "above (rank 0 to the last)"
    note = f"the digits: whose numbers are added up in a chunk; framed: sent next, to the rank {goes}"
    if not done:
        note += "; dashed: not what is due"
    figure.text(0.5, 0.02, note, ha="center", fontsize=9, color=INK)
    return Described(figure, " ".join([*_told(states, size, first), *([f"Then: {ended}."] if ended else [])]))


def _chunk(axes: Any, column: int, row: int, counts: np.ndarray, frame: str) -> None:
    size, words = len(counts), "".join(str(rank) * count for rank, count in enumerate(counts))
    whole = bool((counts == 1).all())
    share = min((len(words) - 1) / max(size - 2, 1), 1)
    light, dark = map(np.array, SHADES)
    colour = WHOLE if whole else tuple(light + max(share, 0) * (dark - light))
    edge = {"edgecolor": "tab:red", "linewidth": 2, "linestyle": frame} if frame else {"edgecolor": "none"}
    axes.add_patch(Rectangle((column + 0.05, row + 0.08), 0.9, 0.84, facecolor=colour, **edge))
    ink = "white" if whole or share > 0.5 else "black"
    shown = words if len(words) <= 2 * size else f"{words[:size]}…"
    small = 8 if len(shown) < 6 else 6
    axes.text(column + 0.5, row + 0.5, shown, ha="center", va="center", fontsize=small, color=ink)


def _told(states: Sequence[Sequence[RingState]], size: int, first: int) -> Iterator[str]:
    yield f"A ring of {size} ranks with {size} chunks each."
    for step in range(len(states[0]) - 1):
        now = [each[step] for each in states]
        sends = [f"rank {rank} {_named(state.sent)}" for rank, state in enumerate(now)]
        whole = sum(int((each[step + 1].counts == 1).all(axis=1).sum()) for each in states)
        yield f"Sent in step {step + 1}: {', '.join(sends)}; then {whole} of {size * size} chunks are whole."
        if late := [str(rank) for rank, state in enumerate(now) if not state.due(first + step)]:
            yield f"Something other than what is due is sent by: rank {', '.join(late)}."


def _named(chunks: range) -> str:
    if not chunks:
        return "a copy or nothing"
    return f"chunk {chunks[0]}" if len(chunks) == 1 else f"chunks {chunks[0]} to {chunks[-1]}"


# ---- recorded times


def recorded_all_reduce() -> str:
    """The recorded times of the sum over GPUs, with machine and date; one line if there are none."""
    found = overheads.recorded("all_reduce")
    if not found:
        return "The sum over several GPUs: not recorded yet."
    lines = []
    for devices in sorted({record["devices"] for record in found["records"]}):
        chosen = [record for record in found["records"] if record["devices"] == devices]
        gpu = found["machine"].split(",")[0]
        lines += [f"{devices} × {gpu}, {found['date']}; µs for the sum of n numbers on each", *_table(chosen), ""]
    return "\n".join(lines[:-1])


def _table(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A line for each contender, with α and β fitted to its times."""
    sizes = sorted({record["n"] for record in records})
    contenders = list(dict.fromkeys(record["contender"] for record in records))
    width = 1 + max(len(in_words(contender)) for contender in contenders)
    yield f"{'n':{width}}" + "".join(f"{n:>12,}" for n in sizes) + f"{'α, µs':>9}{'β, GB/s':>9}"
    for contender in contenders:
        times = {record["n"]: record["seconds"] for record in records if record["contender"] == contender}
        cells = "".join(f"{1e6 * times[n]:12.1f}" if n in times else f"{'–':>12}" for n in sizes)
        fitted = ""
        if len(times) > 3:
            link = fit_link([4 * n for n in times], list(times.values()))
            fitted = f"{1e6 * link.latency:9.1f}{link.bandwidth / 1e9:9.0f}"
        yield f"{in_words(contender):{width}}{cells}{fitted}"


def recorded_epochs() -> str:
    """Recorded times of a step on one GPU and on several that share each batch, with machine and date.

    Steps are graphs of kernels; for one GPU also the fused epoch in one kernel, if it fits.
    """
    found = overheads.recorded("data_parallel")
    if not found:
        return "Epochs on several GPUs: not recorded yet."
    steps: dict[int, dict[str, float]] = {}
    for each in sorted(found["records"], key=lambda each: (each["devices"], each["contender"] == "one_kernel")):
        count = f"{each['devices']} GPU{'s' * (each['devices'] > 1)}"
        name = f"{count}, one kernel" if each["contender"] == "one_kernel" else count
        steps.setdefault(each["batch"], {})[name] = each["seconds_a_step"]
    names = list(dict.fromkeys(name for times in steps.values() for name in times))
    lines = [
        f"{found['machine'].split(',')[0]}, {found['date']}; µs a step",
        f"{'rows of a batch':16}" + "".join(f"{name:>{len(name) + 3}}" for name in names),
    ]
    for batch, times in sorted(steps.items()):
        cells = {name: f"{1e6 * times[name]:.0f}" if name in times else "–" for name in names}
        lines.append(f"{batch:<16,}" + "".join(f"{cell:>{len(name) + 3}}" for name, cell in cells.items()))
    return "\n".join(lines)


# ---- timelines: a row for each member of a group, a bar for each piece of work


class Style(NamedTuple):
    """Colour and hatch of a bar, the colour of the number in it, and the label in the legend."""

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
NUMBERED = {"forward": "{}", "backward": "{}", "send": "→{}", "receive": "←{}"}  # texts in bars
VERBS = {"works": WORK, "exchanges": ("send", "receive", "exchange"), "waits": ("wait",)}
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
NARROW = 0.02  # share of the width below which a bar has no number


def plot_gantt(
    spans: Sequence[Span], title: str = "", names: Mapping[int, str] | None = None, until: float | None = None
) -> Described:
    """Plot the work of the members of a group over time. `names` replace "rank 0" and so on.

    Bars of forward and backward hold the number of their micro-batch, those of send and receive the other rank. Only
    the first `until` seconds are shown, if given.
    """
    if not spans:
        raise CourseError("expected the spans of a timeline, at least one; got none")
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
            style: dict[str, Any] = {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.4}
            axes.broken_barh(places, (place - 0.4, 0.8), **style)
            for span, (left, width) in zip(bars, places, strict=True):
                if what in NUMBERED and width > NARROW * (end - start) * scale:
                    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": ink}
                    axes.text(left + width / 2, place, NUMBERED[what].format(span.number), **middle)
    axes.set_yticks(range(len(rows)), rows.values(), fontsize=9)
    axes.set(xlabel=f"time, {unit}", xlim=(0, (end - start) * scale), ylim=(len(rows) - 0.5, -0.5))
    least = 1e-6 * (end - start)  # what a member receives while it sends takes no time of its own
    there = [what for what in STYLES if any(span.what == what and span.end - span.start > least for span in shown)]
    marks = [Patch(facecolor=STYLES[what].colour, hatch=STYLES[what].hatch, edgecolor="0.7") for what in there]
    said = [STYLES[what].label for what in there]
    figure.legend(marks, said, loc="outside lower center", ncols=len(said), frameon=False, fontsize=9)
    return Described(figure, _in_words(shown, rows, end - start))


def _in_words(spans: Sequence[Span], rows: Mapping[int, str], seconds: float) -> str:
    """The total time, and the shares of it that each row worked, exchanged and waited."""
    said = []
    for rank, name in rows.items():
        shares = []
        for verb, kinds in VERBS.items():
            share = sum(span.end - span.start for span in spans if span.rank == rank and span.what in kinds) / seconds
            shares += [f"{verb} {share:.0%}"] * (share > 0)
        said.append(f"{name} {', '.join(shares) or 'does nothing'}")
    words = f"Timelines of {len(rows)} members over {duration(seconds)}, and how each spends them: {'; '.join(said)}."
    if any(span.what in WORK for span in spans):
        words += f" {idle_share(spans):.0%} of all members' time is without work."
    return words
