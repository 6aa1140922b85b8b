"""The two commands: what tools/setup.py detects and decides, the lock files, conda's files, and JupyterLab itself."""

import ast
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

from nnclassroom.handing_out import lab
from nnclassroom.handing_out.notebook_files import MANIFEST
from nncourse.errors import CourseError

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
SMI_TABLE = "| NVIDIA-SMI {driver}    Driver Version: {driver}    CUDA Version: {cuda} |"


def load_tool(name):
    """A script of tools/ as a module."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def setup(monkeypatch):
    """tools/setup.py on a machine with no NVIDIA driver, no toolkit and no wishes."""
    tool = load_tool("setup")
    for name in ("CUDA", "PYTHON", "CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tool, "ask_nvidia_smi", lambda *options: "")
    return tool


# What the machine has


def test_an_old_python_can_read_the_set_up():
    ast.parse((ROOT / "tools" / "setup.py").read_text(encoding="utf-8"), feature_version=(3, 6))


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 6, 15), (3, 8, 2), (3, 10, 13)])
def test_an_old_python_gets_one_line(setup, version):
    problem = setup.python_problem(version)
    got = ".".join(map(str, version))
    assert f"expected Python 3.11 or newer, got {got}" in problem
    assert "PYTHON=python3.11 make" in problem and "\n" not in problem
    assert not any(map(setup.python_problem, [(3, 11, 0), (3, 12, 1), (3, 13, 9)]))


def copy_of_the_set_up(folder):
    """The files that a set-up reads, in a folder where it can do no harm."""
    for name in ("tools", "requirements"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder / "tools" / "setup.py"


def run_set_up(script, *arguments, **environment):
    """Run a copy of the set-up that is expected to stop before it installs anything."""
    environment = {"PATH": os.environ["PATH"], "CUDA": "none", **environment}
    return subprocess.run([sys.executable, script, *arguments], env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("module", ["ensurepip", "venv"])
def test_a_python_without_venv_gets_one_line(tmp_path, module):
    script = copy_of_the_set_up(tmp_path)
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / f"{module}.py").write_text(f"raise ImportError('gone', name='{module}')")
    result = run_set_up(script, PYTHONPATH=str(tmp_path / "stub"))
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert f"lacks {module}: install it" in result.stderr and "apt install python3." in result.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_tests_do_not_start_without_a_compiler(tmp_path):
    script = copy_of_the_set_up(tmp_path)
    result = run_set_up(script, "test", PATH=str(tmp_path))
    assert result.returncode == 1
    assert result.stderr == "set-up: g++ is missing: install it, on Debian and Ubuntu with: apt install g++\n"
    assert not (tmp_path / ".venv").exists()


def test_an_unknown_cuda_is_refused(tmp_path):
    result = run_set_up(copy_of_the_set_up(tmp_path), CUDA="11")
    assert result.returncode == 1
    assert result.stderr == "set-up: CUDA=11: expected 12, 13 or none, or nothing to have it detected\n"


@pytest.mark.skipif(not shutil.which("make"), reason="make is not here")
@pytest.mark.parametrize("command", ["lab", "test"])
def test_a_missing_python_gets_one_line(command):
    result = subprocess.run(["make", command, "PYTHON=no-such-python"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    assert "set-up: no no-such-python here: install Python 3.11 or newer" in result.stderr


# For all users of a machine


@pytest.fixture
def machine(tmp_path):
    """A tree with a course that all can read, a system's interpreter, and one in a home that others cannot enter."""
    tmp_path.chmod(0o755)
    for name in ("srv/course/tools", "usr/bin", "home/ana/.pyenv/bin"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("srv/course/tools/setup.py", "usr/bin/python3", "home/ana/.pyenv/bin/python3"):
        (tmp_path / name).touch()
    for folder in tmp_path.rglob("*/"):
        folder.chmod(0o755)
    (tmp_path / "home" / "ana").chmod(0o700)
    return tmp_path


@pytest.fixture
def below(setup, monkeypatch, machine):
    """The set-up, which takes the folders above `machine` for open: pytest makes them private."""
    enters = setup.enters
    monkeypatch.setattr(setup, "enters", lambda folder, *more: folder in machine.parents or enters(folder, *more))
    return setup


SYSTEMS, ANAS = "usr/bin/python3", "home/ana/.pyenv/bin/python3"


@pytest.fixture
def problem(below, machine):
    """What is said of an interpreter of this machine for the course in srv/."""
    return lambda interpreter: below.sharing_problem(machine / interpreter, machine / "srv/course")


def test_an_interpreter_in_a_closed_home_is_refused_and_in_an_open_one_serves_all(problem, machine):
    assert problem(SYSTEMS) == ""
    said = problem(ANAS)
    assert f"is in {machine / 'home/ana'}, which is closed to other users" in said
    assert "PYTHON=/usr/bin/python3 make shared" in said and "\n" not in said
    (machine / "home/ana").chmod(0o711)
    assert problem(ANAS) == ""


@pytest.mark.parametrize(("link", "to"), [("usr/bin/python3.11", ANAS), ("home/ana/python", SYSTEMS)])
def test_links_are_followed(problem, machine, link, to):
    (machine / link).symlink_to(machine / to)
    assert "home/ana, which is closed" in problem(link)


@pytest.mark.parametrize("name", ["srv/course", "srv/course/tools"])
def test_a_closed_course_is_refused(problem, machine, name):
    (machine / name).chmod(0o700)
    assert problem(SYSTEMS).startswith(f"{machine / name} is closed to other users")
    assert "chmod -R go+rX" in problem(SYSTEMS)


def test_a_group_may_share_the_course_and_its_interpreter(problem, machine):
    for name in ("srv/course", "srv/course/tools", "home/ana"):
        (machine / name).chmod(0o750)
    assert problem(ANAS) == ""
    (machine / "srv/course").chmod(0o755)  # now it is for all, and the home is closed to them
    assert "closed to other users" in problem(ANAS)


def test_a_set_up_for_one_user_says_so(below, machine, monkeypatch):
    interpreter, course = machine / ANAS, machine / "srv/course"
    monkeypatch.setattr(below.Path, "home", lambda: machine / "home/ana")
    accounts = [SimpleNamespace(pw_uid=number, pw_dir="/") for number in (0, os.getuid(), 65534)]
    accounts.append(SimpleNamespace(pw_uid=4322, pw_dir="/no such home"))
    monkeypatch.setattr(below.pwd, "getpwall", lambda: accounts)
    assert below.for_one_user(interpreter, course) == "", "nobody else has an account here"
    accounts.append(SimpleNamespace(pw_uid=4321, pw_dir="/"))
    assert f"only you can use this .venv: {machine / 'home/ana'}" in below.for_one_user(interpreter, course)
    assert below.for_one_user(machine / SYSTEMS, course) == ""
    course.rename(machine / "home/ana/course")
    assert below.for_one_user(interpreter, machine / "home/ana/course") == ""


# Which CUDA


def fake_nvidia_smi(folder, table, capabilities="9.0", status=0):
    """An executable nvidia-smi that answers with this table, or with these compute capabilities."""
    script = folder / "nvidia-smi"
    script.write_text(f'#!/bin/sh\n[ -n "$1" ] && echo "{capabilities}" || echo "{table}"\nexit {status}\n')
    script.chmod(0o755)


@pytest.fixture
def detect(monkeypatch, tmp_path):
    """Detection on a machine that has what a test puts into tmp_path: an nvidia-smi, a driver's version file."""
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing else: a machine with a GPU has its own nvidia-smi
    return lambda: load_tool("setup").detect_cuda(tmp_path / "version")


@pytest.mark.parametrize(
    ("driver", "cuda", "capabilities", "expected"),
    [
        ("580.65.06", "13.0", "9.0", "13"),
        ("610.10", "14.1", "9.0", "13"),
        ("550.54.15", "12.4", "8.0", "12"),
        ("535.129.03", "12.2", "6.1", "12"),
        ("580.65.06", "13.0", "9.0\n7.0", "12"),
        ("580.65.06", "13.0", "12.0\n7.5", "13"),
        ("580.65.06", "13.0", "Field is not a valid field to query", "13"),
        ("470.82.01", "11.4", "7.0", "none"),
    ],
)
def test_the_driver_decides(detect, tmp_path, driver, cuda, capabilities, expected):
    fake_nvidia_smi(tmp_path, SMI_TABLE.format(driver=driver, cuda=cuda), capabilities)
    assert detect()[0] == expected


def test_what_was_detected_is_said(detect, tmp_path):
    assert detect() == ("none", "no NVIDIA driver here: the course runs on the CPU, without CuPy")
    fake_nvidia_smi(tmp_path, SMI_TABLE.format(driver="470.82.01", cuda="11.4"))
    assert "the NVIDIA driver supports CUDA 11" in detect()[1]
    fake_nvidia_smi(tmp_path, "| Driver Version: 595.10   CUDA UMD Version: 13.2 |")  # a newer wording
    assert detect()[0] == "13"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023", "12"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", "13"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27 21:21:55 UTC 2021", "none"),
        ("something else", "none"),
    ],
)
@pytest.mark.parametrize("smi_fails", [True, False])
def test_without_a_working_nvidia_smi_the_driver_file_decides(detect, tmp_path, text, expected, smi_fails):
    (tmp_path / "version").write_text(text)
    if smi_fails:
        fake_nvidia_smi(tmp_path, "Failed to initialize NVML: Driver/library version mismatch", status=18)
    assert detect()[0] == expected


@pytest.mark.parametrize(
    ("asked", "noted", "detected", "expected"),
    [
        ("", "", "none", "none"),
        ("", "", "13", "13"),
        ("", "12", "13", "13"),
        ("", "13", "none", "13"),  # the login node of a cluster, or a driver that is down: CuPy stays
        ("none", "13", "13", "none"),
        ("13", "", "none", "13"),
    ],
)
def test_which_cuda_is_taken(setup, monkeypatch, asked, noted, detected, expected):
    monkeypatch.setattr(setup, "detect_cuda", lambda: (detected, "detected"))
    assert setup.choose_cuda(asked, noted)[0] == expected


@pytest.mark.parametrize("variable", ["CUDA_PATH", "CUDA_HOME"])
def test_a_toolkit_counts_if_it_has_the_right_cublas(setup, monkeypatch, tmp_path, variable):
    monkeypatch.setenv(variable, str(tmp_path))
    assert not setup.has_toolkit("99")
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libcublas.so.99").touch()
    assert setup.has_toolkit("99")
    assert not setup.has_toolkit("98")


@pytest.mark.skipif(not shutil.which("g++"), reason="g++ is not here")
def test_a_toolkit_counts_if_the_loader_finds_it(tmp_path):
    (tmp_path / "empty.cc").touch()
    library = tmp_path / "libcublas.so.99"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "empty.cc"], check=True)
    program = f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); import setup; print(setup.has_toolkit('99'))"
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(tmp_path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True).stdout == b"True\n"


@pytest.mark.parametrize(
    ("cuda", "toolkit", "tests", "book", "names"),
    [
        ("none", False, False, False, "base cpu devices"),
        ("none", False, True, True, "base cpu devices test book"),
        ("none", False, False, True, "base cpu devices book"),
        ("12", False, False, False, "base cuda12 devices toolkit12"),
        ("13", True, False, False, "base cuda13 devices"),
        ("13", False, True, True, "base cuda13 devices toolkit13 test book"),
    ],
)
def test_what_is_installed(setup, cuda, toolkit, tests, book, names):
    assert setup.lock_files(cuda, toolkit, tests, book) == [f"requirements/{name}.txt" for name in names.split()]


# A second run


@pytest.fixture
def installed(setup, monkeypatch, tmp_path):
    """A set-up that was finished once for the tests, in a folder of its own; `runs` lists what later ones would do."""
    copy_of_the_set_up(tmp_path)
    for name, value in [("ROOT", tmp_path), ("VENV", tmp_path / ".venv"), ("NOTE", tmp_path / ".venv" / "note.json")]:
        monkeypatch.setattr(setup, name, value)
    monkeypatch.setattr(setup, "VENV_PYTHON", Path(sys.executable))
    monkeypatch.setattr(setup, "detect_cuda", lambda: ("none", "no driver"))
    monkeypatch.setattr(setup, "compiler_problem", lambda: "")
    files = setup.checksums(["pyproject.toml", *setup.lock_files("none", False, True, True)])
    note = {"python": platform.python_version(), "cuda": "none", "root": str(tmp_path), "files": files}
    setup.VENV.mkdir()
    setup.NOTE.write_text(json.dumps(note))
    setup.runs = []
    monkeypatch.setattr(setup, "set_up", lambda *given: setup.runs.append((given[0], given[4])))
    return setup


def test_an_unknown_argument_is_refused(installed, capsys):
    assert installed.main(["--help"]) == 1 and installed.runs == []
    assert "unknown: --help; expected test, book, shared, packages or nothing" in capsys.readouterr().err


def test_what_a_link_leads_to_is_not_emptied(setup, monkeypatch, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "kept").write_text("")
    (tmp_path / ".venv").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(setup, "VENV", tmp_path / ".venv")
    with pytest.raises(SystemExit, match="remove the link"):
        setup.set_up("none", "nothing here", [], {}, stays=False)
    assert (tmp_path / "elsewhere" / "kept").exists()


def test_it_begins_with_the_course_and_shows_what_it_fetches(setup, monkeypatch, tmp_path, capfd):
    for name, value in [("ROOT", tmp_path), ("VENV", tmp_path / ".venv"), ("NOTE", tmp_path / ".venv" / "note.json")]:
        monkeypatch.setattr(setup, name, value)
    setup.VENV.mkdir()
    setup.NOTE.touch()
    (tmp_path / "pyproject.toml").touch()
    lines = ["Collecting numpy==2.4.6 (from -r base.txt)", "  Downloading numpy", "  Collecting numba==0.68.1"]
    lines += ["Requirement already satisfied: pip", "Installing collected packages: numpy, numba"]
    warnings = [f"WARNING: Location '/x/{number}' is ignored" for number in range(len(lines))]
    pairs = [each for pair in zip(lines, warnings, strict=True) for each in pair]
    loud = (
        f"import sys; [print(line, file=sys.stderr if 'W' in line else sys.stdout, flush=True) for line in {pairs!r}]"
    )
    monkeypatch.setattr(setup, "pip", lambda *options: [sys.executable, "-c", loud])
    setup.set_up("none", "no driver", [], {"python": "", "cuda": "none", "root": "", "files": {}}, stays=True)
    said = capfd.readouterr().out.replace(f"\n{warnings[0]}\nset-up: downloading", "").splitlines()
    assert said[0].startswith("set-up: installing nncourse") and "no driver" in said[1]
    assert said[2:5] == [
        "set-up: downloading numpy numba",
        "set-up: installing them, for half a minute or so",
        "set-up: installing the course itself, and its other languages",
    ]


def test_packages_alone_are_kept_for_a_set_up_that_follows(setup, monkeypatch, tmp_path):
    for name, value in [("ROOT", tmp_path), ("VENV", tmp_path / ".venv"), ("NOTE", tmp_path / ".venv" / "note.json")]:
        monkeypatch.setattr(setup, name, value)
    fetched = []
    monkeypatch.setattr(setup, "fetch", lambda *options: fetched.append(options))
    monkeypatch.setattr(setup, "lock_files", lambda *options: ["requirements/base.txt"])
    monkeypatch.setattr(setup, "write_languages", lambda: pytest.fail("there is no course yet"))
    monkeypatch.setenv("CUDA", "none")
    (tmp_path / ".venv").mkdir()
    monkeypatch.setattr(setup.subprocess, "run", lambda *options, **more: None)
    assert setup.main(["packages"]) == 0
    assert fetched == [("--requirement", "requirements/base.txt")]
    assert json.loads(setup.NOTE.read_text())["files"] == {}


def test_a_failed_fetch_is_an_error_that_shows_what_pip_said(setup, monkeypatch, capfd):
    monkeypatch.setattr(setup, "pip", lambda *options: [sys.executable, "-c", "raise SystemExit('the hashes differ')"])
    with pytest.raises(subprocess.CalledProcessError):
        setup.fetch()
    assert capfd.readouterr().out == "set-up: downloading\nthe hashes differ\n"


@pytest.mark.parametrize(
    ("arguments", "cuda", "runs"), [([], "", []), (["test"], "", []), (["book"], "", []), ([], "13", [("13", False)])]
)
def test_a_second_run_has_nothing_to_do_but_for_another_cuda(installed, monkeypatch, arguments, cuda, runs):
    monkeypatch.setenv("CUDA", cuda)
    assert installed.main(arguments) == 0
    assert installed.runs == runs


def test_a_shared_set_up_is_refused_and_then_made_with_another_interpreter(installed, monkeypatch, capsys):
    monkeypatch.setattr(installed, "sharing_problem", lambda interpreter, course: f"{interpreter} is closed")
    monkeypatch.setattr(installed, "base_interpreter", lambda: Path("/home/ana/python3"))
    monkeypatch.setattr(installed.os, "umask", lambda mask: None)
    monkeypatch.setattr(installed, "serve_others", lambda: installed.runs.append("served"))
    assert installed.main(["shared"]) == 1
    assert capsys.readouterr().err == "set-up: /home/ana/python3 is closed\n"
    assert installed.runs == []
    refused = installed.VENV_PYTHON
    monkeypatch.setattr(installed, "sharing_problem", lambda interpreter, course: "closed" * (interpreter == refused))
    assert installed.main(["shared"]) == 0
    assert installed.runs == [("none", False), "served"]  # made anew: the one that was there serves its owner alone


def test_others_start_the_kernel_of_the_shared_environment(installed):
    kernels = installed.VENV / "share" / "jupyter" / "kernels" / "python3"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text('{"argv": ["python", "-m", "ipykernel_launcher"], "language": "python"}')
    (installed.ROOT / "nncourse").mkdir()
    (installed.ROOT / "nncourse" / "__init__.py").write_text("ONE = 1\n")
    installed.serve_others()
    assert json.loads((kernels / "kernel.json").read_text())["argv"] == [sys.executable, "-m", "ipykernel_launcher"]
    assert list((installed.ROOT / "nncourse" / "__pycache__").glob("__init__.*.pyc"))


@pytest.mark.parametrize(
    "name", ["pyproject.toml", "requirements/base.txt", "requirements/test.txt", "requirements/book.txt"]
)
def test_a_changed_file_is_installed_again(installed, name):
    with open(installed.ROOT / name, "a") as file:
        file.write("\n")
    assert installed.main(["test"]) == 0
    assert installed.runs == [("none", True)]


def test_another_interpreter_makes_a_new_environment_only_if_asked_for(installed, monkeypatch):
    monkeypatch.setattr(installed.platform, "python_version", lambda: "3.99.0")
    assert installed.main([]) == 0
    assert installed.runs == []
    monkeypatch.setenv("PYTHON", "python3.99")
    assert installed.main([]) == 0
    assert installed.runs == [("none", False)]


@pytest.mark.parametrize("harm", ["interrupted", "garbled", "moved", "interpreter gone"])
def test_a_harmed_environment_is_made_anew(installed, monkeypatch, harm):
    if harm == "interrupted":
        installed.NOTE.unlink()
    elif harm == "garbled":
        installed.NOTE.write_text("{")
    elif harm == "moved":
        installed.NOTE.write_text(installed.NOTE.read_text().replace(str(installed.ROOT), "/elsewhere"))
    else:
        monkeypatch.setattr(installed, "VENV_PYTHON", installed.VENV / "bin" / "python")
    assert installed.main([]) == 0
    assert installed.runs == [("none", False)]


def test_a_failed_installation_is_one_line_and_is_not_noted(installed, monkeypatch, capsys):
    def fail(*arguments):
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(installed, "set_up", fail)
    monkeypatch.setenv("CUDA", "13")
    assert installed.main([]) == 1
    assert capsys.readouterr().err.startswith("set-up: the installation failed, as shown above")


# The lock files


def pins(lock):
    """Each package of a lock file with the versions it is locked to: one, or one for each Python."""
    locked = {}
    for name, version in re.findall(r"^([a-z0-9._-]+)==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE):
        locked.setdefault(name, set()).add(version)
    return locked


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_locks_hold_hashed_pins_and_name_no_host(lock):
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    requirements = text.replace("\\\n", "").splitlines()
    assert requirements and all(re.match(r"[a-z0-9._-]+==\S+ .*--hash=sha256:", line) for line in requirements)


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_locks_hold_what_pyproject_wants(lock):
    base = PYPROJECT["project"]["dependencies"] + PYPROJECT["build-system"]["requires"]
    locked = pins(lock)
    for text in base if lock.stem == "base" else EXTRAS[lock.stem]:
        requirement = Requirement(text)
        versions = locked.get(requirement.name, set())
        assert versions, f"{text} is not in {lock.name}: run make locks"
        assert all(requirement.specifier.contains(version) for version in versions), f"{text}: run make locks"


@pytest.mark.parametrize("cuda", ["cpu", "cuda12 toolkit12", "cuda13 toolkit13"])
def test_locks_that_are_installed_together_agree(cuda):
    together = {}
    for name in ["base", "devices", "test", "book", *cuda.split()]:
        for package, versions in pins(ROOT / "requirements" / f"{name}.txt").items():
            assert together.setdefault(package, versions) == versions, package


def test_pytorch_is_never_locked_and_one_environment_holds_one_cuda():
    """CuPy and cuda-core load the first NVRTC they find: an NVRTC of another CUDA beside it would break CuPy."""
    assert not any("torch" in pins(lock) for lock in LOCKS)
    for name in ("base", "devices", "test", "book", "cuda12", "toolkit12"):
        assert "nvidia-cuda-nvrtc" not in pins(ROOT / "requirements" / f"{name}.txt")


# What runs elsewhere


def read_yaml(name: str) -> dict:
    return pytest.importorskip("yaml").safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_pre_commit_and_the_tests_use_the_same_ruff():
    (repository,) = read_yaml(".pre-commit-config.yaml")["repos"]
    (locked,) = pins(ROOT / "requirements" / "test.txt")["ruff"]
    assert {hook["entry"].split()[1] for hook in repository["hooks"]} == {"check", "format"}
    assert all(hook["additional_dependencies"] == [f"ruff=={locked}"] for hook in repository["hooks"])


def test_the_hosted_ci_calls_ours_with_pythons_that_are_welcome(setup):
    job = read_yaml(".github/workflows/test.yml")["jobs"]["test"]
    assert job["steps"][-1] == {"run": "bash .ci/run"} and (ROOT / ".ci" / "run").exists()
    full = read_yaml(".github/workflows/full.yml")["jobs"]["full"]
    assert full["steps"][-1] == {"run": "bash .ci/run test-full"}
    versions = [tuple(map(int, version.split("."))) for version in job["strategy"]["matrix"]["python"]]
    assert versions and not any(setup.python_problem((*version, 0)) for version in versions)


# Conda's files


def requirements_by_name(texts):
    """Requirements as name -> bounds, without the platforms they are for."""
    parsed = [Requirement(text) for text in texts]
    return {requirement.name: requirement.specifier for requirement in parsed}


@pytest.fixture(params=[("environment.yml", "none"), ("environment-gpu.yml", "13")], ids=["cpu", "gpu"])
def conda(request):
    """A file for conda, and the CUDA that it is for: its name, what it says, and the extras that its pip installs."""
    name, cuda = request.param
    found = read_yaml(name)
    (by_pip,) = found["dependencies"].pop()["pip"]
    editable, _, extras = by_pip.rstrip("]").partition("[")
    assert editable == "-e ."
    return name, cuda, found, set(extras.split(","))


def test_conda_users_get_the_same_names_and_bounds(conda):
    project, nbval = PYPROJECT["project"], [text for text in EXTRAS["test"] if text.startswith("nbval")]
    texts = project["dependencies"] + PYPROJECT["build-system"]["requires"] + EXTRAS["lab"] + nbval
    wanted = requirements_by_name([*texts, "pip", "python" + project["requires-python"]])
    wanted["lazy_loader"] = wanted.pop("lazy-loader")  # its name on conda-forge
    wanted.pop("cuda-core")  # by pip, with CUDA's other libraries
    assert requirements_by_name(conda[2]["dependencies"]) == wanted  # and nothing that only contributors need


def test_conda_users_get_what_make_lab_installs(conda, setup):
    """By pip: CuPy with a GPU and not without, and the libraries of one CUDA."""
    _, cuda, _, extras = conda
    locks = setup.lock_files(cuda, toolkit=False, tests=False, book=False)
    assert extras == {Path(lock).stem for lock in locks} - {"base"}
    assert any("cupy" in text for extra in extras for text in EXTRAS[extra]) == (cuda != "none")


def test_conda_users_open_their_own_copy(conda):
    name, _, found, _ = conda
    commands = re.findall(r"^#     (.+)$", (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert commands == [f"conda env create --file {name}", f"conda activate {found['name']}", "nncourse lab"]


# JupyterLab


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SSH_CONNECTION": "10.0.0.1 5000 10.0.0.2 22"}, "ssh -N -L 8890:127.0.0.1:8890 ana@node7"),
        ({"SSH_CONNECTION": "10.0.0.1 5000 10.0.0.2 2222"}, "ssh -N -p 2222 -L 8890:127.0.0.1:8890 ana@node7"),
        ({"SLURM_JOB_ID": "3"}, "ssh -N -L 8890:127.0.0.1:8890 ana@node7"),
        (
            {"SLURM_JOB_ID": "3", "SLURM_SUBMIT_HOST": "login", "SSH_CONNECTION": "10.0.0.1 5000 10.0.0.2 22"},
            "ssh -N -J ana@login -L 8890:127.0.0.1:8890 ana@node7",
        ),
    ],
)
def test_the_tunnel_line(monkeypatch, environment, expected):
    monkeypatch.setattr(lab.getpass, "getuser", lambda: "ana")
    monkeypatch.setattr(lab.socket, "gethostname", lambda: "node7")
    assert lab.is_remote(environment)
    assert lab.tunnel(8890, environment) == expected


def test_a_browser_is_opened_only_where_it_is_seen(monkeypatch):
    monkeypatch.setattr(lab.sys, "platform", "linux")
    assert lab.has_browser({"DISPLAY": ":0"})
    assert lab.has_browser({"WAYLAND_DISPLAY": "wayland-0"})
    assert not lab.has_browser({})
    assert not lab.has_browser({"DISPLAY": ":10", "SSH_CONNECTION": "10.0.0.1 5000 10.0.0.2 22"})
    assert not lab.has_browser({"DISPLAY": ":0", "SLURM_JOB_ID": "3"})


def test_a_free_port_is_chosen():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert not lab.is_free(port)
        with pytest.raises(CourseError, match=f"port {port} is taken"):
            lab.choose_port(str(port))
    assert lab.choose_port(str(port)) == port
    assert lab.is_free(lab.choose_port(""))
    with pytest.raises(CourseError, match="expected a port from 1 to 65535, got http"):
        lab.choose_port("http")


@pytest.mark.skipif(sys.platform != "linux", reason="a port is held on Linux only")
def test_a_chosen_port_is_kept_for_jupyterlab():
    first, second = lab.choose_port(""), lab.choose_port("")
    assert first != second
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", first))
        server.listen()
        assert not lab.take(first) and not lab.is_free(first)
    assert lab.is_free(first) and not lab.take(first)


def status(address):
    """The HTTP status that an address answers with; 0 as long as nobody answers."""
    try:
        return urllib.request.urlopen(address, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_a_fresh_start_opens_a_notebook_without_outputs(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "my_notebooks"
    lab.notebooks(ROOT, folder, "en")
    assert capsys.readouterr().out.count("\n") == 1
    command = lab.jupyterlab_command(8888, False, *lab.served(ROOT, folder))
    (top,) = (option.partition("=")[2] for option in command if option.startswith("--ServerApp.root_dir="))
    (page,) = (option.partition("=")[2] for option in command if option.startswith("--LabApp.default_url="))
    opened = json.loads((Path(top) / page.removeprefix("/lab/tree/")).read_text(encoding="utf-8"))
    cells = [cell for cell in opened["cells"] if cell["cell_type"] == "code"]
    assert cells and not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    lab.notebooks(ROOT, folder, "en")
    assert capsys.readouterr().out == ""


def test_jupyterlab_shows_the_course_around_a_copy_that_lies_in_it(tmp_path, monkeypatch):
    (tmp_path / "my_notebooks").mkdir()
    assert lab.served(tmp_path, tmp_path / "my_notebooks") == (
        tmp_path,
        "/lab/tree/my_notebooks",
    )  # its first notebook is gone
    (tmp_path / "my_notebooks" / "00_start_here.ipynb").write_text("{}")
    assert lab.served(tmp_path, tmp_path / "my_notebooks") == (tmp_path, "/lab/tree/my_notebooks/00_start_here.ipynb")


def test_without_a_copy_nothing_is_started(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CourseError, match="cannot be made"):
        lab.notebooks(ROOT, tmp_path / "file", "en")


def test_without_jupyterlab_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "find_spec", lambda name: None)
    with pytest.raises(CourseError, match="JupyterLab, which is not installed here: run pip install jupyterlab"):
        lab.start(tmp_path / "my_notebooks")
    assert not (tmp_path / "my_notebooks").exists()


@pytest.mark.full
def test_jupyterlab_serves_the_course_to_those_with_the_token(tmp_path):
    """The whole of `make lab` after its set-up."""
    pytest.importorskip("jupyterlab")
    port = lab.choose_port("")
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "JUPYTER_PORT": "1"}
    environment["NNCOURSE_MY_NOTEBOOKS"] = str(tmp_path / "my_notebooks")
    command = [sys.executable, "-m", "nnclassroom", "lab", "--port", str(port)]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = next(line.strip() for line in server.stdout if "http://" in line)
        page, token = address.split("?token=")
        assert page == f"http://127.0.0.1:{port}/lab/tree/my_notebooks/00_start_here.ipynb"
        deadline = time.monotonic() + 60
        while status(page) == 0 and time.monotonic() < deadline:
            time.sleep(0.2)
        contents = f"http://127.0.0.1:{port}/api/contents/my_notebooks/00_start_here.ipynb"
        assert status(address) == 200
        assert status(f"{contents}?token={token}") == 200
        with urllib.request.urlopen(f"{contents.rpartition('/')[0]}?token={token}", timeout=20) as answer:
            listed = {each["name"] for each in json.load(answer)["content"]}
        assert (
            "00_start_here.ipynb" in listed
            and MANIFEST not in listed
            and (tmp_path / "my_notebooks" / MANIFEST).exists()
        )
        assert status(contents) == 403
        assert status(f"{contents}?token=wrong") == 403
        assert token not in " ".join(lab.jupyterlab_command(port, False, tmp_path, "/lab"))
    finally:
        server.terminate()
        server.communicate(timeout=60)
