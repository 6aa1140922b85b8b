"""An interactive network: change its data, neurons or learning rate and watch it train.

    playground(mine=True)      # everything, with your own kept kernels
    taste()                    # a small one, for a first look
    still(), taste_still()     # the same as figures

The browser only draws the arrays of frames.py and sends commands. Everything is computed here, by kernels of the
backend or of the student, on one thread: see loop.py.
"""

import contextvars
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import anywidget
import traitlets

from nnclassroom.figures.described import Described
from nnclassroom.widgets.playground.engine import (
    DATA_WORDS,
    MOST_LAYERS,
    MOST_NEURONS,
    Engine,
    Settings,
    refuse_bad_features,
    refuse_too_large,
)
from nnclassroom.widgets.playground.loop import SHAPES, Loop, Shown
from nnclassroom.widgets.playground.still import still
from nnclassroom.widgets.widget import SAVED, display_widget, packed, text_of
from nncourse import device as devices
from nncourse.calls import ACTIVATIONS
from nncourse.model.network import COSTS, OF_TOKENS

__all__ = ["Playground", "Settings", "end_all", "playground", "still", "taste", "taste_still"]

BUTTONS = ("start", "pause", "step", "reset")
RATES = tuple(round(factor * 10.0**power, 6) for power in range(-3, 2) for factor in (1, 1.5, 2, 3, 5, 7)) + (100.0,)
L2 = (0, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
BATCHES = (1, 2, 3, 5, 10, 15, 20, 30, 50, 100, 150, 200)
SPEEDS = [(speed, f"{speed:g} epochs/s") for speed in (0.2, 1, 5, 20, 100)] + [(0, "fastest")]
COST_WORDS = {"binary_cross_entropy": "binary cross-entropy", "categorical_cross_entropy": "categorical c.-e."}
TASTE_DATA = ("circles", "moons")
SMALL: dict[str, Any] = {  # taste()
    "data": "circles",
    "hidden": (3,),
    "noise": 0.08,
    "samples": 200,
    "learning_rate": 0.2,
}


class Playground(anywidget.AnyWidget):
    """The widget. Python sets the traits, the browser sends commands."""

    script = "playground/playground.js"
    _esm = text_of("widget.js", script)
    _css = text_of("playground/playground.css")
    form = traitlets.Unicode("full").tag(sync=True)  # or "small"
    controls: "traitlets.List[Any]" = traitlets.List().tag(sync=True)
    limits = traitlets.Dict().tag(sync=True)
    scene = traitlets.Dict().tag(sync=True)
    frame = traitlets.Dict().tag(sync=True)
    state = traitlets.Dict().tag(sync=True)  # running, words, aloud, settings

    def __init__(
        self,
        settings: Settings,
        form: str,
        controls: list[dict[str, Any]],
        in_words: Callable[[Engine], str] = Engine.words,
    ):
        self.loop: Loop | None = None
        first: list[Shown] = []
        loop = Loop(settings, first.append, in_words)
        loop.turn([])  # the first picture, before the thread starts
        limits = {"layers": MOST_LAYERS, "neurons": MOST_NEURONS}
        super().__init__(form=form, controls=controls, limits=limits, **as_traits(first[-1]))
        known = {control["name"] for control in controls}
        mine = weakref.ref(self)  # the thread must not keep the widget

        def tell(widget: "Playground", shown: Shown) -> None:
            with widget.hold_sync():  # one message
                for name, value in as_traits(shown).items():
                    setattr(widget, name, value)

        # ipykernel hands a message from the browser to the thread in whose context the previous one was sent to it. The
        # browser's own message has the context of the widgets' thread. A new thread has that of the cells, where
        # messages wait for the running cell.
        context = [contextvars.copy_context()]

        def show(shown: Shown) -> None:
            if widget := mine():
                context[0].run(tell, widget, shown)

        def obey(widget: "Playground", message: dict[str, Any], buffers: list[Any]) -> None:
            context[0] = contextvars.copy_context()
            name = message.get("name", "")
            if name == "hello":
                widget.send({"hello": True})
            if name in BUTTONS or name in SHAPES or name in known or name in ("look", "seen"):
                loop.put(name, message.get("value"))

        loop.show = show
        self.loop = loop
        self.on_msg(obey)
        self.on_close = weakref.finalize(self, loop.end)  # also when Python exits
        loop.start()

    def __repr__(self) -> str:
        """The text that a saved notebook shows without a running kernel."""
        return SAVED

    def _ipython_display_(self) -> None:
        """Display the widget, and the line for a saved notebook."""
        display_widget(self)

    def close(self) -> None:
        """End the thread and close the widget."""
        if self.loop:
            self.on_close()
        super().close()


def as_traits(shown: Shown) -> dict[str, Any]:
    """The new values of the widget's traits; traits that stay the same are left out."""
    settings = {
        name: list(value) if isinstance(value, tuple) else value for name, value in vars(shown.settings).items()
    }
    state = {"running": shown.running, "words": shown.words, "aloud": shown.aloud, "settings": settings}
    new = {"scene": shown.scene, "frame": shown.frame, "state": state}
    return {name: packed(value) for name, value in new.items() if value is not None}


def playground(**defaults: Any) -> Playground:
    """A network that trains while you watch: its points, neurons, weights and costs; `defaults` as in Settings.

    Only one playground trains at a time: a new one ends the previous one.
    """
    settings = _checked(**defaults)
    end_all()
    return Playground(settings, "full", controls(settings))


def taste() -> Playground:
    """A small playground for a first look: two data sets, Start, Pause, and two sliders."""
    settings = _checked(**SMALL)
    end_all()
    chosen = [
        menu("data", "points", "Which points to tell apart", [(name, DATA_WORDS[name]) for name in TASTE_DATA]),
        stepped("neurons", "neurons", "How many neurons the network has between input and output", 3, range(1, 9)),
        stepped("noise", "scatter of the points", "How far the points are scattered", settings.noise, _hundredths(30)),
    ]
    return Playground(settings, "small", chosen, plainly)


def plainly(engine: Engine) -> str:
    """The state of the training, for beginners."""
    return f"round {engine.epoch}. Of the points that it has never seen, it gets {engine.right():.0%} right"


def taste_still(epochs: int = 60) -> Described:
    """The picture of taste() after some training, as a figure."""
    return still(epochs, plain=True, **SMALL)


def end_all() -> None:
    """End the threads of all playgrounds."""
    for thread in threading.enumerate():
        if isinstance(thread, Loop):
            thread.end("Another playground was opened. Run this cell again to use this one.")


def _checked(**settings: Any) -> Settings:
    """The settings. Raises CourseError for those that no control can correct."""
    settings |= {name: tuple(settings[name]) for name in ("hidden", "features") if name in settings}
    made = Settings(**settings)
    refuse_too_large(made.hidden)
    refuse_bad_features(made.features)
    return made


# ---- the controls, as dictionaries for the browser


def controls(now: Settings) -> list[dict[str, Any]]:
    """A control for each setting except the shape of the network."""
    backends = ("numpy", "numba", "cupy", "cuda") if devices.gpu_available() else ("numpy", "numba")
    names = [name for name, unit in ACTIVATIONS.items() if unit == "number"]
    costs = [name for name in COSTS if name != OF_TOKENS]
    own = "Use your own kept kernels where you have any"
    return [
        menu("data", "data", "Points to tell apart", DATA_WORDS.items()),
        stepped("noise", "noise", "How far the points are scattered", now.noise, _hundredths(50)),
        stepped("samples", "samples", "3 in 10 are held out", now.samples, range(50, 1001, 50)),
        stepped("batch_size", "batch size", "Samples in each step; acts at once", now.batch_size, BATCHES),
        stepped("learning_rate", "learning rate", "How far a step moves; acts at once", now.learning_rate, RATES),
        stepped("l2", "L2 regularisation", "Pulls weights towards 0; acts at once", now.l2, L2),
        menu("activation", "activation", "Activation of the hidden layers", _same(names)),
        menu("cost", "cost", "What training minimises", [(name, COST_WORDS.get(name, name)) for name in costs]),
        menu("backend", "backend", "Which kernels compute", _same(backends)),
        menu("speed", "speed", "Epochs per second; acts at once", SPEEDS),
        stepped("seed", "seed", "A different seed gives different weights and points", now.seed, range(100)),
        {"kind": "tick", "name": "mine", "label": "my own kernels", "tip": own},
    ]


def menu(name: str, label: str, tip: str, options: Iterable[tuple[Any, str]]) -> dict[str, Any]:
    """A menu of (value, words)."""
    return {"kind": "menu", "name": name, "label": label, "tip": tip, "options": [list(option) for option in options]}


def stepped(name: str, label: str, tip: str, value: float, values: Iterable[float]) -> dict[str, Any]:
    """A slider over a list of numbers, which includes its first value."""
    return {"kind": "slider", "name": name, "label": label, "tip": tip, "values": sorted({*values, value})}


def _same(names: Iterable[str]) -> list[tuple[str, str]]:
    return [(name, name) for name in names]


def _hundredths(last: int) -> list[float]:
    return [number / 100 for number in range(last + 1)]
