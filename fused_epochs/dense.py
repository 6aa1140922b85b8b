"""Shared by the kernels of whole epochs: the numbers of activations and costs, and their mathematics in CUDA C."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from cuda_on_cpu.text import CudaSource
from nncourse.errors import DoesNotFitError
from nncourse.kernels.dense_epoch import CROSS_ENTROPIES

COSTS = {"mse": 0, "mae": 1} | dict.fromkeys(CROSS_ENTROPIES, 2)  # their numbers in C and CUDA C
# The activations that the kernels of epochs know, in the order of their enumerations in Python, C and CUDA C. A network
# with any other is trained step by step.
KNOWN = ("identity", "step", "sigmoid", "tanh", "relu", "leaky_relu", "softplus", "softmax")
MATHEMATICS = CudaSource.read(Path(__file__).with_name("mathematics.cu"))  # for all CUDA kernels of an epoch


def refuse_not_known(activations: Iterable[str]) -> None:
    """DoesNotFitError for activations that the kernels of epochs do not know."""
    for name in activations:
        if name not in KNOWN:
            raise DoesNotFitError(f"the kernels of epochs know the activations {', '.join(KNOWN)}; got {name}")


def codes(activations: Sequence[str]) -> list[int]:
    """The numbers of these activations in the kernels' enumerations; DoesNotFitError for one that they do not know."""
    refuse_not_known(activations)
    return [KNOWN.index(name) for name in activations]
