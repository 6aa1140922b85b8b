"""An interactive network: change its data, layers or learning rate and watch it train.

Three parts: an Engine that trains and does not depend on widgets, a Picture of it, and the controls, which only put
(setting, value) on a queue. One thread owns the engine and the picture: it processes the queue, trains for some
milliseconds, draws, and sleeps when idle.
"""

import math
import queue
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import ipywidgets
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection

from nncourse import datasets
from nncourse import device as devices
from nncourse.classroom import plots, widgets
from nncourse.classroom.described import Drawn
from nncourse.errors import CourseError
from nncourse.kernels.backend import choose
from nncourse.model.network import COSTS, forward, make_network, training_step
from nncourse.model.training import evaluate

HELD_OUT = 0.3  # the share of the samples that training does not see
SLICE = 0.05  # seconds of training between two frames
FRAME_EVERY = 0.1  # seconds: the browser, possibly behind a tunnel, must keep up
MOST_POINTS = 400  # of a cost curve; beyond that every second one is dropped
MOST_LAYERS, MOST_NEURONS = 4, 16
GRID = 60  # the decision picture has GRID x GRID points
COLOURS = np.array([[0.12, 0.47, 0.71], [1.0, 0.5, 0.05], [0.17, 0.63, 0.17]])  # of the classes 0, 1, 2
MARKS = "o^s"
DATA = ("moons", "circles", "spirals", "blobs", "xor")
SPEEDS = (("1", 1), ("2", 2), ("10", 10), ("as many as 50 ms allow", 0))
CAPTION = "From the left: the points and the class that the network gives to each place, the cost, the weights."


# ---- the engine


@dataclass(frozen=True)
class Settings:
    """What a playground trains, and how. Changing one of AT_ONCE affects the running training; others restart it."""

    data: str = "moons"
    noise: float = 0.15
    samples: int = 300
    hidden: tuple[int, ...] = (8, 8)
    activation: str = "tanh"
    cost: str = "binary_cross_entropy"
    learning_rate: float = 0.1
    batch_size: int = 10
    backend: str = "numpy"
    mine: bool = False
    seed: int = 0
    epochs: int = 2  # most epochs between two frames; 0: limited by time only


AT_ONCE = {"learning_rate", "batch_size", "epochs"}


class Engine:
    """A network trained on points in the plane, one batch at a time. `settings` in AT_ONCE may be changed meanwhile."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self.backend = choose(settings.backend, mine=settings.mine, dense_sgd_epoch="steps")  # for single steps
        points = datasets.generate(settings.data, samples=settings.samples, noise=settings.noise, seed=settings.seed)
        if COSTS[settings.cost] == "softmax" and points.Y.shape[1] == 1:  # softmax needs one output per class
            points = replace(points, Y=np.hstack([1 - points.Y, points.Y]))
        self.training, self.held_out = datasets.split(points, HELD_OUT, seed=settings.seed)
        sizes = (2, *settings.hidden, points.Y.shape[1])
        self.network = make_network(sizes, settings.activation, settings.cost, seed=settings.seed).on(self.backend)
        self.there = [tuple(map(self.backend.to_device, (data.X, data.Y))) for data in (self.training, self.held_out)]
        self.epoch, self.done = 0, 0  # completed epochs; samples used in the current one
        self.history: list[tuple[float, float, float]] = []  # epochs, training cost, cost on the held-out samples
        self.measure()

    def step(self) -> None:
        """Train on the next batch. The samples are shuffled anew for each epoch, from the seed, as in `train`."""
        X, Y = self.there[0]
        if self.done == 0:
            rng = np.random.default_rng([self.settings.seed, self.epoch + 1])
            order = self.backend.to_device(rng.permutation(len(X)))
            self.shuffled = X[order], Y[order]
        rows = slice(self.done, self.done + self.settings.batch_size)
        X_batch, Y_batch = (array[rows] for array in self.shuffled)
        training_step(self.network, X_batch, Y_batch, self.settings.learning_rate, self.backend)
        self.done += self.settings.batch_size
        if self.done >= len(X):
            self.epoch, self.done = self.epoch + 1, 0

    def train(self, seconds: float = math.inf, epochs: int = 0) -> None:
        """Train for `seconds`, or until `epochs` more are done if that is not 0, whichever comes first."""
        end, last = time.perf_counter() + seconds, self.epoch + epochs if epochs else math.inf
        while self.epoch < last and time.perf_counter() < end:
            self.step()

    def measure(self) -> None:
        """Add the costs of both sets to the history."""
        costs = (evaluate(self.network, *data, self.backend) for data in self.there)
        self.history.append((self.epoch + self.done / len(self.training.X), *costs))
        if len(self.history) > MOST_POINTS:
            del self.history[1:-1:2]

    def shares(self, X: np.ndarray) -> np.ndarray:
        """The network's outputs as shares of each class, (n, classes); each row sums to 1."""
        outputs = devices.to_device(forward(self.network, self.backend.to_device(X), self.backend)[1][-1], "cpu")
        if outputs.shape[1] == 1:
            outputs = np.hstack([1 - outputs, outputs])
        outputs = np.nan_to_num(outputs.clip(0, 1)) + 1e-6
        return outputs / outputs.sum(axis=1, keepdims=True)

    def words(self) -> str:
        """The state of the training in words: epoch, costs, accuracy."""
        _, cost, held_out = self.history[-1]
        right = (self.shares(self.held_out.X).argmax(axis=1) == self.held_out.labels).mean()
        batch = f" and {self.done} samples" if self.done else ""
        return (
            f"epoch {self.epoch}{batch}, cost {cost:.4g} in training, {held_out:.4g} held out, "
            f"{right:.0%} of the held-out points right"
        )

    def yours(self) -> str:
        """Which operations use the student's own kernels; "" unless they were asked for."""
        if not self.settings.mine:
            return ""
        notes = self.backend.notes
        own = ", ".join(name for name, note in notes.items() if note == "yours")
        device = self.backend.device.upper()
        words = f"Your own kernels: {own}." if own else f"No kernel of yours for the {device} is in use."
        for name, note in notes.items():
            if note.startswith("your") and note != "yours":  # why a kept kernel is not in use
                words += f" {name}: {note}."
        return words


# ---- the picture


class Picture:
    """Decision regions, cost curves and weights. Text and axes are drawn once; a frame redraws only what changes."""

    def __init__(self, engine: Engine):
        self.figure = Drawn(figsize=(9.6, 3.4), dpi=100)
        self.canvas, self.background = FigureCanvasAgg(self.figure), None
        self.plane = self.figure.add_axes((0.075, 0.14, 0.275, 0.76))
        self.costs = self.figure.add_axes((0.43, 0.14, 0.23, 0.76))
        self.net = self.figure.add_axes((0.69, 0.06, 0.3, 0.84))
        self._plane(engine)
        self._costs()
        self._net(engine.network.sizes)
        self.moving = [a for axes in self.figure.axes for a in (*axes.images, *axes.collections, *axes.lines)]
        for artist in self.moving:
            artist.set_animated(True)  # excludes it from a full draw
        self.update(engine)

    def _plane(self, engine: Engine) -> None:
        both = np.vstack([engine.training.X, engine.held_out.X])
        low, high = both.min(axis=0) - 0.2, both.max(axis=0) + 0.2
        across, up = np.linspace(low, high, GRID).T
        self.grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2).astype(np.float32)
        extent = (low[0], high[0], low[1], high[1])
        self.regions = self.plane.imshow(
            np.ones((GRID, GRID, 3)), extent=extent, origin="lower", aspect="auto", interpolation="nearest"
        )
        self.plane.set(xlabel="input x1", ylabel="input x2")
        self.plane.set_title("filled: training, hollow: held out", fontsize=9)
        for data, filled in ((engine.training, True), (engine.held_out, False)):
            for label, colour in enumerate(COLOURS[: len(data.classes)]):
                face, edge = (colour, "white") if filled else ("white", colour * 0.7)
                style = {"markersize": 5.5, "markerfacecolor": face, "markeredgecolor": edge, "markeredgewidth": 0.7}
                self.plane.plot(*data.X[data.labels == label].T, MARKS[label], **style)

    def _costs(self) -> None:
        self.costs.plot([], [], color="tab:blue", label="training")
        self.costs.plot([], [], color="tab:orange", linestyle="--", label="held out")
        self.costs.set(xlabel="epoch", ylabel="cost", yscale="log", xlim=(0, 10), ylim=(0.1, 1))
        plots.plain_numbers(self.costs.yaxis)
        self.costs.grid(True, alpha=0.3)
        self.costs.spines[["top", "right"]].set_visible(False)
        self.costs.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 0.98), ncols=2)

    def _net(self, sizes: tuple[int, ...]) -> None:
        heights = [np.linspace(1, -1, size + 2)[1:-1] for size in sizes]
        lines = [
            ((layer, below), (layer + 1, above))
            for layer in range(len(sizes) - 1)
            for above in heights[layer + 1]
            for below in heights[layer]
        ]
        self.lines = self.net.add_collection(LineCollection(lines))
        places = [(layer, height) for layer, column in enumerate(heights) for height in column]
        self.net.plot(*np.array(places).T, "o", color="white", markeredgecolor=plots.INK, markersize=8)
        for number, height in enumerate(heights[0], 1):
            self.net.text(-0.12, height, f"x{number}", ha="right", va="center")
        for layer, size in enumerate(sizes):
            self.net.text(layer, -1.1, size, ha="center", va="center", fontsize=9)
        self.net.text(-0.2, -1.1, "neurons", ha="right", va="center", fontsize=9)
        self.net.set_title("weights: orange +, blue −, thick: large", fontsize=9)
        self.net.set(xlim=(-0.3 * len(sizes), len(sizes) - 0.8), ylim=(-1.2, 1))
        self.net.set_axis_off()

    def update(self, engine: Engine) -> None:
        """Show the present state of the engine."""
        mixed = engine.shares(self.grid) @ COLOURS[: len(engine.training.classes)]
        self.regions.set_data((1 - 0.5 * (1 - mixed)).clip(0, 1).reshape(GRID, GRID, 3))  # paler than the points
        epochs, *costs = np.array(engine.history).T
        for curve, cost in zip(self.costs.lines, costs, strict=True):
            curve.set_data(epochs, cost)
        self._make_room(epochs[-1], np.concatenate(costs))
        W = np.concatenate([devices.to_device(layer.W, "cpu").ravel() for layer in engine.network.layers])
        W = np.nan_to_num(W)
        size = np.abs(W) / max(np.abs(W).max(), 1e-6)
        self.lines.set(linewidths=0.2 + 2.8 * size, colors=np.where(W > 0, "tab:orange", "tab:blue"))

    def _make_room(self, epoch: float, costs: np.ndarray) -> None:
        """Extend the cost axes if a curve leaves them; the background must then be drawn again."""
        costs = costs[np.isfinite(costs) & (costs > 0)]
        right, (bottom, top) = self.costs.get_xlim()[1], self.costs.get_ylim()
        if epoch > right:
            self.costs.set_xlim(0, 2 ** math.ceil(math.log2(epoch / 10)) * 10)
            self.background = None
        if len(costs) and not bottom <= costs.min() <= costs.max() <= top:
            decades = math.floor(math.log10(costs.min())), math.ceil(math.log10(costs.max()))
            self.costs.set_ylim(min(bottom, 10.0 ** decades[0]), max(top, 10.0 ** decades[1]))
            self.background = None

    def png(self) -> bytes:
        """The frame as a PNG file."""
        if self.background is None:
            self.canvas.draw()
            self.background = self.canvas.copy_from_bbox(self.figure.bbox)
        self.canvas.restore_region(self.background)
        for artist in self.moving:
            artist.axes.draw_artist(artist)
        return widgets.frame(self.canvas)


def still(epochs: int = 100, **settings) -> Drawn:
    """The playground's picture after some epochs of training, as a Figure that a notebook can save."""
    engine = Engine(Settings(**settings))
    while engine.epoch < epochs:
        engine.train(epochs=max(1, epochs // 100))
        engine.measure()
    figure, chosen = Picture(engine).figure, engine.settings
    three = "The regions of the classes, the costs over the epochs, and the network with its weights."
    network = f"hidden layers {chosen.hidden}, {chosen.activation}, learning rate {chosen.learning_rate:g}"
    figure.words = f"{three} Data {chosen.data}, {network}: {engine.words()}."
    return figure


# ---- the thread and the controls


class Loop(threading.Thread):
    """The thread that trains and draws. It reports by calling show(png or None, words, aloud)."""

    def __init__(self, settings: Settings, show: Callable[[bytes | None, str, bool], None]):
        super().__init__(name="playground", daemon=True)
        self.settings, self.show = settings, show
        self.commands: queue.SimpleQueue = queue.SimpleQueue()
        self.running = False
        self.engine: Engine | None = None
        self.put("reset")

    def put(self, name: str, value=None) -> None:
        """Queue a command ("start", "pause", "step", "reset" or "end"), or a new value for the setting `name`."""
        self.commands.put((name, value))

    def end(self, words: str = "closed") -> None:
        """End the thread, and wait for it at most 2 seconds, because Numba may be compiling."""
        self.put("end", words)
        if self.is_alive() and threading.current_thread() is not self:
            self.join(2)

    def run(self) -> None:
        next_frame = 0.0
        while True:
            commands = self.waiting(next_frame)
            next_frame = time.monotonic() + FRAME_EVERY
            for name, value in commands:
                if name == "end":
                    return self.show(None, value, True)
            self.turn(commands)

    def waiting(self, until: float) -> list[tuple]:
        """The commands on the queue. Waits for the first one; while training, only until the next frame is due."""
        try:
            first = self.commands.get(timeout=max(0.0, until - time.monotonic()) if self.running else None)
        except queue.Empty:
            return []
        return [first, *(self.commands.get() for _ in range(self.commands.qsize()))]

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a cost that is not finite is reported below
    def turn(self, commands: list[tuple]) -> None:
        """Execute the commands, train for a slice, draw a frame. Any error is reported in one line."""
        try:
            step = self.obey(commands)
            if self.running:
                self.engine.train(SLICE, self.settings.epochs)
            elif step:
                self.engine.step()
            if self.running or step:
                self.engine.measure()
            start = time.perf_counter()
            self.picture.update(self.engine)
            png, words = self.picture.png(), self.engine.words()
            words += f", frame {1000 * (time.perf_counter() - start):.0f} ms. {self.engine.yours()}"
            if not math.isfinite(self.engine.history[-1][1]):
                self.running = False
                words += f" The cost is no number any more: take a learning rate below {self.settings.learning_rate:g}"
                words += " and press Reset."
            self.show(png, f"{'Running' if self.running else 'Paused'}: {words}", not self.running)
        except (Exception, SystemExit) as error:  # a student's kernel may raise anything
            self.running = False
            kind = "" if isinstance(error, CourseError) else f"{type(error).__name__}: "
            self.show(None, f"Paused: {kind}{' '.join(str(error).split())}", True)

    def obey(self, commands: list[tuple]) -> bool:
        """Apply settings and buttons. Returns whether to make a single step."""
        restart, step = self.engine is None, False
        for name, value in commands:
            if name in ("start", "pause"):
                self.running = name == "start"
            elif name == "step":
                self.running, step = False, True
            elif name == "reset":
                restart = True
            else:
                self.settings = replace(self.settings, **{name: value})
                restart = restart or name not in AT_ONCE
        if restart:
            self.engine = None  # if the following fails, it stays None and the next command tries again
            engine = Engine(self.settings)
            self.picture = Picture(engine)
            self.engine = engine
        self.engine.settings = self.settings
        return step


def playground(**defaults) -> widgets.Panel:
    """A panel with controls, a picture of a network in training, and its numbers; `defaults` are fields of Settings.

    Only one playground trains at a time: a new one ends the previous one.
    """
    settings = Settings(**defaults)
    buttons, controls, fields = _buttons(), _controls(settings), _neurons(settings.hidden)
    rows = [widgets.in_line(*part.values()) for part in (buttons, controls, fields)]
    end_all()
    panel = widgets.Panel(buttons | controls | fields, CAPTION, rows)
    image, words = panel.image, panel.words  # the thread must not hold a reference to the panel

    def show(png: bytes | None, text: str, aloud: bool) -> None:
        if png:
            image.value = png
        widgets.say(words, text, aloud)

    panel.loop = loop = Loop(settings, show)
    panel.on_close = weakref.finalize(panel, loop.end)  # also when Python exits
    for name, button in buttons.items():
        button.on_click(lambda button, name=name: loop.put(name))
    for name, widget in controls.items():
        widget.observe(lambda change, name=name: loop.put(name, change["new"]), "value")
    _connect(fields, lambda hidden: loop.put("hidden", hidden))
    loop.start()
    return panel


def end_all() -> None:
    """End the threads of all playgrounds."""
    for thread in threading.enumerate():
        if isinstance(thread, Loop):
            thread.end("Another playground was opened. Run this cell again to use this one.")


_button = partial(widgets.control, ipywidgets.Button)
_field = partial(widgets.control, ipywidgets.BoundedIntText)


def _buttons() -> dict[str, ipywidgets.Button]:
    tips = {
        "start": "Train until you press Pause",
        "pause": "Stop training, and keep the network",
        "step": "Pause, and train on one batch",
        "reset": "Begin again with new weights from the seed",
    }
    return {name: _button(name.capitalize(), tip, "100px") for name, tip in tips.items()}


def _controls(now: Settings) -> dict[str, ipywidgets.Widget]:
    """A control for each setting except the layers, by name."""
    backends = ("numpy", "numba", "cupy", "cuda") if devices.gpu_available() else ("numpy", "numba")
    number, menu = partial(widgets.control, ipywidgets.IntSlider), widgets.menu
    tick = partial(widgets.control, ipywidgets.Checkbox, indent=False)
    return {
        "learning_rate": widgets.learning_rate(now.learning_rate, high=2),
        "batch_size": number("batch size", "Samples in each step; acts at once", value=now.batch_size, min=1, max=200),
        "epochs": menu("epochs a frame", "How fast the picture runs", now.epochs, SPEEDS, "290px"),
        "data": menu("data", "Points to tell apart", now.data, DATA),
        "noise": widgets.slider("noise", "How far the points are scattered", now.noise, 0, 0.5, 0.01),
        "samples": number("samples", "3 in 10 are held out", value=now.samples, min=50, max=1000, step=50),
        "activation": menu("activation", "Of the hidden layers", now.activation, widgets.ACTIVATIONS, "200px"),
        "cost": menu("cost", "What training makes small", now.cost, COSTS, "290px"),
        "backend": menu("backend", "Which kernels compute", now.backend, backends, "180px"),
        "mine": tick("my own kernels", "Take your own kept kernels where there are any", "180px", value=now.mine),
        "seed": _field("seed", "Another seed, other weights and points", "130px", value=now.seed, max=9999),
    }


def _neurons(hidden: tuple[int, ...]) -> dict[str, ipywidgets.Widget]:
    """Buttons to add and to remove a hidden layer, and a field for the neurons of each layer."""
    if len(hidden) > MOST_LAYERS or not all(1 <= size <= MOST_NEURONS for size in hidden):
        limits = f"at most {MOST_LAYERS} hidden layers of 1 to {MOST_NEURONS} neurons"
        raise CourseError(f"a playground shows {limits}; got {hidden}")
    found = {
        "add_layer": _button("Add a layer", "Another hidden layer, before the output", "120px"),
        "remove_layer": _button("Remove a layer", "Take the last hidden layer away", "130px"),
    }
    for number in range(1, MOST_LAYERS + 1):
        tip, there = f"How many neurons hidden layer {number} has", number <= len(hidden)
        size = hidden[number - 1] if there else 4
        field = _field(f"layer {number}: neurons", tip, "170px", value=size, min=1, max=MOST_NEURONS)
        field.layout.display = None if there else "none"
        found[f"layer_{number}"] = field
    return found


def _connect(fields: dict, put: Callable[[tuple[int, ...]], None]) -> None:
    """Call put() with the sizes of the hidden layers whenever a field or a button changes them."""
    layers = [field for name, field in fields.items() if name.startswith("layer_")]

    def shown() -> list:
        return [field for field in layers if field.layout.display != "none"]

    def changed(_=None):
        put(tuple(field.value for field in shown()))

    def set_count(count: int):
        for number, field in enumerate(layers):
            field.layout.display = None if number < count else "none"
        changed()

    fields["add_layer"].on_click(lambda _: set_count(min(len(shown()) + 1, MOST_LAYERS)))
    fields["remove_layer"].on_click(lambda _: set_count(max(len(shown()) - 1, 0)))
    for field in layers:
        field.observe(changed, "value")
