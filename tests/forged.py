"""The forgeries of answers/forgeries.toml, and what they want to lie in a folder of kept kernels."""

import functools
import os
import socket
import tomllib
from collections.abc import Callable
from pathlib import Path

FILE = Path(__file__).parent / "answers" / "forgeries.toml"
FORGERIES = tomllib.loads(FILE.read_text("utf-8"))["forgery"]


@functools.cache
def server() -> socket.socket:
    """A server that listens on this machine; the system accepts for it."""
    return socket.create_server(("127.0.0.1", 0))


def plant(path: Path, thing: dict, filled: Callable[[str], str]) -> None:
    """One planted file, as the head of forgeries.toml describes it; filled(text) has no places left open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if "link" in thing:
        path.symlink_to(filled(thing["link"]))
    elif "fifo" in thing:
        os.mkfifo(path)
    elif "folder" in thing:
        path.mkdir()
    elif "size" in thing:
        with path.open("wb") as file:
            file.truncate(thing["size"])
    else:
        path.write_bytes(bytes.fromhex(thing["bytes"]) if "bytes" in thing else filled(thing["text"]).encode())
