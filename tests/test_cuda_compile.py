"""CUDA C compiled without a GPU, by NVRTC and by g++: errors name the .cu line; resources; what a .cu text declares."""

import stat
from pathlib import Path

import numpy as np
import pytest

from cuda_on_cpu import emulate, nvrtc
from cuda_on_cpu import program as emulator_program
from cuda_on_cpu.nvrtc import CudaCompileError, compile_check
from cuda_on_cpu.program import why_no_compiler
from cuda_on_cpu.source import Parameter, kernels_in, parameters
from cuda_on_cpu.text import CudaSource
from nncourse.cuda import compile
from nncourse.cuda.compile import resources
from nncourse.cuda.launch import launch
from nncourse.errors import CourseError

NO_NVRTC = str(nvrtc.why_no_nvrtc())
needs_nvrtc = pytest.mark.skipif("not installed" in NO_NVRTC, reason=NO_NVRTC)  # installed but broken is a failure
needs_emulator = pytest.mark.skipif(why_no_compiler() is not None, reason=str(why_no_compiler()))

GOOD = CudaSource.read(Path(__file__).parent / "cuda" / "good.cu")

WRONG = CudaSource(
    """
// two mistakes, in lines 4 and 8
extern "C" __global__ void wrong(const float* a, float* b, int n) {
    int i = blockIdx.q * blockDim.x + threadIdx.x;
    if (i < n) b[i] = 2.0f * a[i];
}
extern "C" __global__ void wrong_too(float* b) {
    b[0] = nowhere;
}
""",
    "kernels/wrong.cu",
)


def check_both_errors(message: str) -> None:
    """Each error: file and line, then the source line, then a caret below the culprit."""
    lines = message.splitlines()
    assert len(lines) == 6
    for first, number, culprit in ((0, 4, "q"), (3, 8, "nowhere")):
        assert lines[first].startswith(f"kernels/wrong.cu:{number}: error: ")
        assert culprit in lines[first]
        assert lines[first + 1].strip() == WRONG.text.splitlines()[number - 1].strip()
        assert lines[first + 1][lines[first + 2].index("^") :].startswith(culprit)


@needs_nvrtc
def test_nvrtc_errors_name_line_and_column():
    with pytest.raises(CudaCompileError) as caught:
        compile_check(WRONG)
    check_both_errors(str(caught.value))


@needs_emulator
def test_gxx_errors_have_the_same_form(monkeypatch):
    monkeypatch.setattr(emulator_program, "why_no_nvrtc", lambda: "not on this system")
    with pytest.raises(CudaCompileError) as caught:
        launch(WRONG, "wrong", (1,), (1,), [np.zeros(1, np.float32), np.zeros(1, np.float32), 1])
    check_both_errors(str(caught.value))


@needs_nvrtc
@needs_emulator
def test_the_emulator_shows_what_nvrtc_says():
    text = """
extern "C" __global__ void f(float* a) {
    __shared__ float large[20000];
    large[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = large[31 - threadIdx.x];
}
"""
    with pytest.raises(CudaCompileError, match=r"kernels/large.cu: error: .*too much shared data"):
        launch(CudaSource(text, "kernels/large.cu"), "f", (1,), (1,), [np.zeros(1, np.float32)])


@needs_nvrtc
def test_defines_do_not_shift_lines_and_are_used():
    text = '\nextern "C" __global__ void f(float* a) { a[0] = ALPHA + (BETA == 1); }'
    assert set(compile_check(CudaSource(text, "k.cu", ("ALPHA=0.5f", "BETA")))) == {"f"}
    with pytest.raises(CudaCompileError, match=r'^k.cu:2: error: identifier "BETA" is undefined'):
        compile_check(CudaSource(text, "k.cu", ("ALPHA=0.5f",)))


@needs_nvrtc
def test_infinity_and_nan_exist_as_on_the_cpu():
    text = 'extern "C" __global__ void f(float* a) { a[0] = -INFINITY; a[1] = NAN; a[2] = isnan(a[1]); }'
    assert set(compile_check(CudaSource(text, "k.cu"))) == {"f"}


@needs_nvrtc
def test_resources_of_each_kernel():
    found = {name: resources(GOOD, name) for name in ("doubled", "turned")}  # on a GPU, CuPy tells them
    assert 4 <= found["doubled"].registers <= 64
    assert (found["doubled"].shared_bytes, found["doubled"].spill_bytes) == (0, 0)
    assert found["turned"].shared_bytes == 1024
    assert found["turned"].spill_bytes >= 400  # an array with a variable index cannot lie in registers


def test_a_machine_without_nvrtc_is_told_so(monkeypatch):
    monkeypatch.setattr(nvrtc, "why_no_nvrtc", lambda: "it is missing")
    with pytest.raises(CourseError, match="kernels/new.cu: cannot be compiled for a GPU: it is missing"):
        compile_check(CudaSource(GOOD.text + "\n", "kernels/new.cu"))


def test_an_nvrtc_log_that_nobody_understands_is_shown_whole():
    assert nvrtc.readable_errors("strange\n", "k.cu") == "k.cu: error: the compiler says: strange"


@needs_emulator
def test_a_compiler_that_is_missing_or_cannot_be_run_is_named(monkeypatch, tmp_path):
    (tmp_path / "compiler").write_text("no program")
    (tmp_path / "compiler").chmod(0o755)
    cannot_be_run = "compiler cannot be run: .*; install g\\+\\+, or name another"
    for compiler, said in (("none", "expected the C\\+\\+ compiler none"), (tmp_path / "compiler", cannot_be_run)):
        monkeypatch.setenv("CXX", str(compiler))
        with pytest.raises(CourseError, match=said):
            launch(CudaSource(GOOD.text, "kernels/unseen.cu"), "turned", (1,), (1,), [np.zeros(1, np.float32), 1])


@needs_emulator
def test_programs_are_kept_and_reused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for _ in range(2):
        emulate._child.cache_clear()
        b = np.zeros(1, np.float32)
        launch(GOOD, "doubled", (1,), (1,), [np.ones(1, np.float32), b, 1])
        assert b[0] == 2
    programs = list((tmp_path / "cuda_on_cpu" / "emulator").iterdir())  # no remains of the compilation
    assert len(programs) == 2  # one for memory, one for races
    assert all(program.stat().st_mode & stat.S_IXUSR for program in programs)
    emulate._child.cache_clear()


@needs_emulator
@pytest.mark.parametrize("harm", ["refused", "gone"])
def test_a_prepared_header_may_be_refused_or_gone(tmp_path, monkeypatch, harm):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for number in range(2):
        text, b = f"{GOOD.text}// {harm} {number}", np.zeros(1, np.float32)
        launch(CudaSource(text, "tests/good.cu"), "doubled", (1,), (1,), [np.ones(1, np.float32), b, 1])
        assert b[0] == 2
        headers = list((tmp_path / "cuda_on_cpu" / "emulator_parts").glob("*.gch"))
        assert len(headers) == 2
        for prepared in headers:
            if harm == "refused":
                prepared.write_bytes(b"gpch of another compiler")
            else:
                prepared.unlink()


# ---- what a .cu text declares


@pytest.mark.parametrize(
    ("declaration", "parameter"),
    [
        ("const float* A", Parameter("A", "float", True, True)),
        ("float const *__restrict__ A", Parameter("A", "float", True, True)),
        ("float *A", Parameter("A", "float", True, False)),
        ("float A[]", Parameter("A", "float", True, False)),
        ("const double* const A", Parameter("A", "double", True, True)),
        ("unsigned n", Parameter("n", "unsigned int", False, False)),
        ("const long long int n", Parameter("n", "long long", False, True)),
        ("unsigned char* /* 0 to 9, inclusive */ labels", Parameter("labels", "unsigned char", True, False)),
        ("bool*__restrict__ m", Parameter("m", "bool", True, False)),
    ],
)
def test_parameters_are_read_from_the_text(declaration, parameter):
    comment = '// extern "C" __global__ void old(int x)'
    kernel = f'extern "C" __global__ void\n__launch_bounds__(32 * (2), 1) f({declaration},\n  int last) {{}}'
    source = CudaSource(f"{comment}\n{kernel}", "k.cu")
    assert kernels_in(source) == ("f",)
    assert parameters(source, "f") == (parameter, Parameter("last", "int", False, False))
    assert parameters(CudaSource('extern "C" __global__ void f() {}', "k.cu"), "f") == ()


def test_an_unknown_kernel_is_refused_with_the_list():
    with pytest.raises(CourseError, match=r"cuda/good.cu: expected .* void tripled.* are: doubled, turned"):
        parameters(GOOD, "tripled")


def test_read_shows_folder_and_name(tmp_path):
    (tmp_path / "kernels").mkdir()
    path = tmp_path / "kernels" / "good.cu"
    path.write_text(GOOD.text)
    assert CudaSource.read(path, ("A=1",)) == CudaSource(GOOD.text, "kernels/good.cu", ("A=1",))
    with pytest.raises(CourseError, match="none.cu: expected a .cu file"):
        CudaSource.read(tmp_path / "none.cu")


# ---- on a GPU


def test_gpu_errors_have_the_same_form(gpu):
    with pytest.raises(CudaCompileError) as caught:
        compile.gpu_kernel(WRONG, "wrong")
    check_both_errors(str(caught.value))
