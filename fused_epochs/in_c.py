"""Functions in C, compiled at first use and kept, with cuda_on_cpu.host_compiler."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cuda_on_cpu.host_compiler import shared_library
from nncourse.errors import CourseError
from nncourse.kernels.activations import ALPHA

NATIVE = "-march=native"
KINDS = np.float32, np.float64, np.intc, np.int_
NUMBERS, DOUBLES, INTS, LONGS = (np.ctypeslib.ndpointer(kind, flags="C") for kind in KINDS)
CHANGED = np.ctypeslib.ndpointer(np.float32, flags=("C", "W"))
INT, LONG, DOUBLE, ADDRESS = ctypes.c_int, ctypes.c_long, ctypes.c_double, ctypes.c_void_p


def function(
    name: str, files: Sequence[Path], head: str, options: Sequence[str], arguments: Sequence[Any]
) -> Callable[..., int]:
    """The function of that name in the C code of `head` and the files, one after the other.

    Raises CourseError if they cannot be compiled or loaded.
    """
    text = "\n".join([f"#define ALPHA {ALPHA}", head, *(file.read_text(encoding="utf-8") for file in files)])
    library = shared_library(text, options, for_this_processor=NATIVE in options)
    try:
        found = ctypes.CDLL(str(library))[name]
    except OSError as error:
        raise CourseError(f"{library}: cannot be loaded: {error}; set XDG_CACHE_HOME to another folder") from None
    found.argtypes = list(arguments)
    return found


def reason(compile_it: Callable[[], object]) -> str:
    """Why C code cannot be used on this machine, in one line; "" if it can."""
    try:
        compile_it()
    except CourseError as error:
        return str(error)
    return ""
