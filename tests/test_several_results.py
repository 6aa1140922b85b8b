"""Operations with several results, new and in place: what check() accepts and rejects, and who else runs them."""

from pathlib import Path

import numpy as np
import pytest

from cuda_on_cpu import emulate
from cuda_on_cpu.text import CudaSource
from nnclassroom.figures import picture
from nnclassroom.judge.check import check
from nnclassroom.timing import anatomy
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial
from nncourse.kernels.update import adam_update
from nncourse.model.network import make_network, training_step
from nncourse.model.optimizers import Adam

needs_emulator = pytest.mark.skipif(emulate.why_not() is not None, reason=str(emulate.why_not()))

TEXT = CudaSource.read(Path(__file__).parent / "cuda" / "several.cu")


def with_split(function: str = "split") -> Operation:
    """Two new results, one of floats and one of integers."""
    own = Operation(
        "split",
        "above = max(x, 0), sign = sign x",
        "x (*n) -> above (*n), sign (*n) int",
        lambda x: (x * (x > 0), np.sign(x)),
        flops=lambda n: 2 * n,
        trial=Trial(edge_cases=("zeros", "large")),
    )
    own.cuda_kernel("naive", TEXT, function)
    return own


def with_decay(function: str = "decay") -> Operation:
    """One result in place and one new result."""

    def reference(V, G, rate):
        V = rate * V + G
        return V, abs(V)

    own = Operation(
        "decay",
        "V ← rate V + G, size = |V|",
        "V (*n), G (*n), rate () -> V (*n), size (*n)",
        reference,
        flops=lambda n: 3 * n,
        trial=Trial(error_scale=lambda V, G, rate: reference(abs(V), abs(G), abs(rate))),
    )
    own.cuda_kernel("naive", TEXT, function)
    return own


def split(x):
    return np.maximum(x, 0), np.sign(x).astype(np.int32)


def decay(V, G, rate):
    V *= np.float32(rate)
    V += G
    return V, abs(V)


def moved(W, G, M, V, rate, c1, c2, copied: str = ""):
    """A step of Adam that leaves the argument named `copied` as it was, and returns a right copy of it."""
    arrays = {"W": W, "M": M, "V": V}
    if copied:
        arrays[copied] = arrays[copied].copy()
    return adam_update["numpy"](arrays["W"], G, arrays["M"], arrays["V"], rate, c1, c2)


# ---- Python kernels


@pytest.mark.parametrize(("own", "right"), [(with_split(), split), (with_decay(), decay), (adam_update, moved)])
def test_right_kernels_are_accepted(own, right):
    verdict = check(own, right)
    assert verdict, str(verdict)


WRONG = {
    "second result wrong": (with_split, lambda x: (split(x)[0], -split(x)[1])),
    "first result wrong": (with_split, lambda x: (split(x)[0] + 1, split(x)[1])),
    "results swapped": (with_split, lambda x: split(x)[::-1]),
    "one result": (with_split, lambda x: split(x)[0]),
    "a tuple of one": (with_split, lambda x: split(x)[:1]),
    "three results": (with_split, lambda x: (*split(x), x)),
    "nothing": (with_split, lambda x: None),
    "nothing for the second": (with_split, lambda x: (split(x)[0], None)),
    "a list": (with_split, lambda x: list(split(x))),
    "an array of both": (with_split, lambda x: np.stack(split(x))),
    "signs as floats": (with_split, lambda x: (split(x)[0], np.sign(x))),
    "shape of the second": (with_split, lambda x: (split(x)[0], split(x)[1].reshape(-1, 1))),
    "in place alone": (with_decay, lambda *a: decay(*a)[0]),
    "in place returned alone, twice": (with_decay, lambda *a: decay(*a)[:1] * 2),
    "swapped in place and new": (with_decay, lambda *a: decay(*a)[::-1]),
    "not in place": (with_decay, lambda V, G, rate: decay(V.copy(), G, rate)),
    "in place, and a copy of before returned": (with_decay, lambda V, G, rate: (V.copy(), decay(V, G, rate)[1])),
    "new result is that of before": (with_decay, lambda V, G, rate: (lambda old: (decay(V, G, rate)[0], old))(abs(V))),
    "first not in place": (lambda: adam_update, lambda *a: moved(*a, copied="W")),
    "second not in place": (lambda: adam_update, lambda *a: moved(*a, copied="M")),
    "third not in place": (lambda: adam_update, lambda *a: moved(*a, copied="V")),
    "second and third swapped": (lambda: adam_update, lambda *a: tuple(moved(*a)[i] for i in (0, 2, 1))),
    "two of three": (lambda: adam_update, lambda *a: moved(*a)[:2]),
    "moves, returns nothing": (lambda: adam_update, lambda *a: moved(*a) and None),
    "changes the gradient": (lambda: adam_update, lambda W, G, *a: (moved(W, G, *a), np.negative(G, out=G))[0]),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_wrong_kernels_are_rejected(mistake):
    operation, wrong = WRONG[mistake]
    verdict = check(operation(), wrong)
    assert not verdict, str(verdict)
    assert "\n" not in verdict.line and "raised" not in verdict.line


# ---- CUDA kernels


SPLITS = ("split", "split_writes_one", "split_leaves_zeros_out", "split_sign_wrong")
DECAYS = ("decay", "decay_not_in_place", "decay_size_of_before")


@needs_emulator
@pytest.mark.parametrize("name", (*SPLITS, *DECAYS))
def test_right_cuda_kernels_are_accepted_and_wrong_ones_rejected(name):
    verdict = check(with_split(name) if name in SPLITS else with_decay(name), "naive", device="emulator")
    assert bool(verdict) == (name in ("split", "decay")), str(verdict)
    assert "compile" not in verdict.line


@needs_emulator
def test_cuda_kernels_return_all_results_and_take_out_as_a_tuple():
    x = np.array([-2, 0, 3], np.float32)
    above, sign = with_split()["naive"](x)
    assert above.tolist() == [0, 0, 3] and sign.tolist() == [-1, 0, 1] and sign.dtype == np.int32
    out = np.full(3, 7, np.float32), np.full(3, 7, np.int32)
    returned = with_split()["naive"](x, out=out)
    assert returned[0] is out[0] and returned[1] is out[1]
    assert out[0].tolist() == [0, 0, 3] and out[1].tolist() == [-1, 0, 1]

    V, G, out = np.array([2, -4], np.float32), np.array([1, 1], np.float32), np.zeros(2, np.float32)
    returned = with_decay()["naive"](V, G, 0.5, out=out)
    assert returned[0] is V and returned[1] is out
    assert V.tolist() == [2, -1] and out.tolist() == [2, 1]


@needs_emulator
@pytest.mark.parametrize(
    "wrong",
    [
        (np.zeros(3, np.float32),),
        np.zeros(3, np.float32),
        (np.zeros(3, np.float32), np.zeros(4, np.int32)),
        (np.zeros(3, np.float32), np.zeros(3, np.float32)),
        (np.zeros(3, np.float32), np.zeros(3, np.int32), np.zeros(3, np.int32)),
        np.zeros((2, 3), np.float32),
    ],
    ids=["one", "no tuple", "shape", "type", "three", "an array of both"],
)
def test_out_that_does_not_fit_the_results_is_refused(wrong):
    with pytest.raises(CourseError):
        with_split()["naive"](np.zeros(3, np.float32), out=wrong)
    with pytest.raises(CourseError):
        with_decay()["naive"](*np.zeros((2, 3), np.float32), 0.5, out=(np.zeros(3, np.float32),))


@needs_emulator
def test_pictures_count_every_result_and_see_that_one_is_wrong():
    seen = picture.show(with_split(), "naive", n=10).accesses
    assert seen.fault is None
    assert (seen["x"].reads > 10, seen["above"].writes, seen["sign"].writes) == (True, 10, 10)
    assert "sign" in picture.show(with_split("split_sign_wrong"), "naive", n=10).accesses.fault
    mixed = picture.show(with_decay(), "naive", n=6).accesses
    assert mixed.fault is None
    assert (mixed["V"].writes, mixed["size"].writes, mixed["G"].reads) == (6, 6, 6)
    in_place = picture.show("adam_update", "naive", n=7).accesses
    assert in_place.fault is None
    assert [in_place[name].writes for name in "WGMV"] == [7, 0, 7, 7]


# ---- a step with calls that are noted, or moved to another device


def a_step(backend, optimizer) -> np.ndarray:
    """The parameters after three steps of `optimizer`."""
    rng, network = np.random.default_rng(3), make_network([4, 5, 2], "tanh")
    X, Y = (rng.random((6, n), dtype=np.float32) for n in (4, 2))
    for _ in range(3):
        training_step(network, X, Y, 0.1, backend, optimizer)
    return network.flat_parameters


def test_calls_of_a_step_hold_the_arguments_as_they_were():
    network, (X, Y) = make_network([4, 2]), np.ones((2, 6, 4), np.float32)
    name, (W, G, rate) = anatomy.calls_of_step(network, X, Y[:, :2], choose("numpy"))[-1]
    assert name == "sgd_update" and W.tobytes() == network.flat_parameters.tobytes()
    training_step(network, X, Y[:, :2], rate, choose("numpy"))
    assert (W - rate * G).tobytes() == network.flat_parameters.tobytes() != W.tobytes()


class Elsewhere:
    """A backend whose arrays lie elsewhere: to_device copies."""

    device = "cpu"
    to_device = staticmethod(np.copy)

    def __getattr__(self, name: str):
        return getattr(choose("numpy"), name)


@pytest.mark.parametrize("moved", [("adam_update",), ("l2_gradient",), ("adam_update", "l2_gradient", "dense_forward")])
def test_operations_in_place_that_are_moved_bring_every_result_back(moved):
    optimizer = Adam(l2=0.01)
    mixed = anatomy.Mixed(moved, gpu=Elsewhere())
    parameters = a_step(mixed, optimizer)
    alone = Adam(l2=0.01)
    assert parameters.tobytes() == a_step(choose("numpy"), alone).tobytes()
    assert all(optimizer.state[name].tobytes() == alone.state[name].tobytes() for name in "MV")
    size = parameters.nbytes
    if moved == ("adam_update",):
        assert (mixed.launches, mixed.sent, mixed.fetched) == (3, [size] * 12, [size] * 9)
    if moved == ("l2_gradient",):
        assert (mixed.launches, mixed.sent, mixed.fetched) == (3, [size] * 6, [size] * 3)


def test_work_of_an_operation_with_several_results_is_counted():
    W, G, M, V = np.zeros((4, 10), np.float32)
    assert adam_update.count(W, G, M, V, 0.1, 0.1, 0.1) == (140, 4 * (40 + 30))
    assert with_split().count(W) == (20, 4 * 30)
