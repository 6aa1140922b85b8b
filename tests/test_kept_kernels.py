"""The student's kept kernels: only right ones are kept, changed ones are checked again, and they really run."""

import json

import numpy as np
import pytest
from trainings import by_steps

from cuda_on_cpu import emulate
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.own_backend import choose
from nnclassroom.judge.verdict import Verdict
from nncourse import datasets, device, errors, language
from nncourse.backend import operations
from nncourse.errors import CourseError
from nncourse.kernels.activations import relu, sigmoid
from nncourse.kernels.backpropagation import bias_gradient
from nncourse.kernels.convolution import convolution_forward
from nncourse.kernels.dense import dense_forward
from nncourse.kernels.update import adam_update
from nncourse.model.network import make_network
from nncourse.model.optimizers import Adam
from nncourse.model.training import train

pytestmark = pytest.mark.usefixtures("my_kernels")

RIGHT = "def sigmoid(z):\n    return 0.5 * np.tanh(0.5 * z) + 0.5\n"
WRONG = "def sigmoid(z):\n    return 0.5 * np.tanh(z) + 0.5\n"
# Counts calls in a list that is an attribute of NumPy's module in this process: kept kernels run in a namespace that
# tests do not see, and are judged in another process.
COUNTED = RIGHT.replace("    return", "    getattr(np, 'calls_of_mine', []).append(z.shape)\n    return")
CUDA = 'extern "C" __global__ void relu(const float* z, float* a, int n) {\n%s}\n'
CUDA_RIGHT = CUDA % ("    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) a[i] = z[i] > 0 ? z[i] : 0;\n")


@pytest.fixture
def calls(monkeypatch) -> list:
    monkeypatch.setattr(np, "calls_of_mine", [], raising=False)
    return np.calls_of_mine


def keep(operation, name, text, block=None, seconds=None):
    """Check here, in this process, and keep what is right, as an exercise does."""
    launch = {"block": list(block)} if block else None
    verdict = kept_kernels.check(operation.name, name, text, launch)
    if verdict:
        kept_kernels.keep(operation, name, text, launch, seconds)
    return verdict


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_right_kernel_is_kept(my_kernels):
    assert kept_kernels.progress() == {}
    verdict = keep(sigmoid, "numpy", RIGHT, seconds=0.25)
    assert verdict and str(verdict).startswith("✓")
    assert names(my_kernels) == ["progress.json", "sigmoid.numpy.py"]
    assert (my_kernels / "sigmoid.numpy.py").read_text() == RIGHT
    entry = kept_kernels.progress()["sigmoid.numpy"]
    assert entry["seconds"] == 0.25 and entry["machine"] and entry["date"]
    assert keep(relu, "loops", "def relu(z):\n    return np.where(z > 0, z, np.float32(0))\n")
    assert set(kept_kernels.progress()) == {"sigmoid.numpy", "relu.loops"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("numpy", WRONG, "wrong"),
        ("numpy", "def sigmoid(a, b):\n    return a\n", "TypeError"),
        ("numpy", "def sigmiod(z):\n    return z\n", "sigmoid"),
        ("numpy", "sigmoid = 3\n", "sigmoid"),
        ("numpy", "", "sigmoid"),
        ("numpy", "def sigmoid(z)\n    return z\n", "SyntaxError"),
        ("numpy", "import no_such_module\n" + RIGHT, "no_such_module"),
        ("numpy", "raise SystemExit\n" + RIGHT, "SystemExit"),
        ("naive", RIGHT, "naive"),
        ("../../numpy", RIGHT, "numpy"),
    ],
)
def test_others_are_not_kept_and_the_verdict_says_why(my_kernels, name, text, said):
    verdict = keep(sigmoid, name, text)
    assert not verdict
    assert said in verdict.line and "\n" not in verdict.line
    assert names(my_kernels) == [] and kept_kernels.progress() == {}


def test_kept_kernels_drive_a_network(calls, rng):
    keep(sigmoid, "numpy", COUNTED)
    network = make_network([2, 3, 1])
    X, Y = rng.normal(size=(4, 2)).astype(np.float32), np.ones((4, 1), np.float32)
    calls.clear()
    network.predict(X, choose("numpy"))
    assert calls == []
    network.predict(X, choose("numpy", mine=True))
    assert calls == [(4, 3), (4, 1)]
    for backend in ("loops", "numba"):
        calls.clear()
        train(network, X, Y, choose(backend, mine=True), epochs=1, batch_size=2)
        assert calls[:4] == [(2, 3), (2, 1)] * 2
    calls.clear()
    network.predict(X, choose("numpy", mine=True, sigmoid="loops"))  # a kernel chosen by name takes precedence
    assert calls == []


# As notebooks 09 and 10 keep them; both say when they are called.
ADAM = """def adam_update(W, G, M, V, rate, c1, c2):
    getattr(np, "calls_of_mine", []).append("adam_update")
    M[...] = 0.9 * M + 0.1 * G
    V[...] = 0.999 * V + 0.001 * G**2
    W -= rate * (M / c1) / (np.sqrt(V / c2) + 1e-8)
    return W, M, V
"""
CONVOLUTION = """def convolution_forward(A, W, b, stride, before, after):
    getattr(np, "calls_of_mine", []).append("convolution_forward")
    k = W.shape[-1]
    P = np.pad(A, ((0, 0), (0, 0), (before, after), (before, after)))
    windows = np.lib.stride_tricks.sliding_window_view(P, (k, k), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("scyxij,ocij->soyx", windows, W) + b[:, None, None]
"""
DIGITS_CNN = "image1x8x8,conv4x2same,conv4x2same,pool4,16,10"
A_STEP = ["convolution_forward", "convolution_forward", "adam_update"]


def test_kernels_of_notebooks_09_and_10_train_the_digits_cnn(calls):
    """As notebook 11 does; the course's kernels, step by step, come to the same weights."""
    for verdict in keep(adam_update, "numpy", ADAM), keep(convolution_forward, "numpy", CONVOLUTION):
        assert verdict, str(verdict)
    backend = choose("numpy", mine=True)
    assert {name for name, note in backend.notes.items() if note == "yours"} == {"adam_update", "convolution_forward"}
    digits = datasets.load("digits")
    X, Y = digits.images[:80], digits.Y[:80]
    ours, yours = (make_network(DIGITS_CNN, "relu", "categorical_cross_entropy", seed=1) for _ in range(2))
    learning = {"epochs": 2, "batch_size": 32, "learning_rate": 0.01, "seed": 1}
    calls.clear()
    train(ours, X, Y, by_steps("numpy"), optimizer=Adam(), **learning)
    assert calls == []
    history = train(yours, X, Y, backend, optimizer=Adam(), **learning)
    assert history.plan == "operations"
    assert calls[: 4 * 3] == 4 * A_STEP  # one step before the clock starts, then an epoch's
    assert calls.count("adam_update") == 1 + 2 * 3
    before = make_network(DIGITS_CNN, "relu", "categorical_cross_entropy", seed=1).flat_parameters
    moved = yours.flat_parameters - before
    np.testing.assert_allclose(moved, ours.flat_parameters - before, atol=1e-3 * np.abs(moved).max())


@pytest.mark.parametrize("fast", ("loops", "numpy"))
def test_the_fastest_is_taken(fast):
    for name in ("loops", "numpy", "numba"):
        keep(sigmoid, name, RIGHT, seconds={fast: 0.001, "numba": None}.get(name, 0.1))
    kernels, refused = kept_kernels.fastest(operations(), "cpu")
    assert [(kernel.operation.name, kernel.name) for kernel in kernels.values()] == [("sigmoid", fast)] and not refused
    assert kept_kernels.fastest(operations(), "gpu") == ({}, {})


def test_of_several_that_cannot_be_used_the_fastest_is_named(my_kernels):
    for name, seconds in (("numpy", 0.1), ("loops", 0.3)):
        keep(sigmoid, name, RIGHT, seconds=seconds)
        (my_kernels / f"sigmoid.{name}.py").unlink()
    refused = {"sigmoid": "yours is not used: sigmoid (numpy): sigmoid.numpy.py is gone"}
    assert kept_kernels.fastest(operations(), "cpu") == ({}, refused)


def test_a_changed_file_is_checked_again(my_kernels, calls, monkeypatch):
    keep(sigmoid, "numpy", RIGHT)
    judged = []
    really = kept_kernels.judged
    monkeypatch.setattr(kept_kernels, "judged", lambda *given: judged.append(given) or really(*given))
    changed = COUNTED + "# changed, and still right\n"
    (my_kernels / "sigmoid.numpy.py").write_text(changed)
    backend = choose("numpy", mine=True)
    assert backend.notes["sigmoid"] == "yours"
    assert [given[2] for given in judged] == [changed]
    backend.sigmoid(np.zeros(7, np.float32))
    assert calls == [(7,)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda path: path.write_text(WRONG), "wrong"),
        (lambda path: path.write_text("def other(z):\n    return z\n"), "sigmoid"),
        (lambda path: path.write_text("def sigmoid(z: return"), "SyntaxError"),
        (lambda path: path.write_bytes(b"\xff\xfe\0"), "not text"),
        (lambda path: path.unlink(), "gone"),
    ],
    ids=("wrong", "other function", "no Python", "no text", "gone"),
)
def test_a_file_that_is_no_longer_right_is_not_used_and_that_is_said(my_kernels, change, said):
    keep(sigmoid, "numpy", RIGHT)
    change(my_kernels / "sigmoid.numpy.py")
    backend = choose("numpy", mine=True)
    assert backend.kernels["sigmoid"] is sigmoid["numpy"]
    assert said in backend.notes["sigmoid"] and "not used" in backend.notes["sigmoid"]
    keep(sigmoid, "loops", RIGHT)
    assert choose("numpy", mine=True).notes["sigmoid"] == "yours", "another kernel of yours takes its place"


def test_a_changed_file_that_never_ends_is_given_up(my_kernels, monkeypatch):
    keep(sigmoid, "numpy", RIGHT)
    (my_kernels / "sigmoid.numpy.py").write_text("def sigmoid(z):\n    while True:\n        pass\n")
    monkeypatch.setattr(kept_kernels, "TIME_LIMIT", 1.0)
    assert "did not end within 1 s" in choose("numpy", mine=True).notes["sigmoid"]


def test_a_function_may_have_any_name_if_it_is_alone(my_kernels):
    kernel = kept_kernels.build(relu, "naive", CUDA_RIGHT.replace("relu(", "my_relu("), {"block": [64]})
    assert kernel.entry == "my_relu"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"3", b"\xff\xfe", b'[["a", 1]]', b'{"sigmoid.numpy": 5}', b"[" * 10**5,
        b'{"sigmoid.numpy": {"seconds": "fast"}}', b'{"sigmoid.naive": {"launch": {"block": 256}}}',
        b'{"sigmoid.naive": {"launch": {"block": ["x"]}}}', b'{"sigmoid.naive": {"launch": 3}}',
    ],
)  # fmt: skip
def test_a_damaged_record_gets_one_line_and_nothing_is_written(my_kernels, content):
    my_kernels.mkdir()
    (my_kernels / "progress.json").write_bytes(content)
    for attempt in (lambda: choose("numpy", mine=True), lambda: keep(sigmoid, "numpy", RIGHT)):
        with pytest.raises(CourseError, match="progress.json") as caught:
            attempt()
        assert "\n" not in str(caught.value)
    assert names(my_kernels) == ["progress.json"]
    assert choose("numpy").kernels["sigmoid"].name == "numpy"


@pytest.mark.parametrize("key", ("no_such.numpy", "sigmoid", "sigmoid.no_such", "", "../sigmoid.numpy"))
def test_records_of_what_is_no_longer_there_are_passed_over(my_kernels, key):
    my_kernels.mkdir()
    (my_kernels / "progress.json").write_text(json.dumps({key: {}}))
    assert "yours" not in choose("numpy", mine=True).notes.values()


def test_a_failed_write_leaves_the_record_whole(my_kernels, monkeypatch):
    keep(sigmoid, "numpy", RIGHT)
    before = (my_kernels / "progress.json").read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(errors.os, "replace", full)
    with pytest.raises(CourseError, match="No space left"):
        keep(sigmoid, "loops", RIGHT)
    assert (my_kernels / "progress.json").read_text() == before
    assert names(my_kernels) == ["progress.json", "sigmoid.numpy.py"]


def test_a_cupy_exercise_is_checked_with_numpy_where_there_is_no_gpu(my_kernels):
    assert keep(dense_forward, "cupy", "def dense_forward(A, W, b):\n    return xp.dot(A, W.T) + b\n")
    assert names(my_kernels) == ["dense_forward.cupy.py", "progress.json"]
    assert choose("numpy", mine=True).kernels["dense_forward"].name == "numpy"  # it is a kernel for the GPU


class TestCuda:
    @pytest.fixture(autouse=True)
    def emulator(self):
        if not device.gpu_available() and emulate.why_not():
            pytest.skip(emulate.why_not())

    def test_cuda_c_is_kept_and_used(self, my_kernels):
        assert keep(relu, "naive", CUDA_RIGHT, block=(64,))
        assert names(my_kernels) == ["progress.json", "relu.naive.cu"]
        on_cpu = choose("numpy", mine=True)
        assert on_cpu.kernels["relu"].name == "numpy"
        assert device.gpu_available() or "needs a GPU" in on_cpu.notes["relu"]
        backend = choose("cuda", mine=True, emulate=True)
        assert backend.notes["relu"] == "yours"
        assert backend.kernels["relu"].block == (64,)
        z = np.linspace(-1, 1, 100, dtype=np.float32)
        np.testing.assert_array_equal(backend.relu(z), np.maximum(z, 0))

    @pytest.mark.parametrize(
        ("body", "block"),
        [
            ("    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) a[i] = z[i];\n", (64,)),
            ("    a[threadIdx.x] = 0\n", (64,)),
            ("    a[blockIdx.x * blockDim.x + threadIdx.x] = 0;\n", (64,)),
            ("", (64,)),
            ("", (4096,)),
        ],
        ids=("wrong", "no C", "no guard", "empty", "block too large"),
    )
    def test_wrong_cuda_c_is_not_kept(self, my_kernels, body, block):
        assert not keep(relu, "naive", CUDA % body, block=block)
        assert names(my_kernels) == []

    def test_a_kept_kernel_of_the_gpu_drives_a_network(self, gpu, my_kernels):
        assert keep(relu, "naive", CUDA_RIGHT, block=(64,))
        assert keep(dense_forward, "cupy", "def dense_forward(A, W, b):\n    return xp.dot(A, W.T) + b\n")
        backend = choose("cuda", mine=True)
        assert {name for name, note in backend.notes.items() if note == "yours"} == {"relu", "dense_forward"}
        network = make_network([2, 8, 1], "relu")
        X = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
        wanted = network.predict(X, choose("numpy"))
        np.testing.assert_allclose(network.predict(X, backend).get(), wanted, rtol=1e-4, atol=1e-5)


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A function that puts the package into a folder of a server on which only Ana's home is writable."""
    monkeypatch.delenv("NNCOURSE_MY_KERNELS")
    monkeypatch.setenv("HOME", str(tmp_path / "home" / "ana"))
    writable = [tmp_path / "home" / "ana"]
    monkeypatch.setattr(kept_kernels.os, "access", lambda path, mode: any(w in (path, *path.parents) for w in writable))

    def put(name: str, can_be_written: bool = False):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        monkeypatch.setattr(language, "ROOT", folder)
        if folder.name == "site-packages":  # a wheel
            monkeypatch.setattr(language, "COURSE", language.SHIPPED)
        if can_be_written:
            writable.append(folder)
        return folder

    return put


@pytest.mark.parametrize(
    ("where", "folder"),
    [
        ("home/ana/course", "home/ana/course/my_kernels"),
        ("srv/course", "home/ana/my_kernels"),  # a course for all
        ("home/ana/.venv/lib/python3.12/site-packages", "home/ana/my_kernels"),
    ],
)
def test_kernels_are_kept_beside_a_course_of_ones_own_or_at_home(course, tmp_path, where, folder):
    there = course(where)
    assert kept_kernels.folder() == tmp_path / folder
    (there / "my_kernels").mkdir()  # by whoever set the course up
    assert kept_kernels.folder() == tmp_path / folder


def test_a_named_folder_for_kernels_comes_first(course, tmp_path, monkeypatch):
    course("srv/course", can_be_written=True)
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", str(tmp_path / "elsewhere"))
    assert kept_kernels.folder() == tmp_path / "elsewhere"
    monkeypatch.setenv("NNCOURSE_MY_KERNELS", "")
    assert kept_kernels.folder() == tmp_path / "srv" / "course" / "my_kernels"


@pytest.mark.parametrize(("unset", "said_by"), [(True, "emulator"), (False, "gpu")])
def test_where_a_gpu_finds_wrong_values_the_emulator_says_whether_something_was_not_set(unset, said_by, monkeypatch):
    def check(operation, kernel, device, **_):
        return Verdict("relu", "naive", "wrong value", {"by": device, "unset": unset and device == "emulator"})

    monkeypatch.setattr(device, "gpu_available", lambda: True)
    monkeypatch.setattr(emulate, "why_not", lambda: None)
    monkeypatch.setattr("nnclassroom.judge.check.check", check)
    assert kept_kernels.check("relu", "naive", CUDA_RIGHT, {"block": [64]}).facts["by"] == said_by


COMPILES = """
def relu(z):
    a = z.copy()
    for place in np.ndindex(a.shape):
        if a[place] < 0:
            a[place] = 0
    return a
"""
COMPILES_NOT = """
def bias_gradient(D):
    return np.array([sum(column) / len(D) for column in D.T.tolist()], D.dtype)  # Numba knows no tolist()
"""


def test_loops_are_compiled_where_numba_knows_all_that_they_do():
    for operation, text in ((relu, COMPILES), (bias_gradient, COMPILES_NOT)):
        keep(operation, "loops", text, seconds=1.0)
    plain, fast = choose("numpy", mine=True), choose("numpy", mine=True, compiled=True)
    compiled = {name: hasattr(fast.kernels[name].function, "py_func") for name in ("relu", "bias_gradient")}
    assert compiled == {"relu": True, "bias_gradient": False}
    assert not hasattr(plain.kernels["relu"].function, "py_func")
    Z = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    for name in compiled:
        assert fast.kernels[name].name == "loops" and fast.notes[name] == plain.notes[name] == "yours"
        assert np.allclose(getattr(fast, name)(Z), getattr(plain, name)(Z))


PADS = """
def convolution_forward(A, W, b, stride, before, after):
    c_out, _, k, _ = W.shape
    P = np.pad(A, ((0, 0), (0, 0), (before, after), (before, after)))
    h_out, w_out = (P.shape[2] - k) // stride + 1, (P.shape[3] - k) // stride + 1
    Z = np.empty((len(A), c_out, h_out, w_out), A.dtype)
    for s, o, y, x in np.ndindex(Z.shape):
        Z[s, o, y, x] = (P[s, :, y * stride : y * stride + k, x * stride : x * stride + k] * W[o]).sum() + b[o]
    return Z
"""


@pytest.mark.full
def test_loops_that_pad_images_are_compiled_too():
    keep(convolution_forward, "loops", PADS, seconds=1.0)
    own = choose("numpy", mine=True, compiled=True).kernels["convolution_forward"]
    assert hasattr(own.function, "py_func")
    rng = np.random.default_rng(0)
    A, W, b = (rng.standard_normal(shape, np.float32) for shape in ((2, 3, 5, 4), (2, 3, 2, 2), (2,)))
    np.testing.assert_allclose(own(A, W, b, 1, 0, 1), choose("numpy").convolution_forward(A, W, b, 1, 0, 1), atol=1e-5)
