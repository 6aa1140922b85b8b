"""README's tables are those of the committed results; contenders run. No time is asserted."""

import json

import numpy as np
import pytest

from benchmarks import tables
from benchmarks.contenders import CASES, CPU, data


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_results_name_their_machine_and_versions(name):
    result = json.loads((tables.RESULTS / f"{name}.json").read_text())
    assert result["machine"] and result["date"] and result["versions"]["torch"] and result["limits"]["copy"] > 0
    assert result["seconds"].keys() == CASES.keys()
    for times in result["seconds"].values():
        assert "PyTorch eager" in times and len(times) > 2
        assert all(len(values) == len(times["PyTorch eager"]) and min(values) > 0 for values in times.values())


def test_readme_holds_the_tables_of_the_results():
    text = (tables.ROOT / "README.md").read_text()
    assert "<!-- table cpu -->" in text and "<!-- table gpu -->" in text
    assert tables.with_tables(text) == text, "README.md is behind benchmarks/results: python -m benchmarks.tables"


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if not case.operation])
def test_contenders_take_a_step_on_the_same_batch(name):
    case = CASES[name]
    X, Y = data(case)
    assert X.shape == (case.batch, case.sizes[0]) and Y.shape == (case.batch, case.sizes[-1])
    assert X.dtype == Y.dtype == np.float32
    for contender, needed in (("nncourse numpy", "numpy"), ("scikit-learn", "sklearn"), ("PyTorch eager", "torch")):
        pytest.importorskip(needed)
        work, times = CPU[contender](case)
        work()
        assert times >= 1
