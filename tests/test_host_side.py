"""The CUDA C++ program with its own host side: right, with its errors seen, and emulated as a GPU would behave."""

import re
import subprocess

import pytest
from refusals import refused

from cuda_on_cpu import host_program
from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.text import CudaSource
from nnclassroom.exercises.catalogue import find
from nnclassroom.figures import nb08_host_side

emulated = pytest.mark.skipif(bool(why_no_compiler()), reason=str(why_no_compiler()))


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """Everything here is about the emulation, also on a machine with a GPU, but for the last test."""
    monkeypatch.setattr(nb08_host_side, "why_not_on_gpu", lambda: "no GPU here")


def with_text(monkeypatch, right: str, wrong: str) -> None:
    text = nb08_host_side.SOURCE.text
    assert text.count(right) == 1
    monkeypatch.setattr(nb08_host_side, "SOURCE", CudaSource(text.replace(right, wrong), nb08_host_side.SOURCE.file))


@emulated
@pytest.mark.parametrize("block", [1, 32, 1000, 1024])
def test_the_step_is_that_of_the_package(block):
    run = nb08_host_side.run(block)
    assert run.status == 0 and run.right and run.moved, str(run)
    assert str(run).startswith("✓") and "emulated: no GPU here" in str(run)


@emulated
@pytest.mark.full
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("dW[j * n_in + k] = sum / batch;", "dW[j * n_in + k] = sum;"),
        ("sgd_update<<<blocks(m, block), block>>>(c, db, rate, m);", ""),
        ("A[i * n_in + k] * W[j * n_in + k]", "A[i * n_in + k] * W[k * n_out + j]"),
        ("fetched(b, c);", "fetched(b, c), fetched(b, c);"),
    ],
)
def test_another_result_is_seen(right, wrong, monkeypatch):
    with_text(monkeypatch, right, wrong)
    run = nb08_host_side.run()
    assert run.status == 0 and not run.right and str(run).startswith("✗")


@emulated
def test_an_error_stops_the_program_with_its_line_and_unchecked_nothing_happens_silently():
    run = nb08_host_side.run(block=2048)
    line = 1 + nb08_host_side.SOURCE.text.partition("CHECK(cudaGetLastError())")[0].count("\n")
    assert run.status == 1 and not run.right
    assert run.said == f"nb08_host_side.cu:{line}: cudaGetLastError(): invalid configuration argument"
    run = nb08_host_side.run(block=2048, checked=False)
    assert run.status == 0 and run.said == "" and not run.right and not run.moved
    assert nb08_host_side.run(checked=False).right


@emulated
def test_a_kernel_that_leaves_its_arrays_is_stopped(monkeypatch):
    with_text(monkeypatch, "    if (j >= n_out || k >= n_in) return;\n", "")
    run = nb08_host_side.run()
    assert run.status != 0 and not run.right and "heap-buffer-overflow" in run.said


@pytest.mark.parametrize(
    ("operation", "output"),
    [
        ("dense_forward", "Z"),
        ("sigmoid", "a"),
        ("cross_entropy_delta", "D"),
        ("weight_gradient", "dW"),
        ("bias_gradient", "db"),
        ("sgd_update", "W"),
    ],
)
def test_its_kernels_are_the_naive_ones_of_the_course(operation, output):
    """To the letter, but for extern "C", the names of the kernel and of its result, comments and blanks."""

    def plain(text: str, name: str) -> str:
        begin = text.index(f"__global__ void {name}(")
        body = text[begin : text.index("\n}", begin)]
        return " ".join(re.sub(r"//.*", "", body).replace(f" {name}(", f" {operation}(").split())

    found = find(operation)["naive"]
    here, there = plain(nb08_host_side.SOURCE.text, operation), plain(found.source.text, found.entry)
    assert here == (re.sub(r"\bG\b", output, there) if output == "D" else there)


def test_every_part_of_the_program_is_shown_beside_what_cupy_does():
    parts = nb08_host_side.parts()
    beside = dict(zip((name for name, _ in parts), nb08_host_side.WITH_CUPY, strict=True))
    assert beside["copy back"] == "array.get()" and "back to the pool" in beside["free"]
    page = nb08_host_side.show()
    assert all(words in str(page) for words in nb08_host_side.WITH_CUPY)
    html = page._repr_html_()
    assert html.count("<tr>") == len(parts) + 1 and "dense_forward&lt;&lt;&lt;____" in html
    assert all(line in str(page) for line in nb08_host_side.BLANKS.values())


LINES = (
    "CHECK(cudaMemcpy(there, here.data(), here.size() * sizeof(float), cudaMemcpyHostToDevice));",
    "CHECK(cudaMemcpy(here.data(), there, here.size() * sizeof(float), cudaMemcpyDeviceToHost));",
    "dense_forward<<<dim3(blocks(m, wide), blocks(batch, high)), two>>>(x, w, c, z, batch, n, m);",
    "sigmoid<<<blocks(batch * m, block), block>>>(z, a, batch * m);",
    "weight_gradient<<<dim3(blocks(n, wide), blocks(m, high)), two>>>(d, x, dw, batch, m, n);",
)


def test_blanks_stay_open_until_each_is_filled():
    assert str(nb08_host_side.fill(*nb08_host_side.BLANKS.values())).startswith("○ open")
    assert "expected 5 lines" in refused(nb08_host_side.fill, "")


@emulated
def test_the_right_lines_are_right():
    assert nb08_host_side.fill(*LINES).right


@emulated
@pytest.mark.parametrize(
    ("place", "right", "wrong", "said"),
    [
        (0, "HostToDevice", "DeviceToHost", "cudaMemcpyDeviceToHost): invalid argument"),
        (1, "here.data(), there", "there, here.data()", "does not compile"),
        (3, "blocks(batch * m, block), block", "block, blocks(batch * m, block)", "1 thread a block"),
        (3, "blocks(batch * m, block)", "batch * m / block", "256 threads a block"),
        (4, "blocks(n, wide), blocks(m, high)", "blocks(m, wide), blocks(n, high)", "1 thread a block"),
    ],
)
def test_wrong_lines_are_seen(place, right, wrong, said):
    assert right in LINES[place]
    run = nb08_host_side.fill(*LINES[:place], LINES[place].replace(right, wrong), *LINES[place + 1 :])
    assert not run.right and str(run).startswith("✗") and said in str(run)


def test_no_thread_is_refused():
    assert "at least 1 thread" in refused(nb08_host_side.run, block=0)


PROGRAM = """
#include <cstdio>
__global__ void twice(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }
int main() {
    float here[3] = {1, 2, 3}, *there;
    cudaMalloc(&there, sizeof here);
    cudaMemcpy(there, here, sizeof here, cudaMemcpyHostToDevice);
    STATEMENTS
    printf("%s", cudaGetErrorString(cudaGetLastError()));
}
"""


def said_by(statements: str) -> str:
    program = host_program.program_for(CudaSource(PROGRAM.replace("STATEMENTS", statements), "small.cu"))
    return subprocess.run([program], capture_output=True, text=True, timeout=60, check=True).stdout


@emulated
@pytest.mark.parametrize(
    ("statements", "said"),
    [
        ("", "no error"),
        ("twice<<<dim3(1, 1), 32>>>(there, 3); cudaMemcpy(here, there, 12, cudaMemcpyDeviceToHost); "
         'printf("%g ", here[2]);', "6 no error"),
        ("twice<<<1, dim3(1024, 2)>>>(there, 3);", "invalid configuration argument"),
        ("twice<<<0, 32>>>(there, 3);", "invalid configuration argument"),
        ("float* more; cudaMalloc(&more, size_t(1) << 40);", "out of memory"),
        ("cudaMemcpy(here, there, sizeof here, cudaMemcpyHostToDevice);", "invalid argument"),
        ("cudaMemcpy(there, here, 2 * sizeof here, cudaMemcpyHostToDevice);", "invalid argument"),
        ("cudaFree(there); cudaFree(there);", "invalid argument"),
        ("cudaFree(here);", "invalid argument"),
    ],
)  # fmt: skip
def test_the_stand_in_refuses_what_a_gpu_refuses(statements, said):
    assert said_by(statements) == said


@emulated
def test_what_does_not_compile_is_one_line_with_the_programs_own_number():
    assert "small.cu:8" in refused(said_by, "nothing();")


def test_nvcc_takes_the_program_where_there_is_one():
    if not host_program.nvcc():
        pytest.skip("no nvcc here")
    for defines in ((), ("UNCHECKED",)):
        assert host_program.program_for(nb08_host_side.SOURCE, defines, on_gpu=True).stat().st_size > 0


def test_on_a_gpu(gpu, monkeypatch):
    monkeypatch.undo()
    if not host_program.nvcc():
        pytest.skip("no nvcc here")
    assert nb08_host_side.run().right and "compiled by nvcc" in nb08_host_side.run().where
    said = nb08_host_side.run(block=2048).said  # CUDA 12 says "configuration" too
    assert "cudaGetLastError(): invalid" in said and said.endswith("argument")
    run = nb08_host_side.run(block=2048, checked=False)
    assert run.status == 0 and not run.moved
