"""The recipe of docs/jupyterhub.md: its pins, its unit, its collecting; and a Hub that is installed from it and runs.

Here all of the Hub's users are this account, with homes of their own, so that no accounts are made. Whether accounts
are closed to each other is tried by test_jupyterhub.py, on a Hub with PAM.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import free_ports

from nnclassroom.commands import main
from tests import test_jupyterhub
from tests.made_class import table

ROOT = Path(__file__).resolve().parent.parent
HUB = ROOT / "hub"
NUMBERED = re.compile(r"(?m)^([\w-]+)==([\w.]+)")
PROXY = "configurable-http-proxy@5.3.0"
USERS, SOLVING, PATIENCE = ("ada", "bob", "eve"), ("ada", "bob"), 240


def test_the_hub_has_the_courses_versions_of_what_both_have():
    here = dict(NUMBERED.findall((HUB / "requirements.txt").read_text("utf-8")))
    course = dict(NUMBERED.findall((ROOT / "requirements" / "base.txt").read_text("utf-8")))
    assert {"jupyterhub", "jupyterlab", "jupyterlab-widgets", "anywidget"} == set(here)
    assert all(course[name] == here[name] for name in here if name != "jupyterhub")
    assert PROXY in (ROOT / "docs" / "jupyterhub.md").read_text("utf-8")
    assert PROXY in (HUB / "requirements.txt").read_text("utf-8")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
def test_systemd_understands_the_unit(tmp_path):
    unit = tmp_path / "jupyterhub.service"
    text = (HUB / "jupyterhub.service").read_text("utf-8")
    assert "/opt/jupyterhub/bin/jupyterhub -f /srv/course/hub/jupyterhub_config.py" in text
    unit.write_text(text.replace("/opt/jupyterhub/bin/jupyterhub", "/bin/true").replace("#Environment", "Environment"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert done.returncode == 0 and "jupyterhub.service" not in done.stderr, done.stderr


@pytest.fixture
def accounts(tmp_path, monkeypatch) -> Iterator[Path]:
    """Homes, and programs that take their owners for accounts of this machine.

    Their paths are short: a kernel's sockets lie in a home, and their names have at most 107 characters.
    """
    with tempfile.TemporaryDirectory(prefix="hub-") as homes:
        yield _made(Path(homes), tmp_path, monkeypatch)


def _made(homes: Path, tmp_path: Path, monkeypatch) -> Path:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in {
        "getent": f'[ -d "{homes}/$2" ] && echo "$2:x:1:1::{homes}/$2:/bin/sh"',
        "runuser": 'shift 3; exec "$@"',  # runuser -u USER -- COMMAND
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    for name in USERS:
        (homes / name).mkdir(parents=True, mode=0o700)
    return homes


def collected(out: Path, *users: str) -> subprocess.CompletedProcess:
    return subprocess.run([HUB / "collect.sh", out, *users], capture_output=True, text=True)


needs_venv = pytest.mark.skipif(not (ROOT / ".venv/bin/python").exists(), reason="no .venv here, which packs")


@needs_venv
def test_kernels_are_collected_from_homes_that_are_closed(accounts, tmp_path):
    kept = accounts / "ada" / "my_kernels"
    kept.mkdir(mode=0o700)
    (kept / "sigmoid.numpy.py").write_text("def sigmoid(z):\n    return z\n")
    (accounts / "bob" / "my_kernels").mkdir()
    (accounts / "bob" / "my_kernels" / "sigmoid.numpy.py").symlink_to("/etc/passwd")
    done = collected(tmp_path / "out", *USERS, "nobody_here")
    assert done.stdout == f"1 of 4 users collected in {tmp_path / 'out'}\n"
    assert all(f"{name}: nothing collected" in done.stderr for name in ("bob", "eve", "nobody_here"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["ada.zip"]
    with zipfile.ZipFile(tmp_path / "out" / "ada.zip") as archive:
        assert "my_kernels/sigmoid.numpy.py" in archive.namelist()
    assert (tmp_path / "out" / "ada.zip").stat().st_mode & 0o777 == 0o600
    assert collected(tmp_path / "out").returncode == 2


# A Hub that is installed and runs


CONFIGURATION = """
import os
load_subconfig({recipe!r})
c.JupyterHub.bind_url = "http://127.0.0.1:{ports[0]}"
c.JupyterHub.hub_port = {ports[1]}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{ports[2]}"
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.Spawner.environment["NNCOURSE_MY_KERNELS"] = lambda spawner: f"{homes}/{{spawner.user.name}}/my_kernels"
c.Spawner.environment["JUPYTER_PATH"] = {jupyter!r}
c.Spawner.args.append("--allow-root")
c.Spawner.start_timeout = c.Spawner.http_timeout = {patience}
"""


@pytest.fixture(scope="module")
def hub_environment(tmp_path_factory) -> Path:
    """The Hub's environment as the recipe makes it: kept in build/, since it is some 300 MB."""
    place = ROOT / "build" / "jupyterhub"
    if not shutil.which("npm"):
        pytest.skip("npm is not here")
    if not (place / "bin" / "configurable-http-proxy").exists():  # the last that is installed
        shutil.rmtree(place, ignore_errors=True)
        python, pins = str(place / "bin" / "python"), str(HUB / "requirements.txt")
        for command in (
            [sys.executable, "-m", "venv", str(place)],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", pins],
            ["npm", "install", "--silent", "-g", "--prefix", str(place), PROXY],
        ):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"{' '.join(command[:3])}: {done.stderr.strip().splitlines()[-1:]}")
    return place


@pytest.mark.release
@needs_venv
@pytest.mark.timeout(1800)
def test_three_users_are_handed_out_to_two_solve_and_are_marked(hub_environment, accounts, tmp_path, monkeypatch):
    monkeypatch.setattr(test_jupyterhub, "PATIENCE", PATIENCE)  # here on a busy machine
    handed_out, password, ports = tmp_path / "handout.zip", os.urandom(12).hex(), free_ports(3)
    assert main(["handout", "--notebooks-only", "--out", str(handed_out)]) == 0
    with zipfile.ZipFile(handed_out) as archive:
        archive.extractall(tmp_path / "handout")
    given = {"recipe": str(HUB / "jupyterhub_config.py"), "ports": ports, "password": password, "patience": PATIENCE}
    given |= {"homes": str(accounts), "jupyter": str(_kernel_of_the_course(tmp_path / "jupyter"))}
    (tmp_path / "config.py").write_text(CONFIGURATION.format(**given))
    path = f"{hub_environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "NNCOURSE_HANDOUT": str(tmp_path / "handout" / "course")}
    for name in [name for name in environment if name.startswith(("JUPYTER", "NNCOURSE_MY"))]:
        del environment[name]
    command = [hub_environment / "bin" / "jupyterhub", "-f", tmp_path / "config.py"]
    with (tmp_path / "log").open("w") as log:
        hub = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True)
    users = []
    try:
        _wait_for(ports[0], hub, tmp_path / "log")
        for name in USERS:
            users.append(test_jupyterhub.User(f"http://127.0.0.1:{ports[0]}", name, password))
        for user in users[: len(SOLVING)]:
            run = user.kernel()
            imports, answer = test_jupyterhub.first_exercise()
            run(imports)
            shown = run(answer)
            assert "✓" in shown and "Kept as" in shown, shown
        for name in USERS:
            copy = accounts / name / "nn-course" / "notebooks" / "01_neurons.ipynb"
            assert copy.stat().st_mode & 0o777 == 0o600
        for user in users:
            user.end()
    finally:
        _end(hub)
    assert collected(tmp_path / "week", *USERS).stdout.startswith("2 of 3 users collected")
    command = ["grade", str(tmp_path / "week"), "--only", "01", "--no-sandbox", "--out", str(tmp_path / "marks.csv")]
    assert main(command) == 0
    marks = table(tmp_path / "marks.csv")
    right = {(row["student"], row["exercise"]) for row in marks if row["state"] == "right"}
    assert right == {(name, "neuron.loops") for name in SOLVING}


def _kernel_of_the_course(folder: Path) -> Path:
    """The course's kernel under its whole path, as `make shared` writes it, which a Jupyter from elsewhere starts."""
    kernel = folder / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    about = json.loads((ROOT / ".venv/share/jupyter/kernels/python3/kernel.json").read_text("utf-8"))
    argv = [str(ROOT / ".venv" / "bin" / "python"), *about["argv"][1:]]
    kernel.write_text(json.dumps(about | {"argv": argv}), "utf-8")
    return folder


def _end(hub: subprocess.Popen) -> None:
    """End the Hub, its proxy and its users' servers."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(hub.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            hub.wait(30)


def _wait_for(port: int, hub: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", port)) == 0 and "JupyterHub is now running" in log.read_text():
                return
        assert hub.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
        time.sleep(0.5)
