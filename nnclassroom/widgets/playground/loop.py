"""The playground's thread: it owns the engine, obeys commands, trains, and hands frames to show().

It never waits for the browser: while MOST_AHEAD frames are on their way it trains without drawing, and the next frame
shows the newest state.
"""

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nnclassroom.widgets.playground import frames
from nnclassroom.widgets.playground.engine import AT_ONCE, Engine, Settings
from nnclassroom.widgets.widget import in_one_line

FRAME_EVERY = 0.025  # seconds
SLICE = 0.012  # seconds of training between two frames, at most
MOST_AHEAD = 12  # most frames that the browser has not drawn yet
PATIENCE = 0.5  # seconds after which a frame is sent even if the browser is silent
BEHIND = 0.1  # seconds of delayed training that may be caught up


@dataclass
class Shown:
    """The state for show(): whether it trains, words, whether to say them aloud, and what to draw if that changed."""

    running: bool
    words: str
    aloud: bool
    settings: Settings
    scene: dict[str, Any] | None = None
    frame: dict[str, Any] | None = None


@dataclass
class Pace:
    """The number of epochs that are due at a speed in epochs per second."""

    due: float = 0.0
    since: float = field(default_factory=time.monotonic)

    def epochs(self, progress: float, speed: float) -> float:
        """The number of epochs to train now; infinity for the speed 0."""
        now = time.monotonic()
        seconds, self.since = now - self.since, now
        if not speed:
            return math.inf
        self.due = max(self.due, progress - BEHIND * speed) + seconds * speed
        self.due = min(self.due, progress + max(BEHIND * speed, seconds * speed))
        return max(0.0, self.due - progress)

    def begin(self, progress: float) -> None:
        """Count from now."""
        self.due, self.since = progress, time.monotonic()


class Loop(threading.Thread):
    """The thread. Other threads call only start(), put() and end()."""

    def __init__(
        self, settings: Settings, show: Callable[[Shown], None], in_words: Callable[[Engine], str] = Engine.words
    ):
        super().__init__(name="playground", daemon=True)
        self.settings, self.show, self.in_words = settings, show, in_words
        self.commands: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.running = False
        self.engine: Engine | None = None
        self.pace = Pace()
        self.look: list[int] | None = None
        self.number, self.seen, self.sent_at = 0, 0, 0.0  # the last frame sent, the last one drawn, time of sending
        self.shape_shown: tuple[Engine, int] | None = None  # identifies the scene that was sent last
        self.stale = False  # something was not sent yet
        self.aloud = True
        self.yours = ""

    def put(self, name: str, value: Any = None) -> None:
        """Queue a command, or a new value for the setting `name`; obey() lists the commands."""
        self.commands.put((name, value))

    def end(self, words: str = "closed") -> None:
        """End the thread. Wait for it at most 2 seconds, because Numba may be compiling."""
        self.put("end", words)
        if self.is_alive() and threading.current_thread() is not self:
            self.join(2)

    def run(self) -> None:
        next_frame = 0.0
        while True:
            commands = self.waiting(next_frame)
            next_frame = max(
                next_frame + FRAME_EVERY, time.monotonic()
            )  # a late frame does not delay the following ones
            for name, value in commands:
                if name == "end":
                    return self.show(Shown(False, value, True, self.settings))
            self.turn(commands)

    def waiting(self, until: float) -> list[tuple[str, Any]]:
        """The commands on the queue. Waits for the first; while training, only until the next frame is due."""
        wait = None if not self.stale else PATIENCE
        if self.running:
            wait = max(0.001, until - time.monotonic())  # never 0: other threads must run too
        try:
            first = self.commands.get(timeout=wait)
        except queue.Empty:
            return []
        return [first, *(self.commands.get() for _ in range(self.commands.qsize()))]

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a cost that is not finite is reported below
    def turn(self, commands: list[tuple[str, Any]]) -> None:
        """Execute the commands, train for a slice, send a frame. Any error is reported in one line."""
        try:
            engine, changed = self.obey(commands)
            if self.running:
                engine.train(SLICE, self.pace.epochs(engine.progress, self.settings.speed))
            self.stale = self.stale or changed or self.running
            if self.stale and self.may_send():
                self.send(engine)
        except (Exception, SystemExit) as error:  # a student's kernel may raise anything
            self.running = self.stale = False
            self.show(Shown(False, f"Paused: {in_one_line(error)}", True, self.settings))

    def may_send(self) -> bool:
        """Whether the browser keeps up, or has been silent for so long that it may be gone."""
        return self.number - self.seen < MOST_AHEAD or time.monotonic() - self.sent_at > PATIENCE

    def send(self, engine: Engine) -> None:
        """Hand the current state to show()."""
        if self.running:
            engine.measure()
        frame = frames.frame(engine, self.look)
        words = f"{self.in_words(engine)}. {self.yours}".strip()
        if not math.isfinite(engine.history[-1][1]):
            self.running, self.aloud = False, True
            words += f" The cost is no longer a number: take a learning rate below {self.settings.learning_rate:g}"
            words += " and press Reset."
        shape = engine, engine.changes
        scene = frames.scene(engine) if shape != self.shape_shown else None
        self.number, self.sent_at = self.number + 1, time.monotonic()
        aloud, self.aloud = self.aloud, False
        state = "Running" if self.running else "Paused"
        self.show(
            Shown(self.running, f"{state}: {words}", aloud, self.settings, scene, frame | {"number": self.number})
        )
        self.shape_shown, self.stale = shape, False

    def obey(self, commands: list[tuple[str, Any]]) -> tuple[Engine, bool]:
        """Execute commands and apply settings. Returns the engine, and whether there is something new to show."""
        engine = self.engine
        changed, restart = engine is None, False
        steps, shapes = 0, []
        for name, value in commands:
            changed = changed or name != "seen"
            self.aloud = self.aloud or name not in ("seen", "look")
            if name == "seen":
                self.seen = value
            elif name == "look":
                self.look = value
            elif name in ("start", "pause"):
                self.running = name == "start"
                self.pace.begin(engine.progress if engine else 0)
            elif name == "step":
                self.running, steps = False, steps + 1
            elif name == "reset":
                restart = True
            elif name in SHAPES:
                shapes.append((name, value))
            else:
                self.settings = replace(self.settings, **{name: value})
                restart = restart or name not in AT_ONCE
        if engine is None or restart:
            self.engine = None  # if the following fails, it stays None and the next command tries again
            self.engine = engine = Engine(self.settings)
            self.pace.begin(0)
            self.yours = engine.yours()
        engine.settings = self.settings
        for name, value in shapes:
            SHAPES[name](engine, value)
            self.settings = engine.settings
        for _ in range(steps):
            engine.step()
        if steps:
            engine.measure()
        return engine, changed


SHAPES: dict[str, Callable[[Engine, Any], None]] = {
    "resize": lambda engine, value: engine.resize(*value),
    "remove": lambda engine, value: engine.remove(*value),
    "add_layer": lambda engine, value: engine.add_layer(),
    "remove_layer": lambda engine, value: engine.remove_layer(),
    "features": lambda engine, value: engine.choose_features(value),
}
