"""Send samples to the device: all at once, or each batch while the previous one is in use.

If the samples are sent at once, the device holds all of them. If the host keeps them, the device holds only batches:
two, and one in transit, whatever the number of samples. Samples of whole numbers from 0 to 255 are sent as bytes, a
quarter of float32, and divided by 255 on the device.
"""

from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import numpy as np

from nncourse import device as devices
from nncourse.device import Array
from nncourse.errors import CourseError, refuse_unknown

WAYS = ("all", "batch")
AHEAD = 3  # batches on the GPU: one in use, one ready, one being written


class HostSamples:
    """Samples that stay in the host's memory; requested rows are sent to the device as float32.

    `images` (n, …) are float32, or uint8 for numbers from 0 to 1 in steps of 1/255.
    """

    dtype = np.dtype(np.float32)

    def __init__(self, images: np.ndarray, device: str):
        if images.dtype not in (np.float32, np.uint8):
            raise CourseError(f"expected samples of float32 or uint8, to be sent; got {images.dtype}")
        self.images, self.device = images, device
        self.shape = images.shape
        self.size = images.size

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Any) -> Array:
        """Some rows, by a slice or by their numbers, sent now."""
        return as_floats(self.images[_on_host(rows)], self.device)

    def in_turn(self, pieces: Iterable[Array]) -> Iterator[Array]:
        """The rows of each piece, float32 on the device. On a GPU the next piece is sent meanwhile.

        A yielded array is valid until the next is requested: its memory is reused.
        """
        on_host = (_on_host(piece) for piece in pieces)
        if self.device == "cpu":
            return (self[piece] for piece in on_host)
        return _Prefetched(self.images).in_turn(on_host)


def in_turn(X: Array | HostSamples, pieces: Iterable[Array]) -> Iterator[Array]:
    """X[piece] of each piece, for arrays and HostSamples."""
    if isinstance(X, HostSamples):
        return X.in_turn(pieces)
    return (X[piece] if isinstance(piece, slice) else in_order(X, piece) for piece in pieces)


def in_pieces(X: Array | HostSamples, Y: Array, order: Array, size: int) -> Iterator[tuple[int, Array, Array]]:
    """Samples and targets in this order, `size` at a time: where the piece begins in the order, and its X and Y."""
    starts = range(0, len(order), size)
    pieces = [order[start : start + size] for start in starts]
    for start, rows, samples in zip(starts, pieces, in_turn(X, pieces), strict=True):
        yield start, samples, Y[rows]


def in_order(X: Array, order: Array) -> Array:
    """X[order] for float32 rows; moves four or two numbers at once if aligned: CuPy computes an index per move."""
    numbers = prod(X.shape[1:])
    for four_or_two in (np.complex128, np.complex64):
        count = np.dtype(four_or_two).itemsize // X.itemsize
        if numbers % count == 0 and devices.address(X) % (count * X.itemsize) == 0 and X.flags.c_contiguous:
            rows = X.reshape(len(X), numbers).view(four_or_two)[order]
            return rows.view(X.dtype).reshape(len(order), *X.shape[1:])
    return X[order]


def placed(images: np.ndarray, device: str, send: str = "all") -> Array | HostSamples:
    """Samples as training takes them: on the device as float32, or kept by the host if `send` is "batch"."""
    refuse_unknown("a way to send samples", send, WAYS)
    return HostSamples(images, device) if send == "batch" else as_floats(images, device)


def as_floats(images: np.ndarray, device: str) -> Array:
    """Samples on the device as float32; bytes are divided by 255 there."""
    there = devices.to_device(np.ascontiguousarray(images), device)
    if images.dtype != np.uint8:
        return there
    floats = there.astype(np.float32)
    floats /= np.float32(255)
    return floats


def bytes_on_device(images: np.ndarray, batch_size: int) -> dict[str, int]:
    """The device's memory, in bytes, for samples sent in each of WAYS: float32, and bytes in transit."""
    row = prod(images.shape[1:])
    in_transit = row if images.dtype == np.uint8 else 0
    batches = AHEAD * min(batch_size, len(images))
    return {"all": len(images) * (4 * row + in_transit), "batch": batches * (4 * row + in_transit)}


def _on_host(rows: Any) -> Any:
    return rows if isinstance(rows, slice) else devices.to_device(rows, "cpu")


class _Prefetched:
    """Batches on their way to a GPU, through pinned memory, on a stream of their own.

    There are AHEAD buffers. Before the stream writes to one, it waits for the kernels that read it. Before the CPU
    writes to a pinned buffer, it waits until its contents have been copied.
    """

    def __init__(self, images: np.ndarray):
        import cupy

        self.cupy, self.images = cupy, images
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.rows = 0

    def in_turn(self, pieces: Iterable[np.ndarray | slice]) -> Iterator[Array]:
        waiting: list[tuple[int, int]] = []
        current = self.cupy.cuda.get_current_stream()
        for number, piece in enumerate(pieces):
            rows = np.arange(len(self.images))[piece] if isinstance(piece, slice) else piece
            self._make_places(max(1, len(rows)), current)
            waiting.append(self._sent(rows, number % AHEAD))
            if len(waiting) > 1:
                yield from self._ready(*waiting.pop(0), current)
        for each in waiting:
            yield from self._ready(*each, current)
        self.stream.synchronize()

    def _make_places(self, rows: int, current: Any) -> None:
        """Allocate room for this many rows: usually once, since the first piece is the longest."""
        if rows <= self.rows:
            return
        import cupyx

        self.stream.synchronize()
        current.synchronize()
        cupy, shape, dtype = self.cupy, (rows, *self.images.shape[1:]), self.images.dtype
        self.rows = rows
        self.pinned = [cupyx.empty_pinned(shape, dtype) for _ in range(AHEAD)]
        self.floats = [cupy.empty(shape, np.float32) for _ in range(AHEAD)]
        self.bytes = [cupy.empty(shape, np.uint8) for _ in range(AHEAD)] if dtype == np.uint8 else self.floats
        self.copied = [cupy.cuda.Event() for _ in range(AHEAD)]
        self.used = [cupy.cuda.Event() for _ in range(AHEAD)]
        for event in self.used:
            event.record(current)

    def _sent(self, rows: np.ndarray, place: int) -> tuple[int, int]:
        """Queue the copies of these rows to a place. Returns the place and the number of rows."""
        self.copied[place].synchronize()
        here, there, floats = (each[place][: len(rows)] for each in (self.pinned, self.bytes, self.floats))
        np.take(self.images, rows, axis=0, out=here, mode="clip")  # the default mode would copy once more
        with self.stream:
            self.stream.wait_event(self.used[place])
            if len(rows):
                there.set(here, stream=self.stream)
            if there.dtype == np.uint8:
                self.cupy.true_divide(there, np.float32(255), out=floats, dtype=np.float32)
            self.copied[place].record(self.stream)
        return place, len(rows)

    def _ready(self, place: int, rows: int, current: Any) -> Iterator[Array]:
        current.wait_event(self.copied[place])
        yield self.floats[place][:rows]
        self.used[place].record(current)  # after all kernels that were launched with it
