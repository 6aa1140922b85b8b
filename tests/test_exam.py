"""Exams with operations that are not in the package: from the instructor's file to the marks."""

import csv
import json
import zipfile
from pathlib import Path

import nbformat
import pytest

from cuda_on_cpu import emulate
from nnclassroom.commands import main
from nnclassroom.exercises import exam_operations
from nnclassroom.judge.check import check
from nnclassroom.marking.grade import grade
from nnclassroom.notebook import exams, sitting
from nncourse.errors import CourseError
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
edge_cases = ["zeros", "large"]
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
        ('kernel = "naive"', 'kernel = "numpy"', ""),
        ("[[operation]]", "[operation]", "tables [[operation]]"),
        ("title", "= title", "TOML"),
    ],
)
def test_a_file_with_a_mistake_is_refused_in_one_line(old, new, said, file, capsys):
    file.write_text(EXAM.replace(old, new, 1), "utf-8")
    assert main(["handout", "--exam", str(file), "--out", str(file.with_name("exam.zip"))]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and "exam.toml" in error
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


def test_an_answer_of_the_right_form_is_kept_right_or_wrong(questions, my_kernels):
    path = my_kernels / "running_mean.numpy.py"
    stub = "def running_mean(x, k):\n    raise NotImplementedError  # your code here\n"
    assert sitting.keep(questions, "running_mean", "numpy", stub) == "○ running_mean (numpy): open."
    assert not path.exists()
    assert "the examples come out" in sitting.keep(questions, "running_mean", "numpy", ONLY_THE_SAMPLE)
    assert path.read_text() == ONLY_THE_SAMPLE
    wrong = "def running_mean(x, k):\n    return x[1:]\n"
    assert "gives [2.0, 3.0], wanted [1.5, 2.5]" in sitting.keep(questions, "running_mean", "numpy", wrong)
    assert path.read_text() == wrong
    for broken in ("def running_mean(x, k:\n", "def other(x, k):\n    return x\n"):
        said = sitting.keep(questions, "running_mean", "numpy", broken)
        assert said.startswith("✗") and "Your earlier answer stays" in said
    assert path.read_text() == wrong


def test_a_cuda_answer_is_compiled_and_kept_with_its_first_line(questions, my_kernels, cuda_somewhere):
    line = "running_mean naive --block 64"
    text = f"// %%cuda {line}\n{CUDA}"
    assert sitting.keep(questions, "running_mean", "naive", text, line).startswith("✓")
    path = my_kernels / "running_mean.naive.cu"
    assert path.read_text() == text
    if emulate.why_not() is None:
        broken = text.replace("float sum = 0;", "float sum = ;")
        assert "Not kept" in sitting.keep(questions, "running_mean", "naive", broken, line)
    other = text.replace("int n, int k,", "int n,")
    assert "wanted x, m, n, k, n_out" in sitting.keep(questions, "running_mean", "naive", other, line)
    assert path.read_text() == text


def test_from_the_notebook_to_the_marks(file, tmp_path, my_kernels, monkeypatch, cuda_somewhere):
    monkeypatch.chdir(tmp_path)
    assert main(["handout", "--exam", str(file), "--out", "exam.zip"]) == 0
    with zipfile.ZipFile("exam.zip") as archive:
        archive.extractall()
    notebook = nbformat.read("exam/exam.ipynb", as_version=4)
    blanks = {cell.id: cell for cell in notebook.cells}
    blanks["q1-running-mean-numpy"].source = '@exercise("running_mean", kernel="numpy")\n' + RIGHT
    blanks["q2-running-mean-naive"].source = "%%cuda running_mean naive --block 32\n" + CUDA
    client(notebook, Path("exam")).execute()
    said = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))
    assert said.count("✓") == 2
    assert main(["submit", "--out", "ada.zip", "--name", "Ada"]) == 0
    (my_kernels / "running_mean.numpy.py").write_text(ONLY_THE_SAMPLE)
    (my_kernels / "running_mean.naive.cu").write_text("// %%cuda running_mean naive\n" + CUDA.replace(">=", ">"))
    assert main(["submit", "--out", "eve.zip"]) == 0
    marks = grade([Path("ada.zip"), Path("eve.zip")], Path("marks.csv"), exam=file, sandboxed=False)
    states = {(mark.student, mark.exercise.kernel): (mark.state, mark.points) for mark in marks}
    assert states == {
        ("ada", "numpy"): ("right", 2), ("ada", "naive"): ("right", 3),
        ("eve", "numpy"): ("wrong", 0), ("eve", "naive"): ("wrong", 0),
    }  # fmt: skip
    with open("marks_by_student.csv", newline="", encoding="utf-8") as table:
        assert [(row["student"], row["points"], row["of"]) for row in csv.DictReader(table)] == [
            ("ada", "5", "5"), ("eve", "0", "5")
        ]  # fmt: skip
