"""Layers for sequences, (batch, t, n): embeddings of tokens, and attention, with which positions see each other.

Samples of tokens, (batch, t), hold the number of each token's kind, as float32 like all samples. Dense layers, layer
normalisations and residual blocks take sequences too: each position is a row.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from nncourse.calls import Array, Calls
from nncourse.device import stacked
from nncourse.errors import CourseError
from nncourse.model import registry
from nncourse.model.layers import (
    Forward,
    Initialiser,
    StepPosition,
    WithoutStatistics,
    delta_below,
    delta_of_rows,
    rows_of,
)
from nncourse.model.registry import SEQUENCE, TOKENS, N, Shape, Tokens, whole, zeros

DEVIATION = 0.3  # of the first embeddings: with 0.02, sums of five digits are learnt twice as late


def _of_tokens(shape: Shape) -> dict[str, Any]:
    if not isinstance(shape, Tokens):
        raise CourseError(f"expected tokens just before it, such as {SEQUENCE}; got samples of shape {shape}")
    return {"t": shape[0], "kinds": shape.kinds}


def _number_and_more(found: re.Match[str]) -> tuple[float, ...]:
    """The number of a word, then 1; or 0 if letters follow the number, as in embed64unordered."""
    return int(found[1]), int(not found[2])


@registry.layer(
    "embedding",
    word="embed",
    pattern=rf"embed{N}(unordered)?",
    wanted="embed and the numbers of a row, such as embed64, or embed64unordered without positions",
    after=TOKENS,
    below=_of_tokens,
    numbers=_number_and_more,
    spelling=lambda n, ordered: f"embed{n}" + "unordered" * (not ordered),
)
class Embedding(WithoutStatistics):
    """A row of E (kinds, n) for each token, plus a row of P (t, n) for its position, unless the layer is unordered.

    Without P, neither the layers above nor attention can tell the positions apart.
    """

    activation = ""
    sizes = "n", "ordered"

    def __init__(self, E: Array, P: Array | None, t: int):
        self.parameters: tuple[Array, ...] = (E,) if P is None else (E, P)
        self.t = t

    def with_parameters(self, parameters: Sequence[Array]) -> "Embedding":
        E, *P = parameters
        return Embedding(E, P[0] if P else None, self.t)

    def initial(self, rng: np.random.Generator, initialiser: Initialiser) -> "Embedding":
        """Small normal numbers, whatever the initialiser: a row is looked up; it is not a sum of many inputs."""
        return self.with_parameters([rng.normal(0, DEVIATION, array.shape) for array in self.parameters])

    def shape_after(self, shape: Shape) -> Shape:
        if shape != (self.t,):
            raise CourseError(f"expected samples of {self.t} tokens for an embedding; got {shape}")
        return self.t, self.parameters[0].shape[1]

    def refuse_samples(self, X: Any) -> None:
        """Raise CourseError unless X, an array or HostSamples, holds numbers of kinds. A step does not check."""
        kinds, tokens = len(self.parameters[0]), X[:]
        if tokens.size and not ((tokens >= 0) & (tokens < kinds) & (tokens == np.floor(tokens))).all():
            wanted = f"expected tokens, whole numbers from 0 to {kinds - 1}, not scaled"
            raise CourseError(f"{wanted}; got numbers from {float(tokens.min()):g} to {float(tokens.max()):g}")

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """`kept`: the tokens as whole numbers."""
        E, *P = self.parameters
        tokens = A_below.astype(np.int32)
        A = backend.embedding(tokens, E, P[0] if P else np.zeros_like(E, shape=(self.t, E.shape[1])))
        return Forward(A, kept=tokens)

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        return None

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """Tokens are whole numbers: the deltas below are 0."""
        E, *P = self.parameters
        gradients: tuple[Array, ...] = (backend.embedding_gradient(here.kept, D, len(E)),)
        if P:
            gradients = (*gradients, backend.bias_gradient(D.reshape(len(D), -1)).reshape(P[0].shape))
        return np.zeros_like(A_below) if below else None, gradients

    def describe(self) -> dict[str, Any]:
        kinds, n = self.parameters[0].shape
        return {"kind": "embedding", "kinds": kinds, "t": self.t, "n": n, "ordered": len(self.parameters) - 1}

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "Embedding":
        kinds, t, n = (whole(about, name, 1) for name in ("kinds", "t", "n"))
        return cls(zeros(kinds, n), zeros(t, n) if whole(about, "ordered") else None, t)

    def __repr__(self) -> str:
        kinds, n = self.parameters[0].shape
        return f"embedding of {kinds} kinds in {n} numbers{'' if len(self.parameters) > 1 else ', without positions'}"


@registry.layer(
    "attention",
    word="attention",
    pattern=rf"attention{N}(all)?",
    wanted="attention and its heads, such as attention4, or attention4all to see later positions too",
    after=SEQUENCE,
    below=lambda shape: {"n": shape[-1]},
    numbers=_number_and_more,
    spelling=lambda heads, causal: f"attention{heads}" + "all" * (not causal),
)
class SelfAttention(WithoutStatistics):
    """Self-attention (Vaswani and others, 2017): softmax(Q Kᵀ / √d) V, with d = n / heads, for each head.

    W (3n, n) and b (3n,) compute queries Q, keys K and values V from the rows of a sequence; W_o (n, n) and b_o (n,)
    compute the result from the outputs of all heads. If `causal`, a position sees only itself and those before it.
    """

    activation = ""
    sizes = "heads", "causal"

    def __init__(self, parameters: Sequence[Array], heads: int, causal: bool = True):
        W = parameters[0]
        if heads < 1 or W.shape[1] % heads:
            raise CourseError(f"expected a number of heads that divides {W.shape[1]}, for attention; got {heads}")
        self.parameters: tuple[Array, ...] = tuple(parameters)
        self.heads, self.causal = heads, causal

    def with_parameters(self, parameters: Sequence[Array]) -> "SelfAttention":
        return SelfAttention(parameters, self.heads, self.causal)

    def initial(self, rng: np.random.Generator, initialiser: Initialiser) -> "SelfAttention":
        """As four dense layers with n inputs and n outputs: for queries, keys, values and the result."""
        n = self.parameters[2].shape[1]
        parts = [initialiser(rng, (n, n), n, n) for _ in range(4)]
        Ws, bs = zip(*parts, strict=True)
        return self.with_parameters([np.concatenate(Ws[:3]), np.concatenate(bs[:3]), Ws[3], bs[3]])

    def shape_after(self, shape: Shape) -> Shape:
        n = self.parameters[2].shape[1]
        if len(shape) != 2 or shape[1] != n:
            raise CourseError(f"expected sequences, (positions, {n}), such as after {SEQUENCE}; got {shape}")
        return shape

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        """`kept`: queries, keys and values; the attention weights; and the outputs of the heads, row by row."""
        W, b, W_o, b_o = self.parameters
        H = self._split(backend.dense_forward(rows_of(A_below), W, b), A_below, backend)
        sums, P = backend.attention_forward(H[0], H[1], H[2], int(self.causal))
        found = rows_of(backend.merge_heads(sums[None]).reshape(A_below.shape))
        return Forward(backend.dense_forward(found, W_o, b_o).reshape(A_below.shape), kept=(H, P, found))

    def slope(self, Z: Array | None, backend: Calls) -> Array | None:
        return None

    def backward(
        self, D: Array, here: Forward, A_below: Array, S_below: Array | None, backend: Calls, below: bool = True
    ) -> tuple[Array | None, tuple[Array, ...]]:
        """The deltas are multiplied by t meanwhile, since (4c) and (4d) divide by the rows of all positions."""
        W, _, W_o, _ = self.parameters
        (H, P, found), rows, t = here.kept, rows_of(A_below), np.float32(D.shape[1])
        D_o = rows_of(D) * t
        G = self._split(delta_of_rows(D_o, W_o, None, backend), A_below, backend)
        dH = stacked(backend.attention_backward(G[0], H[0], H[1], H[2], P))
        D_h = backend.merge_heads(dH).reshape(len(rows), len(W))
        of_parts = backend.weight_gradient(D_h, rows), backend.bias_gradient(D_h)
        gradients = *of_parts, backend.weight_gradient(D_o, found), backend.bias_gradient(D_o)
        if not below:
            return None, gradients
        G_below = (delta_of_rows(D_h, W, None, backend) / t).reshape(A_below.shape)
        return delta_below(G_below, S_below, backend), gradients

    def _split(self, rows: Array, like: Array, backend: Calls) -> Array:
        """(parts, batch, heads, t, d) from rows of parts · n numbers."""
        batch, t, n = like.shape
        return backend.split_heads(rows.reshape(batch, t, rows.shape[1] // n, self.heads, n // self.heads))

    def describe(self) -> dict[str, Any]:
        n = self.parameters[2].shape[1]
        return {"kind": "attention", "n": n, "heads": self.heads, "causal": self.causal}

    @classmethod
    def from_description(cls, about: dict[str, Any]) -> "SelfAttention":
        n, heads = whole(about, "n", 1), whole(about, "heads", 1)
        return cls((zeros(3 * n, n), zeros(3 * n), zeros(n, n), zeros(n)), heads, bool(about.get("causal", True)))

    def __repr__(self) -> str:
        n = self.parameters[2].shape[1]
        return f"attention of {self.heads} heads on {n} numbers{'' if self.causal else ', not causal'}"


def block_layers(n: int, heads: int, hidden: int) -> list[dict[str, Any]]:
    """Descriptions of two residual blocks for sequences (t, n): attention, then two dense layers at each position.

    Each body begins with a layer normalisation, so that the shortcuts carry the unchanged sum of all bodies' results.
    """
    norm = {"kind": "layernorm", "n": n}
    up = {"kind": "dense", "n_in": n, "n_out": hidden, "activation": "gelu"}
    down = {"kind": "dense", "n_in": hidden, "n_out": n, "activation": "identity"}
    bodies = [norm, {"kind": "attention", "n": n, "heads": heads, "causal": True}], [norm, up, down]
    return [{"kind": "residual", "body": body, "shortcut": [], "activation": ""} for body in bodies]
