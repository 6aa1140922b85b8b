"""The operations that only the exercises of notebook 09 have."""

import numpy as np
import pytest
from exercise_operations import belongs_to_no_backend, kernels_are_right_and_can_be_shown

from nnclassroom.exercises.nb09 import corrected_mean, warm_up_cosine
from nnclassroom.judge.check import check
from nncourse.kernels.update import momentum_update
from nncourse.model.optimizers import cosine_decay

OPERATIONS = corrected_mean, warm_up_cosine


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_their_kernels_are_right_can_be_shown_and_belong_to_no_backend(operation, capsys):
    kernels_are_right_and_can_be_shown(operation, capsys)
    belongs_to_no_backend(operation)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999])
def test_a_corrected_mean_of_equal_numbers_is_that_number_from_the_first_on(beta):
    assert corrected_mean["loops"](np.full(50, 3, np.float32), beta) == pytest.approx(3, rel=1e-6)


def in_float32(g, beta):
    """As it is in CUDA C: β, 1 − β and all sums have 24 bits."""
    beta, one = np.float32(beta), np.float32(1)
    m, power, means = np.float32(0), one, np.empty_like(g)
    for t in range(len(g)):
        m, power = beta * m + (one - beta) * g[t], power * beta
        means[t] = m / (one - power)
    return means


def by_two_means(g, beta):
    m = of_ones = np.float32(0)
    means = np.empty_like(g)
    for t in range(len(g)):
        m, of_ones = np.float32(beta * m + (1 - beta) * g[t]), np.float32(beta * of_ones + (1 - beta))
        means[t] = m / of_ones
    return means


@pytest.mark.parametrize("kernel", [in_float32, by_two_means])
def test_roundings_of_single_precision_are_no_mistake(kernel):
    for seed in range(10):
        assert check(corrected_mean, kernel, seed=seed), str(check(corrected_mean, kernel, seed=seed))


@pytest.mark.parametrize("seed", range(5))
def test_what_an_array_must_become_is_told_from_what_it_was_before_the_kernel_changed_it(seed):
    def one_too_many(W, G, V, rate, momentum):
        V[...] = momentum * V + G + 1
        W -= rate * V
        return W, V

    verdict = check(momentum_update, one_too_many, seed=seed)
    _, (G,), (V,), _, momentum = verdict.case.arguments  # one number each
    said = verdict.facts["advice"].removeprefix("there V must become ")
    assert verdict.facts["name"] == "W" and float(said) == pytest.approx(momentum * V + G, rel=1e-5)


def test_a_warm_up_of_one_epoch_is_none():
    epochs = np.arange(1, 11, dtype=np.int32)
    wanted = [cosine_decay(0.3, 10)(epoch) for epoch in range(1, 11)]
    assert warm_up_cosine["numpy"](epochs, 0.3, 1, 10) == pytest.approx(wanted, rel=1e-5)


def test_a_warm_up_rises_in_equal_steps_and_then_falls():
    rates = warm_up_cosine["numpy"](np.arange(1, 13, dtype=np.int32), 0.8, 4, 12)
    assert rates[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert (np.diff(rates[3:]) < 0).all() and 0 < rates[-1] < 0.05
