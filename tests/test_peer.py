"""The all-reduce inside running kernels: 2 and 4 devices on the emulator, its wrong versions, and real GPUs."""

import re
from dataclasses import replace

import numpy as np
import pytest
from epoch_networks import mistakes
from refusals import refused

from benchmarks import all_reduce as benchmark
from cuda_on_cpu import emulate
from cuda_on_cpu.faults import EmulationError
from cuda_on_cpu.nvrtc import compile_check, why_no_nvrtc
from fused_epochs import dense_peers
from fused_epochs.all_reduce import WAYS, GPUs, Simulated, after_rounds, peer_sum, source, way_for
from nnclassroom.judge.check import check
from nncourse import device as devices
from nncourse.errors import CourseError
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch, random_targets
from tests.tiers import many

needs_emulator = pytest.mark.skipif(emulate.why_not() is not None, reason=str(emulate.why_not()))


needs_gpus = pytest.mark.usefixtures("gpus")


def numbers(size: int, n: int, seed: int = 0) -> np.ndarray:
    """Numbers of very different sizes, so that the order of additions decides on the last bits."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((size, n)) * 10.0 ** rng.integers(-3, 4, (size, n))).astype(np.float32)


def same_bits(got: np.ndarray, wanted: np.ndarray) -> bool:
    return np.array_equal(got.view(np.int32), wanted.view(np.int32))


def reduced(peers: Simulated, V: np.ndarray, way: str, rounds: int = 1, **options) -> np.ndarray:
    S = V.copy()
    peers.all_reduce(S, way, rounds, **options)
    return S


def complaint(peers: Simulated, way: str) -> str:
    """What is wrong with a way of the all-reduce; "" if nothing is. Several launches use the same memory."""
    for turn, (order, races) in enumerate((o, r) for o in emulate.ORDERS for r in (False, True)):
        for n, rounds in ((1, 2), (2, 1), (75, 1), (130, 4), (301, 3)):
            V = numbers(peers.size, n, n + turn)
            try:
                S = reduced(peers, V, way, rounds, order=order, races=races, seed=turn)
            except (EmulationError, CourseError) as error:
                return str(error)
            if not same_bits(S, np.array(after_rounds(V, rounds))):
                return f"wrong sums ({order}, {n} numbers, {rounds} rounds)"
    return ""


@needs_emulator
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_every_device_gets_the_sum_in_the_order_of_the_devices_bit_for_bit(way, size):
    assert complaint(Simulated(size), way) == ""


@needs_emulator
def test_three_devices_and_another_shape_of_launch_on_the_same_memory():
    peers = Simulated(3)
    for way, shape in zip(WAYS * 2, [(1, 64), (3, 32), (2, 96), (4, 32), (1, 32), (5, 64)], strict=True):
        V = numbers(3, 333)
        assert same_bits(reduced(peers, V, way, shape=shape, order="shuffled"), np.array(after_rounds(V, 1)))


@needs_emulator
@pytest.mark.parametrize("way", WAYS)
def test_a_device_that_does_not_come_is_named_and_nobody_waits_for_ever(way):
    peers = Simulated(4)
    with pytest.raises(CourseError, match=r"device [012] expected the numbers of device 3, which did not come in time"):
        peers.all_reduce(numbers(4, 40), way, present=3)
    with pytest.raises(CourseError, match="did not come in time"):  # what was in memory is of no use any more
        peers.all_reduce(numbers(4, 40), way)


@needs_emulator
@pytest.mark.parametrize("way", WAYS)
def test_the_judge_finds_each_way_right(way):
    verdict = check(peer_sum, way)
    assert verdict.kind == "right", str(verdict)


def test_after_rounds_is_the_sum_after_one():
    V = numbers(4, 100)
    for row in after_rounds(V, 1):
        assert same_bits(row, ((V[0] + V[1]) + V[2]) + V[3])
    first, second = after_rounds([np.float32([1, 2]), np.float32([3, 4])], 2)
    # (1 + 3) / 2 + 1 and (1 + 3) / 2 + 2 are added: 3 + 4
    assert first.tolist() == second.tolist() == [3 + 4, 4 + 5]


# ---- wrong versions

WRONG = mistakes("epochs/all_reduce")


@needs_emulator
@pytest.mark.parametrize("mistake", many(WRONG, operation="peer_sum"))
def test_wrong_versions_are_rejected(mistake):
    right, wrong, way, said = WRONG[mistake]
    peers = Simulated(4)
    assert right in peers.source.text
    peers.source = replace(peers.source, text=peers.source.text.replace(right, wrong))
    found = complaint(peers, way)
    assert re.search(said, found), found


# ---- choices and refusals


def test_few_numbers_travel_as_words_and_many_in_pieces():
    assert [way_for(n, 2, 1 << 18) for n in (1, 2_500, 141_000, 1_048_576)] == ["words", "words", "words", "pieces"]
    assert way_for(141_000, 8, 1 << 18) == "pieces"
    assert way_for(2_500, 2, 2_000) == "pieces", "there is no room for so many words"


@needs_emulator
def test_refusals():
    assert "expected at least 2 devices, got 1" in refused(Simulated, 1)
    peers = Simulated(2, most=8)
    peers.all_reduce(np.zeros((2, 0), np.float32))  # nothing to do
    assert "a vector for each of 2 devices, got 3" in refused(peers.all_reduce, numbers(3, 5))
    assert "expected at most 8 numbers, got 9; take pieces" in refused(peers.all_reduce, numbers(2, 9), "flags")
    assert "flags" in refused(peers.all_reduce, numbers(2, 9), "flag")


@pytest.mark.skipif(why_no_nvrtc() is not None, reason=str(why_no_nvrtc()))
@pytest.mark.parametrize("size", [2, 4])
def test_compiles_for_a_gpu_with_room_for_all_threads(size):
    found = compile_check(source(size))
    assert set(found) == set(WAYS)
    assert all(used.spill_bytes == 0 for used in found.values())
    assert all(found[way].registers * threads <= 65_536 for way, threads in zip(WAYS, (1024, 1024, 512), strict=True))


# ---- training

A_NETWORK = DenseArchitecture((9, 7, 3), ("tanh", "softmax"), "categorical_cross_entropy")
OTHERS = (
    DenseArchitecture((4, 3), ("identity",), "mae"),
    DenseArchitecture((33, 17, 6, 1), ("sigmoid", "softplus", "sigmoid"), "binary_cross_entropy"),
    DenseArchitecture((6, 140, 3), ("tanh", "softmax"), "mse"),
)


def of_a_network(n: int, network: DenseArchitecture = A_NETWORK) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng, sizes = np.random.default_rng(1), network.contract_sizes
    parameters = (0.5 * rng.standard_normal(sizes["p"])).astype(np.float32)
    X = rng.standard_normal((n, sizes["n_in"])).astype(np.float32)
    return parameters, X, random_targets(rng, (n, sizes["n_out"]))


@needs_emulator
@pytest.mark.parametrize(("size", "network"), [(2, A_NETWORK), (3, A_NETWORK), *((2, other) for other in OTHERS)])
@pytest.mark.parametrize("large", [0, dense_peers.LARGE], ids=["4 × 4 sums", "2 × 2 sums"])
def test_devices_that_share_each_batch_train_as_one(size, network, large, monkeypatch):
    monkeypatch.setattr(dense_peers, "LARGE", large)
    parameters, X, Y = of_a_network(21, network)  # the last batch has one row: some devices have none
    in_double = (array.astype(float) for array in (X, Y))
    alone = dense_sgd_epoch.reference(parameters.astype(float), network, *in_double, 5, 0.3)
    own = [parameters.copy() for _ in range(size)]
    dense_peers.epoch_function(Simulated(size), own, network, [X] * size, [Y] * size, 5, 0.3)()
    assert all(same_bits(other, own[0]) for other in own)
    assert np.abs(own[0] - alone).max() < 1e-5 < np.abs(alone - parameters).max()


@pytest.mark.skipif(why_no_nvrtc() is not None, reason=str(why_no_nvrtc()))
@pytest.mark.parametrize("side", dense_peers.SOURCES)
def test_training_compiles_and_all_sums_lie_in_registers(side):
    assert all(used.spill_bytes == 0 for used in compile_check(dense_peers.SOURCES[side]).values())


def test_training_wants_arrays_for_each_device():
    parameters, X, Y = of_a_network(3)
    with pytest.raises(CourseError, match="for each of 2 devices; got 2, 1, 2"):
        dense_peers.epoch_function(Simulated(2), [parameters] * 2, A_NETWORK, [X], [Y] * 2, 5, 0.3)


# ---- real GPUs


@needs_gpus
def test_gpus_that_share_each_batch_train_as_one():
    import cupy

    size = min(4, devices.gpu_count())
    numbers_of = of_a_network(210)
    alone = dense_sgd_epoch["numpy"](numbers_of[0].copy(), A_NETWORK, *numbers_of[1:], 32, 0.3)
    arrays = []
    for device in range(size):
        with cupy.cuda.Device(device):
            arrays.append([cupy.asarray(array) for array in numbers_of])
    parameters, X, Y = zip(*arrays, strict=True)
    peers = GPUs(range(size), most=1 << 12)
    dense_peers.epoch_function(peers, parameters, A_NETWORK, X, Y, 32, 0.3)()
    peers.refuse_missed()
    found = [own.get() for own in parameters]
    assert all(same_bits(other, found[0]) for other in found)
    assert np.abs(found[0] - alone).max() < 1e-5 < np.abs(alone - numbers_of[0]).max()


@needs_gpus
@pytest.mark.parametrize("n", [1, 7, 2_500, 26_594, 300_001])
@pytest.mark.parametrize("way", WAYS)
def test_gpus_get_the_same_bits(way, n):
    import cupy

    size = min(4, devices.gpu_count())
    peers, V = GPUs(range(size), most=1 << 19), numbers(size, n)
    for rounds in (1, 2, 50):
        vectors = []
        for device, row in enumerate(V):
            with cupy.cuda.Device(device):
                vectors.append(cupy.asarray(row))
        peers.all_reduce(vectors, way, rounds)
        peers.refuse_missed()
        wanted = after_rounds(V, rounds)
        assert all(same_bits(vector.get(), row) for vector, row in zip(vectors, wanted, strict=True))


@needs_gpus
def test_gpus_refuse_vectors_elsewhere_and_of_other_sizes():
    import cupy

    peers = GPUs([0, 1], most=64)
    here = [cupy.zeros(8, np.float32), cupy.zeros(8, np.float32)]
    assert "a vector on each of the GPUs (0, 1)" in refused(peers.all_reduce, here)


@pytest.mark.parametrize("way", WAYS)
def test_one_gpu_plays_four(way, gpu):
    import cupy

    peers, V = Simulated(4, like=cupy), numbers(4, 3_001)
    for rounds in (1, 30):
        vectors = cupy.asarray(V)
        peers.all_reduce(vectors, way, rounds, shape=(8, 128))
        assert same_bits(vectors.get(), np.array(after_rounds(V, rounds)))


# ---- the benchmark's arithmetic


def test_the_fit_finds_latency_and_bandwidth():
    records = [
        {"devices": 2, "contender": "a", "n": n, "seconds": 3e-6 + 2e-11 * n} for n in (2_500, 141_000, 21_282_121)
    ]
    (fit,) = benchmark.fits(records)
    assert fit["alpha"] == pytest.approx(3e-6) and fit["beta"] == pytest.approx(2e-11)
    shown = benchmark.table({"records": records, "fits": [fit], "left_out": {"4 GPUs": "there are 2"}})
    assert "428.6" in shown and "200.0" in shown and "left out: 4 GPUs: there are 2" in shown


def test_a_wrong_sum_ends_the_benchmark():
    class OnGpu(np.ndarray):
        def get(self):
            return np.asarray(self)

    numbers_ = [np.float32([1, 2]), np.float32([3, 4])]
    right, wrong, close = (np.float32(row).view(OnGpu) for row in ([4, 6], [4, 7], [4, np.nextafter(np.float32(6), 9)]))
    assert benchmark.refuse_wrong([right, right], np.float32([4, 6]), numbers_, "x, ") == 0
    with pytest.raises(benchmark.WrongSumError, match="an error of 1"):
        benchmark.refuse_wrong([wrong, wrong], np.float32([4, 6]), numbers_, "x, ")
    with pytest.raises(benchmark.WrongSumError, match="same bits"):
        benchmark.refuse_wrong([right, close], np.float32([4, 6]), numbers_, "x, ")
