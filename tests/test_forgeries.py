"""Forgeries: wrong answers and folders that try to be accepted. Their author did not write the judge. And attacks.

The heads of answers/forgeries.toml and answers/attacks.toml describe the entries. test_grade_forgeries.py runs
`nncourse grade` on all of them, including those that only its sandbox stops.
"""

import hashlib
import json
import os
import subprocess
import sys
import time
from operator import itemgetter
from pathlib import Path

import forged
import psutil
import pytest

import nncourse
from cuda_on_cpu import emulate, processes, program
from cuda_on_cpu.host_compiler import MOST_SECONDS
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import progress_lines
from nnclassroom.judge import answer, limits, sandbox
from nnclassroom.judge.cases import random_case
from nnclassroom.judge.check import check
from nnclassroom.judge.run import BROKEN_OFF, Returned
from nnclassroom.notebook import cuda_cell, report
from nncourse import device
from nncourse.errors import CourseError
from tests.exercise_answers import in_cuda
from tests.tiers import many

HERE = [forgery for forgery in forged.FORGERIES if forgery.get("needs") != "sandbox"]
OF_EACH = (
    lambda forgery: forgery["name"].replace(" ", "-"),
    itemgetter("kind"),
    itemgetter("operation"),
    itemgetter("file"),
)
OF_EACH_KIND = many(HERE, *OF_EACH, in_cuda)
LIMIT = 3.0  # seconds of computing: none needs more
BEGUN = 1.0  # seconds of computing, which are more than an answer's process needs to start
MOST_SAID = 200_000  # characters of all that is shown: none needs more


@pytest.fixture(autouse=True)
def short_limits(monkeypatch):
    monkeypatch.setattr(kept_kernels, "TIME_LIMIT", LIMIT)


# ---- without the words: neither the rules for texts nor the guard stand in the way, only the operating system

WORDLESS = answer.START[2].replace("process.main()", "process.guard = lambda *_: str; process.main()")
PYTHON = [each for each in forged.FORGERIES if "line" not in each and "text" in each and "plant" not in each]


@pytest.fixture(params=("confined", "in a sandbox"))
def only_the_system(request, monkeypatch):
    """Landlock and seccomp alone, or bubblewrap alone."""
    if request.param == "confined" and not limits.confined():
        pytest.skip("Landlock or seccomp is missing here")
    if request.param == "in a sandbox" and (reason := sandbox.why_none()):
        pytest.skip(reason)
    confined, prefix = limits.confined, limits.prefix
    end_nursery()
    unlimited(monkeypatch)
    monkeypatch.setattr(limits, "prefix", prefix)
    prefix.cache_clear()
    if request.param == "confined":
        monkeypatch.setattr(limits, "confined", confined)
    yield
    end_nursery()
    prefix.cache_clear()


def end_nursery():
    if answer._nursery.cache_info().currsize:
        answer._nursery(os.getpid()).child.end()
        answer._nursery.cache_clear()


def verdict_here(name: str, kernel: str, text: str):
    """The verdict without a worker, in whose process nothing is patched."""
    return kept_kernels.check(name, kernel, text, None, None, (), LIMIT)


def unlimited(monkeypatch):
    """No system stands in the way, nor any words."""
    monkeypatch.setattr(limits, "confined", lambda: False)
    monkeypatch.setattr(limits, "prefix", lambda: ())
    monkeypatch.setattr(answer, "forbidden", lambda *_: None)
    monkeypatch.setattr(answer, "START", (*answer.START[:2], WORDLESS, *answer.START[3:]))


ATTACKS = ("kept kernels are deleted", "a way to the network", "limits of other processes", "memory of the judge")
ATTACKS += ("the course's kernel by its file", "signals to all around", "a signal by the owner of a descriptor")
ATTACKS += ("what happens to files is watched", "memory that processes share", "sockets without a file")
ATTACKS += ("precious files are read", "precious files are lost")


@pytest.mark.skipif(not answer.CAN_FORK, reason="these attacks are on Linux")
@pytest.mark.parametrize("name", many(ATTACKS))
def test_without_the_system_an_attack_succeeds(name, monkeypatch, tmp_path, my_kernels):
    """So the tests above would show what does."""
    forgery = forgery_of(name)
    end_nursery()
    unlimited(monkeypatch)
    forged.make_precious(tmp_path)
    try:
        assert verdict_here(forgery["operation"], forgery["kernel"], text_of(forgery, tmp_path))
    finally:
        end_nursery()
        forged.outside().reached()


def test_what_is_honest_is_judged_as_ever(only_the_system):
    assert verdict_here("sigmoid", "numpy", "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n")
    assert not verdict_here("sigmoid", "numpy", "def sigmoid(z):\n    return 1 / (2 + np.exp(-z))\n")


@pytest.mark.parametrize("forgery", many(PYTHON, *OF_EACH))
def test_the_system_alone_stops_a_forgery(forgery, only_the_system, tmp_path, my_kernels):
    folder = tmp_path / "left"
    folder.mkdir()
    forged.make_precious(folder)
    kept_kernels._write("progress.json", "{}")
    with forged.nothing_stays():
        verdict = verdict_here(forgery["operation"], forgery["kernel"], text_of(forgery, folder))
        assert not verdict, str(verdict)
        if then := forgery.get("then"):
            second = verdict_here(then["operation"], then["kernel"], filled(then["text"], folder))
            assert not second, f"after it: {second}"
        refuse_leftovers(forgery, folder)
        end_nursery()
    assert not forgery.get("hides") or forgery["hides"] not in str(verdict)
    assert os.listdir(my_kernels) == ["progress.json"]
    forged.assert_nothing_was_reached(folder)


TAKES = {
    "threads": "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "processes": "os.fork() or time.sleep(60)",
    "processes of processes": "os.fork() and time.sleep(60)",
    "memory": "kept.append(mmap.mmap(-1, 1 << 24)); kept[-1].write(bytes(1 << 24))",
}


@pytest.mark.parametrize("taken", many(TAKES))
def test_nobody_takes_all(taken, only_the_system, monkeypatch):
    """Threads, processes and memory are counted, also those of a text that answers at once each time."""
    monkeypatch.setattr(answer, "MOST_TASKS", 150)
    monkeypatch.setattr(answer, "MOST_MEMORY", 400 << 20)
    monkeypatch.setattr(answer, "LOOK", 0.0)
    for count in ("200", "1 + (z.size > 1)"):
        text = f"""
import mmap, os, threading, time
kept = []

def relu(z):
    for _ in range({count}):
        {TAKES[taken]}
    return np.maximum(z, 0)
"""
        with forged.nothing_stays():
            verdict = verdict_here("relu", "numpy", text)
            end_nursery()
        assert not verdict and verdict.kind in ("forbidden", "memory", "raised"), str(verdict)


def test_an_answer_that_reads_no_more_ends(monkeypatch):
    monkeypatch.setattr(processes, "ENDING", 1)
    text = """
import json, os, struct, time

SAID = {"refused": "", "several": None, "in_place": {}, "changed": [], "replaced": [], "printed": "", "stale": ""}

def relu(z):
    about = {"what": "array", "array": 0, "dtype": "<f4", "shape": list(z.shape), "writable": True}
    text = json.dumps(SAID | {"results": [about], "blocks": [z.nbytes]}).encode() + b"\\n" + np.maximum(z, 0).tobytes()
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, struct.pack("!i", len(text)) + text)
        except OSError:
            pass
    time.sleep(60)
"""
    relu = find("relu")
    first, second = (random_case(relu, {"n": size}) for size in (3, 1_000_000))
    monkeypatch.setattr(answer, "START", (*answer.START[:2], WORDLESS, *answer.START[3:]))
    end_nursery()
    with answer.TextProcess(relu, "numpy", text, LIMIT) as process:
        assert isinstance(process.run(first, {}), Returned)
        assert process.run(second, {}) == BROKEN_OFF
    end_nursery()


@pytest.mark.parametrize("stopped", many((False, True)))
def test_an_answer_ends_with_a_session_that_is_killed(stopped, only_the_system):
    """The answer has told the system not to end it with its parent."""
    text = f"""
import ctypes, os, signal, time

def relu(z):
    ctypes.CDLL(None).prctl(1, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while True:
        {f"time.process_time() < {2 * BEGUN} or time.sleep(1)" if stopped else "pass"}
"""
    wordless = answer.START[2]
    code = f"""
from nnclassroom.exercises import kept_kernels
from nnclassroom.judge import answer, limits
limits.confined = lambda: {limits.confined()}
answer.forbidden = lambda *_: None
answer.START = (*answer.START[:2], {wordless!r}, *answer.START[3:])
kept_kernels.check("relu", "numpy", {text!r}, None, None, (), 60.0)
"""
    with forged.nothing_stays(), subprocess.Popen([sys.executable, "-c", code]) as session:
        deadline = time.monotonic() + 60
        while not (begun := has_begun(session.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        session.kill()
    assert begun


def has_begun(session: int) -> bool:
    """Whether a process below the session's first child has computed for BEGUN seconds: the answer."""
    answers = psutil.Process(session).children(recursive=True)[1:]
    return any(sum(each.cpu_times()[:2]) > BEGUN for each in answers)


# ---- CUDA C without the words: the programs of the emulator


@pytest.fixture(params=("confined", "in a sandbox"))
def words_of_emulator(request, monkeypatch, emulator):
    """What comes before a program of the emulator: what confines it, or bubblewrap alone."""
    if device.gpu_available():
        pytest.skip("NVRTC sees another text there")
    emulate._child.cache_clear()
    words = ()
    if request.param == "in a sandbox":
        if reason := sandbox.why_none():
            pytest.skip(reason)
        monkeypatch.setattr(emulate, "confined", lambda: [])
        words = sandbox.prefix(readable=program.read_in_a_sandbox(), hidden=limits.HIDDEN)
    yield words
    emulate._child.cache_clear()


def emulated(forgery: dict, folder: Path, words: tuple = ()):
    """The emulator's verdict, without the rules for texts."""
    operation = find(forgery["operation"])
    kernel = kept_kernels.build(operation, forgery["kernel"], text_of(forgery, folder), launch_of(forgery))
    return check(operation, kernel, "emulator", sandbox=words)


OUTSIDE_IN_CUDA = [each for each in forged.FORGERIES if each["kind"] == "cuda: attack" or "leaves" in each]
OUTSIDE_IN_CUDA = [each for each in OUTSIDE_IN_CUDA if "line" in each and "plant" not in each]


@pytest.mark.parametrize("forgery", many(OUTSIDE_IN_CUDA, *OF_EACH))
def test_the_system_alone_stops_code_for_the_processor(forgery, words_of_emulator, tmp_path, my_kernels):
    forged.make_precious(tmp_path)
    with forged.nothing_stays(MOST_SECONDS):  # where NVRTC refuses a text, the other compiler may still read it
        verdict = emulated(forgery, tmp_path, words_of_emulator)
        assert not verdict, str(verdict)
        refuse_leftovers(forgery, tmp_path)
        emulate._child.cache_clear()
    forged.assert_nothing_was_reached(tmp_path)


@pytest.mark.parametrize("name", ("files are read by the library", "code before all other code"))
def test_without_the_system_code_for_the_processor_succeeds(name, monkeypatch, tmp_path, my_kernels, emulator):
    monkeypatch.setattr(emulate, "confined", lambda: [])
    emulate._child.cache_clear()
    forged.make_precious(tmp_path)
    forgery = forgery_of(name)
    verdict = emulated(forgery, tmp_path)
    assert verdict or (tmp_path / forgery.get("leaves", "nothing")).exists()
    emulate._child.cache_clear()


def forgery_of(name: str) -> dict:
    (forgery,) = (each for each in forged.FORGERIES if each["name"] == name)
    return forgery


def filled(value: str, folder: Path, text: str = "") -> str:
    """A text of an entry with its places filled in."""
    package = Path(nncourse.__file__).parent
    places = {"{tmp}": folder, "{package}": package, "{my_kernels}": kept_kernels.folder()}
    places["{port}"] = forged.outside().port
    for name, place in places.items():
        value = value.replace(name, str(place))
    return value.replace("{hash}", hashlib.sha256(text.encode()).hexdigest())


def text_of(forgery: dict, folder: Path) -> str:
    text = filled(forgery["text"], folder)
    return f"// %%cuda {forgery['line']}\n{text}" if "line" in forgery else text


def launch_of(forgery: dict) -> dict | None:
    if "line" not in forgery:
        return None
    return cuda_cell.launch_options(find(forgery["operation"]), cuda_cell.parsed(forgery["line"]))


def plant(forgery: dict, folder: Path, text: str, launch: dict | None) -> None:
    """Write a folder of kept kernels: the forged text, its record, and the entry's other files."""
    operation, name, kept = find(forgery["operation"]), forgery["kernel"], kept_kernels.folder()
    kept.mkdir(parents=True, exist_ok=True)
    (kept / kept_kernels.file_name(operation, name, launch)).write_text(text, "utf-8", errors="surrogatepass")
    entry = {"hash": "{hash}", "date": "2026-01-01", "machine": "mine", "seconds": 1e-9}
    entry |= {"launch": launch} if launch else {}
    record = forgery.get("record") or json.dumps({f"{operation.name}.{name}": entry})
    (kept / "progress.json").write_text(filled(record, folder, text), "utf-8")
    for thing in forgery.get("plant", ()):
        path = Path(filled(thing["path"], folder))
        forged.plant(kept / path, thing, lambda value: filled(value, folder))  # path may be absolute


def refuse_leftovers(forgery: dict, folder: Path) -> None:
    """The files or processes that the entry tries to leave behind must not exist."""
    if "leaves" not in forgery:
        return
    time.sleep(0.5)
    if forgery["leaves"] == "process":
        alive = folder / "alive"
        before = alive.stat().st_size if alive.exists() else 0
        time.sleep(0.7)
        assert (alive.stat().st_size if alive.exists() else 0) == before
    else:
        assert not (folder / forgery["leaves"]).exists()


@pytest.mark.parametrize("forgery", OF_EACH_KIND)
def test_a_forgery_is_not_believed(forgery, tmp_path, my_kernels, capsys, request):
    """Judged as in a notebook; then kept under a forged record and read by progress, train --mine and report."""
    if forgery.get("needs") == "gpu" and not device.gpu_available():
        pytest.skip("only a GPU shows that it is wrong")
    folder = tmp_path / "left"
    folder.mkdir()
    forged.make_precious(folder)
    operation, name = find(forgery["operation"]), forgery["kernel"]
    if "line" in forgery:
        request.getfixturevalue("cuda_somewhere")
    text, launch = text_of(forgery, folder), launch_of(forgery)
    said = []
    verdict = kept_kernels.judged(operation, name, text, launch)
    assert not verdict, str(verdict)
    said.append(str(verdict))
    if then := forgery.get("then"):
        given = then["kernel"], filled(then["text"], folder), launch_of(then)
        second = kept_kernels.judged(find(then["operation"]), *given)
        assert not second, f"after it: {second}"
    plant(forgery, folder, text, launch)
    try:
        said += progress_lines()
        _, notes = kept_kernels.fastest({operation.name: operation}, "gpu" if launch else "cpu")
        said += notes.values()
        record = kept_kernels.progress()
    except CourseError as error:  # the record is refused as a whole
        said.append(str(error))
    else:
        assert not any(line.startswith("  ✓") and f"{operation.name} ({name})" in line for line in said)
        assert not kept_kernels.fastest({operation.name: operation}, "gpu" if launch else "cpu")[0]
        if entry := record.get(f"{operation.name}.{name}"):
            outcome = report.examine(operation, name, entry).outcome
            assert outcome.state != "right"
            said.append(str(outcome))
    words = "\n".join([*said, *capsys.readouterr()])
    assert not forgery.get("hides") or forgery["hides"] not in words
    assert len(words) < MOST_SAID
    refuse_leftovers(forgery, folder)
    forged.assert_nothing_was_reached(folder)
