"""Samples that stay on the host: training is the same, whether all are sent at once or batch by batch."""

import numpy as np
import pytest
from refusals import refused
from trainings import by_steps

from nncourse import device
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.loaders import AHEAD, HostSamples, bytes_on_device, in_order, in_turn, placed
from nncourse.model.network import make_network
from nncourse.model.training import train


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def place(request):
    return request.getfixturevalue("gpu") if request.param == "gpu" else "cpu"


def images(dtype, n=50):
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (n, 1, 6, 5))
    return pixels.astype(np.uint8) if dtype == np.uint8 else (pixels / 255).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_each_batch_and_all_at_once_give_the_same_floats(place, dtype):
    given = images(dtype)
    wanted = given.astype(np.float32) / np.float32(255) if dtype == np.uint8 else given
    for send in ("all", "batch"):
        X = placed(given, place, send)
        assert len(X) == 50 and X.shape == (50, 1, 6, 5) and X.dtype == np.float32
        rng = np.random.default_rng(0)
        pieces = [rng.permutation(50)[:8] for _ in range(7)] + [np.arange(3), np.arange(0), slice(2, 9)]
        if send == "all":
            pieces = [piece if isinstance(piece, slice) else device.to_device(piece, place) for piece in pieces]
        found = [device.to_device(part, "cpu").copy() for part in in_turn(X, pieces)]
        assert len(found) == len(pieces)
        for part, piece in zip(found, pieces, strict=True):
            rows = piece if isinstance(piece, slice) else device.to_device(piece, "cpu")
            assert part.dtype == np.float32 and (part == wanted[rows]).all()
        assert (device.to_device(X[4:7], "cpu") == wanted[4:7]).all()


def test_many_batches_on_their_way_do_not_overwrite_what_is_computed_with(place):
    """More steps than places; on a GPU each part is used in a slow kernel before the next is asked for."""
    given = images(np.uint8, 400)
    X = HostSamples(given, place)
    pieces = [np.arange(start, start + 20) for start in range(0, 400, 20)] * 3
    sums = []
    for part in in_turn(X, pieces):
        work = part
        for _ in range(20):
            work = work + 0 * part
        sums.append(work.sum())
    wanted = [(given[piece].astype(np.float32) / np.float32(255)).sum() for piece in pieces]
    assert [float(each) for each in sums] == pytest.approx([float(each) for each in wanted], rel=1e-5)
    assert len(pieces) > AHEAD


@pytest.mark.parametrize("words", ["image1x6x5,conv2x3same,3", "image1x6x5,4,dropout0.3,3"])
def test_whole_trainings_are_the_same_by_either_way(place, words):
    given, trained = images(np.float32), []
    Y = np.eye(3, dtype=np.float32)[np.arange(50) % 3]
    backend = by_steps("numpy" if place == "cpu" else "cupy")
    for X in (given, HostSamples(given, place)):
        network = make_network(words, "relu", "categorical_cross_entropy", seed=1)
        history = train(network, X, Y, backend, epochs=3, batch_size=8, seed=4)
        trained.append((network.flat_parameters, history.costs))
        assert history.plan == "operations"
    assert (trained[0][0] == trained[1][0]).all() and trained[0][1] == trained[1][1]


def test_whole_epochs_at_once_want_all_samples_on_the_device():
    given, Y = images(np.float32), np.eye(3, dtype=np.float32)[np.arange(50) % 3]
    network = make_network("image1x6x5,conv2x3same,3", "relu", "categorical_cross_entropy")
    assert train(network, given, Y, choose("numpy"), epochs=1).plan == "numpy"
    assert train(network, HostSamples(given, "cpu"), Y, choose("numpy"), epochs=1).plan == "gradient"
    history = train(network, HostSamples(given, "cpu"), Y, by_steps("numpy"), epochs=1)
    assert history.plan == "operations" and "batch by batch" in history.note
    with pytest.raises(CourseError, match="leave it out"):
        train(network, HostSamples(given, "cpu"), Y, choose("numpy"), epochs=1, plan="numpy")


def test_the_memory_of_both_ways_is_known():
    given = np.zeros((9_000, 1, 148, 197), np.uint8)
    floats = bytes_on_device(given.view(), 128)
    row = 148 * 197
    assert floats == {"all": 9_000 * 5 * row, "batch": AHEAD * 128 * 5 * row}
    assert bytes_on_device(np.zeros((10, 4), np.float32), 128) == {"all": 160, "batch": AHEAD * 160}


def test_other_types_and_other_ways_are_refused():
    assert "float32 or uint8" in refused(HostSamples, np.zeros((2, 2)), "cpu")
    assert "all, batch" in refused(placed, np.zeros((2, 2), np.float32), "cpu", "some")


@pytest.mark.parametrize("shape", [(7, 8), (7, 6), (7, 5), (4, 2, 3, 2), (3, 1, 1, 1)], ids=str)
def test_rows_in_another_order_are_the_same_bits(shape):
    rng = np.random.default_rng(0)
    X = rng.standard_normal(shape).astype(np.float32)
    X.flat[:3] = np.nan, np.inf, -0.0
    order = rng.permutation(len(X))[:-1]
    for rows in (X, X[:, ..., ::-1], X[1:]):
        places = order % len(rows)
        assert in_order(rows, places).tobytes() == rows[places].tobytes()
