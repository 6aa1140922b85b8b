"""Products by cuBLAS: right for any shape and place in memory, recorded, and taken by large networks alone.

NNCOURSE_REQUIRE_GPU=1 python -m pytest tests/test_cublas.py
"""

import numpy as np
import pytest

from nncourse import datasets
from nncourse.backend import Backend, choose
from nncourse.kernels.libraries import cublas
from nncourse.model import plans
from nncourse.model.network import make_network
from nncourse.model.optimizers import Adam
from nncourse.model.task import Task
from nncourse.model.training import train

SHAPES = [(1, 1, 1), (5, 7, 3), (64, 33, 65), (300, 128, 17), (1000, 9, 129)]  # rows, inputs, outputs


@pytest.fixture
def library(gpu):
    """Skip the test where cuBLAS is missing."""
    if said := cublas.missing():
        pytest.skip(said)


@pytest.mark.parametrize("offset", [0, 1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_the_references(library, rng, shape, offset):
    import cupy

    def there(*shape):  # from any number of a larger array on, as a network's parameters lie
        return cupy.asarray(rng.standard_normal(np.prod(shape) + offset), np.float32)[offset:].reshape(shape)

    rows, n_in, n_out = shape
    A, W, b, D, S = there(rows, n_in), there(n_out, n_in), there(n_out), there(rows, n_out), there(rows, n_in)
    for name, given in {"dense_forward": (A, W, b), "hidden_delta": (D, W, S), "weight_gradient": (D, A)}.items():
        kernel = cublas.KERNELS[name]
        exact = [each.get().astype(np.float64) for each in given]
        right, size = kernel.operation.reference(*exact), kernel.operation.reference(*map(abs, exact))
        outs = [{}, {"out": there(n_out, n_in)}] if kernel.takes_out else [{}]
        for out in outs:
            np.testing.assert_array_less(abs(kernel(*given, **out).get() - right), 1e-5 * size + 1e-30)
    np.testing.assert_allclose(
        cublas.KERNELS["hidden_delta"](D, W, None).get(),
        cublas.KERNELS["hidden_delta"](D, W, cupy.ones_like(S)).get(),
    )


def test_recorded_training_by_cublas_is_that_by_own_kernels_and_repeats(library, monkeypatch):
    data, found = datasets.sums(2, samples=512, unseen=8), []
    for plan, large in (("operations", plans.LARGE), ("recorded", 1 << 60), ("recorded", 0), ("recorded", 0)):
        monkeypatch.setattr(plans, "LARGE", large)
        network = make_network("tokens9x12,embed30,block3x50,layernorm,12", cost="token_cross_entropy")
        options = {"epochs": 3, "batch_size": 64, "optimizer": Adam(), "learning_rate": 0.001, "plan": plan}
        found.append(train(network, data.X, data.Y, choose("cuda"), **options).costs)
    own, recorded, *by_library = found
    assert recorded == own and by_library[0] == by_library[1]
    np.testing.assert_allclose(by_library[0], own, rtol=1e-4)


@pytest.mark.parametrize(("width", "fusable", "by_library"), [(512, True, True), (8, True, False), (512, False, False)])
def test_only_large_networks_with_the_courses_own_kernels_take_it(monkeypatch, width, fusable, by_library):
    monkeypatch.setattr(cublas, "missing", lambda: "")
    backend = Backend("cuda", "gpu", dict(choose("cuda", emulate=True).kernels), {}, fusable=fusable)
    empty = np.zeros((0, width), np.float32)
    task = Task(make_network([width, width, 2]), Adam(), backend, empty, empty, batch_size=64, rate=0.1)
    found, note = plans._with_large_products(task)
    assert bool(note) == by_library and (found is not task) == by_library
    assert (found.backend.kernels["dense_forward"].name == "cublas") == by_library
    assert found.backend.kernels["adam_update"] is backend.kernels["adam_update"]
