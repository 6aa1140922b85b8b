"""The operation of an exercise of notebook 14: no network calls it, and no backend has kernels for it.

residual_backward    the backward pass through a block with a shortcut
"""

from collections.abc import Iterator

import numpy as np

from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial


def _both_ways(place: tuple[int, ...], G: np.ndarray, A_above: np.ndarray, W: np.ndarray) -> str:
    closed = int((A_above[place[0]] <= 0).sum())
    at_0 = f"; {closed} of that sample's {len(W)} neurons are at 0, where it lets nothing through" if closed else ""
    return f"what ReLU lets through goes both ways, through W and through the shortcut{at_0}"


def _mistakes(
    place: tuple[int, ...], G: np.ndarray, A_above: np.ndarray, W: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    D = np.where(A_above > 0, G, 0.0)
    yield "this is D Wᵀ + D: do not transpose W, since the forward pass had A Wᵀ", D @ W.T + D
    yield "this is D W alone: add D, which comes back through the shortcut", D @ W
    yield "this is G W + G: set G to 0 where A_above is 0, since ReLU lets nothing through there", G @ W + G
    yield "this is D W + G: add D, since the shortcut passes the same ReLU", D @ W + G
    yield "this is G W + D: take D W, since the path through W passes the same ReLU", G @ W + D


def _after_relu(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Numbers of 0 or more; in every third case tiny ones, which are above 0 too."""
    scale = 1e-30 if sizes["turn"] % 3 == 1 else 1
    return (np.maximum(rng.standard_normal(shape), 0) * scale).astype(np.float32)


residual_backward = Operation(
    "residual_backward",
    "D = G where A_above > 0, else 0; G_below = D W + D: the backward pass of A_above = max(0, A Wᵀ + A)",
    contract="G (batch, n), A_above (batch, n), W (n, n) -> G_below (batch, n)",
    reference=lambda G, A_above, W: np.einsum("ij,jk->ik", np.where(A_above > 0, G, 0.0), W + np.eye(len(W))),
    flops=None,
    trial=Trial(
        error_scale=lambda G, A_above, W: np.einsum("ij,jk->ik", abs(G) * (A_above > 0), abs(W) + np.eye(len(W))),
        values={"A_above": _after_relu},
        edge_cases=("zeros", "large"),
        advice=_both_ways,
        mistakes=_mistakes,
    ),
)


@residual_backward.kernel("numpy", device="cpu")
def array(G: np.ndarray, A_above: np.ndarray, W: np.ndarray) -> np.ndarray:
    D = G * (A_above > 0)
    return D @ W + D
