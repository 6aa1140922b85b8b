"""On the emulator a kernel that never ends in a large case is refused, and one that is only slow is not."""

import pytest

from cuda_on_cpu.text import CudaSource
from nnclassroom.judge import cases, check
from nnclassroom.judge.time_limit import never_ends
from nnclassroom.judge.verdict import Fault
from nncourse.kernels.activations import relu
from nncourse.kernels.convolution_backpropagation import convolution_bias_gradient
from nncourse.kernels.kernel import CudaKernel

LOOKS_FOR_ITSELF = """
extern "C" __global__ void relu(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int j = 0; j < n; j++)
        if (j == i) a[j] = z[j] > 0.0f ? z[j] : 0.0f;
}
"""
COUNTS_IN_16_BITS = """
extern "C" __global__ void relu(const float* z, float* a, int n) {
    for (unsigned short j = threadIdx.x; j < n; j += blockDim.x) a[j] = z[j] > 0.0f ? z[j] : 0.0f;
}
"""


def judged(text: str, grid, monkeypatch):
    monkeypatch.setattr(check, "LAUNCH_SECONDS", 0.5)
    source = CudaSource(text, "relu.cu")
    kernel = CudaKernel(relu, "naive", "gpu", "relu.cu", None, source, "relu", (256,), grid=grid)
    return check.check(relu, kernel, device="emulator")


@pytest.mark.full
def test_a_kernel_that_looks_through_all_numbers_for_each_is_slow_and_right(monkeypatch, emulator):
    verdict = judged(LOOKS_FOR_ITSELF, None, monkeypatch)
    assert verdict, str(verdict)
    assert verdict.facts["count"] == sum(not case.large for case in cases.cases(relu))


def test_a_counter_of_16_bits_never_ends_in_a_large_case(monkeypatch, emulator):
    verdict = judged(COUNTS_IN_16_BITS, (1,), monkeypatch)
    assert verdict.kind == "time limit" and verdict.case.large
    assert "did not end within 0.5 s" in verdict.line


@pytest.mark.parametrize("operation", [relu, convolution_bias_gradient], ids=lambda o: o.name)
def test_large_cases_become_smaller_by_halves(operation):
    for case in cases.cases(operation, 0):
        if case.large:
            elements = max(array.size for array in case.arguments if hasattr(array, "size"))
            smaller = cases.halved(operation, case)
            half = max(array.size for array in smaller.arguments if hasattr(array, "size"))
            assert 0.4 * elements < half < 0.6 * elements


def test_a_kernel_that_never_ends_above_some_size_is_endless_from_there_on():
    case = next(case for case in cases.cases(relu, 0) if case.large)
    size, fault = case.arguments[0].size, Fault("time limit", {})

    def run(tried, seconds):
        return fault if tried.arguments[0].size > size / 6 else None

    found, said = never_ends(relu, case, fault, run, 0.5)
    assert size / 6 < found.arguments[0].size < size / 3 and said is fault
