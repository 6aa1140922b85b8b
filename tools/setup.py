"""Set up the course in .venv: `make lab`, `make test`, `make setup`, `make shared` and `make book` call this.

It checks the machine, determines which CUDA version its NVIDIA driver supports, and installs the hashed lock files of
requirements/ and then the package. It records in .venv what it has installed, so that a second run has nothing to do.

    PYTHON=python3.12 make lab      uses a different interpreter
    CUDA=13 make lab                sets 12, 13 or none instead of detecting it, for instance on a Slurm login node
    make shared                     sets up for all users of a machine; refused if they could not reach the result
    tools/setup.py packages         installs only what the lock files name, for a layer of a container

It uses only the standard library and syntax of Python 3.6, so that an old Python gets an error message and not a
SyntaxError. Hence the quoted type hints.
"""

import ctypes
import hashlib
import json
import os
import platform
import pwd
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
NOTE = VENV / "nncourse_setup.json"
OLDEST_PYTHON = (3, 11)
CUDA_CHOICES = ("12", "13", "none")
JUPYTERLAB_SETTINGS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}


# Requirements of the machine


def python_problem(version: "tuple[int, ...]") -> str:
    """An error message if Python is too old, else ""."""
    if version[:2] >= OLDEST_PYTHON:
        return ""
    wanted, got = ".".join(map(str, OLDEST_PYTHON)), ".".join(map(str, version[:3]))
    return (
        f"expected Python {wanted} or newer, got {got}: install one, or name it, as in: PYTHON=python{wanted} make lab"
    )


def venv_problem() -> str:
    """An error message if venv or ensurepip is missing, which Debian and Ubuntu package separately, else ""."""
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError as error:
        package = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
        return f"{sys.executable} lacks {error.name}: install it, on Debian and Ubuntu with: apt install {package}"
    return ""


def compiler_problem() -> str:
    """An error message if g++, which is needed to run CUDA kernels on the CPU, is missing, else ""."""
    if shutil.which("g++"):
        return ""
    return "g++ is missing: install it, on Debian and Ubuntu with: apt install g++"


# Set up for others


def enters(folder: Path, course: Path) -> bool:
    """Whether those who can enter the course's folder can enter this one: all users, or the course's group."""
    there, wanted = folder.stat(), course.stat()
    if there.st_mode & stat.S_IXOTH:
        return True
    group_only = not wanted.st_mode & stat.S_IXOTH
    return group_only and there.st_gid == wanted.st_gid and bool(there.st_mode & stat.S_IXGRP)


def closed_folder(path: Path, course: Path) -> "Path | None":
    """The first folder on the way to `path`, or to where its links lead, that other users cannot enter."""
    ways = [*reversed(path.parents), *reversed(path.resolve().parents)]
    return next((folder for folder in ways if not enters(folder, course)), None)


def base_interpreter() -> Path:
    """The interpreter that a virtual environment made now would link to."""
    return Path(getattr(sys, "_base_executable", None) or sys.executable).absolute()


def sharing_problem(interpreter: Path, course: Path) -> str:
    """An error message if other users could not reach the course or its interpreter, else ""."""
    closed = closed_folder(course / "tools" / "setup.py", course)
    if closed:
        return f"{closed} is closed to other users: so that all can read the course, run chmod -R go+rX {closed}"
    closed = closed_folder(interpreter, course)
    if closed:
        return (
            f"{interpreter} is in {closed}, which is closed to other users, so they could not run it: "
            "use the system's Python, as in: PYTHON=/usr/bin/python3 make shared"
        )
    return ""


def for_one_user(interpreter: Path, course: Path) -> str:
    """A line if others can read the course, outside the user's home, but not run this interpreter, else ""."""
    homes = {each.pw_uid: Path(each.pw_dir) for each in pwd.getpwall() if 1000 <= each.pw_uid < 60000}
    people = {number for number, home in homes.items() if home.is_dir()}
    outside = Path.home() not in course.parents and people - {os.getuid()}
    closed = closed_folder(interpreter, course)
    if not (outside and closed) or closed_folder(course / "tools" / "setup.py", course):
        return ""
    return f"only you can use this .venv: {closed}, which has its interpreter, is closed to others (see make shared)"


# Detecting CUDA


def ask_nvidia_smi(*options: str) -> str:
    """The output of nvidia-smi; "" if it is missing, or if it finds no driver or no GPU."""
    try:
        answer = subprocess.run(["nvidia-smi", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.decode(errors="replace") if answer.returncode == 0 else ""


def driver_cuda(driver_file: Path) -> int:
    """The newest major version of CUDA that the NVIDIA driver supports; 0 if there is no driver."""
    told = re.search(r"CUDA[A-Z ]* Version\s*:\s*(\d+)\.", ask_nvidia_smi())
    if told:
        return int(told.group(1))
    try:
        driver = re.search(r"\b(\d{3,4})\.\d+", driver_file.read_text())
    except OSError:
        return 0
    if not driver:
        return 0
    version = int(driver.group(1))
    return 13 if version >= 580 else 12 if version >= 525 else 11


def oldest_gpu() -> float:
    """The lowest compute capability among the machine's GPUs; infinity if nvidia-smi does not report it."""
    answer = ask_nvidia_smi("--query-gpu=compute_cap", "--format=csv,noheader")
    return min(map(float, re.findall(r"^\s*(\d+\.\d+)\s*$", answer, re.MULTILINE)), default=float("inf"))


def detect_cuda(driver_file: Path = Path("/proc/driver/nvidia/version")) -> "tuple[str, str]":
    """The CUDA to install, "12", "13" or "none", and the reason in one line."""
    served = driver_cuda(driver_file)
    if served == 0:
        return "none", "no NVIDIA driver here: the course runs on the CPU, without CuPy"
    if served < 12:
        return "none", f"the NVIDIA driver supports CUDA {served}, but CuPy needs 12 (driver 525) or newer: no CuPy"
    if served >= 13 and oldest_gpu() < 7.5:
        return "12", "a GPU older than compute capability 7.5, which CUDA 13 does not support: CuPy for CUDA 12"
    cuda = str(min(served, 13))
    return cuda, f"the NVIDIA driver supports CUDA {served}: CuPy for CUDA {cuda}"


def choose_cuda(asked: str, noted: str) -> "tuple[str, str]":
    """The CUDA to install and the reason: as requested by CUDA=..., else as detected, else as .venv already has."""
    if asked:
        return asked, f"CUDA={asked}, as requested"
    detected, reason = detect_cuda()
    if detected == "none" and noted in ("12", "13"):
        return noted, f"no usable NVIDIA driver here, but .venv has CuPy for CUDA {noted}: kept (CUDA=none removes it)"
    return detected, reason


def has_toolkit(cuda: str) -> bool:
    """Whether CuPy will find cuBLAS in an installed CUDA toolkit: by CUDA_PATH, CUDA_HOME or the dynamic loader.

    An nvcc on PATH or a folder /usr/local/cuda is not enough, because CuPy does not look for libraries there.
    """
    library = f"libcublas.so.{cuda}"
    toolkit = os.environ.get("CUDA_PATH") or os.environ.get("CUDA_HOME")
    if toolkit and any((Path(toolkit) / folder / library).exists() for folder in ("lib64", "lib")):
        return True
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


# What to install, and what is already installed


def lock_files(cuda: str, toolkit: bool, tests: bool, book: bool) -> "list[str]":
    """The lock files to install, relative to the course's root."""
    names = ["base", "cpu" if cuda == "none" else f"cuda{cuda}", "devices"]
    if cuda != "none" and not toolkit:
        names.append(f"toolkit{cuda}")
    names += ["test"] * tests + ["book"] * book
    return [f"requirements/{name}.txt" for name in names]


def checksums(files: "list[str]") -> "dict[str, str]":
    """The SHA-256 of each file."""
    return {name: hashlib.sha256((ROOT / name).read_bytes()).hexdigest() for name in files}


def read_note() -> dict:
    """The record of the last complete set-up in .venv; an empty one if there is none, or if .venv does not run here."""
    empty = {"python": "", "cuda": "", "root": "", "files": {}}
    try:
        note = json.loads(NOTE.read_text(encoding="utf-8"))
        answer = subprocess.run([str(VENV_PYTHON), "--version"], stdout=subprocess.PIPE, check=True)
    except (OSError, ValueError, subprocess.CalledProcessError):
        return empty
    runs = answer.stdout.decode().split()[-1]
    return note if note["python"] == runs and note["root"] == str(ROOT) else empty


def can_stay(note: dict, cuda: str, python_asked: bool) -> bool:
    """Whether .venv can be kept and extended: it has this CUDA, and this interpreter if one was requested."""
    return note["cuda"] == cuda and (not python_asked or note["python"] == platform.python_version())


# Installing


def pip(*options: str) -> "list[str]":
    """The command that runs .venv's pip."""
    return [str(VENV_PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", *options]


def fetch(*options: str) -> None:
    """Install what is locked. Of all that pip says, show names as they come, each warning once, and how it failed."""
    command = pip("--progress-bar", "off", "--require-hashes", "--only-binary", ":all:", *options)
    print("set-up: downloading", end="", flush=True)
    lines, kinds = [], set()
    with subprocess.Popen(
        command, cwd=str(ROOT), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True
    ) as process:
        for line in process.stdout:
            kind = re.sub("'[^']*'", "", line)  # of a warning, whatever it names
            print("" if kind in kinds else shown(line), end="", flush=True)
            lines.append(line)
            kinds.add(kind)
    print(flush=True)
    if process.returncode:
        print("".join(lines[-20:]), end="", flush=True)
        raise subprocess.CalledProcessError(process.returncode, command)


def shown(line: str) -> str:
    """What set-up shows of a line of pip's output."""
    collecting = re.match(r"\s*Collecting ([\w.-]+)", line)
    if collecting:
        return " " + collecting.group(1)
    if re.match("WARNING|DEPRECATION", line):
        return "\n" + line + "set-up: downloading"
    return "\nset-up: installing them, for half a minute or so" if line.startswith("Installing collected") else ""


def install(locks: "list[str]", course: bool) -> None:
    """Install these lock files into .venv; the package too, without JupyterLab's news and updates, if `course`."""
    fetch(*(option for lock in locks for option in ("--requirement", lock)))
    if not course:
        return
    print("set-up: installing the course itself, and its other languages", flush=True)
    subprocess.run(pip("--quiet", "--no-build-isolation", "--no-index", "--editable", "."), cwd=str(ROOT), check=True)
    settings = VENV / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps(JUPYTERLAB_SETTINGS, indent=2) + "\n", encoding="utf-8")


def write_languages() -> None:
    """Generate the notebooks and the package in other languages, where anything that they are made from has changed."""
    for folder in sorted(path for path in (ROOT / "locale").glob("*") if path.is_dir()):  # none in a hand-out
        command = [str(VENV_PYTHON), str(ROOT / "tools" / "translate.py"), "write", folder.name, "--if-old"]
        if subprocess.run(command).returncode:
            print(f"set-up: the course could not be written in {folder.name} completely: the rest is in English")


def serve_others() -> None:
    """Compile the package, which others cannot do in this folder, and let another Jupyter start this .venv's kernel.

    The kernel of ipykernel's wheel names just "python", which Jupyter takes for its own.
    """
    packages = [str(path.parent) for path in sorted(ROOT.glob("*/__init__.py"))]
    subprocess.run([str(VENV_PYTHON), "-m", "compileall", "-q", *packages], check=True)
    specification = VENV / "share" / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel = json.loads(specification.read_text(encoding="utf-8"))
    kernel["argv"][0] = str(VENV_PYTHON)
    specification.write_text(json.dumps(kernel, indent=1) + "\n", encoding="utf-8")


def set_up(cuda: str, reason: str, locks: "list[str]", note: dict, stays: bool, course: bool = True) -> None:
    """Install these lock files into .venv, and record them at the end, so that an interrupted set-up is repeated.

    Without the course what they name is only kept for a set-up that follows.
    """
    if not stays and VENV.is_symlink():  # venv --clear would empty what it leads to
        sys.exit(f"set-up: .venv is a link to {VENV.resolve()}, made for a different purpose: remove the link")
    size = "1 GB" if cuda == "none" else "2 GB"
    print(f"set-up: installing nncourse and all that it needs into .venv: about {size}, a minute or more")
    print(f"set-up: {reason}", flush=True)
    if stays:
        NOTE.unlink()
    else:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        note = {"python": platform.python_version(), "cuda": cuda, "root": str(ROOT), "files": {}}
    install(locks, course)
    files = {**note["files"], **checksums(["pyproject.toml", *locks])} if course else {}
    NOTE.write_text(json.dumps({**note, "files": files}, indent=2) + "\n", encoding="utf-8")


def stop(problem: str) -> int:
    """Print the problem to stderr, and return the exit status 1."""
    print(f"set-up: {problem}", file=sys.stderr)
    return 1


def main(arguments: "list[str]") -> int:
    """Set up for the notebooks, with the argument "book" also for the web book, with "test" for the tests and the book.

    With "shared" it is for all of the machine, with "packages" without the course. Returns the exit status.
    """
    unknown = set(arguments) - {"test", "book", "shared", "packages"}
    if unknown:
        return stop(f"unknown: {', '.join(sorted(unknown))}; expected test, book, shared, packages or nothing")
    tests, shared = "test" in arguments, "shared" in arguments
    book = tests or "book" in arguments
    asked = os.environ.get("CUDA", "")
    if asked and asked not in CUDA_CHOICES:
        return stop(f"CUDA={asked}: expected 12, 13 or none, or nothing to have it detected")
    missing_compiler = compiler_problem()
    if missing_compiler and tests:
        return stop(missing_compiler)
    if missing_compiler:
        print(f"set-up: {missing_compiler}. It runs CUDA kernels on the CPU; everything else works without it")

    note = read_note()
    cuda, reason = choose_cuda(asked, note["cuda"])
    stays = can_stay(note, cuda, python_asked=bool(os.environ.get("PYTHON")))
    if shared:
        os.umask(0o022)  # what is installed can be read by all
        stays = stays and not sharing_problem(VENV_PYTHON, ROOT)
    problem = "" if stays else python_problem(sys.version_info) or venv_problem()
    if shared and not stays:
        problem = problem or sharing_problem(base_interpreter(), ROOT)
    if problem:
        return stop(problem)
    course = "packages" not in arguments
    locks = lock_files(cuda, cuda != "none" and has_toolkit(cuda), tests, book)
    done = course and stays and checksums(["pyproject.toml", *locks]).items() <= note["files"].items()
    try:
        if not done:
            set_up(cuda, reason, locks, note, stays, course)
        if not course:
            return 0
        alone = "" if done or shared else for_one_user(base_interpreter(), ROOT)
        if alone:
            print(f"set-up: {alone}")
        write_languages()
        if shared:
            serve_others()
    except subprocess.CalledProcessError:
        return stop("the installation failed, as shown above (it needs a network and Python 3.11, 3.12 or 3.13)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
