"""The plain C program of dense_sgd_epoch: mistakes in its text show, and it leaves the rest of the process alone.

That its kernels are right is tested with the other CPU kernels, in test_dense_epoch_cpu.py and test_operations.py.
"""

import numpy as np
import pytest
from epoch_networks import mistakes, planted
from refusals import refused

from cuda_on_cpu import host_compiler
from fused_epochs import dense_plain, gradient_cpu
from fused_epochs.dense import KNOWN
from nnclassroom import commands, timing
from nnclassroom.judge.check import check
from nncourse.backend import choose
from nncourse.kernels.dense_epoch import dense_sgd_epoch
from nncourse.model.network import make_network
from nncourse.model.training import train

has_compiler = pytest.mark.skipif(bool(host_compiler.why_no_c_compiler()), reason="no C compiler here")
MISTAKES = mistakes("epochs/dense_plain")


@pytest.fixture
def fresh():
    """The test sees no program of another, and leaves none."""
    functions = (dense_plain.program, dense_plain.why_not)
    for function in functions:
        function.cache_clear()
    yield
    for function in functions:
        function.cache_clear()


@has_compiler
@pytest.mark.parametrize("mistake", MISTAKES)
def test_check_rejects_a_wrong_program(mistake, tmp_path, monkeypatch, fresh):
    monkeypatch.setattr(dense_plain, "FILES", planted(dense_plain.FILES, *MISTAKES[mistake], tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    verdict = check(dense_sgd_epoch, "c")
    assert not verdict and "wrong" in verdict.line


@has_compiler
def test_fast_mathematics_stays_inside_of_the_program(fresh):
    """GCC's start-up file for -ffast-math would set small numbers to zero in the whole process."""
    assert dense_plain.why_not("c_float_fast") == ""
    assert np.float32(2e-40) * np.float32(0.5) > 0


@has_compiler
def test_a_program_is_compiled_once_and_again_for_another_processor(tmp_path, monkeypatch, fresh):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    dense_plain.program("c")
    (kept,) = (tmp_path / "cuda_on_cpu" / "libraries").iterdir()
    before = kept.stat().st_ino
    dense_plain.program.cache_clear()
    dense_plain.program("c")
    assert kept.stat().st_ino == before
    text = "double one(void) { return 1; }"
    here = host_compiler.shared_library(text, ["-march=native"], for_this_processor=True)
    monkeypatch.setattr(host_compiler, "processor", lambda: "another")
    assert host_compiler.shared_library(text, ["-march=native"], for_this_processor=True) != here
    assert host_compiler.shared_library(text) == host_compiler.shared_library(text)


def test_without_a_compiler_it_is_left_out_with_the_reason(monkeypatch, fresh):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "install gcc" in dense_plain.why_not("c") and "\n" not in dense_plain.why_not("c")
    sizes = timing.default_sizes(dense_sgd_epoch, "cpu") | {"n": 20}
    for row in timing.time_kernels(dense_sgd_epoch, sizes, list(dense_plain.FORMS)):
        assert row.seconds is None and "no C compiler" in row.note
    network, arrays = make_network([3, 2]), (np.zeros((4, 3), np.float32), np.zeros((4, 2), np.float32))
    said = refused(train, network, *arrays, choose("numpy"), epochs=1, plan="c")
    assert "cannot be used here: there is no C compiler" in said
    assert "cannot be checked here" in refused(check, dense_sgd_epoch, "c")


@has_compiler
def test_what_the_compiler_refuses_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "nothing" in refused(host_compiler.shared_library, "double one(void) { return nothing; }")


def test_no_backend_takes_it_unasked():
    for name in ("loops", "numpy", "numba"):
        rows = np.zeros((4, 3), np.float32), np.zeros((4, 2), np.float32)
        assert train(make_network([3, 2]), *rows, choose(name), epochs=1).plan not in dense_plain.FORMS


@has_compiler
def test_it_trains_on_the_command_line(tmp_path, capsys):
    options = "train --dataset breast_cancer --layers 30,6,1 --epochs 3 --learning-rate 0.5"
    model = str(tmp_path / "model.npz")
    for use in ("--plan c", "--backend loops --plan c_fast"):
        assert commands.main([*options.split(), "--model", model, *use.split()]) == 0
    assert capsys.readouterr().err == ""


@has_compiler
def test_a_table_with_the_program_counts_from_it():
    sizes = timing.default_sizes(dense_sgd_epoch, "cpu") | {"n": 40}
    rows = timing.time_kernels(dense_sgd_epoch, sizes, ["numpy", "c", "c_fast"])
    table = timing.table(dense_sgd_epoch, rows, sizes)
    head, *lines = str(table).splitlines()[1:]
    assert head.split()[-4:] == ["×", "c", "×", "numpy"]
    (of_c,) = [line.split() for line in lines if line.startswith("c ")]
    assert of_c[-2] == "1×"


@pytest.mark.parametrize(
    ("file", "head"), [("mathematics.cu", "enum Activation {"), ("dense_functions.c", "enum activation {")]
)
def test_activations_have_the_numbers_of_the_texts(file, head):
    text = dense_plain.FILES[0].with_name(file).read_text("utf-8")
    named = text.split(head)[1].split("}")[0].lower()
    assert tuple(name.strip() for name in named.split(",")) == KNOWN == tuple(gradient_cpu.ARRAYS)
