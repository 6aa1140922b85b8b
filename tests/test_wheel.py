"""The course without a clone: the wheel alone in an empty environment, with the oldest packages that it takes, and on a
hosted Jupyter, to which a notebook is uploaded alone."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import pytest

pytestmark = [pytest.mark.release, pytest.mark.timeout(3600)]
ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
RUN = """
import sys, nbclient, nbformat
path = sys.argv[1]
notebook = nbformat.read(path, as_version=4)
nbclient.NotebookClient(notebook, timeout=900, resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, path)
"""
# Such as a hosted Jupyter has: older than what the course's own set-up installs.
HOST = {
    "ipykernel": "6.17.1",
    "ipython": "7.34.0",
    "ipywidgets": "7.7.1",
    "jupyter-client": "7.4.9",
    "traitlets": "5.7.1",
    "tornado": "6.4.2",
    "nbformat": "5.10.4",
    "packaging": "24.2",
    "numpy": "2.0.2",
    "numba": "0.60.0",
    "matplotlib": "3.10.0",
    "psutil": "5.9.5",
    "threadpoolctl": "3.6.0",
    "tqdm": "4.67.1",
}


def command(*words: object, **options) -> str:
    """The output of a command. What it printed is in the error if it fails."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Place:
    """A virtual environment with the wheel, and a home: nothing of this clone is near."""

    def __init__(self, folder: Path, *requirements: object) -> None:
        self.folder, self.bin = folder, folder / "env" / "bin"
        command(sys.executable, "-m", "venv", folder / "env")
        (folder / "home").mkdir()
        self("pip", "install", "--quiet", *requirements)

    def __call__(self, program: str, *words: object, **variables: str) -> str:
        path = f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin"
        environment = {"PATH": path, "HOME": str(self.folder / "home"), "LANG": "C.UTF-8"} | variables
        environment |= {name: os.environ[name] for name in ("PIP_INDEX_URL", "PIP_CONFIG_FILE") if name in os.environ}
        return command(self.bin / program, *words, cwd=self.folder, env=environment)

    def run_notebooks(self, notebooks: Path, names: Sequence[str] = NAMES, **variables: str) -> None:
        """Run all notebooks, two at a time. Fails at the first cell that does."""

        def run(name: str) -> None:
            kept = str(self.folder / f"kernels-{name}")
            path = notebooks / f"{name}.ipynb"
            self("python", "-c", RUN, path, notebooks, NNCOURSE_MY_KERNELS=kept, **variables)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(run, names))


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel") / "clone"
    command("git", "clone", "--quiet", ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(clone):
    """The wheel, built in isolation from the source distribution's files as git has them."""
    command(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", clone.parent, clone)
    (path,) = clone.parent.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def place(wheel, tmp_path_factory):
    return Place(tmp_path_factory.mktemp("place"), f"{wheel}[lab,cpu]")


def test_it_says_what_it_is_and_its_description_has_no_dead_links(wheel):
    with zipfile.ZipFile(wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
        text = opened.read(name).decode()
    for field in ("Author", "Keywords", "Classifier", "Description-Content-Type", "License-Expression"):
        assert re.search(f"^{field}: .", text, re.MULTILINE), field
    assert not re.search(r"\]\((?!https?:|#)", text)


def test_its_commands_need_no_clone(place):
    assert place("nncourse", "--version").startswith(f"nncourse {PROJECT['version']}")
    model = ("--dataset", "breast_cancer", "--model", "model.npz")
    place("nncourse", "train", *model, "--layers", "30,16,1", "--epochs", "2")
    assert "accuracy" in place("nncourse", "test", *model)
    assert "✓ relu (naive)" in place("nncourse", "check", "relu", "--kernel", "naive")
    assert "Tus cuadernos" in place("nncourse", "notebooks", "cuadernos", NNCOURSE_LANG="es")
    assert "Your notebooks" in place("nncourse", "notebooks", "mine")
    assert place("nncourse", "notebooks", "mine") == ""  # nothing new
    assert sorted(path.stem for path in (place.folder / "mine").glob("*.ipynb")) == NAMES
    assert (place.folder / "cuadernos" / f"{NAMES[0]}.ipynb").read_text("utf-8") != (
        place.folder / "mine" / f"{NAMES[0]}.ipynb"
    ).read_text("utf-8")


@pytest.mark.parametrize(
    ("language", "solve"), [("en", ""), ("es", ""), ("en", "all")], ids=["english", "spanish", "solved"]
)
def test_all_notebooks_run(place, language, solve):
    folder = place.folder / f"{language}{solve}"
    place("nncourse", "notebooks", folder, NNCOURSE_LANG=language)
    place.run_notebooks(folder, NNCOURSE_LANG=language, NNCOURSE_SOLVE=solve)


def test_all_notebooks_run_with_the_oldest_packages(wheel, tmp_path):
    oldest = [text.split(";")[0].strip().replace(">=", "==") for text in PROJECT["dependencies"]]
    place = Place(tmp_path, f"{wheel}[cpu]", "nbclient", *oldest)
    place("nncourse", "notebooks", tmp_path / "notebooks")
    place.run_notebooks(tmp_path / "notebooks")


@pytest.mark.parametrize(
    ("language", "compiler"), [("en", True), ("es", False)], ids=["english", "spanish-no-compiler"]
)
def test_a_hosted_jupyter_runs_notebooks_that_are_uploaded_alone(clone, wheel, tmp_path, language, compiler):
    place = Place(tmp_path, "nbclient", *(f"{name}=={version}" for name, version in HOST.items()))
    before = installed(place)
    out, uploaded = tmp_path / "hosted.zip", tmp_path / "course" / "notebooks"
    options = ("--hosted", "--wheel", wheel, "--language", language, "--out", out)
    command(
        sys.executable, "-m", "nnclassroom", "handout", *options, cwd=clone, env=os.environ | {"PYTHONPATH": str(clone)}
    )
    with zipfile.ZipFile(out) as archive:
        archive.extractall(tmp_path)
    path = {} if compiler else {"PATH": str(place.bin)}
    place.run_notebooks(uploaded, NAMES[:1], **path)  # its set-up cell installs the course
    set_up = nbformat.read(uploaded / f"{NAMES[0]}.ipynb", as_version=4).cells[1]
    said = "".join(output.get("text", "") for output in set_up.outputs)
    assert "cuda-bindings" in said and str(tmp_path / f"kernels-{NAMES[0]}") in said
    assert ("apt install g++" in said) != compiler
    place.run_notebooks(uploaded, NAMES[1:], **path)
    assert before.items() <= installed(place).items()  # what the host had stays as it is


def installed(place: Place) -> dict[str, str]:
    return {each["name"]: each["version"] for each in json.loads(place("pip", "list", "--format", "json"))}
