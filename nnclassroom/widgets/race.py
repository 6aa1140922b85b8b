"""A race down a valley: plain descent, momentum and Adam from the same start, as a widget and as a still picture.

The optimizers also train networks (model/optimizers.py), so they run on the kernels of a backend, which may be the
student's own. All steps are computed when a setting changes; playing only shows more of them.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from nnclassroom.exercises.own_backend import choose
from nnclassroom.figures.described import Described
from nnclassroom.widgets import widget
from nncourse.calls import Calls
from nncourse.errors import refuse_unknown
from nncourse.model.optimizers import SGD, Adam, Optimizer

STEPS = 150  # of each race that are shown
LOOK = 500  # steps that are computed, to see who stays below DOWN
DOWN = 0.01  # a cost below this counts as arrived
TOO_HIGH = 1e6  # a descent stops if the cost exceeds this
COSTS = 1e-6, 1e3  # ends of the axis of costs
CAPTION = (
    "Left, lines of equal cost over the two weights, with the three paths. Right, the cost after each step. "
    "Blue circles: plain; orange squares: momentum; green triangles: Adam."
)
UPDATES = "sgd_update", "momentum_update", "adam_update"
Races = dict[str, tuple[np.ndarray, np.ndarray]]  # optimizer -> its path and its costs
STYLES = {"plain": ("tab:blue", "o"), "momentum": ("tab:orange", "s"), "Adam": ("tab:green", "^")}
RACER_WORDS = {"plain": "plain", "momentum": "momentum", "Adam": "Adam"}


@dataclass(frozen=True)
class Valley:
    """A cost of two weights: cost(w1, w2), its gradient, and its minimum."""

    cost: Callable[..., Any]
    gradient: Callable[..., tuple[Any, Any]]
    lowest: tuple[float, float]


STEEP = 50.0  # the straight valley's curvature across; along it is 1
ACROSS, UP = (-2.3, 2.3), (-1.7, 1.9)  # the part of the plane that is shown

VALLEYS = {
    "straight": Valley(lambda x, y: (x**2 + STEEP * y**2) / 2, lambda x, y: (x, STEEP * y), (0.0, 0.0)),
    # Rosenbrock's function, halved, shifted, and with 10 instead of 100
    "bent": Valley(
        lambda x, y: ((1 - x) ** 2 + 10 * (y + 1 - x**2) ** 2) / 2,
        lambda x, y: (x - 1 - 20 * x * (y + 1 - x**2), 10 * (y + 1 - x**2)),
        (1.0, 0.0),
    ),
}
VALLEY_WORDS = {"straight": "straight", "bent": "bent"}


@dataclass(frozen=True)
class Settings:
    """One race. `rate` is for plain descent and for momentum; Adam has its own."""

    valley: str = "straight"
    rate: float = 0.036
    momentum: float = 0.9
    adam_rate: float = 0.1
    w1: float = -1.8
    w2: float = 1.2


def descend(
    valley: str, start: tuple[float, float], optimizer: Optimizer, rate: float, backend: Calls, steps: int = STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """The points of a descent, (steps + 1, 2), and their costs; fewer if the cost exceeds TOO_HIGH."""
    refuse_unknown("a valley", valley, VALLEYS)
    cost, gradient = VALLEYS[valley].cost, VALLEYS[valley].gradient
    w = np.array(start, np.float32)
    points = [w.copy()]
    while len(points) <= steps and cost(*points[-1]) < TOO_HIGH:
        optimizer.step(w, np.array(gradient(*w), np.float32), rate, backend)
        points.append(w.copy())
    path = np.array(points, np.float64)
    return path, cost(*path.T)


def run(settings: Settings, backend: Calls) -> Races:
    """The path and the costs of each optimizer, further than they are shown."""
    start = settings.w1, settings.w2
    racers = {
        "plain": (SGD(), settings.rate),
        "momentum": (SGD(momentum=settings.momentum), settings.rate),
        "Adam": (Adam(), settings.adam_rate),
    }
    with np.errstate(over="ignore", invalid="ignore"):
        return {
            name: descend(settings.valley, start, optimizer, rate, backend, LOOK)
            for name, (optimizer, rate) in racers.items()
        }


def arrival(costs: np.ndarray) -> int | None:
    """The first step after which the cost stays below DOWN; None if there is none."""
    above = np.flatnonzero(~(costs < DOWN))
    last = int(above[-1]) if len(above) else -1
    return last + 1 if last + 1 < len(costs) else None


def words_of(races: Races, step: int) -> str:
    """The costs after this step, and when each optimizer arrives."""
    said, arrived = [], []
    for racer, (_, costs) in races.items():
        name = RACER_WORDS[racer]
        out = step >= len(costs) or not costs[step] <= max(costs[0], 1) * 10
        said.append(f"{name} has leapt out of the valley" if out else f"{name} {costs[step]:.2g}")
        came = arrival(costs) if len(costs) == LOOK + 1 else None
        in_time = came is not None and came <= STEPS
        arrived.append(f"{name} after {came} steps" if in_time else f"{name} not in {STEPS} steps")
    return f"Step {step}. Cost: {', '.join(said)}. To stay below {DOWN:g}: {', '.join(arrived)}."


# ---- the picture


def heights(valley: Valley) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Grids of w1 and w2 over the plane, their costs, and the costs for which a map has lines."""
    x, y = np.meshgrid(np.linspace(*ACROSS, 160), np.linspace(*UP, 160))
    costs = valley.cost(x, y)
    return x, y, costs, np.geomspace(0.02, costs.max(), 15)


def plot_race(step: int = STEPS, title: str = "", backend: Calls | None = None, **settings: Any) -> Described:
    """The race up to this step as a still picture; `settings` are fields of Settings."""
    chosen = Settings(**settings)
    races, valley = run(chosen, backend or choose("numpy")), VALLEYS[chosen.valley]
    figure = Figure(figsize=(9.2, 3.4), dpi=100, layout="constrained")
    if title:
        figure.suptitle(title, fontsize=11)
    plane, curves = figure.subplots(1, 2)
    x, y, costs, levels = heights(valley)
    plane.contour(x, y, costs, levels=levels, colors="0.65", linewidths=0.7)
    plane.plot(*valley.lowest, "*", color="black", markersize=11, label="lowest place")
    plane.set_title("Lines of equal cost, and the paths", fontsize=9)
    plane.set(xlabel="weight w1", ylabel="weight w2", xlim=ACROSS, ylim=UP)
    curves.set(xlabel="step", ylabel="cost", yscale="log", xlim=(-3, STEPS + 3), ylim=COSTS)
    curves.yaxis.set_major_locator(LogLocator(numticks=12))
    curves.grid(True, alpha=0.3)
    curves.set_title("Cost after each step", fontsize=9)
    for name, (path, costs) in races.items():
        colour, mark = STYLES[name]
        line, head = {"color": colour, "linewidth": 1.2}, {"markersize": 9, "markeredgecolor": "black"}
        last, seen = min(step, len(costs) - 1), np.maximum(costs, COSTS[0])
        plane.plot(*path[: last + 1].T, f"{mark}-", **line, markersize=3, label=RACER_WORDS[name])
        plane.plot(*path[last : last + 1].T, mark, **line, **head)
        curves.plot(seen[: last + 1], f"{mark}-", **line, markersize=4, markevery=10)
        curves.plot([last], seen[last : last + 1], mark, **line, **head)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return Described(figure, f"A race in the {VALLEY_WORDS[chosen.valley]} valley. {words_of(races, step)}")


# ---- the widget


def race(mine: bool = False, **settings: Any) -> widget.BrowserWidget:
    """The widget; `settings` are fields of Settings. With mine=True the student's own kept kernels run, if any."""
    now, backend = Settings(**settings), choose("numpy", mine=mine)
    own = [name for name in UPDATES if name in backend.yours]
    yours = f" Your own kernels: {', '.join(own)}." if own else ""
    controls = {
        "play": widget.play("Play", "at"),
        "at": widget.slider("step", "How many steps are shown", 40, 0, STEPS, 1),
        "valley": widget.menu("valley", "The shape of the cost", now.valley, VALLEY_WORDS),
        "rate": widget.factors("learning rate", "For plain descent and for momentum", now.rate, -3, 0, 0.02),
        "momentum": widget.slider("momentum", "How much of V stays in each step", now.momentum, 0, 0.99, 0.01),
        "adam_rate": widget.factors("Adam’s rate", "The learning rate of Adam", now.adam_rate, -3, 0, 0.02),
        "w1": widget.slider("start w1", "Where the first weight begins", now.w1, -2.2, 2.2),
        "w2": widget.slider("start w2", "Where the second weight begins", now.w2, -1.6, 1.8),
    }
    last: dict[Settings, Races] = {}  # the latest race, since playing asks for it again and again

    def answer(at: int, **values: Any) -> tuple[dict[str, Any], str]:
        chosen = Settings(**values)
        if chosen not in last:
            races = run(chosen, backend)
            last.clear()
            last[chosen] = races
        at, races = int(at), last[chosen]
        shown = {name: {"path": path[: at + 1], "costs": costs[: at + 1]} for name, (path, costs) in races.items()}
        return {"valley": list(VALLEYS).index(chosen.valley), "races": shown}, words_of(races, at) + yours

    maps = [widget.contours(*heights(valley)) for valley in VALLEYS.values()]
    return widget.BrowserWidget(
        "race.js",
        controls,
        answer,
        CAPTION,
        given={
            "maps": maps,
            "labels": RACER_WORDS,
            "lowest": [valley.lowest for valley in VALLEYS.values()],
            "x": ACROSS,
            "y": UP,
            "costs": COSTS,
            "steps": STEPS,
        },
        still=lambda: plot_race(40, backend=backend, **asdict(now)),
    )
