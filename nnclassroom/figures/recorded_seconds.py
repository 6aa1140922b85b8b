"""Seconds that notebooks 04, 05b and 07 measure on a GPU, or show as recorded: sums, writes to memory, counting.

Each function measures on this machine's GPU; overheads.py keeps what benchmarks/overheads.py recorded.
"""

import re
from dataclasses import replace

import numpy as np

from nnclassroom.exercises.catalogue import find
from nncourse import device as devices
from nncourse.kernels.kernel import CudaKernel

SUM = {"batch": 1 << 21, "n": 8}  # 16.8 million numbers
SIDE = 2048
COUNTED = 1 << 22
COMMON = 0.9  # of the samples are in one cell, as in the credit-card data
HALF_SQUARES = ("T a, T y", "T c", "(a - y) * (a - y)", "a + b", "c = a / 2", "0", "half_squares")


def sums() -> dict[str, float]:
    """Seconds of the mean squared error of SUM's numbers by each kernel, and by CuPy's ReductionKernel."""
    import cupy

    operation, rng = find("mse"), np.random.default_rng(0)
    A, Y = (rng.standard_normal((SUM["batch"], SUM["n"]), dtype=np.float32) for _ in range(2))
    there = [devices.to_device(array, "gpu") for array in (A, Y)]
    found = {"numpy": devices.seconds(lambda: operation["numpy"](A, Y))}
    for name in ("cupy", "shuffle", "tree", "atomic"):
        kernel = operation[name]
        found[name] = devices.seconds(lambda kernel=kernel: kernel(*there), "gpu")
    half_squares = cupy.ReductionKernel(*HALF_SQUARES)
    return found | {"ReductionKernel": devices.seconds(lambda: half_squares(*there), "gpu")}


def swapped() -> CudaKernel:
    """The naive kernel of weight_gradient with x and y exchanged: neighbouring threads write to different rows."""
    naive = find("weight_gradient")["naive"]
    text = re.sub(
        r"(blockIdx|blockDim|threadIdx)\.([xy])", lambda m: f"{m[1]}.{'y' if m[2] == 'x' else 'x'}", naive.source.text
    )
    return replace(naive, name="swapped", source=replace(naive.source, text=text), over=("n_in", "n_out"), plans={})


def weight_gradients() -> list[dict]:
    """Seconds of kernels of weight_gradient, SIDE × SIDE weights, for few samples and for many."""
    operation, rng, found = find("weight_gradient"), np.random.default_rng(5), []
    for samples in (8, 1024):
        D, A = (devices.to_device(rng.standard_normal((samples, SIDE), dtype=np.float32), "gpu") for _ in range(2))
        for kernel in (swapped(), operation["naive"], operation["tiled"], operation["cupy"]):
            seconds = devices.seconds(lambda kernel=kernel, D=D, A=A: kernel(D, A), "gpu")
            found.append({"samples": samples, "kernel": kernel.name, "seconds": seconds})
    return found


def counting() -> list[dict]:
    """Seconds of confusion_matrix (atomic) on COUNTED samples, spread evenly over cells, and most of them in one."""
    atomic, rng, found = find("confusion_matrix")["atomic"], np.random.default_rng(0), []
    for classes, common in ((1, 0.0), (2, 0.0), (10, 0.0), (100, 0.0), (2, COMMON)):
        pair = rng.integers(0, classes, (2, COUNTED), dtype=np.int32)
        pair[:, rng.random(COUNTED) < common] = 0
        there = [devices.to_device(row, "gpu") for row in pair]
        seconds = devices.seconds(lambda n=classes, there=there: atomic(*there, n), "gpu")
        found.append({"classes": classes, "common": common, "seconds": seconds})
    return found
