"""What a call of an answer returned or raised, described without judging it."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .messages import Message
from .talk import Remote

LONGEST_TEXT = 300  # characters of an exception
# What fills new arrays while a text is judged: integers, and floats with the NaN of these bits, which arithmetic keeps.
SENTINEL, UNWRITTEN_BITS = -987654321, 0x7FC0F111
ANOTHER, A_RESULT = "another result", "a result"
MOST_KEPT = 6  # arrays of earlier calls
UNWRITTEN: np.float32 = np.uint32(UNWRITTEN_BITS).view(np.float32)


def described(
    value: Any,
    arguments: Message,
    earlier: Sequence[Any],
    array_type: type = np.ndarray,
    others: Sequence[Any] = (),
) -> Message:
    """A description of a result, without judging it: an array, a number, nothing, or the type's name of another value.

    `same`: the name of the argument that it is, or whose memory it shows just as it is. `shares`: the name of the
    argument with which it shares memory, or "an earlier result", or "another result", which is one of `others`.
    """
    kind = type(value)
    if kind is array_type:
        about = {"what": "array", "dtype": value.dtype.str, "shape": list(value.shape)}
        about["writable"] = not is_locked(value)
        for name, argument in arguments.items():
            if value is argument or _place(value) == _place(argument):
                return about | {"same": name}
            if _overlap(value, argument):
                return about | {"shares": name}
        if any(_overlap(value, other) for other in others):
            return about | {"shares": ANOTHER}
        return about | ({"shares": "an earlier result"} if any(_overlap(value, old) for old in earlier) else {})
    if value is None:
        return {"what": "nothing"}
    if kind in (float, int) or isinstance(value, (np.floating, np.integer)):
        return {"what": "number", "type": kind.__name__, "number": float(value)}
    if kind is Remote:
        return {"what": "other", "type": value._type, "object": value._number}
    return {"what": "other", "type": kind.__name__[:60], "length": len(value) if kind in (tuple, list) else None}


def is_locked(array: Any) -> bool:
    """Whether an array cannot be written any more. CuPy's always can."""
    return not getattr(array.flags, "writeable", True)


def _place(array: Any) -> tuple[Any, ...]:
    """Where the elements of an array are in memory, and how they are read."""
    start = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return start, array.shape, array.strides, array.dtype


def _overlap(a: Any, b: Any) -> bool:
    """Whether the memory ranges of two arrays overlap."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return np.may_share_memory(a, b)
    return bool(a.data.ptr < b.data.ptr + b.nbytes and b.data.ptr < a.data.ptr + a.nbytes)


class Earlier:
    """Arrays of earlier calls: later results must not share memory with these results, and no call may change them."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self._kept: list[tuple[str, Any, bytes]] = []  # words for an array, the array, and its elements

    def add(self, returned: Any, arguments: Message, array_type: type = np.ndarray, keep: bool = True) -> None:
        """The new arrays that a call returned, and, to keep them too, its arguments as they are after it."""
        values = returned if type(returned) is tuple else (returned,)
        found = [(value, described(value, arguments, (), array_type)) for value in values]
        new = [value for value, about in found if about["what"] == "array" and not {"same", "shares"} & about.keys()]
        self.results = [*self.results, *new][-MOST_KEPT:]
        named = [*((A_RESULT, value) for value in new), *(arguments.items() if keep else ())]
        self._kept = [*self._kept, *((name, value, _bytes_of(value)) for name, value in named)][-MOST_KEPT:]

    def changed(self) -> str:
        """The first array that has changed since its call, in words; "" if none has."""
        return next((name for name, array, elements in self._kept if _bytes_of(array) != elements), "")


def _bytes_of(array: Any) -> bytes:
    return bytes((array if isinstance(array, np.ndarray) else array.get()).tobytes())


def called_before(call: Callable[[], Any], arrays: Sequence[Any], again: int) -> Iterator[Any]:
    """What a function returns for other numbers in the same arrays. They then get their own back, for `again` calls.

    All numbers but the first move on by one place, then all but the first and the last: first number, sum, shape and
    array are those of the next call, or also the last number, as in images with a black rim. The function may refuse
    such numbers. The later calls come one right after the other, and so does the one that counts.
    """
    was = [array.copy() for array in arrays]
    for moved in (slice(1, None), slice(1, -1)):
        _put_back(arrays, was)
        for array in arrays:
            if array.size > 1 and array.flags.c_contiguous and not is_locked(array):
                flat = array.reshape(-1)
                flat[moved] = np.roll(flat[moved], 1) if array.size > 2 else flat[0]
        with contextlib.suppress(Exception):
            yield call()
    for number in range(again + 1):
        _put_back(arrays, was)
        if number < again:
            call()


def _put_back(arrays: Sequence[Any], was: Sequence[Any]) -> None:
    for array, numbers in zip(arrays, was, strict=True):
        with contextlib.suppress(ValueError):  # it was locked, or has another shape now: the next call shows it
            array[...] = numbers


def said_of(error: BaseException) -> Message:
    """An exception's type and the first line of its text. Making the text may itself run hostile code."""
    try:
        text = (str(error).strip().splitlines() or [""])[0]
    except BaseException:
        text = "its text cannot be made"
    return {"type": type(error).__name__[:60], "text": text[:LONGEST_TEXT]}


def line_of(error: BaseException, file: str) -> int:
    """The last line of the text `file` in an exception's traceback; 0 if there is none."""
    line, trace = 0, error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
