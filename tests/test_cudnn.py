"""The kernels `cudnn`: right where there is a GPU and the library; where it is missing, that is said in one line.

NNCOURSE_REQUIRE_GPU=1 python -m pytest tests/test_cudnn.py
"""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from nnclassroom import timing
from nnclassroom.judge import check
from nncourse import device
from nncourse.backend import choose
from nncourse.catalogue import operations
from nncourse.kernels.libraries import ALIGNED, cudnn

NAMES = ("forward", "weight_gradient", "input_gradient")
OPERATIONS = [operations()[f"convolution_{name}"] for name in NAMES]
# The digits CNN, and ResNet-34 with smaller batches: batch, c_in, h_in, w_in, c_out, k, stride, before, after.
NETWORKS = [
    (32, 1, 28, 28, 4, 2, 1, 0, 1),
    (32, 4, 28, 28, 4, 2, 1, 0, 1),
    (16, 1, 148, 197, 64, 7, 2, 3, 3),
    (16, 64, 37, 50, 64, 3, 1, 1, 1),
    (16, 64, 37, 50, 128, 3, 2, 1, 1),
    (16, 64, 37, 50, 128, 1, 2, 0, 0),
    (16, 128, 19, 25, 128, 3, 1, 1, 1),
    (16, 512, 5, 7, 512, 3, 1, 1, 1),
]


@pytest.fixture
def library(gpu):
    """Skip the test where cuDNN is not installed."""
    if said := cudnn.missing():
        pytest.skip(said)


@pytest.fixture
def nothing_installed(monkeypatch):
    """A GPU, but no nvidia-cudnn-frontend."""
    monkeypatch.setitem(sys.modules, "cudnn", None)
    monkeypatch.setattr(device, "why_no_gpu", lambda: "")
    cudnn.missing.cache_clear()
    yield
    cudnn.missing.cache_clear()


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_check_finds_cudnn_right(operation, library):
    verdict = check.check(operation, "cudnn")
    assert verdict, str(verdict)


@pytest.mark.parametrize("windows", NETWORKS, ids=lambda windows: "x".join(map(str, windows)))
def test_cudnn_agrees_with_pytorch_in_networks(windows, library):
    """Compared with PyTorch's in float64: a product in TF32 would be wrong by 100 times as much."""
    torch = pytest.importorskip("torch")
    import cupy

    names = ("batch", "c_in", "h_in", "w_in", "c_out", "k", "stride", "before", "after")
    sizes, (k, stride, before, after) = dict(zip(names, windows, strict=True)), windows[5:]
    A, W, b = check.random_case(OPERATIONS[0], sizes).arguments[:3]
    D = np.random.default_rng(1).standard_normal(cudnn.Windows(**sizes).deltas, np.float32)
    tensors = [torch.from_numpy(array).double().requires_grad_() for array in (A, W, b)]
    padded = torch.nn.functional.pad(tensors[0], (before, after, before, after))
    Z = torch.nn.functional.conv2d(padded, *tensors[1:], stride=stride)
    Z.backward(torch.from_numpy(D).double())
    A, W, b, D = map(cupy.asarray, (A, W, b, D))
    ours = (
        OPERATIONS[0]["cudnn"](A, W, b, stride, before, after),
        OPERATIONS[1]["cudnn"](D, A, k, stride, before, after) * len(A),
        OPERATIONS[2]["cudnn"](D, W, *A.shape[2:], stride, before, after),
    )
    theirs = Z, tensors[1].grad, tensors[0].grad
    for name, got, wanted in zip(NAMES, ours, theirs, strict=True):
        wanted = wanted.detach().numpy()
        error = np.abs(got.get() - wanted).max() / np.sqrt(np.mean(wanted**2))
        limit = cudnn.LARGEST_ERROR if cudnn.flops_of(cudnn.Windows(**sizes)) >= cudnn.LARGE else 2e-5
        assert error < limit, name


def test_cudnn_without_biases_adds_none(library, rng):
    import cupy

    A, W = (cupy.asarray(rng.normal(size=shape), np.float32) for shape in ((2, 3, 6, 5), (4, 3, 3, 3)))
    kernel = operations()["convolution_forward"]["cudnn"]
    assert kernel.optional == ("b",)
    there = kernel(A, W, cupy.zeros(4, np.float32), 1, 1, 1)
    assert (kernel(A, W, None, 1, 1, 1) == there).all()


def test_views_may_begin_at_any_number(library, rng):
    """As a slice of the samples does, and the filters in a network's vector of all parameters."""
    import cupy

    kernels = [operation["cudnn"] for operation in OPERATIONS]
    X = cupy.asarray(rng.normal(size=(4, 3, 74, 99)), np.float32)  # 8 bytes more than a multiple of 16 for an image
    flat = cupy.asarray(rng.normal(size=2 + 5 * 27), np.float32)
    A, W, b = X[1:], flat[2:].reshape(5, 3, 3, 3), flat[:5]
    D = cupy.asarray(rng.normal(size=(4, 5, 74, 99)), np.float32)[1:]
    assert all(array.data.ptr % ALIGNED for array in (A, W, D))
    calls = ((A, W, b, 1, 1, 1), (D, A, 3, 1, 1, 1), (D, W, 74, 99, 1, 1, 1))
    for kernel, arguments in zip(kernels, calls, strict=True):
        moved = [each.copy() if isinstance(each, cupy.ndarray) else each for each in arguments]
        assert (kernel(*arguments) == kernel(*moved)).all()


def test_cudnn_trains_in_a_backend(library):
    chosen = choose("cuda", convolution_forward="cudnn")
    assert chosen.kernels["convolution_forward"].name == "cudnn"


def test_a_second_process_takes_the_kept_plan_untimed(library, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    windows, times, plans_of = cudnn.Windows(16, 8, 30, 30, 8, 3, 1, 1, 1), [], cudnn.plans_of
    monkeypatch.setattr(cudnn, "plans_of", lambda offer: times.append(1) or plans_of(offer))

    def start(kind):
        cudnn.fastest.cache_clear()
        return cudnn.fastest(kind, windows, 0).name

    chosen = {kind: start(kind) for kind in NAMES}
    assert len(times) == 3
    assert {kind: start(kind) for kind in NAMES} == chosen and len(times) == 3
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.write_text("a plan that nothing offers")
    start("forward")
    assert len(times) == 4


def test_that_cudnn_is_missing_is_said_in_one_line(nothing_installed):
    said = cudnn.missing()
    assert "'.[cudnn1" in said and "\n" not in said
    kernel = OPERATIONS[0]["cudnn"]
    assert said in refused(choose, "cuda", convolution_forward="cudnn")
    assert said in refused(check.check, OPERATIONS[0], kernel)
    rows = timing.time_kernels(OPERATIONS[2], names=("cudnn",))
    assert [row.seconds for row in rows] == [None]
    line = str(timing.table(OPERATIONS[2], rows, {})).splitlines()[2]
    assert said in line and len(line) <= 80


def test_without_a_gpu_that_is_said_first(monkeypatch):
    monkeypatch.setattr(device, "why_no_gpu", lambda: "no GPU answers")
    assert "no GPU answers" in refused(check.check, OPERATIONS[0], "cudnn")


def test_extras_name_a_library_for_each_version_of_cuda():
    """The line that says what to install names extras that there are."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")
    extras = tomllib.loads(text)["project"]["optional-dependencies"]
    for version in ("12", "13"):
        assert any(line.startswith(f"nvidia-cudnn-cu{version}") for line in extras[f"cudnn{version}"])
        assert any(line.startswith("nvidia-cudnn-frontend") for line in extras[f"cudnn{version}"])
