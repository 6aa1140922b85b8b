"""New parts of a GPU run join earlier results; their tables; and two packages compared side by side."""

import copy
import datetime
import json
import os

import pytest

from benchmarks import before_after, digits, gpu, merging, tables, workers
from benchmarks.contenders import CONTENDERS

TODAY = datetime.date.today().isoformat()


def results() -> dict:
    """Those of an earlier run, as benchmarks.gpu writes them."""
    step = {"batch": 10, "samples": 50_000, "seconds_a_step": 1e-6, "seconds_an_epoch": 5e-3, "rounds": [1e-6]}
    return {
        "date": "2026-01-01",
        "machine": "A GPU, 99 multiprocessors",
        "cpu": "A processor",
        "limits": {"copy": 1e12},
        "versions": {"python": "3.12.3", "torch": "2.11.0+cu130", "jax": "0.11.2"},
        "tables": {
            "epochs": [
                {"network": "784-30-10", "contender": "JAX scan", **step},
                {"network": digits.NAME, "contender": "of before", **step},
            ],
            "dense": [{"kernel": "cuBLAS"}],
        },
        "left_out": {f"{digits.NAME}, batch 32 / JAX scan": "failed", "784-30-10, batch 10 / PyTorch graph": "failed"},
    }


def digits_record(contender: str, seconds: float, **more) -> dict:
    facts = {"form": "", "difference": 4e-7, "error": 2e-6, "accuracy": 0.956, "steps": 1563}
    case = f"{digits.NAME}, batch 32"
    (found,) = gpu.epoch_records({case: {contender: [seconds]}}, group="digits", facts={case: {contender: facts}})
    return found | more


def convolution_record(layer: str, kernel: str, seconds: float, share) -> dict:
    about = {"layer": layer, "batch": 32, "pass": "forward", "kernel": kernel, "rounds": [seconds]}
    return about | {"seconds": seconds, "tflops": 12.34, "of_pytorch": share}


def accuracy_record(seed: int, epochs: int, accuracy: float, schedule: str = "constant") -> dict:
    training = {"seed": seed, "epochs": epochs, "rate": 0.001, "schedule": schedule, "samples": 50_000}
    return training | {"accuracy": accuracy, "seconds": 0.25, "kernel": "one_kernel"}


EPOCHS = [
    digits_record("nncourse steps", 2e-3, steps=200),
    digits_record("nncourse one_kernel", 10e-6),
    digits_record("JAX scan", 123e-6),
]
ACCURACIES = [accuracy_record(0, 1, 0.95), accuracy_record(1, 1, 0.96), accuracy_record(0, 10, 0.98, "cosine,10")]
CONVOLUTIONS = [
    convolution_record("64 channels, 37 × 50", "naive", 5e-3, 0.1),
    convolution_record("64 channels, 37 × 50", "PyTorch", 500e-6, 1.0),
    convolution_record("512 channels, 5 × 7", "PyTorch", 600e-6, 1.0),
]
NEW = {
    "digits": {
        "tables": {"epochs": EPOCHS},
        "left_out": {f"{digits.NAME}, batch 32 / PyTorch compile + graph": "RuntimeError: no compiler"},
    },
    "accuracies": {"tables": {"accuracies": ACCURACIES}},
    "convolutions": {
        "tables": {"convolutions": CONVOLUTIONS},
        "left_out": {f"512 channels, 5 × 7, {way} / naive": "wrong" for way in ("forward", "input gradient")},
        "versions": {"cudnn": "91900"},
    },
}


@pytest.fixture
def measured(monkeypatch):
    """What parts measure, without a GPU. Set the versions and the machine in the returned dictionary."""
    machine = {key: results()[key] for key in ("machine", "cpu", "limits", "versions")}

    def asked(work, request, limit):
        return copy.deepcopy(machine)

    def of_part(name, rounds, quick):
        found = {"tables": {name: [{"new": name, "network": name}]}, "versions": {}, "left_out": {}}
        return copy.deepcopy(found | NEW.get(name, {}))

    monkeypatch.setattr(workers, "asked_once", asked)
    monkeypatch.setattr(gpu, "contest", of_part)
    monkeypatch.setattr(gpu, "alone", of_part)
    monkeypatch.setattr(gpu, "join_floors", lambda tables: None)
    return machine


def test_new_parts_take_their_places_in_the_results_of_before(measured):
    before = results()
    measured["versions"]["torch"] = "2.11.0"  # as some sources write it
    found = gpu.run(["digits", "convolutions"], 1, False, before)
    assert before == results()
    assert found["tables"]["epochs"] == [before["tables"]["epochs"][0], *EPOCHS]
    assert found["tables"]["dense"] == before["tables"]["dense"] and len(found["tables"]["convolutions"]) == 3
    assert f"{digits.NAME}, batch 32 / JAX scan" not in found["left_out"]
    assert found["left_out"]["784-30-10, batch 10 / PyTorch graph"] == "failed"
    assert found["date"] == TODAY and found["versions"]["cudnn"] == "91900"
    assert found["dates"] == {"epochs": "2026-01-01", "dense": "2026-01-01", "digits": TODAY, "convolutions": TODAY}
    again = gpu.run(["convolutions"], 1, False, found)
    assert {key: again[key] for key in found} == found


@pytest.mark.parametrize("key", ["machine", "cpu", "torch"])
def test_on_another_machine_everything_is_measured(key, measured, capsys):
    (measured if key in measured else measured["versions"])[key] = "another"
    found = gpu.run(["digits"], 1, False, results())
    assert set(found["dates"]) == set(merging.PARTS) and f"{key} " in capsys.readouterr().out
    assert found["tables"]["dense"] == [{"new": "dense", "network": "dense"}]


def test_a_part_that_fails_does_not_stop_the_others(measured, monkeypatch):
    def fails(name, rounds, quick):
        raise workers.FailedError("no answer within 75 s")

    monkeypatch.setattr(gpu, "alone", fails)
    found = gpu.run(["accuracies", "digits"], 1, False)
    assert found["left_out"]["accuracies"] == "no answer within 75 s" and list(found["tables"]) == ["epochs"]


def test_parts_are_asked_for_with_commas(capsys):
    assert gpu.parts_of("digits,convolutions") == ["digits", "convolutions"]
    for arguments in (["--only", "digits,nothing"], ["--merge", "--quick"]):
        with pytest.raises(SystemExit):
            gpu.main(arguments)
    assert "nothing" in capsys.readouterr().err


def test_each_reason_belongs_to_a_part():
    for name, part in NEW.items():
        assert {merging.part_of(key) for key in part.get("left_out", {})} <= {name}
    assert merging.part_of("dense / stream_k") == "dense"
    assert merging.part_of("mnist") == "mnist" and merging.part_of("784-30-10, batch 10 / JAX scan") == "epochs"
    assert merging.part_of("PyTorch") == "convolutions" and merging.part_of("30-60-10-1, batch 10 / C, float") == "base"
    assert not CONTENDERS["base"].keys() & (CONTENDERS["gpu"].keys() | CONTENDERS["digits"].keys())


def test_contenders_with_another_accuracy_are_left_out():
    records = [digits_record(name, 1e-5) for name in ("a", "b")]
    records += [digits_record("c", 1e-5, accuracy=0.9), digits_record("d", 1e-5, accuracy=None)]
    agreeing, left_out = gpu.of_one_accuracy(records)
    assert [record["contender"] for record in agreeing] == ["a", "b", "d"]
    assert left_out == {f"{digits.NAME}, batch 32 / c": "90.0% of the test set right after an epoch, the others 95.6%"}


def test_the_tables_of_the_new_parts(measured):
    found = gpu.run(["digits", "accuracies", "convolutions"], 1, False)
    text = tables.gpu_tables(found)
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in text.splitlines() if line.startswith("| ")}
    assert rows["| nncourse steps¹"] == ["2,000", "3,126", "200 ×", "4 · 10⁻⁷", "95.60 % |"]
    assert rows["| nncourse one_kernel"][:3] == ["10.0", "15.6", "–"] and rows["| JAX scan"][2] == "12.3 ×"
    assert rows["| forward, naive"] == ["5,000; 12.3 (10 %)", "– |"]
    assert rows["| forward, PyTorch"] == ["500; 12.3", "600; 12.3 |"]
    for said in (
        "the last of 16",
        "¹ Timed for 200 steps",
        "after 1 epoch at rate 0.001 95.50 % of the test set right, at least 95.00 %, 0.250 s at most; after 10 epochs",
        "schedule `cosine,10` 98.00 %",
        "PyTorch compile + graph for digits CNN (RuntimeError: no compiler)",
        "naive for 512 channels (wrong)",
    ):
        assert said in text, said


def test_other_days_are_told():
    dates = {"dense": "2026-01-01", "digits": "2026-01-02"}
    text = tables.gpu_tables(results() | {"tables": {}, "date": "2026-01-02", "dates": dates})
    assert "2026-01-02 (dense: 2026-01-01); python" in text


# ---- side by side


def test_two_packages_are_asked_in_turn(tmp_path, monkeypatch, capsys):
    (tmp_path / "nncourse").symlink_to(tables.ROOT / "nncourse")
    monkeypatch.setitem(before_after.CONTENDERS, "cpu", ("nncourse numpy",))
    case, out = "step 30-60-10-1, batch 10", tmp_path / "times.json"
    arguments = ["cpu", "--old", str(tmp_path), "--rounds", "2", "--cases", case, "--out", str(out)]
    assert before_after.main(arguments) == 0
    found = json.loads(out.read_text("utf-8"))
    assert found["files"] == {"before": os.fspath(tmp_path / "nncourse"), "after": os.fspath(tables.ROOT / "nncourse")}
    rounds = {when: len(times) for when, times in found["seconds"][f"{case} / nncourse numpy"].items()}
    assert rounds == {"before": 2, "after": 2}
    assert case in capsys.readouterr().out


def test_ratios_of_two_packages():
    seconds = {"before": [1e-6, 2e-6, 3e-6], "after": [1.1e-6, 4e-6, 3e-6]}
    (head, line, left) = before_after.lines({"a / b": seconds}, {"c": "why"})
    assert "before" in head and line.split()[3:] == ["2.00", "3.00", "1.500", "1.100", "1.000", "to", "2.000"]
    assert left == "left out: c: why"


def test_without_the_other_package_nothing_is_measured(tmp_path, capsys):
    with pytest.raises(SystemExit):
        before_after.main(["cpu", "--old", str(tmp_path)])
    assert str(tmp_path) in capsys.readouterr().err
