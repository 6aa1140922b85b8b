"""The student's kept kernels: plain files in my_kernels/, checked when they are kept and again when they have changed.

sigmoid.numpy.py holds a Python function `sigmoid`, sigmoid.naive.cu a CUDA function `sigmoid`. progress.json records
when and where each passed, how fast it was, and the hash of its text. Loading a kept kernel runs its code.
"""

import __future__

import codecs
import contextlib
import datetime
import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cuda_on_cpu.errors import CudaCompileError
from cuda_on_cpu.text import CudaSource
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.locked import locked
from nnclassroom.exercises.terms import unknown_to
from nnclassroom.judge import worker
from nnclassroom.judge.verdict import Verdict
from nncourse import device as devices
from nncourse import language
from nncourse.errors import CourseError, read_text, reason_of, refuse_unknown, write_atomically
from nncourse.kernels import jit
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import PYTHON_DEVICES, Operation

# Seconds for all cases of a check together: CPU time for Python, wall time for CUDA C.
TIME_LIMIT, TIME_LIMIT_CUDA = 20.0, 60.0
LAZY_ANNOTATIONS = __future__.annotations.compiler_flag  # as in answer_process: names in type hints need not be known
ATTEMPTS = "attempts.jsonl"
MOST_TEXT, MOST_RECORD = 256 << 10, 4 << 20  # bytes of a kernel's text, and of the record
WAIT = 8.0  # on a busy machine a check may take so many times longer
SAME_TIMING, SLOWER = ("machine", "sizes"), 1.1  # times are compared if these agree; closer ones count as equal
WAYS = ("ring", "tree", "root")  # of all_reduce; the first that is kept is taken


def folder() -> Path:
    """The folder of kept kernels: NNCOURSE_MY_KERNELS, else my_kernels/ beside the package, else ~/my_kernels.

    Beside the package only if that can be written to, and never in an environment's site-packages. CourseError for a
    file, such as a hand-in.
    """
    if named := os.environ.get("NNCOURSE_MY_KERNELS"):
        if Path(named).is_file():
            got = f"got the file {named}: python3 -m zipfile -e FILE FOLDER unpacks it, to FOLDER/my_kernels"
            raise CourseError(f"NNCOURSE_MY_KERNELS: expected a folder; {got}")
        return Path(named)
    beside = language.ROOT / "my_kernels"
    installed = language.COURSE == language.SHIPPED
    writable = os.access(beside if beside.exists() else language.ROOT, os.W_OK)
    return beside if writable and not installed else Path.home() / "my_kernels"


def check(
    operation_name: str,
    name: str,
    text: str | None,
    launch: dict[str, Any] | None = None,
    seed: int | None = None,
    sandbox: tuple[str, ...] = (),
    seconds: float = TIME_LIMIT,
    definitions: str = "",
) -> Verdict:
    """Check a kernel given as text. A worker process may call this: judge/answer.py runs Python texts elsewhere.

    operation_name, name, text, launch: as in build(), but with the operation's name.
    seed: the same seed gives the same text the same verdict.
    sandbox: a command that starts the processes.
    seconds: the CPU time that Python may take.
    definitions: of an examination's operations; see exam_operations.py.
    """
    operation = _found(operation_name, definitions)
    try:
        verdict = _checked(operation, name, text, launch, seed, sandbox, seconds)
    except CourseError as error:
        verdict = refused(operation, name, launch, error)
    return replace(verdict, unknown=unknown_to(operation.name, name, text or ""))


def _checked(
    operation: Operation,
    name: str,
    text: str | None,
    launch: dict[str, Any] | None,
    seed: int | None,
    sandbox: tuple[str, ...],
    seconds: float,
) -> Verdict:
    from nnclassroom.judge import answer, check  # in the worker alone: a notebook loads no judge

    if text is None:
        return check.check(operation, build(operation, name, None), seed=seed)
    if not launch:
        _refuse_name(operation, name)
        refuse_unknown(f"for {file_name(operation, name, launch)} a Python kernel", name, operation.python_devices)
        return answer.check_text(operation, name, text, seconds, seed, sandbox)
    from nnclassroom.judge import cuda_answer  # and the emulator with it

    return cuda_answer.check_cuda(operation, _cuda_kernel(operation, name, text, launch), seed, sandbox)


def _found(name: str, definitions: str) -> Operation:
    """The operation of that name: one of an examination's, else one of the package."""
    if not definitions:
        return find(name)
    from nnclassroom.exercises import exam_operations

    return exam_operations.find(name, definitions)


def refused(operation: Operation, name: str, launch: dict[str, Any] | None, error: CourseError) -> Verdict:
    """The verdict on a text of which no kernel can be made."""
    kind = "compile" if isinstance(error, CudaCompileError) else "launch" if launch else "build"
    return Verdict(operation.name, name, kind, {"said": str(error)})


def judged(operation: Operation, name: str, text: str | None, launch: dict[str, Any] | None = None) -> Verdict:
    """The verdict of check(), called in the worker process. A crash or time-out of the worker is a verdict too."""
    limit = TIME_LIMIT_CUDA if launch else WAIT * TIME_LIMIT
    if launch and not devices.gpu_available():
        limit *= WAIT  # the emulator limits the CPU time of each launch itself
    try:
        verdict = worker.call(check, operation.name, name, text, launch, None, (), TIME_LIMIT, seconds=limit)
    except worker.WorkerError as error:
        ended = Verdict(operation.name, name, error.kind, error.facts)
        return _explained(operation, name, text, launch, ended) if launch else ended
    if verdict.facts.get("context") == "lost":
        worker.end()
    return verdict


def _explained(operation: Operation, name: str, text: str | None, launch: dict[str, Any], ended: Verdict) -> Verdict:
    """The emulator's verdict on a kernel that crashed or hung on the GPU, if it finds a fault; else `ended`."""
    if not devices.gpu_available():
        return ended
    try:
        emulated = worker.call(_check_emulated, operation.name, name, text, launch, seconds=WAIT * TIME_LIMIT_CUDA)
    except CourseError:
        return ended
    return ended if emulated is None or emulated else emulated


def _check_emulated(operation_name: str, name: str, text: str | None, launch: dict[str, Any]) -> Verdict | None:
    from nnclassroom.judge import cuda_answer

    operation = find(operation_name)
    kernel = build(operation, name, text, launch)
    found = cuda_answer.emulated(operation, kernel) if isinstance(kernel, CudaKernel) else None
    return found and replace(found, unknown=unknown_to(operation.name, name, text or ""))


def keep(
    operation: Operation,
    name: str,
    text: str,
    launch: dict[str, Any] | None = None,
    seconds: float | None = None,
    sizes: str = "",
    date: str = "",
) -> float | None:
    """Keep the text of a kernel that check() found to be right, and the seconds of a call on arguments of these sizes.

    date: of the answer, as the record has it; by default now. One that is older than another kept text is not kept.

    Several processes may keep kernels at once. Returns the seconds of another text whose place it takes, if that was
    clearly faster on this machine.
    """
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    on_gpu = (launch or PYTHON_DEVICES.get(name) == "gpu") and devices.gpu_available()
    entry: dict[str, Any] = {
        "hash": hashlib.sha256(text.encode()).hexdigest(),
        "date": date or stamp,
        "machine": devices.describe("gpu" if on_gpu else "cpu"),
    }
    entry |= {"seconds": seconds, "sizes": sizes} | ({"launch": launch} if launch else {})
    with locked(folder()):
        record = progress()  # first: if it is damaged, nothing is written
        before = record.get(f"{operation.name}.{name}", {})
        another = before.get("hash") != entry["hash"]
        if another and date and before.get("date", "") > date:
            return None
        record[f"{operation.name}.{name}"] = entry
        _write(file_name(operation, name, launch), text)
        _write("progress.json", json.dumps(record, indent=1) + "\n")
    was = before.get("seconds")
    alike = another and all(before.get(fact) == entry[fact] for fact in SAME_TIMING)
    return was if alike and was and seconds and seconds > SLOWER * was else None


def note_attempt(operation: Operation, name: str, verdict: Verdict) -> None:
    """Add a line to attempts.jsonl with the exercise, the date and the kind of the verdict, if it can be written."""
    note(folder(), f"{operation.name}.{name}", verdict.kind)


def note(place: Path, key: str, kind: str) -> None:
    """Add such a line to the record in this folder, in the encoding that an editor has given it."""
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    line = json.dumps({"key": key, "date": stamp, "kind": kind}) + "\n"
    with contextlib.suppress(OSError), locked(place), (place / ATTEMPTS).open("a+b") as file:
        file.seek(0)
        before = file.read()
        coding = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}.get(before[:2], "utf-8")
        is_cut = before and not before.endswith("\n".encode(coding))  # by a full disk, or by hand
        file.write(("\n" * bool(is_cut) + line).encode(coding))


def progress() -> dict[str, dict[str, Any]]:
    """The record of kept kernels, by "operation.kernel". CourseError if the file is damaged."""
    path = folder() / "progress.json"
    if not os.path.lexists(path):
        return {}
    record = record_in(read_text(path, MOST_RECORD))
    if record is None:
        raise CourseError(
            f"{path}: expected the record of your kernels, but it is damaged: delete it and run your kernels again"
        )
    return record


def record_in(text: str) -> dict[str, dict[str, Any]] | None:
    """The record in the text of a progress.json; None if that is damaged."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and all(map(_is_sound, record.values())) else None


def _is_sound(entry: Any) -> bool:
    """Whether an entry of the record has the form that keep() writes."""
    if not isinstance(entry, dict):
        return False
    launch, seconds = entry.get("launch", {"block": [1]}), entry.get("seconds")
    if not all(isinstance(entry.get(name, ""), str) for name in ("date", "machine", "hash", "sizes")):
        return False
    block = launch.get("block") if isinstance(launch, dict) else None
    numbers = isinstance(block, list) and block and all(type(size) is int for size in block)
    return bool(numbers) and (seconds is None or (type(seconds) in (float, int) and 0 < seconds < np.inf))


def fastest(operations: Mapping[str, Operation], device: str) -> tuple[dict[str, Kernel], dict[str, str]]:
    """The fastest kept kernel of `device` for each operation; and the reasons why others cannot be used."""
    kernels: dict[str, Kernel] = {}
    waiting: dict[str, str] = {}
    refused: dict[str, str] = {}
    record = sorted(progress().items(), key=lambda kept: kept[1].get("seconds") or np.inf)
    for key, entry in record:  # all are judged before any of them runs in this process
        operation_name, _, name = key.partition(".")
        if operation_name in operations and _device(name, entry) == device:
            verdict_of(operations[operation_name], name, entry)
    for key, entry in record:
        operation_name, _, name = key.partition(".")
        if operation_name not in operations or operation_name in kernels:
            continue
        if _device(name, entry) != device:
            if device == "cpu" and not devices.gpu_available():
                waiting.setdefault(operation_name, f"your {name} kernel needs a GPU: it is not used here")
            continue
        kernel = load(operations[operation_name], name, entry)
        if isinstance(kernel, Verdict):
            refused.setdefault(operation_name, f"yours is not used: {kernel.line}")
        else:
            kernels[operation_name] = kernel
    return kernels, {name: said for name, said in (waiting | refused).items() if name not in kernels}


def load(operation: Operation, name: str, entry: dict[str, Any]) -> Kernel | Verdict:
    """A kept kernel if its present text is right; otherwise, or if its file is missing, the verdict."""
    launch = entry.get("launch")
    try:
        verdict = verdict_of(operation, name, entry)
        return build(operation, name, text_of(operation, name, launch), launch) if verdict else verdict
    except CourseError as error:
        return Verdict(operation.name, name, "build", {"said": str(error)})


def verdict_of(operation: Operation, name: str, entry: dict[str, Any]) -> Verdict:
    """The verdict on a kept text, judged once in each process, because the record beside it is only a claim."""
    launch = entry.get("launch")
    try:
        return _verdict_now(operation.name, name, text_of(operation, name, launch), json.dumps(launch))
    except CourseError as error:
        return Verdict(operation.name, name, "build", {"said": str(error)})


@functools.lru_cache(maxsize=256)
def _verdict_now(operation_name: str, name: str, text: str, launch: str) -> Verdict:
    return judged(find(operation_name), name, text, json.loads(launch))


def text_of(operation: Operation, name: str, launch: dict[str, Any] | None) -> str:
    """The present text of a kept kernel; CourseError if there is none."""
    return read_text(folder() / file_name(operation, name, launch), MOST_TEXT)


def build(operation: Operation, name: str, text: str | None, launch: dict[str, Any] | None = None) -> Kernel:
    r"""A kernel from its text.

    operation, name: what it computes, and its name. The names of Python kernels, such as numpy, are for Python.
    text: Python that defines a function of the operation's name, which may use np and xp, a cupy kernel only xp: CuPy
        on a GPU, else NumPy. Or CUDA C. None: the package's kernel of that name.
    launch: of CUDA C, options of CudaKernel with `block` among them: {"block": [256], "grid": ["batch"]}.

    Raises CourseError for a text that cannot be run, and for a launch that does not fit.

    >>> relu = build(find("relu"), "numpy", "def relu(z):\n    return np.maximum(z, 0)")
    >>> relu(np.array([-1.0, 2.0]))
    array([0., 2.])
    """
    if text is None:
        kernel = operation[name]
        with_numpy = PYTHON_DEVICES.get(name) == "gpu" and not devices.gpu_available()
        return replace(kernel, device="cpu") if with_numpy else kernel
    if launch:
        return _cuda_kernel(operation, name, text, launch)
    file = file_name(operation, name, launch)
    _refuse_name(operation, name)
    refuse_unknown(f"for {file} a Python kernel", name, operation.python_devices)
    xp, device = np, operation.python_devices[name]
    if device == "gpu" and devices.gpu_available():
        import cupy

        xp = cupy
    namespace: dict[str, Any] = {"__name__": "__main__", "xp": xp} | ({} if device == "gpu" else {"np": np})
    try:
        exec(compile(text, file, "exec", LAZY_ANNOTATIONS), namespace)
    except (Exception, SystemExit) as error:  # the student's code may raise any exception
        raise CourseError(f"{file}: cannot be run: {type(error).__name__}: {error}") from None
    function = namespace.get(operation.name)
    if not callable(function):
        raise CourseError(f"{file}: expected a function {operation.name}, found none")
    function = jit.jit(function) if name == "numba" else function
    return operation.made(name, "cpu" if xp is np else "gpu", file, function)


def _cuda_kernel(operation: Operation, name: str, text: str, launch: dict[str, Any]) -> CudaKernel:
    file = file_name(operation, name, launch)
    _refuse_name(operation, name)
    if name in operation.python_devices:
        raise CourseError(f"{file}: {name} is a Python kernel; expected CUDA C under another name, such as naive")
    from cuda_on_cpu.source import kernels_in  # of CUDA C alone

    options: dict[str, Any] = {
        option: tuple(value) if isinstance(value, list) else value for option, value in launch.items()
    }
    source = CudaSource(text, file)
    there = kernels_in(source)
    entry = there[0] if len(there) == 1 else operation.name  # a single function may have any name
    try:
        kernel = CudaKernel(operation, name, "gpu", file, None, source, entry, **options)
    except TypeError:
        raise CourseError(f"{file}: expected a launch such as {{'block': [256]}}, got {launch}") from None
    kernel.refuse_other_parameters()
    return kernel


def _refuse_name(operation: Operation, name: str) -> None:
    if not name.isidentifier():
        raise CourseError(f"{operation.name}: expected a kernel's name of letters, digits and _; got {name!r}")


def _device(name: str, entry: dict[str, Any]) -> str:
    return "gpu" if "launch" in entry else PYTHON_DEVICES.get(name, "")


def file_name(operation: Operation, name: str, launch: dict[str, Any] | None) -> str:
    """The name of a kept kernel's file in folder(): CUDA C if it has a launch, else Python."""
    return f"{operation.name}.{name}.{'cu' if launch else 'py'}"


def _write(file: str, text: str) -> None:
    """Write a file in folder() atomically."""
    path = folder() / file
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # so that others cannot copy from it
    except OSError as error:
        raise CourseError(f"{path}: cannot be written: {reason_of(error)}") from error
    write_atomically(path, lambda new: new.write_bytes(text.encode()))  # as it is, on every system


def own_all_reduce() -> tuple[Kernel, str]:
    """The student's kept all_reduce that is right now, a ring before a tree before a root, or else the course's ring.

    Returns the kernel, and "yours" or "the course's".

    >>> own_all_reduce()[1]
    "the course's"
    """
    operation, record = find("all_reduce"), progress()
    for name in WAYS:
        kernel = load(operation, name, record[key]) if (key := f"all_reduce.{name}") in record else None
        if isinstance(kernel, Kernel):
            return kernel, "yours"
    return operation[WAYS[0]], "the course's"
