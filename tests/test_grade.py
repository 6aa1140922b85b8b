"""nncourse grade: marks for whatever a class hands in; and nncourse submit."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import nbformat
import pytest
from nbformat import v4
from refusals import command_refused

from cuda_on_cpu import emulate, faults
from nnclassroom.commands import main
from nnclassroom.exercises.hints import exercises
from nnclassroom.judge import sandbox, words
from nnclassroom.judge.kinds import KIND_WORDS
from nnclassroom.judge.verdict import Verdict
from nncourse.errors import CourseError
from nncourse.parallel.simulation import faults as exchanges
from nnmarking import class_folder, marks, queue
from nnmarking import grade as grade_module
from nnmarking.grade import grade
from tests.made_class import put, table, zipped
from tools import points

SIGMOID = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"
OTHER_NAMES = "def sigmoid(numbers):\n    # mine\n    return 1/(1 + np.exp(-numbers))\n"
WRONG = "def sigmoid(z):\n    return 1 / (1 + np.exp(z))\n"
DELTA = "def output_delta(G, S):\n    return G * S\n"
CUDA = """extern "C" __global__ void sigmoid(const float* z, float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = 1 / (1 + expf(-z[i]));
}
"""
LINE = "// %%cuda sigmoid naive --block 64\n"


def hand_in(folder: Path, **texts: str) -> Path:
    """A folder of kept kernels: sigmoid_numpy="…" is sigmoid.numpy.py."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        operation, _, kernel = name.rpartition("_")
        ending = "py" if kernel in ("loops", "numpy", "numba", "cupy") else "cu"
        (folder / f"{operation}.{kernel}.{ending}").write_text(text, "utf-8")
    return folder


def run(tmp_path: Path, *folders: Path, name: str = "marks.csv", **options) -> dict[tuple[str, str], dict]:
    """The rows of marks.csv by student and exercise."""
    given = {"sandboxed": False, "seed": 1, "say": lambda line: None} | options
    grade(list(folders), tmp_path / name, **given)
    return rows(tmp_path / name)


def rows(path: Path) -> dict[tuple[str, str], dict]:
    return {(row["student"], row["exercise"]): row for row in table(path)}


@pytest.fixture
def group(tmp_path) -> Path:
    hand_in(tmp_path / "group/ada", sigmoid_numpy=SIGMOID, output_delta_numpy=DELTA)
    hand_in(tmp_path / "group/bob/my_kernels", sigmoid_numpy=OTHER_NAMES)
    hand_in(tmp_path / "group/eve", sigmoid_numpy=WRONG)
    (tmp_path / "group/nobody").mkdir()
    return tmp_path / "group"


def test_a_row_for_each_student_and_exercise(group, tmp_path):
    found = run(tmp_path, group)
    assert {student for student, _ in found} == {"ada", "bob", "eve", "nobody"}
    assert len(found) == 4 * len(exercises())
    states = {key[0]: row["state"] for key, row in found.items() if key[1] == "sigmoid.numpy"}
    assert states == {"ada": "right", "bob": "right", "eve": "wrong", "nobody": "missing"}
    assert found["eve", "sigmoid.numpy"]["points"] == "0" and "got" in found["eve", "sigmoid.numpy"]["verdict"]
    assert {row["seed"] for row in found.values()} == {"1"}
    assert len({row["course"] for row in found.values()}) == 1
    assert found["ada", "sigmoid.numpy"]["alike"] == ""  # a one-liner


def test_totals_weigh_exercises_before_notebooks(group, tmp_path):
    weights = tmp_path / "weights.toml"
    weights.write_text('[notebook]\n"02_activations" = 2\n[exercise]\n"sigmoid.numpy" = 5\n')
    found = run(tmp_path, group, weights=weights)
    assert found["ada", "sigmoid.numpy"]["points"] == "5" and found["ada", "softmax.numpy"]["weight"] == "2"
    assert found["ada", "output_delta.numpy"]["points"] == "1"
    totals = {row["student"]: (row["points"], row["right"]) for row in table(tmp_path / "marks_by_student.csv")}
    assert totals == {"ada": ("6", "2"), "bob": ("5", "1"), "eve": ("0", "0"), "nobody": ("0", "0")}


def test_a_weight_names_a_notebook_by_its_number_too(tmp_path):
    weights = tmp_path / "weights.toml"
    weights.write_text('[notebook]\n"2" = 2\n"03" = 3\n"03_dense_layers" = 4\n"3b" = 5\n')
    found = {each.key: each.notebook for each in exercises()}
    read = marks.read_weights(weights, exercises(), {})
    wanted = {"02_activations": 2, "03_dense_layers": 4, "03b_dense_on_the_gpu": 5}
    assert read == {key: wanted.get(notebook, 1) for key, notebook in found.items()}


def test_the_points_of_the_docs_are_those_that_are_given():
    text = points.PAGE.read_text("utf-8")
    assert points.PLACE.search(text) and points.written(text) == text, "run python tools/points.py --write"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[notebook]\n"02_activation" = 2\n', "did you mean 02_activations?"),
        ('[exercise]\n"sigmoid.numpy" = -1\n', "at least 0"),
        ("[exercise]\n'sigmoid.numpy' = true\n", "at least 0"),
        ("[points]\n", "'points'"),
        ("exercise = 3\n", "table"),
        ("not toml", "TOML"),
    ],
)
def test_weights_with_a_mistake_are_refused(text, said, group, tmp_path):
    (tmp_path / "weights.toml").write_text(text)
    with pytest.raises(CourseError, match=said.replace("?", r"\?")):
        run(tmp_path, group, weights=tmp_path / "weights.toml")
    assert not (tmp_path / "marks.csv").exists()


@pytest.mark.full
def test_marks_are_changed_by_hand_with_a_reason(group, tmp_path):
    changed = tmp_path / "overrides.csv"
    changed.write_text("student,exercise,points,reason\neve,sigmoid.numpy,0.5,the sign only\n")
    found = run(tmp_path, group, overrides=changed)
    row = found["eve", "sigmoid.numpy"]
    assert (row["state"], row["points"], row["override"], row["reason"]) == ("wrong", "0.5", "0.5", "the sign only")
    assert "the sign only" in (tmp_path / "marks_feedback/eve.html").read_text("utf-8")
    assert found["ada", "sigmoid.numpy"]["override"] == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("eve,sigmoid.numpy,1,", "reason"),
        ("eve,sigmoid.numpy,1", "reason"),
        ("eve,sigmoid.nump,1,x", "did you mean sigmoid.numpy"),
        ("eve,sigmoid.numpy,nan,x", "points of at least 0"),
        ("eve,sigmoid.numpy,1,x\neve,sigmoid.numpy,2,y", "twice"),
    ],
)
def test_overrides_with_a_mistake_are_refused(line, said, group, tmp_path):
    (tmp_path / "overrides.csv").write_text(f"student,exercise,points,reason\n{line}\n")
    with pytest.raises(CourseError, match=said):
        run(tmp_path, group, overrides=tmp_path / "overrides.csv")


@pytest.mark.full
def test_the_seed_is_drawn_once_and_stays_with_the_journal(group, tmp_path):
    first = run(tmp_path, group, seed=None)
    again = run(tmp_path, group, seed=None)
    other = run(tmp_path, group, seed=None, name="other.csv")
    seeds = [{row["seed"] for row in found.values()} for found in (first, again, other)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_the_same_text_is_judged_once_and_what_was_judged_is_not_judged_again(tmp_path):
    for name in "abcdef":
        hand_in(tmp_path / "group" / name, sigmoid_numpy=SIGMOID)
    run(tmp_path, tmp_path / "group")
    journal = tmp_path / "marks_journal.jsonl"
    assert len(journal.read_text().splitlines()) == 1
    hand_in(tmp_path / "group/g", sigmoid_numpy=WRONG)
    with journal.open("a") as file:
        file.write('{"key": "half')  # a run that was killed
    said = []
    found = run(tmp_path, tmp_path / "group", say=said.append)
    assert any("judged before, according to the journal: 1 of" in line for line in said)
    assert [found[name, "sigmoid.numpy"]["state"] for name in "ag"] == ["right", "wrong"]
    assert len(queue.Journal(journal).verdicts) == 2


def test_a_verdict_under_other_terms_is_not_reused():
    task, terms = queue.Task("sigmoid", "numpy", SIGMOID, None), queue.Terms(1, "0.2", "cpu")
    others = [queue.Terms(2, "0.2", "cpu"), queue.Terms(1, "0.3", "cpu"), queue.Terms(1, "0.2", "gpu")]
    others += [replace(terms, definitions="x"), replace(terms, sandbox=("bwrap",))]
    keys = [task.key(each) for each in (terms, *others)] + [replace(task, launch={"block": [1]}).key(terms)]
    assert len(set(keys)) == len(keys) == 7


@pytest.mark.full
def test_ctrl_c_leaves_a_journal_from_which_the_next_run_goes_on(tmp_path):
    for number in range(30):
        hand_in(tmp_path / f"group/s{number:02}", sigmoid_numpy=f"{SIGMOID}\n# {number}\n")
    command = [sys.executable, "-m", "nnclassroom", "grade", "group", "--no-sandbox", "--seed", "1", "--out"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    options = {"cwd": tmp_path, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, "marks.csv"], start_new_session=True, **options) as process:
        journal = tmp_path / "marks_journal.jsonl"
        deadline = time.monotonic() + 120
        while not (journal.exists() and journal.read_text().count("\n") >= 3) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of them
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in error and "Traceback" not in error
    before = journal.read_text().splitlines()
    assert 3 <= len(before) < 30 and not (tmp_path / "marks.csv").exists()
    for name in ("marks.csv", "whole.csv"):
        subprocess.run([*command, name], check=True, **options)
    assert journal.read_text().splitlines()[: len(before)] == before and len(journal.read_text().splitlines()) == 30
    assert (tmp_path / "marks.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_what_breaks_a_judge_or_never_ends_costs_nobody_else_a_mark(tmp_path):
    hand_in(tmp_path / "group/a", sigmoid_numpy="import os\nos._exit(3)\n", output_delta_numpy=DELTA)
    hand_in(tmp_path / "group/b", sigmoid_numpy="while True: pass\n", output_delta_numpy=DELTA + "# b\n")
    hand_in(tmp_path / "group/c", sigmoid_numpy="def sigmoid(z):\n    import ctypes; ctypes.string_at(0)\n")
    hand_in(tmp_path / "group/d", sigmoid_numpy=SIGMOID, output_delta_numpy=DELTA + "# d\n")
    said = []
    found = run(tmp_path, tmp_path / "group", limits=(5.0, 60.0), say=said.append)
    assert [found[name, "sigmoid.numpy"]["state"] for name in "abcd"] == ["wrong", "wrong", "wrong", "right"]
    assert [found[name, "output_delta.numpy"]["state"] for name in "abd"] == ["right"] * 3
    assert found["b", "sigmoid.numpy"]["kind"] == "time limit"
    assert any("judged again, alone" in line for line in said)


def test_a_worker_that_is_killed_is_a_crash_of_that_text(monkeypatch):
    """For example for lack of memory. The next text gets a new worker."""
    tasks = {str(n): queue.Task("sigmoid", "numpy", f"{SIGMOID}#{n}", None) for n in range(3)}
    monkeypatch.setattr(queue.kept_kernels, "check", _dies_at_the_second)
    kinds = {key: judged.kind for key, judged in queue._run(tasks, queue.Terms(1, "", "cpu"), 2)}
    assert kinds == {"0": "open", "1": "crash", "2": "open"}


def _dies_at_the_second(operation, kernel, text, *_):
    if text.endswith("#1"):
        os.kill(os.getpid(), signal.SIGKILL)
    return Verdict(operation, kernel, "open")


def test_a_record_is_a_claim_and_is_not_believed(tmp_path):
    folder = hand_in(tmp_path / "group/eve", sigmoid_numpy=WRONG, sigmoid_naive=LINE + CUDA.replace("i < n", "true"))
    entry = {"hash": "0" * 64, "date": "2026-01-01", "seconds": 1e-9, "launch": {"block": [1]}, "kind": "right"}
    (folder / "progress.json").write_text(json.dumps({"sigmoid.numpy": entry, "sigmoid.naive": entry}))
    states = {key[1]: row["state"] for key, row in run(tmp_path, tmp_path / "group").items()}
    if emulate.why_not() is None:
        assert states["sigmoid.naive"] == "wrong"
    assert states["sigmoid.numpy"] == "wrong" and "right" not in states.values()


def test_a_launch_is_read_from_the_text(emulator, tmp_path):
    grid = CUDA.replace("if (i < n)", "for (; i < n; i += gridDim.x * blockDim.x)")
    hand_in(tmp_path / "group/a", sigmoid_naive="// %%cuda sigmoid naive --block 64 --grid 1\n" + CUDA)
    hand_in(tmp_path / "group/b", sigmoid_naive="// %%cuda sigmoid naive --block 64 --grid 1\n" + grid)
    hand_in(tmp_path / "group/c", sigmoid_naive=CUDA)
    hand_in(tmp_path / "group/d", sigmoid_naive="// %%cuda relu naive\n" + CUDA)
    hand_in(tmp_path / "group/e", sigmoid_naive="// %%cuda sigmoid naive --block none\n" + CUDA)
    hand_in(tmp_path / "group/f", sigmoid_naive=LINE + CUDA.partition("{")[0] + "{\n    // your code here\n}\n")
    found = {key[0]: row for key, row in run(tmp_path, tmp_path / "group").items() if key[1] == "sigmoid.naive"}
    assert [found[name]["state"] for name in "abcdef"] == ["wrong", "right", "right", "wrong", "wrong", "open"]
    assert "another exercise" in found["d"]["verdict"] and found["e"]["kind"] == "launch"


# ---- what is read, and what is not


def test_a_bomb_is_not_unpacked(tmp_path):
    bomb = zipped({"sigmoid.numpy.py": " " * (64 << 20), "output_delta.numpy.py": DELTA})
    found = class_folder.find([put(tmp_path, {"eve.zip": bomb}) / "eve.zip"])[0]
    assert "256 KB" in found.problem_of("sigmoid.numpy.py") and set(found.texts) == {"output_delta.numpy.py"}


def test_links_pipes_long_files_and_what_is_no_text_are_not_read(tmp_path):
    folder = hand_in(tmp_path / "group/eve", output_delta_numpy=DELTA)
    secret = hand_in(tmp_path / "group/ada", sigmoid_numpy=SIGMOID) / "sigmoid.numpy.py"
    (folder / "sigmoid.numpy.py").symlink_to(secret)
    os.mkfifo(folder / "softmax.numpy.py")
    (folder / "mse.numpy.py").write_bytes(b"\xff\xfe\x00")
    (folder / "step.numpy.py").write_text("#" * (257 << 10))
    (folder / "neuron.numpy.py").mkdir()
    (tmp_path / "group/mallory").symlink_to(tmp_path / "group/ada")
    found = {each.student: each for each in class_folder.find([tmp_path / "group"])}
    assert set(found["eve"].texts) == {"output_delta.numpy.py"}
    for name in ("sigmoid.numpy.py", "softmax.numpy.py", "mse.numpy.py", "step.numpy.py", "neuron.numpy.py"):
        assert found["eve"].problem_of(name), name
    assert found["mallory"].reason and not found["mallory"].texts
    marks = run(tmp_path, tmp_path / "group")
    assert marks["eve", "sigmoid.numpy"]["kind"] == "unreadable" and marks["eve", "sigmoid.numpy"]["points"] == "0"


def test_points_by_hand_for_somebody_of_whom_nothing_was_read_are_said(group, tmp_path):
    (tmp_path / "overrides.csv").write_text(
        "student,exercise,points,reason\nnobody,sigmoid.numpy,1,on paper\neva,sigmoid.numpy,1,x\n"
    )
    said = []
    found = run(tmp_path, group, overrides=tmp_path / "overrides.csv", say=said.append)
    assert found["nobody", "sigmoid.numpy"]["points"] == "1" and found["eve", "sigmoid.numpy"]["points"] == "0"
    assert any("nothing from nobody could be read" in line for line in said)
    assert any("'eva'" in line and "did you mean eve" in line for line in said)
    assert said[-1] == "hand-ins: 4 from 4 students; 3 read, 1 not read, 0 replaced by newer ones"
    assert "not read: nobody: nothing in it" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nowhere", "nowhere"),
        ("group --out no/folder/marks.csv", "in a folder that exists"),
        ("group --jobs 0", "--jobs"),
        ("group --exercises none.toml", "none.toml"),
        ("group --seed -1", "whole number"),
        ("empty", "found none"),
    ],
)
def test_a_mistake_in_the_command_is_said_in_one_line(line, said, group, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert said in command_refused(capsys, ["grade", "--out", "marks.csv", "--no-sandbox", *line.split()])


def test_without_a_sandbox_nothing_is_marked_unless_asked_to(group, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sandbox, "why_none", lambda: "bubblewrap is not installed")
    command = ["grade", str(group), "--out", str(tmp_path / "marks.csv"), "--seed", "1"]
    assert "--no-sandbox" in command_refused(capsys, command)
    assert not (tmp_path / "marks.csv").exists()
    assert main([*command, "--no-sandbox"]) == 0
    assert "your permissions" in capsys.readouterr().out


def test_a_right_answer_is_right_in_the_sandbox_too(group, tmp_path):
    if reason := sandbox.why_none():
        pytest.skip(reason)
    if emulate.why_not() is None:
        hand_in(group / "ada", sigmoid_naive=LINE + CUDA)
    inside, outside = run(tmp_path, group, sandboxed=True), run(tmp_path, group, name="outside.csv")
    assert inside == outside


# ---- pages, attempts, same texts


def test_feedback_names_nobody_else_and_nothing_of_a_student_becomes_html_or_a_formula(tmp_path):
    evil = 'def sigmoid(z):\n    raise ValueError("<script>alert(1)</script>")\n'
    hand_in(tmp_path / "group/eve", sigmoid_numpy=evil)
    hand_in(tmp_path / "group/Mallory Quux", sigmoid_numpy=evil)
    for name in ("<b>=HYPERLINK", "=1+1"):
        hand_in(tmp_path / "group" / name, sigmoid_numpy=SIGMOID)
    assert ("'=1+1", "sigmoid.numpy") in run(tmp_path, tmp_path / "group")
    pages = {path.name: path.read_text("utf-8") for path in (tmp_path / "marks_feedback").iterdir()}
    assert len(pages) == 4
    assert "Mallory" not in pages["eve.html"] and "HYPERLINK" not in pages["eve.html"]
    overview = (tmp_path / "marks_overview.html").read_text("utf-8")
    for text in (*pages.values(), overview):
        assert "<script" not in text and "<b>" not in text
    assert "Mallory Quux" in overview and "&lt;script&gt;" in pages["eve.html"]


def test_every_kind_of_verdict_has_words():
    assert words.WORDS.keys() | set(exchanges.KINDS) | set(grade_module.BY_HAND) <= KIND_WORDS.keys()
    assert all(any(each.startswith(kind) for kind in KIND_WORDS) for each in faults.TEMPLATES)


def test_attempts_show_who_is_stuck_where(tmp_path):
    folder = hand_in(tmp_path / "group/eve", output_delta_numpy=DELTA)
    lines = [{"key": "sigmoid.numpy", "date": "2026-01-01", "kind": "wrong value"}] * 6
    lines += [{"key": "output_delta.numpy", "kind": "shape"}, {"key": "output_delta.numpy", "kind": "right"}]
    record = "\n".join(map(json.dumps, lines))
    (folder / "attempts.jsonl").write_text(record + '\n{"broken\n[1]\n{"key": 3, "kind": "x"}\n')
    hand_in(tmp_path / "group/ada", sigmoid_numpy=SIGMOID)
    found = run(tmp_path, tmp_path / "group")
    assert found["eve", "sigmoid.numpy"]["attempts"] == "6" and found["eve", "sigmoid.numpy"]["state"] == "missing"
    assert found["eve", "output_delta.numpy"]["attempts"] == "2" and found["ada", "sigmoid.numpy"]["attempts"] == ""
    overview = (tmp_path / "marks_overview.html").read_text("utf-8")
    assert "eve: sigmoid.numpy, 6 attempts" in overview and "wrong value 6×" in overview
    asked = dict.fromkeys(each.notebook for each in exercises())
    assert re.findall(r"<th scope=rowgroup>(\w+)", overview) == list(asked)
    assert overview.count("<th scope=row>") == len(exercises())


def test_the_last_line_names_the_page_to_open_and_notebooks_are_one_line(tmp_path, capsys):
    cell = v4.new_code_cell(f'@exercise("sigmoid", kernel="numpy")\n{SIGMOID}')
    for name in ("ada", "bob", "eve"):
        put(tmp_path / "group", {f"{name}.ipynb": nbformat.writes(v4.new_notebook(cells=[cell]))})
    out = tmp_path / "week3.csv"
    words = ["--only", "sigmoid.numpy", "--no-sandbox", "--seed", "1"]
    assert main(["grade", str(tmp_path / "group"), "--out", str(out), *words]) == 0
    said, page = capsys.readouterr().out, (tmp_path / "week3_overview.html").read_text("utf-8")
    assert said.splitlines()[-1].endswith(f"open {tmp_path / 'week3_overview.html'} first")
    for text in (said, page):
        assert text.count("read from notebooks") == 1 and "3 students: answers were read" in text


# ---- one file to hand in


def test_submit_packs_what_grade_reads(my_kernels, tmp_path, capsys):
    hand_in(my_kernels, sigmoid_numpy=SIGMOID)
    (my_kernels / "report.md").write_text("# Mine")
    (my_kernels / "attempts.jsonl").write_text('{"key": "sigmoid.numpy", "kind": "right"}\n')
    (my_kernels / "private.txt").write_text("not this")
    assert main(["submit", "--out", str(tmp_path / "ada.zip"), "--name", "Ada"]) == 0
    assert "1 kernel to" in capsys.readouterr().out
    with zipfile.ZipFile(tmp_path / "ada.zip") as archive:
        names = archive.namelist()
        assert json.loads(archive.read("submission.json"))["name"] == "Ada"
    kept = ("attempts.jsonl", "report.md", "sigmoid.numpy.py")
    assert names == [*(f"my_kernels/{name}" for name in kept), "submission.json"]
    row = run(tmp_path, tmp_path / "ada.zip")["ada", "sigmoid.numpy"]
    assert (row["state"], row["attempts"]) == ("right", "1")


def test_there_must_be_something_to_submit(my_kernels, tmp_path, capsys):
    assert "solve an exercise" in command_refused(capsys, ["submit", "--out", str(tmp_path / "ada.zip")])
    hand_in(my_kernels, sigmoid_numpy=SIGMOID)
    assert main(["submit", "--out", str(tmp_path / "ada.tar")]) == 2
    assert not list(tmp_path.glob("ada.*"))
