"""`%%px` cells on real processes: labelled, limited in time, and ended with the notebook."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import is_running, until

from nnclassroom.notebook import engines
from nncourse.errors import CourseError
from nncourse.threads import granted, usable_cores

ROOT = Path(__file__).resolve().parent.parent
needs_mpi = pytest.mark.skipif(bool(engines.why_not()), reason=engines.why_not() or "-")
BEGIN = "from nncourse.parallel.mpi import MPIGroup\ngroup = MPIGroup()\n"


@pytest.fixture(scope="module")
def two():
    """Two processes, which the tests below share and the last one stops."""
    if engines.why_not():
        pytest.skip(engines.why_not())
    started = engines.start(2, seconds=20)
    yield started
    engines.stop()


def gone(processes: list[int], patience: float) -> bool:
    return until(lambda: not any(map(is_running, processes)), patience)


def test_each_rank_s_output_has_its_label(two, capsys):
    two.run(f"{BEGIN}import numpy as np\nvector = np.ones(2) * (group.rank + 1)\ngroup.all_reduce(vector)")
    two.run("print('of', group.size)\nprint('sum', *vector)\ngroup.rank * 10")
    assert capsys.readouterr().out.splitlines()[-6:] == [
        *("rank 0: of 2", "rank 0: sum 3.0 3.0", "rank 0: 0", "rank 1: of 2", "rank 1: sum 3.0 3.0", "rank 1: 10")
    ]
    engines.px("--ranks 1", "print('here')")
    assert capsys.readouterr().out == "rank 1: here\n"


def test_each_process_begins_with_one_thread_and_may_take_its_share_of_the_cores(two, capsys):
    two.run(
        "import numpy as np\nfrom threadpoolctl import threadpool_info\nfrom nncourse import threads\n"
        "blas = {pool['num_threads'] for pool in threadpool_info() if pool['user_api'] == 'blas'}\n"
        "print(*blas, threads.granted())"
    )
    share = max(1, min(usable_cores() // 2, granted()))
    assert capsys.readouterr().out.splitlines() == [f"rank {rank}: 1 {share}" for rank in (0, 1)]


def test_a_rank_that_fails_is_named_with_its_line_and_the_processes_stay(two, capsys):
    with pytest.raises(CourseError) as error:
        two.run("a = 5\nif group.rank == 1:\n    a = 1 / 0\n")
    assert str(error.value) == "rank 1 failed: ZeroDivisionError: division by zero (line 3)"
    two.run("a")
    assert capsys.readouterr().out.splitlines() == ["rank 0: 5", "rank 1: 5"]


def test_a_long_message_arrives_though_its_sender_has_ended_its_cell(two, capsys):
    two.run("from nncourse.parallel.patient import PatientGroup\nimport numpy as np\npatient = PatientGroup()")
    two.run("if patient.rank == 1:\n    patient.send(np.full(10**6, 7.0), 0)")
    two.run("if patient.rank == 0:\n    box = np.empty(10**6)\n    patient.receive(box, 1)\n    print(box.sum())", 9)
    assert capsys.readouterr().out.splitlines()[-1] == "rank 0: 7000000.0"


@pytest.mark.parametrize("line", ["--second 5", "--seconds five", "--ranks one", "cell"])
def test_a_magic_that_is_not_understood_is_refused(two, line):
    with pytest.raises(CourseError, match="expected %%px, perhaps with --seconds 5 or --ranks 0,1; got"):
        engines.px(line, "1")


def test_ranks_that_are_not_there_are_refused(two):
    with pytest.raises(CourseError, match=r"expected ranks from 0 to 1, got \[2\]"):
        engines.px("--ranks 2", "1")


@pytest.mark.full
def test_a_deadlock_is_told_with_its_lines_and_the_next_cell_has_new_processes(two, capsys):
    two.run("import os\nos.getpid()")
    old = [int(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    began = time.monotonic()
    with pytest.raises(CourseError) as error:
        engines.px("--seconds 0.5", "if group.rank == 0:\n    group.receive(vector, 1)\nelse:\n    group.barrier()")
    assert time.monotonic() - began < 30
    for rank, line in ((0, "line 3: group.receive(vector, 1)"), (1, "line 5: group.barrier()")):
        assert f"rank {rank} did not end within 0.5 s in {line}" in str(error.value)
    assert str(error.value).endswith("all processes were ended, and the next %%px cell starts new ones")
    assert gone(old, 3)
    with pytest.raises(CourseError, match="NameError: name 'vector' is not defined.*these processes are new: run"):
        two.run("vector")


def test_a_cell_may_be_meant_to_fail(two, capsys):
    engines.px("--fails", "1 / 0")
    assert "rank 0 failed: ZeroDivisionError: division by zero (line 2); rank 1 failed" in capsys.readouterr().out
    with pytest.raises(CourseError, match="meant to fail, but did not"):
        engines.px("--fails", "1")


def test_a_stop_ends_them(two, capsys):
    two.run("import os\nos.getpid()")
    processes = [int(line.split()[-1]) for line in capsys.readouterr().out.splitlines()]
    engines.stop()
    assert len(processes) == 2 and gone(processes, 3)
    with pytest.raises(CourseError, match=r"run engines.start\(\) first"):
        engines.px("", "1")


@needs_mpi
@pytest.mark.full
def test_they_end_with_a_notebook_that_is_killed():
    code = "from nnclassroom import engines\ntwo = engines.start(2)\ntwo.run('import os; print(os.getpid())')\n"
    code += "two._cluster and print('controller', two._cluster.controller.pid, flush=True)\nimport time; time.sleep(99)"
    places = os.pathsep.join([str(ROOT), *filter(None, sys.path)])  # ipyparallel may be anywhere
    environment = os.environ | {"PYTHONPATH": places, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as notebook:
        numbers = (line.split()[-1] for line in notebook.stdout if line.split()[-1].isdigit())
        processes = [int(next(numbers)) for _ in range(3)]  # two, and their controller
        assert all(map(is_running, processes))
        notebook.send_signal(signal.SIGKILL)
        assert gone(processes, 8)


def test_where_something_is_missing_one_line_says_so_and_the_notebook_goes_on(monkeypatch, capsys):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert engines.start() is None
    assert capsys.readouterr().out.count("\n") == 1
    engines.px("--seconds 5", "1 / 0")
    assert capsys.readouterr().out == ""
    assert "no mpi4py and no ipyparallel here" in engines.why_not() and "simulated group" in engines.why_not()


PROGRAM = """
import os, sys
from nncourse.parallel import MPIGroup

group = MPIGroup()
if group.rank == 0:
    print("of", group.size, flush=True)
group.barrier()
if group.rank == 1 and sys.argv[1:] == ["fails"]:
    os._exit(3)  # without MPI_Finalize, which would wait
group.barrier()
"""


@needs_mpi
def test_a_program_runs_under_mpiexec_and_one_process_that_fails_ends_all(tmp_path, capfd):
    path = tmp_path / "mine.py"
    path.write_text(PROGRAM, "utf-8")
    assert engines.mpiexec(2, str(path))
    assert capfd.readouterr().out == f"$ mpiexec -n 2 python {path}\nof 2\n"
    assert not engines.mpiexec(2, str(path), "fails")
    command, said, *_, end = capfd.readouterr().out.splitlines()
    assert command.endswith("mine.py fails") and said == "of 2" and end.endswith("mpiexec ended all")


def test_without_mpi_a_program_is_not_run_and_a_line_says_why(monkeypatch, capsys):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    assert not engines.mpiexec(2, "nothing.py")
    assert "no mpi4py" in capsys.readouterr().out
