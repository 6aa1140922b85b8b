"""Widgets drawn by the browser: Python computes every number, JavaScript draws it.

    BrowserWidget("neuron.js", {"b": slider("bias b", "…", 0, -5, 5)}, answer, "What the picture shows.")

Whenever a control moves, the browser sends the values of all controls, `answer(**values)` computes a frame and words,
and the browser draws the frame. The browser limits the number of unanswered messages and sends only the newest values.

A script is the text of widget.js followed by the widget's own file, which ends with `export default widget({…})`.
A callback may run on another thread while a notebook cell runs, so it computes under a lock, on the CPU.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anywidget
import numpy as np
import traitlets
from matplotlib.figure import Figure

from nnclassroom.figures import described
from nncourse.errors import CourseError

HERE = Path(__file__).parent
SAVED = "Run this cell to play."
WIDGET = ".jp-OutputArea-output.lm-Panel"  # JupyterLab's place for a widget
# The output below a widget is for a saved notebook. When JupyterLab reopens one, it shows an error in the widget's
# place: then this style hides the error and shows the line that says what to do.
BELOW = (
    ".nncourse-again{display:none}"
    f".jp-OutputArea:has({WIDGET}):not(:has({WIDGET}>*)) .nncourse-again{{display:inline}}"
    f".jp-OutputArea:has(.nncourse-still):not(:has({WIDGET}>*))>.jp-OutputArea-child:has(>{WIDGET}),"
    f".jp-OutputArea:has({WIDGET}>*)>.jp-OutputArea-child:has(.nncourse-still){{display:none}}"
)
Still = described.WordedFigure | described.Described  # a figure with its words
Answer = Callable[..., tuple[dict[str, Any], str]]  # the values of the controls by name -> a frame, and its words


def text_of(*names: str) -> str:
    """The text of these files of this folder. Given a path instead, anywidget would keep every widget alive."""
    return "\n".join((HERE / name).read_text(encoding="utf-8") for name in names)


@dataclass(frozen=True)
class Control:
    """A control of any kind. `tip` says what it does, in a tooltip and to screen readers."""

    kind: str
    label: str
    tip: str = ""
    value: float | str | None = None
    low: float | None = None
    high: float | None = None
    step: float | None = None
    options: tuple[tuple[str, str], ...] = ()  # values of a menu, each with the words shown for it
    log: int = 0  # base of a logarithmic slider: 10, or 2 for whole powers of two
    plays: str = ""  # the slider that a Play button moves


def slider(label: str, tip: str, value: float, low: float, high: float, step: float = 0.1) -> Control:
    """A slider for a number; with step 1 for a whole number. Its range is widened if `value` lies outside it."""
    return Control("slider", label, tip, value, min(low, value), max(high, value), step)


def factors(label: str, tip: str, value: float, low: float, high: float, step: float = 0.05) -> Control:
    """A slider from 10^low to 10^high with three digits; each notch is a factor of 10^step."""
    return Control("slider", label, tip, value, min(10.0**low, value), max(10.0**high, value), step, log=10)


def powers_of_two(label: str, tip: str, value: int, highest: int) -> Control:
    """A slider from 1 over 2, 4, 8 … to 2^highest."""
    return Control("slider", label, tip, value, 1, max(2**highest, value), 1, log=2)


def learning_rate(value: float) -> Control:
    """A slider for a learning rate, from 0.001 to 1."""
    return factors("learning rate", "How far each step moves the weights; each notch is the same factor", value, -3, 0)


def menu(label: str, tip: str, value: str, options: Sequence[str] | Mapping[str, str]) -> Control:
    """A menu of values, or a mapping from values to the words shown for them."""
    words = options if isinstance(options, Mapping) else dict(zip(options, options, strict=True))
    return Control("menu", label, tip, value, options=tuple(words.items()))


def button(label: str, tip: str) -> Control:
    """A button. BrowserWidget calls `pressed` with its name at each press."""
    return Control("button", label, tip)


def play(label: str, plays: str) -> Control:
    """Buttons to play, pause, step and restart the slider named `plays`, which the browser moves."""
    return Control("play", label, plays=plays)


class BrowserWidget(anywidget.AnyWidget):
    """Controls, a picture drawn in the browser, and words, which screen readers announce when the controls rest.

    `given` is sent to the browser once, a frame at every change. Both are dictionaries of numbers, texts, lists and
    NumPy arrays (sent as float32 or uint8). `still()` returns the figure that a saved notebook shows.
    """

    _css = text_of("widget.css")
    controls: "traitlets.List[Any]" = traitlets.List().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    turn = traitlets.List(["", 0, 0.0]).tag(sync=True)  # the message answered last: its view, its number, seconds taken
    given = traitlets.Dict().tag(sync=True)
    frame = traitlets.Dict().tag(sync=True)
    words = traitlets.Unicode().tag(sync=True)
    caption = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        script: str,
        controls: Mapping[str, Control],
        answer: Answer,
        caption: str,
        given: Mapping[str, Any] | None = None,
        still: Callable[[], Still] | None = None,
        pressed: Callable[[str], None] | None = None,
    ):
        self.script, self._esm = script, text_of("widget.js", script)
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

    def set(self, **values: float | str) -> None:
        """Set values of controls, as if a user had moved them."""
        for name in values:
            if name not in self.values:
                raise CourseError(f"no control is called {name}; expected one of {', '.join(self.values)}")
        self.values = self.values | values

    def redraw(self) -> None:
        """Compute a frame for the current values, and show it. An error is shown as one line of words."""
        with self.lock:
            try:
                frame, words = self.answer(**self.values)
            except (Exception, SystemExit) as error:  # a student's kernel may raise anything
                self.show(None, in_one_line(error))
            else:
                self.show(frame, words)

    def show(self, frame: Mapping[str, Any] | None, words: str) -> None:
        """Send words and a frame; None keeps the frame that is shown. May be called from any thread."""
        with self.lock, self.hold_sync():
            if frame is not None:
                self.frame = packed(frame)
            self.words = words

    def _take(self, content: dict[str, Any]) -> None:
        """Process a message from the browser: the values of the controls, or the name of a pressed button."""
        start = time.perf_counter()
        with self.lock, self.hold_sync():
            if "values" in content:
                self.values = self.values | content["values"]
                self.turn = [*content["turn"], time.perf_counter() - start]
            elif self.pressed and content.get("pressed") in self.by_name:
                self.pressed(content["pressed"])


def packed(value: Any) -> Any:
    """A tree of dictionaries and lists with each array in it replaced by its bytes: of uint8, else of float32."""
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


def display_widget(widget: anywidget.AnyWidget, still: Still | None = None) -> None:
    """Display a widget, and below it what a saved notebook shows instead: a line, and the figure `still`."""
    from IPython.display import display

    data, metadata = widget._repr_mimebundle_() or ({}, {})
    display(data, metadata=metadata, raw=True)
    data, metadata = still._repr_mimebundle_() if still else ({"text/html": "", "text/plain": ""}, {})
    stands = "This is a still picture. " if still else ""
    line = f'{stands}<span class="nncourse-again">{SAVED}</span>'
    below = f'<style>{BELOW}</style><p class="nncourse-still"><em>{line}</em></p>{data["text/html"]}'
    words = f"{SAVED} {data['text/plain']}" if still else ""
    display(data | {"text/html": below, "text/plain": words}, metadata=metadata, raw=True)


def contours(x: np.ndarray, y: np.ndarray, heights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Lines of equal height over the grids x and y: points (n, 2), with NaN between two lines."""
    lines = Figure().subplots().contour(x, y, heights, levels=levels)
    gap = np.full((1, 2), np.nan)
    return np.concatenate([part for level in lines.allsegs for line in level for part in (line, gap)])
