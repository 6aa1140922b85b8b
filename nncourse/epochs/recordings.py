"""Training steps as a CUDA graph: a recording of many launches, which one call replays."""

import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from nncourse.cuda.recording import Recording
from nncourse.cuda.recording import most_steps as most_steps
from nncourse.epochs.dense import batches

MOST_STEPS = 50  # in one recording


def record(stream: Any, changed: Sequence[Any], X: Any, Y: Any, batch: int, step: Callable) -> SimpleNamespace:
    """Record step(X, Y, number) on each batch of X and Y, on the current stream, which must not be the default.

    `changed` are the arrays that the steps change. They, X and Y belong to the recording, and are free to use after the
    event `ready`.
    """
    import cupy

    step(X[:batch], Y[:batch], 0)  # compiles and loads all kernels, which is forbidden while recording
    stream.synchronize()

    def steps() -> None:
        for number, rows in enumerate(batches(len(X), batch)):
            step(X[rows], Y[rows], number)

    graph = Recording(steps)
    ready, lock = cupy.cuda.Event(disable_timing=True), threading.Lock()
    # A graph does not keep the arrays of its kernels alive. `step` holds those that are not named here.
    return SimpleNamespace(changed=changed, X=X, Y=Y, step=step, graph=graph, ready=ready, lock=lock)


def replay(made: SimpleNamespace, changed: Sequence[Any], X: Any, Y: Any, begin: Callable = lambda start: None) -> int:
    """Replay a recording as often as X and Y fill its rows; return how many rows are done.

    `changed` are copied to the recording's arrays and back. begin(start) is called before each replay, with its first
    row.
    """
    import cupy

    size = len(made.X)
    whole = len(X) - len(X) % size
    with made.lock:
        # All this is queued on the caller's stream, in order with the caller's work. Only the recording's own arrays
        # may still be in use, by a call on another stream.
        cupy.cuda.get_current_stream().wait_event(made.ready)
        for own, array in zip(made.changed, changed, strict=True):
            own[...] = array
        for start in range(0, whole, size):
            made.X[...] = X[start : start + size]
            made.Y[...] = Y[start : start + size]
            begin(start)
            made.graph.replay()
        for own, array in zip(made.changed, changed, strict=True):
            array[...] = own
        made.ready.record()
    return whole
