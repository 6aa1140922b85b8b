"""A kernel that is named for an idea keeps to a budget of accesses; a plain one under its name does not."""

from dataclasses import replace

import pytest

from cuda_on_cpu import emulate
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import exercises
from nnclassroom.judge import budget, check
from nnclassroom.judge.cases import random_case
from nncourse.kernels.contract import Formula
from nncourse.kernels.kernel import CudaKernel

pytestmark = pytest.mark.skipif(bool(emulate.why_not()), reason="no emulator")
IDEAS = ("coalesced", "shared", "tiled", "tiles_1d", "tiles_2d", "vectorised", "tree", "shuffle")
NAMED = [(blank.operation, blank.kernel) for blank in exercises() if blank.kernel in IDEAS]
NAMED.remove(("all_reduce", "tree"))  # of a group, whose exchanges are counted
ATTENTION = ("attention_forward", "attention_backward", "fused_attention")
NAMED += [("confusion_matrix", "atomic"), *((operation, "tiled") for operation in ATTENTION)]
PLAIN = {
    ("dense_forward", "tiled"): "coalesced",
    ("dense_forward", "tiles_1d"): "tiled",
    ("dense_forward", "tiles_2d"): "tiles_1d",
    ("dense_forward", "vectorised"): "tiles_2d",
    ("mse", "tree"): "atomic",
    ("mse", "shuffle"): "tree",
    ("convolution_forward", "shared"): "naive",
    ("convolution_bias_gradient", "tree"): "naive",
    ("confusion_matrix", "shared"): "atomic",
    **{(operation, "tiled"): "naive" for operation in ATTENTION},
}


def over(kernel: CudaKernel, name: str):
    case = budget.case_of(kernel.operation, name)
    trace = budget.launched(check.runner(kernel.operation, kernel, "emulator"), case, {})
    return budget.exceeded(kernel.operation, name, case, trace)


@pytest.mark.parametrize(("operation", "name"), NAMED)
def test_the_packages_kernels_keep_to_it(operation, name):
    assert name in find(operation).trial.budgets
    assert over(find(operation)[name], name) is None


@pytest.mark.parametrize(("operation", "name"), PLAIN)
def test_a_plain_kernel_under_the_name_does_not(operation, name):
    fault = over(find(operation)[PLAIN[operation, name]], name)
    assert fault.kind == "budget" and fault.facts["got"] > fault.facts["limit"]
    assert f"{fault.facts['limit']:,}" in str(fault)


def test_tiles_of_eight_are_enough():
    tiled = find("dense_forward")["tiled"]
    text = tiled.source.text.replace("#define TILE 16", "#define TILE 8")
    assert over(replace(tiled, source=replace(tiled.source, text=text), block=(8, 8), plans={}), "tiled") is None


def test_fused_attention_that_writes_its_scores_is_not_fused():
    tiled = find("fused_attention")["tiled"]
    written = "for (int m = 0; m < M; m++) kept[blockIdx.x][threadIdx.x][m] = s[m][0];\n            exponentials("
    text = "__device__ float kept[2][128][4];\n" + tiled.source.text.replace("exponentials(", written)
    kernel = replace(tiled, source=replace(tiled.source, text=text), plans={})
    assert "global memory is written" in str(over(kernel, "tiled"))


def test_parameters_may_have_any_name():
    text = """extern "C" __global__ void blur(const float* numbers, float* means, int count) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        float sum = 0.0f;
        for (int j = i - 2; j <= i + 2; j++) sum += j >= 0 && j < count ? numbers[j] : 0.0f;
        if (i < count) means[i] = sum / 5;
    }"""
    kernel = kept_kernels.build(find("blur"), "shared", text, {"block": [64]})
    assert "x is read 634 times" in str(over(kernel, "shared"))


@pytest.mark.parametrize(("operation", "name"), [*NAMED, *PLAIN])
def test_the_contract_states_it_in_sizes_of_its_own(operation, name):
    operation = find(operation)
    of_name = operation.trial.budgets[name]
    (line,) = [line for line in str(operation).splitlines() if line.startswith(f"  {name}: at ")]
    sizes = operation.sizes(*random_case(operation, of_name.sizes).arguments)
    for limit in of_name.limits:
        assert limit.formula in line and Formula(limit.formula)(sizes) > 0


def test_a_thread_that_reads_what_it_has_put_there_itself_shares_nothing():
    text = """extern "C" __global__ void turn_round(const float* x, float* y, int n) {
        __shared__ float piece[64];
        int t = threadIdx.x, first = blockIdx.x * 64, here = min(64, n - first);
        if (t < here) piece[t] = x[first + here - 1 - t];
        __syncthreads();
        if (t < here) y[first + t] = piece[t];
    }"""
    kernel = kept_kernels.build(find("turn_round"), "shared", text, {"block": [64]})
    assert over(kernel, "shared").facts["got"] == 0


def test_a_verdict_of_a_gpu_is_the_emulators_where_the_idea_is_missing(monkeypatch):
    """Also with a GPU the emulator counts: what it says of a kernel that the GPU found right is the verdict."""
    emulated = check.check
    right = check.Verdict("blur", "shared", "right", {"count": 1, "device": "gpu"})
    monkeypatch.setattr(kept_kernels.devices, "gpu_available", lambda: True)
    monkeypatch.setattr(
        check,
        "check",
        lambda *of, device, **more: right if device == "gpu" else emulated(*of, device=device),
    )
    text = """extern "C" __global__ void turn_round(const float* x, float* y, int n) {
        int t = threadIdx.x, first = blockIdx.x * 64, here = min(64, n - first);
        if (t < here) y[first + t] = x[first + here - 1 - t];
    }"""
    verdict = kept_kernels.check("turn_round", "shared", text, {"block": [64]})
    assert verdict.kind == "budget" and "read 0 times" in verdict.line
