"""The programs of pytorch/, on CPUs."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(not find_spec("torch"), reason="no PyTorch here")


def printed(program: str) -> str:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.path.insert(0, {str(ROOT / 'pytorch')!r})"
    code += f"; import {program}; {program}.main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_two_processes_are_one_and_unequal_ones_end():
    said = printed("ddp")
    assert float(re.search(r"from one process: (\S+)", said)[1]) < 1e-6
    assert "made 3 and 5 steps" in said


def test_layers_on_two_devices_and_copies_learn_as_one_device():
    costs = re.findall(r"cost (\S+)", printed("two_devices"))
    assert len(costs) == 3 and len(set(costs)) == 1
