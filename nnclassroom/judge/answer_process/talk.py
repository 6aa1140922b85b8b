"""The conversation of an answer with the judge, about the objects of the exercise: these stay with the judge."""

import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

import numpy as np

from .guard import RefusedError
from .messages import Message, about_array, array_of, packed, unpacked

MOST_MESSAGE = 1 << 20  # bytes beside 8 times those of a result


class Remote:
    """An object of the exercise, which stays with the judge: its methods are called there."""

    def __init__(self, about: Mapping[str, Any], talk: "Talk"):
        self.__dict__.update(about["values"], _number=about["object"], _methods=about["methods"], _talk=talk)
        self.__dict__["_type"] = about["type"]

    def __getattr__(self, name: str) -> Any:
        if name in self._methods:
            return lambda *arguments, **named: self._talk.ask(self._number, name, arguments, named)
        raise AttributeError(f"there is no {name}; there are {', '.join(self._methods) or 'no methods'}")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self._talk.ask(self._number, "__array__", (), {})

    def __getitem__(self, place: Any) -> Any:
        return np.asarray(self)[place]


class Talk:
    """The conversation with the judge."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self.file = ""  # of the text
        self.most = 0  # bytes of one result

    def receive(self) -> tuple[Message, list[bytes]]:
        try:
            return unpacked(self._connection.recv_bytes())
        except (EOFError, ConnectionError):
            os._exit(0)  # the judge has gone

    def send(self, message: Message, blocks: Sequence[bytes] = ()) -> None:
        self._connection.send_bytes(packed(message, blocks))

    def ask(self, number: int, method: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Call a method of an object that the judge holds."""
        blocks: list[bytes] = []
        values = [self.about(value, blocks) for value in arguments]
        names = {name: self.about(value, blocks) for name, value in named.items()}
        question = {"ask": number, "method": method, "arguments": values, "named": names, "line": self.line()}
        self.send(question, blocks)
        answer, blocks = self.receive()
        if "refused" in answer:
            raise RefusedError(answer["refused"])
        if "raised" in answer:
            raise type(answer["raised"], (Exception,), {})(answer["text"])
        if "fills" in answer:  # a vector that a group exchanges
            array = named["vector"] if "vector" in named else arguments[0]
            array[...] = array_of(answer["fills"], blocks).reshape(array.shape)
            return array if answer.get("returned") else None
        if "list" in answer:
            return [self.value_of(about, blocks) for about in answer["list"]]
        return self.value_of(answer, blocks)

    def line(self) -> int:
        """The line of the text that is running; 0 if there is none."""
        frame: FrameType | None = sys._getframe()
        while frame and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return frame.f_lineno if frame else 0

    def about(self, value: Any, blocks: list[bytes]) -> Message:
        """The description of a value that the text hands to a method."""
        if isinstance(value, Remote):
            return {"object": value._number}
        if isinstance(value, np.ndarray):
            if value.nbytes > MOST_MESSAGE + 8 * self.most:
                size = f"{value.size:,} numbers, {value.nbytes / 1e6:,.0f} MB"
                raise ValueError(f"an array of {size} is sent: those of this case are much smaller")
            return about_array(value, blocks)
        if isinstance(value, (int, float, np.floating, np.integer)):
            return {"number": value.item() if isinstance(value, np.generic) else value}
        return {"other": type(value).__name__}

    def value_of(self, about: Mapping[str, Any], blocks: list[bytes]) -> Any:
        """A value from its description."""
        if "object" in about:
            return Remote(about, self)
        if "list" in about:
            return [self.value_of(each, blocks) for each in about["list"]]
        return array_of(about, blocks) if "array" in about else about.get("number")
