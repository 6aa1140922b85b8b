"""Layer normalisation: each row of numbers has its own mean and variance, in training and in inference."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.model import registry
from nncourse.model.layers import Forward, Initialiser, StepPosition, WithoutStatistics, delta_below
from nncourse.model.registry import Shape, whole, zeros

EPSILON = 1e-5  # added to a variance


@registry.layer(
    "layernorm",
    word="layernorm",
    wanted="layernorm, without numbers",
    below=lambda shape: {"n": shape[-1]},
)
class LayerNorm(WithoutStatistics):
    """Normalises the numbers along the last axis to mean 0 and deviation 1; then Z = gamma x̂ + beta, both (n,).

    Samples may have any number of axes: (n,), or (positions, n) for a sequence. (Ba, Kiros and Hinton, 2016)
    """

    activation = ""
    brief = "layer normalisation"

    def __init__(self, gamma: Array, beta: Array):
        self.parameters: tuple[Array, ...] = (gamma, beta)

    def with_parameters(self, parameters: Sequence[Array]) -> "LayerNorm":
        return LayerNorm(*parameters)

    def initial(self, rng: np.random.Generator, initialiser: Initialiser) -> "LayerNorm":
        """gamma 1 and beta 0."""
        n = self.parameters[0].size
        return LayerNorm(np.ones(n, np.float32), np.zeros(n, np.float32))

    def shape_after(self, shape: Shape) -> Shape:
        n = self.parameters[0].size
        if shape[-1:] != (n,):
            raise CourseError(f"expected samples with {n} numbers in a row, for a layer normalisation; got {shape}")
        return shape

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """`kept`: mean and scale of each row."""
        gamma, beta = self.parameters
        Z, mean, scale = backend.layernorm_forward(_as_rows(A_below), gamma, beta, EPSILON)
        return Forward(Z.reshape(A_below.shape), kept=(mean, scale))

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        return None

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        deltas, rows, (mean, scale) = _as_rows(D), _as_rows(A_below), here.kept
        gradients = backend.layernorm_gradients(deltas, rows, mean, scale)
        if not below:
            return None, gradients
        G = backend.layernorm_backward(deltas, rows, mean, scale, self.parameters[0])
        return delta_below(G.reshape(A_below.shape), S_below, backend), gradients

    def describe(self) -> dict[str, Any]:
        return {"kind": "layernorm", "n": self.parameters[0].size}

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "LayerNorm":
        empty = zeros(whole(about, "n", 1))
        return cls(empty, empty)

    def __repr__(self) -> str:
        return f"layer normalisation of {self.parameters[0].size} numbers"


def _as_rows(A: Array) -> Array:
    """(batch, places, n)."""
    return A.reshape(len(A), prod(A.shape[1:-1]), A.shape[-1])
