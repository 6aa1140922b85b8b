"""What a cell shows while it computes: what it is doing, for how long already, and how much longer if that is known.

with_progress(items, words)    the items of a loop, one after the other
waiting(words)                 for one long call: the line counts seconds
"""

import contextlib
import contextvars
import html
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nnclassroom.pages import page, running_ipython

EVERY = 1.0  # seconds between two changes of the line; what takes less shows none
Item = TypeVar("Item")


@dataclass
class Line:
    """One line below a cell. It appears at its first change, and stays where it is."""

    words: str
    start: float = field(default_factory=time.perf_counter)
    handle: Any = None

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def change(self) -> None:
        """Show the words, and the seconds since the start."""
        self.replace(_Words(f"{self.words}: {self.seconds:.0f} s"))

    def replace(self, shown: object) -> None:
        """Show this object in the line's place."""
        if self.handle is not None:
            self.handle.update(shown)
        elif notebook := running_ipython():
            self.handle = notebook.display.display(shown, display_id=True)

    def end(self, shown: object) -> None:
        """Show the result in the line's place; outside a notebook, print it."""
        if running_ipython():
            self.replace(shown)
        else:
            print(shown)


@dataclass(frozen=True)
class _Words:
    """Words that a notebook shows in a block."""

    words: str

    def __repr__(self) -> str:
        return self.words

    def _repr_html_(self) -> str:
        return page(f"<small>{html.escape(self.words)}</small>")


@contextlib.contextmanager
def waiting(words: str) -> Iterator[Line]:
    """Show the words and the seconds that have passed, in a notebook, during the block.

    words: what is being done. The block is given the Line, whose words it may change.

    >>> with waiting("adding, about 10 s"):
    ...     sum(range(10))
    45
    """
    line = Line(words)
    if not running_ipython():
        yield line
        return
    over = threading.Event()

    def change() -> None:
        while not over.wait(EVERY):
            line.change()

    # With the cell's context, or its output would belong to no cell.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(change,), daemon=True)
    thread.start()
    try:
        yield line
    finally:
        over.set()
        thread.join()
        if line.handle is not None:
            line.change()


def with_progress(items: Sequence[Item], words: str) -> Iterator[Item]:
    """Go through the items, and show in a notebook how many are done and how much longer the others take.

    items: the items of a loop whose turns all take about the same time.
    words: what is done with each.

    >>> [2 * item for item in with_progress([1, 2], "doubling")]
    [2, 4]
    """
    line, count, last = Line(words), len(items), 0.0
    for done, item in enumerate(items):
        if done and running_ipython() and line.seconds - last > EVERY:
            last = line.seconds
            line.words = f"{words}, {done} of {count}, about {last / done * (count - done):.0f} s more"
            line.change()
        yield item
    if line.handle is not None:
        line.words = f"{words}, {count} of {count}"
        line.change()
