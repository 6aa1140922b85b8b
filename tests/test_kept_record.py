"""The record of kept kernels: several processes write it at once, editors change its form, disks fill up."""

import codecs
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nnclassroom.exercises import kept_kernels, locked
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.locked import LOCK
from nnclassroom.handing_out import on_host
from nnclassroom.notebook import sitting
from nncourse.errors import CourseError, decoded
from nncourse.kernels.activations import relu, sigmoid

RIGHT = "def sigmoid(z):\n    return 0.5 * np.tanh(0.5 * z) + 0.5\n"
OPERATIONS = (
    *("sigmoid", "relu", "tanh", "mse", "dense_forward"),
    *("sigmoid_derivative", "relu_derivative", "softmax", "output_delta", "bias_gradient"),
)
# Each line on standard input is a folder; an answer is one line.
PROGRAM = """
import os, sys
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
kept_kernels.devices.describe("cpu")
print("ready", flush=True)
for line in sys.stdin:
    os.environ["NNCOURSE_MY_KERNELS"], start = line.split()
    while not os.path.exists(start):
        pass
    for name in sys.argv[1:]:
        kept_kernels.note_attempt(find(name), "numpy", kept_kernels.Verdict(name, "numpy", "right"))
        kept_kernels.keep(find(name), "numpy", f"def {name}(*arguments):\\n    return 0\\n")
        kept_kernels.note_attempt(find(name), "numpy", kept_kernels.Verdict(name, "numpy", "right"))
    print("done", flush=True)
"""


@pytest.fixture
def processes():
    """Makes processes that keep these operations, and ends them."""
    made = []

    def start(*shares):
        for names in shares:
            command = [sys.executable, "-c", PROGRAM, *names]
            made.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        assert all(each.stdout.readline() == "ready\n" for each in made)
        return made

    yield start
    for each in made:
        each.kill()
        each.communicate()


def records(folder: Path) -> list[str]:
    return sorted(json.loads((folder / "progress.json").read_text("utf-8")))


@pytest.mark.parametrize("count", [2, 10])
def test_two_at_once_and_ten_leave_ten_records(processes, tmp_path, count):
    """The kind of loss: each read the record, and wrote it without what the others had added meanwhile."""
    shares = [OPERATIONS[number::count] for number in range(count)]
    made = processes(*shares)
    for turn in range(4):
        folder, start = tmp_path / f"{turn}", tmp_path / f"start{turn}"
        for each in made:
            print(folder, start, file=each.stdin, flush=True)
        start.touch()
        assert [each.stdout.readline() for each in made] == ["done\n"] * count
        assert records(folder) == sorted(f"{name}.numpy" for name in OPERATIONS)
        attempts = [json.loads(line) for line in (folder / "attempts.jsonl").read_text("utf-8").splitlines()]
        assert sorted(each["key"] for each in attempts) == sorted(2 * [f"{name}.numpy" for name in OPERATIONS])
        texts = {f"{name}.numpy.py" for name in OPERATIONS}
        assert {path.name for path in folder.iterdir()} == {*texts, "progress.json", "attempts.jsonl"}


def test_two_at_once_that_keep_the_same_exercise_leave_a_text_with_its_record(processes, tmp_path):
    made = processes(*[["sigmoid"]] * 4)
    for each in made:
        print(tmp_path / "kept", tmp_path / "start", file=each.stdin, flush=True)
    (tmp_path / "start").touch()
    assert [each.stdout.readline() for each in made] == ["done\n"] * 4
    text = (tmp_path / "kept" / "sigmoid.numpy.py").read_bytes()
    record = json.loads((tmp_path / "kept" / "progress.json").read_text("utf-8"))
    assert record["sigmoid.numpy"]["hash"] == hashlib.sha256(text).hexdigest()


def test_threads_of_one_process_keep_at_once(my_kernels):
    texts = [(find(name), f"def {name}(*arguments):\n    return 0\n") for name in OPERATIONS]
    threads = [threading.Thread(target=kept_kernels.keep, args=(each, "numpy", text)) for each, text in texts]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert records(my_kernels) == sorted(f"{name}.numpy" for name in OPERATIONS)


HOLD = """
import signal, sys, time
from pathlib import Path
from nnclassroom.exercises.locked import locked
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(my_kernels):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(my_kernels)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_two_at_once_of_which_one_is_killed(holder, my_kernels, how):
    """The other waits for it, and not longer than it lives; a lock file that it leaves is used and removed."""
    done = []
    thread = threading.Thread(target=lambda: done.append(kept_kernels.keep(sigmoid, "numpy", RIGHT)))
    thread.start()
    time.sleep(0.3)
    assert not done and not (my_kernels / "progress.json").exists()
    holder.send_signal(how)
    thread.join(10)
    assert done == [None] and records(my_kernels) == ["sigmoid.numpy"]
    assert not (my_kernels / LOCK).exists()


def test_two_at_once_of_which_one_hangs(holder, my_kernels, monkeypatch):
    monkeypatch.setattr(locked, "PATIENCE", 0.3)
    holder.send_signal(signal.SIGSTOP)
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    kept_kernels.note_attempt(sigmoid, "numpy", kept_kernels.check("sigmoid", "numpy", RIGHT))
    assert records(my_kernels) == ["sigmoid.numpy"] and (my_kernels / "attempts.jsonl").is_file()
    holder.send_signal(signal.SIGCONT)


def test_ctrl_c_while_it_waits_and_while_it_writes(holder, my_kernels, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(locked.time, "sleep", interrupted)
        kept_kernels.keep(sigmoid, "numpy", RIGHT)
    assert {path.name for path in my_kernels.iterdir()} == {LOCK}
    holder.kill()
    holder.wait()
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(kept_kernels, "write_atomically", interrupted)
        kept_kernels.keep(sigmoid, "numpy", RIGHT)
    assert not any(my_kernels.iterdir())
    kept_kernels.keep(relu, "numpy", "def relu(z):\n    return np.maximum(z, 0)\n")
    assert records(my_kernels) == ["relu.numpy"]


@pytest.mark.parametrize("left", ["a file", "a full file", "a folder", "a link to nothing", "of somebody else"])
def test_a_lock_that_is_left_behind_stops_nobody(my_kernels, left):
    my_kernels.mkdir()
    path = my_kernels / LOCK
    if left == "a folder":
        path.mkdir()
    elif left == "a link to nothing":
        path.symlink_to(my_kernels / "nowhere" / "else")
    else:
        path.write_text("4711" * (left == "a full file"))
        path.chmod(0o400 if left == "of somebody else" else 0o600)
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    assert records(my_kernels) == ["sigmoid.numpy"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_file_systems_without_locks_keep_as_before(my_kernels, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(locked, "_lock", refuse)
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    assert records(my_kernels) == ["sigmoid.numpy"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_what_cannot_be_written_is_one_line_and_leaves_the_record_as_it_is(my_kernels, monkeypatch, number):
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    before, verdict = (my_kernels / "progress.json").read_bytes(), kept_kernels.check("sigmoid", "numpy", RIGHT)

    def refuse(*_, **__):
        raise OSError(number, os.strerror(number))

    def opened(path, flags, *mode, really=os.open):
        return refuse() if flags & os.O_CREAT else really(path, flags, *mode)

    with monkeypatch.context() as patched:
        patched.setattr("tempfile.mkdtemp", refuse)
        patched.setattr(locked.os, "open", opened)
        with pytest.raises(CourseError, match="cannot be written") as caught:
            kept_kernels.keep(relu, "numpy", "def relu(z):\n    return np.maximum(z, 0)\n")
        kept_kernels.note_attempt(relu, "numpy", verdict)
    assert "\n" not in str(caught.value)
    assert (my_kernels / "progress.json").read_bytes() == before
    kept_kernels.keep(relu, "numpy", "def relu(z):\n    return np.maximum(z, 0)\n")
    assert records(my_kernels) == ["relu.numpy", "sigmoid.numpy"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_only_be_read(my_kernels):
    my_kernels.mkdir(mode=0o500)
    with pytest.raises(CourseError, match="cannot be written"):
        kept_kernels.keep(sigmoid, "numpy", RIGHT)


def test_a_file_in_place_of_the_folder_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(tmp_path / "file" / "below"))
    with pytest.raises(CourseError) as caught:
        kept_kernels.keep(sigmoid, "numpy", RIGHT)
    assert "\n" not in str(caught.value)


def test_an_older_answer_does_not_take_the_place_of_one_that_was_kept_meanwhile(my_kernels):
    """As `take` and a hosted Jupyter do: they judge for seconds after they have looked at the record."""
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    kept_kernels.keep(sigmoid, "numpy", "def sigmoid(z):\n    return z\n", date="2020-01-01T00:00:00+00:00")
    assert (my_kernels / "sigmoid.numpy.py").read_text() == RIGHT
    kept_kernels.keep(sigmoid, "numpy", RIGHT + "\n", date="2999-01-01T00:00:00+00:00")
    assert (my_kernels / "sigmoid.numpy.py").read_text() == RIGHT + "\n"


# ---- byte-order marks, and what else an editor does

CODINGS = {
    "as it was": lambda text: text.encode(),
    "bom": lambda text: codecs.BOM_UTF8 + text.encode(),
    "bom crlf": lambda text: codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode(),
    "utf-16": lambda text: codecs.BOM_UTF16_LE + text.replace("\n", "\r\n").encode("utf-16-le"),
    "utf-16 big-endian": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
}
each_coding = pytest.mark.parametrize("coding", CODINGS)


@each_coding
def test_bom_in_a_kept_kernel(my_kernels, coding):
    kept_kernels.keep(sigmoid, "numpy", RIGHT, seconds=0.5)
    path = my_kernels / "sigmoid.numpy.py"
    path.write_bytes(CODINGS[coding](RIGHT))
    entry = kept_kernels.progress()["sigmoid.numpy"]
    assert kept_kernels.verdict_of(sigmoid, "numpy", entry), coding
    kernels, refused = kept_kernels.fastest({"sigmoid": sigmoid}, "cpu")
    assert list(kernels) == ["sigmoid"] and not refused
    is_same = entry["hash"] == hashlib.sha256(kept_kernels.text_of(sigmoid, "numpy", None).encode()).hexdigest()
    assert is_same == ("\r" not in CODINGS[coding](RIGHT).decode("utf-16" if "utf-16" in coding else "utf-8"))


@each_coding
def test_bom_in_the_record(my_kernels, coding):
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    path = my_kernels / "progress.json"
    path.write_bytes(CODINGS[coding](path.read_text("utf-8")))
    assert list(kept_kernels.progress()) == ["sigmoid.numpy"]
    kept_kernels.keep(relu, "numpy", "def relu(z):\n    return np.maximum(z, 0)\n")
    assert records(my_kernels) == ["relu.numpy", "sigmoid.numpy"]  # as every version reads it


@each_coding
def test_bom_in_the_attempts(my_kernels, coding):
    verdict = kept_kernels.check("sigmoid", "numpy", RIGHT)
    path = my_kernels / "attempts.jsonl"
    kept_kernels.note_attempt(sigmoid, "numpy", verdict)
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    line = json.dumps(json.loads(path.read_text("utf-8")) | {"date": an_hour_ago.isoformat()}) + "\n"
    path.write_bytes(CODINGS[coding](line))
    kept_kernels.note_attempt(sigmoid, "loops", verdict)
    lines = [json.loads(line) for line in decoded(path.read_bytes()).splitlines()]
    assert [line["key"] for line in lines] == ["sigmoid.numpy", "sigmoid.loops"]
    assert "over 30 minutes ago" in sitting._clock(my_kernels, 30)  # an examination's first answer


@pytest.mark.parametrize("coding", ["as it was", "bom", "utf-16"])
def test_a_line_of_the_attempts_that_a_full_disk_has_cut_stays_alone(my_kernels, coding):
    verdict = kept_kernels.check("sigmoid", "numpy", RIGHT)
    path = my_kernels / "attempts.jsonl"
    my_kernels.mkdir()
    path.write_bytes(CODINGS[coding]('{"key": "sigm'))
    kept_kernels.note_attempt(sigmoid, "loops", verdict)
    cut, line = decoded(path.read_bytes()).splitlines()
    assert cut == '{"key": "sigm' and json.loads(line)["key"] == "sigmoid.loops"


@each_coding
def test_bom_in_kernels_that_a_hosted_jupyter_brings(my_kernels, tmp_path, monkeypatch, coding):
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    for path in (my_kernels / "progress.json", my_kernels / "sigmoid.numpy.py"):
        path.write_bytes(CODINGS[coding](path.read_text("utf-8")))
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(tmp_path / "drive"))
    assert on_host.bring(my_kernels) == 1 and records(tmp_path / "drive") == ["sigmoid.numpy"]
    assert on_host.bring(my_kernels) == 0
