"""The operation that only an exercise of notebook 04 has."""

import numpy as np
import pytest

from nnclassroom.exercises.nb04 import descent_step
from nnclassroom.judge.check import check


@pytest.mark.parametrize("seed", (8, 18, 20))
def test_one_sample_after_the_other_is_right_too(seed):
    """Though W is rounded a thousand times."""

    def one_by_one(W, A, Y, X, rate):
        for a, y, x in zip(A, Y, X, strict=True):
            W -= np.outer(a - y, x) * (rate / len(X))
        return W

    verdict = check(descent_step, one_by_one, seed=seed)
    assert verdict, verdict.line


def test_leaving_out_one_sample_of_a_thousand_is_wrong():
    def all_but_the_last(W, A, Y, X, rate):
        last = -1 if len(X) > 1000 else None
        W -= rate * (A - Y)[:last].T @ X[:last] / len(X)
        return W

    assert "1025" in check(descent_step, all_but_the_last, seed=0).line
