"""The operations that only the exercises of notebook 13 have."""

import numpy as np
import pytest
from exercise_operations import belongs_to_no_backend, kernels_are_right_and_can_be_shown

from nnclassroom.exercises.nb13 import amdahl_fit, cpu_share, energy_and_edp, scaling_laws, speedup_and_efficiency

OPERATIONS = speedup_and_efficiency, amdahl_fit, scaling_laws, cpu_share, energy_and_edp


def floats(*numbers):
    return np.array(numbers, np.float32)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_their_kernels_are_right_can_be_shown_and_belong_to_no_backend(operation, capsys):
    kernels_are_right_and_can_be_shown(operation, capsys, seeds=range(20))
    belongs_to_no_backend(operation)


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
