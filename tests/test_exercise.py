"""The student's loop: open, wrong, right; what is kept; no kernel stops the notebook."""

import html
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest

from nnclassroom import timing
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.own_backend import choose
from nnclassroom.figures import picture
from nnclassroom.notebook import cuda_cell
from nnclassroom.notebook.exercise import cuda, exercise
from nncourse import device
from nncourse.errors import CourseError
from nncourse.kernels.activations import sigmoid as sigmoid_operation
from tools.notebooks import client

pytestmark = pytest.mark.usefixtures("my_kernels", "clean_environment")
HEAD = 'extern "C" __global__ void sigmoid(const float* z, float* a, int n) {\n'
INDEX = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
RIGHT_CUDA = HEAD + INDEX + "    if (i < n) a[i] = 1.0f / (1.0f + expf(-z[i]));\n}\n"
WRONG_CUDA = RIGHT_CUDA.replace("expf(-z", "expf(z")
NOT_RUN = (
    "Not kept. The course goes on with its own kernel; .attempt is the course's too, since your version cannot run."
)
Z = np.linspace(-3, 3, 7, dtype=np.float32)


@pytest.fixture
def clean_environment(monkeypatch):
    for name in ("NNCOURSE_SOLVE", "NNCOURSE_STRICT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def quick_timing(request, monkeypatch):
    """Timing takes seconds: only tests marked `timed` wait for it."""
    if "timed" not in request.keywords:
        monkeypatch.setattr("nnclassroom.notebook.exercise.timed", lambda *_: (None, []))


def solve():
    @exercise("sigmoid", kernel="numpy")
    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    return sigmoid


def leave_open():
    @exercise("sigmoid", kernel="numpy")
    def sigmoid(z):
        """Not yet."""
        raise NotImplementedError  # your code here

    return sigmoid


def test_open(my_kernels, capsys):
    sigmoid = leave_open()
    assert sigmoid.outcome.state == "open"
    assert capsys.readouterr().out.splitlines() == ["○ sigmoid (numpy): open. The course goes on with its own kernel."]
    np.testing.assert_allclose(sigmoid(Z), 1 / (1 + np.exp(-Z)), rtol=1e-5)
    assert not my_kernels.exists()


def test_code_above_the_line_of_the_stub_is_not_open(my_kernels, capsys):
    @exercise("sigmoid", kernel="numpy")
    def sigmoid(z):
        a = np.exp(-z)
        raise NotImplementedError("the rest", a)

    assert sigmoid.outcome.state == "wrong" and "still in it: delete that line" in sigmoid.outcome.line


def test_wrong(my_kernels, capsys):
    @exercise("sigmoid", kernel="numpy")
    def sigmoid(z):
        return 1 / (1 + np.exp(z))

    assert sigmoid.outcome.state == "wrong"
    first, numbers, hint, state = capsys.readouterr().out.splitlines()
    assert first.startswith("✗ sigmoid (numpy): z (1,)") and "expected" in first
    assert numbers.startswith("  z [") and ": expected a [" in numbers and ", got a [" in numbers
    assert 'hint("sigmoid", "numpy")' in hint and state == "  Not kept. The course goes on with its own kernel."
    assert [path.name for path in my_kernels.iterdir()] == [kept_kernels.ATTEMPTS]
    np.testing.assert_allclose(sigmoid(Z), 1 / (1 + np.exp(-Z)), rtol=1e-5)  # the course goes on
    (z,) = sigmoid.case
    np.testing.assert_allclose(sigmoid.attempt(z), 1 / (1 + np.exp(z)))  # and the mistake can be looked at


def test_right(my_kernels):
    answer = solve()
    assert answer.outcome.state == "right" and "right in" in answer.outcome.line
    assert answer.attempt is answer.kernel and answer.kernel.where == "sigmoid.numpy.py"
    np.testing.assert_array_equal(answer(Z), 1 / (1 + np.exp(-Z)))
    assert choose("numpy", mine=True).notes["sigmoid"] == "yours"
    text = (my_kernels / "sigmoid.numpy.py").read_text()
    assert text.startswith('# @exercise("sigmoid", kernel="numpy")\ndef sigmoid(z):\n')


@pytest.mark.timed
def test_a_right_kernel_is_timed_beside_others():
    table = solve().outcome.table
    names = [row.kernel for row in table.rows]
    assert names[:3] == ["yours", "loops", "numpy"]
    assert kept_kernels.progress()["sigmoid.numpy"]["seconds"] == table.rows[0].seconds > 0


def test_the_table_of_times_is_in_a_fold_below_its_line(monkeypatch):
    seconds = {"yours": 1e-6, "loops": 100e-6, "numpy": 2e-6}
    rows = tuple(timing.Row(name, "cpu", time, 1, 1, 0.1) for name, time in seconds.items())
    table = timing.Table("times", rows, beside="numpy")
    monkeypatch.setattr("nnclassroom.notebook.exercise.timed", lambda *_: (table, []))
    outcome = solve().outcome
    line = "Your kernel: 1 µs; speed: 100× loops, 2× the course's numpy"
    assert str(outcome).splitlines()[-1] == f"  {line}"
    folded, printed = outcome._repr_html_(), outcome.html(folded=False)
    assert f"<summary><small>{html.escape(line)}</small></summary>" in folded and "<th" in folded
    assert "<details>" not in printed and "<th" in printed
    short = timing.Table("times", (timing.Row("yours", "cpu", 1e-7, 1, 1, 0.1, "too short to measure"),))
    assert short.in_one_line == "Your kernel: 100 ns; too short to measure"


def test_defining_it_again_and_rerunning_the_stub_punishes_nobody(my_kernels):
    solve()
    assert solve().outcome.state == "right"
    kept = (my_kernels / "sigmoid.numpy.py").read_text()
    sigmoid = leave_open()
    assert sigmoid.outcome.state == "open" and "kept kernel" in sigmoid.outcome.line
    assert sigmoid.kernel.where == "sigmoid.numpy.py", "what was kept goes on"

    @exercise("sigmoid", kernel="numpy")
    def sigmoid(z):
        return z

    assert sigmoid.outcome.state == "wrong"
    assert sigmoid.outcome.notes[-1] == "Not kept. Your earlier correct kernel is still kept and used."
    assert sigmoid.kernel.where == "sigmoid.numpy.py"
    assert (my_kernels / "sigmoid.numpy.py").read_text() == kept


def test_a_slow_loop_is_noted_only_where_the_course_needs_none(monkeypatch):
    rows = tuple(timing.Row(name, "cpu", seconds, 1, 1, 0.1) for name, seconds in (("yours", 1.0), ("numpy", 0.1)))
    monkeypatch.setattr("nnclassroom.notebook.exercise.timed", lambda *_: (timing.Table("times", rows), []))

    @exercise("identity", kernel="numpy")
    def identity(z):
        return np.array([1 * value for value in z.reshape(-1)], z.dtype).reshape(z.shape)

    @exercise("averagepool_forward", kernel="numpy")
    def averagepool_forward(A, size, stride):
        end = [side - size + 1 for side in A.shape[2:]]
        places = [(i, j) for i in range(size) for j in range(size)]
        return sum(A[:, :, i : i + end[0] : stride, j : j + end[1] : stride] for i, j in places) / np.float32(size**2)

    @exercise("batchnorm_forward", kernel="numpy")
    def batchnorm_forward(A, mean, variance, gamma, beta, epsilon):
        mean, variance, gamma, beta = (v[:, None, None] for v in (mean, variance, gamma, beta))
        return gamma * (A - mean) / np.sqrt(variance + np.float32(epsilon)) + beta

    @exercise("batchnorm_statistics", kernel="numpy")
    def batchnorm_statistics(A):
        axes = tuple(axis for axis in range(A.ndim) if axis != 1)
        return A.mean(axis=axes), A.var(axis=axes)

    assert "10× slower than the course's: it loops in Python" in str(identity.outcome)
    for short in (averagepool_forward, batchnorm_forward, batchnorm_statistics):
        assert short.outcome.state == "right" and "slower" not in str(short.outcome)


def test_loops_without_a_loop_are_noted_and_their_time_is_not_compared(monkeypatch):
    seconds = iter((1e-6, 1.0))
    monkeypatch.setattr(
        "nnclassroom.notebook.exercise.timed",
        lambda *_: (timing.Table("times", (timing.Row("yours", "cpu", next(seconds), 1, 1, 0.1),)), []),
    )

    @exercise("neuron", kernel="loops")
    def neuron(x, w, b):
        return w @ x + b

    without = neuron

    @exercise("neuron", kernel="loops")
    def neuron(x, w, b):
        z = b
        for i in range(len(x)):
            z += w[i] * x[i]
        return z

    assert without.outcome.state == "right" and "it has no loop" in str(without.outcome)
    assert neuron.outcome.state == "right" and "no loop" not in str(neuron.outcome)
    assert "faster" not in str(neuron.outcome)


def test_a_slower_kernel_that_takes_the_place_of_a_faster_one_says_so(monkeypatch):
    def kept(text: str, seconds: float, title: str = "sigmoid, n 131072", note: str = "") -> str:
        table = timing.Table(title, (timing.Row("yours", "cpu", seconds, 1, 1, 0.1, note),))
        monkeypatch.setattr("nnclassroom.notebook.exercise.timed", lambda *_: (table, []))
        space = {"np": np, "exercise": exercise}
        monkeypatch.setattr("nnclassroom.notebook.python_cell.text_of", lambda *_: text)
        exec(text, space)
        return str(exercise("sigmoid", kernel="numpy")(space["sigmoid"]).outcome)

    first, second = (
        f"def sigmoid(z):\n    return {body}\n" for body in ("1 / (1 + np.exp(-z))", "(1 + np.exp(-z)) ** -1")
    )
    assert "faster" not in kept(first, 1.2e-3)
    assert "faster" not in kept(first, 3.4e-3), "the same text once more"
    assert "faster" not in kept(second, 1.2e-3)
    said = "Your kept kernel was faster: 1.2 ms against 3.4 ms; this one takes its place."
    assert said in kept(first, 3.4e-3)
    assert kept_kernels.progress()["sigmoid.numpy"]["seconds"] == 3.4e-3
    assert "faster" not in kept(second, 3.5e-3), "the difference is noise"
    assert "faster" not in kept(first, 9.9e-3, "sigmoid, n 7"), "other sizes"
    assert "faster" not in kept(second, 20e-3, "sigmoid, n 7", "too short to measure")
    monkeypatch.setattr("nncourse.device.describe", lambda *_: "another machine")
    assert "faster" not in kept(first, 40e-3, "sigmoid, n 7")


def test_another_name_for_the_function_does_no_harm():
    @exercise("sigmoid", kernel="numpy")
    def my_own_sigmoid(values):
        return 1 / (1 + np.exp(-values))

    assert my_own_sigmoid.outcome.state == "right"
    assert choose("numpy", mine=True).notes["sigmoid"] == "yours"


def helper(z):
    return 1 / (1 + np.exp(-z))


def test_what_stands_outside_of_the_function_is_reported_as_missing():
    @exercise("sigmoid", kernel="numpy")
    def sigmoid(z):
        return helper(z)

    assert sigmoid.outcome.state == "wrong"
    assert "'helper' is not defined" in sigmoid.outcome.line
    assert "only np is there already" in sigmoid.outcome.line


def test_an_endless_loop_in_python_is_ended(monkeypatch):
    monkeypatch.setattr(kept_kernels, "TIME_LIMIT", 1.0)

    @exercise("sigmoid", kernel="numpy")
    def sigmoid(z):
        while True:
            z = z + 1

    assert sigmoid.outcome.state == "wrong" and "did not end within 1 s" in sigmoid.outcome.line
    assert solve().outcome.state == "right"


@pytest.fixture
def no_gpu():
    if device.gpu_available():
        pytest.skip("there is a GPU")


@pytest.mark.timed
def test_a_cupy_exercise_without_a_gpu_is_checked_with_numpy(no_gpu):
    @exercise("relu", kernel="cupy")
    def relu(z):
        return xp.maximum(z, 0)  # noqa: F821 (the course puts xp there)

    assert relu.outcome.state == "right" and "not timed" in relu.outcome.notes[0]
    np.testing.assert_array_equal(relu(Z), np.maximum(Z, 0))


@pytest.mark.timed
def test_the_packages_cupy_kernel_without_a_gpu_is_checked_with_numpy(monkeypatch, no_gpu):
    monkeypatch.setenv("NNCOURSE_SOLVE", "dense_forward.cupy")

    @exercise("dense_forward", kernel="cupy")
    def dense_forward(A, W, b):
        raise NotImplementedError

    assert dense_forward.outcome.state == "right"
    assert dense_forward.outcome.notes == ("Checked with NumPy, not timed: no GPU here.",)
    assert dense_forward.kernel.device == "cpu" and find("dense_forward")["cupy"].device == "gpu"
    np.testing.assert_array_equal(dense_forward(np.eye(2), np.ones((1, 2)), np.ones(1)), [[2], [2]])


@pytest.mark.parametrize(("operation", "kernel"), [("sigmiod", "numpy"), ("sigmoid", "tiled"), ("sigmoid", "cuda")])
def test_unknown_exercises_are_refused(operation, kernel):
    with pytest.raises(CourseError, match="expected"):
        exercise(operation, kernel=kernel)


def test_a_function_without_a_text_is_refused():
    with pytest.raises(CourseError, match="def"):
        exercise("sigmoid", kernel="numpy")(eval("lambda z: z"))


@pytest.mark.parametrize("names", ("all", "sigmoid", "relu,sigmoid.numpy"))
def test_solved_by_the_course(monkeypatch, my_kernels, names):
    monkeypatch.setenv("NNCOURSE_SOLVE", names)
    monkeypatch.setenv("NNCOURSE_STRICT", "1")
    sigmoid = leave_open()
    assert sigmoid.outcome.state == "right" and sigmoid.kernel is sigmoid_operation["numpy"]
    assert not my_kernels.exists(), "solving never writes"
    monkeypatch.setenv("NNCOURSE_SOLVE", "relu,sigmoid.loops")
    assert leave_open().outcome.state == "open"


def test_strict_turns_a_wrong_answer_into_an_exception(monkeypatch):
    monkeypatch.setenv("NNCOURSE_STRICT", "1")
    with pytest.raises(CourseError, match="wrong"):

        @exercise("sigmoid", kernel="numpy")
        def sigmoid(z):
            return 2 * z


def test_strict_an_exercise_that_was_to_be_solved_may_not_stay_open(monkeypatch):
    monkeypatch.setenv("NNCOURSE_STRICT", "1")
    assert leave_open().outcome.state == "open"
    monkeypatch.setenv("NNCOURSE_SOLVE", "relu")
    assert leave_open().outcome.state == "open"
    monkeypatch.setattr(sigmoid_operation, "kernels", {"loops": sigmoid_operation["loops"]})
    for chosen in ("all", "sigmoid"):
        monkeypatch.setenv("NNCOURSE_SOLVE", chosen)
        with pytest.raises(CourseError, match="open"):
            leave_open()
    monkeypatch.delenv("NNCOURSE_STRICT")
    assert leave_open().outcome.state == "open"


@pytest.mark.parametrize("names", ["relu,sigmiod", "sigmoid.numpi", "al"])
def test_a_misspelt_name_to_be_solved_is_refused(monkeypatch, names):
    monkeypatch.setenv("NNCOURSE_SOLVE", names)
    with pytest.raises(CourseError, match="NNCOURSE_SOLVE.*expected"):
        solve()


@pytest.mark.timed
def test_strict_raises_what_stopped_the_timing(monkeypatch):
    monkeypatch.setattr("nnclassroom.timing.TIMING_LIMIT", 0.001)
    assert "not timed" in solve().outcome.notes[0]
    monkeypatch.setenv("NNCOURSE_STRICT", "1")
    with pytest.raises(CourseError, match="did not end"):
        solve()


def test_html_has_the_colour_of_the_state_and_escapes_code():
    @exercise("sigmoid", kernel="numpy")
    def sigmoid(z):
        raise ValueError("<script>")

    html = sigmoid.outcome._repr_html_()
    assert 'class="nncourse wrong"' in html and "&lt;script&gt;" in html and "<script>" not in html


@pytest.mark.usefixtures("cuda_somewhere")
class TestCuda:
    @pytest.mark.parametrize("body", ("", "    // your code here: 2 lines\n", "    /* nothing\n */\n"))
    def test_open(self, body):
        answer = cuda("sigmoid naive --block 256", f"{HEAD}{body}}}\n")
        assert answer.outcome.state == "open" and answer.kernel is sigmoid_operation["naive"]

    @pytest.mark.timed
    def test_right(self, my_kernels):
        answer = cuda("sigmoid naive --block 64", RIGHT_CUDA)
        assert answer.outcome.state == "right"
        assert any("registers a thread" in note for note in answer.outcome.notes)
        if device.gpu_available():
            assert "transfers" in [row.kernel for row in answer.outcome.table.rows]
        else:
            assert "not timed" in answer.outcome.notes[0]
        entry = json.loads((my_kernels / "progress.json").read_text())["sigmoid.naive"]
        assert entry["launch"] == {"block": [64]}
        assert (my_kernels / "sigmoid.naive.cu").read_text() == f"// %%cuda sigmoid naive --block 64\n{RIGHT_CUDA}"
        backend = choose("cuda", mine=True, emulate=True)
        assert backend.notes["sigmoid"] == "yours" and backend.kernels["sigmoid"].block == (64,)
        np.testing.assert_allclose(answer(Z), 1 / (1 + np.exp(-Z)), rtol=1e-5)

    @pytest.mark.parametrize(
        ("text", "notes", "whose"),
        [
            (f"{HEAD}}}\n", [], ""),
            (WRONG_CUDA, ["Not kept. The course goes on with its own kernel."], ", yours, wrong"),
            ("void sigmoid() {}", [NOT_RUN], ""),
            (RIGHT_CUDA, ["Kept as sigmoid.naive.cu."], ", yours"),
        ],
        ids=("open", "wrong", "cannot be run", "right"),
    )
    def test_pictures_and_notes_say_whose_kernel_is_shown(self, text, notes, whose, my_kernels):
        answer = cuda("sigmoid naive", text)
        assert list(answer.outcome.notes[-1:]) == notes
        assert picture.show("sigmoid", answer.attempt, n=4).accesses.title == f"sigmoid (naive{whose}): n 4"

    def test_what_was_kept_is_shown_as_yours_while_the_cell_is_open_again(self, my_kernels):
        cuda("sigmoid naive", RIGHT_CUDA)
        answer = cuda("sigmoid naive", f"{HEAD}}}\n")
        assert picture.show("sigmoid", answer.attempt, n=4).accesses.title == "sigmoid (naive, yours): n 4"

    def test_errors_have_the_line_numbers_of_the_cell(self):
        body = HEAD + INDEX + "    if (i < n) a[i] = 1.0f / (1.0f + expf(-z[i]))\n}\n"
        answer = cuda("sigmoid naive", body)
        assert answer.outcome.state == "wrong"
        line, excerpt, caret = answer.outcome.line.splitlines()[1:4]
        place = int(line.split(":")[1])  # the cell's first line is the %%cuda line; the compiler may name the next one
        cell = ["%%cuda sigmoid naive", *body.splitlines()]
        assert place in (4, 5) and excerpt.strip() == cell[place - 1].strip() and caret.strip() == "^"

    def test_no_guard(self):
        answer = cuda("sigmoid naive", HEAD + INDEX + "    a[i] = 1.0f / (1.0f + expf(-z[i]));\n}\n")
        assert answer.outcome.state == "wrong" and answer.case
        assert "out of bounds" in answer.outcome.line or "outside of its arrays" in answer.outcome.line

    def test_a_function_of_another_operation(self):
        answer = cuda("dense_forward naive", RIGHT_CUDA)
        assert answer.outcome.state == "wrong" and "takes z, a, n; expected A, W, b" in answer.outcome.line

    @pytest.mark.parametrize("body", ["", "int x;", "void sigmoid() {}"])
    def test_a_cell_without_a_kernel(self, body):
        answer = cuda("sigmoid naive", body)
        assert answer.outcome.state == "wrong" and 'extern "C" __global__ void' in answer.outcome.line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "required"),
        ("sigmoid", "required"),
        ("sigmoid naive --blocks 3", "--blocks"),
        ("sigmoid naive --block x", "numbers"),
        ("sigmoid naive --tile n", "numbers"),
        ("sigmoid naive --shared x", "int"),
        ("sigmoid 'naive", "quotation"),
        ("sigmiod naive", "did you mean sigmoid"),
        ("sigmoid ../x", "letters, digits"),
    ],
)
def test_a_line_that_is_not_understood_is_refused_in_one_line(line, said, capsys):
    with pytest.raises(CourseError, match=said) as caught:
        answer = cuda(line, RIGHT_CUDA)
        raise CourseError(answer.outcome.line)  # a name that cannot be kept is a verdict
    assert "\n" not in str(caught.value)


def test_launches_are_those_of_the_packages_kernel_unless_the_line_says_otherwise():
    def launch(operation, line):
        return cuda_cell.launch_options(find(operation), cuda_cell.parsed(f"{operation} {line}"))

    assert launch("mse", "tree") == {"block": [512], "grid": [1]}
    assert launch("mse", "tree --block 64") == {"block": [64], "grid": [1]}
    assert launch("confusion_matrix", "atomic") == {"block": [256], "over": ["n"]}
    assert launch("dense_forward", "tiled") == {"block": [16, 16]}
    assert launch("dense_forward", "own --block 8,4 --shared 64") == {"block": [8, 4], "shared": 64}
    assert launch("softmax", "own --grid batch") == {"block": [256], "grid": ["batch"]}
    assert launch("convolution_forward", "constant")["constants"] == {"filters": "W"}
    assert launch("dense_forward", "tiles_1d") == {"block": [512], "tile": [64, 64]}
    assert launch("dense_forward", "own --block 128 --tile 32,8") == {"block": [128], "tile": [32, 8]}


def test_in_a_terminal_a_mistake_is_one_line_too(tmp_path):
    code = "from nncourse.backend import find\nfind('sigmiod')"
    command = [sys.executable, "-m", "IPython", "--colors=NoColor", "-c", code]
    done = subprocess.run(command, env=os.environ | {"IPYTHONDIR": str(tmp_path)}, capture_output=True, text=True)
    (line,) = (done.stdout + done.stderr).strip().splitlines()
    assert done.returncode and "did you mean sigmoid" in line


class TestNotebook:
    """In a real kernel of Jupyter, as students have it."""

    @staticmethod
    def outputs(*cells: str) -> list[list[nbformat.NotebookNode]]:
        """What each cell leaves."""
        setup = "from nnclassroom import exercise\nimport numpy as np"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (setup, *cells)])
        client(notebook, Path.cwd(), timeout=200, allow_errors=True).execute()
        return [cell.outputs for cell in notebook.cells[1:]]

    def run(self, *cells: str) -> list[str]:
        """The outputs of the cells as text."""
        texts = []
        for outputs in self.outputs(*cells):
            parts = [o.get("text") or o.get("data", {}).get("text/plain") or o.get("evalue") for o in outputs]
            texts.append("\n".join(map(str, parts)))
        return texts

    @pytest.mark.usefixtures("cuda_somewhere")
    @pytest.mark.full
    def test_nothing_that_a_cuda_cell_does_takes_the_notebook_along(self, monkeypatch):
        monkeypatch.setenv("NNCOURSE_SOLVE", "")
        bodies = {
            "endless": "    volatile float x = 0.0f;\n    while (n > 0) x = x + z[0];\n    a[0] = x;\n",
            "far out of bounds": "    a[1000000000LL + threadIdx.x] = z[0];\n",
            "a null pointer": "    float* p = 0;\n    p[threadIdx.x] = z[0];\n",
            "a trap": '    asm volatile("trap;");\n' if device.gpu_available() else "    __trap();\n",
            "no C": "    a[0] = ;\n",
        }
        cells = [f"%%cuda sigmoid naive\n{HEAD}{body}}}" for body in bodies.values()]
        good = f"%%cuda sigmoid naive\n{RIGHT_CUDA}"
        after = "state = sigmoid_naive.outcome.state\nprint(state, np.ones(2).sum())"
        *wrong, right, last = self.run(*cells, good, after)
        for name, text in zip(bodies, wrong, strict=True):
            assert text.startswith("✗ sigmoid (naive): "), (name, text)
        assert "did not end within" in wrong[0]
        assert right.startswith("✓ sigmoid (naive): right") and last.startswith("right 2.0")

    def test_a_mistake_is_one_line_and_still_an_error(self):
        python = '@exercise("sigmiod", kernel="numpy")\ndef sigmoid(z): ...'
        magic = f"%%cuda sigmiod naive\n{RIGHT_CUDA}"
        for (output,) in self.outputs(python, magic):
            assert (output.output_type, output.ename) == ("error", "UserError")
            assert "did you mean sigmoid" in output.evalue and "\n" not in output.evalue
            assert output.traceback == [f"✗ {output.evalue}"]

    def test_cells_out_of_order_and_a_copied_stub(self):
        stub = '@exercise("relu", kernel="numpy")\ndef relu(z):\n    ...  # your code'
        solved = '@exercise("relu", kernel="numpy")\ndef relu(z):\n    return np.maximum(z, 0)'
        texts = self.run("x = 1", solved, stub, stub, "print(relu(np.array([-1.0, 2.0])))", solved)
        assert texts[1].startswith("✓") and texts[2].startswith("○") and texts[3].startswith("○")
        assert texts[4].strip() == "[0. 2.]" and texts[5].startswith("✓")
