"""For tests of fused epochs: networks, data, what is right (the separate operations, PyTorch), and wrong kernels."""

import tomllib
from pathlib import Path

import numpy as np

from fused_epochs.architecture import ConvolutionalArchitecture, Filters
from fused_epochs.convolutional import convolutional_sgd_epoch
from nnclassroom.judge.check import check
from nncourse import device
from nncourse.backend import choose
from nncourse.model.layers import Dense, StepPosition
from nncourse.model.network import Network
from nncourse.model.optimizers import SGD
from nncourse.model.plans import train_step_by_step

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


def mistakes(name) -> dict[str, tuple]:
    """Mistakes in a text, from tests/mutants/NAME.toml: their name → what stands there, what takes its place, …"""
    text = (Path(__file__).parent / "mutants" / f"{name}.toml").read_text("utf-8")
    return {mistake: tuple(found.values()) for mistake, found in tomllib.loads(text).items()}


def planted(files, right, wrong, folder):
    """Copies of these texts in the folder; in the one where `right` stands, once, `wrong` stands instead."""
    texts = {file.name: file.read_text("utf-8") for file in files}
    assert sum(text.count(right) for text in texts.values()) == 1
    for name, text in texts.items():
        (folder / name).write_text(text.replace(right, wrong), "utf-8")
    return tuple(folder / name for name in texts)


def example(network, n, seed=0):
    """Parameters, X, Y; one class a sample."""
    rng = np.random.default_rng(seed)
    shape, n_out = getattr(network, "image", network.sizes[:1]), network.sizes[-1]
    scale = np.float32(0.4 if len(shape) > 1 else shape[0] ** -0.5)
    labels = rng.integers(0, max(2, n_out), n)
    Y = labels[:, None] if n_out == 1 else np.eye(n_out)[labels]
    parameters = scale * rng.standard_normal(network.contract_sizes["p"], dtype=np.float32)
    return parameters, rng.standard_normal((n, *shape), dtype=np.float32), Y.astype(np.float32)


def steps(parameters, architecture, X, Y, batch, rate, backend=None):
    """dense_sgd_epoch by a backend's separate operations: a training step for each batch, in place."""
    backend = backend or choose("cuda" if device.on_gpu(parameters) else "numpy")
    pairs = zip(architecture.views(parameters), architecture.activations, strict=True)
    layers = [Dense(W, b, name) for (W, b), name in pairs]
    network = Network(layers, architecture.cost, flat_parameters=parameters)
    train_step_by_step(network, X, Y, batch, rate, backend, SGD(), StepPosition())
    return parameters


def takes_the_first_of_equals(kernel) -> bool:
    """Whether an SGD kernel is right where pixels of a window are equal, but not what the filter saw."""
    network = architecture((1, 6, 8), [(2, 2, *SAME_2)], 4, (3,), "identity identity")
    rng = np.random.default_rng(1)
    parameters = rng.integers(-2, 3, network.contract_sizes["p"]).astype(np.float32)
    X, Y = rng.integers(0, 3, (6, 1, 6, 8)).astype(np.float32), np.zeros((6, 3), np.float32)
    expected = convolutional_sgd_epoch.reference(
        parameters.astype(float), network, X.astype(float), Y.astype(float), 6, 0.125
    )
    kernel(parameters, network, X, Y, 6, 0.125)
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
    convolutions, pool = getattr(network, "convolutions", ()), getattr(network, "pool", 0)
    for layer, ((W, b), name) in enumerate(zip(network.views(parameters), network.activations, strict=True)):
        if layer == len(convolutions):
            A = (functions.max_pool2d(A, pool) if pool else A).flatten(1)
        if layer < len(convolutions):
            f = convolutions[layer]
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


# ---- on a GPU


def gpu_array(array):
    import cupy

    return cupy.asarray(array)


# ---- wrong kernels: a text with one mistake


REGISTERS = "@convolutional_", "@dense_", "@network_"


def names_in(text, file=""):
    """What a Python text defines, without the lines that would register its kernels; loops are not compiled."""
    names = {"__name__": "mutant", "__file__": file}
    exec("\n".join(line for line in text.splitlines() if not line.startswith(REGISTERS)), names)
    if "FUNCTIONS" in names:
        names["compiled"] = lambda: {function.__name__: function for function in names["FUNCTIONS"]}
    return names


def mutant(module, right="", wrong="", times=1):
    """What the module's text defines with `right`, which it must have so many times, replaced."""
    text = Path(module.__file__).read_text("utf-8")
    assert not right or text.count(right) == times, f"expected {right!r} {times}× in {module.__name__}"
    return names_in(text.replace(right, wrong) if right else text)


def rejected(operation, mutant, **options):
    """Found wrong, and not because it does not run."""
    verdict = check(operation, mutant, **options)
    assert not verdict and "compile" not in verdict.line and "raised" not in verdict.line, str(verdict)
