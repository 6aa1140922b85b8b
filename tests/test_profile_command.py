"""`nncourse profile`: the emulator's counts of CUDA kernels, beside a GPU's, or the reason why there are none."""

import csv
import io
import os
import shutil
import subprocess
import sys

import pytest
from refusals import command_refused, refused

from nnclassroom.commands import main, profile
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.figures.accesses import accesses
from nnclassroom.judge.budget import case_of
from nnclassroom.timing import counters
from nncourse import device
from nncourse.kernels.kernel import CudaKernel

MINE = """extern "C" __global__ void sigmoid(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = 1.0f / (1.0f + expf(-z[i]));
}
"""
REFUSED = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters"
FAILED = "==PROF== Connected to process 7\n==ERROR== The application returned an error code (1)."
LABELS = dict(zip(profile.ROW_WORDS.values(), profile.ROW_WORDS, strict=True))


def run(line: str) -> int:
    return main(["profile", *line.split()])


def refusal(capsys, line: str) -> str:
    return command_refused(capsys, ["profile", *line.split()])


def emulated(operation_name: str, name: str) -> dict[str, int]:
    operation = find(operation_name)
    kernel = operation[name]
    assert isinstance(kernel, CudaKernel)
    return counters.counted(accesses(kernel, *case_of(operation, name).arguments).trace)


def rows(out: str) -> dict[str, list[str]]:
    """The texts in the columns of each row, by the count's name."""
    pairs = ((label, line) for line in out.splitlines() for label in LABELS if line.startswith(label))
    return {LABELS[label]: line.removeprefix(label).split() for label, line in pairs}


def column(out: str, number: int) -> dict[str, int]:
    cells = rows(out)
    return {name: int(cells[name][number].replace(",", "")) for name in counters.METRICS}


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """ncu(text, status, to): a program of that name that prints a text; and a GPU, as far as is looked."""
    monkeypatch.setattr(device, "why_no_gpu", lambda: "")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def write(out: str, status: int = 0, err: str = "") -> None:
        (tmp_path / "out").write_text(out)
        (tmp_path / "err").write_text(err)
        script = f"""#!/bin/sh
printf '%s\\n' "$@" > {tmp_path}/asked
cat {tmp_path}/out
cat {tmp_path}/err >&2
exit {status}
"""
        (tmp_path / "ncu").write_text(script)
        (tmp_path / "ncu").chmod(0o755)

    return write


def table_of_ncu(counts: dict[str, int], function: str) -> str:
    """What ncu prints: its own lines, and a table with a row of units."""
    made = io.StringIO()
    writer = csv.writer(made, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["ID", "Kernel Name", *counters.METRICS.values()])
    writer.writerow(["", "", *("" for _ in counts)])
    writer.writerow(["0", f"{function}(const float *)", *(f"{count:,}" for count in counts.values())])
    return f'==PROF== Connected to process 7\n==PROF== Profiling "{function}"\n{made.getvalue()}'


# ---- without a GPU


def test_the_emulators_counts_and_why_there_are_no_others(capsys, emulator, monkeypatch):
    monkeypatch.setattr(device, "why_no_gpu", lambda: "no GPU answers")
    assert run("dense_forward --kernel coalesced") == 0
    title, head, *_, last = (out := capsys.readouterr().out).splitlines()
    sizes = find("dense_forward").sizes(*case_of(find("dense_forward"), "coalesced").arguments)
    assert "coalesced" in title and all(f"{name} {size}" in title for name, size in sizes.items())
    assert head.split() == ["emulator"] and last.endswith("no GPU answers")
    counts = emulated("dense_forward", "coalesced")
    assert column(out, 0) == counts
    for way in ("read", "write"):
        ratio = counts[f"sectors {way}"] / counts[f"requests {way}"]
        assert rows(out)[f"ratio {way}"] == [f"{ratio:.1f}"]


def test_all_kernels_of_an_operation_and_the_reason_once(capsys, emulator, monkeypatch):
    monkeypatch.setattr(device, "why_no_gpu", lambda: "no GPU answers")
    assert run("mse") == 0
    out = capsys.readouterr().out
    names = [kernel.name for kernel in find("mse").kernels.values() if isinstance(kernel, CudaKernel)]
    assert len(names) > 1 and all(f"mse ({name})" in out for name in names)
    assert out.count("no GPU answers") == 1 and all(len(line) <= 80 for line in out.splitlines())


def test_your_own_kernels(capsys, emulator, monkeypatch, my_kernels):
    monkeypatch.setattr(device, "why_no_gpu", lambda: "no GPU answers")
    operation = find("sigmoid")
    assert "you have kept none" in refusal(capsys, "sigmoid --mine")
    kept_kernels.keep(operation, "numpy", "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))")
    assert "you have kept none" in refusal(capsys, "sigmoid --mine")
    kept_kernels.keep(operation, "own", MINE, {"block": [64]})
    assert run("sigmoid --mine") == 0
    out = capsys.readouterr().out
    assert "own, yours" in out and column(out, 0) == emulated("sigmoid", "naive")
    assert "own" in refusal(capsys, "sigmoid --mine --kernel naive")
    (my_kernels / "sigmoid.own.cu").write_text(MINE.replace("-z", "z"))
    assert run("sigmoid --mine") == 1
    out = capsys.readouterr().out
    assert out.startswith("✗") and not rows(out)


def test_what_is_no_cuda_kernel_of_one_launch(capsys):
    assert "dense_forward" in refusal(capsys, "dense_forwards")
    assert "did you mean coalesced?" in refusal(capsys, "dense_forward --kernel coalesce")
    assert "CUDA kernel of one launch" in refusal(capsys, "dense_forward --kernel numpy")
    assert "CUDA kernel of one launch" in refusal(capsys, "algorithm_1")
    assert "operation" in refusal(capsys, "")


# ---- with a program in the place of ncu


def test_the_gpus_counts_stand_beside_the_emulators(capsys, emulator, ncu, tmp_path):
    counts = emulated("mse", "tree")
    ncu(table_of_ncu(counts, find("mse")["tree"].entry))
    assert run("mse --kernel tree") == 0
    out = capsys.readouterr().out
    assert column(out, 0) == column(out, 1) == counts and "confirmed.md" not in out
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[-5:] == [sys.executable, "-m", "nnclassroom.timing.counters", "mse", "tree"]
    ncu(table_of_ncu(counts | {"requests read": 4321, "sectors read": 0, "requests write": 0}, "mse_tree"))
    assert run("mse --kernel tree") == 0
    out = capsys.readouterr().out
    assert column(out, 1) == counts | {"requests read": 4321, "sectors read": 0, "requests write": 0}
    assert rows(out)["ratio read"][1] == "0.0" and rows(out)["ratio write"][1] == "–" and "confirmed.md" in out


@pytest.mark.parametrize(
    ("out", "status", "err", "said"),
    [
        (REFUSED, 1, "Traceback\nRuntimeError: launch failed", "administrator"),
        (REFUSED, 0, "", "administrator"),
        ("==PROF== Connected\n==ERROR== Unknown Error on device 0.\n", 1, "", "Unknown Error on device 0."),
        (FAILED, 1, "Traceback\nMemoryError: none left\n", "MemoryError: none left"),
        (FAILED, 1, "", "The application returned an error code (1)."),
        ("", 3, "", "nothing"),
        ("", 0, "", "nothing"),
        ('"ID","Kernel Name"\n"",""\n"0","mse_tree"\n', 0, "", "does not report"),
    ],
)
def test_why_ncu_fails_is_one_line(capsys, emulator, ncu, out, status, err, said):
    ncu(out, status, err)
    assert run("mse --kernel tree --kernel atomic") == 0
    out, err = capsys.readouterr()
    assert said in out.splitlines()[-1] and not err
    assert out.count("emulator") == 2 and column(out, 0)


def test_without_ncu(capsys, emulator, tmp_path, monkeypatch):
    which = shutil.which
    monkeypatch.setattr(device, "why_no_gpu", lambda: "")
    monkeypatch.setattr(shutil, "which", lambda name, *others, **options: None if name == "ncu" else which(name))
    assert run("mse --kernel tree") == 0
    assert "Nsight Compute" in capsys.readouterr().out.splitlines()[-1]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "cannot be started" in refused(counters.by_ncu, [sys.executable], ["mse"])


def test_ncu_watches_a_launch_of_the_named_kernel(monkeypatch, my_kernels):
    launched = []
    monkeypatch.setattr(counters, "launch", lambda operation, kernel: launched.append((operation, kernel)))
    kept_kernels.keep(find("sigmoid"), "own", MINE, {"block": [64]})
    counters._launch_named("sigmoid", "naive")
    counters._launch_named("sigmoid", "own", "yours")
    (operation, course), (_, own) = launched
    assert course is operation["naive"] and (own.source.text, own.block) == (MINE, (64,))


# ---- on a GPU


@pytest.mark.parametrize("whose", ["", "yours"])
def test_a_launch_for_ncu_on_a_gpu(gpu, my_kernels, whose):
    kept_kernels.keep(find("sigmoid"), "naive", MINE, {"block": [64]})
    command = [sys.executable, "-m", "nnclassroom.timing.counters", "sigmoid", "naive", *filter(None, [whose])]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stderr == ""


def test_a_gpu_counts_the_same_where_its_counters_can_be_read(capsys, gpu, emulator):
    assert run("dense_forward --kernel naive") == 0
    out = capsys.readouterr().out
    assert column(out, 0) == (column(out, 1) if "No GPU counts" not in out else emulated("dense_forward", "naive"))
