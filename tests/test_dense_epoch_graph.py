"""The kernels `fused` and `graph` of dense_sgd_epoch: sizes that check() does not reach, recordings, and mistakes."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fused_epochs import example, gpu_array, graph_kernel, mistakes, on_streams_in_turn, rejected, steps
from refusals import refused

from cuda_on_cpu import nvrtc
from cuda_on_cpu.nvrtc import compile_check
from nnclassroom.judge.check import check
from nncourse.architecture import DenseArchitecture
from nncourse.epochs import dense_graph, gradient_cpu
from nncourse.epochs.dense import KNOWN, dense_sgd_epoch
from tests.tiers import many

BOTH = ("fused", "graph")
FEW_STEPS = 3  # in a recording, where a test makes them short
NETWORKS = [
    DenseArchitecture((30, 60, 10, 1), ("sigmoid", "sigmoid", "sigmoid"), "mse"),
    DenseArchitecture((7, 5, 4), ("relu", "softmax"), "categorical_cross_entropy"),
    DenseArchitecture((6, 9, 7, 40), ("softplus", "leaky_relu", "softmax"), "mae"),
    DenseArchitecture((4, 2), ("tanh",), "mse"),
    # More than one tile in each direction.
    DenseArchitecture((600, 140, 3), ("tanh", "sigmoid"), "binary_cross_entropy"),
]
networks = pytest.mark.parametrize("architecture", NETWORKS, ids=str)
needs_nvrtc = pytest.mark.skipif(nvrtc.why_no_nvrtc() is not None, reason=str(nvrtc.why_no_nvrtc()))


@pytest.fixture
def short_recordings(gpu, monkeypatch):
    monkeypatch.setattr(dense_graph, "MOST_STEPS", FEW_STEPS)


def trained(kernel, architecture, arrays, batch, rates=(0.1,), to_device=np.copy):
    """The parameters after an epoch at each of these rates."""
    parameters, X, Y = map(to_device, arrays)
    epoch = steps if kernel == "steps" else dense_sgd_epoch[kernel]
    for rate in rates:
        assert epoch(parameters, architecture, X, Y, batch, rate) is parameters
    return parameters if to_device is np.copy else parameters.get()


def close(parameters, expected):
    np.testing.assert_allclose(parameters, expected, rtol=1e-4, atol=2e-6)


# ---- right, here and on the GPU


def test_large_products_are_right_on_small_cases(emulator, monkeypatch):
    monkeypatch.setattr(dense_graph, "LARGE", 0)
    verdict = check(dense_sgd_epoch, "fused", device="emulator")
    assert verdict, str(verdict)


@networks
@pytest.mark.parametrize(("n", "batch"), [(25, 10), (6, 9)])
def test_steps_are_those_of_the_separate_operations(architecture, n, batch, emulator):
    arrays = example(architecture, n)
    expected = trained("steps", architecture, arrays, batch, rates=(0.1, 0.2))
    assert abs(expected - arrays[0]).max() > 1e-4
    close(trained("fused", architecture, arrays, batch, rates=(0.1, 0.2)), expected)


@networks
@pytest.mark.parametrize(("n", "batch"), [(12, 2), (23, 2), (90, 10), (6, 9), (300, 257)])
@pytest.mark.parametrize("large", [0, dense_graph.LARGE])
def test_steps_are_those_of_the_separate_operations_on_the_gpu(
    architecture, n, batch, large, short_recordings, monkeypatch
):
    monkeypatch.setattr(dense_graph, "LARGE", large)
    dense_graph.recording.cache_clear()
    arrays = example(architecture, n)
    rates = (0.1, 0.1, 0.2, 0.1)
    expected = trained("steps", architecture, arrays, batch, rates)
    fused, graph = (trained(kernel, architecture, arrays, batch, rates, gpu_array) for kernel in BOTH)
    close(fused, expected)
    np.testing.assert_array_equal(graph, fused)  # a graph is only a way to launch


@pytest.mark.parametrize("kernel", BOTH)
def test_data_may_be_a_view_and_no_samples_change_nothing(kernel, emulator):
    arrays = example(NETWORKS[0], 25)
    wide = np.repeat(arrays[1], 2, axis=1)
    result = dense_sgd_epoch[kernel](arrays[0].copy(), NETWORKS[0], wide[:, ::2], arrays[2], 10, 0.1)
    np.testing.assert_array_equal(result, trained(kernel, NETWORKS[0], arrays, 10))
    arrays = example(NETWORKS[0], 0)
    np.testing.assert_array_equal(trained(kernel, NETWORKS[0], arrays, 10), arrays[0])


@pytest.mark.parametrize("kernel", BOTH)
def test_what_does_not_fit_the_contract_is_refused_in_one_line(kernel):
    parameters, X, Y = example(NETWORKS[0], 20)
    wrong = [(parameters[:-1], X, Y), (parameters, X[:, :-1], Y), (parameters, X, Y[:-1])]
    for arrays in [*wrong, (parameters.astype(np.float64), X, Y), (parameters, X.astype(np.float64), Y)]:
        refused(dense_sgd_epoch[kernel], arrays[0], NETWORKS[0], *arrays[1:], 10, 0.1)


# ---- recordings


def test_another_type_is_refused_on_the_gpu_too(gpu):
    parameters, X, Y = map(gpu_array, example(NETWORKS[0], 20))
    said = refused(dense_sgd_epoch["graph"], parameters, NETWORKS[0], X.astype(np.float64), Y, 10, 0.1)
    assert "float64" in said


def test_a_recording_is_used_again_and_networks_may_take_turns(short_recordings):
    architecture, all_arrays = NETWORKS[0], [example(NETWORKS[0], n, seed) for n, seed in ((50, 1), (43, 2))]
    dense_graph.recording.cache_clear()
    there = [list(map(gpu_array, arrays)) for arrays in all_arrays]
    for _ in range(2):
        for parameters, X, Y in there:
            dense_sgd_epoch["graph"](parameters, architecture, X, Y, 10, 0.1)
    for (parameters, _, _), arrays in zip(there, all_arrays, strict=True):
        close(parameters.get(), trained("steps", architecture, arrays, 10, (0.1, 0.1)))
    used = dense_graph.recording.cache_info()
    assert (used.misses, used.hits) == (1, 3)


def test_a_recording_that_had_to_go_is_made_again(short_recordings):
    arrays, rates = example(NETWORKS[0], 30), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.1)
    close(trained("graph", NETWORKS[0], arrays, 10, rates, gpu_array), trained("steps", NETWORKS[0], arrays, 10, rates))


def test_streams_keep_their_order(short_recordings):
    arrays = example(NETWORKS[0], 90)
    expected = trained("steps", NETWORKS[0], arrays, 10)
    start, X, Y = map(gpu_array, arrays)
    for result in on_streams_in_turn(lambda: dense_sgd_epoch["graph"](start.copy(), NETWORKS[0], X, Y, 10, 0.1)):
        close(result, expected)


# ---- the text


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_86", "sm_90"])
@pytest.mark.parametrize("side", dense_graph.SOURCES)
def test_it_compiles_and_all_sums_lie_in_registers(side, arch):
    found = compile_check(dense_graph.SOURCES[side], arch)
    assert set(found) == {"forward", "forward_to_deltas", "softmax_to_deltas", "hidden_deltas", "update"}
    assert all(used.spill_bytes == 0 for used in found.values())


@pytest.mark.parametrize(
    ("file", "head"), [("mathematics.cu", "enum Activation {"), ("dense_plain.c", "enum activation {")]
)
def test_activations_have_the_numbers_of_the_texts(file, head):
    text = Path(dense_graph.__file__).with_name(file).read_text("utf-8")
    named = text.split(head)[1].split("}")[0].lower()
    assert tuple(name.strip() for name in named.split(",")) == KNOWN == tuple(gradient_cpu.ARRAYS)


# ---- check() rejects wrong kernels: each has one mistake in the text of dense_graph.cu or dense_graph.py

MISTAKES = mistakes("epochs/dense_graph")


kernel_with = partial(graph_kernel, dense_graph, dense_sgd_epoch, "fused")


def test_check_accepts_the_texts_without_a_mistake(emulator):
    verdict = check(dense_sgd_epoch, kernel_with(), device="emulator")
    assert verdict, str(verdict)


@pytest.mark.parametrize("mistake", many(MISTAKES, operation="dense_sgd_epoch"))
def test_check_rejects_a_wrong_kernel(mistake, emulator):
    rejected(dense_sgd_epoch, kernel_with(*MISTAKES[mistake]), device="emulator")
