"""The pages' tables match the results, contenders agree, and floors are counted correctly. No test asserts a time."""

import dataclasses
import datetime
import importlib
import json
import os
import sys
import time

import numpy as np
import pytest

from benchmarks import compare, counts, floors, gpu, ladder, learning, sanitizers, saved, tables, trainers, workers
from benchmarks.contenders import CASES, CONTENDERS, CPU, Case, data
from cuda_on_cpu import nvrtc
from cuda_on_cpu.text import CudaSource
from fused_epochs import dense_one_kernel
from fused_epochs.dense_one_kernel import CLUSTER, CLUSTERS, GRID, Chip, plan
from fused_epochs.dense_plain import why_not
from nnclassroom.judge import check
from nncourse import device
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch
from nnexperiment.trainers import jax_training, pytorch_training
from nnexperiment.trainers.training import CHECKED, Trainer

H200, SMALL = Chip(227 * 1024, 132, True), Chip(99 * 1024, 4, False)
SIZES = DenseArchitecture((9, 7, 4, 2), ("sigmoid",) * 3, "mse")
A_CASE = Case("30-60-10-1, batch 10", (30, 60, 10, 1), 10, samples=1000)


# ---- results and tables


def test_the_pages_hold_the_tables_of_the_results():
    texts = {page.name: page.read_text("utf-8") for page in tables.PAGES}
    places = {"README.md": ["recorded"], "speed.md": ["cpu", "gpu"], "confirmed.md": ["counts", "sanitizers"]}
    assert all(f"<!-- table {name} -->" in texts[page] for page, names in places.items() for name in names)
    for text in texts.values():
        assert tables.with_tables(text) == text, "behind benchmarks/results: run python -m benchmarks.tables"


def test_counts_that_differ_are_shown():
    same = dict.fromkeys(counts.METRICS, 8)
    unlike = [{"requests read": 4}, {"requests read": 9}, {"sectors write": 6}, {"conflicts read": 1}]
    rows = [
        {"operation": "relu", "kernel": "naive", "emulator": same, "gpu": same | each, "gpu, as written": written}
        for each, written in zip([{}, *unlike], [same, same, same, same | {"sectors write": 6}, same], strict=True)
    ]
    said, (head, *lines) = counts.words_and_rows({"counts": rows})
    assert said.startswith("Of 5 CUDA kernels, each launched once on a small case, 4 have")
    assert "1 as always, 4 as they are written" in said and "4 have the same sectors" in said
    assert len(lines) == 4 and lines[0][1:3] == ["4 / 8 / 8", "8"]


def test_findings_are_counted_by_kind_beside_the_tool_that_is_meant_for_them():
    found = {"bounds": "memcheck", "race": "", "wrong value": "initcheck", "const": ""}
    rows = [{"emulator": kind, "unset": kind == "wrong value", tool: True} for kind, tool in found.items()]
    _, (_, *lines) = sanitizers.words_and_rows({"mutants": rows})
    expected = "1 memcheck: 1; 1 racecheck: 0; 0 synccheck: 0; 1 initcheck: 1; 1 any of the four: 0"
    assert "; ".join(" ".join(line[1:]) for line in lines) == expected


def part(what: str, value: float, unit: str) -> dict:
    return {"what": what, "value": value, "unit": unit}


def made_up_result() -> dict:
    """A results file as benchmarks.gpu writes it, with times that are easy to follow."""
    times = {"nncourse one_kernel": [4e-6, 2e-6, 3e-6], "PyTorch eager": [900e-6] * 3, "JAX scan": [30e-6] * 3}
    base = {"C": [60e-6] * 3, "nncourse one_kernel, GPU": [2e-6, 3e-6, 4e-6]}
    epochs = gpu.epoch_records({"784-30-10, batch 10": times, "30-60-10-1, batch 10": {"JAX scan": [15e-6]}})
    architecture = DenseArchitecture((784, 30, 10), ("sigmoid",) * 2, "mse")
    parts = {"block_barrier": 2e-8, "cluster_barrier": 2e-7, "shared_reads": 2.5e11, "multiply_add": 4.5e11}
    floor = floors.floor(plan(architecture, 10, H200), architecture, 10, parts)
    result = {
        "machine": "A GPU",
        "cpu": "A processor",
        "date": "2026-01-01",
        "versions": {"nncourse": "0.1.0", "cupy": "14.2.0", "driver": "580.1"},
        "limits": {"copy": 1e12, "matrix": 5e13},
        "left_out": {"mnist": "no data", "a / JAX scan": "none", "b / JAX scan": "none"},
        "tables": {
            "epochs": epochs,
            "floors": [{"network": "784-30-10", "batch": 10, **floor}],
            "parts": [part("barrier", 2e-8, "s"), part("reads", 2.5e11, "B/s")],
            "base": gpu.epoch_records({"784-30-10, batch 10": base}, group="base"),
            "dense": ladder.records(4096, {"cuBLAS": [2e-3], "tiled": [8e-3, 6e-3, 7e-3]}, 7e13),
            "credit_card": [
                {"backend": name, "data": "CC", "samples": 9, "epochs": 3, "seconds": seconds, "cost": 0.1}
                for name, seconds in (("numpy", 4.0), ("cuda one_kernel", 0.25))
            ],
        },
    }
    gpu.join_floors(result["tables"])
    return result


def test_the_tables_of_a_made_up_result(tmp_path):
    result = made_up_result()
    (tmp_path / "gpu.json").write_text(json.dumps(result))
    text = tables.with_tables("before\n<!-- table gpu -->\nold\n<!-- end -->\nafter", tmp_path)
    assert text.startswith("before\n") and text.endswith("\nafter") and "old" not in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    of = {row[0].removeprefix("| "): row for row in rows}
    epoch_row = next(row for row in rows if row[0] == "| 784-30-10, batch 10" and "(10×)" in row[1])
    assert epoch_row[1:] == ["3.00 (10×)", "900 (0.033×)", "30.0 |"]
    assert of["C"][1:] == ["60.0 |"] and of["nncourse one_kernel, GPU"][1:] == ["3.00 (20×) |"]
    assert of["30-60-10-1, batch 10"][1:3] == ["–", "–"]
    assert of["tiled"][1:] == ["7.00", "19.6", "28.6 %", "28.0 % |"] and of["cuBLAS"][3] == "100.0 %"
    about = ("A GPU", "driver 580.1", "mnist (no data)", "JAX scan for a, b (none)", "8 × 224, cluster")
    for said in (*about, "barrier 0.020 µs", "reads 250 GB/s", "numpy 4.00 s, cuda one_kernel 0.250 s"):
        assert said in text, said


def test_a_run_on_the_cpu_shows_its_speedups_over_pytorch_and_training_over_c():
    seconds = {
        "step 30-60-10-1, batch 10": {"C": [8e-6], "nncourse numba, fused": [4e-6], "PyTorch eager": [2e-5]},
        "dense_forward 784 to 192, batch 50": {"PyTorch eager": [1e-4]},
    }
    about = {"machine": "A processor", "threads": 1, "date": "2026-01-01", "versions": {}}
    rows = [line for line in tables.call_table({"seconds": seconds} | about).splitlines() if line.startswith("| ")]
    assert rows[0] == "| µs a call | nncourse numba, fused | PyTorch eager |"
    assert rows[1] == "| step 30-60-10-1, batch 10 | 4.00 (5×) | 20.0 |"
    assert rows[3] == "| µs a step | step 30-60-10-1, batch 10 |"
    assert rows[4:] == ["| C | 8.00 |", "| nncourse numba, fused | 4.00 (2×) |", "| PyTorch eager | 20.0 (0.4×) |"]


def test_recorded_steps_show_their_speedups_over_pytorch(tmp_path):
    head = {"network": "784-30-10", "batch": 10, "optimizer": "sgd"}
    times = {"naive, recorded": 5e-5, "PyTorch eager": 5e-4, "PyTorch graph": 2e-5}
    records = [head | {"contender": name, "seconds_a_step": seconds} for name, seconds in times.items()]
    about = {"machine": "A GPU", "cpu": "A processor", "date": "2026-01-01", "versions": {"cuda": "13.2"}}
    (tmp_path / "recorded.json").write_text(json.dumps(about | {"records": records}))
    rows = tables.table("recorded", tmp_path).splitlines()
    assert rows[0] == "| µs a step | naive, recorded | PyTorch eager | PyTorch graph |"
    assert rows[2] == "| 784-30-10, batch 10, sgd | 50.0 (10×) | 500 | 20.0 (25×) |"
    assert rows[-1].startswith("A GPU; A processor; 2026-01-01; cuda 13.2.")


def test_mnist_is_told_by_mean_and_minimum():
    result = made_up_result()
    one = {"epochs": 30, "samples": 50_000, "rate": 3.0, "kernel": "one_kernel", "accuracy": 0.95, "seconds": 0.5}
    result["tables"] = {"mnist": [one, one | {"accuracy": 0.94, "seconds": 0.75}]}
    text = tables.gpu_tables(result)
    assert "2 seeds: 94.50 %" in text and "at least 94.00 %" in text and "0.75 s" in text


def test_without_a_gpu_there_is_one_line_and_status_2(capsys):
    if device.gpu_available():
        pytest.skip("there is a GPU here")
    assert gpu.main([]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["cpu", "gpu", "overheads", "recorded", "tensor_cores", "waits"])
@pytest.mark.parametrize("place", [".", "no_folder/results.json"])
def test_what_cannot_be_written_is_refused_before_anything_is_measured(name, place, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--out", str(tmp_path / place)])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{name}").main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and str(tmp_path) in said.err and not said.out


def test_a_run_is_saved_with_the_day(tmp_path, capsys):
    saved.save({"machine": "µ"}, tmp_path / "new.json")
    found = json.loads((tmp_path / "new.json").read_text("utf-8"))
    assert found == {"date": datetime.date.today().isoformat(), "machine": "µ"}
    assert str(tmp_path / "new.json") in capsys.readouterr().out


# ---- contenders


@pytest.mark.parametrize("name", [name for name, case in CASES["cpu"].items() if case.sizes and not case.operation])
@pytest.mark.full
def test_contenders_on_the_cpu_take_steps_of_the_same_case(name):
    case = CASES["cpu"][name]
    X, Y = data(case)
    assert X.shape == (case.batch, case.sizes[0]) and Y.shape == (case.batch, case.sizes[-1])
    assert X.dtype == Y.dtype == np.float32
    needed = {"nncourse numpy": "numpy", "nncourse numpy, fused": "numpy", "nncourse numba, fused": "numba"}
    for contender, module in {**needed, "scikit-learn": "sklearn", "PyTorch eager": "torch"}.items():
        pytest.importorskip(module)
        work, times = CPU[contender](case)
        work()
        assert times >= 1


@pytest.mark.full
def test_the_plain_c_program_runs_beside_the_others_and_is_right():
    """In the run on the CPU, and in the one on a GPU, where each is compared with the reference first."""
    if said := why_not("c"):
        pytest.skip(said)
    work, times = CPU["C, fast"](CASES["cpu"]["step 30-60-10-1, batch 10"])
    work()
    assert times == 200
    names = ["C", "C, float, fast", "nncourse numpy, fused", "nncourse one_kernel, GPU"]
    found = compare.compare("base", 1, quick=True, cases=["30-60-10-1, batch 10"], names=names)
    assert {"C", "C, float, fast", "nncourse numpy, fused"} <= found["seconds"]["30-60-10-1, batch 10"].keys()
    assert found["left_out"].keys() <= {"30-60-10-1, batch 10 / nncourse one_kernel, GPU"}


TRAINERS = {
    "numpy": ("numpy", trainers.ours("numpy", "numpy")),
    "steps": ("numpy", trainers.ours("numpy", "steps")),
    "eager": ("torch", pytorch_training.eager("cpu")),
    "JAX": ("jax", jax_training.scan("cpu")),
}


@pytest.mark.parametrize("name", TRAINERS)
def test_trainers_agree_with_the_reference(name):
    needed, make = TRAINERS[name]
    pytest.importorskip(needed)
    work, times = trainers.checked(make)(A_CASE)  # raises if it does not
    work()
    assert times == A_CASE.samples // A_CASE.batch


def test_some_steps_of_an_epoch_may_be_timed():
    assert trainers.checked(trainers.ours("numpy", "numpy"), steps=60)(A_CASE)[1] == 60


def epoch(parameters, problem, X, Y, rate=trainers.RATE):
    dense_sgd_epoch["numpy"](parameters, DenseArchitecture.of(problem.network), X, Y, problem.batch, rate)


def wrong_rate(parameters, problem, X, Y):
    epoch(parameters, problem, X, Y, 1.001 * trainers.RATE)


def no_last_batch(parameters, problem, X, Y):
    epoch(parameters, problem, X[: -problem.batch], Y[: -problem.batch])


def inputs_of_ten_bits(parameters, problem, X, Y):
    """As TF32 does, though only to the data."""
    epoch(parameters, problem, (X.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32), Y)


def nothing_at_all(parameters, *others):
    parameters[0] = np.nan


@pytest.mark.parametrize("train", [wrong_rate, no_last_batch, inputs_of_ten_bits, nothing_at_all])
def test_a_wrong_trainer_is_refused(train):
    def make(problem):
        def steps_of(steps):
            rows = slice(steps * problem.batch)
            train(there, problem, problem.X[rows], problem.Y[rows])

        there = problem.parameters.copy()
        return Trainer(lambda: None, steps_of, lambda: there)

    with pytest.raises(workers.WrongResultError):
        trainers.checked(make)(A_CASE)


def test_contenders_are_asked_in_turn_and_the_missing_are_left_out():
    case = "step 784-30-10, batch 10"
    cases = [case, "dense_forward 784 to 192, batch 50"]
    found = compare.compare("cpu", 2, quick=True, cases=cases, names=["nncourse numpy", "nncourse numpy, fused"])
    assert [len(values) for values in found["seconds"][case].values()] == [2, 2]
    assert found["versions"]["numpy"] == np.__version__
    (key,) = found["left_out"]
    assert key == f"{cases[1]} / nncourse numpy, fused" and "dense layer" in found["left_out"][key]


@pytest.mark.full
def test_a_process_that_ends_or_is_wrong_says_so():
    with pytest.raises(workers.FailedError, match="status 3"):
        workers.asked_once(_ends, 3, 60)
    with pytest.raises(workers.WrongResultError, match="7 is wrong"):
        workers.asked_once(_is_wrong, 7, 60)
    with pytest.raises(workers.FailedError, match="no answer"):
        workers.asked_once(_sleeps, 60, 3)


def _ends(status):
    os._exit(status)


def _is_wrong(number):
    raise workers.WrongResultError(f"{number} is wrong")


def _sleeps(seconds):
    time.sleep(seconds)


def test_contenders_for_the_gpu_cover_what_is_compared():
    assert {"PyTorch eager", "JAX scan", "nncourse steps", "nncourse one_kernel"} <= CONTENDERS["gpu"].keys()
    for case in CASES["gpu"].values():
        assert case.samples % (case.batch * CHECKED) == 0


def test_the_ladder_on_the_cpu():
    found = ladder.measure(96, 2, "cpu", ["numpy"])
    assert [record["kernel"] for record in found] == ["cuBLAS", "numpy"] and found[0]["of_cublas"] == 1
    with pytest.raises(workers.WrongResultError):
        ladder.refuse_wrong("broken", np.ones((3, 3)), np.full((3, 3), 1.001))


def test_learning_on_the_cpu(real_data):
    (found,) = learning.mnist(1, 1, "numpy", "numpy")
    assert found["accuracy"] > 0.85 and found["seconds"] > 0
    first, second = learning.credit_card(1, (("numpy", None), ("numpy", "operations")))
    assert second["backend"] == "numpy operations" and first["cost"] == pytest.approx(second["cost"], rel=1e-3)


def test_without_data_mnist_is_left_out(monkeypatch, tmp_path):
    monkeypatch.setenv("NNCOURSE_DATA", str(tmp_path))
    with pytest.raises(workers.FailedError, match="NNCOURSE_DATA"):
        learning.mnist(1, 1, "numpy", "numpy")


# ---- floors


def test_the_kernels_of_the_floors_compile():
    if nvrtc.why_no_nvrtc():
        pytest.skip(nvrtc.why_no_nvrtc())
    for arch in ("sm_80", "sm_90"):
        for used in nvrtc.compile_check(floors.source(8), arch).values():
            assert used.registers <= 64 and used.spill_bytes == 0  # or a block of 1024 threads would not start


def test_the_kernels_of_the_floors_run(emulator):
    for name, blocks in (("block", 1), ("cluster", 3), ("grid", 4)):
        work, done = floors.barrier(name, blocks, 64, 3)
        work()
        assert (done == 3).all() and len(done) == blocks
    work, sums = floors.shared_reads(2)
    work()
    assert (sums == 4 * 2 * floors.READS).all()
    work, sums = floors.multiply_add(2)
    work()
    assert np.allclose(sums, 2 * floors.CHAINS)  # x / 2 + 1 tends to 2


COUNTING = """
#ifdef CUDA_ON_CPU
#define SAY(sign) (threadIdx.x || blockIdx.x ? 0 : printf(sign))
#define begin_to_listen() (begin_to_listen(), SAY("G"))
#define __syncthreads() __syncthreads(), SAY("B")
#endif
"""


def run_steps(made, steps: int, **options) -> None:
    batch = 5
    sizes = {"architecture": SIZES, **SIZES.contract_sizes, "n": steps * batch, "batch": batch}
    case = check.random_case(dense_sgd_epoch, sizes)
    dense_one_kernel.one_kernel(*case.arguments, made=made, **options)


LAYOUTS = {
    "alone": plan(SIZES, 5, SMALL),
    "cluster": dataclasses.replace(plan(SIZES, 5, SMALL), blocks=2, meeting=CLUSTER),
    "grid": dataclasses.replace(plan(SIZES, 5, SMALL), blocks=3, meeting=GRID),
    "clusters": dataclasses.replace(plan(SIZES, 5, SMALL), blocks=16, meeting=CLUSTERS),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.full
def test_the_barriers_of_a_step_are_counted_right(name, emulator, monkeypatch, capsys):
    original = dense_one_kernel.source

    def counting(*arguments):
        source = original(*arguments)
        behind_the_barriers = (*source.before, CudaSource(COUNTING, "counting.cu"))
        return dataclasses.replace(source, before=behind_the_barriers)

    monkeypatch.setattr(dense_one_kernel, "source", counting)
    printed = []
    for steps in (1, 2):
        run_steps(LAYOUTS[name], steps)
        printed.append(capsys.readouterr().out)
    of_block, exchanges = (printed[1].count(sign) - printed[0].count(sign) for sign in "BG")
    block, *others = floors.barriers(LAYOUTS[name]).values()
    assert (of_block, exchanges) == (block, sum(others))


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.full
def test_the_bytes_of_a_step_are_no_more_than_threads_ask_for(name, emulator):
    made, asked_for = LAYOUTS[name], []
    for steps in (1, 2):
        traces = []
        run_steps(made, steps, record=traces)
        accesses, memories = traces[0].accesses, traces[0].memories
        size = np.array([memory.itemsize * memory.shared for memory in memories])
        mine = accesses[accesses["block"] == 0]
        asked_for.append(int((mine["cells"] * size[mine["memory"]]).sum()))
    counted = floors.shared_bytes_a_step(made, SIZES, 5)
    assert 0 < counted <= asked_for[1] - asked_for[0]


def test_floors_are_measured_for_the_plan_of_each_network(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", np)  # nothing is launched
    monkeypatch.setattr(floors, "this_chip", lambda: H200)
    monkeypatch.setattr(floors, "best", lambda work: 1e-3)
    cases = [(SIZES, 5), (DenseArchitecture((784, 30, 10), ("sigmoid",) * 2, "mse"), 10)]
    found = floors.measure(cases)
    layouts = [(record["network"], record["meeting"]) for record in found["floors"]]
    assert layouts == [("9-7-4-2", "alone"), ("784-30-10", "cluster")]
    assert found["floors"][1]["barriers"] == pytest.approx(2 * 1e-8 + 1e-7)
    assert {"FLOP/s", "B/s", "s"} == {part["unit"] for part in found["parts"]}


def test_floors_are_counts_over_rates():
    made = LAYOUTS["grid"]
    parts = {"block_barrier": 1e-8, "grid_barrier": 1e-6, "shared_reads": 2e11, "multiply_add": 4e11}
    found = floors.floor(made, SIZES, 5, parts)
    assert found["barriers"] == pytest.approx(2e-8 + 2e-6)
    assert found["arithmetic"] == pytest.approx(5 * SIZES.flops_a_sample / (3 * 4e11))
    assert found["shared_memory"] == pytest.approx(floors.shared_bytes_a_step(made, SIZES, 5) / 2e11)
    for seconds, limit in ((None, ""), (1.5e-6, "barriers"), (1e-4, "latency")):
        assert floors.limit(found | {"seconds_a_step": seconds}) == limit
