"""The process that runs one student's Python text. It returns arrays and reports what happened; it judges nothing.

answer.py starts it by the command START, so that it imports this folder and nothing else of the course: its memory
holds no reference and no tolerance. With the argument `nursery` it runs no text itself: it imports NumPy, and for each
request forks a copy that does.
"""

import __future__

import contextlib
import ctypes
import importlib
import io
import math
import os
import signal
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

import numpy as np

from . import confinement
from .guard import guard
from .messages import Message, about_array, packed, unpacked
from .results import SENTINEL, UNWRITTEN, Earlier, called_before, described, is_locked, line_of, said_of
from .talk import Remote, Talk

Function = Callable[..., Any]
Refused = Callable[[], str]

LAZY_ANNOTATIONS = __future__.annotations.compiler_flag  # names in type hints need not be known
LONGEST_PRINT = 20_000  # characters of output
MOST_PRINTED = 64 << 20  # bytes of output in one call, after which writing fails
SLOW = 1.0  # seconds of a call that is timed only once
MOST_MEMORY = 4 << 30  # bytes
PR_SET_PDEATHSIG, M_PERTURB, HUGE_FLOATS = 1, -6, 0x80  # with these malloc fills memory with 0x7f: 3.4e38 as a float


class NoFunctionError(NameError):
    """The text does not define the wanted function."""


def _filled(make: Function) -> Function:
    """np.empty or a similar function, with elements that show when they are read before they are written."""

    def empty(*arguments: Any, **options: Any) -> Any:
        array = make(*arguments, **options)
        if array.dtype.kind in "fc":
            array.fill(UNWRITTEN)
        elif array.dtype.kind == "i" and array.dtype.itemsize >= 4:
            array.fill(SENTINEL)
        return array

    return empty


def function_of(start: Message, xp: Any) -> Function:
    """The function that the text defines, compiled by Numba if the exercise is for Numba."""
    if start["judged"] and not start["jit"]:
        for module in {np, xp}:
            module.empty, module.empty_like = _filled(module.empty), _filled(module.empty_like)
    namespace = {"__name__": "__main__", "xp": xp} | ({} if start["without_np"] else {"np": np})
    exec(compile(start["text"], start["file"], "exec", LAZY_ANNOTATIONS), namespace)
    function: Function | None = namespace.get(start["operation"])
    if not callable(function):
        raise NoFunctionError(f"expected a function {start['operation']}, found none")
    if start["jit"]:
        import numba

        options = start["jit"] | ({"fastmath": set(start["jit"]["fastmath"])} if "fastmath" in start["jit"] else {})
        function = numba.njit(boundscheck=start["judged"], **options)(function)
    return function


def run(talk: Talk) -> None:
    """Execute one text, then answer each call of its function with what it returned."""
    start, _ = talk.receive()
    warnings.simplefilter("ignore")  # PYTHONWARNINGS=error must not turn a docstring with \sigma into an error
    talk.file = start["file"]
    earlier = Earlier()
    xp, seconds = _imported(start)
    _limit(start)
    if start["confined"]:
        confinement.confine(confinement.ruleset(start["readable"], start["writable"]), xp is not np)
    _hide(start)
    refused: Refused = str
    if start["judged"]:
        libraries = bool(start["jit"]) or xp is not np
        refused = guard(start["course"], start["hidden"], start["readable"], libraries)
    try:
        function = function_of(start, xp)
    except BaseException as error:
        none = isinstance(error, NoFunctionError)
        about = {"raised": said_of(error), "building": True, "no_function": none, "refused": refused()}
        talk.send(about | {"printed": _printed()})
        return
    talk.send({"ready": True, "printed": _printed()})
    while True:
        call, blocks = talk.receive()
        values = _values(call["arguments"], blocks, talk, xp)
        if seconds:
            talk.send(_timed(function, values, xp, seconds, SLOW if xp is np and not start["jit"] else math.inf))
            continue
        talk.most = call["most_bytes"]
        talk.send(*_answer(function, values, call, earlier, xp, refused, talk.file))


def _values(arguments: Sequence[Message], blocks: list[bytes], talk: Talk, xp: Any) -> list[Any]:
    """The arguments of a call; two that have one block are one array."""
    made: dict[str, Any] = {}
    for about in arguments:
        if (key := str(about)) not in made:
            value = talk.value_of(about, blocks)
            made[key] = xp.asarray(value) if isinstance(value, np.ndarray) else value
    return [made[str(about)] for about in arguments]


def _imported(start: Message) -> tuple[Any, Function | None]:
    """np or cupy, and what measures the seconds of a call, if this process measures; it then judges nothing."""
    xp = importlib.import_module(start["xp"])
    if start["judged"]:
        return xp, None
    from nncourse.device import seconds

    return xp, seconds


def _hide(start: Message) -> None:
    """A text must compute the same wherever it runs: it finds no sign of the judge by any name."""
    sys.argv[:], sys.orig_argv[:] = start["argv"], start["argv"]
    for name in [name for name in os.environ if name.startswith(("NNCOURSE", "PYTEST"))]:
        del os.environ[name]
    hidden = (__package__, *start["course"]) if start["judged"] else (__package__,)
    for name in [name for name in sys.modules if name.partition(".")[0] in hidden]:
        del sys.modules[name]
    sys.modules["__main__"] = types.ModuleType("__main__")


def _answer(
    function: Function, values: list[Any], call: Message, earlier: Earlier, xp: Any, refused: Refused, file: str
) -> tuple[Message, list[bytes]]:
    """Call the function, whose text is this file; the message that says what came back."""
    listed = dict(zip(call["names"], values, strict=True))
    named = _spread(listed)
    arrays = {name: value for name, value in named.items() if isinstance(value, xp.ndarray)}
    before = {name: value.copy() for name, value in arrays.items()}
    raised = None
    try:
        with np.errstate(all="ignore"):  # overflow on the way is allowed if the result is right
            if call["again"] and not any(isinstance(value, Remote) for value in values):
                for other in called_before(lambda: function(*values), [*arrays.values()], call["again"]):
                    earlier.add(other, arrays, xp.ndarray, keep=False)
            result = function(*values)
        if xp is not np:
            xp.cuda.get_current_stream().synchronize()
    except BaseException as error:  # a student's function may raise anything, SystemExit included
        raised = said_of(error) | {"line": line_of(error, file)}
        raised["cuda"] = type(error).__module__.startswith("cupy")
    about: Message = {"refused": refused()}
    if raised:
        return about | {"raised": raised, "printed": _printed()}, []
    several = type(result) is tuple and call["results"] > 1
    about["several"] = len(result) if several else None
    blocks: list[bytes] = []
    results = result if several else (result,)
    about["results"] = [
        _sent(value, arrays, earlier.results, results[:at], call["most_bytes"], blocks, xp)
        for at, value in enumerate(results)
    ]
    about["stale"] = earlier.changed()
    earlier.add(result, arrays, xp.ndarray)
    host = {name: _on_host(value) for name, value in arrays.items()}
    about["in_place"] = {
        name: about_array(host[name], blocks)
        for name in call["in_place"]
        if name in host and host[name].nbytes <= call["most_bytes"]
    }
    about["changed"] = [
        name
        for name, value in host.items()
        if value.shape != before[name].shape
        or value.tobytes() != _on_host(before[name]).tobytes()
        or is_locked(arrays[name])
    ]
    now = _spread(listed)
    about["replaced"] = [name for name in arrays if now.get(name) is not arrays[name]]  # elements of lists
    return about | {"printed": _printed()}, blocks


def _spread(named: Mapping[str, Any]) -> Message:
    """The arguments by name, with the elements of lists as W[0], W[1], …"""
    spread: dict[str, Any] = {}
    for name, value in named.items():
        spread |= {f"{name}[{at}]": each for at, each in enumerate(value)} if type(value) is list else {name: value}
    return spread


def _sent(
    value: Any,
    arguments: Message,
    earlier: Sequence[Any],
    others: Sequence[Any],
    most: int,
    blocks: list[bytes],
    xp: Any,
) -> Message:
    """The description of a result, with its elements if they are not too many.

    `earlier` are those of earlier calls, `others` of this one.
    """
    about = described(value, arguments, earlier, xp.ndarray, others)
    if about["what"] == "array" and value.nbytes <= most and value.dtype.kind in "fiub":
        about |= about_array(_on_host(value), blocks)
    return about


def _on_host(array: Any) -> Any:
    return array if isinstance(array, np.ndarray) else array.get()


def _timed(function: Function, values: list[Any], xp: Any, seconds: Function, slow: float) -> Message:
    """The seconds of a call; one that is slower than `slow` is not repeated."""
    try:
        return {
            "seconds": seconds(lambda: function(*values), "cpu" if xp is np else "gpu", slow=slow),
            "printed": _printed(),
        }
    except BaseException as error:
        return {"raised": said_of(error), "printed": _printed()}


# ---- the process


def _limit(start: Message) -> None:
    """Limit memory and files, where the system can: a mistake must not make the machine swap."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_PRINTED, MOST_PRINTED))
        if start["xp"] == "numpy":  # a GPU's driver reserves more than it uses
            resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    if start["jit"] and start["judged"] and sys.platform == "linux":
        ctypes.CDLL(None).mallopt(M_PERTURB, HUGE_FLOATS)  # np.empty of compiled code


class Printed(io.TextIOBase):
    """Standard output that keeps the first LONGEST_PRINT characters and counts the others."""

    def __init__(self) -> None:
        self.parts, self.count = list[str](), 0

    def write(self, text: str) -> int:
        if self.count < LONGEST_PRINT:
            self.parts.append(text[: LONGEST_PRINT - self.count])
        self.count += len(text)
        return len(text)

    def take(self) -> str:
        more = f"\n… and {self.count - LONGEST_PRINT} more characters\n" if self.count > LONGEST_PRINT else ""
        text = "".join(self.parts) + more
        self.parts, self.count = [], 0
        return text


def _printed() -> str:
    """The output since the last call, shortened: first Python's, then that of compiled code, which is in a file."""
    said = sys.stdout.take() if type(sys.stdout) is Printed else ""
    with contextlib.suppress(OSError):
        if os.fstat(1).st_size:
            os.lseek(1, 0, os.SEEK_SET)
            said += os.read(1, LONGEST_PRINT).decode(errors="replace")
            os.ftruncate(1, 0)
            os.lseek(1, 0, os.SEEK_SET)
    return said


def _apart(keep: set[int]) -> None:
    """Make standard input empty, send all output to a file without a name, and close other open files."""
    import tempfile

    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    with tempfile.TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = sys.stderr = Printed()


def _end_with_parent() -> None:
    """Let the system end this process when its parent ends, if it can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def nursery(judge: Connection) -> None:
    """Answer requests: {"imports": […]} with a descriptor forks a process that runs a text, {"end": pid} ends it."""
    _end_with_parent()
    while True:
        try:
            request, _ = unpacked(judge.recv_bytes())
        except (EOFError, ConnectionError):
            return
        if "end" in request:
            judge.send_bytes(packed({"status": _ended(request["end"], request["wait"])}))
            continue
        for name in request["imports"]:
            importlib.import_module(name)
        own = recv_handle(judge)
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(OSError):
                os.setsid()
            _end_with_parent()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            _apart({own})
            try:
                run(Talk(Connection(own)))
            finally:
                os._exit(0)
        os.close(own)
        judge.send_bytes(packed({"pid": pid}))


def _ended(pid: int, wait: float) -> int:
    """End a process and its group, after up to `wait` seconds in which it may end by itself. Returns its status."""
    import time

    deadline = time.monotonic() + wait
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done or time.monotonic() >= deadline:
            break
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if not done:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _to_judge() -> Connection:
    """The connection to the judge, given as standard input. cuda_on_cpu.processes must not be imported here."""
    if sys.platform == "win32":
        import msvcrt
        from multiprocessing.connection import PipeConnection

        return PipeConnection(msvcrt.get_osfhandle(os.dup(0)))
    return Connection(os.dup(0))


def main() -> None:
    judge = _to_judge()
    if sys.argv[1:] == ["nursery"]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the judge, which ends this process
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)
        nursery(judge)
        return
    _end_with_parent()
    _apart({judge.fileno()})
    run(Talk(judge))
