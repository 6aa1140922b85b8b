"""A race down a valley: plain descent, momentum and Adam from the same start, as a widget and as a still picture.

The updates are those that train networks (model/updates.py), so they run on the kernels of a backend, which may be the
student's own. All steps are computed when a setting changes; playing only shows more of them.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import ipywidgets
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from nncourse.calls import Calls
from nncourse.classroom import plots, widgets
from nncourse.errors import refuse_unknown
from nncourse.kernels.backend import choose
from nncourse.model.updates import SGD, Adam, Update

STEPS = 150  # of each race
FRAME_EVERY = 0.12  # seconds
DOWN = 0.01  # a cost below this counts as arrived
TOO_HIGH = 1e6  # a descent ends where the cost is above this
COSTS = 1e-6, 1e3  # the ends of the axis
CAPTION = (
    "Left, lines of equal cost over the two weights, with the three paths. Right, the cost after each step. "
    "Blue circles: plain; orange squares: momentum; green triangles: Adam."
)
UPDATES = "sgd_update", "momentum_update", "adam_update"
Races = dict[str, tuple[np.ndarray, np.ndarray]]  # of each of the three, its path and its costs
STYLES = {"plain": ("tab:blue", "o"), "momentum": ("tab:orange", "s"), "Adam": ("tab:green", "^")}


@dataclass(frozen=True)
class Valley:
    """A cost of two weights: cost(w1, w2), its gradient, and its lowest place."""

    cost: Callable
    gradient: Callable
    lowest: tuple[float, float]


STEEP = 50.0  # the straight valley's curvature across; along it is 1
ACROSS, UP = (-2.3, 2.3), (-1.7, 1.9)  # the part of the plane that is shown

VALLEYS = {
    "straight": Valley(lambda x, y: (x**2 + STEEP * y**2) / 2, lambda x, y: (x, STEEP * y), (0.0, 0.0)),
    # Rosenbrock's, half as high, shifted, and with 10 in the place of 100
    "bent": Valley(
        lambda x, y: ((1 - x) ** 2 + 10 * (y + 1 - x**2) ** 2) / 2,
        lambda x, y: (x - 1 - 20 * x * (y + 1 - x**2), 10 * (y + 1 - x**2)),
        (1.0, 0.0),
    ),
}


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
    valley: str, start: tuple[float, float], update: Update, rate: float, backend: Calls, steps: int = STEPS
) -> tuple[np.ndarray, np.ndarray]:
    """The points of a descent, (steps + 1, 2), and their costs; fewer where the cost exceeds TOO_HIGH."""
    refuse_unknown("a valley", valley, VALLEYS)
    cost, gradient = VALLEYS[valley].cost, VALLEYS[valley].gradient
    w = np.array(start, np.float32)
    points = [w.copy()]
    while len(points) <= steps and cost(*points[-1]) < TOO_HIGH:
        update.step(w, np.array(gradient(*w), np.float32), rate, backend)
        points.append(w.copy())
    path = np.array(points, np.float64)
    return path, cost(*path.T)


def run(settings: Settings, backend: Calls) -> Races:
    """The path and the costs of each of the three."""
    start = settings.w1, settings.w2
    racers = {
        "plain": (SGD(), settings.rate),
        "momentum": (SGD(momentum=settings.momentum), settings.rate),
        "Adam": (Adam(), settings.adam_rate),
    }
    with np.errstate(over="ignore", invalid="ignore"):
        return {name: descend(settings.valley, start, update, rate, backend) for name, (update, rate) in racers.items()}


def arrival(costs: np.ndarray) -> int | None:
    """The first step after which the cost stays below DOWN; None where there is none."""
    above = np.flatnonzero(~(costs < DOWN))
    last = int(above[-1]) if len(above) else -1
    return last + 1 if last + 1 < len(costs) else None


def words_of(races: Races, step: int) -> str:
    """Where each of them is after so many steps, and which arrive."""
    said, arrived = [], []
    for name, (_, costs) in races.items():
        out = step >= len(costs) or not costs[step] <= max(costs[0], 1) * 10
        said.append(f"{name} has leapt out of the valley" if out else f"{name} {costs[step]:.2g}")
        came = arrival(costs) if len(costs) == STEPS + 1 else None
        arrived.append(f"{name} after {came} steps" if came is not None else f"{name} not in {STEPS} steps")
    return f"Step {step}. Cost: {', '.join(said)}. Below {DOWN:g} to stay: {', '.join(arrived)}."


# ---- the picture


class Picture:
    """A picture of the race. Only the parts that move are drawn anew for each frame."""

    def __init__(self, valley: str, title: str = "", moving: bool = True):
        self.valley = valley
        self.figure = Figure(figsize=(9.2, 3.4), dpi=100, layout="constrained")
        self.canvas = FigureCanvasAgg(self.figure)
        if title:
            self.figure.suptitle(title, fontsize=11)
        self.plane, self.costs = self.figure.subplots(1, 2)
        self._map(VALLEYS[valley])
        self.costs.set(xlabel="step", ylabel="cost", yscale="log", xlim=(-3, STEPS + 3), ylim=COSTS)
        self.costs.yaxis.set_major_locator(LogLocator(numticks=12))
        self.costs.grid(True, alpha=0.3)
        self.costs.set_title("cost after each step", fontsize=9)
        self.moving = []
        for name, (colour, mark) in STYLES.items():
            line, head = {"color": colour, "linewidth": 1.2}, {"markersize": 9, "markeredgecolor": "black"}
            self.moving += self.plane.plot([], [], f"{mark}-", **line, markersize=3, label=name)
            self.moving += self.plane.plot([], [], mark, **line, **head)
            self.moving += self.costs.plot([], [], f"{mark}-", **line, markersize=4, markevery=10)
            self.moving += self.costs.plot([], [], mark, **line, **head)
        self.figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=9)
        for artist in self.moving:
            artist.set_animated(moving)  # excludes it from a full draw
        self.background = None

    def _map(self, valley: Valley) -> None:
        x, y = np.meshgrid(np.linspace(*ACROSS, 160), np.linspace(*UP, 160))
        heights = valley.cost(x, y)
        levels = np.geomspace(0.02, heights.max(), 15)
        self.plane.contour(x, y, heights, levels=levels, colors="0.65", linewidths=0.7)
        self.plane.plot(*valley.lowest, "*", color="black", markersize=11, label="lowest place")
        self.plane.set_title("lines of equal cost, and the paths", fontsize=9)
        self.plane.set(xlabel="weight w1", ylabel="weight w2", xlim=ACROSS, ylim=UP)

    def show(self, races: Races, step: int) -> None:
        """Show the paths up to this step."""
        for number, (path, costs) in enumerate(races.values()):
            way, head, curve, dot = self.moving[4 * number : 4 * number + 4]
            last = min(step, len(costs) - 1)
            way.set_data(*path[: last + 1].T)
            head.set_data(*path[last : last + 1].T)
            seen = np.maximum(costs, COSTS[0])
            curve.set_data(np.arange(last + 1), seen[: last + 1])
            dot.set_data([last], seen[last : last + 1])

    def png(self) -> bytes:
        """The frame as a PNG file."""
        if self.background is None:
            self.canvas.draw()
            self.background = self.canvas.copy_from_bbox(self.figure.bbox)
        self.canvas.restore_region(self.background)
        for artist in self.moving:
            artist.axes.draw_artist(artist)
        return widgets.frame(self.canvas)


def plot_race(step: int = STEPS, title: str = "", backend: Calls | None = None, **settings) -> plots.Described:
    """The race as a still picture; `settings` are fields of Settings."""
    chosen = Settings(**settings)
    races = run(chosen, backend or choose("numpy"))
    still = Picture(chosen.valley, title, moving=False)
    still.show(races, step)
    return plots.Described(still.figure, f"A race in the {chosen.valley} valley. {words_of(races, step)}")


# ---- the widget


class Race:
    """What the panel shows: three paths up to the present step. Its methods are called from several threads."""

    def __init__(self, panel: widgets.Panel, settings: Settings, backend: Calls):
        self.panel, self.settings, self.backend = panel, settings, backend
        self.at, self.button = panel.controls["at"], panel.controls["play"]
        self.lock = threading.Lock()
        self.stopped = threading.Event()  # of the thread that plays; each has its own
        self.stopped.set()
        self.picture, self.races = Picture(settings.valley), {}
        own = [name for name in UPDATES if backend.notes.get(name) == "yours"]
        self.yours = f" Your own kernels: {', '.join(own)}." if own else ""
        self.change()

    def change(self, **settings) -> None:
        """Run the race with changed settings, and show it up to the present step."""
        with self.lock:
            self.settings = replace(self.settings, **settings)
            self.races = run(self.settings, self.backend)
            if self.picture.valley != self.settings.valley:
                self.picture = Picture(self.settings.valley)
            self._draw()

    def draw(self) -> None:
        """Show the race up to the present step."""
        with self.lock:
            self._draw()

    def _draw(self) -> None:
        self.picture.show(self.races, self.at.value)
        self.panel.image.value = self.picture.png()
        paused = self.stopped.is_set()
        words = f"{'Paused' if paused else 'Playing'}. {words_of(self.races, self.at.value)}{self.yours}"
        widgets.say(self.panel.words, words, aloud=paused)

    def play_or_pause(self) -> None:
        """Pause; or play on, from the start if it is at the end."""
        if not self.stopped.is_set():
            self.pause()
            return
        self.stopped = threading.Event()
        self.button.description = "Pause"
        if self.at.value == STEPS:
            self.at.value = 0
        threading.Thread(target=self._play, args=(self.stopped,), name="race", daemon=True).start()

    def pause(self) -> None:
        """Stop where it is."""
        self.stopped.set()
        self.button.description = "Play"
        self.draw()

    def go(self, step: int) -> None:
        """Pause, and show the race after so many steps."""
        self.pause()
        self.at.value = min(step, STEPS)

    def _play(self, stopped: threading.Event) -> None:
        while not stopped.wait(FRAME_EVERY) and self.at.value < STEPS:
            self.at.value += 1  # whoever observes it draws
        if not stopped.is_set():
            self.pause()


def race(mine: bool = False, **settings) -> widgets.Panel:
    """A panel with the race: sliders for the rates, the momentum and the start, and buttons to play it.

    `settings` are fields of Settings. With mine=True the student's own kept kernels run, where there are any.
    """
    now = Settings(**settings)
    number = partial(widgets.control, ipywidgets.FloatSlider)
    buttons = {
        "play": _button("Play", "Take one step after the other; press again to pause"),
        "step": _button("One step", "Pause, and take one step"),
        "again": _button("Start again", "Pause, and go back to the start"),
        "at": widgets.control(
            ipywidgets.IntSlider, "step", "How many steps are shown", "360px", value=40, min=0, max=STEPS
        ),
    }
    controls = {
        "valley": widgets.menu("valley", "The shape of the cost", now.valley, tuple(VALLEYS), "170px"),
        "rate": _rate("learning rate", "Of plain descent and of momentum", now.rate),
        "momentum": number(
            "momentum", "How much of V stays in each step", value=now.momentum, min=0, max=0.99, step=0.01
        ),
        "adam_rate": _rate("Adam’s rate", "The learning rate of Adam", now.adam_rate),
        "w1": number("start w1", "Where the first weight begins", value=now.w1, min=-2.2, max=2.2, step=0.1),
        "w2": number("start w2", "Where the second weight begins", value=now.w2, min=-1.6, max=1.8, step=0.1),
    }
    rows = [widgets.in_line(*part.values()) for part in (buttons, controls)]
    panel = widgets.Panel(buttons | controls, CAPTION, rows)
    state = Race(panel, now, choose("numpy", mine=mine))
    panel.on_close = lambda: state.stopped.set()
    buttons["play"].on_click(lambda _: state.play_or_pause())
    buttons["step"].on_click(lambda _: state.go(state.at.value + 1))
    buttons["again"].on_click(lambda _: state.go(0))
    buttons["at"].observe(lambda change: state.draw(), "value")
    for name, widget in controls.items():
        widget.observe(lambda change, name=name: state.change(**{name: change["new"]}), "value")
    return panel


def _button(label: str, tip: str) -> ipywidgets.Button:
    return widgets.control(ipywidgets.Button, label, tip, "110px")


def _rate(label: str, tip: str, value: float) -> ipywidgets.FloatLogSlider:
    limits = {"min": -3, "max": 0, "step": 0.02, "readout_format": ".3g"}
    return widgets.control(ipywidgets.FloatLogSlider, label, tip, "300px", value=value, base=10, **limits)
