"""The batch scripts of slurm/, run by a real Slurm: one node of this machine, and two GPUs that are not there."""

import json
import os
import re
import socket
import stat
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import numpy as np
import pytest
import slurm_cluster
from processes import MPI, until, with_variable

from nnclassroom.exercises import kept_kernels
from nncourse import device
from nncourse.kernels.activations import sigmoid
from nncourse.model import files

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENT = "slurm/experiment.sbatch"
SCRIPTS = sorted((ROOT / "slurm").glob("*.sbatch"))
TRAIN, LAB, NOTEBOOKS, REPORT = (f"slurm/{name}.sbatch" for name in ("train", "jupyterlab", "notebooks", "report"))
PARALLEL = "slurm/parallel.sbatch"
TWO_GPUS = ("parallel", "experiment")  # the scripts that ask for two
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(bool(slurm_cluster.why_not()), reason=slurm_cluster.why_not() or "-"),
]


@pytest.fixture(scope="module")
def slurm():
    """A Slurm that runs for these tests."""
    with slurm_cluster.cluster() as running:
        running.environment["VENV"] = sys.prefix
        yield running


def make_course(folder: Path) -> tuple[Path, dict[str, str]]:
    """A folder that holds the course, for the logs and results of jobs, and the environment with its own HOME."""
    course = folder / "course"
    course.mkdir()
    for name in ("nncourse", "slurm", "tools", "datasets", "pyproject.toml"):
        (course / name).symlink_to(ROOT / name)
    # Caches of the user, such as Matplotlib's list of fonts, need not be made for each test.
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    mine = {f"NNCOURSE_{name.upper()}": str(folder / name) for name in ("my_kernels", "my_notebooks")}
    return course, {"HOME": str(folder), "XDG_CACHE_HOME": cache, **mine}


@pytest.fixture
def course(slurm, tmp_path, monkeypatch):
    """A folder of its own for the jobs of a test."""
    folder, changed = make_course(tmp_path)
    monkeypatch.setattr(slurm, "environment", slurm.environment | changed)
    return folder


@pytest.fixture(scope="module", autouse=True)
def slow_jobs(slurm, tmp_path_factory):
    """A report, and a JupyterLab that nobody uses: both take a minute, and the last tests look at them."""
    folder, environment = make_course(tmp_path_factory.mktemp("slow"))
    write_cc(folder.parent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNCOURSE_MY_KERNELS", environment["NNCOURSE_MY_KERNELS"])
        kept_kernels.keep(sigmoid, "numpy", "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n", seconds=1e-5)
    lab = slurm.submit("--gres=none", LAB, cwd=folder, IDLE_SECONDS="2", **environment)
    options = ["--epochs", "1", "--dataset", folder.parent / "cc" / "CC_train.csv"]
    report = slurm.submit("--gres=none", REPORT, *options, cwd=folder, REPORT="kept_kernels.html", **environment)
    return folder, report, lab


def stub_python(folder: Path, script: str) -> str:
    """An environment whose Python is these lines of shell."""
    (folder / "stub" / "bin").mkdir(parents=True)
    python = folder / "stub" / "bin" / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return str(folder / "stub")


def log_of(course: Path, name: str, number: str) -> str:
    return (course / f"nncourse-{name}-{number}.log").read_text()


def write_cc(folder: Path) -> None:
    """Files in the form of the credit-card data: a quoted header, 30 features, the class last."""
    rng = np.random.default_rng(3)
    (folder / "cc").mkdir(parents=True)
    for name in ("CC_train.csv", "CC_test.csv"):
        X = rng.normal(size=(40, 30))
        lines = [",".join(map("{:.3f}".format, x)) + f',"{int(x[0] > 0)}"' for x in X]
        header = ",".join(f'"V{number}"' for number in range(30)) + ',"Class"'
        (folder / "cc" / name).write_text("\n".join([header, *lines]) + "\n")


# The scripts as such


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_script_is_accepted_and_asks_for_its_gpus(slurm, course, script):
    gpus = 2 if script.stem in TWO_GPUS else 0 if script.stem == "grade" else 1
    assert slurm.run("sbatch", "--test-only", script, cwd=course).returncode == 0
    job = slurm.job(slurm.submit("--hold", script, cwd=course))
    asked = job.get("TresPerNode", "") + job.get("ReqTRES", "")
    assert f"gres:gpu:{gpus}" in asked or f"gres/gpu={gpus}" in asked if gpus else "gpu" not in asked
    assert job["StdOut"] == f"{course}/{job['JobName']}-{job['JobId']}.log"
    assert job["TimeLimit"] != "UNLIMITED" and job["MinMemoryNode"].endswith("G")
    assert slurm.run("scancel", job["JobId"]).returncode == 0


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_elsewhere_and_without_an_environment_it_says_what_to_do(slurm, course, tmp_path, script):
    elsewhere = slurm.submit("--gres=none", script, cwd=tmp_path)
    without = slurm.submit("--gres=none", script, cwd=course, VENV="")
    for number, folder in ((elsewhere, tmp_path), (without, course)):
        assert slurm.wait(number)["ExitCode"] == "2:0"
        (log,) = folder.glob(f"*-{number}.log")
        assert log.read_text().count("\n") == 1
        words = "expected the course's folder, got" if folder == tmp_path else "found none: run make setup in"
        assert words in log.read_text()


@pytest.mark.parametrize("option", ["--gres=gpu:3", "--mem=1T", "--time=2-00:00:00", "--cpus-per-task=64"])
def test_what_the_cluster_cannot_give_is_refused_at_once(slurm, course, option):
    result = slurm.run("sbatch", option, TRAIN, cwd=course)
    assert result.returncode != 0
    assert "Batch job submission failed" in result.stderr


@pytest.mark.parametrize(("script", "status"), [(TRAIN, 0), (TRAIN, 7), (NOTEBOOKS, 0), (REPORT, 7), (PARALLEL, 7)])
def test_the_exit_status_comes_back_to_sbatch(slurm, course, tmp_path, script, status):
    environment = {"VENV": stub_python(tmp_path, f"exit {status}"), "DATASET": "breast_cancer"}
    assert slurm.run("sbatch", "--wait", script, cwd=course, **environment).returncode == status


# GPUs


def test_a_class_is_marked(slurm, course):
    (course / "submissions" / "ada").mkdir(parents=True)
    (course / "submissions/ada/sigmoid.numpy.py").write_text("def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n")
    words = ("submissions", "--only", "sigmoid.numpy", "--no-sandbox")
    assert slurm.wait(slurm.submit("slurm/grade.sbatch", *words, cwd=course))["ExitCode"] == "0:0"
    assert "ada,02_activations,sigmoid.numpy,right" in (course / "marks.csv").read_text()
    assert slurm.wait(slurm.submit("slurm/grade.sbatch", cwd=course))["ExitCode"] == "2:0"


def test_two_jobs_get_a_gpu_each_and_a_third_waits(slurm, course, tmp_path):
    go_on = tmp_path / "go_on"
    venv = stub_python(tmp_path, f"while [ ! -e {go_on} ]; do sleep 0.1; done")
    environment = {"VENV": venv, "DATASET": "breast_cancer"}
    first, second, third = (slurm.submit(TRAIN, cwd=course, **environment) for _ in range(3))
    slurm.wait(first, "RUNNING")
    slurm.wait(second, "RUNNING")
    time.sleep(1.5)  # the scheduler has looked again
    assert slurm.job(third)["JobState"] == "PENDING"
    assert slurm.job(third)["Reason"] in ("Resources", "Priority")
    go_on.touch()
    for number in (first, second, third):
        assert slurm.wait(number)["ExitCode"] == "0:0"
    gpus = [re.search(r"GPU (\w+)", log_of(course, "train", number)).group(1) for number in (first, second, third)]
    assert sorted(gpus[:2]) == ["0", "1"]
    assert gpus[2] in ("0", "1")


# train.sbatch


def test_train_runs_the_handouts_network(slurm, course, tmp_path):
    write_cc(tmp_path)
    number = slurm.submit(TRAIN, cwd=course, NNCOURSE_DATA=str(tmp_path), BACKEND="numpy")
    assert slurm.wait(number)["ExitCode"] == "0:0", log_of(course, "train", number)
    model = files.load(course / f"nncourse-train-{number}.npz")
    assert list(model.network.sizes) == [30, 60, 10, 1]
    told = model.provenance
    assert (told["epochs"], told["batch_size"], told["learning_rate"]) == (300, 10, 0.01)
    assert (told["dataset"], told["backend"]) == ("CC_train", "numpy")
    assert "CC_test: 40 samples, network 30-60-10-1" in log_of(course, "train", number)
    assert "F1" in log_of(course, "train", number)


def test_train_takes_other_data_another_model_and_options(slurm, course):
    environment = {"DATASET": "xor", "MODEL": "xor.m", "BACKEND": "loops"}
    options = ["--layers", "2,3,1", "--epochs", "1"]
    number = slurm.submit(TRAIN, *options, cwd=course, **environment)
    assert slurm.wait(number)["ExitCode"] == "0:0", log_of(course, "train", number)
    assert list(files.load(course / "xor.m").network.sizes) == [2, 3, 1]
    assert "xor: 400 samples" in log_of(course, "train", number)


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        ([], {}, "found none: see datasets/README.md"),
        ([], {"DATASET": "xor", "BACKEND": "numpy"}, "expected 30 features for the inputs of the network; xor has 2"),
        (["--model=x.npz"], {"DATASET": "xor"}, "expected --model as a variable"),
        (["--layers=2,1"], {"DATASET": "xor", "BACKEND": "numpy", "TEST_DATASET": "no.csv"}, "no.csv"),
    ],
    ids=["no data", "data of another shape", "an option that is a variable", "no test data"],
)
def test_a_train_that_cannot_work_ends_with_one_line(slurm, course, tmp_path, arguments, environment, words):
    number = slurm.submit(TRAIN, *arguments, cwd=course, NNCOURSE_DATA=str(tmp_path), **environment)
    assert slurm.wait(number)["ExitCode"] == "2:0"
    last = log_of(course, "train", number).splitlines()[-1]
    assert last.startswith(("nncourse: ", "nncourse-train: ")) and words in last


@pytest.mark.skipif(device.gpu_available(), reason="there is a GPU here, and the CUDA kernels run")
def test_train_with_cuda_on_a_node_without_it_ends_with_one_line(slurm, course):
    """Its status comes back through sbatch --wait."""
    result = slurm.run("sbatch", "--wait", "--parsable", TRAIN, cwd=course, DATASET="breast_cancer")
    assert result.returncode == 2
    lines = log_of(course, "train", result.stdout.strip()).splitlines()
    assert len(lines) == 2 and lines[1].startswith("nncourse: the backend cuda needs a GPU")
    assert not list(course.glob("*.npz"))


# parallel.sbatch

ENDLESS = ("--layers", "2,3,1", "--epochs", "100000000")


@MPI
def test_two_tasks_train_one_network(slurm, course):
    """Each of them sees both GPUs; in the log one of them speaks."""
    environment = {"DATASET": "xor", "BACKEND": "numpy"}
    number = slurm.submit(PARALLEL, "--layers", "2,3,1", "--epochs", "2", cwd=course, **environment)
    assert slurm.wait(number)["ExitCode"] == "0:0", log_of(course, "parallel", number)
    told = files.load(course / f"nncourse-parallel-{number}.npz").provenance
    assert (told["epochs"], told["processes"], told["batch_size"]) == (2, 2, 256)
    log = log_of(course, "parallel", number)
    assert log.count("2 processes train together: each has 128 rows of every batch of 256\n") == 1
    assert "GPU 0,1, cores 2" in log and log.count("cost") == 2 and "xor: 400 samples, network 2-3-1" in log


@MPI
def test_tasks_that_find_no_common_world_are_refused(slurm, course):
    """Under plain srun each would train the whole network, and all would write the same file."""
    number = slurm.submit(PARALLEL, *ENDLESS, cwd=course, MPI="none", DATASET="xor", BACKEND="numpy")
    assert slurm.wait(number)["ExitCode"] == "2:0", log_of(course, "parallel", number)
    (line,) = (line for line in log_of(course, "parallel", number).splitlines() if line.startswith("nncourse: "))
    assert (
        "expected a world of 2 processes, according to srun; each process is alone in its own: use srun --mpi" in line
    )
    assert not list(course.glob("*.npz"))


@MPI
def test_a_task_that_is_killed_ends_the_job(slurm, course):
    number = slurm.submit(PARALLEL, *ENDLESS, cwd=course, DATASET="xor", BACKEND="numpy")
    log = course / f"nncourse-parallel-{number}.log"
    assert until(lambda: log.exists() and "train together" in log.read_text()), log.read_text()
    variables = with_variable("SLURM_JOB_ID", number)
    (member,) = (each for each, seen in variables.items() if "NNCOURSE_MEMBER" in seen and seen["SLURM_PROCID"] == "1")
    member.kill()
    assert slurm.wait(number, patience=10)["ExitCode"] == "1:0"
    (line,) = (line for line in log.read_text().splitlines() if line.startswith("nncourse: "))
    assert line.startswith(f"nncourse: rank 1: process {member.pid} on ") and "was killed by SIGKILL" in line
    assert not slurm_cluster.processes_of(number) and not list(course.glob("*.npz"))


# experiment.sbatch


def test_the_experiment_takes_the_gpus_that_the_job_got(slurm, course, tmp_path):
    stub = stub_python(tmp_path, 'echo "$@"')
    for gpus, wanted in ((2, "cpu,1,2"), (1, "cpu,1")):
        number = slurm.submit(f"--gres=gpu:{gpus}", EXPERIMENT, "--epochs", "5", cwd=course, VENV=stub)
        assert slurm.wait(number)["ExitCode"] == "0:0", log_of(course, "experiment", number)
        last = log_of(course, "experiment", number).splitlines()[-1]
        assert last == f"-m nnclassroom experiment resnet34 --out experiment --devices {wanted} --epochs 5"


@MPI
def test_the_experiment_starts_its_processes_in_a_job(slurm, course):
    options = {"devices": "cpu2", "runs": 1, "epochs": 1, "batch-size": 8, "images": 5, "size": "12x16"}
    words = [text for name, value in (options | {"cpu-steps": 0}).items() for text in (f"--{name}", str(value))]
    number = slurm.submit("--gres=gpu:2", EXPERIMENT, *words, cwd=course, NETWORK="small", OUT="found")
    assert slurm.wait(number)["ExitCode"] == "0:0", log_of(course, "experiment", number)
    assert len(list((course / "found" / "runs").iterdir())) == 2
    assert "2 CPU processes" in (course / "found" / "experiment.html").read_text("utf-8")


# notebooks.sbatch


def write_notebook(path: Path, source: str) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source, id="cell")])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, path)


def test_notebooks_are_run_and_a_failing_cell_is_told(slurm, course):
    variables = "[os.environ.get('NNCOURSE_' + name) for name in ('SOLVE', 'STRICT', 'MY_KERNELS')]"
    write_notebook(course / "good.ipynb", f"import os, pathlib\npathlib.Path('told').write_text(repr({variables}))")
    write_notebook(course / "bad.ipynb", "assert 1 + 1 == 3")
    environment = {"NNCOURSE_REQUIRE_GPU": "0", "NNCOURSE_SOLVE": "every-second"}
    both = ["good.ipynb", "bad.ipynb"]
    number = slurm.submit("--cpus-per-task=1", NOTEBOOKS, *both, cwd=course, **environment)
    assert slurm.wait(number)["ExitCode"] == "1:0"
    assert "1 failed, 1 passed" in log_of(course, "notebooks", number)
    solved, strict, kernels = eval((course / "told").read_text())
    assert strict == "1" and len(solved.split(",")) > 5
    assert not Path(kernels).exists()  # a folder of the job's own, and gone with it


@pytest.mark.skipif(device.gpu_available(), reason="there is a GPU here, and the notebooks run on it")
def test_notebooks_want_a_gpu(slurm, course):
    number = slurm.submit(NOTEBOOKS, cwd=course)
    assert slurm.wait(number)["ExitCode"] == "2:0"
    assert "expected a GPU, since NNCOURSE_REQUIRE_GPU is 1" in log_of(course, "notebooks", number)


# jupyterlab.sbatch


def ask(address: str, token: str = "", send: dict | None = None) -> tuple[int, dict]:
    """The HTTP status and the JSON that the server answers with; status 0 as long as nobody answers."""
    headers = {"Authorization": f"token {token}"} if token else {}
    body = None if send is None else json.dumps(send).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=30) as answer:
            return answer.status, json.loads(answer.read() or b"{}")
    except urllib.error.HTTPError as error:
        return error.code, {}
    except OSError:
        return 0, {}


def listeners(port: int) -> list[str]:
    """The local addresses, as the kernel writes them, on which somebody listens on this port."""
    tables = [Path(f"/proc/net/{name}") for name in ("tcp", "tcp6")]
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return [row[1].split(":")[0] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"]


def test_jupyterlab_serves_its_owner_alone_and_ends_when_cancelled(slurm, course):
    number = slurm.submit(LAB, cwd=course)
    slurm.wait(number, "RUNNING")
    log = course / f"nncourse-lab-{number}.log"
    assert until(lambda: log.exists() and "?token=" in log.read_text()), log.read_text()
    text = log.read_text()
    port, token = re.search(r"http://127\.0\.0\.1:(\d+)/lab/tree/my_notebooks/\S+\?token=(\w+)", text).groups()
    host = re.escape(socket.gethostname())
    assert re.search(rf"ssh -N -J \S+@\S+ -L {port}:127\.0\.0\.1:{port} \S+@{host}\n", text)
    assert len(token) >= 32
    assert stat.S_IMODE(log.stat().st_mode) & 0o077 == 0

    server = f"http://127.0.0.1:{port}/api"
    assert until(lambda: ask(f"{server}/status", token)[0] == 200), log.read_text()
    for wrong in ("", token[::-1]):
        assert ask(f"{server}/contents/my_notebooks/00_start_here.ipynb", wrong)[0] == 403
        assert ask(f"{server}/kernels", wrong, send={})[0] == 403
    assert ask(f"{server}/contents/my_notebooks/00_start_here.ipynb", token)[0] == 200
    assert listeners(int(port)) == ["0100007F"]

    assert ask(f"{server}/kernels", token, send={"name": "python3"})[0] == 201
    processes = slurm_cluster.processes_of(number)
    lines = {process: Path(f"/proc/{process}/cmdline").read_text() for process in processes}
    assert len([line for line in lines.values() if "ipykernel" in line]) == 1
    assert not any(token in line for line in lines.values())

    assert slurm.run("scancel", number).returncode == 0
    assert slurm.wait(number)["JobState"] == "CANCELLED"
    assert until(lambda: not slurm_cluster.processes_of(number)), lines
    assert ask(f"{server}/status", token)[0] == 0


def test_an_idle_time_that_is_no_number_is_refused(slurm, course):
    number = slurm.submit("--gres=none", LAB, cwd=course, IDLE_SECONDS="1h")
    assert slurm.wait(number)["ExitCode"] == "2:0"
    assert "expected IDLE_SECONDS as a whole number from 1 on, got 1h" in log_of(course, "lab", number)


# The jobs that were started before all tests


def test_the_report_shows_the_kept_kernels(slurm, slow_jobs):
    folder, number, _ = slow_jobs
    assert slurm.wait(number)["ExitCode"] == "0:0", log_of(folder, "report", number)
    page = (folder / "kept_kernels.html").read_text()
    assert "<html" in page and "sigmoid" in page


def test_a_jupyterlab_that_nobody_uses_ends_itself(slurm, slow_jobs):
    """It looks once a minute. The minute has passed while the other tests ran."""
    folder, _, number = slow_jobs
    job = slurm.wait(number)
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0"), log_of(folder, "lab", number)
    assert not slurm_cluster.processes_of(number)
