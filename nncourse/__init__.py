"""nncourse: from one artificial neuron to a network trained by CUDA kernels that you wrote.

Read kernels/operation.py first, then kernels/dense.py: the rest of the package follows from these two. What is public
stands in __init__.pyi, here and in model/ and parallel/, and is loaded at its first use; all else may move.
"""

import sys

import lazy_loader

import cuda_on_cpu
from nncourse import language

__version__ = "0.3.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# All modules and data files come from the folder of the language that is asked for.
try:
    _folder = language.folder_of(language.current())
except language.LanguageError:
    sys.excepthook = language.in_one_line  # a command shall end with one line; notebooks show one in any case
    raise
__path__ = [str(_folder / "nncourse")]
cuda_on_cpu.__path__ = [str(_folder / "cuda_on_cpu")]
