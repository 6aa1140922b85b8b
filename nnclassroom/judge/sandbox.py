"""A sandbox for one process: bubblewrap (Linux), so that a submitted text can neither read nor change anything.

    [*prefix(readable=[PROGRAM], hidden=[PACKAGE]), sys.executable, …]

In it there is no network, no other process, an empty home, and nothing writable but its own small /tmp and /dev/shm.
The system's programs, Python with its packages, and what is `readable` are visible. The process that is started limits
its memory and time itself: a limit here, RLIMIT_DATA, would break the emulator's AddressSanitizer.
"""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TEMPORARY = 256 << 20  # bytes of /tmp, and of /dev/shm
SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # on most systems links into /usr
SETTINGS = ("/etc/ld.so.cache", "/etc/alternatives")  # the places of libraries; the compiler that g++ means
# The environment may hold secrets: only these variables are passed on.
PASSED: tuple[str, ...] = ("PATH", "LANG", "LD_LIBRARY_PATH", "CUDA_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CXX")
PASSED += ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
# Last, since bwrap makes mount points there for every mount. For root /proc/sys would otherwise be writable.
LAST = ("--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/", "--")
FOLDER = "{folder}"
HELP = {
    "linux": "the sandbox is bubblewrap, which runs on Linux only (on Windows: inside WSL)",
    "install": "bubblewrap is not installed: on Debian and Ubuntu apt install bubblewrap",
    "allow": "let it make user namespaces (user.max_user_namespaces above 0; an AppArmor profile for bwrap; in a "
    "container --security-opt seccomp=unconfined), or mark in a virtual machine",
}


def prefix(
    readable: Sequence[Path] = (), hidden: Sequence[Path] = (), temporary: int = TEMPORARY, program: str = "bwrap"
) -> tuple[str, ...]:
    """The words to put before a command, so that it runs in the sandbox.

    For a command that has to write, replace FOLDER in these words by a writable folder, as the emulator does for its
    compiler. Unchanged, FOLDER has no effect.

    readable: files and folders that are visible, besides the system and Python with its packages.
    hidden: files and folders that are not visible, even within a readable folder.
    temporary: bytes of /tmp, and of /dev/shm.
    """
    roots, packages = python_folders()
    own = [path for path in (*roots, *packages) if path not in (Path("/usr"), Path("/"))]
    limit = ("--size", str(temporary)) if _knows(program, "--size") else ()
    # In the sandbox /proc/1 shows the environment of bwrap itself, which is nearly empty, too.
    words = ["env", "-i", f"PATH={os.environ.get('PATH', os.defpath)}", program]
    words += ["--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--disable-userns"] if _knows(program, "--disable-userns") else []
    words += ["--clearenv", "--setenv", "HOME", "/tmp", "--setenv", "LC_ALL", "C.UTF-8"]
    words += ["--setenv", "PYTHONDONTWRITEBYTECODE", "1"]
    for name in PASSED:
        words += ["--setenv", name, os.environ[name]] if name in os.environ else []
    words += ["--setenv", "PYTHONPATH", os.pathsep.join(map(str, packages))] if packages else []
    words += ["--ro-bind", "/usr", "/usr"]
    for name in SYSTEM:
        words += ["--symlink", os.readlink(name), name] if os.path.islink(name) else ["--ro-bind-try", name, name]
    for name in SETTINGS:
        words += ["--ro-bind-try", name, name]
    words += ["--proc", "/proc", "--dev", "/dev", *limit, "--tmpfs", "/dev/shm", *limit, "--tmpfs", "/tmp"]
    for device in sorted(Path("/dev").glob("nvidia*")):
        words += ["--dev-bind-try", str(device), str(device)]
    # First the folders of the system and of Python, next what is hidden in them, then what is made visible again.
    for path in own:
        words += ["--ro-bind", str(path), str(path)]
    for path in _within(hidden, [Path("/usr"), *own]):
        words += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
    for path in map(Path, readable):
        words += ["--ro-bind-try", str(path.absolute()), str(path.absolute())]
        for inner in _within(hidden, [path]):
            words += ["--tmpfs", str(inner)] if inner.is_dir() else ["--ro-bind", "/dev/null", str(inner)]
    return (*words, "--bind-try", FOLDER, FOLDER, *LAST)


def why_none(program: str = "bwrap") -> str | None:
    """Why there is no sandbox on this machine, and what to do; None if Python runs in one."""
    if not sys.platform.startswith("linux"):
        return HELP["linux"]
    if not shutil.which(program):
        return HELP["install"]
    try:
        command = [*prefix(program=program), sys.executable, "-c", "import numpy"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run here ({error}): {HELP['allow']}"
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return f"bubblewrap makes no sandbox here ({said}): {HELP['allow']}"
    return None


def python_folders() -> tuple[list[Path], list[Path]]:
    """This Python's folders, and other folders of packages: the user's own, or those of PYTHONPATH.

    Only folders of sys.path that hold nothing but packages count. It also names a clone of the course, and with
    `python -m` the present folder, which may hold submissions and secrets.
    """
    roots = sorted({Path(sys.prefix).absolute(), Path(sys.base_prefix).absolute()})
    others = [Path(path).absolute() for path in dict.fromkeys(sys.path) if os.path.isdir(path)]
    others = [path for path in others if path.name in ("site-packages", "dist-packages")]
    return roots, [path for path in others if not any(root in path.parents for root in roots)]


def _within(paths: Sequence[Path], folders: Sequence[Path]) -> list[Path]:
    """The paths that exist and are in one of the folders, or are one of them, with symbolic links resolved."""
    found = []
    for path in map(Path, paths):
        for folder in folders:
            real, place = folder.resolve(), path.resolve()
            if place.exists() and (place == real or real in place.parents):
                found.append(folder.absolute() / place.relative_to(real))
    return sorted(set(found))


@functools.cache
def _knows(program: str, option: str) -> bool:
    """Whether this bubblewrap has an option: --size is new in 0.7, --disable-userns in 0.8."""
    if not shutil.which(program):
        return False
    return option in subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout
