"""tools/mutate.py: which mutants it makes, and that one survives where what is tried is too weak."""

import numpy as np

from nnclassroom.judge.answer import check_text
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial
from tools.mutate import is_same, mutants

PYTHON = """\
def clipped(z, low):
    a = np.maximum(z, -low)
    return a[:, 0]
"""
CUDA = """\
__global__ void keep(const float* z, float* a, int n) {
    int i = threadIdx.x;  // i <= n
    if (i < n) a[i] = z[i];
    __syncthreads();
}
"""


def _changed(text: str, cuda: bool) -> set[str]:
    return set(mutants(text, cuda).values())


def test_each_token_of_a_python_function_is_mutated_once():
    assert _changed(PYTHON, cuda=False) == {
        "2: a = np.minimum(z, -low)",
        "2: a = np.maximum(low, -low)",
        "2: a = np.maximum(a, -low)",
        "2: a = np.maximum(z, low)",
        "2: a = np.maximum(z, -z)",
        "2: a = np.maximum(z, -a)",
        "3: return z[:, 0]",
        "3: return low[:, 0]",
        "3: return a[:, -1]",
        "3: return a[:, 1]",
    }


def test_cuda_c_is_mutated_within_its_types_and_not_in_comments():
    assert _changed(CUDA, cuda=True) == {
        "2: int i = blockIdx.x;  // i <= n",
        "2: int i = threadIdx.y;  // i <= n",
        "3: if (n < n) a[i] = z[i];",
        "3: if (i <= n) a[i] = z[i];",
        "3: if (i > n) a[i] = z[i];",
        "3: if (i < i) a[i] = z[i];",
        "3: if (i < n) z[i] = z[i];",
        "3: if (i < n) a[n] = z[i];",
        "3: if (i < n) a[i + 1] = z[i];",
        "3: if (i < n) a[i - 1] = z[i];",
        "3: if (i < n) a[i] = a[i];",
        "3: if (i < n) a[i] = z[n];",
        "3: if (i < n) a[i] = z[i + 1];",
        "3: if (i < n) a[i] = z[i - 1];",
        "4: ;",
    }


def _survivors(trial: Trial) -> list[str]:
    size = Operation("size", "a = |z|", "z (n,) -> a (n,)", reference=np.abs, flops=None, trial=trial)
    made = mutants("def size(z):\n    return 1 * np.abs(z)\n", cuda=False)
    return [place for text, place in made.items() if check_text(size, "numpy", text, seconds=20)]


def test_a_mutant_survives_where_only_positive_numbers_are_tried():
    positive = {"z": lambda rng, shape, sizes: rng.uniform(1, 2, shape).astype(np.float32)}
    assert _survivors(Trial()) == []
    assert _survivors(Trial(values=positive)) == ["2: return 1 * (z)"]


def test_the_table_of_equivalent_mutants_has_a_sign_for_anything():
    assert is_same("3: n = len(W)", ["…: n = …"])
    assert not is_same("3: n = len(W)", ["3: n = len(.)", "n = len(W)"])
