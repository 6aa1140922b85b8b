"""Epochs of convolutional networks in one launch: other layouts than check() takes; what fits, and what is refused."""

from functools import partial

import numpy as np
import pytest
from epoch_networks import DIGITS, SAME_2, SAME_3, architecture
from refusals import refused

from cuda_on_cpu.nvrtc import compile_check, why_no_nvrtc
from fused_epochs.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch
from fused_epochs.convolutional_one_kernel import adam, layout, sgd, source
from fused_epochs.dense_one_kernel import Chip
from nnclassroom.judge import check
from nncourse import device
from nncourse.calls import ADAM
from nncourse.errors import DoesNotFitError

H200 = Chip(227 * 1024, 132, True)
SMALL = Chip(99 * 1024, 3, False)
network = partial(architecture, cost="categorical_cross_entropy")
THREE_AND_THREE = network(
    (2, 7, 6), [(3, 2, *SAME_2), (5, 3, *SAME_3), (2, 2)], 2, (9, 6, 3), "tanh sigmoid tanh tanh sigmoid softmax"
)
# Samples of a block, and blocks with no sample in the last batch, or in none.
CASES = {
    "three samples a block": (THREE_AND_THREE, SMALL, 13, 8),
    "a block a sample": (THREE_AND_THREE, H200, 7, 3),
    "more blocks than samples": (network((1, 4, 4), [(2, 3)], 0, (33, 2), "tanh tanh softmax"), H200, 5, 2),
}


def trained(kernel, operation, architecture, chip, n, batch, **options):
    """The largest difference from the reference, and from the initial parameters."""
    sizes = {"architecture": architecture, **architecture.contract_sizes, "n": n, "batch": batch, "steps": 3}
    if operation is convolutional_sgd_epoch:
        del sizes["steps"]
    case = check.random_case(operation, sizes)
    reference = next(iter(check.references_of(operation, case.arguments).values()))
    before = case.arguments[0].copy()
    parameters = kernel(*case.arguments, chip=chip, **options)
    parameters = parameters[0] if isinstance(parameters, tuple) else parameters
    return np.abs(parameters - reference).max(), np.abs(parameters - before).max()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_division_of_the_work_is_right_under_the_emulator(case, emulator):
    error, moved = trained(adam, convolutional_adam_epoch, *case, races=True)
    assert error < 5e-6 < 1e-3 < moved
    error, moved = trained(sgd, convolutional_sgd_epoch, *case, order="shuffled")
    assert error < 5e-6 < 1e-3 < moved


def test_a_block_takes_a_sample_where_there_are_enough():
    made = layout(DIGITS, 32, True, H200)
    assert (made.blocks, made.each) == (32, 1)
    assert layout(DIGITS, 200, True, H200).each == 2
    assert layout(DIGITS, 4, True, H200).blocks == 16  # the others update weights


@pytest.mark.parametrize(
    ("architecture", "batch", "chip"),
    [
        (DIGITS, 32, SMALL),  # the weights take more than a block's shared memory
        (network((1, 28, 28), [(4, 2)], 0, (128, 10), "relu relu softmax"), 32, H200),
        (network((64, 8, 8), [(8, 3)], 2, (10,), "relu softmax"), 32, H200),  # too many weights a filter
        (DIGITS, 10_000, H200),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(architecture, batch, chip):
    assert "take the plan operations" in refused(layout, architecture, batch, True, chip, kind=DoesNotFitError)


@pytest.mark.skipif(why_no_nvrtc() is not None, reason="no NVRTC")
def test_it_compiles_without_spills_for_the_digits_and_for_older_gpus():
    text = source(layout(DIGITS, 32, True, H200), DIGITS, 32, True)
    assert compile_check(text, "sm_90")["convolutional_epoch"].spill_bytes < 64
    architecture, chip, _, batch = CASES["more blocks than samples"]
    text = source(layout(architecture, batch, True, chip), architecture, batch, True)
    assert compile_check(text, "sm_75")["convolutional_epoch"].registers > 0


def test_the_digits_network_is_right_on_the_gpu_after_twenty_steps(gpu):
    import cupy

    sizes = {"architecture": DIGITS, **DIGITS.contract_sizes, "n": 19 * 32 + 16, "batch": 32, "steps": 0}
    rng = np.random.default_rng(0)
    shapes = DIGITS.shapes
    parts = [(rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape).ravel(), np.zeros(shape[0])) for shape in shapes]
    start = np.concatenate([array for pair in parts for array in pair])
    X, Y = check.random_case(convolutional_adam_epoch, sizes).arguments[4:6]
    arguments = [start, np.zeros_like(start), np.zeros_like(start)]
    reference = convolutional_adam_epoch.reference(
        *arguments, DIGITS, X.astype(float), Y.astype(float), 32, 0.001, 0, *ADAM.values()
    )
    there = [cupy.asarray(array, np.float32) for array in arguments]
    adam(*there, DIGITS, cupy.asarray(X), cupy.asarray(Y), 32, 0.001, 0, *ADAM.values())
    assert np.abs(there[0].get() - reference[0]).max() < 1e-5
    assert device.on_gpu(there[0])


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_division_of_the_work_is_right_on_the_gpu(case, gpu):
    import cupy

    architecture, chip, n, batch = case
    sizes = {"architecture": architecture, **architecture.contract_sizes, "n": n, "batch": batch, "steps": 3}
    arguments = check.random_case(convolutional_adam_epoch, sizes).arguments
    references = check.references_of(convolutional_adam_epoch, arguments).values()
    there = [cupy.asarray(value) if isinstance(value, np.ndarray) else value for value in arguments]
    for got, reference in zip(adam(*there, chip=chip), references, strict=True):
        assert np.abs(got.get() - reference).max() < 5e-6
