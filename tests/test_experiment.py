"""The thesis's experiment: its runs, numbers and page, and the whole of it once at tiny size."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pages import Page
from processes import MPI, in_processes, until, with_variable

from nnclassroom import commands
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.group import ALONE
from nncourse.model.loaders import as_floats
from nncourse.model.training import evaluate
from nncourse.parallel.simulation import simulate
from nnexperiment import numbers, one_run, page_accuracy, page_energy, runs, training
from nnexperiment import page as experiment_page
from nnexperiment.numbers import Experiment
from nnexperiment.one_run import run_job
from nnexperiment.plan import (
    Devices,
    Job,
    Plan,
    image_counts,
    job_called,
    jobs,
    make_experiment_network,
    make_parts,
    parsed_devices,
)
from nnexperiment.pytorch_run import PyTorchNetwork

ROOT = Path(__file__).resolve().parent.parent
TINY = Plan("small", runs=1, epochs=2, batch_sizes=(16,), images=8, height=24, width=32, cpu_steps=0)
UNEQUAL = "unequal2", "unequal2-alike"
CPU, GPU, GPUS = Devices("cpu", 1), Devices("gpu", 1), Devices("gpu", 2)


# ---- what is run


def test_devices_in_words_of_the_command_line():
    assert parsed_devices("cpu,1,2,2,cpu2") == [CPU, GPU, GPUS, Devices("cpu", 2)]
    unlike = parsed_devices("group1,cpu+1,cpu+2,cpu+cpu,pytorch2")
    assert [each.each for each in unlike] == [
        ["gpu"],
        ["cpu", "gpu"],
        ["cpu", "gpu", "gpu"],
        ["cpu", "cpu"],
        ["gpu"] * 2,
    ]
    assert [each.gpus for each in unlike] == [1, 1, 2, 0, 2]
    for wrong in ("", "gpu", "cpu,,1", "0", "1.5", "cpu-1", "group2", "cpu+0", "cpu+"):
        with pytest.raises(CourseError, match="expected"):
            parsed_devices(wrong)


def test_several_devices_get_a_batch_each_and_share_one_and_all_take_turns():
    found = jobs(Plan(runs=2), [CPU, GPU, GPUS])
    assert [job.name for job in found] == [
        "cpu1-batch128-run1",
        *("gpu1-batch128-run1", "gpu2-batch256-run1", "gpu2-batch128-run1"),
        *("gpu1-batch128-run2", "gpu2-batch256-run2", "gpu2-batch128-run2"),
    ]
    assert len(jobs(Plan(runs=2, cpu_steps=0), [CPU, GPU])) == 4
    sizes = Plan(runs=1, batch_sizes=(64, 128))
    assert [job.batch for job in jobs(sizes, [GPU, GPUS])] == [64, 128, 128, 64, 256]  # two with 64 each is 128, once
    unlike = jobs(sizes, parsed_devices("cpu+1"))
    assert [(job.batch, job.alike) for job in unlike] == [(64, False), (64, True), (128, False), (128, True)]
    assert all(job_called(sizes, job.name) == job for job in unlike)


def test_the_parts_are_the_thesis_and_of_each_class_alike():
    assert image_counts(Plan()) == (7_650, 180, 1_170)
    parts = make_parts(TINY)
    assert [len(part[1]) for part in (parts.train, parts.validation, parts.test)] == list(image_counts(TINY))
    for images, targets in (parts.train, parts.validation, parts.test):
        assert images.dtype == np.uint8 and images.shape[1:] == (1, 24, 32)
        assert len(set(targets.sum(axis=0))) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"network": "vgg"},
        {"runs": 0},
        {"images": 2},
        {"batch_sizes": (8, 0)},
        {"learning_rate": 0.0},
        {"send": "x"},
        {"validation": 0.9},
        {"validate_every": 0},
        {"cpu_share": 1.0},
        {"slow": 0.5},
    ],
)
def test_a_plan_that_cannot_be_is_refused(options):
    with pytest.raises(CourseError, match="expected") as caught:
        Plan(**options)
    assert str(caught.value).count("got") == 1 and len(str(caught.value)) < 90  # it names that one alone


def test_the_network_of_the_thesis_has_21_million_parameters():
    network = make_experiment_network(Plan("resnet34", height=32, width=32), 0)
    assert network.flat_parameters.size == 21_283_017 and network.sizes[-1] == 9


def test_a_run_can_be_repeated_and_says_what_it_took():
    plan = Plan("small", epochs=4, batch_sizes=(8,), images=12, height=18, width=24, cpu_steps=0)
    first, again = (run_job(plan, Job(CPU, 8, 0), make_parts(plan), ALONE, []) for _ in range(2))
    assert len(first["accuracies"]) == len(first["seconds"]["train"]) == 4
    assert first["accuracies"] == again["accuracies"] and first["accuracy"] == again["accuracy"]
    assert first["finite"] and first["energies"] == [] and not first["energy_is_trusted"]
    trained, _, tested = image_counts(plan)
    assert (first["images_an_epoch"], first["images_tested"]) == (trained, tested)
    assert json.loads(json.dumps(first)) == first


def test_threads_are_those_of_the_plan(tmp_path):
    assert run_job(TINY, Job(CPU, 16, 0), make_parts(TINY), ALONE, [])["threads"] == 1  # its products are small
    asked = replace(TINY, threads=3)
    assert run_job(asked, Job(CPU, 16, 0), make_parts(asked), ALONE, [])["threads"] == 3
    runs.settle(TINY, tmp_path)
    with pytest.raises(CourseError, match="threads 0, as in the experiment there; got 3"):
        runs.refuse_other(asked, tmp_path)


def test_runs_begin_with_weights_of_their_own_epochs_have_their_own_orders_and_something_is_learnt(monkeypatch):
    seeds, orders, trained, parts = [], [], [], make_parts(TINY)

    def network(plan, seed):
        seeds.append(seed)
        return make_experiment_network(plan, seed)

    def steps(own, order, rate, position):
        if rate == TINY.learning_rate:  # not those that warm up
            orders.append(order)
            trained.append(own.network)
        before(own, order, rate, position)

    before = training.Training.steps
    monkeypatch.setattr(one_run, "make_experiment_network", network)
    monkeypatch.setattr(training.Training, "steps", steps)
    for number in range(2):
        run_job(TINY, Job(CPU, 16, number), parts, ALONE, [])
    assert seeds == [0, 1] and len({tuple(order) for order in orders}) == len(orders) == 4
    assert all(sorted(order) == list(range(image_counts(TINY)[0])) for order in orders)
    X, Y, numpy = as_floats(parts.train[0], "cpu"), parts.train[1], choose("numpy")
    before, after = (evaluate(each, X, Y, numpy) for each in (make_experiment_network(TINY, 1), trained[-1]))
    assert after < before


@pytest.mark.parametrize(
    ("kind", "options"), [("cpu", {}), ("unequal", {"cpu_share": 0.2}), ("unequal", {"cpu_share": 0.2, "slow": 3.0})]
)
def test_two_members_come_to_what_one_does_and_unequal_ones_if_weighted_by_rows(kind, options):
    plan = Plan("small", epochs=3, batch_sizes=(16,), images=12, height=18, width=24, cpu_steps=0, **options)
    parts, rows = make_parts(plan), []
    alone = run_job(plan, Job(CPU, 16, 0), parts, ALONE, [])
    two = Job(Devices(kind, 2), 16, 0)
    for found in simulate(lambda group: run_job(plan, two, parts, group, [], on_rows=rows.append), 2).results:
        assert found["accuracies"] == alone["accuracies"] and found["accuracy"] == alone["accuracy"] > 0
        assert found["shares"] == ([0.2, 0.8] if options else None)
    trained, held, tested = image_counts(plan)
    assert {3, 13} <= set(rows) or not options  # a batch of 16
    assert sum(rows) >= 3 * (trained + held) + tested + 16 + trained % 16


def pytorch_on_the_cpu(group, count):
    """A run by PyTorch, with what would be on a GPU on the CPU."""
    plan = replace(TINY, epochs=3, images=12)
    Devices.each = property(lambda self: ["cpu"] * self.count)  # in a process of its own, or put back by the test
    return run_job(plan, Job(Devices("pytorch", count), 16, 0), make_parts(plan), group, [])


def test_a_run_by_pytorch_learns_what_ours_does(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(Devices, "each", Devices.each)
    plan = replace(TINY, epochs=3, images=12)
    ours = run_job(plan, Job(CPU, 16, 0), make_parts(plan), ALONE, [])
    found = pytorch_on_the_cpu(ALONE, 1)
    assert found["accuracies"] == ours["accuracies"] and found["accuracy"] == ours["accuracy"] > 0
    assert found["parameters"] == ours["parameters"] and found["finite"]
    assert numbers.label_of(found) == "PyTorch, 1 GPU, 16"


@pytest.mark.full
@MPI
def test_two_processes_by_pytorch_learn_what_one_does(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(Devices, "each", Devices.each)
    alone = pytorch_on_the_cpu(ALONE, 1)
    for found in in_processes(pytorch_on_the_cpu, 2, 2):
        assert found["accuracies"] == alone["accuracies"] and found["accuracy"] == alone["accuracy"]
        assert found["images_an_epoch"] == alone["images_an_epoch"]


def test_pytorch_has_the_weights_of_a_resnet(rng):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    network = make_experiment_network(Plan("resnet18", height=33, width=40), 3)
    there, X = PyTorchNetwork(network, choose("numpy"), ALONE), rng.random((3, 1, 33, 40), np.float32)
    there.model.load_state_dict(there.on(choose("numpy")).model.state_dict())
    wanted = network.outputs(X, choose("numpy")).A
    found = torch.softmax(torch.from_dlpack(there.outputs(X, choose("numpy")).A), 1).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_continued_plans_keep_all_batch_sizes_and_the_most_runs(tmp_path):
    runs.settle(replace(TINY, runs=3, batch_sizes=(16, 32)), tmp_path)
    runs.settle(replace(TINY, runs=1, batch_sizes=(8, 16)), tmp_path)
    there = runs.read_plan(tmp_path)
    assert there.runs == 3 and there.batch_sizes == (16, 32, 8)


def test_the_share_of_a_slower_process_is_smaller_by_measurement():
    plan = replace(TINY, epochs=1, slow=8.0)
    job = Job(Devices("unequal", 2), 64, 0)
    found = simulate(lambda group: run_job(plan, job, make_parts(plan), group, []), 2).results[0]["shares"]
    assert sum(found) == pytest.approx(1, abs=1e-5) and 1 / 70 < found[0] < found[1]


def test_every_kind_of_run_warms_up_and_all_processes_on_the_cpu_get_equal_cores(tmp_path, monkeypatch):
    rows = []
    run_job(TINY, Job(CPU, 16, 0), make_parts(TINY), ALONE, [], on_rows=rows.append)
    trained, held, tested = image_counts(TINY)
    epoch = [16] * (trained // 16) + [trained % 16]
    assert rows[:2] == [16, trained % 16]  # a batch of each size, before the first epoch
    assert rows[-(2 * len(epoch) + 3) :] == [*epoch, held, *epoch, held, tested]
    monkeypatch.setattr(runs, "usable_cores", lambda: 6)
    monkeypatch.setattr(runs, "refuse_missing", lambda wanted: None)
    for wanted, cores in (([CPU], 6), ([CPU, Devices("cpu", 2), GPU], 3), ([Devices("cpu", 8)], 1)):
        with pytest.raises(CourseError, match="ended with status 3 and left no result; run the same command again"):
            runs.run_all(TINY, wanted, tmp_path / str(cores), lambda folder, job: 3, lambda line: None)
        assert runs.read_plan(tmp_path / str(cores)).cores == cores


def test_validation_every_few_epochs_and_at_last():
    plan = replace(TINY, epochs=5, validate_every=2, validation=0.25, validation_batch=3)
    found = run_job(plan, Job(CPU, 16, 0), make_parts(plan), ALONE, [])
    assert found["validated"] == [2, 4, 5] and len(found["accuracies"]) == len(found["seconds"]["validation"]) == 3
    assert image_counts(plan)[1] == found["images_validated"] == 18
    ends = [*found["ends"]["train"], *found["ends"]["validation"]]
    assert (
        len(found["ends"]["train"]) == 5
        and max(ends) == found["ends"]["validation"][-1] >= sum(found["seconds"]["train"]) - 0.01
    )


def test_no_run_is_started_that_would_not_end_in_time(tmp_path):
    plan, said = replace(TINY, runs=3, epochs=1), []
    runs.run_all(plan, [CPU], tmp_path / "new", here, said.append, limit=5.0)  # less than starting is taken to last
    assert len(runs.results_in(tmp_path / "new")) == 1 and "2 runs are left" in said[-1]
    runs.run_all(plan, [CPU], tmp_path / "new", here, said.append)
    assert len(runs.results_in(tmp_path / "new")) == 3


def test_the_cpu_may_train_some_steps_only():
    plan = Plan("small", epochs=50, batch_sizes=(4,), images=8, height=12, width=16, cpu_steps=2)
    found = run_job(plan, Job(CPU, 4, 0), make_parts(plan), ALONE, [])
    assert found["partial"] and found["steps_an_epoch"] == 2 and found["images_an_epoch"] == 8
    assert found["accuracy"] is None and found["accuracies"] == []


# ---- what is computed


def result(kind, count, batch, run=1, seconds=100.0, watts=200.0, idle=70.0, gpus=2, **more):
    """A run of 10 epochs of 1,000 images on a machine of two GPUs; those that are not used are idle."""
    watts_of = [watts if kind == "gpu" and n < count else idle for n in range(gpus)]
    gpu = {"kind": "gpu", "seconds": seconds, "idle_watts": idle}
    energies = [gpu | {"name": f"GPU {n}, X", "number": n, "joules": w * seconds} for n, w in enumerate(watts_of)]
    parts = {"train": [0.08 * seconds] * 10, "validation": [0.01 * seconds] * 10, "test": [0.1 * seconds]}
    found = {"kind": kind, "count": count, "batch": batch, "run": run, "name": "", "partial": False, "epochs": 10}
    found |= {"steps_an_epoch": 8, "images_an_epoch": 1000, "images_tested": 100, "parameters": 5, "finite": True}
    found |= {"accuracies": [0.2 + 0.01 * run] * 10, "accuracy": 0.7 + 0.05 * run, "validated": list(range(1, 11))}
    found |= {"alike": False, "shares": None, "threads": 1, "images_validated": 20, "date": "2026-01-02T00:00:00"}
    found |= {"ends": {name: [0.1 * seconds * n for n in range(1, 11)] for name in ("train", "validation")}}
    found |= {"energies": energies, "energy_is_trusted": True, "memory": {"all": 1e9, "batch": 1e6}}
    found |= {"power": {"seconds": [1, 2], "watts": [[watts] * 2] * gpus}, "machine": "M", "versions": {"n": "1"}}
    return found | {"seconds": parts, "not_measured": []} | more


def measured(p=0.9):
    one = [result("gpu", 1, 128, run) for run in (1, 2)]
    return [*one, result("gpu", 2, 256, seconds=100 * (1 - p + p / 2)), result("gpu", 2, 128, seconds=60.0)]


def test_speedup_efficiency_and_amdahls_p():
    rows = numbers.rows_of(measured(), 10, 1000, 100)
    base = numbers.base_of(rows)
    assert [row.label for row in rows] == ["1 GPU, 128", "2 GPUs, 128 each", "2 GPUs, 64 each"]
    assert base is rows[0] and base.runs == 2 and base.total == pytest.approx(100)
    assert numbers.speedups(rows, base)[1] == pytest.approx((100 / 55, 100 / 55))
    found = numbers.series(rows, base)
    counts = {name: [row.count for row in some] for name, some in found.items()}
    assert counts == dict.fromkeys(("batch 128 per device", "batch 128 in total"), [1, 2])
    assert numbers.amdahl(found["batch 128 per device"], base) == pytest.approx(0.9, abs=1e-4)
    loops = [replace(row, loop=row.loop / row.count**2) for row in found["batch 128 per device"]]
    assert numbers.amdahl(loops, base) == pytest.approx(0.9, abs=1e-4)  # of whole runs, not of the loop
    assert rows[0].images_a_second == pytest.approx(125)
    assert rows[0].accuracy == pytest.approx((0.75, 0.775, 0.8))
    assert numbers.amdahl(rows[:1], base) is None


def test_accuracies_of_several_gpus_stand_beside_those_of_one_with_as_many_images():
    rows = numbers.rows_of([*measured(), result("gpu", 1, 64)], 10, 1000, 100)
    assert page_accuracy.beside_one(rows) == [
        "2 GPUs, 64 each: mean accuracy 75.0% in 1 run. 1 GPU, 128: 77.5% in 2 runs, from 75.0% to 80.0%."
    ]


@pytest.mark.parametrize("gpus", [1, 2])
def test_machines_with_unlike_numbers_of_gpus_are_told_where_energies_are_compared(gpus):
    results = [result("gpu", 1, 128, gpus=gpus), result("gpu", 2, 256)]
    text = page_energy.energy(Experiment("", Plan(), results))
    assert ("different numbers of GPUs" in text) == (gpus == 1)


def test_energy_of_what_is_used_above_idle_and_of_all():
    one, two = (numbers.consumed_by(each) for each in (result("gpu", 1, 128), result("gpu", 2, 256, seconds=50.0)))
    assert (one.used, one.all, one.above_idle) == pytest.approx((20_000, 27_000, 13_000))
    assert (two.used, two.all, two.above_idle) == pytest.approx((20_000, 20_000, 13_000))
    assert (one.edp_used, one.edp_above_idle, one.edp_all) == pytest.approx((2e6, 1.3e6, 2.7e6))
    assert two.edp_used / one.edp_used == pytest.approx(0.5)  # equal energy, half the EDP
    assert two.edp_all / one.edp_all == pytest.approx(0.5 * 20 / 27)
    assert numbers.consumed_by(result("cpu", 1, 128)) is None  # the GPUs' counters say nothing of the CPU
    assert numbers.consumed_by(result("gpu", 1, 128, energies=[])) is None
    assert numbers.consumed_by(result("gpu", 2, 128, gpus=1)) is None  # one of two has a counter


def test_no_energy_above_idle_is_told_where_idle_was_not_idle(tmp_path):
    busy = result("gpu", 1, 128)
    busy["energies"][0]["idle_watts"] = 250.0  # others computed when it was measured, and now it takes 200 W
    assert math.isnan(numbers.consumed_by(busy).above_idle)
    two = [busy, result("gpu", 1, 128, run=2)]
    assert numbers.rows_of(two, 10, 1000, 100)[0].consumed.above_idle == pytest.approx(13_000)  # of the run that knows
    page = page_of(tmp_path, [busy])
    assert not any(number in page.found["td"] for number in ("nan", "-5000"))
    assert "1 GPU, 128: idle was not idle" in " ".join(page.found["p"])


def test_some_steps_are_scaled_up_and_marked():
    partial = result("cpu", 1, 128, partial=True, epochs=1, steps_an_epoch=3, images_an_epoch=384, accuracy=None)
    partial["seconds"] = {"train": [38.4], "validation": [], "test": [1.0]}
    (row,) = numbers.rows_of([partial], 10, 1000, 200)
    assert row.partial == 3 and row.accuracy is None and row.consumed is None
    assert row.loop == pytest.approx(0.1 * 10 * 1000) and row.test == pytest.approx(2)


# ---- the page


def page_of(tmp_path, results, *others):
    experiment_page.write(tmp_path / "page.html", Experiment("", Plan(epochs=10), results), *others)
    return Page((tmp_path / "page.html").read_text("utf-8"))


def test_the_page_shows_numbers_beside_the_thesis(tmp_path):
    page = page_of(tmp_path, measured())
    cells, words = page.found["td"], " ".join(page.found["p"])
    assert {"2 GPUs, 64 each", "1.79", "8.48e6", "0.51"} <= set(cells)
    assert "Amdahl's p = 0.9000" in words
    assert any(text.startswith("Speedup over 1 GPU, 128") for text in page.alts)
    assert sum(text.startswith("Power over time") for text in page.alts) == 3
    assert "Energy" in page.found["h2"]


def test_the_page_says_what_was_not_measured_and_what_was_not_run_whole(tmp_path):
    partial = result("cpu", 1, 128, partial=True, epochs=1, accuracy=None, energies=[], accuracies=[])
    partial |= {"not_measured": ["energy of the CPU: not measurable here (no)"], "power": {"seconds": [], "watts": []}}
    page = page_of(tmp_path, [partial])
    words = " ".join(page.found["p"])
    assert "Energy of the CPU: not measurable here" in words and "only 8 steps were trained" in words
    assert any(cell.startswith("≈") for cell in page.found["td"])
    broken = page_of(tmp_path, [result("gpu", 1, 128, finite=False, name="gpu1-batch128-run1")])
    assert "no longer finite" in " ".join(broken.found["p"])


def test_the_page_shows_the_experiments_of_subfolders_each_in_its_place(tmp_path):
    few = [result("gpu", 1, 128), result("gpu", 2, 256, seconds=51.0)]
    others = [Experiment("several", Plan(epochs=2), few)]
    others += [Experiment("112x148", Plan(epochs=20, height=112, batch_sizes=(72, 128)), [result("gpu", 1, 72)])]
    tenth = Plan(epochs=5, height=112, validation=0.1)
    others += [Experiment(f"v{n}", replace(tenth, validate_every=n), [result("gpu", 1, 128)]) for n in (1, 5)]
    both = [result("hybrid", 2, 128, alike=alike, shares=[0.04, 0.96]) for alike in (False, True)]
    others += [Experiment("hybrid", Plan(epochs=9, height=112), [result("gpu", 1, 128), *both])]
    others += [Experiment("mnist", Plan("mnist", epochs=8), [result("gpu", 1, 50)])]
    page = page_of(tmp_path, measured(), *others)
    heads = " ".join(page.found["h2"] + page.found["h3"])
    for wanted in ("2 epochs on", "112 × 197 pixels, rate 0.05, 20 epochs", "Cost of validation", "Unequal devices"):
        assert heads.count(wanted) == 1
    cells = page.found["td"]
    assert {"4.0% + 96.0%", "CPU + 1 GPU, 128, counted alike", "here, 1 GPU, 50 (8 epochs)", "19.5 s"} <= set(cells)
    assert cells.count("10%") == 2 and "--devices 1,2" in " ".join(page.found["p"])


def test_a_page_without_results_is_a_page_and_a_group_of_one_is_explained(tmp_path):
    assert "Settings" in page_of(tmp_path, []).found["h2"]
    words = " ".join(page_of(tmp_path, [result("gpu", 1, 128), result("group", 1, 128, seconds=101.0)]).found["p"])
    assert "1 GPU in a group of one, 128: this shows what the loop for several devices costs" in words


def test_without_matplotlib_the_results_are_there_and_no_page(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # importing it raises ModuleNotFoundError
    with pytest.raises(ModuleNotFoundError):  # of another name
        experiment_page.written(tmp_path / "page.html", Experiment("", Plan(epochs=10), measured()))

    def missing(*experiments):
        raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")

    monkeypatch.setattr(experiment_page, "write", missing)
    said = experiment_page.written(tmp_path / "page.html", Experiment("", Plan(), []))
    assert str(tmp_path / "runs") in said and not (tmp_path / "page.html").exists()


def test_an_efficiency_above_one_is_doubted(tmp_path):
    one, two = result("cpu", 1, 128, threads=2), result("cpu", 2, 256, seconds=10.0, threads=1)
    words = " ".join(page_of(tmp_path, [one, two]).found["p"])
    assert "2 CPU processes, 128 each: an efficiency of 5.00 is suspect" in words and "threads" in words
    fair = " ".join(page_of(tmp_path, [one, result("cpu", 2, 256, seconds=52.0)]).found["p"])
    assert "suspect" not in fair


def test_curves_have_the_least_mean_and_most_of_the_runs_and_a_collapse_is_found():
    results = [result("gpu", 1, 128, run, accuracies=values) for run, values in ((1, [0.1, 0.5]), (2, [0.3, 0.7]))]
    curve = numbers.curves_of(results)["1 GPU, 128"]
    assert curve.least == [0.1, 0.5] and curve.mean == pytest.approx([0.2, 0.6]) and curve.most == [0.3, 0.7]
    assert page_accuracy.collapse_of(curve) is None
    fallen = replace(curve, mean=[0.2, 0.7, 0.4, 0.1, 0.6])
    assert page_accuracy.collapse_of(fallen) == (0.7, 0.1)


# ---- runs in a folder


def here(folder, job):
    runs.run_one(folder, job.name, ALONE, progress=False)
    return 0


def test_what_was_cut_off_goes_on_and_what_is_there_is_not_repeated(tmp_path):
    plan, folder, said, done = Plan(**(vars(TINY) | {"runs": 3, "epochs": 1})), tmp_path / "new", [], []

    def until_the_second(folder, job):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(job.name)
        return here(folder, job)

    with pytest.raises(KeyboardInterrupt):
        runs.run_all(plan, [CPU], folder, until_the_second, said.append)
    before = {file.name: file.stat().st_mtime_ns for file in (folder / "runs").iterdir()}
    assert len(before) == 2 and len(runs.results_in(folder)) == 2
    runs.run_all(plan, [CPU], folder, here, said.append)
    assert "2 of 3 runs" in "".join(said)
    after = {file.name: file.stat().st_mtime_ns for file in (folder / "runs").iterdir()}
    assert len(after) == 3 and before.items() <= after.items()
    assert sorted(file.name for file in folder.iterdir()) == ["plan.json", "runs"]
    more = Plan(**(vars(plan) | {"runs": 4}))
    runs.run_all(more, [CPU], folder, here, said.append)
    assert len(runs.results_in(folder)) == 4


def test_a_page_of_runs_that_are_there_needs_none_of_their_devices(tmp_path, capsys):
    plan, runs_there = replace(Plan("small"), runs=1, cores=3), tmp_path / "runs"
    runs.settle(plan, tmp_path)
    there = json.dumps(result("gpu", 1, 128))
    (runs_there / "gpu1-batch128-run1.json").write_text(there)
    assert commands.main(["experiment", "small", "--devices", "1", "--runs", "1", "--out", str(tmp_path)]) == 0
    assert "1 GPU, 128" in Page((tmp_path / "experiment.html").read_text("utf-8")).found["td"]
    assert runs.read_plan(tmp_path) == plan  # it is left as it was


@pytest.mark.parametrize(("number", "words"), [(signal.SIGINT, ["nncourse: interrupted"]), (signal.SIGKILL, [])])
@pytest.mark.full
def test_an_experiment_that_is_ended_says_so_once_and_leaves_no_process(tmp_path, number, words):
    options = "small --devices cpu --images 8 --size 24x32 --epochs 100000 --cpu-steps 0 --out"
    command = [sys.executable, "-m", "nnclassroom", "experiment", *options.split(), tmp_path / "new"]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "NNCOURSE_TEST": str(tmp_path)}
    with open(tmp_path / "err", "w+") as err:
        process = subprocess.Popen(command, env=settings, stdout=subprocess.DEVNULL, stderr=err)
        try:
            assert until(lambda: len(those_of(tmp_path, used=2)) == 1)  # the run has started, and computes
            process.send_signal(number)
            assert process.wait(60) == (130 if words else -number)
            assert until(lambda: not those_of(tmp_path))
        finally:
            process.kill()
    assert [line for line in (tmp_path / "err").read_text().splitlines() if line.startswith("nncourse")] == words
    assert not list((tmp_path / "new" / "runs").iterdir())


def those_of(folder, used=0):
    """The processes of a test that still run and have used so many seconds of processor time."""
    return [each for each in with_variable("NNCOURSE_TEST", folder) if sum(each.cpu_times()[:2]) >= used]


def test_ctrl_c_in_a_run_ends_all_and_another_number_of_processes_is_refused(tmp_path):
    begun = []
    plan = replace(TINY, runs=2)
    assert runs.run_all(plan, [CPU], tmp_path / "new", lambda *job: begun.append(job) or 130, lambda line: None) == 130
    assert len(begun) == 1
    with pytest.raises(CourseError, match="expected 2 processes for cpu2-batch16-run1; got 1"):
        here(tmp_path / "new", Job(Devices("cpu", 2), 16, 0))


def test_other_options_and_other_files_are_refused(tmp_path):
    runs.settle(TINY, tmp_path / "one")
    with pytest.raises(CourseError, match="expected epochs 2, as in the experiment there; got 3"):
        runs.refuse_other(Plan(**(vars(TINY) | {"epochs": 3})), tmp_path / "one")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "mine.txt").write_text("x")
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CourseError, match="expected a folder for the results"):
        runs.settle(TINY, tmp_path / "file")
    with pytest.raises(CourseError, match="expected from 1 to 512 processes, got 1000"):
        runs.refuse_missing([Devices("cpu", 1000)])
    with pytest.raises(CourseError, match="it has other files"):
        runs.refuse_other(TINY, tmp_path / "two")
    with pytest.raises(CourseError, match="with its plan.json"):
        runs.read_plan(tmp_path / "two")
    for name in ("cpu1-batch16-run2", "gpu-batch1-run1", "x", "tpu1-batch16-run1", "../cpu1-batch16-run1"):
        with pytest.raises(CourseError, match="expected a run such as"):
            job_called(TINY, name)


@MPI
def test_the_command_does_all_of_it_at_tiny_size(tmp_path, capsys):
    if not sys.platform.startswith("linux"):
        pytest.skip("several processes are started on Linux only")
    out = tmp_path / "found"
    options = {"devices": "cpu,cpu2", "runs": 1, "epochs": 1, "batch-size": 8, "images": 5, "size": "12x16"}
    options |= {"cpu-steps": 0, "out": out}
    words = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    assert commands.main(["experiment", "small", *words]) == 0, capsys.readouterr().err
    files = sorted((out / "runs").iterdir())
    assert [file.stem for file in files] == ["cpu1-batch8-run1", "cpu2-batch16-run1", "cpu2-batch8-run1"]
    page = Page((out / "experiment.html").read_text("utf-8"))
    assert "2 CPU processes, 4 each" in page.found["td"] and "Speedup" in page.found["h3"]
    one, _, two = (json.loads(file.read_text()) for file in files)
    assert one["images_an_epoch"] == two["images_an_epoch"] == 27


@MPI
@pytest.mark.full
def test_unequal_processes_train_together_with_measured_shares(tmp_path, capsys):
    out = tmp_path / "found"
    words = "--devices cpu+cpu --runs 1 --epochs 2 --batch-size 16 --images 8 --size 16x16 --slow 5 --validate-every 2"
    assert commands.main(["experiment", "small", *words.split(), "--out", str(out)]) == 0, capsys.readouterr().err
    weighted, alike = (json.loads((out / "runs" / f"{name}-batch16-run1.json").read_text()) for name in UNEQUAL)
    assert not weighted["alike"] and alike["alike"] and weighted["shares"][0] < weighted["shares"][1]
    page = Page((out / "experiment.html").read_text("utf-8"))
    assert "2 unequal CPU processes, 16, counted alike" in page.found["td"] and "Unequal devices" in page.found["h2"]


@pytest.mark.parametrize("options", [["--size", "148"], ["--devices", "gpu"], ["--epochs", "0"], ["--send", "none"]])
def test_wrong_options_are_one_line(tmp_path, capsys, options):
    assert commands.main(["experiment", "small", "--out", str(tmp_path / "x"), *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("nncourse: expected") and said.count("\n") == 1
    assert not (tmp_path / "x").exists()
