"""Start JupyterLab at the first notebook of the student's copy: `nncourse lab`, and `make lab` after its set-up.

The copy, my_notebooks/, has no outputs. The first start makes it, and later ones update it if the course has changed;
see own_copy.py. In a hand-out, notebooks/ itself is such a copy. With NNCOURSE_LANG=es the course is in Spanish, and
the copy is mis_cuadernos/.

It is safe on a shared machine: JupyterLab listens on localhost only, and requires a token that is new each time. Its
kernels communicate over files readable only by their owner, not over ports. `nncourse lab --port 8899` or
JUPYTER_PORT=8899 sets the port. Press Ctrl-C to end it.
"""

import getpass
import os
import secrets
import socket
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from nnclassroom.handing_out import own_copy, update
from nnclassroom.handing_out.notebook_files import MANIFEST
from nncourse.errors import CourseError
from nncourse.language import COURSE, ENGLISH, VARIABLE

FIRST_NOTEBOOK = "00_start_here.ipynb"
FIRST_PORT = 8888
HIDDEN = ("__pycache__", "*.pyc", "*~", MANIFEST)  # in JupyterLab's list of files


def is_free(port: int) -> bool:
    """Whether nothing listens on this port."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def take(port: int) -> bool:
    """Take this port if it is free. On Linux it stays taken until this program, or the one that replaces it, ends.

    So two people who start at the same moment get different ports. A program that listens on the port later must set
    SO_REUSEADDR, as JupyterLab does.
    """
    holder = socket.socket()
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        return False
    if sys.platform != "linux":  # elsewhere nobody could listen there as long as this socket is open
        holder.close()
        return True
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.set_inheritable(True)
    holder.detach()  # left open on purpose
    return True


def choose_port(asked: str) -> int:
    """The requested port, or by default the first free one from 8888 on. CourseError if it cannot be used."""
    if not asked:
        return next(port for port in range(FIRST_PORT, 65536) if take(port))
    if not asked.isdigit() or not 0 < int(asked) < 65536:
        raise CourseError(f"expected a port from 1 to 65535, got {asked}")
    if not is_free(int(asked)):
        raise CourseError(f"port {asked} is taken: choose a different one with --port or JUPYTER_PORT, or leave it out")
    return int(asked)


def is_remote(environment: dict[str, str]) -> bool:
    """Whether the user works from another machine: over ssh, or in a Slurm job."""
    return "SSH_CONNECTION" in environment or "SLURM_JOB_ID" in environment


def tunnel(port: int, environment: dict[str, str]) -> str:
    """The ssh command that forwards this port to the user's own machine (in Slurm through the login node)."""
    user = getpass.getuser()
    way = ""
    if "SLURM_JOB_ID" in environment:
        way = f"-J {user}@{environment['SLURM_SUBMIT_HOST']} " if "SLURM_SUBMIT_HOST" in environment else ""
    elif not environment["SSH_CONNECTION"].endswith(" 22"):
        way = f"-p {environment['SSH_CONNECTION'].split()[-1]} "
    return f"ssh -N {way}-L {port}:127.0.0.1:{port} {user}@{socket.gethostname()}"


def has_browser(environment: dict[str, str]) -> bool:
    """Whether a browser opened by this process would be visible to the user."""
    if is_remote(environment):
        return False
    return sys.platform in ("darwin", "win32") or "DISPLAY" in environment or "WAYLAND_DISPLAY" in environment


def language(course: Path, asked: str) -> str:
    """The language of the course: the one asked for, otherwise the hand-out's if this is one, otherwise English."""
    manifest = update.read_manifest(course)
    return asked or (manifest["language"] if manifest else ENGLISH)


def notebooks(course: Path, folder: Path, spoken: str) -> None:
    """Make the student's copy in this language, or update it, and print what was done. CourseError if there is none."""
    try:
        for line in own_copy.bring(course, folder, spoken):
            print(line)
    except CourseError as error:
        if not any(folder.glob("*.ipynb")):
            raise
        print(f"nncourse: {error}", file=sys.stderr)


def served(course: Path, folder: Path) -> tuple[Path, str]:
    """The folder that JupyterLab shows (the course's, or the one around the notebooks), and its first page."""
    top = course if course in folder.parents else folder.parent
    first = folder / FIRST_NOTEBOOK
    return top, f"/lab/tree/{(first if first.is_file() else folder).relative_to(top).as_posix()}"


def jupyterlab_command(port: int, browser: bool, top: Path, page: str) -> list[str]:
    """The command that runs JupyterLab; without the token, because other users can read command lines."""
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={top}", f"--LabApp.default_url={page}"]
    command += ["--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    command += [f"--ServerApp.open_browser={browser}", "--ServerApp.answer_yes=True", "--Application.log_level=WARN"]
    command += ["--KernelManager.transport=ipc", *(f"--ContentsManager.hide_globs={name}" for name in HIDDEN)]
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # in a container
        command.append("--ServerApp.allow_root=True")
    return command


def start(folder: Path | None = None, port: str = "") -> None:
    """Print the address, then replace this process with JupyterLab. CourseError if JupyterLab is not installed.

    folder: of the student's copy; None for the usual one.
    port: of JupyterLab; "" for the one in JUPYTER_PORT, or otherwise a free one.
    """
    if not find_spec("jupyterlab"):
        raise CourseError("expected JupyterLab, which is not installed here: run pip install jupyterlab")
    environment = dict(os.environ)
    spoken = environment[VARIABLE] = language(COURSE, environment.get(VARIABLE, ""))
    folder = (folder or own_copy.folder_of(COURSE, spoken)).absolute()
    notebooks(COURSE, folder, spoken)
    chosen = choose_port(port or environment.get("JUPYTER_PORT", ""))
    token = secrets.token_hex(24)
    if is_remote(environment):
        print("Run this command on your own machine, with the name by which you reach this one:\n")
        print(f"    {tunnel(chosen, environment)}\n")
    top, page = served(COURSE, folder)
    print(f"Open this address:\n\n    http://127.0.0.1:{chosen}{page}?token={token}\n")
    print("Press Ctrl-C to end JupyterLab.", flush=True)
    environment["JUPYTER_TOKEN"] = token
    environment["JUPYTER_PATH"] = str(Path(sys.prefix) / "share" / "jupyter")  # finds this environment's kernel first
    environment["JUPYTER_RUNTIME_DIR"] = tempfile.mkdtemp(prefix="nncourse-")  # private, and short enough for sockets
    command = jupyterlab_command(chosen, has_browser(environment), top, page)
    os.execve(command[0], command, environment)
