"""Generation: a network of sequences continues them, token by token."""

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.model.network import OF_TOKENS, Network


def generate(
    network: Network, tokens: Array, backend: Calls, count: int, temperature: float = 0.0, seed: int = 0
) -> np.ndarray:
    """The sequences `tokens` (batch, length), or one of them (length,), continued by `count` tokens: whole numbers.

    network: its attention is causal, its cost token_cross_entropy. It sees as many of the last tokens as it takes.
    temperature: 0 takes the most probable token; otherwise it is drawn with probabilities p^(1 / temperature).
    seed: of what is drawn.

    Raises CourseError for another network, and for tokens that it does not know.

    >>> network = make_network("tokens4x3,embed8,block2x16,3", cost="token_cross_entropy")
    >>> generate(network, [0, 2], choose("numpy"), count=5).shape
    (7,)
    """
    if network.cost != OF_TOKENS:
        raise CourseError(f"expected a network of tokens, with the cost {OF_TOKENS}; got {network.cost}")
    given, rng, (t,) = np.asarray(tokens, np.int32), np.random.default_rng(seed), network.input_shape
    if given.ndim not in (1, 2) or not given.size or temperature < 0:
        wanted = "tokens (batch, length), at least one to begin with, and a temperature of at least 0"
        raise CourseError(f"expected {wanted}; got {given.shape} and {temperature}")
    found = np.atleast_2d(given)
    for _ in range(count):
        seen = found[:, -t:]
        X = np.zeros((len(seen), t), np.float32)  # no position looks at those after it
        X[:, : seen.shape[1]] = seen
        p = devices.to_device(network.predict(X, backend)[:, seen.shape[1] - 1], "cpu").astype(np.float64)
        if temperature:
            p = np.cumsum((p / p.max(axis=1, keepdims=True)) ** (1 / temperature), axis=1)
            new = (p < rng.random((len(p), 1)) * p[:, -1:]).sum(axis=1)
        else:
            new = p.argmax(axis=1)
        found = np.concatenate([found, new[:, None].astype(np.int32)], axis=1)
    return found.reshape(*given.shape[:-1], -1)
