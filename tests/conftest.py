"""Fixtures of all tests: the GPU and the emulator, or the reason to skip; folders for kept kernels; real data."""

import json
import os
import shutil

import numpy as np
import pytest

from cuda_on_cpu import emulate
from nncourse import device


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that ask for a GPU its mark."""
    for item in items:
        if "gpu" in getattr(item, "fixturenames", ()):
            item.add_marker("gpu")


@pytest.fixture(scope="session")
def gpu() -> str:
    """Skip the test where there is no GPU; with NNCOURSE_REQUIRE_GPU=1 fail instead."""
    if not device.gpu_available():
        if os.environ.get("NNCOURSE_REQUIRE_GPU") == "1":
            pytest.fail(f"NNCOURSE_REQUIRE_GPU=1, but {device.why_no_gpu()}")
        pytest.skip(device.why_no_gpu())
    return "gpu"


@pytest.fixture(scope="session")
def gpus(gpu) -> int:
    """The number of GPUs; skip the test where there is only one, also with NNCOURSE_REQUIRE_GPU=1."""
    if (count := device.gpu_count()) < 2:
        pytest.skip("expected a second GPU")
    return count


@pytest.fixture(scope="session")
def emulator() -> None:
    """Skip the test where the emulator cannot run."""
    if reason := emulate.why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cuda_somewhere() -> None:
    """Skip the test where there is neither a GPU nor the emulator."""
    if not device.gpu_available() and (reason := emulate.why_not()):
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter) -> None:
    """Print what passed tests have said with record_property("told", …)."""
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "told":
                terminalreporter.section(report.nodeid.rpartition("::")[2])
                terminalreporter.write_line(text)


@pytest.fixture
def my_kernels(tmp_path, monkeypatch):
    """An empty my_kernels/ folder for one test."""
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(tmp_path / "my_kernels"))
    return tmp_path / "my_kernels"


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder instead of benchmarks/results: results(name, contents) writes a file into it."""
    from nnclassroom.figures import overheads

    def write(name, contents):
        (tmp_path / f"{name}.json").write_text(json.dumps(contents))
        forget()

    def forget():
        overheads.recorded.cache_clear()
        overheads.known.cache_clear()

    monkeypatch.setattr(overheads, "RESULTS", tmp_path)
    forget()
    yield write
    forget()


@pytest.fixture(scope="session")
def spanish() -> str:
    """Fail unless the Spanish notebooks and package are generated from the present sources."""
    from pathlib import Path

    from tools.translation import stamp

    if not stamp.is_new(Path(__file__).resolve().parents[1], "es"):
        pytest.fail("the Spanish edition is missing or old: run python tools/translate.py write es")
    return "es"


FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
)


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; skip the test where there is none, or no Playwright."""
    driver = pytest.importorskip("playwright.sync_api", reason="no Playwright here: the extra test brings it")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if not program:
        pytest.skip("no Chromium here: apt install chromium")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS.split())
        yield browser
        browser.close()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def csv_file(tmp_path):
    """csv_file(content) writes a CSV file and returns its path."""

    def write(content):
        path = tmp_path / "data.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def data_folder(tmp_path, monkeypatch):
    """The empty folder that NNCOURSE_DATA names; the course has the sample of MNIST only."""
    import shutil

    from nncourse import datasets

    own = tmp_path / "course"
    shutil.copytree(datasets.FOLDER / datasets.SAMPLE, own / datasets.SAMPLE)
    shutil.copy(datasets.FOLDER / "mirrors.json", own)
    monkeypatch.setattr(datasets, "FOLDER", own)
    monkeypatch.setenv("NNCOURSE_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture(scope="session")
def real_data():
    """The folder with the real CC and MNIST data and a model of the C program; skip where NNCOURSE_DATA names none."""
    from pathlib import Path

    folder = Path(os.environ.get("NNCOURSE_DATA", ""))
    if not os.environ.get("NNCOURSE_DATA") or not (folder / "cc").is_dir():
        pytest.skip("NNCOURSE_DATA names no folder with cc/, mnist/ and c_program/")
    return folder
