"""The process of a student's text: what comes back, what is refused, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cuda_on_cpu import processes
from nnclassroom.exercises.catalogue import find
from nnclassroom.judge import answer, check
from nnclassroom.judge.verdict import Verdict
from nnclassroom.judge.words import WORDS, words_of

SIGMOID = "def sigmoid(z):\n    return 0.5 * np.tanh(0.5 * z) + 0.5\n"


def judged(text: str, operation: str = "sigmoid", kernel: str = "numpy", seconds: float = 3.0, **options) -> Verdict:
    return answer.check_text(find(operation), kernel, text, seconds, **options)


def test_a_right_text_is_right_in_a_fresh_python_too():
    assert judged(SIGMOID)
    process = answer._Started(())
    assert process.end(0) != 0
    operation = find("sigmoid")
    with answer.TextProcess(operation, "numpy", SIGMOID, 3.0, sandbox=("env",)) as process:
        assert check.judge(operation, "numpy", process.run, "cpu")


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ("return z.tolist()", "type", "got a list"),
        ("return (x for x in z)", "type", "got a generator"),
        ("return {'a': z}", "type", "got a dict"),
        ("return z, z", "type", "got a tuple of 2"),
        ("return np.matrix(z)", "type", "matrix"),
        ("return np.ma.array(z)", "type", "MaskedArray"),
        ("return np.broadcast_to(np.float32(1), z.shape)", "type", "cannot be written"),
        ("return np.float64(1) * z", "dtype", "astype(np.float32)"),
        ("return z", "wrong value", "the argument z itself is returned"),
        ("return z[:]", "wrong value", "the argument z itself is returned"),
        ("pass", "nothing", "returns nothing"),
        ("z *= 2\n    return 1 / (1 + np.exp(-z / 2))", "changes an argument", "z"),
        ("return np.empty_like(z)", "wrong value", "never set"),
        ("return np.exp(z) / (1 + np.exp(z))", "wrong value", "inf / inf"),
        ("raise SystemExit(3)", "raised", "SystemExit"),
        ("raise ValueError('raised NotImplementedError')", "raised", "ValueError"),
        ("raise NotImplementedError", "open", ""),
        ("'The sigmoid.'\n    ...\n    raise NotImplementedError('yours')", "open", ""),
        ("a = 1 / (1 + np.exp(-z))\n    raise NotImplementedError", "unfinished", "delete that line"),
        ("raise NotImplementedError\n    return 1 / (1 + np.exp(-z))", "unfinished", "delete that line"),
        ("if z.ndim:\n        return todo(z)\n    raise NotImplementedError", "name", "todo"),
        ("return expit(z)", "name", "only np is there already: define or import everything else inside the function"),
        ("return math.exp(-z)", "name", "inside the function; math.exp takes one number, np.exp an array"),
        ("return np.maximum(z, 0, 0)", "raised", "nest two calls"),
        ("y = 0 * z\n    y[z.size] = 1  # past it\n    return y", "raised", "; in the line: y[z.size] = 1  # past it"),
        ("return np.maximum(z, 0, z * 2)", "wrong value", "nest two calls"),
        ("import nncourse\n    return z", "forbidden", "own kernels are no answer"),
        ("return [print('x' * 99) for _ in range(10**4)] and 0 * z", "wrong value", ""),
    ],
)
def test_kinds(body, kind, said):
    verdict = judged(f"def sigmoid(z):\n    {body}\n")
    assert verdict.kind == kind, str(verdict)
    assert said in verdict.line and "\n" not in verdict.line


def test_what_remembers_is_told_so():
    text = "seen = {}\ndef sigmoid(z):\n    return seen.setdefault(z.shape, 0.5 * np.tanh(0.5 * z) + 0.5).copy()\n"
    verdict = judged(text)
    assert verdict.kind == "remembers" and "wrong on a later one" in verdict.line


@pytest.mark.parametrize(
    ("body", "processes"), [("return 2 * z", 1), ("return 1 / (1 + np.exp(-z)) + (z.size > 1)", 2)]
)
def test_an_answer_that_is_wrong_at_the_first_call_remembers_nothing(body, processes, monkeypatch):
    """Only an answer that is wrong at a later call is tried again in a fresh process, where Numba compiles again."""
    started = []

    class Counted(answer.TextProcess):
        def __enter__(self):
            started.append(self)
            return super().__enter__()

    monkeypatch.setattr(answer, "TextProcess", Counted)
    assert judged(f"def sigmoid(z):\n    {body}\n").kind == "wrong value"
    assert len(started) == processes


def test_an_answer_that_counts_calls_is_found():
    text = SIGMOID.replace("    return", "    calls.append(1)\n    return (len(calls) < 95) *")
    assert not judged("calls = []\n" + text)


def test_sleeping_is_no_endless_loop():
    slept = judged("import time\ndef sigmoid(z):\n    time.sleep(60)\n", seconds=0.5)
    assert slept.kind == "time limit" and "sleep" in slept.line and "endless" not in slept.line
    looped = judged("def sigmoid(z):\n    while True:\n        pass\n", seconds=0.5)
    assert looped.kind == "time limit" and "endless" in looped.line


def test_a_limit_counts_what_is_computed(monkeypatch):
    """Two busy processes a core compete with the text: it gets its seconds all the same, and is not said to sleep."""
    if Path("/proc/self/schedstat").exists():
        monkeypatch.setattr(answer, "ASLEEP", 0.6)  # more than the third of a core that it gets
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        verdict = judged("def sigmoid(z):\n    while True:\n        pass\n", seconds=0.5)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert verdict.kind == "time limit" and "within 0.5 s" in verdict.line and "sleep" not in verdict.line


def test_a_message_that_is_begun_must_go_on(monkeypatch):
    monkeypatch.setattr(processes, "PAUSE", 1)
    text = """
import os, stat, time
def sigmoid(z):
    for descriptor in range(3, 100):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, bytes([0, 0, 1, 0, 123]))
        except OSError:
            pass
    time.sleep(60)
"""
    started = time.monotonic()
    with answer.TextProcess(find("sigmoid"), "numpy", text, 20.0) as process:
        assert "broke off" in str(check.judge(find("sigmoid"), "numpy", process.run, "cpu"))
    assert time.monotonic() - started < 20


def test_the_nursery_may_be_ended():
    judged(SIGMOID)
    nursery = answer._nursery(os.getpid())
    nursery.child.process.send_signal(signal.SIGKILL)
    nursery.child.process.wait()
    assert judged(SIGMOID)


def test_nothing_goes_on_after_the_verdict():
    started = time.monotonic()
    judged("import time\ndef sigmoid(z):\n    while True:\n        time.sleep(0.01)\n", seconds=0.3)
    below = psutil.Process(answer._nursery(os.getpid()).child.process.pid).children()
    assert below == [], "no child of the nursery is left"
    assert time.monotonic() - started < 30


def test_marks_are_given_by_a_seed():
    text = "def sigmoid(z):\n    return np.tanh(z)\n"
    assert judged(text, seed=4).line == judged(text, seed=4).line
    assert len({judged(text, seed=None).line for _ in range(3)}) == 3


def test_every_kind_has_words_of_one_line():
    for kind in WORDS:
        facts = {"name": "W", "shares": "z", "type": "list", "text": "x", "said": "so", "seconds": 2, "python": True}
        facts |= {"wrong": 1, "size": 2, "place": "W[0]", "got": "1", "expected": "2", "wanted": "W", "dtype": "f"}
        words = words_of(kind, facts)
        assert words and "{" not in words and "\n" not in words
