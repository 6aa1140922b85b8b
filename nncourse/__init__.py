"""nncourse: from one artificial neuron to a network trained by CUDA kernels that you wrote.

Read kernels/operation.py first, then kernels/dense.py: the rest of the package follows from these two.
"""

import sys

import cuda_on_cpu
from nncourse import language

__version__ = "0.3.0"

# All modules and data files come from the folder of the language that is asked for.
try:
    _folder = language.folder_of(language.current())
except language.LanguageError:
    sys.excepthook = language.in_one_line  # a command shall end with one line; notebooks show one in any case
    raise
__path__ = [str(_folder / "nncourse")]
cuda_on_cpu.__path__ = [str(_folder / "cuda_on_cpu")]
