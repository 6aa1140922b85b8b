"""What a call of an answer returned or raised, described without judging it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .messages import Message
from .talk import Remote

LONGEST_TEXT = 300  # characters of an exception
# What fills new arrays while a text is judged: integers, and floats with the NaN of these bits, which arithmetic keeps.
SENTINEL, UNWRITTEN_BITS = -987654321, 0x7FC0F111
UNWRITTEN: np.float32 = np.uint32(UNWRITTEN_BITS).view(np.float32)


def described(value: Any, arguments: Message, earlier: Sequence[Any], array_type: type = np.ndarray) -> Message:
    """A description of a result, without judging it: an array, a number, nothing, or the type's name of another value.

    `same`: the name of the argument that it is. `shares`: the name of the argument with which it shares memory, or "an
    earlier result".
    """
    kind = type(value)
    if kind is array_type:
        about = {"what": "array", "dtype": value.dtype.str, "shape": list(value.shape)}
        about["writable"] = not is_locked(value)
        for name, argument in arguments.items():
            if value is argument:
                return about | {"same": name}
            if _overlap(value, argument):
                return about | {"shares": name}
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


def _overlap(a: Any, b: Any) -> bool:
    """Whether the memory ranges of two arrays overlap."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return np.may_share_memory(a, b)
    return bool(a.data.ptr < b.data.ptr + b.nbytes and b.data.ptr < a.data.ptr + a.nbytes)


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
