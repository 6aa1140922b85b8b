"""What a backend can be asked: a method for each operation, for editors and type checkers.

Made by tools/calls.py from the operations' contracts: change these, not this file. A Backend of backend.py has
a kernel in the place of each method. Beside the methods stands what networks have to know of the operations.
"""

from collections.abc import Mapping
from typing import Any

Array = Any  # a NumPy array on the CPU, a CuPy array on a GPU

# The activations, and what each of their outputs is computed from: a number of Z, or a row.
ACTIVATIONS = {
    "identity": "number",
    "step": "number",
    "sigmoid": "number",
    "tanh": "number",
    "relu": "number",
    "leaky_relu": "number",
    "softplus": "number",
    "softmax": "row",
}
ADAM = {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-08}  # what stands in adam_update


class Calls:
    """The operations of a backend, and where their arrays lie."""

    name: str
    device: str
    kernels: Mapping[str, Any]
    notes: Mapping[str, str]
    yours: frozenset[str]
    asked: frozenset[str]
    unused: frozenset[str]

    @property
    def epochs(self) -> Mapping[str, Any]:
        """The kernels that compute fused epochs, by operation."""
        raise NotImplementedError

    def to_device(self, array: Array) -> Array:
        """`array` where this backend's kernels want it."""
        raise NotImplementedError

    def neuron(self, x: Array, w: Array, b: float) -> Array:
        """(1) z = Σ w_i x_i + b.

        x (n,), w (n,), b () -> z ()
        """
        raise NotImplementedError

    def perceptron_update(self, w: Array, x: Array, y: float, a: float, rate: float) -> Array:
        """w ← w + η (y − a) x.

        w (n,), x (n,), y (), a (), rate () -> w (n,)
        """
        raise NotImplementedError

    def identity(self, z: Array) -> Array:
        """a = z.

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def identity_derivative(self, z: Array) -> Array:
        """a = 1.

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def step(self, z: Array) -> Array:
        """a = 1 if z > 0, else 0.

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def step_derivative(self, z: Array) -> Array:
        """a = 0.

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def sigmoid(self, z: Array) -> Array:
        """(2a) a = 1 / (1 + exp(−z)).

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def sigmoid_derivative(self, z: Array) -> Array:
        """a = σ(z) (1 − σ(z)).

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def tanh(self, z: Array) -> Array:
        """(2b) a = 2 / (1 + exp(−2z)) − 1.

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def tanh_derivative(self, z: Array) -> Array:
        """a = 1 − tanh²(z).

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def relu(self, z: Array) -> Array:
        """(2c) a = max(0, z).

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def relu_derivative(self, z: Array) -> Array:
        """a = 1 if z > 0, else 0.

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def leaky_relu(self, z: Array) -> Array:
        """(2d) a = z if z > 0, else 0.01 z.

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def leaky_relu_derivative(self, z: Array) -> Array:
        """a = 1 if z > 0, else 0.01.

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def softplus(self, z: Array) -> Array:
        """(2e) a = log(1 + exp(z)).

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def softplus_derivative(self, z: Array) -> Array:
        """a = σ(z).

        z (*n) -> a (*n)
        """
        raise NotImplementedError

    def softmax(self, Z: Array) -> Array:
        """A[i, j] = exp(Z[i, j]) / Σ_k exp(Z[i, k]).

        Z (batch, n) -> A (batch, n)
        """
        raise NotImplementedError

    def softmax_delta(self, G: Array, A: Array) -> Array:
        """(4a) D[i] = A[i] ⊙ (G[i] − Σ_k G[i, k] A[i, k]), the slope of softmax times a gradient.

        G (batch, n), A (batch, n) -> D (batch, n)
        """
        raise NotImplementedError

    def dense_forward(self, A: Array, W: Array, b: Array) -> Array:
        """(1) Z = A Wᵀ + b.

        A (batch, n_in), W (n_out, n_in), b (n_out,) -> Z (batch, n_out)
        """
        raise NotImplementedError

    def mse(self, A: Array, Y: Array) -> Array:
        """(3) C = 1/(2 batch) Σ (a − y)².

        A (batch, n), Y (batch, n) -> C ()
        """
        raise NotImplementedError

    def mse_gradient(self, A: Array, Y: Array) -> Array:
        """G = A − Y.

        A (batch, n), Y (batch, n) -> G (batch, n)
        """
        raise NotImplementedError

    def mae(self, A: Array, Y: Array) -> Array:
        """C = 1/batch Σ |a − y|.

        A (batch, n), Y (batch, n) -> C ()
        """
        raise NotImplementedError

    def mae_gradient(self, A: Array, Y: Array) -> Array:
        """G = sign(A − Y).

        A (batch, n), Y (batch, n) -> G (batch, n)
        """
        raise NotImplementedError

    def binary_cross_entropy(self, Z: Array, Y: Array) -> Array:
        """C = 1/batch Σ (softplus(z) − y z), with a = sigmoid(z).

        Z (batch, n), Y (batch, n) -> C ()
        """
        raise NotImplementedError

    def categorical_cross_entropy(self, Z: Array, Y: Array) -> Array:
        """C = 1/batch Σ (log Σ exp(z) − Σ y z), with a = softmax(z) and Σ y = 1.

        Z (batch, n), Y (batch, n) -> C ()
        """
        raise NotImplementedError

    def cross_entropy_delta(self, A: Array, Y: Array) -> Array:
        """(4a) D = A − Y, for sigmoid with binary and softmax with categorical cross-entropy.

        A (batch, n), Y (batch, n) -> D (batch, n)
        """
        raise NotImplementedError

    def output_delta(self, G: Array, S: Array) -> Array:
        """(4a) D = G ⊙ S.

        G (*n), S (*n) -> D (*n)
        """
        raise NotImplementedError

    def hidden_delta(self, D: Array, W: Array, S: Array) -> Array:
        """(4b) D_below = (D W) ⊙ S.

        D (batch, n_out), W (n_out, n_in), S (batch, n_in) -> D_below (batch, n_in)
        """
        raise NotImplementedError

    def bias_gradient(self, D: Array) -> Array:
        """(4c) db = mean of D over the batch.

        D (batch, n_out) -> db (n_out,)
        """
        raise NotImplementedError

    def weight_gradient(self, D: Array, A: Array) -> Array:
        """(4d) dW = Dᵀ A / batch.

        D (batch, n_out), A (batch, n_in) -> dW (n_out, n_in)
        """
        raise NotImplementedError

    def convolution_forward(self, A: Array, W: Array, b: Array, stride: int, before: int, after: int) -> Array:
        """Z[s,o,y,x] = b[o] + Σ_c,i,j W[o,c,i,j] A[s,c, y·stride+i−before, x·stride+j−before], 0 outside.

        A (batch, c_in, h_in, w_in), W (c_out, c_in, k, k), b (c_out,), stride () int, before () int, after () int -> Z
        (batch, c_out, h_out, w_out) where h_out = (h_in + before + after - k) // stride + 1, w_out = (w_in + before +
        after - k) // stride + 1, k >= 1, stride >= 1
        """
        raise NotImplementedError

    def convolution_weight_gradient(self, D: Array, A: Array, k: int, stride: int, before: int, after: int) -> Array:
        """dW[o,c,i,j] = mean over s of Σ_y,x D[s,o,y,x] A[s,c, y·stride+i−before, x·stride+j−before].

        D (batch, c_out, h_out, w_out), A (batch, c_in, h_in, w_in), k () int, stride () int, before () int, after ()
        int -> dW (c_out, c_in, k, k) where h_out = (h_in + before + after - k) // stride + 1, w_out = (w_in + before +
        after - k) // stride + 1, k >= 1, stride >= 1
        """
        raise NotImplementedError

    def convolution_bias_gradient(self, D: Array) -> Array:
        """db[o] = mean over s of Σ_y,x D[s,o,y,x].

        D (batch, c_out, h_out, w_out) -> db (c_out,)
        """
        raise NotImplementedError

    def convolution_input_gradient(
        self, D: Array, W: Array, h_in: int, w_in: int, stride: int, before: int, after: int
    ) -> Array:
        """G[s,c,row,column] = Σ D[s,o,y,x] W[o,c,i,j], row = y·stride+i−before, column = x·stride+j−before.

        D (batch, c_out, h_out, w_out), W (c_out, c_in, k, k), h_in () int, w_in () int, stride () int, before () int,
        after () int -> G (batch, c_in, h_in, w_in) where h_out = (h_in + before + after - k) // stride + 1, w_out =
        (w_in + before + after - k) // stride + 1, k >= 1, stride >= 1
        """
        raise NotImplementedError

    def maxpool_forward(self, A: Array, size: int, stride: int, padding: int) -> tuple[Array, Array]:
        """Z[s, c, y, x] = max A[s, c, y·stride + i − padding, x·stride + j − padding] inside the image, i, j < size.

        A (batch, c, h_in, w_in), size () int, stride () int, padding () int -> Z (batch, c, h_out, w_out), places
        (batch, c, h_out, w_out) int where h_out = (h_in + 2 * padding - size) // stride + 1, w_out = (w_in + 2 *
        padding - size) // stride + 1, size >= 1, stride >= 1, padding >= 0, 2 * padding <= size
        """
        raise NotImplementedError

    def maxpool_backward(
        self, D: Array, places: Array, h_in: int, w_in: int, size: int, stride: int, padding: int
    ) -> Array:
        """G[s, c, row, column] = Σ D[s, c, y, x] over all windows with places[s, c, y, x] = row · w_in + column.

        D (batch, c, h_out, w_out), places (batch, c, h_out, w_out) int, h_in () int, w_in () int, size () int, stride
        () int, padding () int -> G (batch, c, h_in, w_in) where h_out = (h_in + 2 * padding - size) // stride + 1,
        w_out = (w_in + 2 * padding - size) // stride + 1, size >= 1, stride >= 1, padding >= 0, 2 * padding <= size
        """
        raise NotImplementedError

    def averagepool_forward(self, A: Array, size: int, stride: int) -> Array:
        """Z[s, c, y, x] = mean of A[s, c, y·stride + i, x·stride + j] over 0 ≤ i, j < size.

        A (batch, c, h_in, w_in), size () int, stride () int -> Z (batch, c, h_out, w_out) where h_out = (h_in - size)
        // stride + 1, w_out = (w_in - size) // stride + 1, size >= 1, stride >= 1
        """
        raise NotImplementedError

    def averagepool_backward(self, D: Array, h_in: int, w_in: int, size: int, stride: int) -> Array:
        """G[s, c, row, column] = Σ D[s, c, y, x] / size² over all windows that hold the pixel.

        D (batch, c, h_out, w_out), h_in () int, w_in () int, size () int, stride () int -> G (batch, c, h_in, w_in)
        where h_out = (h_in - size) // stride + 1, w_out = (w_in - size) // stride + 1, size >= 1, stride >= 1
        """
        raise NotImplementedError

    def globalpool_forward(self, A: Array) -> Array:
        """M[s, c] = mean of A[s, c, y, x] over y, x.

        A (batch, c, h, w) -> M (batch, c)
        """
        raise NotImplementedError

    def globalpool_backward(self, D: Array, h: int, w: int) -> Array:
        """G[s, c, y, x] = D[s, c] / (h w).

        D (batch, c), h () int, w () int -> G (batch, c, h, w)
        """
        raise NotImplementedError

    def dropout(self, A: Array, rate: float, seed: int, epoch: int, first: int, layer: int) -> Array:
        """B = A / (1 − rate) where u ≥ rate, else 0; u is random in [0, 1), from seed, epoch, sample, layer and unit.

        A (batch, n), rate (), seed () int, epoch () int, first () int, layer () int -> B (batch, n)
        """
        raise NotImplementedError

    def batchnorm_statistics(self, A: Array) -> tuple[Array, Array]:
        """mean[k] = mean of A[s, k, y, x] over s, y, x; variance[k] = mean of (A[s, k, y, x] − mean[k])².

        A (batch, c, h, w) -> mean (c,), variance (c,)
        """
        raise NotImplementedError

    def batchnorm_forward(
        self, A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float
    ) -> Array:
        """Z[s, k, y, x] = γ[k] (A[s, k, y, x] − mean[k]) / √(variance[k] + ε) + β[k].

        A (batch, c, h, w), mean (c,), variance (c,), gamma (c,), beta (c,), epsilon () -> Z (batch, c, h, w)
        """
        raise NotImplementedError

    def batchnorm_gradients(
        self, D: Array, A: Array, mean: Array, variance: Array, epsilon: float
    ) -> tuple[Array, Array]:
        """dγ[k] = mean over s of Σ_y,x D x̂, dβ[k] = mean over s of Σ_y,x D.

        D (batch, c, h, w), A (batch, c, h, w), mean (c,), variance (c,), epsilon () -> dgamma (c,), dbeta (c,)
        """
        raise NotImplementedError

    def batchnorm_backward(
        self,
        D: Array,
        A: Array,
        mean: Array,
        variance: Array,
        gamma: Array,
        dgamma: Array,
        dbeta: Array,
        epsilon: float,
    ) -> Array:
        """G = γ / √(variance + ε) (D − (dβ + x̂ dγ) / (h w)), with dγ and dβ of the channel, means over the samples.

        D (batch, c, h, w), A (batch, c, h, w), mean (c,), variance (c,), gamma (c,), dgamma (c,), dbeta (c,), epsilon
        () -> G (batch, c, h, w)
        """
        raise NotImplementedError

    def batchnorm_running(
        self,
        running_mean: Array,
        running_variance: Array,
        mean: Array,
        variance: Array,
        momentum: float,
        correction: float,
    ) -> tuple[Array, Array]:
        """R_mean ← (1 − m) R_mean + m mean, R_variance ← (1 − m) R_variance + m correction · variance.

        running_mean (c,), running_variance (c,), mean (c,), variance (c,), momentum (), correction () -> running_mean
        (c,), running_variance (c,)
        """
        raise NotImplementedError

    def batchnorm_relu(
        self, A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float
    ) -> Array:
        """Z = max(0, batchnorm_forward(A, …)).

        A (batch, c, h, w), mean (c,), variance (c,), gamma (c,), beta (c,), epsilon () -> Z (batch, c, h, w)
        """
        raise NotImplementedError

    def batchnorm_shortcut_relu(
        self, A: Array, mean: Array, variance: Array, gamma: Array, beta: Array, epsilon: float, B: Array
    ) -> Array:
        """Z = max(0, batchnorm_forward(A, …) + B).

        A (batch, c, h, w), mean (c,), variance (c,), gamma (c,), beta (c,), epsilon (), B (batch, c, h, w) -> Z (batch,
        c, h, w)
        """
        raise NotImplementedError

    def shortcut_sum(self, A: Array, B: Array) -> Array:
        """C = A + B.

        A (*n), B (*n) -> C (*n)
        """
        raise NotImplementedError

    def relu_delta(self, G: Array, A: Array) -> Array:
        """D = G where A > 0, else 0: the deltas before a ReLU from what it gave, A = max(0, Z).

        G (*n), A (*n) -> D (*n)
        """
        raise NotImplementedError

    def sgd_update(self, W: Array, G: Array, rate: float) -> Array:
        """Algorithm 1 W ← W − η G.

        W (*n), G (*n), rate () -> W (*n)
        """
        raise NotImplementedError

    def l2_gradient(self, G: Array, W: Array, l2: float) -> Array:
        """G ← G + λ W.

        G (*n), W (*n), l2 () -> G (*n)
        """
        raise NotImplementedError

    def momentum_update(self, W: Array, G: Array, V: Array, rate: float, momentum: float) -> tuple[Array, Array]:
        """V ← μ V + G, W ← W − η V.

        W (*n), G (*n), V (*n), rate (), momentum () -> W (*n), V (*n)
        """
        raise NotImplementedError

    def adam_update(
        self, W: Array, G: Array, M: Array, V: Array, rate: float, c1: float, c2: float
    ) -> tuple[Array, Array, Array]:
        """M ← β₁ M + (1 − β₁) G, V ← β₂ V + (1 − β₂) G², W ← W − η (M / c₁) / (√(V / c₂) + ε).

        W (*n), G (*n), M (*n), V (*n), rate (), c1 (), c2 () -> W (*n), M (*n), V (*n)
        """
        raise NotImplementedError

    def general_adam_update(
        self,
        W: Array,
        G: Array,
        M: Array,
        V: Array,
        rate: float,
        c1: float,
        c2: float,
        beta1: float,
        beta2: float,
        epsilon: float,
    ) -> tuple[Array, Array, Array]:
        """M ← β₁ M + (1 − β₁) G, V ← β₂ V + (1 − β₂) G², W ← W − η (M / c₁) / (√(V / c₂) + ε).

        W (*n), G (*n), M (*n), V (*n), rate (), c1 (), c2 (), beta1 (), beta2 (), epsilon () -> W (*n), M (*n), V (*n)
        """
        raise NotImplementedError

    def rmsprop_update(
        self, W: Array, G: Array, V: Array, rate: float, beta: float, epsilon: float
    ) -> tuple[Array, Array]:
        """V ← β V + (1 − β) G², W ← W − η G / (√V + ε).

        W (*n), G (*n), V (*n), rate (), beta (), epsilon () -> W (*n), V (*n)
        """
        raise NotImplementedError

    def adagrad_update(self, W: Array, G: Array, V: Array, rate: float, epsilon: float) -> tuple[Array, Array]:
        """V ← V + G², W ← W − η G / (√V + ε).

        W (*n), G (*n), V (*n), rate (), epsilon () -> W (*n), V (*n)
        """
        raise NotImplementedError

    def confusion_matrix(self, labels: Array, predictions: Array, classes: int) -> Array:
        """M[i, j] = number of samples with label i and prediction j.

        labels (n,) int, predictions (n,) int, classes () int -> M (classes, classes) int
        """
        raise NotImplementedError

    def precision(self, M: Array) -> Array:
        """(5) P[j] = TP / (TP + FP) = M[j, j] / Σ_i M[i, j].

        M (classes, classes) int -> P (classes,)
        """
        raise NotImplementedError

    def recall(self, M: Array) -> Array:
        """(6) R[i] = TP / (TP + FN) = M[i, i] / Σ_j M[i, j].

        M (classes, classes) int -> R (classes,)
        """
        raise NotImplementedError

    def f1(self, M: Array) -> Array:
        """(7) F[i] = 2 TP / (2 TP + FP + FN) = 2 P R / (P + R).

        M (classes, classes) int -> F (classes,)
        """
        raise NotImplementedError
