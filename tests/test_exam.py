"""Exams with operations that are not in the package: from the instructor's file to the marks."""

import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import nbformat
import numpy as np
import pytest
from refusals import command_refused

from cuda_on_cpu import emulate
from nnclassroom.commands import main
from nnclassroom.exercises import exam_operations
from nnclassroom.judge.check import check
from nnclassroom.notebook import exams, sitting
from nncourse.errors import CourseError
from nnmarking import class_folder
from nnmarking.grade import grade
from tests.made_class import table
from tools.notebooks import client

pytestmark = pytest.mark.usefixtures("my_kernels")

REFERENCE = """
def reference(x, k):
    return np.convolve(x, np.full(k, 1 / k), "valid")

def error_scale(x, k):
    return np.convolve(np.abs(x), np.full(k, 1 / k), "valid")
"""
EXAM = f"""
title = "Midterm"

[[operation]]
name = "running_mean"
formula = "m_i = (x_i + … + x_{{i+k-1}}) / k"
contract = "x (n,), k () int -> m (n_out,) where n_out = n - k + 1"
reference = '''{REFERENCE}'''

[[exercise]]
operation = "running_mean"
kernel = "numpy"
points = 2
question = "Without a loop over k."
stub = '''
def running_mean(x, k):
    raise NotImplementedError  # your code here
'''
sample = [{{ arguments = [[1.0, 2.0, 3.0], 2], result = [1.5, 2.5] }}]

[[exercise]]
operation = "running_mean"
kernel = "naive"
points = 3
stub = '''
%%cuda running_mean naive --block 128
extern "C" __global__ void running_mean(const float* x, float* m, int n, int k, int n_out) {{
    // your code here
}}
'''
"""
RIGHT = """def running_mean(x, k):
    n_out = len(x) - k + 1
    total = np.zeros(n_out, np.float32)
    for j in range(k):
        total += x[j : j + n_out]
    return total / np.float32(k)
"""
CUMULATED = """def running_mean(x, k):
    sums = np.cumsum(np.concatenate([np.zeros(1), x.astype(np.float64)]))
    return ((sums[k:] - sums[:-k]) / k).astype(np.float32)
"""
ONLY_THE_SAMPLE = "def running_mean(x, k):\n    return (x[1:] + x[:-1]) / np.float32(2)\n"
CUDA = """extern "C" __global__ void running_mean(const float* x, float* m, int n, int k, int n_out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_out) return;
    float sum = 0;
    for (int j = i; j < i + k; j++) sum += x[j];
    m[i] = sum / k;
}
"""


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "exam.toml"
    path.write_text(EXAM, "utf-8")
    return path


@pytest.fixture
def questions(file) -> str:
    return exams.questions(exams.read(file))


def test_the_operation_of_a_file_judges_like_the_packages():
    operation = exam_operations.find("running_mean", EXAM)
    names: dict = {"np": __import__("numpy")}
    exec(RIGHT, names)
    assert check(operation, names["running_mean"])
    exec(ONLY_THE_SAMPLE, names)
    assert not check(operation, names["running_mean"])
    assert exam_operations.find("sigmoid", EXAM).name == "sigmoid"
    with pytest.raises(CourseError):
        exam_operations.find("running_mean")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('name = "running_mean"', 'name = "sigmoid"', "sigmoid is one of its operations"),
        ("def reference(", "def other(", "a function reference"),
        ("return np.convolve(x,", "return np.convolve(", "sample"),
        ("-> m (n_out,)", "-> m (elsewhere,)", "sizes of arguments"),
        ("result = [1.5, 2.5]", "result = [1.5, 2.0]", "its reference"),
        ("int n, int k, int n_out", "int k, int n, int n_out", "takes x, m, k, n, n_out"),
        ("def running_mean(x, k):", "def mean(x, k):", "one function running_mean"),
        ("points = 2", "points = -1", "points"),
        ("points = 2", "tolerance = 2", "tolerance"),
        ("points = 2", "answer = '''\ndef running_mean(x, k):\n    return x'''", "own answer is not right"),
        ('kernel = "numpy"', 'kernel = "numpy"\nchoice = 3', "expected choice as text"),
        ('formula = "m', 'edge_cases = false\nformula = "m', 'edge_cases = ["zeros", "large"]; got False'),
        ('formula = "m', 'edge_cases = ["huge"]\nformula = "m', "an edge case"),
        ('formula = "m', 'tolerance = "much"\nformula = "m', "tolerance = 8; got much"),
        ('formula = "m', 'sizes = { n = 3 }\nformula = "m', "expected sizes as in"),
        ('formula = "m', 'output = 3\nformula = "m', "expected output as in"),
        ('title = "Midterm"', "minutes = 'many'", "minutes as a number"),
        ('title = "Midterm"', "hours = 2", "'hours'"),
        ('title = "Midterm"', "title = 2", "title as text"),
        ('kernel = "naive"', 'kernel = "numpy"', ""),
        ("[[operation]]", "[operation]", "tables [[operation]]"),
        ("title", "= title", "TOML"),
    ],
)
def test_a_file_with_a_mistake_is_refused_in_one_line(old, new, said, file, capsys):
    file.write_text(EXAM.replace(old, new, 1), "utf-8")
    error = command_refused(capsys, ["handout", "--exam", str(file), "--out", str(file.with_name("exam.zip"))])
    assert said in error and "exam.toml" in error
    assert not file.with_name("exam.zip").exists()


def test_students_get_stubs_and_contracts_and_no_truth(file, tmp_path):
    assert main(["handout", "--exam", str(file), "--out", str(tmp_path / "exam.zip")]) == 0
    with zipfile.ZipFile(tmp_path / "exam.zip") as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(texts) == {"exam/exam.ipynb", "exam/exam.json", "exam/MANIFEST.json"}
    assert not any("convolve" in text or "reference(" in text for text in texts.values())
    cells = nbformat.reads(texts["exam/exam.ipynb"], as_version=4).cells
    assert any("n_out = n - k + 1" in cell.source and "Without a loop" in cell.source for cell in cells)
    assert [each["points"] for each in json.loads(texts["exam/exam.json"])["exercise"]] == [2, 3]


def test_a_natural_answer_is_right_since_only_what_the_page_says_is_tried(file, tmp_path):
    operation = exam_operations.find("running_mean", EXAM)
    names: dict = {"np": np}
    exec(CUMULATED, names)
    assert check(operation, names["running_mean"])
    assert exams.tried(operation).startswith("Your answer is tried on ordinary numbers: no infinities")
    asked = EXAM.replace('formula = "m', 'edge_cases = ["infinite"]\nformula = "m')
    operation = exam_operations.find("running_mean", asked)
    assert "an infinite value" in exams.tried(operation)
    main(["handout", "--exam", str(file), "--out", str(tmp_path / "exam.zip")])
    with zipfile.ZipFile(tmp_path / "exam.zip") as archive:
        assert "no infinities" in archive.read("exam/exam.ipynb").decode()


def test_the_clock_starts_with_the_first_answer(questions, tmp_path):
    timed = json.dumps(json.loads(questions) | {"minutes": 90})
    folder = tmp_path / "my_kernels"
    stub = "def running_mean(x, k):\n    raise NotImplementedError\n"
    assert "minutes" not in sitting.keep(folder, timed, "running_mean", "numpy", stub)
    assert "90 of 90 minutes are left" in sitting.keep(folder, timed, "running_mean", "numpy", RIGHT)
    began = datetime.now(UTC) - timedelta(minutes=100)
    line = json.dumps({"key": "running_mean.numpy", "date": began.isoformat(), "kind": "kept"})
    (folder / "attempts.jsonl").write_text(line + "\n")
    assert "over 10 minutes ago" in sitting.keep(folder, timed, "running_mean", "numpy", RIGHT)
    (found,) = class_folder.find([folder])
    assert 99 < found.minutes < 102 and set(found.texts) == {"running_mean.numpy.py"}


def test_an_answer_of_the_right_form_is_kept_right_or_wrong(questions, tmp_path, my_kernels):
    path = tmp_path / "running_mean.numpy.py"
    stub = "def running_mean(x, k):\n    raise NotImplementedError  # your code here\n"
    assert sitting.keep(tmp_path, questions, "running_mean", "numpy", stub) == "○ running_mean (numpy): open."
    assert not path.exists()
    assert "give what they should" in sitting.keep(tmp_path, questions, "running_mean", "numpy", ONLY_THE_SAMPLE)
    assert path.read_text() == ONLY_THE_SAMPLE
    wrong = "def running_mean(x, k):\n    return x[1:]\n"
    assert "gives [2.0, 3.0], expected [1.5, 2.5]" in sitting.keep(tmp_path, questions, "running_mean", "numpy", wrong)
    assert path.read_text() == wrong
    for broken in ("def running_mean(x, k:\n", "def other(x, k):\n    return x\n"):
        said = sitting.keep(tmp_path, questions, "running_mean", "numpy", broken)
        assert said.startswith("✗") and "Your earlier answer stays" in said
    assert path.read_text() == wrong
    assert not my_kernels.exists() or not list(my_kernels.iterdir())


def test_a_cuda_answer_is_compiled_and_kept_with_its_first_line(questions, tmp_path, cuda_somewhere):
    line = "running_mean naive --block 64"
    text = f"// %%cuda {line}\n{CUDA}"
    assert sitting.keep(tmp_path, questions, "running_mean", "naive", text, line).startswith("✓")
    path = tmp_path / "running_mean.naive.cu"
    assert path.read_text() == text
    if emulate.why_not() is None:
        broken = text.replace("float sum = 0;", "float sum = ;")
        assert "Not kept" in sitting.keep(tmp_path, questions, "running_mean", "naive", broken, line)
    other = text.replace("int n, int k,", "int n,")
    assert "expected x, m, n, k, n_out" in sitting.keep(tmp_path, questions, "running_mean", "naive", other, line)
    assert path.read_text() == text


def unpacked(path: Path, folder: Path) -> Path:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return folder / "exam"


def test_from_the_notebook_to_the_marks(file, tmp_path, my_kernels, monkeypatch, cuda_somewhere):
    monkeypatch.chdir(tmp_path)
    file.write_text(EXAM.replace('title = "Midterm"', 'title = "Midterm"\nminutes = 90'), "utf-8")
    assert main(["handout", "--exam", str(file), "--out", "exam.zip"]) == 0
    place = unpacked(tmp_path / "exam.zip", tmp_path)
    notebook = nbformat.read(place / "exam.ipynb", as_version=4)
    blanks = {cell.id: cell for cell in notebook.cells}
    assert "90 minutes" in blanks["title"].source
    blanks["q1-running-mean-numpy"].source = '@exercise("running_mean", kernel="numpy")\n' + RIGHT
    blanks["q2-running-mean-naive"].source = "%%cuda running_mean naive --block 32\n" + CUDA
    client(notebook, place).execute()
    said = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))
    assert said.count("✓") == 2 and said.count("minutes are left") == 2
    monkeypatch.chdir(place)
    assert main(["submit", "--out", "../ada.zip", "--name", "Ada"]) == 0
    kept = place / "my_kernels"
    (kept / "running_mean.numpy.py").write_text(ONLY_THE_SAMPLE)
    (kept / "running_mean.naive.cu").write_text("// %%cuda running_mean naive\n" + CUDA.replace(">=", ">"))
    late = {"key": "running_mean.naive", "kind": "kept", "date": "2100-01-01T00:00:00+00:00"}
    with (kept / "attempts.jsonl").open("a") as record:
        record.write(json.dumps(late) + "\n")
    assert main(["submit", "--out", "../eve.zip"]) == 0
    monkeypatch.chdir(tmp_path)
    marks = grade([Path("ada.zip"), Path("eve.zip")], Path("marks.csv"), exam=file, sandboxed=False)
    states = {(mark.student, mark.exercise.kernel): (mark.state, mark.points) for mark in marks}
    assert states == {
        ("ada", "numpy"): ("right", 2), ("ada", "naive"): ("right", 3),
        ("eve", "numpy"): ("wrong", 0), ("eve", "naive"): ("wrong", 0),
    }  # fmt: skip
    rows = table(tmp_path / "marks_by_student.csv")
    assert [(row["student"], row["points"], row["of"]) for row in rows] == [("ada", "5", "5"), ("eve", "0", "5")]
    assert not rows[0]["problems"] and "minutes from the first to the last answer; 90 were" in rows[1]["problems"]
    assert not my_kernels.exists() or not list(my_kernels.iterdir())


VARIANT = """
[[operation]]
name = "running_{name}"
formula = "m_i = {name} of x_i, x_{{i+1}}"
contract = "x (n,) -> m (n_out,) where n_out = n - 1, n >= 2"
reference = '''
def reference(x):
    return np.{numpy}(x[1:], x[:-1])
'''

[[exercise]]
operation = "running_{name}"
kernel = "numpy"
choice = "windows"
stub = '''
def running_{name}(x):
    raise NotImplementedError
'''
answer = '''
def running_{name}(x):
    return np.{numpy}(x[:-1], x[1:])
'''
"""
TWO = VARIANT.format(name="largest", numpy="maximum") + VARIANT.format(name="smallest", numpy="minimum")


def test_variants_from_the_making_to_the_marks(file, tmp_path, monkeypatch, capsys):
    first = EXAM[: EXAM.rindex("[[exercise]]")]
    file.write_text(first + TWO, "utf-8")
    assert main(["handout", "--exam", str(file), "--variants", "3", "--out", str(tmp_path / "exam.zip")]) == 0
    assert capsys.readouterr().out.count("2 exercises, without") == 3
    names = ["largest", "smallest", "largest"]
    for number, name in enumerate(names, 1):
        place = unpacked(tmp_path / f"exam_{number}.zip", tmp_path / f"sitting_{number}")
        text = (place / "exam.json").read_text("utf-8")
        asked = [each["operation"] for each in json.loads(text)["exercise"]]
        assert asked == ["running_mean", f"running_{name}"] and "maximum(" not in text and "minimum(" not in text
        function = {"largest": "maximum", "smallest": "minimum"}[name]
        answer = f"def running_{name}(x):\n    return np.{function}(x[1:], x[:-1])\n"
        assert sitting.keep(place / "my_kernels", text, f"running_{name}", "numpy", answer).startswith("✓")
        monkeypatch.chdir(place)
        assert main(["submit", "--out", str(tmp_path / f"student {number}.zip")]) == 0
    given = [tmp_path / f"student {number}.zip" for number in (1, 2, 3)]
    marks = grade(given, tmp_path / "marks.csv", exam=file, sandboxed=False, say=lambda line: None)
    states = {(mark.student[-1], mark.exercise.operation): mark.state for mark in marks}
    for number, name in enumerate(names, 1):
        other = {"largest": "smallest", "smallest": "largest"}[name]
        assert states[str(number), f"running_{name}"] == "right"
        assert states[str(number), f"running_{other}"] == "not asked"
    rows = table(tmp_path / "marks_by_student.csv")
    assert {(row["points"], row["of"], row["missing"]) for row in rows} == {("1", "3", "1")}
    page = (tmp_path / "marks_feedback" / "student_1.html").read_text("utf-8")
    assert "running_largest" in page and "running_smallest" not in page


def test_variants_want_a_choice(file, tmp_path, capsys):
    assert 'choice = "…"' in command_refused(
        capsys, ["handout", "--exam", str(file), "--variants", "2", "--out", str(tmp_path / "exam.zip")]
    )
