"""Products on tensor cores: rounding, fragments, the tolerance that goes with them, and where they are refused."""

from dataclasses import replace

import numpy as np
import pytest

from cuda_on_cpu import emulate, nvrtc
from cuda_on_cpu.emulate import EmulationError
from cuda_on_cpu.nvrtc import CudaCompileError, compile_check
from cuda_on_cpu.text import CudaSource
from nnclassroom import timing
from nnclassroom.judge import check
from nncourse import backend, device
from nncourse.cuda.launch import launch
from nncourse.errors import CourseError
from nncourse.kernels import dense, dense_wgmma
from nncourse.kernels.dense import dense_forward

KERNEL = dense_forward["tensor_cores"]
TEXT = """
extern "C" __global__ void rounded(const float* a, float* b, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) b[i] = rounded_to_tf32(a[i]);
}
extern "C" __global__ void product(const float* A, const float* B, float* Z, int some) {
    int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    float z[4];
    for (int i = 0; i < 4; i++) z[i] = Z[(g + i / 2 * 8) * 8 + 2 * t + i % 2];
    if (lane < some)
        multiply_fragments(z, {A[g * 8 + t], A[(g + 8) * 8 + t], A[g * 8 + t + 4], A[(g + 8) * 8 + t + 4]},
                           {B[t * 8 + g], B[(t + 4) * 8 + g]});
    for (int i = 0; i < 4; i++) Z[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = z[i];
}
"""
SOURCE = CudaSource(TEXT, "cuda/fragments.cu", (), (dense.ON_TENSOR_CORES,))

needs_emulator = pytest.mark.skipif(emulate.why_not() is not None, reason=str(emulate.why_not()))
needs_nvrtc = pytest.mark.skipif(nvrtc.why_no_nvrtc() is not None, reason=str(nvrtc.why_no_nvrtc()))


def rounded(values: np.ndarray, bits: int = 10) -> np.ndarray:
    """To so many bits of mantissa, ties away from zero; computed without bits."""
    fraction, power = np.frexp(values.astype(np.float64))
    steps = np.ldexp(np.abs(fraction), bits + 1)
    return np.copysign(np.ldexp(np.floor(steps + 0.5), power - bits - 1), values)


def cut(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(28).standard_normal(shape).astype(np.float32)


def on(place: str, array: np.ndarray):
    return device.to_device(array.copy(), place)


def run(place: str, function: str, *arguments, threads: int = 32):
    there = [on(place, value) if isinstance(value, np.ndarray) else value for value in arguments]
    launch(SOURCE, function, (1,), (threads,), there)
    return [device.to_device(value, "cpu") for value in there if not isinstance(value, int)]


@pytest.fixture(params=["emulator", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(request) -> str:
    if request.param == "gpu":
        request.getfixturevalue("gpu")
    elif emulate.why_not():
        pytest.skip(emulate.why_not())
    return {"emulator": "cpu", "gpu": "gpu"}[request.param]


def test_a_number_is_rounded_to_the_nearest_with_ten_bits(place):
    step = 2.0**-10
    ties = [1 + step / 2, -1 - step / 2, 1 + 1.5 * step, 1 + 0.4999 * step, 2 - step / 4, 0.0, -0.0, np.inf, -np.inf]
    values = np.concatenate([numbers(100), np.float32(ties)])
    found = run(place, "rounded", values, np.zeros_like(values), values.size)[1]
    wanted = [1 + step, -1 - step, 1 + 2 * step, 1.0, 2.0, 0.0, -0.0, np.inf, -np.inf]
    assert found[100:].tolist() == wanted and np.signbit(found[106])
    assert found[:100].tolist() == rounded(values[:100]).tolist()
    nan = run(place, "rounded", np.array([0x7FFFFFFF, 0x7FC00000], np.uint32).view(np.float32), np.zeros(2, "f"), 2)[1]
    assert np.isnan(nan).all()


def test_fragments_are_multiplied_as_matrices(place):
    A, B, Z = numbers(16, 8), numbers(8, 8)[::-1].copy(), numbers(16, 8)
    found = run(place, "product", A, B, Z, 32)[2]
    exact = Z + cut(A).astype(np.float64) @ cut(B).astype(np.float64)  # the last bits are left out
    assert np.abs(found - exact).max() < 2e-5  # a GPU does not round as IEEE 754 says
    if place == "cpu":
        assert found.tolist() == exact.astype(np.float32).tolist()


@needs_emulator
@pytest.mark.parametrize(
    ("threads", "some", "says"),
    [(32, 20, "mma.sync() reached by 20 of the 32 threads in its mask"), (16, 16, "reached by 16 of the 32 threads")],
)
def test_a_warp_that_is_not_whole_is_refused(threads, some, says):
    with pytest.raises(EmulationError) as caught:
        run("cpu", "product", numbers(16, 8), numbers(8, 8), numbers(16, 8), some, threads=threads)
    assert caught.value.kind == "warp" and says in str(caught.value)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (17, 33, 66), (129, 16, 257), (3, 130, 5)])
def test_a_dense_layer_is_that_of_the_rounded_factors(sizes, place):
    batch, n_in, n_out = sizes
    A, W, b = numbers(batch, n_in), numbers(n_out, n_in), numbers(n_out)
    Z = device.to_device(KERNEL(*(on(place, array) for array in (A, W, b))), "cpu")
    exact = rounded(A) @ rounded(W).T + b
    assert np.abs(Z - exact).max() < 3e-6 * n_in**0.5 * max(1.0, np.abs(exact).max())
    assert np.abs(Z - (np.float64(A) @ np.float64(W).T + b)).max() > 1e-4  # rounding shows


@needs_emulator
def test_factors_that_are_cut_off_are_accepted_and_those_of_fewer_bits_are_not():
    text = dense.ON_TENSOR_CORES.text
    helper = "return __uint_as_float(bits);"
    for instead, right in (("return number;", True), ("return __uint_as_float(bits & 0xfffe0000u);", False)):
        changed = replace(dense.ON_TENSOR_CORES, text=text.replace(helper, instead))
        source = replace(KERNEL.source, before=(dense.ON_TILES, changed))
        verdict = check.check(dense_forward, replace(KERNEL, source=source), device="emulator")
        assert bool(verdict) is right, str(verdict)
        assert ("10 bits of mantissa" in str(verdict)) is right


@needs_emulator
def test_as_float32_it_would_be_wrong():
    assert not check.check(dense_forward, replace(KERNEL, mantissa=23), device="emulator")


def test_networks_get_it_on_request_only():
    assert backend.choose("cuda", emulate=True).kernels["dense_forward"].name == "tiled"
    asked = backend.choose("cuda", emulate=True, dense_forward="tensor_cores")
    assert asked.kernels["dense_forward"] is KERNEL
    rounding = [kernel.name for kernel in dense_forward.kernels.values() if kernel.mantissa < 23]
    assert rounding == ["tensor_cores", *dense_wgmma.LAUNCHES]


def test_a_gpu_before_ampere_is_told_why(monkeypatch):
    monkeypatch.setattr(device, "gpu_available", lambda: True)
    for capability, missing in (((7, 5), True), ((8, 0), False), ((12, 0), False)):
        monkeypatch.setattr(device, "capability", lambda capability=capability: capability)
        assert bool(KERNEL.missing()) is missing
    monkeypatch.setattr(device, "capability", lambda: (7, 5))
    with pytest.raises(CourseError, match=r"dense_forward \(tensor_cores\) cannot be used here: .*sm_80.*sm_75$"):
        backend.choose("cuda", dense_forward="tensor_cores")
    with pytest.raises(CourseError, match=r"tensor_cores cannot be checked here: .*sm_80.*sm_75$"):
        check.check(dense_forward, "tensor_cores", device="gpu")
    row = timing._time(KERNEL, (numbers(2, 2), numbers(2, 2), numbers(2)))
    assert row.seconds is None and "sm_75" in row.note


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_it_fits_into_the_registers_of_every_gpu_from_ampere_on(arch):
    used = compile_check(KERNEL.source, arch)[KERNEL.entry]
    assert used.registers <= 255 and not used.spill_bytes and used.shared_bytes <= 48 << 10


@needs_nvrtc
def test_an_older_gpu_is_refused_by_the_compiler_in_a_line():
    with pytest.raises(CudaCompileError, match=r"tensor_cores.cu:\d+: error: .*8.0 \(Ampere\)"):
        compile_check(KERNEL.source, "sm_75")


def test_a_table_of_times_says_that_the_limit_is_that_of_float32():
    rows = [timing.Row(name, "gpu", 1e-3, 10**9, 10**6, 2.0) for name in ("tiled", "tensor_cores")]
    said = str(timing.table(dense_forward, rows, {"batch": 8}))
    assert said.count("rounds its factors") == 1 and "tensor_cores rounds its factors to 10 bits" in said
    assert "rounds" not in str(timing.table(dense_forward, rows[:1], {"batch": 8}))


@pytest.mark.parametrize(("capability", "runs"), [((9, 0), True), ((8, 9), False), ((10, 0), False), ((12, 0), False)])
def test_wgmma_is_hoppers_alone(monkeypatch, capability, runs):
    monkeypatch.setattr(device, "gpu_available", lambda: True)
    monkeypatch.setattr(device, "capability", lambda: capability)
    assert (dense_wgmma.missing() == "") == runs
    assert runs or f"this GPU is sm_{capability[0]}{capability[1]}" in dense_wgmma.missing()


@needs_nvrtc
def test_the_kernels_for_hopper_compile():
    code = nvrtc.machine_code(dense_wgmma.SOURCE, "sm_90a")
    assert code.startswith(b"\x7fELF") and all(
        f"dense_forward_{name}".encode() in code for name in dense_wgmma.LAUNCHES
    )
    with pytest.raises(CudaCompileError, match="wgmma"):
        nvrtc.machine_code(dense_wgmma.SOURCE, "sm_90")


@pytest.mark.parametrize(
    ("batch", "n_out", "name"),
    [(1024, 1024, "small_tiles"), (4096, 4096, "double_buffered"), (4480, 512, "stream_k"), (0, 5, "double_buffered")],
)
def test_the_kernel_by_shape(batch, n_out, name):
    assert dense.fastest(batch, n_out, 132) == name
