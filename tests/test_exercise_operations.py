"""The operations that only exercises have: their kernels are right and can be shown, and no backend has them."""

import numpy as np
import pytest
from refusals import refused

from nnclassroom import timing
from nnclassroom.exercises.catalogue import exercise_topics, find
from nnclassroom.exercises.nb04 import descent_step
from nnclassroom.exercises.nb09 import corrected_mean, warm_up_cosine
from nnclassroom.exercises.nb13 import amdahl_fit, cpu_share, energy_and_edp, scaling_laws, speedup_and_efficiency
from nnclassroom.exercises.solutions import solution
from nnclassroom.judge.check import check
from nncourse.backend import choose
from nncourse.catalogue import defined_in, epochs, operations
from nncourse.kernels.update import momentum_update
from nncourse.model.optimizers import cosine_decay

SEEDS = {"nb06": range(20), "nb12": range(5), "nb13": range(20)}  # of each notebook's; others are tried once
OPERATIONS = {
    operation.name: (operation, SEEDS.get(topic.__name__.rpartition(".")[2], (None,)))
    for topic in exercise_topics()
    if topic.__name__.startswith("nnclassroom.")  # the sum over GPUs has tests of its own
    for operation in defined_in([topic]).values()
    if operation.name not in operations() | epochs()
}
KERNELS = [(name, kernel) for name, (operation, _) in OPERATIONS.items() for kernel in operation.kernels]


@pytest.mark.parametrize(("name", "kernel"), KERNELS)
def test_a_kernel_is_right_and_can_be_shown(name, kernel, capsys, request):
    operation, seeds = OPERATIONS[name]
    if operation[kernel].cuda:
        request.getfixturevalue("cuda_somewhere")
    for seed in seeds:
        verdict = check(operation, kernel, seed=seed)
        assert verdict, str(verdict)
    solution(name, kernel)
    shown = capsys.readouterr().out
    if operation[kernel].cuda:
        assert f"void {name}_{kernel}(" in shown
    else:
        assert shown.startswith(f"def {name}(") and ": " not in shown.partition("\n")[0]


@pytest.mark.parametrize("name", OPERATIONS)
def test_it_is_found_belongs_to_no_backend_and_is_timed_only_if_its_work_is_known(name):
    operation, _ = OPERATIONS[name]
    assert find(name) is operation and name not in choose("numpy").kernels
    if operation.flops is None:
        assert "not timed" in refused(timing.time_kernels, operation, names=list(operation.kernels))


# ---- notebook 04


@pytest.mark.parametrize("seed", (8, 18, 20))
def test_one_sample_after_the_other_is_right_too(seed):
    """Though W is rounded a thousand times."""

    def one_by_one(W, A, Y, X, rate):
        for a, y, x in zip(A, Y, X, strict=True):
            W -= np.outer(a - y, x) * (rate / len(X))
        return W

    verdict = check(descent_step, one_by_one, seed=seed)
    assert verdict, verdict.line


def test_leaving_out_one_sample_of_a_thousand_is_wrong():
    def all_but_the_last(W, A, Y, X, rate):
        last = -1 if len(X) > 1000 else None
        W -= rate * (A - Y)[:last].T @ X[:last] / len(X)
        return W

    assert "1025" in check(descent_step, all_but_the_last, seed=0).line


# ---- notebook 13


def floats(*numbers):
    return np.array(numbers, np.float32)


def test_the_thesis_efficiency_from_its_speedup():
    S, E = speedup_and_efficiency["numpy"](floats([1.79, 1.7, 9], [1, 0.9, 5]), floats(1, 2))
    assert S.tolist() == pytest.approx([1, 1.79]) and E.tolist() == pytest.approx([1, 0.895])


def test_amdahls_p_is_found_again_and_explains_what_the_thesis_lost():
    for p in (0.0, 0.5, 0.9, 0.99, 1.0):
        K = floats(2, 4, 8, 1)
        strong, _ = scaling_laws["numpy"](p, K)
        assert amdahl_fit["numpy"](K, strong) == pytest.approx(p, abs=1e-6)
    assert amdahl_fit["numpy"](floats(2), floats(1.79)) == pytest.approx(0.8827, abs=1e-4)
    # its training loop is 1.97 times as fast; with all that is not divided, 1.79
    in_all = 1 / ((1 - 0.896) + 0.896 / 1.97)
    assert in_all == pytest.approx(1.79, abs=0.005)
    assert amdahl_fit["numpy"](floats(2, 4), floats(2.2, 5)) == 1 and amdahl_fit["numpy"](floats(2), floats(0.5)) == 0


def test_both_laws_agree_on_one_device_and_gustafson_has_no_limit():
    strong, weak = scaling_laws["numpy"](0.95, floats(1, 1024))
    assert strong[0] == weak[0] == pytest.approx(1)
    assert strong[1] < 20 < 900 < weak[1]


def test_the_cpu_beside_two_gpus_gets_a_25th_and_all_end_together():
    cpu, gpu, time = cpu_share["numpy"](floats(12), 2)
    assert cpu[0] == pytest.approx(1 / 25) and time[0] == pytest.approx(24 / 25)
    assert cpu[0] + 2 * gpu[0] == pytest.approx(1) and 12 * cpu[0] == pytest.approx(gpu[0])


def test_half_the_time_with_equal_energy_is_half_the_edp():
    one = energy_and_edp["numpy"](floats(3, 5, 7), floats([100, 100, 100]), floats(20))
    two = energy_and_edp["numpy"](floats(3, 5), floats([100, 100], [100, 100]), floats(20, 20))
    assert one[0].sum() == pytest.approx(400) and two[0].sum() == pytest.approx(400)
    assert one[1] == pytest.approx([320]) and two[2] / one[2] == pytest.approx(0.5)


# ---- notebook 09


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
