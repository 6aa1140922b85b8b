"""Kernels that Numba has compiled are kept for later processes, and are never out of date."""

import os
import subprocess
import sys
from types import FunctionType

import numpy as np
import pytest

from nncourse.kernels import jit

FACTOR = 3.0


def times(a):
    return FACTOR * a


def twice(a):
    return times(a) + times(a)


def compiled(function, **names):
    """As a later process would have it: compiled anew, with other globals."""
    return jit.jit(FunctionType(function.__code__, function.__globals__ | names))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "nncourse" / "compiled"


def test_the_second_one_is_loaded(folder):
    first, second = compiled(times), compiled(times)
    assert first(2.0) == second(2.0) == 6.0
    assert not first._cache_hits and len(second._cache_hits) == 1
    assert second(np.float32(2.0)) == 6.0 and second(np.ones(3)).tolist() == [3, 3, 3]
    assert len(list(folder.iterdir())) == 3, "one file for each type"


def test_other_numbers_and_other_functions_inside_are_other_kernels():
    assert compiled(times)(2.0) == 6.0
    assert compiled(times, FACTOR=5.0)(2.0) == 10.0
    for factor in (3.0, 5.0, 3.0):
        outer = compiled(twice, times=compiled(times, FACTOR=factor))
        assert outer(2.0) == 4 * factor


def test_closures_are_told_apart():
    def make(factor):
        return lambda a: factor * a

    assert [jit.jit(make(factor))(2.0) for factor in (3.0, 4.0)] == [6.0, 8.0]


def test_what_calls_itself_is_described_once():
    factorial = {}
    exec("def factorial(n):\n    return 1 if n < 2 else n * factorial(n - 1)\n", factorial)
    assert "factorial" in jit.made_from(factorial["factorial"])


def test_a_damaged_file_is_made_again(folder):
    assert compiled(times)(2.0) == 6.0
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"no pickle"):
        file.write_bytes(damaged)
        assert compiled(times)(2.0) == 6.0
        assert len(file.read_bytes()) > 100


def test_without_a_folder_it_is_compiled_all_the_same(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert compiled(times)(2.0) == 6.0


def test_another_process_has_the_kernels_of_the_package_at_once(folder):
    text = """
import numpy as np
from nncourse.kernels.dense import dense_forward
from nncourse.kernels import jit
kept, A = [], np.ones((2, 3), np.float32)
load = jit.Kept.load_overload
jit.Kept.load_overload = lambda *all: kept.append(load(*all)) or kept[-1]
print(dense_forward["numba"](A, A, A[0, :2])[0, 0], [result is not None for result in kept])
"""
    said = [subprocess.run([sys.executable, "-c", text], capture_output=True, text=True).stdout for _ in range(2)]
    assert said == ["4.0 [False]\n", "4.0 [True]\n"]


ALIKE = """
import sys
import numpy as np
from nncourse.kernels.jit import jit

def made(kind):
    if kind == "array":
        def loop(x):
            out = np.empty_like(x)
            out[:] = x + 1
            return out
    else:
        def loop(x):
            there = np.empty_like(x)
            there[:] = x + 1
            return there[0]
    return jit(loop)

functions = [made(kind) for kind in sys.argv[1:]]
print(*[np.max(function(np.ones(3, np.float32))) for function in functions])
"""


@pytest.mark.full
def test_functions_of_one_name_that_two_processes_compiled_are_told_apart(folder):
    def said_by(*kinds):
        environment = os.environ | {"PYTHONHASHSEED": "0"}  # Numba's names depend on the order of a set of texts
        command = [sys.executable, "-c", ALIKE, *kinds]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout.split() or done.stderr

    assert said_by("array") == said_by("number") == ["2.0"]
    assert said_by("number", "array") == ["2.0", "2.0"]
