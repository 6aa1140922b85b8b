"""Compile with Numba on demand: importing Numba takes a second, and so does compiling a kernel.

Compiled code is cached in a folder. The name of each file is a hash of everything that the code depends on: the
function, those that it calls, the numbers that it reads, the types of its arguments, Numba, and the processor. So no
file is ever out of date, and all processes may share the folder.
"""

import contextlib
import functools
import hashlib
import pickle
import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from cuda_on_cpu.cache import cache_folder, is_there, remove_unused
from nncourse.errors import CourseError, write_atomically

ADDRESS = " at 0x"  # in the repr of objects that are elsewhere in another process
NUMBERS = (bool, int, float, complex, str, tuple, type, np.generic)  # what compiled code reads besides arrays


def options() -> dict[str, Any]:
    """The options of all `numba` kernels: sums may be reordered, for SIMD; NaN and infinity are respected.

    Other threads of Python may run at the same time.
    """
    return {"error_model": "numpy", "fastmath": ["reassoc", "contract", "nsz", "arcp"], "nogil": True}


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled by Numba, with options()."""
    import numba

    chosen, made_of = options(), made_from(function)
    can_be_kept = ADDRESS not in made_of
    if can_be_kept:
        function = _named_after(made_of, function)
    compiled = numba.njit(**{**chosen, "fastmath": set(chosen["fastmath"])})(function)
    if can_be_kept:
        compiled._cache = Kept(made_of)
    return compiled


def _named_after(made_of: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of the function with a unique name.

    Numba finds the constants of a compiled function by its name and a number that is unique only within one process.
    Two functions of one name, compiled by two processes, would use each other's constants.
    """
    known = function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    copy = FunctionType(*known)
    copy.__qualname__ = f"{function.__qualname__}_{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
    return copy


def compiled_together(*functions: Callable[..., Any]) -> Callable[..., Any]:
    """The last function, compiled. It may call those before it: see all_compiled_together()."""
    return all_compiled_together(*functions)[functions[-1].__name__]


def all_compiled_together(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """The compiled functions by name. Each may call those before it, and uses the globals of its own file."""
    compiled: dict[str, Callable[..., Any]] = {}
    for function in functions:
        compiled[function.__name__] = jit(FunctionType(function.__code__, function.__globals__ | compiled))
    return compiled


def at_first_call(build: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """A function that calls build() once, at its first call, and passes every call to the result of build()."""
    built = functools.cache(build)

    def call(*arguments: Any) -> Any:
        return built()(*arguments)

    return call


# ---- the cache on disk


class Kept:
    """A cache with the methods that Numba calls."""

    def __init__(self, made_of: str):
        self._made_of = made_of

    def load_overload(self, types: Any, target: Any) -> Any:
        """The code compiled for these types of arguments; None if there is none."""
        from numba.core.compiler import CompileResult

        target.refresh()
        with contextlib.suppress(Exception):  # a damaged file may raise anything: then it is compiled again
            path = self._path(types, target.codegen())
            if is_there(path):
                return CompileResult._rebuild(target, *pickle.loads(path.read_bytes()))
        return None

    def save_overload(self, types: Any, result: Any) -> None:
        """Save the code, if this is possible and the folder can be written."""
        from numba.core.serialize import dumps

        dynamic = result.library.has_dynamic_globals or any(not lifted.can_cache for lifted in result.lifted)
        if dynamic or ADDRESS in str(types):
            return
        with contextlib.suppress(OSError, CourseError):
            path, data = self._path(types, result.codegen), dumps(result._reduce())
            write_atomically(path, lambda new: new.write_bytes(data))
            remove_unused(path.parent)

    def _path(self, types: Any, codegen: Any) -> Any:
        import numba

        parts = self._made_of, options(), types, codegen.magic_tuple(), numba.__version__, sys.version_info
        return cache_folder("nncourse/compiled") / hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:32]


def made_from(function: Callable[..., Any], known: tuple[Callable[..., Any], ...] = ()) -> str:
    """Everything that a function's compiled code depends on, as text: code, constants, globals, functions it calls.

    known: its callers, which are not described again.
    """
    function = getattr(function, "py_func", function)  # the source of a compiled function
    if function in known:
        return function.__qualname__
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    read = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    values = [*zip(function.__code__.co_freevars, cells, strict=True), *sorted(read.items(), key=lambda item: item[0])]
    said = [f"{name}: {_value(value, (*known, function))}" for name, value in values]
    return "\n".join([_code(function.__code__), *said])


def _names(code: CodeType) -> set[str]:
    """The names that a code object and those inside it read."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _code(code: CodeType) -> str:
    constants = [_code(value) if isinstance(value, CodeType) else repr(value) for value in code.co_consts]
    return repr((code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_freevars, constants))


def _value(value: Any, known: tuple[Callable[..., Any], ...]) -> str:
    if isinstance(value, FunctionType) or hasattr(value, "py_func"):
        return made_from(value, known)
    if isinstance(value, ModuleType):
        return value.__name__
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape} {value.tobytes()!r}"
    return f"{type(value)} {value!r}" if isinstance(value, NUMBERS) else str(type(value))
