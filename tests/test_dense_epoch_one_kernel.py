"""An epoch in one launch, by every optimizer: other layouts than check() takes; what fits, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from epoch_networks import mistakes
from refusals import refused

from cuda_on_cpu.faults import EmulationError
from cuda_on_cpu.nvrtc import compile_check, why_no_nvrtc
from fused_epochs import dense_one_kernel
from fused_epochs.dense_one_kernel import (
    ALONE,
    CLUSTER,
    CLUSTERS,
    GRID,
    IN_GLOBAL,
    IN_REGISTERS,
    IN_SHARED,
    Chip,
    Plan,
    network_one_kernel,
    one_kernel,
    plan,
    source,
)
from fused_epochs.network import ADAGRAD, ADAM, MOMENTUM, OTHER_ADAM, PLAIN, RMSPROP, network_epoch, sizes
from nnclassroom.judge import check
from nncourse import device
from nncourse.errors import DoesNotFitError
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch
from tests.tiers import many

T4 = Chip(64 * 1024, 40, False)
RTX_4060 = Chip(99 * 1024, 24, False)
A4000 = Chip(99 * 1024, 48, False)
H200 = Chip(227 * 1024, 132, True)
SIZES = DenseArchitecture((9, 7, 4, 2), ("sigmoid", "tanh", "sigmoid"), "mse")
# Blocks that meet, threads that share a neuron in a warp and in several warps, one stage of inputs and two.
LAYOUTS = {
    "one block, several warps a neuron": Plan(1, ALONE, 256, 2, 1, 2, 5, 8, 2),
    "one block, inputs replaced in place": Plan(1, ALONE, 256, 2, 1, 2, 1, 16, 1),
    "a cluster": Plan(2, CLUSTER, 128, 4, 1, 1, 5, 32, 2),
    "a grid with an idle block": Plan(5, GRID, 96, 1, 1, 2, 1, 4, 1),
    "a grid that keeps inputs": Plan(2, GRID, 64, 4, 1, 2, 5, 8, 2, keeps=True),
    "two clusters that keep inputs": Plan(16, CLUSTERS, 64, 4, 1, 1, 5, 8, 2, keeps=True),
    "three clusters, inputs replaced in place": Plan(24, CLUSTERS, 32, 4, 1, 1, 1, 16, 1),
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
        (sigmoids(784, 192, 10), 50, H200, CLUSTERS),
        (sigmoids(784, 100, 10), 10, H200, CLUSTERS),
        (sigmoids(784, 100, 10), 10, A4000, GRID),
        (sigmoids(784, 192, 10), 10, Chip(227 * 1024, 80, True), GRID),  # clusters of 48 blocks might not find room
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


# ---- every optimizer

RULES = (MOMENTUM, ADAM, OTHER_ADAM, RMSPROP, ADAGRAD)
MEMORIES = (IN_REGISTERS, IN_SHARED, IN_GLOBAL)  # every layout with each, for one optimizer or another
COMBINED = [
    (rule, layout, MEMORIES[(number + at) % 3])
    for number, rule in enumerate(RULES)
    for at, layout in enumerate(LAYOUTS)
]


def case_of_rule(rule):
    return check.random_case(
        network_epoch, sizes((9,), (7, 4, 2), "sigmoid tanh sigmoid", rule=rule, n=13, batch=5, steps=2)
    )


def errors(case, **options):
    """The largest error of parameters, M and V under the emulator."""
    references = check.references_of(network_epoch, case.arguments).values()
    arguments = [value.copy() if isinstance(value, np.ndarray) else value for value in case.arguments]
    results = network_one_kernel(*arguments, **options)
    return max(np.abs(result - reference).max(initial=0) for result, reference in zip(results, references, strict=True))


@pytest.mark.parametrize(
    "combined", many(COMBINED, lambda case: f"{case[0]}, {case[1]}", lambda case: case[0].kind, "network_epoch")
)
def test_every_optimizer_is_right_in_every_layout_under_the_emulator(combined, emulator):
    rule, layout, memory = combined
    assert errors(case_of_rule(rule), made=replace(LAYOUTS[layout], memory=memory), races=True) < 3e-6


@pytest.mark.parametrize("mistake", many(MISTAKES := mistakes("epochs/dense_one_kernel"), operation="network_epoch"))
def test_mistakes_show(mistake, emulator, monkeypatch):
    right, wrong = MISTAKES[mistake]
    original = dense_one_kernel.source

    def mistaken(*arguments):
        found = original(*arguments)
        texts = [found, *found.before]
        assert sum(right in text.text for text in texts) == 1, "bring the mistake up to date"
        changed = [replace(text, text=text.text.replace(right, wrong)) for text in texts]
        return replace(changed[0], before=tuple(changed[1:]))

    monkeypatch.setattr(dense_one_kernel, "source", mistaken)
    made = LAYOUTS["two clusters that keep inputs" if "cluster" in mistake else "a grid that keeps inputs"]
    try:
        found = max(errors(case_of_rule(rule), made=made, races=True) for rule in (OTHER_ADAM, MOMENTUM))
    except EmulationError as error:
        assert error.kind == "race", str(error)
    else:
        assert not found < 1e-5  # it may be NaN


@pytest.mark.parametrize("shape", [(6,), (2, 3, 1)], ids=["numbers", "an image"])
def test_other_layers_are_left_to_another_kernel(shape):
    layers = (3,) if len(shape) == 1 else ((2, 3, 1, 1, 1), 3)
    case = check.random_case(network_epoch, sizes(shape, layers, "tanh " * len(layers), rule=ADAM))
    if len(shape) == 1:
        assert dense_one_kernel.dense_only(case.arguments[3]).sizes == (6, 3)
    else:
        refused(network_one_kernel, *case.arguments, kind=DoesNotFitError)


# ---- what a chip has

CHIPS = {
    "T4": (T4, ("sm_75",)),
    "RTX 4060": (RTX_4060, ("sm_80", "sm_86", "sm_89")),
    "H200": (H200, ("sm_90", "sm_100", "sm_120")),
}
TO_COMPILE = [
    (chip, *network, rule)
    for chip in CHIPS
    for network in (((30, 60, 10, 1), 10), ((784, 30, 10), 10), ((784, 128, 10), 32))
    for rule in (PLAIN, ADAM, MOMENTUM)
    if network[1] < 32 or chip == "H200"
]


@pytest.mark.skipif(why_no_nvrtc() is not None, reason="no NVRTC")
@pytest.mark.parametrize(
    "case", many(TO_COMPILE, lambda case: f"{case[0]}, {case[1]}, {case[3]}", lambda case: case[0])
)
def test_it_compiles_for_each_chip(case):
    name, widths, batch, rule = case
    chip, architectures = CHIPS[name]
    architecture = sigmoids(*widths)
    text = source(plan(architecture, batch, chip, rule), architecture, batch, 4 if widths[0] % 4 == 0 else 2, rule)
    for arch in architectures:
        assert compile_check(text, arch)["dense_epoch"].spill_bytes <= MOST_SPILLED


MOST_SPILLED = 128  # bytes of a thread: some variables of the layers above


@pytest.mark.parametrize("chip", [T4, RTX_4060])
def test_a_small_chip_refuses_what_a_large_one_takes(chip):
    architecture = sigmoids(784, 128, 10)
    refused(plan, architecture, 32, chip, ADAM, kind=DoesNotFitError)
    assert plan(architecture, 4, chip, ADAM).blocks <= chip.multiprocessors
    assert plan(architecture, 32, H200, ADAM).meeting == CLUSTERS


# ---- on a GPU


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


WIDE_SECOND = DenseArchitecture((12, 16, 20, 2), ("sigmoid", "tanh", "sigmoid"), "mse")
BY_ENGINE = Plan(16, CLUSTERS, 64, 4, 1, 1, 5, 8, 2)  # rows of 12 inputs, which the copy engine takes


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize(("n", "batch"), [(11, 5), (16, 5), (41, 20)])
def test_rows_copied_by_the_engine_are_right_on_the_gpu(gpu, n, batch, keeps):
    """Fewer samples than a cluster has blocks, and more; one in the last batch; layer 2 is wider than a group."""
    close_to_reference(case_of(WIDE_SECOND, n, batch), made=replace(BY_ENGINE, keeps=keeps))


@pytest.mark.skipif(why_no_nvrtc() is not None, reason="no NVRTC")
@pytest.mark.parametrize("keeps", [True, False])
def test_what_the_engine_needs_compiles(keeps):
    text = source(replace(BY_ENGINE, keeps=keeps), WIDE_SECOND, 20, 4)
    assert compile_check(text, "sm_90")["dense_epoch"].spill_bytes == 0


def test_many_neurons_in_layer_2_are_not_heard_at_a_time():
    """Their sums would not fit into registers."""
    assert plan(sigmoids(784, 192, 64, 10), 2, H200).meeting == CLUSTERS
    assert plan(sigmoids(784, 192, 512, 10), 2, H200).meeting == GRID


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
