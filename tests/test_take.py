"""`nncourse take`: kept kernels move to another machine, where they are judged again."""

import json
import zipfile

import pytest
from refusals import command_refused

from nnclassroom.commands import main
from nnclassroom.exercises import kept_kernels
from nncourse.catalogue import find

RIGHT = "def relu(z):\n    return np.maximum(z, 0)\n"
ALSO = "def relu(z):\n    return z * (z > 0)\n"
WRONG = "def relu(z):\n    return np.maximum(z, 1)\n"
CUDA = """extern "C" __global__ void relu(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = fmaxf(z[i], 0.0f);
}
"""


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """machine("one") makes the kept kernels those of another machine."""

    def at(name: str) -> None:
        monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(tmp_path / name))

    return at


def packed(tmp_path) -> str:
    path = tmp_path / "work.zip"
    path.unlink(missing_ok=True)
    assert main(["submit", "--out", str(path)]) == 0
    return str(path)


def test_work_moves_and_is_judged_again(machine, tmp_path, capsys):
    relu = find("relu")
    machine("one")
    kept_kernels.keep(relu, "numpy", RIGHT, seconds=1e-6, sizes="z (10,)")
    kept_kernels.keep(relu, "naive", CUDA, {"block": [256]})
    path, dates = packed(tmp_path), {key: entry["date"] for key, entry in kept_kernels.progress().items()}
    machine("two")
    assert main(["take", path]) == 0
    said = capsys.readouterr().out
    assert "2 of 2 taken" in said and said.count("✓") == 2
    assert kept_kernels.text_of(relu, "numpy", None) == RIGHT
    record = kept_kernels.progress()
    assert {key: entry["date"] for key, entry in record.items()} == dates
    assert record["relu.numpy"]["seconds"] is None  # it was the other machine's
    assert main(["take", path]) == 0
    assert "0 of 2 taken; 2 are here already" in capsys.readouterr().out


def test_of_two_answers_the_newer_one_stays(machine, tmp_path, capsys):
    relu = find("relu")
    machine("one")
    kept_kernels.keep(relu, "numpy", RIGHT, date="2026-01-02T00:00:00+00:00")
    path = packed(tmp_path)
    machine("two")
    kept_kernels.keep(relu, "numpy", ALSO, date="2026-01-03T00:00:00+00:00")
    assert main(["take", path]) == 0
    assert kept_kernels.text_of(relu, "numpy", None) == ALSO
    kept_kernels.keep(relu, "numpy", ALSO, date="2026-01-01T00:00:00+00:00")
    assert main(["take", path]) == 0
    assert kept_kernels.text_of(relu, "numpy", None) == RIGHT and "1 of 1 taken" in capsys.readouterr().out


def test_what_is_wrong_here_is_not_kept(machine, tmp_path, capsys):
    machine("one")
    kept_kernels.keep(find("relu"), "numpy", WRONG)
    path = packed(tmp_path)
    machine("two")
    assert main(["take", path]) == 0
    assert "✗" in (said := capsys.readouterr().out) and "0 of 1 taken" in said
    assert not kept_kernels.progress()


@pytest.mark.parametrize(("name", "said"), [("work.zip", "nncourse: "), ("nothing.zip", "no such file")])
def test_a_file_of_another_kind_and_one_that_is_not_there_are_refused_in_one_line(
    name, said, machine, tmp_path, capsys
):
    machine("one")
    (tmp_path / "work.zip").write_text("no archive")
    assert said in command_refused(capsys, ["take", str(tmp_path / name)])


@pytest.mark.parametrize("damaged", ["", "[]", "{", '{"relu.numpy": 1}'])
def test_work_with_a_damaged_record_is_taken(machine, tmp_path, capsys, damaged):
    machine("one")
    kept_kernels.keep(find("relu"), "numpy", RIGHT)
    (tmp_path / "one" / "progress.json").write_text(damaged)
    path = packed(tmp_path)
    machine("two")
    assert main(["take", path]) == 0 and "1 of 1 taken" in capsys.readouterr().out


@pytest.mark.parametrize(
    "form",
    ["a folder", "backslashes", "a Mac's", "no folder in it", "a notebook", "a mark and the line ends of Windows"],
)
def test_take_reads_what_grade_reads(form, machine, tmp_path, capsys):
    source = f'@exercise("relu", kernel="numpy")\n{RIGHT}'
    made = {
        "backslashes": {"course\\my_kernels\\relu.numpy.py": RIGHT},
        "a Mac's": {"my_kernels/relu.numpy.py": RIGHT, "__MACOSX/my_kernels/._relu.numpy.py": b"\x00\x05\xff"},
        "no folder in it": {"relu.numpy.py": RIGHT},
        "a notebook": {"02.ipynb": json.dumps({"cells": [{"cell_type": "code", "source": source}]})},
        "a mark and the line ends of Windows": {
            "my_kernels/relu.numpy.py": b"\xef\xbb\xbf" + RIGHT.replace("\n", "\r\n").encode()
        },
    }
    path = tmp_path / ("work" if form == "a folder" else "work.zip")
    if form == "a folder":
        path.mkdir()
        (path / "relu.numpy.py").write_text(RIGHT)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in made[form].items():
                archive.writestr(name, content)
    machine("two")
    assert main(["take", str(path)]) == 0 and "1 of 1 taken" in capsys.readouterr().out
