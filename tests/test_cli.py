"""The command line: both spellings of the options; wrong input ends in one line and changes no file."""

import argparse
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nncourse
from nnclassroom.arguments import ARGPARSE_WORDS
from nnclassroom.commands import main
from nnclassroom.exercises import kept_kernels
from nncourse import datasets
from nncourse.backend import choose
from nncourse.errors import reason_of
from nncourse.kernels.activations import sigmoid
from nncourse.model import files
from nncourse.model.network import make_network
from tests import command_lines
from tests.command_lines import TEST, TRAIN, WRONG


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, my_kernels) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    command_lines.fill(work)
    monkeypatch.chdir(work)
    return work


def run(capsys, line: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command line."""
    status = main(line.split())
    return status, *capsys.readouterr()


def content(folder: Path) -> dict:
    return {path: (path.is_file() and path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*")}


def parameters(path) -> list[bytes]:
    return [array.tobytes() for array in files.load(path).network.parameters]


# ---- what works


@pytest.mark.parametrize("model", ("cc.npz", "cc.m"))
def test_the_command_lines_of_the_handout(capsys, model):
    line = "--train --learning_rate 0.01 --epochs 3 --batch_number 10 --dataset good.csv --layers 2,3,1 -s 1 --verbose"
    assert run(capsys, f"{line} --model {model}")[0] == 0
    assert files.load(model).network.sizes == (2, 3, 1)
    status, out, err = run(capsys, f"--test --dataset good.csv --model {model} --verbose")
    assert status == 0 and err == ""
    assert all(word in out for word in ("precision", "recall", "F1", "confusion matrix", "dense_forward"))
    assert run(capsys, f"--dataset good.csv --test --model {model}")[0] == 0  # in any order, as in the C program


def test_both_spellings_and_both_forms_give_the_same_model(capsys):
    old = "--train --dataset bare.csv --layers 2,3,1 --epochs 3 --batch_number 4 --learning_rate 0.5 -s 9"
    new = "train --dataset good.csv --layers 2,3,1 --epochs 3 --batch-size 4 --learning-rate 0.5 --seed 9"
    assert run(capsys, f"{old} --scaling standarization --model old.m")[0] == 0
    assert run(capsys, f"{new} --scaling standardization --model new.npz")[0] == 0
    assert parameters("old.m") == parameters("new.npz")


def test_the_same_seed_gives_the_same_file(capsys):
    for name, seed in (("one", 3), ("two", 3), ("three", 4)):
        assert run(capsys, f"{TRAIN} --seed {seed} --model {name}.npz")[0] == 0
    assert Path("one.npz").read_bytes() == Path("two.npz").read_bytes()
    assert parameters("one.npz") != parameters("three.npz")


@pytest.mark.parametrize("kind", ("none", "normalization", "standardization"))
def test_scaling_is_fitted_on_the_training_data_saved_and_applied(capsys, kind):
    status, out, _ = run(capsys, f"{TRAIN} --scaling {kind}")
    assert status == 0 and kind in out
    model, data = files.load("new.npz"), datasets.read_csv("good.csv")
    wanted = datasets.fit_scaling(data.X, kind)
    assert model.scaling.kind == kind if model.scaling else kind == "none"
    np.testing.assert_array_equal(model.scaled(data.X), wanted.apply(data.X))


def test_named_data_options_and_what_the_test_prints(capsys):
    line = "train --dataset breast_cancer --layers 30,8,1 --epochs 10 --activation relu --cost binary_cross_entropy"
    status, out, err = run(capsys, f"{line} --validation 0.2 --learning-rate 0.05 --initialiser he --model bc.npz")
    assert (status, err) == (0, "") and "held-out" in out
    model = files.load("bc.npz")
    assert model.network.activations == ("relu", "sigmoid")
    assert model.network.cost == "binary_cross_entropy"
    assert model.classes == ("benign", "malignant")
    status, out, err = run(capsys, "test --dataset breast_cancer --model bc.npz")
    assert (status, err) == (0, "")
    last = out.splitlines()[-1]
    assert "malignant" in last
    assert all(float(word.strip(",")) > 0.9 for word in last.split() if word[0].isdigit())


def test_a_network_of_many_classes(capsys):
    line = "train --dataset digits --layers 64,16,10 --activation tanh,softmax --cost categorical_cross_entropy"
    assert run(capsys, f"{line} --epochs 3 --model digits.m")[0] == 0
    status, out, _ = run(capsys, "test --dataset digits --model digits.m")
    assert status == 0 and float(out.split("accuracy")[1]) > 0.9


def test_use_and_backends(capsys):
    assert run(capsys, f"{TRAIN} --model one.npz")[0] == 0
    status, out, _ = run(capsys, f"{TRAIN} --use dense_forward=loops,sigmoid=loops --use sgd_update=numba")
    assert status == 0
    assert all(f"{pair}, asked for" in out for pair in ("dense_forward: loops", "sigmoid: loops", "sgd_update: numba"))
    one, two = (np.concatenate([a.ravel() for a in files.load(n).network.parameters]) for n in ("one.npz", "new.npz"))
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    status, out, _ = run(capsys, f"{TEST} --backend loops --verbose")
    assert status == 0 and "backend loops" in out


def test_mine(capsys):
    status, out, _ = run(capsys, f"{TRAIN} --mine")
    assert status == 0 and "none of your own" in out
    kept_kernels.keep(sigmoid, "numpy", "def sigmoid(z):\n    return 0.5 * np.tanh(0.5 * z) + 0.5\n")
    status, out, _ = run(capsys, f"{TRAIN} --mine")
    assert status == 0 and "sigmoid: numpy, yours" in out and "none of your own" not in out
    assert "yours" not in run(capsys, TRAIN)[1]


def test_a_cost_that_is_not_finite_ends_with_one_line_of_advice(capsys):
    line = f"{TRAIN} --activation identity,identity --learning-rate 1e30 --epochs 9"
    status, _, err = run(capsys, line)
    assert status == 2  # from the first epoch on: there is nothing to save
    assert "learning rate" in err and err.count("\n") == 1
    assert run(capsys, "test --dataset good.csv --model new.npz")[0] == 2


def test_check_time_and_info(capsys):
    def shown(line):
        status, out, err = run(capsys, line)
        assert (status, err) == (0, "")
        return out

    out = shown("check hidden_delta")
    *lines, count = out.splitlines()
    assert [line.split()[1] for line in lines] == ["hidden_delta"] * len(lines)
    assert sum(int(part.split()[0]) for part in count.split(", ")) == len(lines)
    assert all(f"({name})" in out for name in ("loops", "numpy", "numba", "cupy", "naive", "tiled"))
    assert shown("check sigmoid --kernel numpy --kernel loops").count("✓") == 2
    out = shown("time confusion_matrix --size n=1000 --size classes=3")
    assert "n 1000" in out and "classes 3" in out and "numpy" in out
    sizes = "--size batch=2 --size h_in=5 --size k=5 --size stride=2 --size before=1 --size after=0"
    assert "k 5, stride 2, before 1, after 0" in shown(f"time convolution_forward --kernel numpy {sizes}")
    out = shown("info")
    assert nncourse.__version__ in out and "GB/s" in out and "emulator" in out


def test_version_and_help(capsys):
    for line in ("--version", "--help", "train --help"):
        with pytest.raises(SystemExit) as caught:
            main(line.split())
        assert caught.value.code == 0
        out, err = capsys.readouterr()
        assert out and not err


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ("", 0.1),
        ("--optimizer sgd --momentum 0.9", 0.01),
        ("--optimizer adam", 0.001),
        ("--optimizer adam --learning-rate 2", 2),
        ("--optimizer rmsprop --beta 0.8", 0.001),
        ("--optimizer adagrad", 0.01),
    ],
)
def test_each_optimizer_has_a_usual_learning_rate(capsys, options, rate):
    assert run(capsys, f"{TRAIN} {options}")[0] == 0
    assert files.load("new.npz").provenance["learning_rate"] == rate


@pytest.mark.parametrize(
    ("form", "again", "options"),
    [
        ("npz", "", ""),
        ("m", "", ""),
        ("npz", "--validation 0.25", ""),
        ("m", "--validation 0.25", ""),
        ("npz", "", "--optimizer adam --l2 0.01 --schedule step,2,0.5 --batch-size 7"),
        ("npz", "--backend numba", "--momentum 0.8 --learning-rate 0.05 --schedule cosine,6"),
        ("npz", "", "--l2 0.01 --schedule exponential,0.7"),
        ("npz", "--backend numba", "--optimizer rmsprop --beta 0.7 --epsilon 1e-4"),
        ("npz", "", "--optimizer adam --beta1 0.8 --beta2 0.9 --epsilon 1e-5"),
        ("npz", "", "--optimizer adagrad --epsilon 1e-5"),
    ],
)
def test_resume_goes_on_as_if_it_had_never_stopped(capsys, form, again, options):
    """It takes optimizer, rate, schedule and batch size from the model; `again` is said again."""
    line = f"train --dataset good.csv {again} --model"
    for name, epochs in (("whole", 6), ("half", 2)):
        assert run(capsys, f"{line} {name}.{form} --layers 2,3,1 --seed 3 --epochs {epochs} {options}")[0] == 0
    assert parameters(f"half.{form}") != parameters(f"whole.{form}")
    assert run(capsys, f"{line} half.{form} --resume half.{form} --epochs 4")[0] == 0
    whole, half = files.load(f"whole.{form}"), files.load(f"half.{form}")
    assert parameters(f"whole.{form}") == parameters(f"half.{form}") and half.provenance["epochs"] == 6
    assert whole.optimizer.describe() == half.optimizer.describe() and whole.optimizer.steps == half.optimizer.steps
    assert whole.optimizer.state.keys() == half.optimizer.state.keys()
    for name, array in whole.optimizer.state.items():
        np.testing.assert_array_equal(array, half.optimizer.state[name])
    assert whole.provenance["schedule"] == half.provenance["schedule"]


@pytest.mark.parametrize(
    ("option", "said", "count"), [("", "threads: 1, since ", 1), ("--threads 3", "threads: 3, as asked", 3)]
)
def test_threads_stand_in_the_plan_and_in_the_model(capsys, option, said, count):
    status, out, _ = run(capsys, f"{TRAIN} {option}")
    assert status == 0 and said in out and out.count("with 3 threads") == (count > 1)
    assert files.load("new.npz").provenance["threads"] == count
    assert run(capsys, f"test --dataset good.csv --model new.npz {option}")[0] == 0
    status, _, err = run(capsys, f"{TRAIN} --threads 0")
    assert status == 2 and "expected at least 1 thread, got 0" in err


def test_an_optimizer_says_its_options_and_keeps_them(capsys):
    line = f"{TRAIN} --optimizer adam --beta1 0.8 --epsilon 1e-5 --l2 0.25"
    status, out, _ = run(capsys, line)
    assert status == 0 and "optimizer: adam with beta1 0.8 and epsilon 1e-05 and l2 0.25, learning rate 0.001" in out
    wanted = {"kind": "adam", "beta1": 0.8, "beta2": 0.999, "epsilon": 1e-5, "l2": 0.25}
    assert files.load("new.npz").optimizer.describe() == wanted


def test_a_model_of_before_can_be_resumed(capsys):
    """Its provenance has no schedule, and its optimizer no state."""
    known = {"epochs": 2, "seed": 4, "batch_size": 5, "learning_rate": 0.2}
    files.save(files.Model(make_network([2, 3, 1], seed=5), provenance=known), "old.npz")
    assert run(capsys, "train --dataset good.csv --resume old.npz --epochs 1 --model new.npz")[0] == 0
    new = files.load("new.npz").provenance
    assert (new["epochs"], new["batch_size"], new["learning_rate"], new["schedule"]) == (3, 5, 0.2, "constant")


# ---- what is loaded

FILES_THAT_RUN = """
import runpy, sys
from pathlib import Path

root, ran = Path(sys.argv.pop(1)), set()

def note(frame, event, argument):
    if event == "call" and frame.f_code.co_name != "<module>":
        ran.add(frame.f_code.co_filename)

sys.setprofile(note)
try:
    runpy.run_module("nnclassroom", run_name="__main__")
except SystemExit as end:
    status = end.code
sys.setprofile(None)
ours = [Path(file).relative_to(root) for file in ran if root in Path(file).parents]
print("ran", *sorted(map(str, (file for file in ours if file.parts[0] in ("cuda_on_cpu", "nncourse", "nnclassroom")))))
sys.exit(status)
"""


def test_training_a_small_network_runs_code_of_few_files():
    """A reader who follows the command has no more files to read. Functions and bodies of classes count."""
    root = str(Path(nncourse.__file__).parents[1])
    line = "train --dataset moons --layers 2,8,1 --epochs 3 --model moons.npz"
    command = [sys.executable, "-c", FILES_THAT_RUN, root, *line.split()]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": root}, capture_output=True, text=True, check=True)
    _, *ran = done.stdout.splitlines()[-1].split()
    assert len(ran) <= 54, ran
    assert {"nnclassroom/commands/train.py", "nncourse/kernels/dense.py", "nncourse/model/training.py"} <= set(ran)
    assert not [file for file in ran if file.startswith(("nnclassroom/judge", "nnclassroom/exercises"))]


# ---- wrong input


def test_argparse_says_our_words_only_to_our_parsers(capsys):
    gettext = argparse._
    assert main(["train", "--seed", "few"]) == 2
    assert capsys.readouterr().err.startswith("nncourse: argument -s/--seed: invalid int value: 'few' (see nncourse")
    assert argparse._ is gettext
    assert all(key == words for key, words in ARGPARSE_WORDS.items())  # English is as argparse says it


def test_the_systems_reasons_are_words_of_the_course():
    assert reason_of(OSError(errno.ENOENT, "said by the system")) == "No such file or directory"
    assert reason_of(OSError(errno.EIO, "said by the system")) == "said by the system"
    assert reason_of(ValueError("no number")) == "no number"


@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_ends_in_one_line_and_touches_nothing(capsys, folder, line):
    before = content(folder)
    arguments = line.split() + [""] * line.endswith(" ")
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("nncourse: ") and err.count("\n") == 1 and err.endswith("\n")
    assert len(err) < 700
    assert content(folder) == before


@pytest.mark.parametrize("name", ("cupy", "cuda"))
def test_a_gpu_backend_without_a_gpu_is_wrong_input_too(capsys, folder, monkeypatch, name):
    monkeypatch.setattr("nncourse.device.gpu_available", lambda: False)
    test_wrong_input_ends_in_one_line_and_touches_nothing(capsys, folder, f"{TRAIN} --backend {name}")


def test_a_folder_that_cannot_be_written_is_noticed_before_the_training(capsys, folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    test_wrong_input_ends_in_one_line_and_touches_nothing(capsys, folder, TRAIN)


# ---- as a program of its own


def program(*arguments: str, **options) -> subprocess.Popen:
    """`python -m nnclassroom …`, in which Ctrl-C works even where the tests run in the background."""
    source = str(Path(nncourse.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "nnclassroom", *arguments]
    free = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, preexec_fn=free, **pipes | options)


def test_the_program_trains_and_tests():
    process = program(*TRAIN.split())
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"") and b"new.npz" in out
    process = program("--test", "--dataset", "good.csv", "--model", "new.npz")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"") and b"F1" in out


def test_ctrl_c_saves_a_model_and_exits_with_130():
    process = program(*TRAIN.split(), "--epochs", "100000000", "--verbose")
    shown = b""
    while b"cost" not in shown:  # the progress bar: some epochs are done
        read = os.read(process.stderr.fileno(), 1000)
        assert read, shown
        shown += read
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err and b"interrupted" in err
    model = files.load("new.npz")
    assert model.provenance["epochs"] > 0
    assert parameters("new.npz") != [a.tobytes() for a in make_network([2, 3, 1]).parameters]
    assert model.network.predict(np.zeros((1, 2), np.float32), choose("numpy")).shape == (1, 1)


def test_ctrl_c_elsewhere_is_no_traceback_either(capsys, monkeypatch):
    def press(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(datasets, "load", press)
    status, _, err = run(capsys, TRAIN)
    assert status == 130 and err.count("\n") == 1
    assert not Path("new.npz").exists()


def test_a_reader_that_leaves_is_no_error():
    process = program("check", "sigmoid")
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.wait(timeout=60)


# ---- real data


@pytest.mark.parametrize("form", ("npz", "m"))
def test_the_run_of_the_handout_on_real_data(capsys, real_data, form):
    cc = real_data / "cc"
    line = f"--dataset {cc}/CC_train.csv --layers 30,60,10,1 --epochs 60 --batch_number 10 --learning_rate 0.05"
    assert run(capsys, f"--train {line} -s 1 --model cc.{form}")[0] == 0
    status, out, _ = run(capsys, f"--test --dataset {cc}/CC_test.csv --model cc.{form} --verbose")
    assert status == 0
    assert float(out.split()[-1]) >= 0.9, "F1 of the frauds"


def test_the_model_of_the_c_program_can_be_tested(capsys, real_data):
    line = f"--test --dataset {real_data}/cc/CC_test.csv --model {real_data}/c_program/model.m"
    status, out, err = run(capsys, line)
    assert (status, err) == (0, "") and "1098 samples, network 30-60-10-1" in out
