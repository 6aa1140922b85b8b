"""Run a student's Python text in a process of its own, which sends back data: only this process has the reference.

Where the system can fork and confine, that process is a copy of one that has imported NumPy already, which takes
milliseconds. In a sandbox, and on other systems, a new Python is started. What runs there is in answer_process/.
"""

import ast
import contextlib
import copy
import dataclasses
import functools
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from cuda_on_cpu.processes import Child, pipe
from nnclassroom.judge import answer_process, limits
from nnclassroom.judge.answer_process.messages import about_array, packed, unpacked
from nnclassroom.judge.answer_process.results import LONGEST_TEXT, said_of
from nnclassroom.judge.answer_process.talk import MOST_MESSAGE
from nnclassroom.judge.check import WRONG_VALUES, judge
from nnclassroom.judge.forbidden_python import forbidden, imports_the_course
from nnclassroom.judge.python_text import is_empty, lines, tree
from nnclassroom.judge.run import BROKEN_OFF, Returned, raised, stale_fault
from nnclassroom.judge.verdict import OPEN, RIGHT, TINY_SECONDS, Case, Fault, Verdict
from nncourse import device as devices
from nncourse.errors import CourseError, printable
from nncourse.kernels import jit
from nncourse.kernels.operation import Operation

PROGRAM = Path(answer_process.__file__).parent
_CODE = "import sys; sys.path[0] = sys.argv.pop(1); from answer_process import process; del sys.path[0]; process.main()"
START = (sys.executable, "-c", _CODE, str(PROGRAM.parent))
START_SECONDS = 60.0  # of wall time, to start Python and import what is needed
WALL_FACTOR = 6.0  # limits count CPU time; on a busy machine the wall time may be up to so many times longer
GPU_FACTOR = 3  # on a GPU CuPy compiles its own kernels at their first calls, which takes longer
ASLEEP = 0.05  # a process that computes for less than this share of the time is waiting for something
SPARE_BYTES = 1 << 16  # bytes that an answer may hold beyond those of its results
MOST_TASKS, MOST_MEMORY = 1000, 5 << 30  # threads and processes; bytes, of all of them, that are not on a GPU
LOOK = 0.1  # seconds between looks at what a process has taken
CAN_FORK = sys.platform == "linux" and hasattr(os, "fork")


class Used(NamedTuple):
    """What processes have taken: seconds of CPU time so far, and their threads and bytes of memory now."""

    seconds: float
    tasks: int
    bytes: int


class EndedError(Exception):
    """The process ended, broke off or reached a limit; `fault` says which."""

    def __init__(self, fault: Fault):
        self.fault = fault


def check_text(
    operation: Operation,
    name: str,
    text: str,
    seconds: float,
    seed: int | None = None,
    sandbox: tuple[str, ...] = (),
) -> Verdict:
    """The verdict on the text of a Python kernel. `seconds` of computing are allowed for all cases together."""
    on_gpu = operation.python_devices[name] == "gpu" and devices.gpu_available()
    if fault := forbidden(text, operation.python_devices[name] == "gpu", name != "numba"):
        return Verdict(operation.name, name, fault.kind, fault.facts)
    with process_of(operation, name, text, seconds, sandbox) as process:
        if process.building:
            return Verdict(operation.name, name, process.building.kind, process.building.facts)
        verdict = judge(operation, name, process.run, "gpu" if on_gpu else "cpu", seed)
        if verdict:
            noted: Verdict = process.noted(verdict, seed)
            return noted
    if verdict.kind == OPEN and not is_empty(text):  # there is more than the stub
        kind = "unfinished" if "raise NotImplementedError" in text else "raised"
        return dataclasses.replace(verdict, kind=kind, facts={"type": "NotImplementedError"})
    case = verdict.case
    if verdict.kind == "wrong value" and case is not None and process.calls > 1:
        with process_of(operation, name, text, seconds, sandbox) as process:
            alone = dataclasses.replace(case, again=0)
            again = judge(operation, name, process.run, "gpu" if on_gpu else "cpu", only=alone)
        if again.kind == RIGHT:  # in a fresh process
            said = Verdict(operation.name, name, verdict.kind, verdict.facts)
            return dataclasses.replace(verdict, kind="remembers", facts={"said": said.line.partition(": ")[2]})
    if verdict.kind == "wrong value" and _compares_three(text):
        return dataclasses.replace(verdict, facts={**verdict.facts, "hints": ["three to maximum"]})
    if verdict.kind in WRONG_VALUES and operation.shapes.in_place:
        from nnclassroom.judge.diagnosis.in_the_text import rebinding

        if found := rebinding(operation, text):
            return dataclasses.replace(verdict, facts={**verdict.facts, "advice": "", **found})
    return verdict


def _compares_three(text: str) -> bool:
    """Whether a text hands np.maximum or np.minimum three arrays: they write into the third without a word."""
    calls = [node for node in ast.walk(tree(text)) if isinstance(node, ast.Call)]
    names = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute) and len(call.args) > 2}
    return bool(names & {"maximum", "minimum"})


@functools.singledispatch
def process_of(operation: Operation, *given: Any) -> Any:
    """What holds a text and runs the cases; kinds of operations that call kernels in other ways register theirs."""
    return TextProcess(operation, *given)


def seconds_of_text(operation: Operation, name: str, text: str, arguments: tuple[Any, ...], seconds: float) -> float:
    """The time of one call of a text's function, measured in its own process. CourseError if it cannot be timed."""
    with TextProcess(operation, name, text, seconds, judged=False) as process:
        return process.time(arguments)


class TextProcess:
    """A process that holds one text. The end of the with-block ends it and all that it has started."""

    def __init__(
        self,
        operation: Operation,
        name: str,
        text: str,
        seconds: float,
        sandbox: tuple[str, ...] = (),
        judged: bool = True,
    ):
        self.operation, self.name = operation, name
        self.file = f"{operation.name}.{name}.py"
        on_gpu = operation.python_devices[name] == "gpu"
        self.started = {
            "operation": operation.name,
            "file": self.file,
            "text": text,
            "xp": "cupy" if on_gpu and devices.gpu_available() else "numpy",
            "without_np": on_gpu,
            "jit": jit.options() if name == "numba" else None,
            **limits.of_process(on_gpu and devices.gpu_available(), judged),
        }
        self.seconds = seconds * (GPU_FACTOR if self.started["xp"] == "cupy" else 1)
        imports = ["numba"] * (name == "numba") + ["cupy"] * (self.started["xp"] == "cupy")
        sandbox = sandbox or limits.prefix()
        self.process = _forked(imports) if CAN_FORK and not sandbox else _Started(sandbox)
        self.objects: list[Any] = []
        self.used_before = 0.0  # seconds of computing that do not count
        self.calls = 0  # of run(), without those on tiny cases
        self.hurries = False

    def __enter__(self) -> "TextProcess":
        self.looked = time.monotonic()
        self.start = self.looked + START_SECONDS  # Python and Numba may need some time to start
        self.building: Fault | None = None
        try:
            self._send(self.started)
            answer, _ = self._receive(0)
        except EndedError as ended:
            self.building = ended.fault
        else:
            self._print(answer)
            self.building = self._building_fault(answer)
        self.start = self.looked = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.process.end(0)

    def _building_fault(self, answer: Mapping[str, Any]) -> Fault | None:
        """What is wrong with the text already before its function is called."""
        if answer.get("refused"):
            return _refused(answer["refused"])
        if "raised" not in answer:
            return None
        said = _said(answer["raised"])
        kind = "compile" if said["type"] in ("SyntaxError", "IndentationError", "TabError") else "raised"
        if answer.get("no_function"):
            return Fault("name", {"said": f"{self.file}: {said['text']}"})
        if said["type"] == "NameError":
            return raised(said | {"names": self._names()}, ())
        words = f"{self.file}: cannot be run: {said['type']}: {said['text']}"
        return Fault(kind, {"said": words, "python": True})

    def run(self, case: Case, options: Mapping[str, Any]) -> Returned | Fault:
        """Call the function on one case: what check.py calls a Runner."""
        given = copy.deepcopy(case.arguments)  # together: an array that is two arguments stays one
        self.objects = []
        if case.tiny:
            self._hurry()
        self.calls += not case.tiny
        blocks: list[bytes] = []
        told = {id(value): self._about(value, blocks) for value in given}
        call = {
            "arguments": [told[id(value)] for value in given],
            "names": self.operation.names,
            "results": len(self.operation.results),
            "in_place": [named.name for named in self.operation.shapes.in_place],
            "most_bytes": most_bytes(self.operation, case),
            "again": case.again,
        }
        return self._called(call, blocks, given)

    def noted(self, verdict: Verdict, seed: int | None) -> Verdict:
        """The verdict on a right kernel, with what is to be added to it."""
        return verdict

    def _called(self, call: dict[str, Any], blocks: list[bytes], given: tuple[Any, ...]) -> Returned | Fault:
        """Make a call and answer its questions; what came back."""
        if self.building:
            return self.building
        most = int(call["most_bytes"])
        try:
            self._send(call, blocks)
            answer, blocks = self._receive(most)
            while "ask" in answer:
                self._answer_question(answer, blocks)
                answer, blocks = self._receive(most)
            return self._returned(answer, blocks, given)
        except EndedError as ended:
            self.building = ended.fault  # further calls are impossible
            return ended.fault

    def time(self, arguments: tuple[Any, ...]) -> float:
        """The time of one call, as the process itself measures it."""
        blocks: list[bytes] = []
        try:
            if self.building:
                raise EndedError(self.building)
            self._send({"time": True, "arguments": [self._about(value, blocks) for value in arguments]}, blocks)
            answer, _ = self._receive(0)
        except EndedError as ended:
            raise CourseError(str(ended.fault)) from None
        seconds = answer.get("seconds")
        if not isinstance(seconds, float) or not seconds > 0:
            raise CourseError(str(raised(_said(answer.get("raised")), ())))
        return seconds

    # ---- values, in both directions

    def _about(self, value: Any, blocks: list[bytes]) -> dict[str, Any]:
        """The description of an argument, or of a method's result."""
        if isinstance(value, np.ndarray):
            return about_array(value, blocks)
        if isinstance(value, bool | int | float | np.generic):
            return {"number": value.item() if isinstance(value, np.generic) else value}
        if value is None:
            return {}
        self.objects.append(value)
        methods = [name for name in dir(type(value)) if not name.startswith("_") and callable(getattr(value, name))]
        fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        values = {field.name: getattr(value, field.name) for field in fields}
        shown = {name: number for name, number in values.items() if isinstance(number, int | float)}
        return {"object": len(self.objects) - 1, "methods": methods, "values": shown, "type": type(value).__name__}

    def _answer_question(self, question: Mapping[str, Any], blocks: list[bytes]) -> None:
        """Call a method of an object of the exercise on behalf of the text."""
        try:
            target = self.objects[question["ask"]]
            arguments = [self._value(about, blocks) for about in question["arguments"]]
            name = str(question["method"])
            if name.startswith("_") and name != "__array__":
                raise CourseError(f"there is no {name} here")
            named = {str(key): self._value(about, blocks) for key, about in question["named"].items()}
            result = self._ask(target, name, arguments, named)
        except CourseError as error:
            self._send({"refused": str(error)})
        except Exception as error:  # the text's own mistake
            said = said_of(error)
            self._send({"raised": said["type"], "text": said["text"]})
        else:
            answer: list[bytes] = []
            self._send(self._about_answer(result, arguments, answer), answer)

    def _ask(self, target: Any, name: str, arguments: list[Any], named: Mapping[str, Any]) -> Any:
        """The result of a method of an object of the exercise."""
        return getattr(target, name)(*arguments, **named)

    def _about_answer(self, result: Any, arguments: list[Any], blocks: list[bytes]) -> dict[str, Any]:
        """The description of the result of a method that was called with these arguments."""
        return self._about(result, blocks)

    def _value(self, about: Mapping[str, Any], blocks: list[bytes]) -> Any:
        """A value that the text handed to a method."""
        if "object" in about:
            return self.objects[about["object"]]
        if "array" in about:
            return array_from(about, blocks)
        if "number" in about:
            return about["number"]
        raise CourseError(f"expected a number, an array or an object of the exercise, got {about.get('other')}")

    def _returned(self, answer: Mapping[str, Any], blocks: list[bytes], given: tuple[Any, ...]) -> Returned | Fault:
        self._print(answer)
        if answer.get("refused"):
            return _refused(answer["refused"])
        if "raised" in answer:
            return self._raised(_said(answer["raised"]) | {"source": self._line(answer["raised"])})
        try:
            about = [dict(each) for each in answer["results"]]
            arrays = [array_from(each, blocks) if "array" in each else None for each in about]
            for each, array in zip(about, arrays, strict=True):
                _refuse_lies(each, array)
                if "object" in each and hasattr(target := self.objects[each["object"]], "__array__"):
                    target.__array__()  # it says why it is no array
            in_place = {str(name): array_from(each, blocks) for name, each in answer["in_place"].items()}
            changed = [str(name) for name in answer["changed"]]
            several = answer["several"]
            stale = str(answer["stale"])
            if len(about) != (1 if several is None else several):
                raise ValueError("another number of results")
        except CourseError as error:
            return Fault("forbidden", {"said": str(error)})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            raise EndedError(BROKEN_OFF) from None
        return Returned(about, several, arrays, in_place, changed, given, otherwise=stale_fault(stale))

    def _raised(self, said: dict[str, Any]) -> Fault:
        hints = []
        if said["type"] == "IndexError" and self.started["jit"]:
            return Fault("bounds", {"said": f"reads or writes outside of an array: {said['text']}"})
        if self.started["without_np"] and "'np'" in said["text"]:
            hints.append("np in cupy")
        elif self.started["without_np"] and self.started["xp"] == "numpy" and said["type"] == "AttributeError":
            hints.append("no cupy")
        if said["type"] == "TypeError" and "return arrays must be" in said["text"]:
            hints.append("three to maximum")
        if said.get("cuda"):
            return Fault("crash", {"status": said["type"], "context": "lost"})
        forbidden = "np in cupy" in hints
        if said["type"] == "NameError" and "'math'" in said["text"] and not self.started["without_np"]:
            hints.append("math")
        fault = raised(said | {"names": self._names()}, tuple(hints))
        if forbidden and fault.kind == "name":
            return Fault("forbidden", {"said": said["text"], "hints": hints})
        return fault

    def _line(self, said: Any) -> str:
        """The line of the text that raised the exception, if the process says which."""
        number = said.get("line") if isinstance(said, dict) else None
        of_text = lines(str(self.started["text"]))
        return printable(of_text[number - 1].strip()) if type(number) is int and 0 < number <= len(of_text) else ""

    def _names(self) -> str:
        return "xp" if self.started["without_np"] else "np"

    # ---- messages

    def _send(self, message: Mapping[str, Any], blocks: list[bytes] | None = None) -> None:
        try:
            self.process.connection.send_bytes(packed(dict(message), blocks or []))
        except BlockingIOError:  # it does not read
            raise EndedError(BROKEN_OFF) from None
        except OSError:
            raise EndedError(self._why_ended()) from None

    def _receive(self, most: int) -> tuple[dict[str, Any], list[bytes]]:
        """The next answer. No answer may cost this process more than a limited amount of memory and time."""
        try:
            if time.monotonic() - self.looked > LOOK:
                self._refuse_excess()
            while not self.process.connection.poll(LOOK):
                self._refuse_excess()
            return unpacked(self.process.connection.recv_bytes(MOST_MESSAGE + 8 * most + SPARE_BYTES))
        except (EOFError, ConnectionError):
            raise EndedError(self._why_ended()) from None
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
            raise EndedError(BROKEN_OFF) from None

    def _hurry(self) -> None:
        """From now on allow TINY_SECONDS of computing for all further calls together."""
        if not self.hurries:
            taken = self.process.used()
            self.used_before, self.start = taken.seconds if taken else 0.0, time.monotonic()
            self.hurries, self.seconds = True, min(self.seconds, TINY_SECONDS)

    def _refuse_excess(self) -> None:
        """EndedError if the process has reached a limit: of CPU time, wall time, threads or memory."""
        self.looked = time.monotonic()
        taken, wall = self.process.used(), self.looked - self.start
        if wall >= self.seconds:
            wall -= self.process.queued()
        if taken and taken.tasks > MOST_TASKS:
            said = f"starts more than {MOST_TASKS:,} threads or processes"
            raise EndedError(Fault("forbidden", {"said": said, "hints": ["computes"]}))
        if taken and taken.bytes > MOST_MEMORY and self.started["xp"] == "numpy":
            raise EndedError(Fault("memory", {"said": f"takes more than {MOST_MEMORY >> 30} GB of memory"}))
        used = taken.seconds - self.used_before if taken else wall  # None: the system does not say
        if used >= self.seconds:
            raise EndedError(Fault("time limit", {"seconds": self.seconds, "reason": "endless"}))
        if wall >= self.seconds and used < ASLEEP * wall:
            raise EndedError(Fault("time limit", {"seconds": self.seconds, "reason": "waits", "cpu": used}))
        if wall >= WALL_FACTOR * self.seconds:
            raise EndedError(Fault("time limit", {"seconds": WALL_FACTOR * self.seconds, "reason": "slow"}))

    def _why_ended(self) -> Fault:
        """Why the process has ended by itself."""
        status = self.process.end(0.5)
        if status < 0:
            with contextlib.suppress(ValueError):
                return Fault("crash", {"signal": signal.Signals(-status).name})
        return Fault("crash", {"status": status})

    def _print(self, answer: Mapping[str, Any]) -> None:
        if isinstance(printed := answer.get("printed"), str) and printed:
            whole = printed.encode("utf-8", "replace").decode()  # without halves of characters, which no file takes
            sys.stdout.write(whole)


def _said(said: Any) -> dict[str, Any]:
    """An exception's type, text and line as the process reports them, which may be anything: they are only shown."""
    said = said if isinstance(said, dict) else {}
    texts = {name: printable(" ".join(str(said.get(name, "")).split()))[:LONGEST_TEXT] for name in ("type", "text")}
    line = said.get("line")
    return texts | {"cuda": bool(said.get("cuda")), "line": line if type(line) is int else 0}


def _refused(said: Any) -> Fault:
    """The fault of a text that was refused something."""
    said = " ".join(str(said).split())[:160]
    course = said.partition(".")[0] == "nncourse"
    return imports_the_course(said) if course else Fault("forbidden", {"said": said, "hints": ["computes"]})


def array_from(about: Mapping[str, Any], blocks: list[bytes]) -> np.ndarray:
    """An array from its description; ValueError unless type, shape and number of bytes agree."""
    dtype = np.dtype(str(about["dtype"]))
    shape = tuple(int(size) for size in about["shape"])
    if dtype.kind not in "fiub" or dtype.itemsize > 16 or min(shape, default=0) < 0:
        raise ValueError("no numbers")
    return np.frombuffer(blocks[about["array"]], dtype).reshape(shape).copy()


def _refuse_lies(about: Mapping[str, Any], array: np.ndarray | None) -> None:
    """ValueError for a description that contradicts itself."""
    if about["what"] not in ("array", "number", "nothing", "other"):
        raise ValueError("no kind")
    if about["what"] == "number":
        float(about["number"])
    if about["what"] == "array":
        np.dtype(str(about["dtype"]))
        if array is not None and (list(array.shape) != list(about["shape"]) or array.dtype.str != about["dtype"]):
            raise ValueError("another array")


def most_bytes(operation: Operation, case: Case) -> int:
    """The most bytes of one result whose elements are sent: as many as the contract says, in float64 or int64."""
    shapes = operation.shapes.result_shapes(case.arguments, operation.sizes(*case.arguments))
    return max(8 * int(np.prod(shape)) for shape in shapes)


# ---- the two kinds of processes


class _Started:
    """A Python started anew, in a sandbox if there is one."""

    def __init__(self, sandbox: tuple[str, ...]):
        environment = {**os.environ, "PYTHONPATH": ""} if sandbox else os.environ
        command = [*sandbox, *START]
        self.child = Child(command, env=environment, stderr=subprocess.DEVNULL)
        self.connection = self.child.connection

    def used(self) -> Used | None:
        """What it has taken. In a sandbox the text's process is a descendant of the one that was started."""
        family = itertools.islice(_family(self.child.process.pid), MOST_TASKS + 1)
        taken = [each for each in map(_used, family) if each]
        return Used(*map(sum, zip(*taken, strict=True))) if taken else None

    def queued(self) -> float:
        """Seconds in which it could compute, but no core was free."""
        return sum(map(_queued, itertools.islice(_family(self.child.process.pid), MOST_TASKS)))

    def end(self, wait: float) -> int:
        """End it, after waiting for so many seconds that it ends by itself; its status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if wait:
                self.child.process.wait(wait)
        self.child.end()
        self.connection.close()
        return int(self.child.process.returncode)


class _Forked:
    """A copy of the nursery, which the nursery also ends."""

    def __init__(self, nursery: "Nursery", imports: list[str]):
        self.nursery = nursery
        self.connection, theirs = pipe()
        with theirs:
            self.pid = nursery.ask({"imports": imports}, theirs)["pid"]
        self.status: int | None = None

    def used(self) -> Used | None:
        return _used(self.pid)

    def queued(self) -> float:
        return _queued(self.pid)

    def end(self, wait: float) -> int:
        if self.status is None:
            try:
                self.status = int(self.nursery.ask({"end": self.pid, "wait": wait})["status"])
            except (OSError, EOFError):  # the nursery has ended, and its children with it
                self.status = -int(signal.SIGKILL)
            self.connection.close()
        return self.status


def _used(pid: int) -> Used | None:
    """What a process has taken, and the CPU time of its ended children; None if it has gone."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return Used(sum(process.cpu_times()[:4]), process.num_threads(), process.memory_info().rss)
    except psutil.Error:
        return None


def _queued(pid: int) -> float:
    """Seconds in which a process could compute, but no core was free; 0 where the system does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _family(pid: int) -> Iterator[int]:
    """A process and all its descendants. psutil would read the list of all processes of the machine, each time."""
    waiting = [pid]
    while waiting:
        yield (process := waiting.pop())
        for children in Path(f"/proc/{process}/task").glob("*/children"):  # of each thread
            with contextlib.suppress(OSError):
                waiting += map(int, children.read_text().split())


class Nursery:
    """The child that has imported NumPy. It runs no text itself, but forks the processes that do."""

    def __init__(self) -> None:
        self.child = Child([*START, "nursery"], env=limits.environment())

    def ask(self, request: Mapping[str, Any], end: Connection | None = None) -> dict[str, Any]:
        """Its answer to a request, which may come with one end of a pipe. OSError or EOFError if it has ended."""
        connection = self.child.connection
        connection.send_bytes(packed(dict(request)))
        if end:
            send_handle(connection, end.fileno(), self.child.process.pid)
        if not connection.poll(START_SECONDS):
            raise TimeoutError("the nursery does not answer")
        return unpacked(connection.recv_bytes())[0]


@functools.lru_cache(maxsize=1)
def _nursery(pid: int) -> Nursery:
    """The nursery of this process, whose id is `pid`."""
    return Nursery()


def _forked(imports: list[str]) -> _Forked:
    """A new process of the nursery, which is started again if it has ended."""
    try:
        return _Forked(_nursery(os.getpid()), imports)
    except (OSError, EOFError, ValueError, KeyError):
        _nursery(os.getpid()).child.end()
        _nursery.cache_clear()
        return _Forked(_nursery(os.getpid()), imports)


def warm_up() -> None:
    """Start the nursery, so that the first check need not wait for it."""
    if CAN_FORK:
        _nursery(os.getpid())
