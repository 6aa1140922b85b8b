"""What the Python text of a kernel must not contain: a kernel only computes, and is judged by its results alone.

These rules name what students may copy without knowing what it does. They do not stop attempts to get round them: the
operating system does that (limits.py).
"""

import ast

from nnclassroom.judge.python_text import tree
from nnclassroom.judge.verdict import Fault
from nncourse.language import PACKAGES


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


# What a kernel may import: it needs no files, no processes and no access to its caller.
ALLOWED = _set(
    """
    __future__ abc array bisect cmath collections contextlib copy cupy cupyx dataclasses decimal enum fractions
    functools heapq itertools math numba numbers numpy operator re scipy statistics string struct sys time typing
    warnings
    """
)
NAMES = _set(
    """
    __import__ __builtins__ __loader__ __spec__ breakpoint compile delattr eval exec globals input locals open
    setattr vars
    """
)
ATTRIBUTES = _set(
    """
    __base__ __bases__ __builtins__ __class__ __closure__ __code__ __defaults__ __dict__ __func__ __getattribute__
    __globals__ __import__ __kwdefaults__ __loader__ __mro__ __reduce__ __reduce_ex__ __self__ __setattr__ __spec__
    __subclasses__ __traceback__ __wrapped__ ag_frame cr_frame f_back f_builtins f_globals f_locals gi_frame
    tb_frame tb_next
    """
)
# In NumPy: files, other languages, random numbers, which no result follows from, and its own modules, through which all
# other modules can be reached.
OF_NUMPY = _set(
    """
    DataSource _core core ctypes ctypeslib distutils dump f2py fromfile genfromtxt load loadtxt memmap
    open_memmap random save savetxt savez savez_compressed set_printoptions setflags testing tofile
    """
)
OF_SYS = _set("byteorder exit float_info getrecursionlimit getsizeof int_info maxsize setrecursionlimit version_info")
MODULES = ("np", "xp", "numpy", "cupy", "math")


def forbidden(text: str, without_numpy: bool, without_numba: bool = True) -> Fault | None:
    """The first forbidden thing in a text, which need not be valid Python; None if there is none.

    `without_numpy` forbids NumPy too, as in a cupy exercise; `without_numba` Numba, as in all but a numba exercise.
    """
    try:
        parsed = tree(text)
    except SyntaxError:
        return None  # the process that runs it reports this
    for node in ast.walk(parsed):
        if said := _said(node):
            return Fault("forbidden", {"said": f"line {node.lineno}: {said}", "hints": ["computes"]})  # type: ignore
        for name in _imports(node):
            if name in PACKAGES:
                return imports_the_course(name)
            if name == "numpy" and without_numpy:
                return Fault("forbidden", {"said": "imports numpy", "hints": ["np in cupy"]})
            if name == "numba" and without_numba:
                return Fault("forbidden", {"said": "imports numba", "hints": ["numba apart"]})
            if name not in ALLOWED:
                return Fault("forbidden", {"said": f"imports {name}", "hints": ["computes"]})
    return None


def imports_the_course(name: str) -> Fault:
    return Fault("forbidden", {"said": f"imports {name[:80]}: the course's own kernels are no answer"})


def _imports(node: ast.AST) -> list[str]:
    """The packages that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [(node.module or "").partition(".")[0]]
    return []


def _said(node: ast.AST) -> str:
    """What is forbidden in one node of the text; "" if nothing."""
    match node:
        case ast.Name(id=name) if name in NAMES:
            return f"uses {name}"
        case ast.Attribute(attr=name) if name in ATTRIBUTES:
            return f"uses .{name}"
        case ast.Attribute(attr=name, value=ast.Name(id=module)) if module in MODULES and name in OF_NUMPY:
            return f"uses {module}.{name}"
        case ast.Attribute(attr="ctypes" | "tofile" | "dump" as name):
            return f"uses .{name}"
        case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name not in OF_SYS:
            return f"uses sys.{name}"
        case ast.ImportFrom(module="sys", names=names) if {alias.name for alias in names} - OF_SYS:
            return "uses a part of sys that computes nothing"
        case ast.Import(names=names) if any(alias.name == "sys" and alias.asname for alias in names):
            return "imports sys under another name"
        case ast.ImportFrom(module="numpy", names=names) if {alias.name for alias in names} & OF_NUMPY:
            return "uses a part of numpy that computes nothing"
        case ast.Import(names=names) if any(set(alias.name.split(".")[1:]) & OF_NUMPY for alias in names):
            return "uses a part of numpy that computes nothing"
        case ast.ImportFrom(module=str(module)) if set(module.split(".")[1:]) & OF_NUMPY:
            return "uses a part of numpy that computes nothing"
        case ast.Attribute(ctx=ast.Store() | ast.Del(), value=ast.Name(id=module), attr=name) if module in MODULES:
            return f"changes {module}.{name}"
    return ""
