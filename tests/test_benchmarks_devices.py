"""The benchmark of data-parallel training on the CPU runs, and its table says what was measured."""

import json

from processes import mpiexec

from benchmarks import devices_cpu, tables


def test_it_runs(tmp_path, capsys):
    mpiexec()
    out = tmp_path / "devices_cpu.json"
    assert devices_cpu.main(["--rounds", "1", "--rows", "64", "--samples", "1000", "--out", str(out)]) == 0
    found = json.loads(out.read_text("utf-8"))
    times = found["seconds"]["64"]
    assert set(times) == {"one process", "one process, whole epochs", "2 processes"}
    assert all(len(rounds) == 1 and rounds[0] > 0 for rounds in times.values())
    assert len(found["exchange"]) == 15 and "numpy" in found["versions"] and "mpi" in found["versions"]
    assert tables.table("devices_cpu", tmp_path) in capsys.readouterr().out.replace("now", found["date"])


def test_its_table_has_the_median_of_the_rounds_efficiencies():
    """Not the efficiency of medians: alone and together are near each other in time."""
    times = {
        "one process": [1e-3, 1e-3, 3e-3],
        "one process, whole epochs": [0.9e-3] * 3,
        "2 processes": [2e-3, 1.25e-3, 3e-3],
    }
    about = {"machine": "A processor", "date": "2026-01-01", "versions": {"nncourse": "1", "numpy": "2"}}
    result = {"sizes": [784, 192, 10], "samples": 5000, "processes": 2, "exchange": [1e-4, 3e-4, 2e-4]} | about
    lines = devices_cpu.table(result | {"seconds": {"1024": times}}).splitlines()
    assert lines[2] == "| 1,024 | 1.00 | 0.90 | 2.00 | 0.80 | 0.50 to 1.00 |"
    assert "784-192-10" in lines[-1] and "takes 200 µs. A processor; 2026-01-01; numpy 2." in lines[-1]
