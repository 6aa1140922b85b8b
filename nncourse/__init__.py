"""nncourse: from one artificial neuron to a network trained by CUDA kernels that you wrote.

Read kernels/operation.py first, then kernels/dense.py: the rest of the package follows from these two. The public API
is the names in __init__.pyi, here and in model/ and parallel/; they are loaded at first use. All else may change.
"""

import sys

import lazy_loader

import cuda_on_cpu
from nncourse import language

__version__ = "1.0.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

# All modules and data files are read from the folder of the chosen language.
try:
    _folder = language.folder_of(language.current())
except language.LanguageError:
    sys.excepthook = language.in_one_line  # for commands; notebooks show one line in any case
    raise
__path__ = [str(_folder / "nncourse")]
cuda_on_cpu.__path__ = [str(_folder / "cuda_on_cpu")]
