"""benchmarks.gpu --quick: one card's parts, its page and its row in docs/speed.md. No test asserts a time."""

import copy
import json
import types

import pytest

from benchmarks import card_tables, cards, gpu, ladder, networks, tables, tensor_cores, workers
from nncourse import device
from nncourse.errors import CourseError
from nncourse.kernels import dense

MACHINE = {
    "machine": "NVIDIA Made Up Laptop GPU, 20 multiprocessors, 6 GiB, sm_75",
    "cpu": "A processor, 8 cores",
    "versions": {"python": "3.12.3", "cuda": "13.2", "driver": "580.1"},
    "limits": {"copy": 2.5e11, "matrix": 8e12},
}
KERNELS = {"cuBLAS": [2e-3], "naive": [0.2], "tiled": [8e-3], "vectorised": [4e-3], "double_buffered": [2.5e-3]}
WHY = "tensor cores multiply TF32 from sm_80 (Ampere) on, this GPU is sm_75"


def trained(rounds: int = 3, microseconds: float = 20) -> dict:
    def contender(factor: float, **facts) -> dict:
        return {"seconds_a_step": factor * microseconds * 1e-6, "rounds": [1e-6], "steps": 9} | facts

    there = {"nncourse cuda": contender(1, kernel="recorded", note=""), cards.EAGER: contender(50)}
    rows = [row | {"contenders": there | {card_tables.GRAPH: contender(4)}} for row in networks.listed()]
    found = [row for row in rows if row["row"] in cards.ROWS]
    return {"tables": {"networks": found}, "versions": {}, "left_out": {"784-30-10, batch 1 / A": "why " * 99}}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """What parts measure, without a GPU. Results are written to the returned folder."""
    of_part = {"dense": {"tables": {"dense": ladder.records(card_tables.SIDE, KERNELS, 8e12)}}}
    of_part["tensor_cores"] = {"tables": {}, "left_out": {"tensor_cores": WHY}}
    monkeypatch.setattr(device, "gpu_available", lambda: True)
    monkeypatch.setattr(workers, "asked_once", lambda *_: copy.deepcopy(MACHINE))
    monkeypatch.setattr(gpu, "alone", lambda name, *_: {"versions": {}, "left_out": {}} | of_part[name])
    monkeypatch.setattr(cards, "training", trained)
    monkeypatch.setattr(gpu, "RESULTS", tmp_path)
    return tmp_path


def test_a_card_has_a_page_and_a_row(measured, capsys):
    assert tables.table("cards", measured) == card_tables.MISSING
    assert gpu.main(["--quick"]) == 0
    page = capsys.readouterr().out.split("\n\n", 1)[1]
    lines = page.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= card_tables.WIDTH
    for said in (MACHINE["machine"], "driver 580.1", "copy 250 GB/s", "product 8 TFLOP/s", "80.0%", WHY, "784-128-10"):
        assert said in page, said
    assert [path.name for path in measured.iterdir()] == ["card-nvidia-made-up-laptop-gpu.json"]
    head, _, row = tables.table("cards", measured).splitlines()[2:]
    assert [cell.strip() for cell in head.split("|")][4:10] == [
        *(f"`{name}`" for name in card_tables.SHOWN),
        *(f"row {number}, µs" for number in cards.ROWS),
    ]
    cells = [cell.strip() for cell in row.split("|")][1:-1]
    assert cells[:6] == [MACHINE["machine"], "250", "8", "25.0 %", "50.0 %", "80.0 %"]
    assert cells[6:9] == ["20 (4×)"] * 3 and cells[9].endswith(", cuda 13.2, driver 580.1")


def test_parts_that_failed_leave_gaps(measured):
    saved = MACHINE | {"date": "2026-01-01", "tables": {}, "left_out": {"dense": "no answer within 75 s"}}
    assert card_tables.page(saved).endswith("not measured: dense: no answer within 75 s")
    for name, found in (("a", saved), ("b", saved | {"tables": trained()["tables"]})):
        (measured / f"card-{name}.json").write_text(json.dumps(found))
    first, second = tables.table("cards", measured).splitlines()[4:]
    assert first.count("| – ") == 6 and second.count("| – ") == 3


def test_training_that_disagrees_with_the_reference_is_a_wrong_result(monkeypatch):
    def asked(self, name, what, row, limit):
        raise workers.FailedError("DisagreesError: the parameters after 20 steps are off by 1")

    monkeypatch.setattr(networks.Team, "ask", asked)
    with pytest.raises(workers.WrongResultError, match="784-128-10, batch 32: Disagrees"):
        cards.training(1, device="cpu", backend="numpy")


def test_a_wrong_result_is_not_written(measured, monkeypatch, capsys):
    def wrong(*_):
        raise workers.WrongResultError("tiled is off")

    monkeypatch.setattr(gpu, "alone", wrong)
    assert gpu.main(["--quick"]) == 1 and "tiled is off" in capsys.readouterr().err
    assert not list(measured.iterdir())


def test_with_only_small_sizes_are_tested_and_nothing_is_written(measured, capsys):
    assert gpu.parts_of("all") == list(gpu.PARTS)
    assert gpu.main(["--quick", "--only", "dense"]) == 0 and "| tiled |" in capsys.readouterr().out
    assert not list(measured.iterdir())


def test_a_kernel_that_does_not_run_is_left_out_of_the_ladder(monkeypatch):
    def contenders(A, W, b, Z, names=None):
        return made(A, W, b, Z, ["numpy"]) | ({} if names else {"new": fails})

    def fails():
        raise CourseError("new: needs sm_99\nmore")

    made = ladder.contenders
    monkeypatch.setattr(ladder, "contenders", contenders)
    found = cards.ladder(96, 1, "cpu")
    assert [record["kernel"] for record in found["dense"]] == ["cuBLAS", "numpy"]
    assert found["left_out"] == {"dense / new": "new: needs sm_99"}


def test_tensor_cores_that_the_card_lacks_are_left_out(monkeypatch):
    def products(sizes, rounds, left_out):
        return [sizes]

    monkeypatch.setattr(tensor_cores, "products", products)
    of = types.SimpleNamespace
    new, old = (of(name=name, mantissa=10, missing=lambda why=why: why) for name, why in (("new", WHY), ("old", "")))
    for kernels, found in (((new,), {}), ((new, old), {"tensor_cores": [(64, 64, 64)]})):
        monkeypatch.setattr(dense, "dense_forward", of(kernels={each.name: each for each in kernels}))
        assert cards.tensor_cores(64, 1) == found | {"left_out": {"new": WHY}}


def test_training_on_the_cpu_without_pytorch(monkeypatch):
    monkeypatch.setattr(networks.networks, "not_installed", lambda names: dict.fromkeys(names, "not installed"))
    found = cards.training(1, (3,), "cpu", "numpy")
    (record,) = found["tables"]["networks"]
    assert record["layers"] == "64,30,10" and record["contenders"]["nncourse numpy"]["error"] < 0.02
    assert record["contenders"].keys() == {"nncourse numpy"} and found["left_out"] == {cards.EAGER: "not installed"}
