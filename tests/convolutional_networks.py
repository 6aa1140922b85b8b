"""Convolutional networks for tests of their fused epochs: architectures, data, and PyTorch's gradient."""

import numpy as np

from nncourse.architecture import ConvolutionalArchitecture, Filters

CROSS = "categorical_cross_entropy"


def architecture(image, convolutions, pool, sizes, activations, cost="mse"):
    """Convolutions as numbers: filters, k, stride, before, after; the last three are 1, 0 and 0 unless given."""
    filters = tuple(Filters(*numbers) for numbers in convolutions)
    return ConvolutionalArchitecture(image, filters, pool, sizes, tuple(activations.split()), cost)


SAME_2, SAME_3 = (1, 0, 1), (1, 1, 1)
DIGITS = architecture((1, 28, 28), [(4, 2, *SAME_2), (4, 2, *SAME_2)], 4, (128, 10), "relu relu relu softmax", CROSS)
NETWORKS = (
    architecture((1, 8, 9), [(4, 2, *SAME_2), (3, 2, *SAME_2)], 4, (6, 3), "tanh relu relu softmax", CROSS),
    architecture((2, 7, 6), [(5, 3, *SAME_3), (2, 4, 2, 2, 1)], 0, (4,), "sigmoid softplus sigmoid"),
    architecture((3, 6, 6), [(3, 3)], 2, (5, 2), "leaky_relu tanh identity", "mae"),
    architecture((2, 4, 3), [], 0, (4, 1), "tanh sigmoid", "binary_cross_entropy"),
    architecture((2, 5, 4), [], 2, (3,), "tanh"),
)


def example(network, n, seed=0):
    """Parameters, X, Y; one class a sample."""
    rng = np.random.default_rng(seed)
    n_out = network.sizes[-1]
    labels = rng.integers(0, max(2, n_out), n)
    Y = labels[:, None] if n_out == 1 else np.eye(n_out)[labels]
    parameters = 0.4 * rng.standard_normal(network.contract_sizes["p"], dtype=np.float32)
    return parameters, rng.standard_normal((n, *network.image), dtype=np.float32), Y.astype(np.float32)


def takes_the_first_of_equals(kernel, reference, **options) -> bool:
    """Whether an SGD kernel is right where pixels of a window are equal, but not what the filter saw."""
    network = architecture((1, 6, 8), [(2, 2, *SAME_2)], 4, (3,), "identity identity")
    rng = np.random.default_rng(1)
    parameters = rng.integers(-2, 3, network.contract_sizes["p"]).astype(np.float32)
    X, Y = rng.integers(0, 3, (6, 1, 6, 8)).astype(np.float32), np.zeros((6, 3), np.float32)
    expected = reference(parameters.astype(float), network, X.astype(float), Y.astype(float), 6, 0.125)
    kernel(parameters, network, X, Y, 6, 0.125, **options)
    return np.allclose(parameters, expected, rtol=1e-6, atol=1e-6)


def gradient_by_pytorch(torch, network, parameters, X, Y):
    """The gradient of the mean cost of a batch, flat, in float64."""
    functions = torch.nn.functional
    activations = {
        "identity": lambda z: z,
        "softmax": lambda z: torch.softmax(z, 1),
        "leaky_relu": lambda z: functions.leaky_relu(z, 0.01),
        "softplus": functions.softplus,
    }
    parameters, A, Y = (torch.tensor(array, dtype=torch.float64) for array in (parameters, X, Y))
    parameters.requires_grad_()
    pairs, names, count = network.views(parameters), network.activations, len(network.convolutions)
    for layer, ((W, b), name) in enumerate(zip(pairs, names, strict=True)):
        if layer == count:
            A = functions.max_pool2d(A, network.pool) if network.pool else A
            A = A.flatten(1)
        if layer < count:
            f = network.convolutions[layer]
            Z = functions.conv2d(functions.pad(A, (f.before, f.after) * 2), W, b, f.stride)
        else:
            Z = A @ W.T + b
        A = activations[name](Z) if name in activations else getattr(torch, name)(Z)
    costs = {
        "mse": lambda: ((A - Y) ** 2).sum() / 2,
        "mae": lambda: (A - Y).abs().sum(),
        "binary_cross_entropy": lambda: functions.binary_cross_entropy_with_logits(Z, Y, reduction="sum"),
        CROSS: lambda: functions.cross_entropy(Z, Y, reduction="sum"),
    }
    (costs[network.cost]() / len(Y)).backward()
    return parameters.grad.numpy()
