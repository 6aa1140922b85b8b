"""The benchmark of networks that learn to add."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np

from benchmarks import sums
from nncourse import datasets


def test_networks_with_as_many_parameters_learn_sums(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "sums", partial(datasets.sums, unseen=40))
    monkeypatch.setattr(sums, "SUMS", 256)
    assert sums.main(["--seeds", "2", "--epochs", "1", "--out", str(tmp_path / "sums.json")]) == 0
    records = json.loads((tmp_path / "sums.json").read_text("utf-8"))["records"]
    assert [(each["network"], each["seed"]) for each in records] == [(name, s) for name in sums.WORDS for s in (1, 2)]
    for each in records:
        assert len(each["right"]) == (sums.LONG if "longer" in each["network"] else 1) and len(each["digits"]) == 4
        assert abs(each["parameters"] - records[0]["parameters"]) < 1000  # but for the rows for positions


def test_right_digits_are_counted_alike_for_both_kinds_of_networks():
    data = datasets.sums(samples=50, unseen=10)
    X, Y = sums.one_hot(data)
    assert X.shape == (50, 60) and Y.shape == (50, 40) and (X.sum(axis=1) == 6).all() and (Y.sum(axis=1) == 4).all()
    next_tokens = np.eye(12)[np.roll(data.X.astype(int), -1, axis=1)]  # outputs that are right everywhere
    for outputs, inputs in ((Y, X), (next_tokens, data.X)):
        network = SimpleNamespace(predict=lambda X, backend, outputs=outputs: outputs)
        assert sums.digits_right(network, inputs, data).all()
    network = SimpleNamespace(predict=lambda X, backend: np.roll(Y, 10, axis=1))
    assert not sums.digits_right(network, X, data).all()
