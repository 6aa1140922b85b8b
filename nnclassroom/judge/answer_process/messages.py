"""Messages between the process of an answer and the judge: JSON and blocks of bytes. Nothing is pickled.

Both sides describe a value by a dictionary: {"number": 0.5}, {"object": 3, …}, {"array": block, "dtype": "<f4",
"shape": [2, 3]}. A block holds the elements of an array.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Message = dict[str, Any]


def packed(message: Message, blocks: Sequence[bytes] = ()) -> bytes:
    """A message as bytes: one line of JSON, which holds the sizes of the blocks, and the blocks."""
    return b"".join([json.dumps(message | {"blocks": [len(block) for block in blocks]}).encode(), b"\n", *blocks])


def unpacked(data: bytes) -> tuple[Message, list[bytes]]:
    """The message and its blocks."""
    text, _, rest = data.partition(b"\n")
    message, blocks, start = json.loads(text), list[bytes](), 0
    for size in message.pop("blocks"):
        blocks.append(rest[start : start + size])
        start += size
    return message, blocks


def array_of(about: Mapping[str, Any], blocks: list[bytes]) -> np.ndarray:
    """A new array from its description."""
    return np.frombuffer(blocks[about["array"]], about["dtype"]).reshape(about["shape"]).copy()


def about_array(array: np.ndarray, blocks: list[bytes]) -> Message:
    """The description of an array, whose elements are added to the blocks."""
    blocks.append(np.ascontiguousarray(array).tobytes())
    return {"array": len(blocks) - 1, "dtype": array.dtype.str, "shape": list(array.shape)}
