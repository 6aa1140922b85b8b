"""dense_sgd_epoch in one launch: other layouts than check() takes, on the emulator; what fits, and what is refused."""

import numpy as np
import pytest
from refusals import refused

from cuda_on_cpu.nvrtc import compile_check, why_no_nvrtc
from nnclassroom.judge import check
from nncourse import device
from nncourse.architecture import DenseArchitecture
from nncourse.epochs.dense import dense_sgd_epoch
from nncourse.epochs.dense_one_kernel import ALONE, CLUSTER, GRID, Chip, Plan, one_kernel, plan, source
from nncourse.errors import DoesNotFitError

A4000 = Chip(99 * 1024, 48, False)
H200 = Chip(227 * 1024, 132, True)
SIZES = DenseArchitecture((9, 7, 4, 2), ("sigmoid", "tanh", "sigmoid"), "mse")
# Blocks that meet, threads that share a neuron in a warp and in several warps, one stage of inputs and two.
LAYOUTS = {
    "one block, several warps a neuron": Plan(1, ALONE, 256, 2, 1, 2, 5, 8, 2),
    "one block, inputs replaced in place": Plan(1, ALONE, 256, 2, 1, 2, 1, 16, 1),
    "a cluster": Plan(2, CLUSTER, 128, 4, 1, 1, 5, 32, 2),
    "a grid with an idle block": Plan(5, GRID, 96, 1, 1, 2, 1, 4, 1, scattered=True),
    "a scattered cluster": Plan(2, CLUSTER, 128, 4, 1, 1, 5, 32, 2, scattered=True),
    "a grid that keeps inputs": Plan(2, GRID, 32, 4, 1, 1, 5, 8, 2, scattered=True, keeps=True),
}


def sigmoids(*sizes):
    return DenseArchitecture(sizes, ("sigmoid",) * (len(sizes) - 1), "mse")


def case_of(architecture, n, batch):
    sizes = {"architecture": architecture, **architecture.contract_sizes, "n": n, "batch": batch}
    return check.random_case(dense_sgd_epoch, sizes)


@pytest.mark.parametrize("options", [{"order": "shuffled"}, {"races": True}], ids=["shuffled", "races"])
@pytest.mark.parametrize("made", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_is_right_under_the_emulator(made, options, emulator):
    case = case_of(SIZES, 13, 5)
    (reference,) = check.references_of(dense_sgd_epoch, case.arguments).values()
    parameters, *others = case.arguments
    before = parameters.copy()
    one_kernel(parameters, *others, made=made, **options)
    assert np.abs(parameters - reference).max() < 2e-6
    assert np.abs(parameters - before).max() > 1e-3


@pytest.mark.parametrize(
    ("architecture", "batch", "chip", "meeting"),
    [
        (sigmoids(30, 60, 10, 1), 10, H200, ALONE),
        (sigmoids(30, 60, 10, 1), 10, A4000, ALONE),
        (sigmoids(784, 30, 10), 10, H200, CLUSTER),
        (sigmoids(784, 30, 10), 10, A4000, GRID),
        (sigmoids(784, 192, 10), 50, H200, GRID),
    ],
)
def test_blocks_are_one_or_many_by_the_size_of_the_work(architecture, batch, chip, meeting):
    made = plan(architecture, batch, chip)
    assert made.meeting == meeting
    assert (made.blocks > 1) == (meeting != ALONE)


@pytest.mark.parametrize(
    ("architecture", "batch", "chip"),
    [(sigmoids(784, 192, 10), 50, A4000), (sigmoids(784, 4000, 4000, 10), 10, H200), (sigmoids(2, 3, 1), 50_000, H200)],
)
def test_what_does_not_fit_is_refused_in_one_line(architecture, batch, chip):
    refused(plan, architecture, batch, chip, kind=DoesNotFitError)


@pytest.mark.skipif(why_no_nvrtc() is not None, reason="no NVRTC")
@pytest.mark.parametrize(("sizes", "batch"), [((30, 60, 10, 1), 10), ((784, 30, 10), 10)])
def test_it_compiles_for_gpus_without_clusters(sizes, batch):
    architecture = sigmoids(*sizes)
    text = source(plan(architecture, batch, A4000), architecture, batch, 2)
    for arch in ("sm_75", "sm_86"):
        assert compile_check(text, arch)["dense_epoch"].spill_bytes == 0


def close_to_reference(case, **layout):
    """On the GPU: the epoch's parameters are those of float64, and not those of before."""
    there = [device.to_device(value, "gpu") if isinstance(value, np.ndarray) else value for value in case.arguments]
    reference = check.references_of(dense_sgd_epoch, case.arguments)
    result = one_kernel(*there, **layout).get()
    assert check.compare(dense_sgd_epoch, result, reference, case.arguments) is None
    assert np.abs(result - case.arguments[0]).max() > 1e-3


@pytest.mark.parametrize("made", LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_are_right_on_the_gpu(gpu, made):
    close_to_reference(case_of(SIZES, 13, 5), made=made)


@pytest.mark.parametrize("chip", [None, A4000], ids=["this GPU", "as on an RTX A4000"])
@pytest.mark.parametrize(
    ("sizes", "batch"), [((30, 60, 10, 1), 10), ((784, 30, 10), 10), ((784, 192, 10), 50)], ids=["A", "B", "D"]
)
def test_the_measured_networks_are_right_on_the_gpu(gpu, sizes, batch, chip):
    case = case_of(sigmoids(*sizes), 3 * batch + 4, batch)
    if chip and sizes == (784, 192, 10):
        refused(close_to_reference, case, chip=chip, kind=DoesNotFitError)
    else:
        close_to_reference(case, chip=chip)
