"""benchmarks.networks: its list, its random networks, runs that are cut and go on, tables. No test asserts a time."""

import argparse
import json
from itertools import count

import pytest

from benchmarks import growth, machines, networks, tables, workers
from nnclassroom import recorded
from nncourse.model.network import make_network

ABOUT = {"machine": "NVIDIA Made Up, 4 multiprocessors, 8 GiB, sm_90", "cpu": "A processor", "versions": {"jax": "0.1"}}


def test_the_list_has_every_row_of_networks_with_sizes_that_fit():
    rows = networks.listed()
    assert [row["row"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 22
    assert len({networks.identity(row) for row in rows}) == len(rows)
    for row in rows:
        problem = networks.problem_of(row, "cpu")
        assert problem.batch == row["batch"] and problem.steps >= networks.CHECKED
        said = problem.optimizer.describe()
        assert row["optimizer"].startswith(said["kind"])
        assert (said.get("momentum") == 0.9) == ("momentum" in row["optimizer"])


def test_networks_drawn_at_random_are_those_of_their_seed_and_in_range():
    rows = networks.drawn(60, seed=3)
    assert rows == networks.drawn(60, seed=3) and rows != networks.drawn(60, seed=4)
    assert {row["optimizer"] for row in rows} == {"sgd", "sgd,momentum=0.9", "adam"}
    convolutions = set()
    for row in rows:
        network = make_network(row["layers"], row["activation"], row["cost"])
        words = row["layers"].split(",")
        filters = [int(word[4:].partition("x")[0]) for word in words if word.startswith("conv")]
        neurons = [int(word) for word in words[1:] if word.isdecimal()]
        convolutions.add(len(filters))
        assert 1 <= row["batch"] <= 512 and network.sizes[-1] == 10
        assert 1 <= len(neurons) <= 4 and all(8 <= size <= 1024 for size in neurons)
        assert all(4 <= number <= 32 for number in filters)
        assert network.input_shape in ([(1, 28, 28), (3, 32, 32)] if filters else [(784,)])
    assert convolutions == {0, 1, 2, 3}


def test_rows_are_numbers_and_ranges():
    assert networks.numbers("3-5,9") == [3, 4, 5, 9]
    for text in ("", "3-", "a", "1,,2"):
        with pytest.raises(argparse.ArgumentTypeError):
            networks.numbers(text)


# ---- runs, with processes that are made up


class MadeUpTeam:
    """Contenders that take 1, 2, 3 … µs a step; those in `fail` fail when they are prepared, in these rows."""

    fail: dict[str, set[int]] = {}
    slow_row: int | None = None
    plans: dict[int, tuple[str, str]] = {}

    def __init__(self, *_):
        self.ready, self.numbers = set(), count(1)

    def ask(self, name, what, row, limit):
        if row["row"] == MadeUpTeam.slow_row:
            networks.time.sleep(limit)
            raise workers.FailedError(f"no answer within {limit:.0f} s")
        if what == "prepare":
            if row["row"] in self.fail.get(name, ()):
                raise workers.FailedError("RuntimeError: illegal address")
            self.ready.add(name)
        if what == "time":
            assert name in self.ready, "timed before it was prepared, or by a process that had ended"
            plan, note = MadeUpTeam.plans.get(row["row"], ("recorded", ""))
            facts = {"steps": 10} | ({"kernel": plan, "note": note} if name.startswith("nncourse") else {})
            return {"seconds": 1e-6 * next(self.numbers), "facts": facts}
        return None

    def end(self):
        self.ready.clear()


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """run("--rows 1-3 …") in an empty folder: the results, and what was printed."""
    monkeypatch.setattr(networks, "Team", MadeUpTeam)
    monkeypatch.setattr(MadeUpTeam, "fail", {})
    monkeypatch.setattr(MadeUpTeam, "slow_row", None)
    monkeypatch.setattr(networks.networks, "not_installed", lambda names: {})
    monkeypatch.setattr(networks.workers, "asked_once", lambda *_: json.loads(json.dumps(ABOUT)))
    monkeypatch.setattr(networks.saved, "RESULTS", tmp_path)

    def started(arguments, status=0):
        assert networks.main([*arguments.split(), "--out", str(tmp_path)]) == status
        path = tmp_path / "networks-nvidia-made-up.json"
        return (json.loads(path.read_text("utf-8")) if path.exists() else None), capsys.readouterr().out

    return started


def test_rows_of_several_runs_join_in_one_file_of_the_machine(run, tmp_path):
    found, said = run("--rows 2,5 --rounds 3 --device cpu")
    assert [row["row"] for row in found["rows"]] == [2, 5] and found["machine"] == ABOUT["machine"]
    first = found["rows"][0]["contenders"]
    assert first.keys() == {"nncourse numpy", "nncourse numba", "PyTorch eager", "JAX scan"}
    assert first["nncourse numpy"]["kernel"] == "recorded"
    # asked in turn: the numbers 1 to 12 go round
    assert [1e6 * each for each in first["PyTorch eager"]["rounds"]] == pytest.approx([3, 7, 11])
    assert all(len(line) <= 80 for line in said.splitlines()[2:-1])
    found, _ = run("--rows 1-2 --rounds 1 --device cpu")
    rounds = {row["row"]: len(row["contenders"]["JAX scan"]["rounds"]) for row in found["rows"]}
    assert list(rounds.items()) == [(1, 1), (2, 1), (5, 3)]
    found, said = run("--random 2 --seed 9 --rounds 1 --device cpu")
    assert [row.get("seed") for row in found["rows"]] == [None, None, None, 9, 9] and "seed 9" in said


def test_a_row_that_takes_another_plan_than_recorded_is_not_saved(run, monkeypatch):
    before, _ = run("--rows 2-3 --rounds 1 --device cpu")
    monkeypatch.setattr(MadeUpTeam, "plans", {3: ("operations", "a made-up reason")})
    found, said = run("--rows 2-3 --rounds 2 --device cpu", status=1)
    assert len(found["rows"][0]["contenders"]["nncourse numpy"]["rounds"]) == 2
    assert found["rows"][1] == before["rows"][1]
    assert said.count("row 3 is not saved") == 2 and "recorded, got operations (a made-up reason)" in said


def test_results_of_other_versions_are_not_mixed(run, monkeypatch):
    run("--rows 2 --rounds 1 --device cpu")
    newer = ABOUT | {"versions": {"jax": "0.2"}}
    monkeypatch.setattr(networks.workers, "asked_once", lambda *_: newer)
    found, said = run("--rows 3 --rounds 1 --device cpu")
    assert [row["row"] for row in found["rows"]] == [3] and "jax 0.1, here 0.2" in said


def test_who_fails_is_left_out_with_the_reason_and_the_others_go_on(run, monkeypatch):
    monkeypatch.setattr(MadeUpTeam, "fail", {"JAX scan": {2}, "nncourse numba": {2, 3}})
    found, said = run("--rows 2-4 --rounds 2 --device cpu")
    two, three, four = found["rows"]
    assert two["contenders"].keys() == {"nncourse numpy", "PyTorch eager"}
    assert two["left_out"] == dict.fromkeys(["nncourse numba", "JAX scan"], "RuntimeError: illegal address")
    assert "nncourse numba" not in three["contenders"] and len(four["contenders"]) == 4 and not four["left_out"]
    assert said.count("illegal address") == 3


def test_a_run_ends_before_its_limit_and_says_how_to_go_on(run, monkeypatch):
    monkeypatch.setattr(networks, "LONG", 0.0)
    monkeypatch.setattr(networks, "ENDING", 0.0)
    monkeypatch.setattr(MadeUpTeam, "slow_row", 3)
    found, said = run("--rows 2-5 --rounds 1 --limit 0.5 --device cpu")
    assert [row["row"] for row in found["rows"]] == [2] and "--rows 3,4,5" in said
    found, said = run("--random 4 --seed 9 --rounds 1 --limit 0 --device cpu")
    assert "--random 4 --seed 9 --rows 1,2,3,4" in said and len(found["rows"]) == 1


@pytest.mark.parametrize(
    "arguments",
    ["--rows 99", "--backend cuda --device cpu", "--backend loops --device cpu", "--rounds 0", "--compile 1-7"],
)
def test_a_mistake_is_said_before_anything_is_measured(arguments, capsys, monkeypatch):
    monkeypatch.setattr(networks, "run", lambda *_: pytest.fail("measured"))
    with pytest.raises(SystemExit) as ended:
        networks.main(arguments.split())
    assert ended.value.code == 2 and "error: expected" in capsys.readouterr().err


@pytest.mark.full
def test_contenders_in_their_processes(tmp_path):
    """Two rows, once in processes apart; the second time the file is joined."""
    row = {"layers": "6,5,3", "batch": 4, "optimizer": "adam", "activation": "relu", "row": 1}
    row["cost"] = "categorical_cross_entropy"
    for apart, names in ((True, ["nncourse numpy", "PyTorch eager"]), (False, ["nncourse numba"])):
        team = networks.Team("cpu", ["numpy", "numba"], networks.ONE_THREAD, apart)
        wanted = [name for name in names if name not in networks.networks.not_installed(names)]
        try:
            found = networks.contest(row, team, wanted, 2, float("inf"))
            assert len(team.running) == (len(wanted) if apart else 1)
        finally:
            team.end()
        assert found["left_out"] == {} and [*found["contenders"]] == wanted
        assert all(min(each["rounds"]) > 0 and each["steps"] > 20 for each in found["contenders"].values())


@pytest.mark.parametrize(
    ("machine", "name"),
    [
        ("NVIDIA H200, 132 multiprocessors, 140 GiB, sm_90", "nvidia-h200"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz, 2 cores", "intel-xeon-cpu-2-cores"),
    ],
)
def test_a_machine_has_one_file(machine, name):
    assert machines.slug(machine) == name


# ---- tables


def result(device: str, **more) -> dict:
    def contender(microseconds, **facts):
        return {"seconds_a_step": 1e-6 * microseconds, "rounds": [1e-6 * microseconds], "steps": 9} | facts

    ours = contender(2.5, kernel="one_kernel", note="")
    there = {"nncourse cuda": ours, "PyTorch eager": contender(500), "JAX scan": contender(10)}
    row = networks.listed()[3] | {"date": "2026-01-01", "contenders": there, "left_out": {}} | more
    images = networks.listed()[20] | {"date": "2026-01-02", "contenders": there, "left_out": {}} | more
    slow = {"nncourse cuda": contender(20, kernel="recorded"), "JAX scan": contender(10)}
    failed = {"PyTorch eager": "it was too far from the reference"}
    drawn = networks.drawn(1, 7)[0] | {"date": "2026-01-02", "contenders": slow, "left_out": failed} | more
    return ABOUT | {"device": device, "date": "2026-01-02", "rows": [row, images, drawn]}


def test_readme_shows_each_machine_and_each_number_of_threads(tmp_path):
    assert tables.table("networks", tmp_path).startswith("Not measured yet")
    (tmp_path / "networks-a.json").write_text(json.dumps(result("cpu", threads=1)))
    (tmp_path / "networks-b.json").write_text(json.dumps(result("gpu")))
    text = tables.with_tables("<!-- table networks -->\n<!-- end -->", tmp_path)
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("| 4 |")]
    assert rows[0] == "| 4 | 784-128-10 | 32, sgd | 2.5 | 500 | 10 | `one_kernel` | 4× | 200× |"  # the GPU's
    assert rows[1] == "| 4 | 784-128-10 | 32, sgd | 2.5 | 500 | 10 | `one_kernel` | 200× |"
    assert "one thread each" in text and text.count("2026-01-01 to 2026-01-02") == 2
    assert "1 networks drawn at random (seed 7): times JAX scan's speed: least 0.5" in text
    assert text.count("reference: PyTorch eager in row 1.") == 2


def test_notebooks_show_the_networks_of_gpus(results):
    assert "\n" not in recorded.networks("dense")
    results("networks-a", result("cpu", threads=1))
    assert "\n" not in recorded.networks("dense")
    results("networks-b", result("gpu"))
    dense, images = recorded.networks("dense").splitlines(), recorded.networks("images").splitlines()
    assert len(dense) == 3 and dense[2].split()[:2] == ["4", "784-128-10"] and "one_kernel" in dense[2]
    assert "NVIDIA Made Up" in dense[0] and images[2].startswith("21 image1x28x28 conv6x5same")
    assert max(map(len, [*dense, *images])) <= 80


def test_notebooks_show_the_networks_of_the_gpu_that_has_the_other_tables(results):
    for name, machine in (("networks-a", "First GPU"), ("networks-b", "Second GPU")):
        results(name, result("gpu") | {"machine": machine})
    assert "First GPU" in recorded.networks("dense")
    results("gpu", {"machine": "Second GPU"})
    assert "Second GPU" in recorded.networks("dense") and "First GPU" not in recorded.networks("dense")


def test_growth_has_a_time_for_each_network_of_both_families_and_draws_them(tmp_path, monkeypatch, capsys):
    asked = []

    def contest(row, team, names, rounds, deadline):
        asked.append(row["layers"])
        return {"contenders": {name: {"seconds_a_step": 1e-5 * row["flops"]} for name in names}, "left_out": {}}

    monkeypatch.setattr(networks, "contest", contest)
    monkeypatch.setattr(growth, "SIDES", (4, 8))
    monkeypatch.setattr(growth, "LARGE", {"cpu": 32})
    monkeypatch.setattr(growth, "PICTURE", tmp_path / "growth.png")
    assert growth.main(["--device", "cpu", "--out", str(tmp_path)]) == 0
    (file,) = tmp_path.glob("growth-*.json")
    rows = json.loads(file.read_text("utf-8"))["rows"]
    assert asked[0] == "4,4,4,10" and len(rows) == len(asked) == 2 + len(growth.BATCHES)
    assert [row["parameters"] for row in rows[:2]] == [90, 234]
    assert all(row["arithmetic"] > 0 for row in rows)
    assert growth.main(["--plot", "--out", str(tmp_path)]) == 0 and (tmp_path / "growth.png").stat().st_size > 10_000
