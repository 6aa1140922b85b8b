"""The student's kept kernels: plain files in my_kernels/, checked when they are kept and again when they have changed.

sigmoid.numpy.py holds a Python function `sigmoid`, sigmoid.naive.cu a CUDA function `sigmoid`; progress.json says when
and where each passed, how fast it was, and the hash of the text that passed. Loading a kept kernel runs its code.
"""

import datetime
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from nncourse import device as devices
from nncourse import worker
from nncourse.cuda import emulate
from nncourse.cuda.source import CudaSource, kernels_in
from nncourse.errors import CourseError, refuse_unknown, write_atomically
from nncourse.kernels import jit
from nncourse.kernels.catalogue import find
from nncourse.kernels.check import Verdict
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

TIME_LIMIT = 120.0  # seconds for a check; on the emulator each launch has a limit of its own
PYTHON_DEVICES = {"loops": "cpu", "numpy": "cpu", "numba": "cpu", "cupy": "gpu"}


def folder() -> Path:
    """Where kept kernels lie: NNCOURSE_MY_KERNELS, else my_kernels/ beside the package, else ~/my_kernels.

    Beside the package only if it can be written there, and never in an environment's site-packages.
    """
    if named := os.environ.get("NNCOURSE_MY_KERNELS"):
        return Path(named)
    course = Path(__file__).resolve().parents[2]
    beside = course / "my_kernels"
    installed = course.name in ("site-packages", "dist-packages")
    writable = os.access(beside if beside.exists() else course, os.W_OK)
    return beside if writable and not installed else Path.home() / "my_kernels"


def check(operation_name: str, name: str, text: str | None, launch: dict | None = None) -> Verdict:
    """Check a kernel given as text. The arguments are those of build(), but for the operation's name in place of the
    operation, so that a worker process can be asked.
    """
    operation = find(operation_name)
    try:
        kernel = build(operation, name, text, launch)
        verdict = operation.check(kernel)
        if verdict and launch and devices.gpu_available() and not emulate.why_not():
            races = operation.check(kernel, device="emulator")  # a race may have no effect on this GPU
            return Verdict(True, f"{verdict.line}, and on the CPU emulator without races") if races else races
        return verdict
    except CourseError as error:
        return Verdict(False, f"{operation.name} ({name}): {error}")


def keep(operation: Operation, name: str, text: str, launch: dict | None = None, seconds: float | None = None) -> None:
    """Keep the text of a kernel that check() found right, and the seconds of a call."""
    record = progress()  # first: if it is damaged, nothing is written
    stamp = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    on_gpu = (launch or PYTHON_DEVICES.get(name) == "gpu") and devices.gpu_available()
    entry = {"hash": _hash(text), "date": stamp, "machine": devices.describe("gpu" if on_gpu else "cpu")}
    record[f"{operation.name}.{name}"] = entry | {"seconds": seconds} | ({"launch": launch} if launch else {})
    _write(file_name(operation, name, launch), text)
    _write("progress.json", json.dumps(record, indent=1) + "\n")


def progress() -> dict[str, dict]:
    """The record of kept kernels, by "operation.kernel". CourseError if the file is damaged."""
    path = folder() / "progress.json"
    if not path.exists():
        return {}
    try:
        record = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError, RecursionError):
        record = None
    if not (isinstance(record, dict) and all(map(_is_sound, record.values()))):
        raise CourseError(f"{path}: wanted the record of your kernels, but it is damaged: delete it and run them again")
    return record


def _is_sound(entry) -> bool:
    """Whether an entry of the record has the form that keep() writes."""
    if not isinstance(entry, dict):
        return False
    launch, seconds = entry.get("launch", {"block": [1]}), entry.get("seconds")
    block = launch.get("block") if isinstance(launch, dict) else None
    numbers = isinstance(block, list) and block and all(type(size) is int for size in block)
    return bool(numbers) and (seconds is None or isinstance(seconds, float | int))


def fastest(operations: dict[str, Operation], device: str) -> tuple[dict[str, Kernel], dict[str, str]]:
    """The fastest kept kernel of `device` for each operation; and the reasons why others cannot be used."""
    kernels: dict[str, Kernel] = {}
    waiting: dict[str, str] = {}
    refused: dict[str, str] = {}
    for key, entry in sorted(progress().items(), key=lambda kept: kept[1].get("seconds") or np.inf):
        operation_name, _, name = key.partition(".")
        if operation_name not in operations or operation_name in kernels:
            continue
        if _device(name, entry) != device:
            if device == "cpu" and not devices.gpu_available():
                waiting.setdefault(operation_name, f"your {name} kernel needs a GPU: it drives nothing here")
            continue
        kernel = load(operations[operation_name], name, entry)
        if isinstance(kernel, Verdict):
            refused.setdefault(operation_name, f"yours is not used: {kernel.line}")
        else:
            kernels[operation_name] = kernel
    return kernels, {name: said for name, said in (waiting | refused).items() if name not in kernels}


def load(operation: Operation, name: str, entry: dict) -> Kernel | Verdict:
    """A kept kernel. If its file is missing, or has changed and is no longer right, the verdict instead."""
    launch = entry.get("launch")
    try:
        text = text_of(operation, name, launch)
        if _hash(text) == entry.get("hash"):
            return build(operation, name, text, launch)
        verdict = worker.call(check, operation.name, name, text, launch, seconds=TIME_LIMIT)
        return build(operation, name, text, launch) if verdict else verdict
    except CourseError as error:
        return Verdict(False, str(error))


def text_of(operation: Operation, name: str, launch: dict | None) -> str:
    """The present text of a kept kernel; CourseError if there is none."""
    path = folder() / file_name(operation, name, launch)
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"{path.name} is {'gone' if isinstance(error, OSError) else 'no text'}") from None


def build(operation: Operation, name: str, text: str | None, launch: dict | None = None) -> Kernel:
    """A kernel from its text; for text None the package's kernel of that name.

    Without a GPU a cupy kernel is one for the CPU, where its functions take NumPy arrays.
    With `launch`, options of CudaKernel with `block` among them, it is CUDA C. Python text runs in a fresh namespace
    that holds np and xp (CuPy for a cupy kernel).
    """
    if text is None:
        kernel = operation[name]
        with_numpy = PYTHON_DEVICES.get(name) == "gpu" and not devices.gpu_available()
        return replace(kernel, device="cpu") if with_numpy else kernel
    file = file_name(operation, name, launch)
    if not name.isidentifier():
        raise CourseError(f"{operation.name}: wanted a kernel's name of letters, digits and _; got {name!r}")
    if launch:
        options = {option: tuple(value) if isinstance(value, list) else value for option, value in launch.items()}
        source = CudaSource(text, file)
        there = kernels_in(source)
        entry = there[0] if len(there) == 1 else operation.name  # a single function may have any name
        try:
            return CudaKernel(operation, name, "gpu", file, None, source, entry, **options)
        except TypeError:
            raise CourseError(f"{file}: wanted a launch such as {{'block': [256]}}, got {launch}") from None
    refuse_unknown(f"for {file} a Python kernel", name, PYTHON_DEVICES)
    xp = np
    if PYTHON_DEVICES[name] == "gpu" and devices.gpu_available():
        import cupy as xp
    namespace: dict = {"np": np, "xp": xp}
    try:
        exec(compile(text, file, "exec"), namespace)
    except (Exception, SystemExit) as error:  # the student's code may raise any exception
        raise CourseError(f"{file}: cannot be run: {type(error).__name__}: {error}") from None
    function = namespace.get(operation.name)
    if not callable(function):
        raise CourseError(f"{file}: wanted a function {operation.name}, found none")
    function = jit.jit(function) if name == "numba" else function
    return Kernel(operation, name, "cpu" if xp is np else "gpu", file, function)


def _device(name: str, entry: dict) -> str:
    return "gpu" if "launch" in entry else PYTHON_DEVICES.get(name, "")


def file_name(operation: Operation, name: str, launch: dict | None) -> str:
    """The name of a kept kernel's file in folder(): CUDA C if it has a launch, else Python."""
    return f"{operation.name}.{name}.{'cu' if launch else 'py'}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _write(file: str, text: str) -> None:
    """Write a file in folder() atomically."""
    path = folder() / file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(f"{path}: cannot be written: {error.strerror}") from error
    write_atomically(path, lambda new: new.write_text(text, "utf-8"))
