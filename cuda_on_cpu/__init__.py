"""CUDA C without a GPU: read a .cu text, compile it for errors, run its kernels thread by thread, find their races.

README.md has an example. The public names are those in PUBLIC, loaded at first use; everything else may change.
"""

from importlib import import_module
from typing import Any

PUBLIC = {  # name: module
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
