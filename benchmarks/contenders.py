"""The contenders and cases. A contender takes a case and returns a function, and the number of steps in one call of it.

All train the same network in the same way: sigmoid, mean squared error, stochastic gradient descent, float32, one batch
per step, data already on the device. (scikit-learn's classifier uses cross-entropy; the work per step is the same.)
"Fused" is the course's dense_sgd_epoch in one kernel; the course's other contenders call separate operations. "C" is
the plain C program of fused_epochs/dense_plain.c, the handout's base: in double with gcc -O3; "fast" with
-march=native -ffast-math.

On the CPU a step is repeated on one batch. On the GPU an epoch of different batches is trained: see trainers.py.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks import digits, trainers
from nncourse.errors import CourseError
from nnexperiment.trainers import jax_training, pytorch_training


@dataclass(frozen=True)
class Case:
    """Training a network in batches from `samples` samples or, if `operation` is given, a single dense_forward.

    `words` describe a convolutional network, `sizes` a dense one.
    """

    name: str
    sizes: tuple[int, ...]
    batch: int
    operation: str = ""
    samples: int = 0
    words: str = ""

    def smaller(self) -> "Case":
        """The same case with few samples, to test that everything runs."""
        return replace(self, samples=min(self.samples, 100 * self.batch + self.samples % self.batch))


def _by_name(*cases: Case) -> dict[str, Case]:
    return {case.name: case for case in cases}


CASES = {
    "cpu": _by_name(
        Case("step 30-60-10-1, batch 10", (30, 60, 10, 1), 10),
        Case("step 784-30-10, batch 10", (784, 30, 10), 10),
        Case("step 784-192-10, batch 50", (784, 192, 10), 50),
        Case(f"step {digits.NAME}, batch 32", (), 32, samples=32 * 50, words=digits.WORDS),
        Case("dense_forward 784 to 192, batch 50", (784, 192), 50, "dense_forward"),
        Case("dense_forward 1024 to 1024, batch 1024", (1024, 1024), 1024, "dense_forward"),
    ),
    "gpu": _by_name(
        Case("30-60-10-1, batch 10", (30, 60, 10, 1), 10, samples=50_000),
        Case("784-30-10, batch 10", (784, 30, 10), 10, samples=50_000),
        Case("784-192-10, batch 50", (784, 192, 10), 50, samples=50_000),
    ),
    "base": _by_name(
        Case("30-60-10-1, batch 10", (30, 60, 10, 1), 10, samples=50_000),
        Case("784-30-10, batch 10", (784, 30, 10), 10, samples=50_000),
        Case("784-192-10, batch 50", (784, 192, 10), 50, samples=50_000),
    ),
    "digits": _by_name(Case(f"{digits.NAME}, batch 32", (), 32, samples=50_000, words=digits.WORDS)),
}


def too_slow(case: str, contender: str) -> bool:
    """Whether a contender is left out because a billion multiplications in Python loops take minutes."""
    return contender == "nncourse loops" and any(size in case for size in ("784", "1024", digits.NAME))


def data(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """A batch of random samples and one-hot targets (0 or 1 for one output)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((case.batch, case.sizes[0]), dtype=np.float32)
    labels = rng.integers(0, max(2, case.sizes[-1]), case.batch)
    Y = labels[:, None] if case.sizes[-1] == 1 else np.eye(case.sizes[-1])[labels]
    return X, Y.astype(np.float32)


def epoch(case: Case, steps: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """The batch of data(case), repeated `steps` times."""
    X, Y = (np.tile(array, (steps, 1)) for array in data(case))
    return X, Y


def ours(backend_name: str, **overrides: str) -> Callable:
    """The package, with the separate kernels of one backend."""

    def prepare(case: Case) -> tuple[Callable, int]:
        from nncourse.backend import choose
        from nncourse.model.network import make_network, training_step

        backend = choose(backend_name, **overrides)
        network = make_network(case.sizes).on(backend)
        X, Y = map(backend.to_device, data(case))
        if case.operation:
            layer = network.layers[0]
            return lambda: backend.dense_forward(X, layer.W, layer.b), 1
        return lambda: training_step(network, X, Y, 0.1, backend), 1

    return prepare


def fused(kernel: str) -> Callable:
    """The package's dense_sgd_epoch in one kernel of the CPU: an epoch of many batches in one call."""

    def prepare(case: Case) -> tuple[Callable, int]:
        from nncourse.catalogue import find
        from nncourse.kernels.dense_epoch import DenseArchitecture
        from nncourse.model.network import make_network

        if case.operation or case.words:
            raise ValueError(f"dense_sgd_epoch has no {'convolution' if case.words else 'dense layer on its own'}")
        network, (X, Y) = make_network(case.sizes), epoch(case)
        chosen = find("dense_sgd_epoch")[kernel]
        if missing := chosen.missing():
            raise CourseError(f"{kernel} cannot be used here: {missing}")
        arguments = (network.flat_parameters, DenseArchitecture.of(network), X, Y, case.batch, 0.1)
        return lambda: chosen(*arguments), len(X) // case.batch

    return prepare


def pytorch_eager(case: Case) -> tuple[Callable, int]:
    """PyTorch as its tutorials use it: modules, autograd, an optimiser, no compilation."""
    import torch

    torch.set_num_threads(1)
    if case.operation:
        layer, (X, _) = torch.nn.Linear(*case.sizes), data(case)
        samples, weights, bias = torch.from_numpy(X), layer.weight.detach(), layer.bias.detach()
        return lambda: torch.nn.functional.linear(samples, weights, bias), 1
    trainer = pytorch_training.eager("cpu")(trainers.problem_of(replace(case, samples=case.batch)))
    return lambda: trainer.train(1), 1


def scikit_learn(case: Case) -> tuple[Callable, int]:
    """MLPClassifier.fit on an epoch of many batches, so that the cost of its checks is shared among them."""
    import warnings

    from sklearn.neural_network import MLPClassifier

    if case.operation or case.words:
        raise ValueError(f"scikit-learn has no {'convolution' if case.words else 'dense layer on its own'}")
    warnings.simplefilter("ignore")  # it warns that one epoch is not enough
    X, Y = epoch(case)
    labels = Y.argmax(axis=1) if Y.shape[1] > 1 else Y[:, 0].astype(int)
    network = MLPClassifier(
        case.sizes[1:-1],
        activation="logistic",
        solver="sgd",
        batch_size=case.batch,
        momentum=0,
        alpha=0,
        max_iter=1,
        warm_start=True,
    )
    return lambda: network.fit(X, labels), len(X) // case.batch


def either(dense: Callable, images: dict[str, Callable]) -> Callable:
    """A contender for both kinds of networks. The forms of that for images are checked, and take an epoch's steps."""
    checked = digits.contender(images, with_accuracy=False)
    return lambda case: (checked if case.words else dense)(case)


C = {"C": "c", "C, float": "c_float", "C, fast": "c_fast", "C, float, fast": "c_float_fast"}  # kernels
FIRST, LAST = "channels first", "channels last"
CPU = {
    "nncourse loops": ours("loops"),
    **{name: fused(kernel) for name, kernel in C.items()},
    "nncourse numpy": either(ours("numpy"), {"": trainers.ours("numpy", "steps")}),
    "nncourse numba": either(ours("numba"), {"": trainers.ours("numba", "steps")}),
    "nncourse numpy, fused": either(fused("numpy"), {"": trainers.ours("numpy", "numpy")}),
    "nncourse numba, fused": either(fused("numba"), {"": trainers.ours("numba", "numba")}),
    "PyTorch eager": either(
        pytorch_eager, {form: pytorch_training.eager("cpu", form == LAST) for form in (FIRST, LAST)}
    ),
    "scikit-learn": scikit_learn,
}
GPU = {
    "nncourse steps": trainers.checked(trainers.ours("cuda", "steps"), steps=200),
    "nncourse one_kernel": trainers.checked(trainers.ours("cuda", "one_kernel")),
    "PyTorch eager": trainers.checked(pytorch_training.eager("cuda"), steps=200),
    "PyTorch graph": trainers.checked(pytorch_training.graph(pytorch_training.eager_step)),
    "PyTorch compile + graph": trainers.checked(pytorch_training.graph(pytorch_training.compiled_update_step)),
    "JAX scan": trainers.checked(jax_training.scan("gpu")),
}
# The handout's base and what the course makes of it, on the CPU and on the GPU in one run.
BASE = {
    **{name: trainers.checked(trainers.ours("numpy", kernel), steps=200) for name, kernel in C.items()},
    "nncourse loops": trainers.checked(trainers.ours("loops", "steps"), steps=20),
    "nncourse numpy": trainers.checked(trainers.ours("numpy", "steps"), steps=200),
    "nncourse numba": trainers.checked(trainers.ours("numba", "steps"), steps=200),
    "nncourse numpy, fused": trainers.checked(trainers.ours("numpy", "numpy"), steps=200),
    "nncourse numba, fused": trainers.checked(trainers.ours("numba", "numba"), steps=200),
    "nncourse one_kernel, GPU": trainers.checked(trainers.ours("cuda", "one_kernel")),
}
DIGITS = {
    "nncourse steps": digits.contender({"": trainers.ours("cuda", "steps")}, steps=200),
    "nncourse one_kernel": digits.contender({"": trainers.ours("cuda", "one_kernel")}),
    "PyTorch eager": digits.contender(
        {form: pytorch_training.eager("cuda", form == LAST) for form in (FIRST, LAST)}, steps=200
    ),
    "PyTorch graph": digits.contender(
        {form: pytorch_training.graph(pytorch_training.eager_step, "cuda", form == LAST) for form in (FIRST, LAST)}
    ),
    "PyTorch compile + graph": digits.contender(
        {
            "PyTorch's Adam": pytorch_training.graph(pytorch_training.compiled_step),
            "Adam compiled": pytorch_training.graph(pytorch_training.compiled_update_step),
        }
    ),
    "JAX scan": digits.contender(
        {
            "reduce_window": jax_training.scan("gpu", jax_training.pooled_by_windows),
            "maximum of reshaped images": jax_training.scan("gpu", jax_training.pooled_by_shape),
        }
    ),
}
CONTENDERS = {"cpu": CPU, "gpu": GPU, "base": BASE, "digits": DIGITS}
