"""The words for what a kernel may not do: each attempt is refused and named, whatever the text did with the exception.

Python calls an audit hook for imports, files, processes and the like, and no Python code can remove it. But code in one
interpreter can reach all others in it: the limits themselves are the operating system's, in confinement.py.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

STARTS = ("subprocess.", "os.system", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "pty.", "os.startfile")
OF_FILES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "shutil.")
OF_RIGHTS = ("os.chmod", "os.chown", "os.utime", "os.putenv", "os.unsetenv", "resource.setrlimit")
CHANGES = (*OF_FILES, *OF_RIGHTS, "os.kill", "socket.", "signal.", "ctypes.", "sys.settrace", "sys.setprofile")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RefusedError(ImportError):
    """What a kernel may not do, or a mistake that an object of the exercise reports."""


class RefusedFileError(PermissionError):
    """A file that a kernel may not read. Python itself looks for some, and goes on without them."""


class _NoCourse:
    """A finder of modules that refuses to import the course."""

    def __init__(self, refuses: Callable[[str], None]):
        self.find_spec = lambda name, path=None, target=None: refuses(name)


def guard(course: list[str], own: list[str], readable: list[str], libraries: bool) -> Callable[[], str]:
    """Refuse from now on. The returned function says what was refused first; "" if nothing.

    course: the packages that may not be imported; own: their folders. readable: folders that may be read.
    libraries: Numba or CuPy is used, which need much of it themselves.
    """
    asked: list[str] = []
    folders, hidden = tuple(map(os.path.realpath, readable)), tuple(os.path.join(folder, "") for folder in own)
    starts, changes, writes, real_path, decoded = STARTS, CHANGES, WRITES, os.path.realpath, os.fsdecode

    def refuse(what: str) -> None:
        asked.append(what)
        raise RefusedError(f"{what}: refused for a kernel")

    def refuse_course(name: str) -> None:
        if name.partition(".")[0] in course:
            refuse(name)

    def opens(path: object, flags: int) -> None:
        if not isinstance(path, (str, bytes)):
            return
        real = real_path(decoded(path))
        if real.startswith(hidden):
            refuse("reads the course's files")
        if flags & writes and not libraries and not real.startswith("/dev/null"):
            refuse("writes a file")
        if not (libraries or real.startswith(folders)):
            raise RefusedFileError(f"{real}: refused for a kernel")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            opens(path, flags or 0)
        elif event.startswith(starts):
            refuse("starts a process")
        elif event.startswith(changes) and not libraries and arguments[:1] != (1,):  # 1: our own output
            refuse(f"uses {event}")

    sys.meta_path.insert(0, _NoCourse(refuse_course))
    sys.addaudithook(hook)
    return lambda: asked[0] if asked else ""
