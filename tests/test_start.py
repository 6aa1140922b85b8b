"""Several processes started by one command: how they begin, fail and end. A failure is one line, and all are gone."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from processes import MPI, until, with_variable

from nncourse.errors import CourseError
from nncourse.model import files
from nncourse.parallel.launch import guard, heartbeat, start, world
from nncourse.parallel.launch import member as member_of
from nncourse.parallel.launch.guard import Watch
from nncourse.parallel.launch.heartbeat import STARTING, WAITING, WORKING, Heartbeat
from nncourse.parallel.simulation import simulate

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 10  # within which all processes must be gone
ENDLESS = ("--dataset", "xor", "--layers", "2,3,1", "--batch-size", "8", "--epochs", "1000000")


def command(*arguments) -> list[str]:
    return [sys.executable, "-m", "nnclassroom", *map(str, arguments)]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Variables by which the processes of one test are recognised and find the package."""
    kept = world.without_launcher(os.environ)
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NNCOURSE_TEST": str(folder), **more}


def processes_of(folder: Path) -> dict[psutil.Process, dict[str, str]]:
    """The processes that a test has started, and their environments."""
    return with_variable("NNCOURSE_TEST", folder)


def member(folder: Path, rank: int) -> int:
    """The process that learns as this rank."""
    for process, variables in processes_of(folder).items():
        if heartbeat.VARIABLE in variables and world.launcher_environment(variables).rank == rank:
            return process.pid
    raise AssertionError(f"rank {rank} is not there")


@contextlib.contextmanager
def training(folder: Path, *arguments, processes: int = 2, **variables: str):
    """`nncourse train --processes`, from when it has learnt some; at the end nothing of it may be left."""
    all_arguments = ("train", *ENDLESS, "--model", folder / "model.npz", "--processes", processes, *arguments)
    there = environment(folder, PYTHONUNBUFFERED="1", **variables)
    with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
        process = subprocess.Popen(command(*all_arguments), env=there, stdout=out, stderr=err)
    try:
        until(lambda: "train together" in (folder / "out").read_text() or process.poll() is not None, 30)
        assert process.poll() is None, (folder / "err").read_text()
        time.sleep(0.3)
        yield process
    finally:
        process.kill()
        process.wait()
        left = until(lambda: not processes_of(folder), 3)
        for number in processes_of(folder):
            os.kill(number, signal.SIGKILL)
        assert left, "some processes were left"


def ends_in_time(process: subprocess.Popen, folder: Path) -> tuple[int, str]:
    """Its status and the only line on stderr, if all its processes are gone in time and nothing is half written."""
    began = time.monotonic()
    status = process.wait(SECONDS + 5)
    assert until(lambda: not processes_of(folder), 1)
    assert time.monotonic() - began < SECONDS
    lines = (folder / "err").read_text().splitlines()
    assert len(lines) == 1, lines
    assert {path.name for path in folder.iterdir()} <= {"out", "err", "model.npz"}
    return status, lines[0]


@MPI
def test_a_killed_process_ends_all_of_them(tmp_path):
    with training(tmp_path, processes=3) as process:
        os.kill(member(tmp_path, 1), signal.SIGKILL)
        status, line = ends_in_time(process, tmp_path)
    assert status == 1
    assert line.startswith("nncourse: rank 1: process ") and "was killed by SIGKILL" in line
    assert not (tmp_path / "model.npz").exists()


@MPI
def test_where_a_guard_is_killed_its_rank_is_named(tmp_path):
    with training(tmp_path) as process:
        psutil.Process(member(tmp_path, 1)).parent().kill()
        status, line = ends_in_time(process, tmp_path)
    assert status == 1  # on a busy machine both ends may be noticed at once: mpiexec kills the other guard
    assert re.fullmatch(r"nncourse: rank (0 or )?1: the process that watched it has ended; was it killed\?", line)


@pytest.fixture
def work(tmp_path) -> Path:
    """A folder in which nothing lies yet."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def harmed(folder: Path, rank: int, harm: str) -> dict[str, str]:
    """Variables under which each step of one rank does this harm first; `step` counts them from 0."""
    (folder.parent / "harm").mkdir(exist_ok=True)
    lines = [
        "import os, sys, time",
        "from nncourse.parallel.launch import world",
        f"if os.environ.get('{heartbeat.VARIABLE}') and world.launcher_environment(os.environ).rank == {rank}:",
        "    import itertools",
        "    import nncourse.model.data_parallel as there",
        "    real, steps = there.shared_gradient, itertools.count()",
        "    def burn(seconds):",
        "        end = time.monotonic() + seconds",
        "        while time.monotonic() < end: pass",
        "    def harmful(*arguments):",
        "        step = next(steps)",
        f"        {harm}",
        "        real(*arguments)",
        "    there.shared_gradient = harmful",
    ]
    (folder.parent / "harm" / "sitecustomize.py").write_text("\n".join(lines) + "\n")
    return {"PYTHONPATH": f"{folder.parent / 'harm'}{os.pathsep}{ROOT}"}


@MPI
@pytest.mark.parametrize(
    ("harm", "words"),
    [
        pytest.param(
            "time.sleep(1000 if step == 20 else 0)",
            "rank 1: hung: no step for 1 s, and no processor time used",
            marks=pytest.mark.full,
        ),
        ("burn(1000 if step == 20 else 0)", "rank 1: hung: no step for 2 s (process "),
        pytest.param(
            "os.kill(os.getpid(), 19 if step == 20 else 0)",
            "rank 1: hung: it was stopped by a signal",
            marks=pytest.mark.full,
        ),
        ("assert step < 20, 'a mistake'", "rank 1: AssertionError: a mistake (sitecustomize.py, line 12)"),
    ],
    ids=["sleeps", "an endless loop", "stopped", "an exception"],
)
def test_a_rank_that_hangs_or_fails_ends_all_of_them(work, harm, words):
    arguments = ("--patience", "1", "--epochs", "100000000")
    with training(work, *arguments, **harmed(work, 1, harm)) as process:
        status, line = ends_in_time(process, work)
    assert status == 1 and line.startswith("nncourse: ") and words in line, line
    assert not (work / "model.npz").exists()


@MPI
@pytest.mark.full
def test_a_slow_rank_is_left_alone(work):
    """Rank 1 is quiet for longer than the patience, but not longer than its own earlier steps predict."""
    harm = "burn((1.5, 3.5, 0)[min(step, 2)]); time.sleep(0.5 if step == 2 else 0)"
    arguments = ("--patience", "1", "--epochs", "2")
    with training(work, *arguments, **harmed(work, 1, harm)) as process:
        assert process.wait(30) == 0
    assert (work / "err").read_text() == ""
    assert files.load(work / "model.npz").provenance["epochs"] == 2


@MPI
def test_ctrl_c_saves_what_is_best_so_far(tmp_path):
    with training(tmp_path) as process:
        time.sleep(1)  # an epoch must end first, even where the processes share a core with others
        process.send_signal(signal.SIGINT)
        status, line = ends_in_time(process, tmp_path)
    assert status == 130
    assert line.startswith("nncourse: interrupted after epoch ") and line.endswith("so far are kept")
    model = files.load(tmp_path / "model.npz")
    assert model.provenance["epochs"] > 0 and model.provenance["processes"] == 2


@MPI
def test_ctrl_c_where_rank_0_cannot_save_ends_all_of_them(tmp_path):
    with training(tmp_path) as process:
        os.kill(member(tmp_path, 0), signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        status, line = ends_in_time(process, tmp_path)
    assert (status, line) == (130, "nncourse: interrupted, nothing is saved")
    assert not (tmp_path / "model.npz").exists()


@MPI
@pytest.mark.parametrize("ready", ["mpiexec", "a member"])
def test_ctrl_c_before_anything_is_learnt_is_one_line(tmp_path, ready):
    """While mpiexec, Python or MPI start there is nothing to save, and no process that could save it."""
    arguments = ("train", *ENDLESS, "--processes", "2", "--model", tmp_path / "model.npz")
    least = {"mpiexec": 2, "a member": 6}[ready]  # mpiexec, its proxy, two guards and two members
    with open(tmp_path / "err", "w") as err:
        there = environment(tmp_path)
        process = subprocess.Popen(command(*arguments), env=there, stdout=subprocess.DEVNULL, stderr=err)
        try:
            assert until(lambda: len(processes_of(tmp_path)) >= least, 30)
            process.send_signal(signal.SIGINT)
            status, line = ends_in_time(process, tmp_path)
        finally:
            process.kill()
    assert (status, line) == (130, "nncourse: interrupted, nothing is saved")
    assert not (tmp_path / "model.npz").exists()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm")
def test_the_shared_memory_of_a_process_that_is_killed_has_no_name_left():
    name = Path(f"/dev/shm/mpich_shm_test_{os.getpid()}")
    opened = f"import mmap, sys; f = open({str(name)!r}, 'r+b'); m = mmap.mmap(f.fileno(), 9)"
    text = f"{opened}; print(flush=True); sys.stdin.read()"
    name.write_bytes(bytes(9))
    try:
        with subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout.read(1)
            guard.unlink_shared_memory(process.pid)
            process.kill()
        assert not name.exists()
    finally:
        name.unlink(missing_ok=True)


@MPI
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_whoever_is_killed_none_is_left(tmp_path, number):
    """training() fails if a process is left."""
    with training(tmp_path) as process:
        process.send_signal(number)
        assert process.wait(SECONDS) in (-number, 128 + number)


@MPI
def test_where_the_launcher_is_killed_none_is_left(tmp_path):
    with training(tmp_path) as process:
        launchers = [each for each in processes_of(tmp_path) if "hydra_pmi_proxy" in each.name()]
        if not launchers:
            pytest.skip("this MPI has another launcher than MPICH's")
        for each in launchers:
            each.kill()
        status, line = ends_in_time(process, tmp_path)
    assert status == 1, line


def run(folder: Path, *arguments, **variables: str) -> subprocess.CompletedProcess:
    """A command from begin to end."""
    options = {"cwd": folder, "capture_output": True, "text": True, "timeout": 60}
    process = subprocess.run(command(*arguments), env=environment(folder, **variables), **options)
    assert not processes_of(folder)
    return process


SHORT = ("--dataset", "xor", "--layers", "2,3,1", "--batch-size", "5", "--processes", "2", "--seed", "3")


@MPI
def test_a_full_disk_is_one_line_and_nothing_is_half_written(work):
    (work / "model.npz").write_bytes(b"what was there before")
    harm = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    result = run(work, "train", *SHORT, "--epochs", "1", "--model", "model.npz", **harmed(work, 0, harm))
    assert result.returncode == 2
    assert result.stderr == "nncourse: rank 0: model.npz: cannot be written: File too large\n"
    assert [path.name for path in work.iterdir()] == ["model.npz"]
    assert (work / "model.npz").read_bytes() == b"what was there before"


@MPI
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--dataset", "iris.csv"], "rank 0: iris.csv: expected a CSV file"),
        (["--layers", "3,1"], "rank 0: expected 3 features"),
        (["--batch-size", "0"], "every rank: expected epochs and batch size of at least 1"),
    ],
    ids=["no such file", "data of another shape", "an option that makes no sense"],
)
def test_bad_input_is_said_once(tmp_path, arguments, line):
    result = run(tmp_path, "train", *SHORT, "--epochs", "1", "--model", "model.npz", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(f"nncourse: {line}") and result.stderr.count("\n") == 1, result.stderr
    assert not list(tmp_path.iterdir())


@MPI
@pytest.mark.full
def test_the_number_of_processes_may_change_when_training_goes_on(tmp_path):
    """As if one process had never stopped, to rounding; rank 0 alone prints."""
    for model, epochs, processes, more in [("a", 4, 1, ()), ("b", 2, 2, ()), ("b", 2, 3, ("--resume", "b.npz"))]:
        arguments = ["--dataset", "digits", "--batch-size", "50", "--processes", processes]
        arguments += more or ["--layers", "64,20,10", "--cost", "categorical_cross_entropy", "--optimizer", "adam"]
        result = run(tmp_path, "train", *arguments, "--epochs", epochs, "--model", f"{model}.npz")
        assert (result.returncode, result.stderr) == (0, "")
    shared = "3 processes train together: each has 17 or 16 rows of every batch of 50"
    assert result.stdout.splitlines().count(shared) == 1 and result.stdout.count("model: b.npz") == 1
    alone, together = (files.load(tmp_path / f"{name}.npz") for name in "ab")
    assert together.provenance["epochs"] == 4 and together.provenance["processes"] == 3
    np.testing.assert_allclose(alone.network.flat_parameters, together.network.flat_parameters, atol=2e-4)
    assert alone.optimizer.steps == together.optimizer.steps
    tested = ("test", "--dataset", "digits", "--model", "b.npz", "-v", "--processes")
    reports = [run(tmp_path, *tested, processes).stdout for processes in (1, 3)]
    assert reports[0] == reports[1] and "cost" in reports[0]


# ---- without starting anything


def test_a_world_is_told_by_its_launcher():
    assert world.launcher_environment({}) == (0, 1, "nobody")
    assert world.launcher_environment({"PMI_RANK": "1", "PMI_SIZE": "4"}) == (1, 4, "mpiexec")
    assert world.launcher_environment({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"})[:2] == (3, 4)
    of_slurm = {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8"}
    assert world.launcher_environment(of_slurm) == (2, 8, "srun")
    # A batch script is no step, whatever it asked for; mpiexec inside a step of one task counts.
    assert world.launcher_environment({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}).size == 1
    inside = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "PMI_RANK": "1", "PMI_SIZE": "2", "PATH": "/bin"}
    assert world.launcher_environment(inside) == (1, 2, "mpiexec")
    assert world.without_launcher(inside) == {"PATH": "/bin"}
    settings = {"OMPI_MCA_plm": "isolated", "OMPI_ALLOW_RUN_AS_ROOT": "1"}
    assert world.without_launcher(inside | settings) == {"PATH": "/bin"} | settings
    by_open_mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_MCA_ess": "pmi"}
    assert world.without_launcher(by_open_mpi | {"PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("by", "size", "words"),
    [
        ("srun", 1, "of 4 processes, according to srun; each process is alone in its own: use srun --mpi=pmi2"),
        ("mpiexec", 2, "according to mpiexec; it has 2: start it with the mpiexec of the same MPI"),
    ],
)
def test_a_world_of_another_size_is_refused(by, size, words):
    with pytest.raises(CourseError) as error:
        world.refuse_wrong(world.LauncherEnvironment(0, 4, by), size)
    assert words in str(error.value)
    world.refuse_wrong(world.LauncherEnvironment(0, 4, by), 4)


@pytest.mark.parametrize(
    ("variables", "processes", "patience", "words"),
    [
        ({}, 0, 6, "expected from 1 to 512 processes, got 0"),
        ({}, -2, 6, "expected from 1 to 512 processes, got -2"),
        ({}, 2, 0, "expected a patience of more than 0 seconds, got 0"),
        (
            {"PMI_RANK": "0", "PMI_SIZE": "2"},
            4,
            6,
            "expected 4 processes, but mpiexec started 2: leave --processes out",
        ),
    ],
)
def test_what_cannot_be_started_is_refused(monkeypatch, variables, processes, patience, words):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(CourseError, match=words):
        start.run([], processes, patience, lambda heart: 0)


def test_without_mpi4py_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr(start, "find_spec", lambda name: None)
    with pytest.raises(CourseError, match=r"found none: pip install 'nncourse\[devices\]'"):
        start.run([], 2, 6, lambda heart: 0)


def fake_mpiexec(folder: Path, version: str) -> str:
    folder.mkdir(parents=True)
    (folder / "mpiexec").write_text(f"#!/bin/sh\necho '{version}'\n")
    (folder / "mpiexec").chmod(0o755)
    return str(folder / "mpiexec")


def test_the_mpiexec_of_the_library_that_mpi4py_takes(monkeypatch, tmp_path):
    wheels = fake_mpiexec(tmp_path / "venv" / "bin", "HYDRA build details:")
    modules = fake_mpiexec(tmp_path / "modules" / "bin", "mpiexec (Open MPI) 4.1.6")
    systems = fake_mpiexec(tmp_path / "system", "prterun (Open MPI) 5.0.7")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'system'}:{os.environ['PATH']}")
    monkeypatch.delenv("MPI4PY_LIBMPI", raising=False)
    assert start.find_mpiexec() == wheels
    monkeypatch.setenv("MPI4PY_LIBMPI", str(tmp_path / "modules" / "lib" / "libmpi.so.40"))
    assert start.find_mpiexec() == modules
    monkeypatch.setenv("MPI4PY_LIBMPI", "libmpi.so.40")
    assert start.find_mpiexec() == systems
    assert start.mpiexec_command(wheels, 3) == [wheels, "-launcher", "fork", "-n", "3"]
    by_open_mpi = start.mpiexec_command(modules, 3)
    assert by_open_mpi[-2:] == ["-n", "3"] and {"--oversubscribe", "none", "mpi_yield_when_idle"} <= set(by_open_mpi)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "--allow-run-as-root" in start.mpiexec_command(systems, 3)


@pytest.fixture
def heart():
    memory = heartbeat.memory()
    yield Heartbeat(memory.fileno())
    memory.close()


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files in memory")
def test_signs_of_life_need_no_disk(monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/no/such/folder")
    with heartbeat.memory() as memory:
        Heartbeat(memory.fileno()).last_words("the disk is full", 2)
        assert Heartbeat(memory.fileno()).read_last_words() == (2, "the disk is full")


def watched(heart, monkeypatch, state: str, used, seconds: float, say=lambda: None, every: float = 0.25) -> str:
    """The problem that a guard with a patience of 2 s finds within so many seconds; it looks every `every` seconds."""
    now = [0.0]
    monkeypatch.setattr(guard.time, "monotonic", lambda: now[0])
    process = SimpleNamespace(pid=123, oneshot=contextlib.nullcontext, status=lambda: state)
    process.cpu_times = lambda: (used(now[0]), 0.0)
    watch = Watch(heart, process, 2.0)
    problem = ""
    while now[0] < seconds and not problem:
        now[0] += every
        say()
        problem = watch.problem()
    return problem


IDLE, BUSY = (lambda now: 0.0), (lambda now: now)


def test_hung_is_told_from_slow(heart, monkeypatch):
    assert (heart.state, heart.beats) == (STARTING, 0)
    assert watched(heart, monkeypatch, "sleeping", IDLE, 100) == ""  # it reads or compiles: nobody can foresee how long
    assert "stopped by a signal" in watched(heart, monkeypatch, "stopped", IDLE, 4)
    heart.works(10)
    assert heart.state == WORKING
    assert "no processor time" in watched(heart, monkeypatch, "sleeping", IDLE, 3)
    assert watched(heart, monkeypatch, "sleeping", BUSY, 2.5) == ""
    assert "no step for 3 s" in watched(heart, monkeypatch, "running", BUSY, 4)
    assert watched(heart, monkeypatch, "sleeping", IDLE, 100, say=lambda: heart.works(10)) == ""
    assert watched(heart, monkeypatch, "sleeping", IDLE, 150, every=50) == ""  # the guard itself was stopped
    assert watched(heart, monkeypatch, "D", lambda now: now // 100, 2.5) == ""  # a disk that is slow
    heart.waits()
    assert heart.state == WAITING
    assert watched(heart, monkeypatch, "sleeping", IDLE, 100) == ""
    heart.goes_on()
    assert heart.state == WORKING


def test_how_long_rows_may_take_follows_from_those_before(heart, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(heartbeat.time, "perf_counter", lambda: now[0])
    heart.works(10)
    now[0] = 2.0
    heart.waits()  # 0.2 s a row
    now[0] = 50.0  # waiting is not counted
    heart.goes_on()
    heart.works(100)
    assert heart.foreseen == pytest.approx(heartbeat.SLOWER * 20)
    assert watched(heart, monkeypatch, "running", BUSY, 90) == ""
    assert "no step" in watched(heart, monkeypatch, "running", BUSY, 110)


def test_the_first_member_works_before_all_others():
    order, box = [], np.zeros(1)

    def part(group):
        if group.rank == 0:
            group.receive(box, 1)  # it comes later than the others
        if group.rank == 1:
            group.send(box, 0)
        return member_of.first_one(group, lambda: order.append(group.rank) or 10 * group.rank)

    assert simulate(part, 3).results == [0, 10, 20] and order[0] == 0 and sorted(order) == [0, 1, 2]


def test_last_words_reach_the_guard_whole_or_shortened(heart):
    assert heart.read_last_words() is None
    heart.last_words("zwölf Boxkämpfer", 2)
    assert heart.read_last_words() == (2, "zwölf Boxkämpfer")
    heart.last_words("x" * 100_000, 1)
    status, text = heart.read_last_words()
    assert status == 1 and set(text) == {"x"} and len(text) > 1000


@MPI
def test_without_a_folder_for_the_socket_one_line_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(start.tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(CourseError, match="expected a folder for a socket; No such file .*: name one in TMPDIR"):
        start.run(["train"], 2, 6, lambda heart: 0)
