"""nncourse: from one artificial neuron to a network trained by CUDA kernels that you wrote.

Read kernels/operation.py first, then kernels/dense.py: the rest of the package follows from these two.
"""

__version__ = "0.2.0"
