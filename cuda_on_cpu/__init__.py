"""CUDA C without a GPU: read a .cu text, compile it for errors, run its kernels thread by thread, find their races.

README.md has an example. What is public stands in PUBLIC, and is loaded at its first use; all else may move.
"""

from importlib import import_module
from typing import Any

PUBLIC = {  # by the module that has it
    "CudaSource": "source",
    "compile_check": "nvrtc",
    "CudaCompileError": "nvrtc",
    "why_no_nvrtc": "nvrtc",
    "launch": "emulate",
    "why_not": "emulate",
    "EmulationError": "faults",
    "UserError": "errors",
}
__all__ = [*PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PUBLIC[name]}"), name)
