"""What a network is made of, and how its weights begin. A layer knows no kernels: it is handed a backend."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nncourse.errors import refuse_unknown

ACTIVATIONS = ("identity", "step", "sigmoid", "tanh", "relu", "leaky_relu", "softplus", "softmax")


@dataclass
class Dense:
    """A layer in which every neuron sees every input. W (n_out, n_in), b (n_out,), float32."""

    W: np.ndarray
    b: np.ndarray
    activation: str

    def forward(self, A, backend):
        """Weighted sums Z = A Wᵀ + b and activations σ(Z), a row a sample: equation (1)."""
        Z = backend.dense_forward(A, self.W, self.b)
        return Z, getattr(backend, self.activation)(Z)

    def slope(self, Z, backend):
        """S = σ'(Z)."""
        return getattr(backend, f"{self.activation}_derivative")(Z)

    def delta_below(self, D, S_below, backend):
        """The deltas of the layer below, from this layer's deltas D: equation (4b)."""
        return backend.hidden_delta(D, self.W, S_below)

    def gradients(self, D, A_below, backend):
        """dC/dW and dC/db, means over the batch: equations (4d) and (4c)."""
        return backend.weight_gradient(D, A_below), backend.bias_gradient(D)

    def update(self, gradients, learning_rate: float, backend) -> None:
        """A step against the gradients: the end of Algorithm 1."""
        dW, db = gradients
        self.W = backend.sgd_update(self.W, dW, learning_rate)
        self.b = backend.sgd_update(self.b, db, learning_rate)

    def on(self, backend) -> "Dense":
        """A copy on the backend's device."""
        return Dense(backend.to_device(self.W.copy()), backend.to_device(self.b.copy()), self.activation)


# ---- initialisers: (random generator, n_in, n_out) -> W, b


def xavier(rng: np.random.Generator, n_in: int, n_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Uniform within ±√(6 / (n_in + n_out)), biases 0: signals keep their size (Glorot and Bengio, 2010)."""
    bound = np.sqrt(6 / (n_in + n_out))
    return rng.uniform(-bound, bound, (n_out, n_in)), np.zeros(n_out)


def he(rng: np.random.Generator, n_in: int, n_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal with variance 2 / n_in, biases 0: for ReLU, which drops half of its input (He and others, 2015)."""
    return rng.normal(0, np.sqrt(2 / n_in), (n_out, n_in)), np.zeros(n_out)


def normal(rng: np.random.Generator, n_in: int, n_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and biases from the standard normal distribution, as Nielsen's book begins."""
    return rng.normal(size=(n_out, n_in)), rng.normal(size=n_out)


def uniform(rng: np.random.Generator, n_in: int, n_out: int) -> tuple[np.ndarray, np.ndarray]:
    """Weights and biases from [0, 1], as in the C program: sums grow with n_in, sigmoids saturate, nothing learns."""
    return rng.uniform(size=(n_out, n_in)), rng.uniform(size=n_out)


INITIALISERS: dict[str, Callable] = {"xavier": xavier, "he": he, "normal": normal, "uniform": uniform}


def initialise(name: str, rng: np.random.Generator, n_in: int, n_out: int, activation: str) -> Dense:
    """A dense layer with weights from the initialiser of that name."""
    refuse_unknown("an initialiser", name, INITIALISERS)
    W, b = INITIALISERS[name](rng, n_in, n_out)
    return Dense(W.astype(np.float32), b.astype(np.float32), activation)
