"""Downpour with a slow worker, as a widget and as a still picture: the cost over updates, and over time.

A small least-squares problem is trained in three ways with simulated times: a worker takes 1 for a gradient, the last
worker longer. Alone: one quick worker. Synchronous: each update waits for all gradients and uses their mean. Downpour:
each gradient is an update as soon as it is there, although its worker has not seen the latest updates.
"""

import heapq
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from nnclassroom.figures.common import row_of_axes
from nnclassroom.figures.described import Described
from nnclassroom.widgets import widget
from nncourse.errors import CourseError

ROWS, FEATURES, BATCH = 256, 10, 8
CURVATURES = np.geomspace(1.0, 0.05, FEATURES)  # of the cost: plain descent needs a rate below 2 / 1
UNTIL = 100.0  # end of the time axis, in units of a quick worker's gradient
UPDATES = 300  # end of the axis of updates
TOO_HIGH = 1e3  # training stops if the cost exceeds this
COSTS = 3e-3, 30.0  # ends of the axis of costs
MOST_WORKERS = 16

CAPTION = (
    "Left, the cost after each update of the parameters. Right, the same over time: a quick worker takes 1 for a "
    "gradient. Blue circles: one worker alone; orange squares: synchronous; green triangles: Downpour."
)


class Style(NamedTuple):
    """Colour, marker and dashes of a training's lines, its label in the legend, its name to begin a sentence."""

    colour: str
    mark: str
    dashes: str
    label: str
    words: str


STYLES = {
    "alone": Style("tab:blue", "o", ":", label="alone", words="Alone"),
    "synchronous": Style("tab:orange", "s", "--", label="synchronous", words="Synchronous"),
    "Downpour": Style("tab:green", "^", "-", label="Downpour", words="Downpour"),
}


@dataclass(frozen=True)
class Settings:
    """The number of workers, of which the last takes `slowness` times as long as the others; the learning rate."""

    workers: int = 4
    slowness: float = 5.0
    rate: float = 0.2

    def __post_init__(self) -> None:
        if not (1 <= self.workers <= MOST_WORKERS and self.slowness >= 1 and self.rate > 0):
            wanted = f"from 1 to {MOST_WORKERS} workers, a slowness of at least 1 and a rate above 0"
            raise CourseError(f"expected {wanted}; got {self}")


class Course(NamedTuple):
    """Time of each update, cost after it, and staleness of its gradient. Entry 0 is the start."""

    times: np.ndarray
    costs: np.ndarray
    staleness: np.ndarray


class Problem:
    """Least squares: C(w) = |X w − y|² / (2 rows). Its curvatures along the axes are CURVATURES."""

    def __init__(self, seed: int = 0):
        self.rng = np.random.default_rng(seed)
        directions, _ = np.linalg.qr(self.rng.standard_normal((ROWS, FEATURES)))
        self.X = directions * np.sqrt(ROWS * CURVATURES)
        self.y = self.X @ np.ones(FEATURES) + 0.1 * self.rng.standard_normal(ROWS)
        self.best = self.X.T @ self.y / (ROWS * CURVATURES)
        residual = self.X @ self.best - self.y
        self.least = float(residual @ residual) / (2 * ROWS)

    def cost(self, w: np.ndarray) -> float:
        """|X w − y|² / (2 rows), computed as the difference to the minimum, which is quicker."""
        away = w - self.best
        return self.least + float(CURVATURES @ (away * away)) / 2

    def gradient(self, w: np.ndarray, workers: int = 1) -> np.ndarray:
        """The mean gradient of `workers`, each with a batch of random rows."""
        rows = self.rng.integers(0, ROWS, workers * BATCH)
        X = self.X[rows]
        return (X @ w - self.y[rows]) @ X / len(rows)

    def seconds(self) -> float:
        """Time of a quick worker for one gradient: about 1."""
        return self.rng.uniform(0.95, 1.05)


def synchronous(settings: Settings) -> Course:
    """One update per round, which takes as long as its slowest worker. With one worker: plain descent."""
    problem, w, slow = Problem(), np.zeros(FEATURES), _slowness(settings)
    course = [(0.0, problem.cost(w), 0)]
    time = max(times * problem.seconds() for times in slow)
    while time < UNTIL and course[-1][1] < TOO_HIGH:
        w = w - settings.rate * problem.gradient(w, len(slow))
        course.append((time, problem.cost(w), 0))
        time += max(times * problem.seconds() for times in slow)
    return Course(*map(np.array, zip(*course, strict=True)))


def asynchronous(settings: Settings) -> Course:
    """Downpour: the worker that is ready next pushes its gradient and fetches the parameters."""
    problem, w, slow = Problem(), np.zeros(FEATURES), _slowness(settings)
    course = [(0.0, problem.cost(w), 0)]
    ready = [(times * problem.seconds(), worker) for worker, times in enumerate(slow)]
    heapq.heapify(ready)
    fetched = [(w, 0)] * len(slow)  # what each worker has, and how many updates were in it
    while ready[0][0] < UNTIL and course[-1][1] < TOO_HIGH:
        time, worker = ready[0]
        seen, version = fetched[worker]
        w = w - settings.rate * problem.gradient(seen)
        course.append((time, problem.cost(w), len(course) - 1 - version))
        fetched[worker] = w, len(course) - 1
        heapq.heapreplace(ready, (time + slow[worker] * problem.seconds(), worker))
    return Course(*map(np.array, zip(*course, strict=True)))


def _slowness(settings: Settings) -> list[float]:
    return [1.0] * (settings.workers - 1) + [settings.slowness]


def run(settings: Settings) -> dict[str, Course]:
    """The three trainings."""
    return {
        "alone": synchronous(Settings(1, 1.0, settings.rate)),
        "synchronous": synchronous(settings),
        "Downpour": asynchronous(settings),
    }


def words_of(courses: dict[str, Course]) -> str:
    """How stale the gradients were, and the final cost of each training."""
    stale = courses["Downpour"].staleness[1:]
    said = [f"Downpour's gradients are stale by {stale.mean():.2g} updates on average, at most by {stale.max()}."]
    for key, course in courses.items():
        name = STYLES[key].words
        number = len(course.costs) - 1
        updates = "1 update" if number == 1 else f"{number} updates"
        if course.costs[-1] > course.costs[0]:
            said.append(f"{name} diverges: take a smaller rate.")
        else:
            last = course.costs[-max(1, len(course.costs) // 10) :].mean()  # it fluctuates
            said.append(f"{name}: {updates}, cost {last:.2g} at the end.")
    return " ".join(said)


def plot_downpour(title: str = "", **settings: Any) -> Described:
    """The still picture; `settings` are fields of Settings."""
    courses = run(Settings(**settings))
    figure, (left, right) = row_of_axes(title, 2, 9.2, 3.6, layout=None)
    figure.subplots_adjust(left=0.075, right=0.98, bottom=0.25, top=0.9 if title else 0.97, wspace=0.2)
    for name, (times, costs, _) in courses.items():
        colour, mark, dashes, label, _ = STYLES[name]
        seen = np.clip(costs, *COSTS)
        for axes, x, end in ((left, np.arange(len(seen)), UPDATES), (right, times, UNTIL)):
            line = {"color": colour, "linestyle": dashes, "linewidth": 1.2, "marker": mark, "markersize": 5}
            shown = max(2, int(np.count_nonzero(x <= end)))
            axes.plot(x, seen, label=label if axes is left else None, markevery=max(1, shown // 12), **line)
            axes.set(yscale="log", ylim=COSTS, xlim=(0, end))
    left.set(xlabel="updates of the parameters", ylabel="cost")
    right.set(xlabel="time, in gradients of a quick worker", ylabel="cost")
    figure.legend(loc="lower center", ncols=3, frameon=False, fontsize=9)
    return Described(figure, f"Cost over updates and over time, of three trainings. {words_of(courses)}")


def downpour(**settings: Any) -> widget.BrowserWidget:
    """The widget; `settings` are fields of Settings."""
    now = Settings(**settings)
    slow = "The last worker takes this many times as long for a gradient as the others"
    controls = {
        "workers": widget.slider("workers", "How many workers compute gradients", now.workers, 1, MOST_WORKERS, 1),
        "slowness": widget.slider("slowness of the last", slow, now.slowness, 1, 20, 0.5),
        "rate": widget.learning_rate(now.rate),
    }

    def answer(workers: int, slowness: float, rate: float) -> tuple[dict[str, Any], str]:
        courses = run(Settings(int(workers), slowness, rate))
        curves = {name: {"times": course.times, "costs": course.costs} for name, course in courses.items()}
        return {"curves": curves}, words_of(courses)

    return widget.BrowserWidget(
        "downpour.js",
        controls,
        answer,
        CAPTION,
        given={"updates": UPDATES, "until": UNTIL, "costs": COSTS},
        still=lambda: plot_downpour(**asdict(now)),
    )
