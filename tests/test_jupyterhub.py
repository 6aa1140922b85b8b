"""The course on a JupyterHub: what its configuration says, how a user's server starts, and a Hub that runs.

The last part needs a running Hub as docs/jupyterhub.md sets it up, and two of its users; -s shows the seconds to a ✓:

    NNCOURSE_HUB=http://127.0.0.1:8000 NNCOURSE_HUB_USERS=ada:PASSWORD,bob:PASSWORD pytest -s tests/test_jupyterhub.py
"""

import json
import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest

from nnclassroom.handing_out.notebook_files import cell_hash, packed, to_bytes
from nncourse import threads

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION = ROOT / "hub" / "jupyterhub_config.py"
SINGLEUSER = ROOT / "hub" / "singleuser.sh"
PATIENCE = 60  # seconds, for a server to start
ANSWER = "z = b\n    for i in range(len(x)):\n        z = z + w[i] * x[i]\n    return z\n"


class Settings(SimpleNamespace):
    """What Jupyter hands a configuration as `c`: any section, with any settings."""

    def __getattr__(self, section: str) -> SimpleNamespace:
        setattr(self, section, SimpleNamespace())
        return getattr(self, section)


def configured(file: Path) -> Settings:
    """The configuration's settings, where it lies in this file."""
    c = Settings()
    text = CONFIGURATION.read_text(encoding="utf-8")
    exec(compile(text, CONFIGURATION, "exec"), {"__file__": str(file), "get_config": lambda: c})
    return c


@pytest.fixture
def settings(monkeypatch) -> Settings:
    for name in ("NNCOURSE_COURSE", "NNCOURSE_HANDOUT"):
        monkeypatch.delenv(name, raising=False)
    return configured(CONFIGURATION)


def test_the_hub_listens_on_the_machine_itself_alone(settings):
    assert settings.JupyterHub.bind_url.startswith("http://127.0.0.1:")
    assert settings.JupyterHub.hub_ip == settings.Spawner.ip == "127.0.0.1"
    assert {"--KernelManager.transport=ipc", "--ContentsManager.hide_globs=MANIFEST.json"} < set(settings.Spawner.args)


def test_the_hub_starts_the_course(settings):
    script, server = settings.Spawner.cmd
    assert Path(script) == SINGLEUSER and os.access(script, os.X_OK)
    assert Path(server).parent == Path(settings.ConfigurableHTTPProxy.command).parent == Path(sys.prefix) / "bin"
    assert settings.Spawner.environment == {
        "JUPYTER_PATH": str(ROOT / ".venv" / "share" / "jupyter"),
        "OPENBLAS_THREAD_TIMEOUT": threads.TICKS,
    }
    first = settings.Spawner.default_url.removeprefix("/lab/tree/nn-course/notebooks/")
    assert (ROOT / "notebooks" / first).exists()


def test_the_configuration_can_lie_elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("NNCOURSE_COURSE", "/srv/course")
    monkeypatch.setenv("NNCOURSE_HANDOUT", "/srv/handout/course")
    c = configured(tmp_path / "x" / "c.py")
    assert c.Spawner.cmd[0] == "/srv/course/hub/singleuser.sh"
    assert c.Spawner.environment["NNCOURSE_HANDOUT"] == "/srv/handout/course"


def test_jupyterhub_knows_every_setting(settings):
    application = pytest.importorskip("jupyterhub.app", reason="jupyterhub is not here")
    from jupyterhub.auth import Authenticator
    from jupyterhub.proxy import ConfigurableHTTPProxy
    from jupyterhub.spawner import LocalProcessSpawner

    known = {"JupyterHub": application.JupyterHub, "Spawner": LocalProcessSpawner, "Authenticator": Authenticator}
    known |= {"ConfigurableHTTPProxy": ConfigurableHTTPProxy}
    for section, values in vars(settings).items():
        assert vars(values).keys() <= set(known[section].class_trait_names(config=True)), section


# How a user's server starts


def start(home: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    """singleuser.sh as a user with this home."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], **environment}
    return subprocess.run([SINGLEUSER, *arguments], env=environment, capture_output=True, text=True)


@pytest.fixture
def handout(tmp_path) -> Path:
    """A hand-out, unpacked, that nobody can write."""
    (tmp_path / "handout" / "notebooks").mkdir(parents=True)
    (tmp_path / "handout" / "notebooks" / "00_start_here.ipynb").write_text("new")
    (tmp_path / "handout" / "notebooks" / "00_start_here.ipynb").chmod(0o444)
    return tmp_path / "handout"


@pytest.fixture
def home(tmp_path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_the_first_start_copies_the_notebooks_and_later_ones_leave_work_alone(home, handout):
    result = start(home, "echo", "--port=1", "two words", NNCOURSE_HANDOUT=str(handout))
    assert (result.stdout, result.stderr, result.returncode) == ("--port=1 two words\n", "", 0)
    assert [path.name for path in home.iterdir()] == ["nn-course"]
    copy = home / "nn-course" / "notebooks" / "00_start_here.ipynb"
    assert copy.read_text() == "new"
    assert copy.stat().st_mode & 0o777 == 0o600 and copy.parent.stat().st_mode & 0o777 == 0o700
    copy.write_text("mine")
    assert start(home, "true", NNCOURSE_HANDOUT=str(handout)).returncode == 0
    assert copy.read_text() == "mine"


ENVIRONMENT = ROOT / ".venv" / "bin" / "python"
set_up = pytest.mark.skipif(not ENVIRONMENT.exists(), reason="no .venv here, with which singleuser.sh copies notebooks")


def outputs(path: Path) -> list:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell["outputs"] for cell in cells if cell.get("outputs")]


@set_up
@pytest.mark.full
def test_a_copy_of_the_courses_notebooks_has_no_outputs_and_is_brought_up_to_date(home):
    """The manifest of an older course is put in place of the copy's own."""
    assert start(home, "true").returncode == 0
    copy = home / "nn-course" / "notebooks"
    assert {path.name for path in copy.glob("*.ipynb")} == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    assert not any(outputs(path) for path in copy.glob("*.ipynb"))
    first = copy / "01_neurons.ipynb"
    as_given, manifest = first.read_bytes(), json.loads((copy / "MANIFEST.json").read_text())
    older = json.loads(as_given)
    older["cells"][0]["source"], older["cells"][1]["source"] = "as it was", "typed"
    first.write_text(json.dumps(older))
    manifest["notebooks"][first.name][older["cells"][0]["id"]] = cell_hash(nbformat.from_dict(older["cells"][0]))
    manifest["source"] = "older"
    (copy / "MANIFEST.json").write_text(json.dumps(manifest))
    result = start(home, "echo", "started")
    assert (result.stdout, result.stderr) == ("started\n", "")
    now = json.loads(first.read_text())["cells"]
    assert now[0]["source"] == json.loads(as_given)["cells"][0]["source"] and now[1]["source"] == ["typed"]
    assert "updated 01_neurons" in (home / "nn-course" / "updates.txt").read_text()


def hand_out(folder: Path, text: str) -> Path:
    """A small hand-out, unpacked: one notebook with one cell."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text, id="title")])
    files = {"notebooks/00_start_here.ipynb": to_bytes(notebook)}
    for name, content in packed(files, folder.name, {"kind": "notebooks", "language": "en"}).items():
        (folder.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.parent / name).write_bytes(content)
    return folder


@set_up
def test_a_new_hand_out_comes_in_at_the_next_start_and_a_damaged_one_stops_nobody(home, tmp_path):
    given = {"NNCOURSE_HANDOUT": str(hand_out(tmp_path / "course", "old"))}
    copy = home / "nn-course" / "notebooks" / "00_start_here.ipynb"
    for text in ("old", "new"):
        hand_out(tmp_path / "course", text)
        assert start(home, "echo", "started", **given).stdout == "started\n"
        assert json.loads(copy.read_text())["cells"][0]["source"] in (text, [text])
    (tmp_path / "course" / "notebooks" / "00_start_here.ipynb").write_text("damaged")
    (tmp_path / "course" / "MANIFEST.json").write_text("damaged too")
    result = start(home, "echo", "started", **given)
    assert (result.stdout, result.returncode) == ("started\n", 0)
    assert "MANIFEST.json" in (home / "nn-course" / "updates.txt").read_text()
    assert "new" in copy.read_text()


def test_what_the_server_makes_is_private_and_it_finds_the_course(home, handout):
    result = start(home, "sh", "-c", "touch made; echo $PATH; stat -c %a made; rm made", NNCOURSE_HANDOUT=str(handout))
    path, mode = result.stdout.split()
    assert path.startswith(f"{ROOT / '.venv' / 'bin'}:") and mode == "600"


# A Hub that runs


class User:
    """A user of the Hub, through its pages and its server's kernels."""

    def __init__(self, hub: str, name: str, password: str) -> None:
        import requests

        self.hub, self.name, self.web = hub, name, requests.Session()
        self.web.get(f"{hub}/hub/login", timeout=PATIENCE)
        form = {"username": name, "password": password, "_xsrf": self.web.cookies.get("_xsrf", path="/hub/")}
        answer = self.web.post(f"{hub}/hub/login", data=form, timeout=PATIENCE)
        assert answer.url.startswith(f"{hub}/hub/spawn") or f"/user/{name}/" in answer.url, f"{name}: {answer.url}"
        self._start()

    def _start(self) -> None:
        """Wait for the user's server, and take a token for its interface."""
        xsrf = {"_xsrf": self.web.cookies.get("_xsrf", path="/hub/")}
        answer = self.web.post(f"{self.hub}/hub/api/users/{self.name}/tokens", params=xsrf, json={}, timeout=PATIENCE)
        assert answer.status_code == 201, answer.text
        self.header = {"Authorization": f"token {answer.json()['token']}"}
        deadline = time.monotonic() + PATIENCE
        while self.get("status").status_code != 200:
            assert time.monotonic() < deadline, f"the server of {self.name} does not start"
            time.sleep(0.5)

    def get(self, what: str, owner: str = ""):
        """The answer of the server of `owner`, by default of this user's own."""
        import requests

        address = f"{self.hub}/user/{owner or self.name}/api/{what}"
        return requests.get(address, headers=self.header, timeout=PATIENCE, allow_redirects=False)

    def kernel(self):
        """A new Jupyter kernel: a function that runs a text and returns what it printed and showed."""
        import requests
        import websocket

        at = f"{self.hub}/user/{self.name}/api/kernels"
        self.kernel_id = requests.post(at, headers=self.header, json={"name": "python3"}, timeout=PATIENCE).json()["id"]
        address = f"{at.replace('http', 'ws', 1)}/{self.kernel_id}/channels"
        socket = websocket.create_connection(address, header=self.header, timeout=PATIENCE)

        def run(text: str) -> str:
            number = uuid.uuid4().hex
            header = {"msg_id": number, "msg_type": "execute_request", "username": self.name, "session": number}
            content = {"code": text, "silent": False, "store_history": True, "allow_stdin": False}
            message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
            socket.send(json.dumps(message))
            shown = []
            while True:
                answer = json.loads(socket.recv())
                said = answer["content"]
                if answer["parent_header"].get("msg_id") != number:
                    continue
                if answer["msg_type"] == "status" and said["execution_state"] == "idle":
                    return "\n".join(shown)
                shown.append(said.get("text") or said.get("data", {}).get("text/plain") or said.get("evalue") or "")

        return run

    def end(self) -> None:
        """Stop the user's server."""
        xsrf = {"_xsrf": self.web.cookies.get("_xsrf", path="/hub/")}
        self.web.delete(f"{self.hub}/hub/api/users/{self.name}/server", params=xsrf, timeout=PATIENCE)


@pytest.fixture(scope="module")
def users():
    """Two users of the Hub, who have logged in, and whose servers run."""
    hub, named = os.environ.get("NNCOURSE_HUB"), os.environ.get("NNCOURSE_HUB_USERS", "")
    if not hub or named.count(",") != 1:
        pytest.skip("NNCOURSE_HUB and NNCOURSE_HUB_USERS name no running JupyterHub with two users")
    both = [User(hub.rstrip("/"), *entry.split(":", 1)) for entry in named.split(",")]
    yield both
    for user in both:
        user.end()


def first_exercise() -> list[str]:
    """The cells of notebook 01 that its first exercise needs: the imports, and the exercise, answered."""
    cells = json.loads((ROOT / "notebooks" / "01_neurons.ipynb").read_text(encoding="utf-8"))["cells"]
    texts = {cell["id"]: "".join(cell["source"]) for cell in cells}
    answer, changed = re.subn(r"raise NotImplementedError.*", ANSWER, texts["neuron-loops"])
    assert changed == 1
    return [texts["setup"], answer]


@pytest.mark.release
def test_each_user_solves_the_first_exercise_and_keeps_it_private(users):
    kernels = [user.kernel() for user in users]
    for user, run in zip(users, kernels, strict=True):
        run("0")  # the kernel has started
        start = time.perf_counter()
        imports, answer = first_exercise()
        run(imports)
        imported = time.perf_counter() - start
        shown = run(answer)
        seconds = time.perf_counter() - start
        assert "✓" in shown and "Kept as" in shown, shown
        print(f"{user.name}: the first ✓ after {seconds:.2f} s, of which imports {imported:.2f} s")
        kept = run("from nnclassroom.exercises import kept_kernels; print(kept_kernels.folder())").strip()
        assert kept == run("import pathlib; print(pathlib.Path.home() / 'my_kernels')").strip()
        assert "progress.json" in run("import os; print(os.listdir(kept_kernels.folder()))")
    homes = [run("print(pathlib.Path.home())").strip() for run in kernels]
    assert homes[0] != homes[1]
    for run, other in zip(kernels, reversed(homes), strict=True):
        assert "Permission denied" in run(f"print(open('{other}/my_kernels/neuron.loops.py').read())")
        assert "Permission denied" in run(f"print(os.listdir('{other}/nn-course'))")


@pytest.mark.release
def test_the_course_cannot_be_changed_by_its_users(users):
    run = users[0].kernel()
    said = run(
        "import os, pathlib, nncourse\n"
        "course = pathlib.Path(nncourse.__file__).parents[1]\n"
        "inside = [path for path in course.rglob('*') if not path.is_symlink()]\n"
        "print(len(inside) > 1000, [str(path) for path in (course, *inside) if os.access(path, os.W_OK)])"
    )
    assert said.strip() == "True []"


@pytest.mark.release
def test_a_user_cannot_enter_the_server_of_another(users):
    ana, bob = users
    assert ana.get("kernels").status_code == bob.get("kernels").status_code == 200
    assert bob.get("kernels", owner=ana.name).status_code in (302, 403, 404)


@pytest.mark.release
def test_kernels_do_not_listen_on_ports(users):
    run = users[0].kernel()
    connection = run("import ipykernel\nprint(ipykernel.get_connection_info(unpack=True)['transport'])")
    assert connection.strip() == "ipc"
