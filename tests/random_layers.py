"""Layers with random parameters, the same in each run."""

import numpy as np

from nncourse.model.image_layers import Convolution
from nncourse.model.layers import Dense


def dense(n_in: int, n_out: int, activation: str = "tanh", dtype=np.float64) -> Dense:
    rng = np.random.default_rng(10 * n_in + n_out)
    return Dense(0.6 * rng.normal(size=(n_out, n_in)).astype(dtype), rng.normal(size=n_out).astype(dtype), activation)


def convolution(c_in: int, c_out: int, k: int, activation: str = "tanh", bias: bool = True, **steps) -> Convolution:
    rng = np.random.default_rng(100 * c_in + 10 * c_out + k)
    W = 0.6 * rng.normal(size=(c_out, c_in, k, k))
    return Convolution(W, rng.normal(size=c_out) if bias else None, activation, **steps)
