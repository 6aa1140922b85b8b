"""The kernels `fused` and `graph` of convolutional epochs: twenty steps, recordings, what is refused, and mistakes."""

import numpy as np
import pytest
from fused_epochs import (
    DIGITS,
    NETWORKS,
    architecture,
    example,
    gpu_array,
    graph_kernel,
    mistakes,
    on_streams_in_turn,
    rejected,
    takes_the_first_of_equals,
)
from refusals import refused

from cuda_on_cpu import nvrtc
from cuda_on_cpu.nvrtc import compile_check
from nnclassroom.judge.check import check
from nncourse.calls import ADAM
from nncourse.epochs import convolutional_graph
from nncourse.epochs.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch
from nncourse.epochs.convolutional_graph import recording
from tests.tiers import many

BOTH = ("fused", "graph")
FEW_STEPS = 3  # in a recording, where a test makes them short
networks = pytest.mark.parametrize("network", NETWORKS, ids=str)
needs_nvrtc = pytest.mark.skipif(nvrtc.why_no_nvrtc() is not None, reason=str(nvrtc.why_no_nvrtc()))


@pytest.fixture
def short_recordings(gpu, monkeypatch):
    monkeypatch.setattr(convolutional_graph, "MOST_STEPS", FEW_STEPS)
    recording.cache_clear()


def trained(kernel, network, arrays, batch, rates=(0.01,), adam=True, to_device=np.copy):
    """Parameters, and Adam's M and V, which begin at 0, after an epoch at each of these rates."""
    parameters, X, Y = map(to_device, arrays)
    state = [to_device(np.zeros_like(arrays[0])) for _ in range(2 * adam)]
    for number, rate in enumerate(rates):
        if adam:
            steps = number * -(-len(X) // batch)
            convolutional_adam_epoch[kernel](parameters, *state, network, X, Y, batch, rate, steps, *ADAM.values())
        else:
            convolutional_sgd_epoch[kernel](parameters, network, X, Y, batch, rate)
    return [array if to_device is np.copy else array.get() for array in (parameters, *state)]


def reference_of(network, arrays, batch, rates=(0.01,), adam=True):
    parameters, X, Y = (array.astype(np.float64) for array in arrays)
    state = 0 * parameters, 0 * parameters
    for number, rate in enumerate(rates):
        if adam:
            steps = number * -(-len(X) // batch)
            given = network, X, Y, batch, rate, steps, *ADAM.values()
            parameters, *state = convolutional_adam_epoch.reference(parameters, *state, *given)
        else:
            parameters = convolutional_sgd_epoch.reference(parameters, network, X, Y, batch, rate)
    return parameters


# ---- right, here and on the GPU


@networks
@pytest.mark.parametrize("adam", [False, True], ids=["SGD", "Adam"])
def test_twenty_steps_are_those_of_the_reference(network, adam, emulator):
    arrays = example(network, 39)
    found = trained("fused", network, arrays, 4, (0.01, 0.02), adam)[0]
    reference = reference_of(network, arrays, 4, (0.01, 0.02), adam)
    way = np.linalg.norm(reference - arrays[0])
    assert way > 0.02 and np.linalg.norm(found - reference) < 1e-4 * way


@pytest.mark.parametrize(("n", "batch"), [(12, 2), (23, 2), (90, 10), (6, 9), (300, 257)])
@pytest.mark.parametrize("adam", [False, True], ids=["SGD", "Adam"])
def test_graph_and_fused_are_right_on_the_gpu(n, batch, adam, short_recordings):
    network, rates = NETWORKS[0], (0.01, 0.01, 0.02, 0.01)
    arrays = example(network, n)
    fused, graph = (trained(kernel, network, arrays, batch, rates, adam, gpu_array) for kernel in BOTH)
    reference = reference_of(network, arrays, batch, rates, adam)
    way = np.linalg.norm(reference - arrays[0])
    assert way > 0.01 and np.linalg.norm(fused[0] - reference) < 1e-4 * way
    for one, other in zip(graph, fused, strict=True):
        np.testing.assert_array_equal(one, other)  # a graph is only a way to launch


def test_the_digits_network_is_right_on_the_gpu_and_the_same_each_time(gpu):
    arrays = example(DIGITS, 21 * 32 + 16)
    once, again = (trained("graph", DIGITS, arrays, 32, (0.001,), True, gpu_array) for _ in range(2))
    reference = reference_of(DIGITS, arrays, 32, (0.001,))
    assert np.linalg.norm(once[0] - reference) < 1e-3 * np.linalg.norm(reference - arrays[0])
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_of_equal_pixels_the_first_gets_the_delta(emulator):
    assert takes_the_first_of_equals(convolutional_sgd_epoch["fused"])


def test_images_of_more_pixels_than_threads_are_right(emulator, monkeypatch):
    monkeypatch.setattr(convolutional_graph, "MOST_THREADS", 32)
    network = architecture((2, 9, 8), [(5, 3, 1, 1, 1), (2, 2)], 2, (3,), "tanh tanh softmax", NETWORKS[0].cost)
    arrays = example(network, 5)
    found, reference = trained("fused", network, arrays, 3)[0], reference_of(network, arrays, 3)
    np.testing.assert_allclose(found, reference, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", BOTH)
def test_data_may_be_a_view_and_no_samples_change_nothing(kernel, emulator):
    network, (parameters, X, Y) = NETWORKS[1], example(NETWORKS[1], 7)
    wide = np.repeat(X, 2, axis=3)
    result = convolutional_sgd_epoch[kernel](parameters.copy(), network, wide[:, :, :, ::2], Y, 3, 0.05)
    np.testing.assert_array_equal(result, trained(kernel, network, (parameters, X, Y), 3, (0.05,), False)[0])
    nothing = trained(kernel, network, (parameters, X[:0], Y[:0]), 3)
    np.testing.assert_array_equal(nothing[0], parameters)


@pytest.mark.parametrize("kernel", BOTH)
def test_what_does_not_fit_the_contract_is_refused_in_one_line(kernel):
    parameters, X, Y = example(NETWORKS[0], 20)
    wrong = [(parameters[:-1], X, Y), (parameters, X[:, :, :-1], Y), (parameters, X, Y[:-1])]
    for arrays in [*wrong, (parameters.astype(np.float64), X, Y), (parameters, X.astype(np.float64), Y)]:
        refused(convolutional_sgd_epoch[kernel], arrays[0], NETWORKS[0], *arrays[1:], 10, 0.1)


# ---- recordings


def test_a_recording_is_for_all_rates_and_networks_may_take_turns(short_recordings):
    for adam in (True, False):
        arrays = example(NETWORKS[0], 50)
        trained("graph", NETWORKS[0], arrays, 10, (0.1, 0.2, 0.3), adam, gpu_array)
    used = recording.cache_info()
    assert (used.misses, used.hits) == (2, 4)


def test_streams_keep_their_order(short_recordings):
    arrays = example(NETWORKS[0], 90)
    expected = trained("fused", NETWORKS[0], arrays, 10, to_device=gpu_array)[0]
    start, X, Y = map(gpu_array, arrays)

    def epoch():
        state = start.copy(), 0 * start, 0 * start
        return convolutional_adam_epoch["graph"](*state, NETWORKS[0], X, Y, 10, 0.01, 0, *ADAM.values())[0]

    for result in on_streams_in_turn(epoch):
        np.testing.assert_array_equal(result, expected)


# ---- the text


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_it_compiles_and_everything_lies_in_registers(arch):
    found = compile_check(convolutional_graph.SOURCES[2], arch)
    assert {"images_forward", "images_backward", "update_all"} <= set(found)
    assert all(used.spill_bytes == 0 for used in found.values())


# ---- check() rejects wrong kernels: each has one mistake in the text of convolutional_graph.cu or .py

MISTAKES = mistakes("epochs/convolutional_graph")


def kernel_with(right="", wrong="", name="adam_fused"):
    operation = convolutional_adam_epoch if name == "adam_fused" else convolutional_sgd_epoch
    return graph_kernel(convolutional_graph, operation, name, right, wrong)


def test_check_accepts_the_texts_without_a_mistake(emulator):
    for name in ("adam_fused", "sgd_fused"):
        kernel = kernel_with(name=name)
        verdict = check(kernel.operation, kernel, device="emulator")
        assert verdict, str(verdict)


def test_that_the_last_of_equal_pixels_would_be_noticed(emulator):
    kernel = kernel_with("if (map[there] > top)", "if (map[there] >= top)", "sgd_fused")
    assert not takes_the_first_of_equals(kernel)


@pytest.mark.parametrize("mistake", many(MISTAKES, operation="convolutional_sgd_epoch"))
def test_check_rejects_a_wrong_kernel(mistake, emulator):
    rejected(convolutional_adam_epoch, kernel_with(*MISTAKES[mistake]), device="emulator")
