"""train_epoch in one launch: other layouts than check() takes, on the emulator; what fits, and what is refused."""

import numpy as np
import pytest

from nncourse.architecture import Architecture
from nncourse.cuda import emulate
from nncourse.errors import DoesNotFitError
from nncourse.kernels import check
from nncourse.kernels.epoch import train_epoch
from nncourse.kernels.epoch_one_kernel import ALONE, CLUSTER, GRID, Chip, Plan, one_kernel, plan

A4000 = Chip(99 * 1024, 48, False)
H200 = Chip(227 * 1024, 132, True)
SIZES = Architecture((9, 7, 4, 2), ("sigmoid", "tanh", "sigmoid"), "mse")
# Blocks that meet, threads that share a neuron in a warp and in several warps, one stage of inputs and two.
LAYOUTS = {
    "one block, several warps a neuron": Plan(1, ALONE, 256, 2, 1, 2, 5, 8, 2),
    "one block, inputs replaced in place": Plan(1, ALONE, 256, 2, 1, 2, 1, 16, 1),
    "a cluster": Plan(2, CLUSTER, 128, 4, 1, 1, 5, 32, 2),
    "a grid with an idle block": Plan(5, GRID, 96, 1, 1, 2, 1, 4, 1),
}


def sigmoids(*sizes):
    return Architecture(sizes, ("sigmoid",) * (len(sizes) - 1), "mse")


@pytest.mark.parametrize("options", [{"order": "shuffled"}, {"races": True}], ids=["shuffled", "races"])
@pytest.mark.parametrize("made", LAYOUTS.values(), ids=LAYOUTS)
def test_every_layout_is_right_under_the_emulator(made, options):
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    sizes = {"architecture": SIZES, **SIZES.letters, "n": 13, "batch": 5}
    case = check.random_case(train_epoch, sizes)
    truth = train_epoch.truth(*map(check._float64, case.arguments))
    parameters, *others = case.arguments
    before = parameters.copy()
    one_kernel(parameters, *others, made=made, **options)
    assert np.abs(parameters - truth).max() < 2e-6
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
    with pytest.raises(DoesNotFitError) as caught:
        plan(architecture, batch, chip)
    assert "\n" not in str(caught.value)


def test_layouts_are_right_on_the_gpu(gpu):
    import cupy

    for made in LAYOUTS.values():
        case = check.random_case(train_epoch, {"architecture": SIZES, **SIZES.letters, "n": 13, "batch": 5})
        truth = train_epoch.truth(*map(check._float64, case.arguments))
        there = [cupy.asarray(value) if isinstance(value, np.ndarray) else value for value in case.arguments]
        assert np.abs(one_kernel(*there, made=made).get() - truth).max() < 2e-6
