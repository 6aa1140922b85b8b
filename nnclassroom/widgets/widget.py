"""Widgets whose picture the browser draws: Python computes every number, JavaScript draws it.

    BrowserWidget("neuron.js", {"b": slider("bias b", "…", 0, -5, 5)}, answer, "What is to be seen.")

Whenever a control moves, the browser sends the values of all of them, `answer(**values)` computes a frame and words,
and the browser draws the frame. A few messages at most are under way, and the newest values win: nothing lags behind.

A script is the text of widget.js followed by a file of the widget's own, which ends with `export default widget({…})`.
A callback may run on another thread while a notebook cell runs, so it computes under a lock, on the CPU.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import anywidget
import numpy as np
import traitlets
from matplotlib.figure import Figure

from nnclassroom.figures import described
from nncourse.errors import CourseError

HERE = Path(__file__).parent
SAVED = "Run this cell to play."
WIDGET = ".jp-OutputArea-output.lm-Panel"  # JupyterLab's place for a widget
# What stands below a widget is for a saved notebook. Opened anew, JupyterLab has an error and no parts in the widget's
# place: then that place is hidden, and the line that says what to do is shown.
BELOW = (
    ".nncourse-again{display:none}"
    f".jp-OutputArea:has({WIDGET}):not(:has({WIDGET}>*)) .nncourse-again{{display:inline}}"
    f".jp-OutputArea:has(.nncourse-still):not(:has({WIDGET}>*))>.jp-OutputArea-child:has(>{WIDGET}),"
    f".jp-OutputArea:has({WIDGET}>*)>.jp-OutputArea-child:has(.nncourse-still){{display:none}}"
)
Answer = Callable[..., tuple[dict, str]]  # the values of the controls by name -> a frame, and what it says


@dataclass(frozen=True)
class Control:
    """What a control of any kind is made of. `tip` says what it does, on a tooltip and to screen readers."""

    kind: str
    label: str
    tip: str = ""
    value: float | str | bool | None = None
    low: float | None = None
    high: float | None = None
    step: float | None = None
    options: tuple[tuple[str, str], ...] = ()  # of a menu: values, and the words shown for them
    log: int = 0  # the base of a slider on which each notch is a factor: 10, or 2 for whole powers of two
    plays: str = ""  # the slider that a Play button moves


def slider(label: str, tip: str, value: float, low: float, high: float, step: float = 0.1) -> Control:
    """A slider for a number; with step 1 for a whole number. Its ends are shown, and wide enough for its value."""
    return Control("slider", label, tip, value, min(low, value), max(high, value), step)


def factors(label: str, tip: str, value: float, low: float, high: float, step: float = 0.05) -> Control:
    """A slider from 10^low to 10^high, with three digits; a notch is a factor of 10^step."""
    return Control("slider", label, tip, value, min(10.0**low, value), max(10.0**high, value), step, log=10)


def powers_of_two(label: str, tip: str, value: int, highest: int) -> Control:
    """A slider from 1 over 2, 4, 8 … to 2^highest."""
    return Control("slider", label, tip, value, 1, max(2**highest, value), 1, log=2)


def learning_rate(value: float, low: float = -3, high: float = 0) -> Control:
    """A slider for a learning rate, from 10^low to 10^high."""
    return factors("learning rate", "How far each step moves the weights; each notch is a factor", value, low, high)


def menu(label: str, tip: str, value: str, options: Sequence[str] | Mapping[str, str]) -> Control:
    """A menu of values: their words are shown where there is a mapping, else the values themselves."""
    words = options if isinstance(options, Mapping) else dict(zip(options, options, strict=True))
    return Control("menu", label, tip, value, options=tuple(words.items()))


def tick(label: str, tip: str, value: bool) -> Control:
    """A box to tick."""
    return Control("tick", label, tip, value)


def button(label: str, tip: str) -> Control:
    """A button. Python is told of each press: see BrowserWidget.pressed."""
    return Control("button", label, tip)


def play(label: str, plays: str) -> Control:
    """Play and Pause, One step, and Start again, for the slider of that name; the browser moves it."""
    return Control("play", label, plays=plays)


class BrowserWidget(anywidget.AnyWidget):
    """Controls, a picture drawn in the browser, and words, which screen readers announce when the controls rest.

    `given` goes to the browser once, a frame whenever a value changes. Both are dictionaries of numbers, texts, lists
    and NumPy arrays (sent as float32, or as uint8). `still()` is the figure, with words, that a saved notebook shows.
    """

    _css = (HERE / "widget.css").read_text(encoding="utf-8")  # of a path anywidget would keep every widget alive
    controls = traitlets.List().tag(sync=True)
    states = traitlets.Dict().tag(sync=True)  # of controls, by name: label, pressed, disabled, hidden
    values = traitlets.Dict().tag(sync=True)
    turn = traitlets.List(["", 0, 0.0]).tag(sync=True)  # which message of which view was answered, and in what time, s
    given = traitlets.Dict().tag(sync=True)
    frame = traitlets.Dict().tag(sync=True)
    words = traitlets.Unicode().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)
    on_close: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        script: str,
        controls: Mapping[str, Control],
        answer: Answer,
        caption: str,
        given: Mapping | None = None,
        still: Callable[[], Figure | described.Described] | None = None,
        pressed: Callable[[str], None] | None = None,
    ):
        self._esm = "\n".join((HERE / name).read_text(encoding="utf-8") for name in ("widget.js", script))
        self.answer, self.still, self.pressed = answer, still, pressed
        self.lock = threading.RLock()
        self.by_name = dict(controls)
        values = {name: control.value for name, control in controls.items() if control.value is not None}
        frame, words = answer(**values)
        super().__init__(
            controls=[{"name": name} | asdict(control) for name, control in controls.items()],
            values=values,
            given=packed(given or {}),
            frame=packed(frame),
            words=words,
            caption=caption,
        )
        self.observe(lambda change: self.redraw(), "values")
        self.on_msg(lambda widget, content, buffers: self._take(content))

    def __repr__(self) -> str:
        return SAVED

    def _ipython_display_(self) -> None:
        """Display the widget, and the still figure, which is hidden as long as the widget is alive."""
        display_widget(self, self.still() if self.still else None)

    def set(self, **values: float | str | bool) -> None:
        """Move controls, as a user does."""
        for name in values:
            if name not in self.values:
                raise CourseError(f"no control is called {name}; there are {', '.join(self.values)}")
        self.values = self.values | values

    def redraw(self) -> None:
        """Compute a frame for the present values, and show it. Any error is one line of words."""
        with self.lock:
            try:
                frame, words = self.answer(**self.values)
            except (Exception, SystemExit) as error:  # a student's kernel may raise anything
                self.show(None, in_one_line(error))
            else:
                self.show(frame, words)

    def show(self, frame: Mapping | None, words: str) -> None:
        """Send a frame, or None to keep the one that is shown, and words. May be called from any thread."""
        with self.lock, self.hold_sync():
            if frame is not None:
                self.frame = packed(frame)
            self.words = words

    def change(self, name: str, **state: str | bool) -> None:
        """Change a control's state: label="…", pressed=True (a button that is on), disabled=True, hidden=True."""
        with self.lock:
            self.states = self.states | {name: self.states.get(name, {}) | state}

    def _take(self, content: dict) -> None:
        """A message from the browser: the values of the controls, or the name of a button that was pressed."""
        start = time.perf_counter()
        with self.lock, self.hold_sync():
            if "values" in content:
                self.values = self.values | content["values"]
                self.turn = [*content["turn"], time.perf_counter() - start]
            elif self.pressed and content.get("pressed") in self.by_name:
                self.pressed(content["pressed"])

    def close(self) -> None:
        """Close the widget, after calling on_close()."""
        self.on_close()
        super().close()


def packed(value):
    """A tree of dictionaries and lists, each array in it as its bytes: uint8 as they are, all others as float32."""
    if isinstance(value, np.ndarray):
        array = value if value.dtype == np.uint8 else np.asarray(value, np.float32)
        return {"shape": list(array.shape), "type": str(array.dtype), "bytes": array.tobytes()}
    if isinstance(value, Mapping):
        return {str(key): packed(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [packed(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def in_one_line(error: BaseException) -> str:
    """An exception as one line."""
    kind = "" if isinstance(error, CourseError) else f"{type(error).__name__}: "
    return f"{kind}{' '.join(str(error).split())}"


def display_widget(widget: anywidget.AnyWidget, still: Figure | described.Described | None = None) -> None:
    """Display a widget, and below it what a saved notebook shows in its place: a line, and a figure that has words."""
    from IPython.display import display

    data, metadata = widget._repr_mimebundle_()
    display(data, metadata=metadata, raw=True)
    data, metadata = still._repr_mimebundle_() if still else ({"text/html": "", "text/plain": ""}, {})
    stands = "Here it stands still. " if still else ""
    line = f'{stands}<span class="nncourse-again">{SAVED}</span>'
    below = f'<style>{BELOW}</style><p class="nncourse-still"><em>{line}</em></p>{data["text/html"]}'
    words = f"{SAVED} {data['text/plain']}" if still else ""
    display(data | {"text/html": below, "text/plain": words}, metadata=metadata, raw=True)


def contours(x: np.ndarray, y: np.ndarray, heights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Lines of equal height over places x and y, all of them grids: points (n, 2), with NaN between two lines."""
    lines = Figure().subplots().contour(x, y, heights, levels=levels)
    gap = np.full((1, 2), np.nan)
    return np.concatenate([part for level in lines.allsegs for line in level for part in (line, gap)])
