"""A right CUDA kernel that wastes is kept, and its verdict names the waste, unless the course's kernel does it too."""

import re

import pytest

from cuda_on_cpu import emulate
from cuda_on_cpu.nvrtc import double_lines, why_no_nvrtc
from cuda_on_cpu.text import CudaSource
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.judge.check import check
from tests.exercise_answers import RIGHT

pytestmark = pytest.mark.skipif(bool(emulate.why_not()), reason="no emulator")
TEXTS = {(each["operation"], each["kernel"]): (each["line"], each["text"]) for each in RIGHT if "line" in each}
TILES, LOAD = ("whole_tiles", "tiled"), "W_tile[y][x] = W[(blockIdx.x * TILE + y) * n_in + k0 + x];"
ONE_LOADS = "if (t == 0) for (int k = 0; k < 64; k++) tile[k] = x[k];"
ADAM = ("adam_update", "naive")
# What stands in a right answer and what takes its place; then, for each kind of waste, what the verdict says of it.
WASTEFUL = {
    "a warp loads a column": (
        TILES,
        [(LOAD, "W_tile[y][x] = W[j * n_in + k0 + y];"), ("W_tile[x][k]", "W_tile[k][x]")],
        {"sectors": "a warp's read of W in line 11 touches 16 sectors where 4 would do"},
    ),
    "no spare column": (TILES, [("[TILE + 1]", "[TILE]")], {"turns": "8 turns at the banks"}),
    "a tile written down a column": (
        TILES,
        [(LOAD, LOAD.replace("W_tile[y][x]", "W_tile[x][y]")), ("W_tile[x][k]", "W_tile[k][x]"), ("TILE + 1", "TILE")],
        {"turns": "a warp's write of W_tile"},
    ),
    "each number read where it is needed": (
        ADAM,
        [(", g = G[i]", ""), ("* g;", "* G[i];"), ("* g * g;", "* G[i] * G[i];")],
        {"again": "G 3 times"},
    ),
    "a constant without an f": (ADAM, [("1e-8f", "1e-8")], {"double": "float64 in line 8"}),
    "double alone in a comment": (ADAM, [("1e-8f", "1e-8f /* not 1.0, which is a double */")], {}),
    "one thread fills the only tile": (("one_step", "shared"), [], {"alone": "reads 64 numbers of x"}),
    "as the course has it": (TILES, [], {}),
    "and here too": (ADAM, [], {}),
}


def text_of(answer: tuple[str, str], changes: list[tuple[str, str]], idea: str) -> tuple[str, str]:
    line, text = TEXTS[answer]
    if idea == "one thread fills the only tile":
        text, count = re.subn(r"tile\[t\] = x\[t\];", ONE_LOADS, text)
        assert count == 1
    for was, becomes in changes:
        assert was in text
        text = text.replace(was, becomes, 1)
    return line, text


@pytest.mark.parametrize("idea", WASTEFUL)
def test_waste_is_named_and_the_kernel_is_right(idea):
    answer, changes, said = WASTEFUL[idea]
    if "double" in said and why_no_nvrtc():
        pytest.skip(why_no_nvrtc())
    line, text = text_of(answer, changes, idea)
    verdict = kept_kernels.check(*answer, text, {"block": [int(n) for n in line.split("--block ")[1].split(",")]})
    assert verdict and {each["waste"] for each in verdict.facts["waste"]} == set(said)
    assert all(words in str(verdict) for words in said.values())


def test_a_naive_kernel_is_not_told_what_the_courses_naive_kernel_does_too():
    naive = find("dense_forward")["naive"]
    assert check(find("dense_forward"), naive, "emulator").facts["waste"] == ()
    line, text = TEXTS["dense_forward", "naive"]
    assert not kept_kernels.check("dense_forward", "naive", text, {"block": [32, 4]}).facts["waste"]


@pytest.mark.parametrize(
    ("line", "bits"),
    [
        ("a[0] = b * 0.1;", 64),
        ("a[0] = b * 0.1f;", 32),
        ("a[0] = 1 / (1 + exp(-b));", 32),
        ("a[0] = sqrt(b + 1e-8);", 64),
        ("double c = 0.1; a[0] = c * b;", 64),
        ("a[0] = b * 2.0;", 32),  # the compiler sees that float does
        ("a[0] = b; // 2.0 * b", 32),
    ],
)
@pytest.mark.skipif(bool(why_no_nvrtc()), reason="no NVRTC")
def test_lines_that_compute_with_64_bits(line, bits):
    text = f'extern "C" __global__ void k(float* a, float b) {{\n    {line}\n}}\n'
    assert double_lines(CudaSource(text, "k.cu")) == ((2,) if bits == 64 else ())
