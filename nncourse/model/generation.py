"""Generation: a network continues sequences, token by token.

Each new token is one more position. Attention needs the keys and values of all earlier positions; these are kept, so
that nothing is computed twice.
"""

from collections.abc import Sequence

import numpy as np

from nncourse import device as devices
from nncourse.calls import Array, Calls
from nncourse.errors import CourseError
from nncourse.model.layers import Forward, Layer, LayerSequence, StepPosition, rows_of
from nncourse.model.network import OF_TOKENS, Network
from nncourse.model.sequence_layers import Embedding, SelfAttention


def generate(
    network: Network, tokens: Array, backend: Calls, count: int, temperature: float = 0.0, seed: int = 0
) -> np.ndarray:
    """The sequences `tokens` (batch, length), or a single one (length,), continued by `count` tokens; int32.

    network: must have causal attention and the cost token_cross_entropy. It sees a window of the last t tokens. As long
        as these are all tokens, a step computes only the new position; after that it computes the whole window.
    temperature: 0 takes the most probable token; otherwise tokens are drawn in proportion to p^(1 / temperature).
    seed: seed of the draws.

    Raises CourseError for a network of a different kind, and for tokens that it does not know.

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
    network.refuse_samples(found)
    there = network.on(backend)
    by_position = LayerSequence(positioned(there.layers, t))
    done = 0  # positions whose keys and values are kept
    for _ in range(count):
        X = backend.to_device(found[:, -t:].astype(np.float32))
        if found.shape[1] > t:
            last = there.predict(X, backend)
        else:
            for place in range(done, found.shape[1]):
                last = by_position.forward(X[:, place : place + 1], backend).A
            done = found.shape[1]
        p = devices.to_device(last[:, -1], "cpu").astype(np.float64)
        if temperature:
            p = np.cumsum((p / p.max(axis=1, keepdims=True)) ** (1 / temperature), axis=1)
            new = (p < rng.random((len(p), 1)) * p[:, -1:]).sum(axis=1)
        else:
            new = p.argmax(axis=1)
        found = np.concatenate([found, new[:, None].astype(np.int32)], axis=1)
    return found.reshape(*given.shape[:-1], -1)


def positioned(layers: Sequence[Layer], most: int) -> list[Layer]:
    """The layers, made to compute one position at a time, at most `most`: a forward pass takes the next, (batch, 1)."""
    found: list[Layer] = []
    for layer in layers:
        if isinstance(layer, LayerSequence):
            layer = layer.of_layers(positioned(layer.layers, most))
        elif isinstance(layer, Embedding):
            layer = _EmbeddingByPosition(layer)
        elif isinstance(layer, SelfAttention):
            if not layer.causal:
                raise CourseError(
                    f"expected causal attention, such as attention{layer.heads}, to generate; got {layer}"
                )
            layer = _AttentionByPosition(layer, most)
        found.append(layer)
    return found


class _EmbeddingByPosition(Embedding):
    """An embedding that adds the row of the next position."""

    def __init__(self, of: Embedding):
        E, *P = of.parameters
        super().__init__(E, P[0] if P else None, 1)
        self.place = 0

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        E, *P = self.parameters
        row = P[0][self.place : self.place + 1] if P else None
        self.place += 1
        return Embedding(E, row, 1).forward(A_below, backend)


class _AttentionByPosition(SelfAttention):
    """Attention from the next position to itself and all before it, whose keys and values it keeps."""

    def __init__(self, of: SelfAttention, most: int):
        super().__init__(of.parameters, of.heads)
        self.most, self.length = most, 0
        self.cache: Array | None = None  # keys and values, (2, batch, heads, most, d)

    def forward(self, A_below: Array, backend: Calls, training: StepPosition | None = None) -> Forward:
        W, b, W_o, b_o = self.parameters
        new = self._split(backend.dense_forward(rows_of(A_below), W, b), A_below, backend)[:, :, :, 0]
        if self.cache is None:
            _, batch, heads, d = new.shape
            self.cache = np.zeros_like(new, shape=(2, batch, heads, self.most, d))
        self.cache[:, :, :, self.length] = new[1:]
        self.length += 1
        keys, values = self.cache
        o = backend.attention_step(new[0], keys, values, self.length)
        return Forward(backend.dense_forward(o.reshape(len(o), -1), W_o, b_o).reshape(A_below.shape))
