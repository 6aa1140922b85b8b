"""The benchmarks of several devices: their numbers, and all of it on the CPU with two processes."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import MPI

from benchmarks import devices_cpu, devices_gpu, experiment
from nnclassroom import commands
from nncourse import device as devices
from nnexperiment import runs
from nnexperiment.plan import jobs


def record(library, devices, rate, joules=(), round=1):
    energies = [
        {"name": "", "kind": "gpu", "number": n, "joules": value, "seconds": 10.0, "idle_watts": 10.0}
        for n, value in enumerate(joules)
    ]
    about = {"library": library, "devices": devices, "round": round, "images": 10 * rate}
    return about | {"images_a_second": rate, "seconds_a_step": 1 / rate, "energies": energies}


def test_what_two_gain_is_over_the_mean_of_each_alone():
    records = [record("x", [0], 90.0), record("x", [1], 110.0), record("x", [0, 1], 198.0)]
    records += [record("x", [0, 1], 150.0, round=2), record("x", [0, 1], 197.0, round=3)]
    found = devices_gpu.scaling([*records, record("y", [0], 50.0)])
    together = next(each for each in found if each["devices"] == [0, 1])
    assert together["over_alone"] == pytest.approx(1.97) and together["efficiency"] == pytest.approx(0.985)
    assert together["rounds"] == [198.0, 150.0, 197.0] and "joules" not in together
    assert [each["over_alone"] for each in found if len(each["devices"]) == 1] == pytest.approx([1, 1, 1])


def test_equal_energy_in_half_the_time_is_half_the_edp():
    records = [record("x", [0], 100.0, (3000.0, 500.0)), record("x", [1], 100.0, (500.0, 3000.0))]
    records.append(record("x", [0, 1], 200.0, (3000.0, 3000.0)))
    *_, together = devices_gpu.scaling(records)
    assert together["joules"] == pytest.approx(6000 * devices_gpu.IMAGES / 2000)
    assert together["joules_over_alone"] == pytest.approx(1) and together["edp_over_alone"] == pytest.approx(0.5)
    assert together["joules_of_all_over_alone"] == pytest.approx(6 / 7)
    assert together["joules_above_idle"] == pytest.approx((6000 - 2 * 100) * devices_gpu.IMAGES / 2000)


def test_a_gpu_without_a_counter_leaves_the_energy_out():
    assert devices_gpu.consumption(record("x", [0, 1], 100.0, (5.0,))) == {}


@MPI
@pytest.mark.full
def test_all_of_it_runs_on_the_cpu_with_two_processes(tmp_path, capfd):
    if devices.gpu_count():
        pytest.skip("there are GPUs here: run the benchmark itself")
    out = tmp_path / "found.json"
    assert devices_gpu.main(["--quick", "--only", "nncourse", "--out", str(out)]) == 0, capfd.readouterr().err
    found = json.loads(out.read_text())
    assert [each["devices"] for each in found["records"]] == [[0], [1], [0, 1]]
    assert all(each["images_a_second"] > 0 for each in found["scaling"]) and found["left_out"] == {}
    assert found["setting"]["device"] == "cpu" and found["not_measured"]
    assert "nncourse on 0, 1" in capfd.readouterr().out


def test_without_gpus_there_is_one_line(capsys):
    if devices.gpu_count():
        assert devices_gpu.main(["--counts", "512"]) == 2
    else:
        assert devices_gpu.main([]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@MPI
@pytest.mark.full
def test_two_processes_on_the_cpu_are_compared_with_one(tmp_path, capfd):
    out = tmp_path / "found.json"
    options = ["--rounds", "1", "--rows", "16", "--samples", "64", "--out", str(out)]
    assert devices_cpu.main(options) == 0, capfd.readouterr().err
    found = json.loads(out.read_text())
    assert found["seconds"]["16"].keys() == {devices_cpu.ALONE, devices_cpu.WHOLE, "2 processes"}
    assert all(seconds > 0 for (seconds,) in found["seconds"]["16"].values()) and min(found["exchange"]) > 0
    (row,) = (line for line in devices_cpu.table(found).splitlines() if line.startswith("| 16 |"))
    ratio = found["seconds"]["16"][devices_cpu.ALONE][0] / found["seconds"]["16"]["2 processes"][0]
    assert f"| {ratio:.2f} |" in row


def test_without_mpi_a_benchmark_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert devices_cpu.main(["--out", str(tmp_path / "found.json")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_every_recorded_experiment_is_a_command_that_can_be_and_starts_only_if_there_is_time(tmp_path, monkeypatch):
    planned, begun = [], []
    monkeypatch.setattr(runs, "run_all", lambda plan, wanted, folder, *rest: planned.append(jobs(plan, wanted)) or 3)
    for record in experiment.RECORDS:
        network = "mnist" if record.folder == "mnist" else "resnet34"
        words = ["experiment", network, *record.options.split(), "--out", str(tmp_path)]
        assert commands.main(words) == 3  # as run_all ended
    assert [job.name for job in planned[0]][:3] == [f"gpu1-batch{n}-run{k}" for k, n in ((1, 128), (1, 256), (2, 128))]
    kinds = {job.devices.kind for some in planned for job in some}
    assert kinds == {"cpu", "gpu", "group", "hybrid", "pytorch"}  # the thesis's environments, and its library

    def run(words):
        begun.append(words)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(experiment.subprocess, "run", run)
    monkeypatch.setattr(devices, "gpu_count", lambda: 0)
    monkeypatch.setattr(sys, "argv", ["experiment", "--limit", "100", "--out", str(tmp_path / "new")])
    assert experiment.main() == 0
    least = [record.folder for record in experiment.RECORDS if record.seconds < 100 and record.gpus == 1]
    assert [Path(words[words.index("--out") + 1]).name for words in begun] == least
