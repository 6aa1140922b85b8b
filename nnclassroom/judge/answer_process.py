"""The process that runs one student's Python text. It returns arrays and reports what happened; it judges nothing.

answer.py starts it as a script. It imports nothing of this package, so its memory holds no reference and no tolerance.
With the argument `nursery` it runs no text itself: it imports NumPy, and for each request forks a copy that does.

A message is a JSON text and any number of blocks of bytes, the elements of arrays, sent by a connection of
multiprocessing; nothing is pickled. Both sides describe a value by a dictionary: {"number": 0.5}, {"object": 3, …},
{"array": block, "dtype": "<f4", "shape": [2, 3]}. Objects, such as the simulated GPU of an exercise, stay with the
judge: this process has only their names, and each call of a method is a question.
"""

import contextlib
import ctypes
import importlib
import io
import json
import os
import signal
import sys
import types
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle

import numpy as np

LONGEST_TEXT = 300  # characters of an exception
LONGEST_PRINT = 20_000  # characters of output
MOST_PRINTED = 64 << 20  # bytes of output in one call, after which writing fails
MOST_MEMORY = 4 << 30  # bytes
SENTINEL = -987654321  # fills integer arrays of np.empty while a text is judged; float arrays hold NaN
PR_SET_PDEATHSIG, M_PERTURB, HUGE_FLOATS = 1, -6, 0x80  # with these malloc fills memory with 0x7f: 3.4e38 as a float

# ---- messages


def packed(message: dict, blocks=()) -> bytes:
    """A message as bytes: one line of JSON, which holds the sizes of the blocks, and the blocks."""
    return b"".join([json.dumps(message | {"blocks": [len(block) for block in blocks]}).encode(), b"\n", *blocks])


def unpacked(data: bytes) -> tuple[dict, list[bytes]]:
    """The message and its blocks."""
    text, _, rest = data.partition(b"\n")
    message, blocks, start = json.loads(text), [], 0
    for size in message.pop("blocks"):
        blocks.append(rest[start : start + size])
        start += size
    return message, blocks


def array_of(about: dict, blocks: list[bytes]) -> np.ndarray:
    """A new array from its description."""
    return np.frombuffer(blocks[about["array"]], about["dtype"]).reshape(about["shape"]).copy()


def about_array(array: np.ndarray, blocks: list[bytes]) -> dict:
    """The description of an array, whose elements are added to the blocks."""
    blocks.append(np.ascontiguousarray(array).tobytes())
    return {"array": len(blocks) - 1, "dtype": array.dtype.str, "shape": list(array.shape)}


# ---- what a call returned


def described(value, arguments: dict, earlier: list, array_type: type = np.ndarray) -> dict:
    """A description of a result, without judging it: an array, a number, nothing, or the type's name of another value.

    `same`: the name of the argument that it is. `shares`: the name of the argument with which it shares memory, or "an
    earlier result".
    """
    kind = type(value)
    if kind is array_type:
        about = {"what": "array", "dtype": value.dtype.str, "shape": list(value.shape)}
        about["writable"] = bool(getattr(value.flags, "writeable", True))
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


def _overlap(a, b) -> bool:
    """Whether the memory ranges of two arrays overlap."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return np.may_share_memory(a, b)
    return a.data.ptr < b.data.ptr + b.nbytes and b.data.ptr < a.data.ptr + a.nbytes


def said_of(error: BaseException) -> dict:
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


# ---- what a text finds here


class NoFunctionError(NameError):
    """The text does not define the wanted function."""


class RefusedError(ImportError):
    """What a kernel may not do, or a mistake that an object of the exercise reports."""


class Guard:
    """What is refused while a text is judged: importing the course, starting processes, reading and writing files.

    `asked` is the first thing that was refused, whatever the text did with the exception. Python calls an audit hook
    for all of this, and no Python code can remove it.
    """

    STARTS = ("subprocess.", "os.system", "os.fork", "os.exec", "os.posix_spawn", "os.spawn", "pty.", "os.startfile")
    CHANGES = ("os.kill", "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate")
    CHANGES += ("os.chmod", "os.chown", "os.utime", "os.putenv", "os.unsetenv", "shutil.", "socket.", "signal.")
    CHANGES += ("ctypes.", "sys.settrace", "sys.setprofile", "resource.setrlimit")
    WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

    def __init__(self, start: dict):
        self.course, self.asked = start["forbidden"], ""
        self.libraries = bool(start["jit"]) or start["xp"] != "numpy"  # Numba and CuPy need much of it themselves
        folders = (sys.prefix, sys.base_prefix, "/usr/lib", "/lib", "/proc/", "/sys/", "/dev/", "/etc/")
        self.readable = tuple(map(os.path.realpath, folders))
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
        there = f"{os.sep}nncourse{os.sep}languages{os.sep}"  # what is generated lies among the English packages
        self.own = tuple(os.path.join(root.partition(there)[0], name) + os.sep for name in self.course)

    def begin(self) -> None:
        if self.course:
            sys.meta_path.insert(0, self)
            sys.addaudithook(self.hook)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.course:
            self.refuse(name)

    def refuse(self, what: str) -> None:
        self.asked = self.asked or what
        raise RefusedError(f"{what}: refused for a kernel")

    def hook(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            self.opens(path, flags or 0)
        elif event.startswith(self.STARTS):
            self.refuse("starts a process")
        elif event.startswith(self.CHANGES) and not self.libraries and arguments[:1] != (1,):  # 1: our own output
            self.refuse(f"uses {event}")

    def opens(self, path, flags: int) -> None:
        if not isinstance(path, (str, bytes)):
            return
        real = os.path.realpath(os.fsdecode(path))
        if real.startswith(self.own):
            self.refuse("reads the course's files")
        if flags & self.WRITES and not self.libraries and not real.startswith("/dev/null"):
            self.refuse("writes a file")
        if not (self.libraries or real.startswith(self.readable)):
            raise RefusedFileError(f"{real}: refused for a kernel")


class RefusedFileError(PermissionError):
    """A file that a kernel may not read. Python itself looks for some, and goes on without them."""


class Remote:
    """An object of the exercise, which stays with the judge: its methods are called there."""

    def __init__(self, about: dict, talk: "Talk"):
        self.__dict__.update(about["values"], _number=about["object"], _methods=about["methods"], _talk=talk)
        self.__dict__["_type"] = about["type"]

    def __getattr__(self, name):
        if name in self._methods:
            return lambda *arguments, **named: self._talk.ask(self._number, name, arguments, named)
        raise AttributeError(f"there is no {name}; there are {', '.join(self._methods) or 'no methods'}")

    def __array__(self, *_, **__):
        return self._talk.ask(self._number, "__array__", (), {})

    def __getitem__(self, place):
        return np.asarray(self)[place]


class Talk:
    """The conversation with the judge."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self.file = ""  # of the text

    def receive(self) -> tuple[dict, list[bytes]]:
        try:
            return unpacked(self._connection.recv_bytes())
        except (EOFError, ConnectionError):
            os._exit(0)  # the judge has gone

    def send(self, message: dict, blocks=()) -> None:
        self._connection.send_bytes(packed(message, blocks))

    def ask(self, number: int, method: str, arguments: tuple, named: dict):
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
        frame = sys._getframe()
        while frame and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return frame.f_lineno if frame else 0

    def about(self, value, blocks: list[bytes]) -> dict:
        """The description of a value that the text hands to a method."""
        if isinstance(value, Remote):
            return {"object": value._number}
        if isinstance(value, np.ndarray):
            return about_array(value, blocks)
        if isinstance(value, (int, float, np.floating, np.integer)):
            return {"number": value.item() if isinstance(value, np.generic) else value}
        return {"other": type(value).__name__}

    def value_of(self, about: dict, blocks: list[bytes]):
        """A value from its description."""
        if "object" in about:
            return Remote(about, self)
        if "list" in about:
            return [self.value_of(each, blocks) for each in about["list"]]
        return array_of(about, blocks) if "array" in about else about.get("number")


def _filled(make):
    """np.empty or a similar function, with elements of NaN, which show when they are read before they are written."""

    def empty(*arguments, **options):
        array = make(*arguments, **options)
        if array.dtype.kind in "fc":
            array.fill(np.nan)
        elif array.dtype.kind == "i" and array.dtype.itemsize >= 4:
            array.fill(SENTINEL)
        return array

    return empty


def function_of(start: dict, guard: Guard):
    """The function that the text defines, compiled by Numba if the exercise is for Numba."""
    xp = importlib.import_module(start["xp"])
    if start["judged"] and not start["jit"]:
        for module in {np, xp}:
            module.empty, module.empty_like = _filled(module.empty), _filled(module.empty_like)
    guard.begin()
    namespace = {"__name__": "answer", "xp": xp} | ({} if start["without_np"] else {"np": np})
    exec(compile(start["text"], start["file"], "exec"), namespace)
    function = namespace.get(start["operation"])
    if not callable(function):
        raise NoFunctionError(f"wanted a function {start['operation']}, found none")
    if start["jit"]:
        import numba

        options = start["jit"] | ({"fastmath": set(start["jit"]["fastmath"])} if "fastmath" in start["jit"] else {})
        function = numba.njit(boundscheck=start["judged"], **options)(function)
    return function, xp


def run(talk: Talk) -> None:
    """Execute one text, then answer each call of its function with what it returned."""
    start, _ = talk.receive()
    talk.file = start["file"]
    _limit(start)
    guard, earlier = Guard(start), []
    if start["judged"]:  # a text must compute the same wherever it runs
        sys.argv[:], sys.orig_argv[:] = ["kernel"], ["kernel"]
        for name in [name for name in os.environ if name.startswith(("NNCOURSE", "PYTEST"))]:
            del os.environ[name]
    try:
        function, xp = function_of(start, guard)
    except BaseException as error:
        none = isinstance(error, NoFunctionError)
        about = {"raised": said_of(error), "building": True, "no_function": none, "refused": guard.asked}
        talk.send(about | {"printed": _printed()})
        return
    talk.send({"ready": True, "printed": _printed()})
    on_gpu = xp is not np
    while True:
        call, blocks = talk.receive()
        values = [talk.value_of(about, blocks) for about in call["arguments"]]
        if on_gpu:
            values = [xp.asarray(value) if isinstance(value, np.ndarray) else value for value in values]
        if call.get("time"):
            talk.send(_timed(function, values, on_gpu))
            continue
        talk.send(*_answer(function, values, call, earlier, xp, guard, talk.file))


def _answer(function, values: list, call: dict, earlier: list, xp, guard: Guard, file: str) -> tuple[dict, list[bytes]]:
    """Call the function, whose text is this file; the message that says what came back."""
    listed = dict(zip(call["names"], values, strict=True))
    named = _spread(listed)
    arrays = {name: value for name, value in named.items() if isinstance(value, xp.ndarray)}
    before = {name: value.copy() for name, value in arrays.items()}
    raised = None
    try:
        with np.errstate(all="ignore"):  # overflow on the way is allowed if the result is right
            if not any(isinstance(value, Remote) for value in values):
                for _ in range(call["again"]):
                    function(*[before[name].copy() if name in before else value for name, value in named.items()])
            result = function(*values)
        if xp is not np:
            xp.cuda.get_current_stream().synchronize()
    except BaseException as error:  # a student's function may raise anything, SystemExit included
        raised = said_of(error) | {"line": line_of(error, file)}
        raised["cuda"] = type(error).__module__.startswith("cupy")
    about: dict = {"refused": guard.asked}
    if raised:
        return about | {"raised": raised, "printed": _printed()}, []
    several = type(result) is tuple and call["results"] > 1
    about["several"] = len(result) if several else None
    blocks: list[bytes] = []
    about["results"] = []
    for value in result if several else (result,):
        about["results"].append(_sent(value, arrays, earlier, call["most_bytes"], blocks, xp))
    host = {name: _on_host(value) for name, value in arrays.items()}
    about["in_place"] = {
        name: about_array(host[name], blocks)
        for name in call["in_place"]
        if name in host and host[name].nbytes <= call["most_bytes"]
    }
    about["changed"] = [
        name
        for name, value in host.items()
        if value.shape != before[name].shape or value.tobytes() != _on_host(before[name]).tobytes()
    ]
    now = _spread(listed)
    about["replaced"] = [name for name in arrays if now.get(name) is not arrays[name]]  # elements of lists
    return about | {"printed": _printed()}, blocks


def _spread(named: dict) -> dict:
    """The arguments by name, with the elements of lists as W[0], W[1], …"""
    spread = {}
    for name, value in named.items():
        spread |= {f"{name}[{at}]": each for at, each in enumerate(value)} if type(value) is list else {name: value}
    return spread


def _sent(value, arguments: dict, earlier: list, most: int, blocks: list[bytes], xp) -> dict:
    """The description of a result, with its elements if they are not too many. An array is added to `earlier`."""
    about = described(value, arguments, earlier, xp.ndarray)
    if about["what"] == "array":
        if "same" not in about:
            earlier.append(value)
            del earlier[:-6]
        if value.nbytes <= most and value.dtype.kind in "fiub":
            about |= about_array(_on_host(value), blocks)
    return about


def _on_host(array) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()


def _timed(function, values: list, on_gpu: bool) -> dict:
    """The seconds of a call."""
    from nncourse.device import seconds  # only here: a process that times does not judge

    try:
        return {"seconds": seconds(lambda: function(*values), "gpu" if on_gpu else "cpu"), "printed": _printed()}
    except BaseException as error:
        return {"raised": said_of(error), "printed": _printed()}


# ---- the process


def _limit(start: dict) -> None:
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

    def __init__(self):
        self.parts, self.count = [], 0

    def write(self, text):
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


if __name__ == "__main__":
    sys.modules["answer"] = types.ModuleType("answer")  # the text's module, so that Numba finds what it defines
    main()
