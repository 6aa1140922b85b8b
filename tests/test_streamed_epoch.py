"""The kernel `streamed` of network_epoch: every way to divide a product, what fits on which chip, and mistakes."""

from dataclasses import replace

import numpy as np
import pytest
from epoch_networks import mistakes, rejected
from refusals import refused

from cuda_on_cpu.nvrtc import compile_check, why_no_nvrtc
from fused_epochs import streamed as module
from fused_epochs.architecture import Windows
from fused_epochs.dense_one_kernel import Chip
from fused_epochs.network import ADAM, CROSS, MOMENTUM, NETWORKS, PLAIN, POOL_2, SAME_3, SAME_5, network_epoch, sizes
from fused_epochs.streamed import (
    EMULATED,
    IMAGE_TILES,
    TENSOR_TILES,
    TILES,
    image_tile,
    matrix_tile,
    plan,
    planned,
    products,
    source,
    streamed,
)
from nnclassroom.judge import check
from nncourse.errors import DoesNotFitError
from tests.tiers import many

H200, T4, RTX_4060 = Chip(227 * 1024, 132, True, True), Chip(64 * 1024, 40, False), Chip(99 * 1024, 24, False)
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
needs_nvrtc = pytest.mark.skipif(why_no_nvrtc() is not None, reason=str(why_no_nvrtc()))
RELUS = "relu relu relu softmax"
TWO_POOLS = ((32, 3, *SAME_3), POOL_2, (64, 3, *SAME_3), POOL_2, 10)
LENET = ((6, 5, *SAME_5), POOL_2, (16, 5), POOL_2, 120, 84, 10)
LARGE = {
    "LeNet": sizes((1, 28, 28), LENET, f"relu {RELUS}", CROSS, ADAM, n=192, batch=64),
    "64 filters": sizes((1, 28, 28), TWO_POOLS, "relu relu softmax", CROSS, n=192, batch=64),
    "16 filters": sizes((3, 32, 32), ((16, 3, *SAME_3),) * 2 + (POOL_2, 128, 10), RELUS, CROSS, MOMENTUM, 96, 32),
    "784-512-512-10": sizes((784,), (512, 512, 10), "relu relu softmax", CROSS, ADAM, n=384, batch=128),
    "784-128-10, 512 samples": sizes((784,), (128, 10), "relu softmax", CROSS, PLAIN, n=1_536, batch=512),
    "100 outputs": sizes((60,), (70, 100), "tanh softmax", "mse", n=90, batch=30),
}
# More tiles than one in each direction, and rows, columns and steps left over.
DENSE = sizes((70,), (37, 66), "tanh sigmoid", "mse", ADAM, n=45, batch=40)
FILTERS = sizes((5, 9, 6), ((9, 3, *SAME_3), (10, 2), 3), "tanh softplus tanh", "mse", MOMENTUM, n=5, batch=3)


def largest_error(case_sizes, made=None, **options):
    """The largest difference from the reference after the epoch, in parameters and memory."""
    case = check.random_case(network_epoch, case_sizes)
    references = check.references_of(network_epoch, case.arguments).values()
    found = streamed(*case.arguments, made=made, **options)
    assert np.abs(found[0] - check.random_case(network_epoch, case_sizes).arguments[0]).max() > 1e-4
    pairs = zip(found, references, strict=True)
    return max(float(np.abs(got - reference).max(initial=0.0)) for got, reference in pairs)


def with_tile(case_sizes, high, wide, split, tensor_cores):
    """A plan with this tile for every product."""
    architecture, batch, chip = case_sizes["architecture"], case_sizes["batch"], Chip(99 * 1024, 3, False, tensor_cores)
    made = plan(architecture, batch, chip)
    tiles = tuple(
        tuple(matrix_tile(product, high, wide, split) for product in each) for each in products(architecture, batch)
    )
    return planned(tiles, made.blocks, 1, made.together, chip)


def with_image_tile(case_sizes, high, wide, channels):
    """A plan in which the filters' pixels are divided into such tiles, forward and for the deltas."""
    architecture, batch = case_sizes["architecture"], case_sizes["batch"]
    made = plan(architecture, batch, EMULATED)
    tiles = []
    for each, now in zip(products(architecture, batch), made.tiles, strict=True):
        of_images = [image_tile(product, high, wide, channels) for product in each[:2] if product.k]
        tiles.append((*of_images, *now[len(of_images) :]))
    return planned(tuple(tiles), made.blocks, 1, made.together, EMULATED)


FEW = (
    sizes((70,), (37, 66), "tanh sigmoid", "mse", ADAM, n=9, batch=4),
    sizes((64,), (36, 40, 3), "tanh tanh softmax", "mse", ADAM, n=5, batch=2),
    sizes((2, 9, 8), ((9, 3, *SAME_3), POOL_2, 20, 38), "tanh tanh softmax", CROSS, MOMENTUM, n=2, batch=1),
)
# Bands of an even number of lines, so that each window of the pool is in one; and one that is in no band as a whole.
POOLED = sizes((3, 23, 20), ((5, 3, *SAME_3), POOL_2, 3), "tanh softplus", rule=MOMENTUM, n=3, batch=2)


@pytest.mark.parametrize("tile", many(list(IMAGE_TILES), str, lambda tile: tile[0], "network_epoch"))
@pytest.mark.parametrize("case", [FILTERS, POOLED], ids=["filters", "a pool"])
def test_every_tile_of_images_is_right_under_the_emulator(tile, case, emulator):
    """Two channels of five, or of three, in a turn, and one in the last."""
    assert largest_error(case, with_image_tile(case, *tile, channels=2)) < 2e-6


SOME_TILES = [(*tile, 1 + number % 3, False) for number, tile in enumerate(TILES)]
SOME_TILES += [(*tile, 1 + number % 3, True) for number, tile in enumerate(TENSOR_TILES)]


@pytest.mark.parametrize("tile", many(SOME_TILES, str, lambda tile: tile[2:], "network_epoch"))
@pytest.mark.parametrize("case", [DENSE, FILTERS], ids=["dense", "filters"])
def test_every_tile_is_right_under_the_emulator(tile, case, emulator):
    assert largest_error(case, with_tile(case, *tile)) < 2e-6


def test_a_few_samples_are_right_under_the_emulator(emulator):
    """Inputs that can be read in fours and others, biases in the last unit, a batch that is not full, and a pool."""
    for case in FEW:
        assert largest_error(case) < 2e-6


@pytest.mark.full
@pytest.mark.parametrize("case", NETWORKS, ids=lambda case: str(case["architecture"]))
def test_no_element_is_accessed_by_two_threads_at_a_time(case, emulator):
    assert largest_error(case, races=True, time_limit=60) < 5e-6


def test_a_product_is_divided_so_that_all_multiprocessors_have_work():
    for name, case in LARGE.items():
        for chip in (H200, RTX_4060, T4):
            made = plan(case["architecture"], case["batch"], chip)
            assert made.shared_bytes <= chip.shared_bytes, name
            assert made.blocks == chip.multiprocessors
    forward = plan(LARGE["784-512-512-10"]["architecture"], 128, H200).tiles[0][0]
    assert forward.count * forward.split >= 100


@needs_nvrtc
@pytest.mark.full
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("name", LARGE)
def test_it_compiles_for_every_chip_without_many_spills(name, arch):
    case, chip = LARGE[name], {"sm_75": T4, "sm_89": RTX_4060}.get(arch, H200)
    made = plan(case["architecture"], case["batch"], chip)
    found = compile_check(source(made, case["architecture"], case["rule"], case["batch"]), arch)["network_epoch"]
    # NVRTC 13.0 spills the most: 400 bytes of LeNet, which has 25 weights a filter, and 216 of the others.
    assert found.spill_bytes < (500 if name == "LeNet" else 250)


def test_what_does_not_fit_is_refused_in_one_line():
    many_layers = sizes((3,), (2,) * 12, "tanh " * 11 + "sigmoid", n=2, batch=2)
    arguments = check.random_case(network_epoch, many_layers).arguments
    assert "at most 10 layers" in refused(streamed, *arguments, kind=DoesNotFitError)
    images = sizes((1, 6, 6), ((2, 3), (1, 4)), "tanh sigmoid", n=2, batch=2)
    arguments = check.random_case(network_epoch, images).arguments
    assert "a dense layer at the end" in refused(streamed, *arguments, kind=DoesNotFitError)


@pytest.mark.parametrize("name", LARGE)
def test_large_networks_learn_what_training_steps_do(name, gpu):
    """To rounding; with pools in two of three cases: rounding may decide which pixel of a window is the largest."""
    differences = [difference_from_steps(LARGE[name], seed) for seed in range(3)]
    pools = any(isinstance(layer, Windows) for layer in LARGE[name]["architecture"].layers)
    assert sum(difference < 2e-6 for difference in differences) >= (2 if pools else 3)
    assert max(differences) < 1e-3


def difference_from_steps(case, seed):
    """Between the parameters after an epoch by `streamed` and those after training_step() for each batch."""
    import cupy

    from nncourse.backend import choose
    from nncourse.model.network import make_network, training_step
    from nncourse.model.optimizers import make_optimizer

    architecture, rule, batch, n = (case[key] for key in ("architecture", "rule", "batch", "n"))
    backend = choose("cuda")
    words = str(architecture).split(" ")[0]
    network = make_network(words, [name for name in architecture.activations if name], architecture.cost).on(backend)
    n -= batch // 2
    X, Y = map(cupy.asarray, check.random_case(network_epoch, case | {"n": n}, seed=seed).arguments[5:7])
    start = network.flat_parameters.copy()
    # Momentum and plain SGD: Adam divides by the root of a gradient's square, and so a rounding by itself.
    rule = replace(rule, kind="sgd", options=PLAIN.options) if rule.kind == "adam" else rule
    M, V = (cupy.zeros(len(start) * (name in rule.memory), np.float32) for name in "MV")
    found = start.copy()
    streamed(found, M, V, architecture, rule, X, Y, batch, 0.05, 0)
    optimizer = make_optimizer(rule.kind, **dict(rule.options))
    for first in range(0, n, batch):
        rows = slice(first, first + batch)
        training_step(network, X[rows].reshape(-1, *network.input_shape), Y[rows], 0.05, backend, optimizer)
    assert float(cupy.abs(network.flat_parameters - start).max()) > 5e-5
    return float(cupy.abs(found - network.flat_parameters).max())


MISTAKES = mistakes("epochs/streamed")


@pytest.mark.parametrize("name", many(MISTAKES, str, lambda name: "bias" in name, "network_epoch"))
def test_wrong_texts_are_rejected(name, emulator, monkeypatch):
    right, wrong = MISTAKES[name]
    texts = [text for text in module.TEXTS if right in text.text]
    assert len(texts) == 1, f"expected {right!r} in one of the texts"
    changed = (replace(text, text=text.text.replace(right, wrong)) for text in module.TEXTS)
    monkeypatch.setattr(module, "TEXTS", tuple(changed))
    source.cache_clear()
    try:
        rejected(network_epoch, network_epoch["streamed"], device="emulator")
    finally:
        source.cache_clear()
