"""choose(): what it refuses, what it shows, and that a backend stays as it was chosen."""

import dataclasses
import inspect
import runpy
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import refusals

from nnclassroom.exercises.catalogue import find
from nncourse import backend as backends
from nncourse import device
from nncourse.backend import choose
from nncourse.calls import Calls
from nncourse.catalogue import operations
from nncourse.kernels.cost import mse
from nncourse.kernels.dense import dense_forward
from nncourse.kernels.operation import CudaKernel, Kernel
from nncourse.model.network import make_network, training_step

CPU = ("loops", "numpy", "numba")


refused = partial(refusals.refused, choose)


def assert_said(backend, *words):
    """The representation says so of dense_forward."""
    (line,) = (line for line in repr(backend).splitlines() if line.split()[0] == "dense_forward")
    assert all(word in line for word in words)


@pytest.mark.parametrize("name", CPU)
def test_a_backend_has_one_kernel_for_each_operation(name):
    backend = choose(name)
    assert (backend.name, backend.device) == (name, "cpu")
    assert list(backend.kernels) == [*operations()]
    for operation, kernel in backend.kernels.items():
        assert kernel.operation.name == operation
        assert kernel.device == "cpu"
        assert kernel.name == name or "borrowed" in backend.notes[operation]


def test_overrides_choose_a_kernel_and_it_is_said():
    backend = choose("numpy", dense_forward="loops")
    assert backend.kernels["dense_forward"] is dense_forward["loops"]
    assert backend.dense_forward is dense_forward["loops"].function
    assert backend.kernels["sigmoid"].name == "numpy"
    assert dict(backend.notes) == {"dense_forward": "asked for"}
    assert_said(backend, "loops", "asked for")


@pytest.mark.parametrize("name", ("", "Numpy", "tiled", "gpu", "torch", None))
def test_unknown_backends_are_refused_with_the_list_of_those_there_are(name):
    message = refused(name)
    assert all(word in message for word in ("loops", "numpy", "numba", "cupy", "cuda"))


def test_unknown_operations_and_kernels_are_refused_with_the_list_of_those_there_are():
    message = refused("numpy", dense_froward="numpy")
    assert "dense_forward" in message and "dense_froward" in message
    message = refused("numpy", dense_forward="fast")
    assert "'fast'" in message and all(kernel in message for kernel in dense_forward.kernels)
    assert "dense_forward" in refusals.refused(find, "dense")
    assert find("dense_forward") is dense_forward


@pytest.mark.parametrize("kernel", ("cupy", "tiled"))
def test_devices_are_not_mixed(kernel):
    message = refused("numpy", dense_forward=kernel)
    assert "dense_forward" in message and kernel in message
    assert "loops, numpy, numba" in message
    assert "tiled" not in message.split("got")[0]


def test_a_kernel_of_the_cpu_is_not_mixed_into_a_gpu_backend():
    assert "naive" in refused("cuda", emulate=True, dense_forward="numpy")
    refused("cuda", emulate=True, dense_forward="cupy")
    for name in (*CPU, "cupy"):
        refused(name, emulate=True)


@pytest.mark.parametrize("name", ("cupy", "cuda"))
def test_gpu_backends_need_a_gpu(name, monkeypatch):
    monkeypatch.setattr(device, "gpu_available", lambda: False)
    message = refused(name)
    assert "GPU" in message and "numpy" in message


def test_borrowed_kernels_are_shown(monkeypatch):
    kernels = {name: kernel for name, kernel in dense_forward.kernels.items() if name != "numba"}
    monkeypatch.setattr(dense_forward, "kernels", kernels)
    backend = choose("numba")
    assert backend.kernels["dense_forward"] is dense_forward["numpy"]
    assert backend.kernels["sigmoid"].name == "numba"
    assert_said(backend, "numpy", "borrowed")


def test_the_cuda_backend_takes_only_kernels_that_repeat_themselves(monkeypatch):
    last = dict(sorted(mse.kernels.items(), key=lambda item: item[0] == "atomic"))
    monkeypatch.setattr(mse, "kernels", last)  # as if the one with float atomics were the fastest
    backend = choose("cuda", emulate=True)
    assert backend.device == "cpu" and "emulated" in backend.name
    assert not backend.fusable
    assert all(kernel.cuda and kernel.deterministic for kernel in backend.kernels.values())
    assert backend.kernels["mse"].name != "atomic"
    assert choose("cuda", emulate=True, mse="atomic").kernels["mse"].name == "atomic"


def test_a_backend_is_immutable():
    backend = choose("numpy")
    for name in ("name", "dense_forward"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(backend, name, None)
    for mapping in (backend.kernels, backend.notes):
        with pytest.raises(TypeError):
            mapping["dense_forward"] = None
    assert choose("numpy", dense_forward="loops") != backend
    assert choose("numpy").kernels == backend.kernels


@pytest.mark.parametrize("name", CPU)
def test_repr_names_every_operation_its_kernel_and_where_it_is_written(name):
    lines = [line.split() for line in repr(choose(name)).splitlines()[1:]]
    assert [line[0] for line in lines] == [*operations()]
    for operation, kernel, where, *_ in lines:
        assert kernel in find(operation).kernels
        file, _, number = where.partition(":")
        assert (backends.__file__.removesuffix("backend.py") + file) and int(number) > 0


@pytest.mark.parametrize("name", ("cupy", "cuda"))
def test_backends_of_the_gpu(gpu, name, rng):
    backend = choose(name)
    assert backend.device == "gpu"
    assert {kernel.device for kernel in backend.kernels.values()} == {"gpu"}
    A, W, b = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 3), (2, 3), (2,)))
    Z = backend.dense_forward(*map(backend.to_device, (A, W, b)))
    assert device.on_gpu(Z)
    np.testing.assert_allclose(Z.get(), A @ W.T + b, rtol=1e-5, atol=1e-6)
    assert "loops, numpy, numba" not in refused(name, dense_forward="numpy").split("got")[0]


# ---- kernels themselves, kernels that are missing, names of before


def test_a_kernel_itself_may_be_asked_for():
    own = Kernel(dense_forward, "mine", "cpu", "here:1", lambda A, W, b: A @ W.T + 7)
    backend = choose("numpy", dense_forward=own)
    assert backend.kernels["dense_forward"] is own and backend.notes["dense_forward"] == "asked for"
    assert not backend.fusable  # else it would not be used
    assert backend.dense_forward(np.ones((1, 2)), np.ones((1, 2)), None) == [[9]]
    assert "mine" in repr(backend) and "here:1" in repr(backend)


@pytest.mark.parametrize("chosen", (mse["numpy"], mse["naive" if "naive" in mse.kernels else "tree"], None, 3, np.dot))
def test_what_is_no_kernel_of_the_operation_is_refused(chosen):
    assert "dense_forward" in refused("numpy", dense_forward=chosen)


def test_a_kernel_for_another_device_is_refused():
    own = Kernel(dense_forward, "mine", "gpu", "here:1", lambda A, W, b: A)
    assert "mine" in refused("numpy", dense_forward=own)
    assert "mine" in refused("cuda", emulate=True, dense_forward=own)


def test_an_operation_without_a_cuda_kernel_is_borrowed_by_the_emulated_backend(monkeypatch, emulator):
    left = {name: kernel for name, kernel in dense_forward.kernels.items() if not isinstance(kernel, CudaKernel)}
    monkeypatch.setattr(dense_forward, "kernels", left)
    backend = choose("cuda", emulate=True)
    assert backend.kernels["dense_forward"] is dense_forward["numpy"]
    assert [name for name, note in backend.notes.items() if "borrowed" in note] == ["dense_forward"]
    assert_said(backend, "numpy", "borrowed")
    one, other = make_network([2, 3, 1]), make_network([2, 3, 1])
    X, Y = np.ones((4, 2), np.float32), np.zeros((4, 1), np.float32)
    training_step(one, X, Y, 0.5, backend)
    training_step(other, X, Y, 0.5, choose("numpy"))
    np.testing.assert_allclose(one.flat_parameters, other.flat_parameters, rtol=1e-5, atol=1e-6)
    assert not np.allclose(one.flat_parameters, make_network([2, 3, 1]).flat_parameters)


def test_the_calls_of_a_backend_are_those_of_the_contracts():
    tool = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "calls.py"))
    assert tool["FILE"].read_text("utf-8") == tool["text"](), "run python tools/calls.py"
    assert tool["INDEX"].read_text("utf-8") == tool["index"](), "run python tools/calls.py"
    for operation in operations().values():
        declared = inspect.signature(getattr(Calls, operation.name))
        assert tuple(declared.parameters)[1:] == operation.names
        with pytest.raises(NotImplementedError):
            getattr(Calls, operation.name)(*[None] * (1 + len(operation.names)))
