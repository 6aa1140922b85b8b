"""A new activation: backends and networks need only its two operations; fused epochs are not used for it."""

import math

import numpy as np
import pytest

from cuda_on_cpu import emulate
from cuda_on_cpu.text import CudaSource
from fused_epochs.dense import KNOWN
from nnclassroom.judge.check import check
from nncourse import calls
from nncourse.backend import choose
from nncourse.catalogue import find, operations
from nncourse.errors import CourseError
from nncourse.kernels import activations
from nncourse.model import files
from nncourse.model.network import make_network
from nncourse.model.training import train

TEXT = """
extern "C" __global__ void swish_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = z[i] / (1.0f + expf(-z[i]));
}
extern "C" __global__ void swish_derivative_naive(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float e = expf(-fabsf(z[i]));
    a[i] = 1.0f / (1.0f + expf(-z[i])) + z[i] * e / ((1.0f + e) * (1.0f + e));
}
"""


def slope(z):
    s = activations.sigmoid.reference(z)
    return s + z * s * (1 - s)


@pytest.fixture
def swish(monkeypatch):
    """The activation z σ(z), defined as those of activations.py are; `python tools/calls.py` writes the second list."""
    known, source = {}, CudaSource(TEXT, "swish.cu")
    for name, formula, reference in (
        ("swish", "a = z σ(z)", lambda z: z * activations.sigmoid.reference(z)),
        ("swish_derivative", "a = σ(z) + z σ(z) (1 − σ(z))", slope),
    ):
        known[name] = activations.elementwise(name, formula, reference, flops=5, source=source)
        monkeypatch.setattr(activations, name, known[name], raising=False)

    @activations.on_numbers(known["swish"])
    def swish_of(z):
        return z / (1 + math.exp(-z)) if z > -80 else z * math.exp(z)

    @known["swish"].array_kernel
    def swish_array(z):
        return z * (0.5 * np.tanh(0.5 * z) + 0.5)

    @activations.on_numbers(known["swish_derivative"])
    def swish_slope(z):
        s, e = 1 / (1 + math.exp(-z)) if z > -80 else math.exp(z), math.exp(-abs(z))
        return s + z * e / (1 + e) ** 2

    @known["swish_derivative"].array_kernel
    def swish_slope_array(z):
        e = np.exp(-np.abs(z))  # 1 − σ(z) itself would lose the digits of a large z
        return 0.5 * np.tanh(0.5 * z) + 0.5 + z * e / (1 + e) ** 2

    found = activations.activations_among(operations())
    assert found == {**calls.ACTIVATIONS, "swish": "number"}
    monkeypatch.setitem(calls.ACTIVATIONS, "swish", found["swish"])
    return known


def samples():
    rng = np.random.default_rng(3)
    return rng.standard_normal((12, 3), dtype=np.float32), np.eye(2, dtype=np.float32)[rng.integers(0, 2, 12)]


def trained(backend, **options):
    network, (X, Y) = make_network([3, 5, 2], "swish", seed=2), samples()
    return network, train(network, X, Y, backend, epochs=2, batch_size=5, learning_rate=0.5, **options)


@pytest.mark.parametrize("name", ["loops", "numpy", "numba", "cuda"])
def test_networks_with_it_are_trained_step_by_step_on_every_backend(swish, name):
    if name == "cuda" and emulate.why_not():
        pytest.skip(emulate.why_not())
    network, history = trained(choose(name, emulate=name == "cuda"))
    assert history.plan == "operations" and history.costs[1] < history.costs[0]
    wanted, _ = trained(choose("loops"))
    np.testing.assert_allclose(network.flat_parameters, wanted.flat_parameters, rtol=1e-4, atol=1e-6)
    if name in ("numpy", "numba"):  # the others have no kernel for fused epochs
        assert f"step by step: the kernels of epochs know the activations {', '.join(KNOWN)}; got swish" in history.note
        images, Y = np.ones((12, 1, 6, 6), np.float32), samples()[1]
        history = train(make_network("image1x6x6,conv2x3,pool2,4,2", "swish"), images, Y, choose(name), epochs=1)
        assert history.plan == "operations" and "got swish" in history.note


def test_a_kernel_of_whole_epochs_that_was_asked_for_says_what_it_knows(swish):
    for kernel in ("numpy", "numba", "c"):
        if find("dense_sgd_epoch")[kernel].missing():
            continue
        with pytest.raises(CourseError, match="know the activations identity, .*; got swish"):
            trained(choose("numpy"), plan=kernel)


def test_its_models_are_saved_and_its_kernels_checked(swish, tmp_path):
    network, _ = trained(choose("numpy"))
    files.save(files.Model(network), tmp_path / "swish.npz")
    assert files.load(tmp_path / "swish.npz").network.activations == ("swish", "sigmoid")
    for operation in swish.values():
        for kernel in ("loops", "numpy", "numba"):
            assert check(operation, kernel), str(check(operation, kernel))
