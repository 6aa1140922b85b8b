"""The report: every kept kernel is judged anew, the numbers are those measured, and the page is whole and safe."""

import re
from dataclasses import replace

import numpy as np
import pytest
from pages import Page
from refusals import command_refused

from cuda_on_cpu import emulate
from cuda_on_cpu.host_compiler import why_no_c_compiler
from fused_epochs import dense_plain
from nnclassroom import commands, timing
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.exercises.hints import exercises
from nnclassroom.notebook import report, speedup
from nnclassroom.notebook.exercise import Outcome
from nnclassroom.notebook.speedup import CONTENDERS, Contender, Time
from nncourse import datasets, device
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.kernels.activations import relu, sigmoid
from nncourse.kernels.dense import dense_forward
from nncourse.kernels.dense_epoch import dense_sgd_epoch
from nncourse.language import ROOT
from nncourse.model.training import History

RIGHT = "def sigmoid(z):\n    # </pre></li></ol><script>alert(1)</script>\n    return 0.5 * np.tanh(0.5 * z) + 0.5\n"
WRONG = "def sigmoid(z):\n    return 0.5 * np.tanh(z) + 0.5\n"
# Right for all shapes but that of the hidden layer in training, which is not among those that are tried.
RAISES = RIGHT.replace("    return", "    if z.shape == (10, 60):\n        raise TypeError('no <b>')\n    return")
CUDA = (
    'extern "C" __global__ void relu(const float* z, float* a, int n) {\n'
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) a[i] = z[i] > 0 ? z[i] : 0;\n}\n"
)
UPDATE = "def sgd_update(W, G, rate):\n    for i in np.ndindex(W.shape):\n        W[i] -= rate * G[i]\n    return W\n"
BY_LABEL = {contender.label: contender for contender in CONTENDERS}


@pytest.fixture(autouse=True)
def work(tmp_path, monkeypatch, my_kernels):
    """A working folder with small data to train and to test on."""
    rng = np.random.default_rng(3)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("NNCOURSE_DATA", raising=False)
    for name, count in (("CC_train", 40), ("CC_test", 12)):
        X = rng.normal(size=(count, 2)).round(3)
        text = "".join(f"{a},{b},{int(a > 0)}\n" for a, b in X)
        (tmp_path / "work" / f"{name}.csv").write_text(text)
    return tmp_path / "work"


@pytest.fixture
def quick(monkeypatch):
    """No timing of kernels, which costs seconds each; limits that need no measuring; two contenders."""
    row = timing.Row("yours", "cpu", 1.2345e-5, 100, 400, 0.5)
    table = timing.Table("title", (row, timing.Row("loops", "cpu", 2.469e-3, 100, 400, 0.01)))
    monkeypatch.setattr(report, "timed", lambda operation, name, text, launch, kernel: (table, ["a note & more"]))
    monkeypatch.setattr(device, "limits", lambda where="cpu": {"copy": 1e9, "matrix": 2e9})
    monkeypatch.setattr(speedup, "CONTENDERS", (BY_LABEL["loops"], BY_LABEL["numpy"]))


def written(*options: str) -> Page:
    assert commands.main(["report", "--dataset", "CC_train.csv", "--epochs", "2", *options]) == 0
    with open("report.html", encoding="utf-8") as file:
        return Page(file.read())


def small() -> tuple:
    return speedup.scaled(*speedup.load_sets("CC_train.csv")[:2])


def done_rows(page: Page) -> list[str]:
    """What the table of progress says of each exercise."""
    first = {f"{each.operation} ({each.kernel})" for each in exercises()}
    return [row[1] for row in page.rows if row[0] in first and len(row) in (2, 4)]


# ---- the whole page


def test_nothing_kept(quick):
    page = written()
    assert done_rows(page) == ["open"] * len(exercises())
    assert f"0 of {len(exercises())} exercises" in page.words
    assert len(page.alts) == 3 and all(page.alts)
    assert all(question in page.words for question in report.QUESTIONS)
    docs = (ROOT / "docs" / "report.md").read_text("utf-8")
    assert re.findall(r"(?m)^\d\. (.+)$", docs) == list(report.QUESTIONS)


def test_a_half_solved_set_is_judged_anew(quick, work, my_kernels, capsys):
    """Kernels that are right, wrong, gone and no text, all recorded as right. The page refers to nothing outside."""
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    kept_kernels.keep(relu, "loops", "def relu(z):\n    return np.where(z > 0, z, np.float32(0))\n")
    for operation, name in (("softmax", "numpy"), ("mse", "numpy")):
        kept_kernels.keep(find(operation), name, "gone")
    kept_kernels.keep(dense_forward, "numpy", "def dense_forward(A, W, b):\n    return A @ W.T\n")  # it never was right
    (my_kernels / "softmax.numpy.py").unlink()
    (my_kernels / "mse.numpy.py").write_bytes(b"\xff")
    page = written("--name", "Ada <L> & Co")
    said = dict(zip([f"{each.operation}.{each.kernel}" for each in exercises()], done_rows(page), strict=True))
    assert said["sigmoid.numpy"].startswith("✓")
    assert said["softmax.numpy"].startswith("✗") and "gone" in said["softmax.numpy"]
    assert said["mse.numpy"].startswith("✗") and "not text" in said["mse.numpy"]
    assert said["dense_forward.numpy"].startswith("✗") and "wrong" in said["dense_forward.numpy"]
    assert sum(words == "open" for words in said.values()) == len(exercises()) - 4
    assert f"1 of {len(exercises())} exercises" in page.words
    assert page.words.count("relu (loops)") == 2  # no exercise, but kept: its heading and its verdict
    assert page.row("student")[1] == "Ada <L> & Co"
    assert RIGHT.splitlines() == page.lines[:3]
    assert not {"script", "iframe", "link"} & set(page.tags) and "http" not in page.words
    assert len(page.links) == 3 and all(link.startswith("data:image/") for link in page.links)
    text = (work / "report.html").read_text("utf-8")
    assert str(work) not in text and str(my_kernels) not in text
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "report: report.html" and "sigmoid.numpy" in out


def test_a_changed_kernel_is_wrong(quick, my_kernels):
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    entry = kept_kernels.progress()["sigmoid.numpy"]
    (my_kernels / "sigmoid.numpy.py").write_text(WRONG)
    kept = report.examine(sigmoid, "numpy", entry)
    assert kept.outcome.state == "wrong" and kept.outcome.table is None and kept.text == WRONG


@pytest.mark.skipif(bool(emulate.why_not()) and not device.gpu_available(), reason="no emulator and no GPU")
def test_a_cuda_kernel_with_its_launch(my_kernels):
    """Checked, compiled, and timed where there is a GPU."""
    kept_kernels.keep(relu, "naive", CUDA, {"block": [256]})
    kept = report.examine(relu, "naive", kept_kernels.progress()["relu.naive"])
    page = Page(report.kernel(kept))
    assert kept.outcome.state == "right" and "launch: block 256" in page.words
    assert page.lines == CUDA.splitlines()
    assert (kept.outcome.table is not None) == device.gpu_available()
    assert device.gpu_available() or "not timed: no GPU" in page.words


def test_a_cuda_kernel_where_nothing_can_check_it(quick, monkeypatch):
    kept_kernels.keep(relu, "naive", CUDA, {"block": [256]})
    monkeypatch.setattr(device, "gpu_available", lambda: False)
    monkeypatch.setattr(emulate, "why_not", lambda: "there is no g++")
    kept = report.examine(relu, "naive", kept_kernels.progress()["relu.naive"])
    assert kept.outcome.state == "open" and "no g++" in kept.outcome.line


def test_the_page_is_written_whole_or_not_at_all(quick, work, monkeypatch):
    (work / "report.html").write_text("old")
    before = sorted(work.iterdir())
    monkeypatch.setattr(report, "image", lambda *_, **__: "")
    monkeypatch.setattr(report, "document", lambda title, body: "\ud800")  # fails in the middle: cannot be encoded
    with pytest.raises(UnicodeEncodeError):
        report.write(work / "report.html", dataset="CC_train.csv", epochs=1)
    assert (work / "report.html").read_text() == "old" and sorted(work.iterdir()) == before


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--out nowhere/report.html", "nowhere/report.html"),
        ("--out .", "expected a file"),
        ("--dataset nothing.csv", "nothing.csv"),
        ("--epochs 0", "epochs"),
        ("--epoch 3 --quik", "--quik"),
    ],
)
def test_what_can_be_refused_is_refused_at_once(line, said, capsys, monkeypatch, work):
    monkeypatch.setattr(report, "examine", None)
    monkeypatch.setattr(speedup, "measure", None)
    assert said in command_refused(capsys, ["report", *line.split()])
    assert not (work / "report.html").exists()


# ---- numbers


def test_the_numbers_are_those_that_were_measured(quick):
    kept = report.Kept(sigmoid, "numpy", {}, RIGHT, Outcome("right", "right", (), report.timed(*[None] * 5)[0]))
    page = Page(report.kernel(kept))
    assert page.row("yours")[2] == timing.duration(1.2345e-5) and page.row("yours")[5] == "200×"
    measured = {
        "loops": (None, 40, 0.02, None, 1.5),
        "C": (None, 400, 4e-4, 16e-3),
        "numpy": (None, 400, 1e-4, 4e-3, 0.0123),
        "numba": (None, 0, None, None, None, "stopped: <i>"),
        "yours, CPU": (None, 400, 2e-4, 8e-3, None, "sigmoid"),
        "cupy": (None, 400, 5e-5, 2e-3, 1e-3),
        "cuda": (None, 400, 2.5e-5, 1e-3, 1e-3),
    }
    times = [Time(BY_LABEL[label], 10, *numbers) for label, numbers in measured.items()]
    page = Page(report.training(times, {"numpy": {10: 1.0}, "cuda": {10: 4.0, 100: 9.0}}, ["cuda: <b>"], 1e-3))
    assert page.row("loops") == ["loops", "cpu", "only 40 rows", "20 ms", "0.02×", "1×", "1/200", "1.5 s"]
    assert page.row("C") == ["C", "cpu", "16 ms", "400 µs", "1×", "50×", "0.25×", "–"]
    assert page.row("numpy") == ["numpy", "cpu", "4 ms", "100 µs", "4×", "200×", "1×", "12.3 ms"]
    assert page.row("numba") == ["numba", "cpu", "stopped: <i>"]
    assert page.row("yours, CPU") == ["yours, CPU", "cpu", "8 ms", "200 µs", "2×", "100×", "0.5×", "–"]
    assert page.row("cuda")[3:7] == ["25 µs", "16×", "800×", "4×"]
    assert "cuda is 4× as fast as numpy" in page.words and "50 %" in page.words
    assert "numpy on the CPU 4×, cuda on the GPU 16×" in page.words  # over C
    assert "your kernels for sigmoid" in page.words and "cuda: <b>" in page.words
    assert "cuda 800×" in page.alts[0] and "9× at 100" in page.alts[0]


def test_without_a_gpu_it_says_so_and_why(monkeypatch):
    monkeypatch.setattr(device, "why_no_gpu", lambda: "no card")
    data, test = small()
    times = [speedup.measure(contender, data, test) for contender in CONTENDERS if contender.backend != "numba"]
    page = Page(report.training(times, {}, [], None))
    assert [row[2] for row in page.rows[1:] if row[1] == "gpu"] == ["not measured: no GPU here"] * 4
    assert "not measured" in page.row("yours, CPU")[2]
    assert page.words.count("no card") == 1


def test_a_measurement():
    data, test = small()
    time = speedup.measure(BY_LABEL["numpy"], data, test)
    assert (time.rows, time.device, time.note) == (40, "cpu", "")
    assert time.epoch == pytest.approx(4 * time.step) and time.test > 0
    short = speedup.measure(BY_LABEL["numpy"], data, test, longest=1e-9)
    assert short.rows == 10 and short.step > 0 and short.epoch is None and short.test is None
    assert speedup.ratio([time, short], "numpy", short) == time.step / short.step
    assert speedup.ratio([time], "loops", time) is None
    by_batch = speedup.over_batches([time, short], data, test)
    assert by_batch == ({"numpy": {10: 1.0}}, [])  # 40 rows make no batch of 100


def test_what_stops_a_contender_is_a_line_and_an_error_where_tests_are_strict(monkeypatch):
    def broken(*_):
        raise TypeError("no <i>")

    monkeypatch.setattr(speedup, "backend_of", broken)
    monkeypatch.delenv("NNCOURSE_STRICT", raising=False)
    assert speedup.measure(BY_LABEL["numpy"], *small()).note == "stopped: TypeError: no <i>"
    monkeypatch.setenv("NNCOURSE_STRICT", "1")
    with pytest.raises(TypeError):
        speedup.measure(BY_LABEL["numpy"], *small())


def test_a_batch_that_a_contender_cannot_do_costs_only_its_mark(monkeypatch):
    monkeypatch.setattr(speedup, "BATCHES", (10, 20, 30, 40))
    data, test = small()
    whole, capped = (speedup.measure(BY_LABEL[label], data, test) for label in ("numpy", "numpy, fused"))

    def up_to_ten(parameters, architecture, X, Y, batch, rate):
        if batch == 20:
            raise DoesNotFitError("expected a smaller one")
        if batch == 30:
            raise RuntimeError("no <i>")
        return fused(parameters, architecture, X, Y, batch, rate)

    fused = dense_sgd_epoch["numpy"]
    monkeypatch.setitem(dense_sgd_epoch.kernels, "numpy", replace(fused, function=up_to_ten))
    by_batch, stopped = speedup.over_batches([whole, capped], data, test)
    assert set(by_batch["numpy"]) == {10, 20, 30, 40} and set(by_batch["numpy, fused"]) == {10, 40}
    assert len(stopped) == 2 and "20 do not fit" in stopped[0] and "30 stopped" in stopped[1] and "<i>" in stopped[1]


def test_all_batches_on_a_gpu(gpu):
    """one_kernel cannot run batches of 1,000: a line says so, and all else is measured."""
    data, test = speedup.scaled(*speedup.load_sets("credit_card_standin")[:2])
    labels = ("numpy", "cuda", "cuda, one kernel")
    times = [speedup.measure(BY_LABEL[label], data, test, longest=60) for label in labels]
    by_batch, stopped = speedup.over_batches(times, data, test)
    assert stopped == ["cuda, one kernel: batches of 1000 do not fit on the chip."]
    assert set(by_batch["cuda"]) == {10, 100, 1000} and set(by_batch["cuda, one kernel"]) == {10, 100}


def test_your_kernels_drive_a_contender_and_an_error_of_theirs_stops_only_that_one():
    data, test = small()
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    time = speedup.measure(BY_LABEL["yours, CPU"], data, test)
    assert time.step and time.note == "sigmoid"
    kept_kernels.keep(sigmoid, "numpy", RAISES)
    time = speedup.measure(BY_LABEL["yours, CPU"], data, test)
    assert time.step is None and "no <b>" in time.note
    with pytest.raises(CourseError):
        speedup.fastest([time])
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    kept_kernels.keep(find("sgd_update"), "loops", UPDATE)
    time = speedup.measure(BY_LABEL["yours, CPU"], data, test, ["sigmoid.numpy"])  # the check found it wrong
    assert time.note == "sgd_update" and time.backend.kernels["sigmoid"] is sigmoid["numpy"]
    time = speedup.measure(BY_LABEL["yours, CPU"], data, test, ["sigmoid.numpy", "sgd_update.loops"])
    assert time.step is None and "no correct kernel" in time.note
    assert "nonsense" in speedup.measure(Contender("x", "numpy", {"sigmoid": "nonsense"}), data, test).note


def test_only_kernels_that_take_part_in_a_training_step_make_a_time_yours():
    """relu is in no layer of the handout's network: with it alone every kernel of a step is the course's."""
    data, test = small()
    kept_kernels.keep(relu, "loops", "def relu(z):\n    return np.where(z > 0, z, np.float32(0))\n")
    time = speedup.measure(BY_LABEL["yours, CPU"], data, test)
    assert time.step is None and time.note.startswith("not measured: none of your correct kernels takes part")
    kept_kernels.keep(sigmoid, "numpy", RIGHT)
    time = speedup.measure(BY_LABEL["yours, CPU"], data, test)
    assert time.step and time.note == "sigmoid"


def test_the_c_program_trains_and_where_it_cannot_be_compiled_a_line_says_so(monkeypatch):
    data, test = small()
    if why_no_c_compiler():
        pytest.skip(why_no_c_compiler())
    times = [speedup.measure(BY_LABEL[label], data, test) for label in ("C", "C, float, fast")]
    assert all(time.step and time.epoch and time.test is None for time in times)
    assert speedup.over_batches(times, data, test) == ({}, [])  # over numpy, which is not there
    times.append(speedup.measure(BY_LABEL["numpy"], data, test))
    assert set(speedup.over_batches(times, data, test)[0]) == {"C", "numpy"}
    monkeypatch.setattr(dense_plain, "why_not", lambda name: "there is no C compiler here")
    time = speedup.measure(BY_LABEL["C"], data, test)
    assert time.step is None and "there is no C compiler here" in time.note


def test_ctrl_c_ends_all(monkeypatch):
    ended = History(stopped="interrupted after epoch 0", interrupted=True)
    monkeypatch.setattr(speedup, "train", lambda *_, **options: ended)
    with pytest.raises(KeyboardInterrupt):
        speedup.measure(BY_LABEL["numpy"], *small())


def test_transfers(gpu):
    assert speedup.transfer_seconds(small()[0]) > 0


# ---- data and words


def test_the_data_sets(work, monkeypatch):
    data, test, whence = speedup.load_sets("CC_train.csv")
    assert (len(data.X), len(test.X), whence) == (40, 12, "CC_test")
    data, test, _ = speedup.load_sets("CC_test.csv")
    assert len(data.X) + len(test.X) == 12
    assert speedup.load_sets()[0].name == "credit_card_standin"
    (work / "cc").mkdir()
    for name in ("CC_train.csv", "CC_test.csv"):
        (work / name).rename(work / "cc" / name)
    monkeypatch.setenv("NNCOURSE_DATA", str(work))
    assert [set_.name for set_ in speedup.load_sets()[:2]] == ["CC_train", "CC_test"]
    assert speedup.network_for(datasets.load("breast_cancer")).sizes == (30, 60, 10, 1)


def test_own_words_are_plain(my_kernels):
    my_kernels.mkdir()
    text = "# Strategy & plan\nOne thread\na cell, `W[j]`.\n\n<script>x</script> *not bold*\n\n\n## More\n#hashtag\n"
    (my_kernels / report.OWN_WORDS).write_text(text)
    html = report.own_words()
    assert re.findall(r"<(\w+)>", html) == ["h3", "p", "p", "h3", "p"]
    assert "<p>One thread\na cell, `W[j]`.</p>" in html and "&lt;script&gt;" in html and "<h3>More</h3>" in html
    (my_kernels / report.OWN_WORDS).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CourseError, match=r"report\.md"):
        report.own_words()
