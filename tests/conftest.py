"""What all tests share: the GPU or the reason to do without, and folders of their own for kept kernels."""

import os

import numpy as np
import pytest

from nncourse import device


@pytest.fixture(scope="session")
def gpu() -> str:
    """Skip the test where there is no GPU; with NNCOURSE_REQUIRE_GPU=1 fail instead."""
    if not device.gpu_available():
        if os.environ.get("NNCOURSE_REQUIRE_GPU") == "1":
            pytest.fail(f"NNCOURSE_REQUIRE_GPU=1, but {device.why_no_gpu()}")
        pytest.skip(device.why_no_gpu())
    return "gpu"


def pytest_terminal_summary(terminalreporter) -> None:
    """What tests that passed have to tell: by record_property("told", …)."""
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


@pytest.fixture(scope="session")
def spanish() -> str:
    """The Spanish edition's notebooks and package are generated from what is there now; fail where they are not."""
    from pathlib import Path

    from tools.translation import stamp

    if not stamp.is_new(Path(__file__).resolve().parents[1], "es"):
        pytest.fail("the Spanish edition is missing or old: run python tools/translate.py write es")
    return "es"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture(scope="session")
def real_data():
    """The folder with the real CC and MNIST data and a model of the C program; skip where NNCOURSE_DATA names none."""
    from pathlib import Path

    folder = Path(os.environ.get("NNCOURSE_DATA", ""))
    if not os.environ.get("NNCOURSE_DATA") or not (folder / "cc").is_dir():
        pytest.skip("NNCOURSE_DATA names no folder with cc/, mnist/ and c_program/")
    return folder
