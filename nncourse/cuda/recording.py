"""Recordings: kernel launches as a CUDA graph. One call replays them all, with no Python between them.

    stream = cupy.cuda.Stream(non_blocking=True)         # the default stream cannot be recorded
    with stream:
        work()                                           # compiles and loads the kernels, which cannot be recorded
        recording = Recording(work)                      # records what work() launches; nothing runs
        recording.replay()

A replay uses the arrays of the recording: the caller keeps them, and the memory pool of those that work() makes.
"""

import contextlib
import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nncourse.errors import CourseError

MOST_NUMBERS = 1 << 24  # in the samples of one recording: 64 MB


def most_steps(batch: int, numbers_a_sample: int, most: int) -> int:
    """How many training steps on such batches to put into one recording."""
    return min(most, max(1, MOST_NUMBERS // (batch * numbers_a_sample)))


class Recording:
    """What work() launches on the current stream. What work() raises, and errors of CUDA, end the recording."""

    def __init__(self, work: Callable[[], Any]):
        import cupy

        self._runtime, self._graph, self._executable = cupy.cuda.runtime, 0, 0
        stream = cupy.cuda.get_current_stream()
        stream.begin_capture()
        try:
            work()
        except BaseException:
            with contextlib.suppress(cupy.cuda.runtime.CUDARuntimeError):  # the end of a failed recording is an error
                self._graph = self._runtime.streamEndCapture(stream.ptr)
            raise
        self._graph = self._runtime.streamEndCapture(stream.ptr)
        self._executable = self._runtime.graphInstantiate(self._graph)

    def replay(self) -> None:
        """Queue all launches on the current stream."""
        import cupy

        self._runtime.graphLaunch(self._executable, cupy.cuda.get_current_stream().ptr)

    def change(self, launch: "Launch", numbers: Mapping[int, float]) -> None:
        """Give a launch other numbers in all later replays, by the places of its arguments."""
        if launch.put(numbers):
            _done(_driver().cuGraphExecKernelNodeSetParams(self._executable, launch.node, launch.described))

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the GPU may be gone when Python ends
            if self._executable:
                self._runtime.graphExecDestroy(self._executable)
            if self._graph:
                self._runtime.graphDestroy(self._graph)


class Launch:
    """The kernel launch that work() has just made, while it is being recorded.

    `dtypes` are the types of its arguments, None for those that stay as they are, such as arrays.
    """

    def __init__(self, dtypes: list[np.dtype | None]):
        import cupy

        driver = _driver()
        _, _, _, nodes, *_ = _done(driver.cuStreamGetCaptureInfo(cupy.cuda.get_current_stream().ptr))
        (self.node,) = nodes  # what the next launch will wait for
        (self.described,) = _done(driver.cuGraphKernelNodeGetParams(self.node))
        # A kernel is described by the addresses of its arguments. Those of the numbers that change become our own.
        addresses = ctypes.c_size_t * len(dtypes)
        self._addresses = addresses(*addresses.from_address(int(self.described.kernelParams)))
        self._numbers = {place: np.zeros((), dtype) for place, dtype in enumerate(dtypes) if dtype is not None}
        for place, number in self._numbers.items():
            ctypes.memmove(number.ctypes.data, self._addresses[place], number.nbytes)
            self._addresses[place] = number.ctypes.data
        self.described.kernelParams = ctypes.addressof(self._addresses)

    def put(self, numbers: Mapping[int, float]) -> bool:
        """Write numbers to where the description points; whether any of them is new."""
        before = {place: self._numbers[place].item() for place in numbers}
        for place, number in numbers.items():
            self._numbers[place][...] = number
        return any(self._numbers[place].item() != number for place, number in before.items())


def _driver() -> Any:
    from cuda.bindings import driver

    return driver


def _done(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a function of the driver returned, without its status. CourseError if it failed."""
    status, *values = answer
    if int(status):
        raise CourseError(f"the CUDA driver refuses to change a recording: {status.name}")
    return tuple(values)
