"""ResNets: PyTorch and torchvision as oracles; their names; training, files, words; with statistics over a group."""

import hashlib
import math
import weakref

import numpy as np
import pytest
from finite_differences import compare_gradients
from random_layers import convolution as with_bias
from random_layers import dense
from refusals import refused
from resnet_pytorch import resnet as in_pytorch

from benchmarks import resnet as benchmark
from cuda_on_cpu import emulate
from fused_epochs.architecture import architecture_of
from nncourse import device as devices
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.kernels.libraries import cudnn
from nncourse.model import files
from nncourse.model.image_layers import Dropout, Flatten, GlobalAveragePool, MaxPool
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, backpropagation, make_network, refuse_other_layers, training_step
from nncourse.model.optimizers import SGD
from nncourse.model.residual import BatchNorm, Residual
from nncourse.model.resnet import from_torchvision, resnet, to_torchvision
from nncourse.model.training import History, train
from nncourse.parallel.simulation import simulate

NUMPY = choose("numpy")
PLAIN = choose("numpy", batchnorm_forward="loops")  # without what does it together with ReLU
CROSS = "categorical_cross_entropy"
TURN = StepPosition(seed=1, epoch=1)


def convolution(c_in, c_out, k, activation="", bias=False, **steps):
    return with_bias(c_in, c_out, k, activation, bias, **steps)


def batchnorm(channels, activation=""):
    rng = np.random.default_rng(channels)
    return BatchNorm(rng.uniform(0.5, 2, channels), rng.normal(size=channels), activation)


SAME = {"before": 1, "after": 1}


def mixed() -> dict[str, Network]:
    """Networks for samples of shape (2, 5, 4), in float64."""
    body = [convolution(2, 2, 3, **SAME), batchnorm(2, "relu"), convolution(2, 2, 3, **SAME), batchnorm(2)]
    end = [GlobalAveragePool(), dense(3, 2, "sigmoid")]
    layers = {
        "without a bias": [convolution(2, 3, 3, "tanh"), Flatten(), dense(18, 2)],
        "normalised": [convolution(2, 3, 3), batchnorm(3, "relu"), *end],
        "normalised first": [batchnorm(2, "tanh"), convolution(2, 3, 2), batchnorm(3), *end],
        "behind an activation": [convolution(2, 3, 2, "tanh", True), batchnorm(3, "softplus"), *end],
        "dense, normalised": [Flatten(), dense(40, 3, "identity"), batchnorm(3, "sigmoid"), dense(3, 2)],
        "a block": [Residual(body), convolution(2, 3, 3), batchnorm(3, "relu"), *end],
        "behind a slope": [convolution(2, 2, 3, "tanh", True, **SAME), Residual(body), convolution(2, 3, 3), *end],
        "another shape": [
            Residual(
                [
                    convolution(2, 3, 3, stride=2, **SAME),
                    batchnorm(3, "relu"),
                    convolution(3, 3, 3, **SAME),
                    batchnorm(3),
                ],
                [convolution(2, 3, 1, stride=2), batchnorm(3)],
            ),
            *end,
        ],
        "other blocks": [
            Residual([convolution(2, 2, 3, "tanh", True, **SAME)], [convolution(2, 2, 1, "sigmoid", True)], ""),
            Residual([MaxPool(3, 1, 1), Residual([batchnorm(2)])], activation=""),
            convolution(2, 3, 1),
            *end,
        ],
    }
    return {name: Network(each, "mse", input_shape=(2, 5, 4)) for name, each in layers.items()}


@pytest.mark.parametrize("backend", [NUMPY, PLAIN], ids=["fused", "one by one"])
@pytest.mark.parametrize("name", mixed())
def test_gradients_of_parameters_and_inputs_are_those_of_finite_differences(name, backend, rng):
    options = {"step": 1e-6, "rtol": 2e-5}
    compare_gradients(mixed()[name], rng.normal(size=(3, 2, 5, 4)), rng.random((3, 2)), TURN, backend, **options)


@pytest.mark.parametrize("name", ["normalised", "another shape", "dense, normalised"])
def test_cuda_kernels_compute_the_same_under_the_emulator(name, rng):
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    found = []
    images, targets = rng.normal(size=(3, 2, 5, 4)).astype(np.float32), rng.random((3, 2)).astype(np.float32)
    for backend in (NUMPY, choose("cuda", emulate=True)):
        network = mixed()[name]
        vectors = network.flat_parameters, network.flat_statistics
        network = Network(network.layers, "mse", (2, 5, 4), *(vector.astype(np.float32) for vector in vectors))
        training_step(network, images, targets, 0.1, backend)
        found.append((network.flat_parameters, network.flat_statistics, network.predict(images, backend)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("calls", [NUMPY, PLAIN], ids=["fused", "in parts"])
def test_what_a_shortcut_gave_is_not_held_until_the_way_back(calls, rng):
    given = []

    class Watched:
        def __getattr__(self, name):
            return getattr(calls, name)

        def convolution_forward(self, A, W, *more):
            Z = calls.convolution_forward(A, W, *more)
            given.extend([weakref.ref(Z)] * (W.shape[-1] == 1))  # of the shortcut
            return Z

        def batchnorm_forward(self, A, *more):
            Z = calls.batchnorm_forward(A, *more)
            given.extend([weakref.ref(Z)] * (bool(given) and A is given[0]()))
            return Z

    block = mixed()["another shape"].layers[0]
    here = block.forward(rng.normal(size=(8, 2, 5, 4)), Watched(), TURN)
    assert [each() is not None for each in given] == [True, False]
    assert here.A.shape[1] == 3


@pytest.mark.parametrize("name", ["cuda", "cupy", "cudnn"])
def test_a_resnet_s_outputs_and_its_step_are_the_same_on_a_gpu(name, gpu, rng):
    if name == "cudnn" and (said := cudnn.missing()):
        pytest.skip(said)
    kinds = ("forward", "weight_gradient", "input_gradient")
    chosen = {f"convolution_{kind}": "cudnn" for kind in kinds} if name == "cudnn" else {}
    backend = choose("cupy" if name == "cupy" else "cuda", **chosen)
    images, targets = rng.random((6, 1, 37, 50)).astype(np.float32), np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1, 2]]
    before, *found = (resnet(18, 3, height=37, width=50) for _ in range(3))
    outputs = devices.to_device(before.predict(images, backend), "cpu")
    np.testing.assert_allclose(outputs, before.predict(images, NUMPY), atol=1e-4)
    for network, calls in zip(found, (NUMPY, backend), strict=True):
        train(network, images, targets, calls, epochs=1, batch_size=6, learning_rate=0.02)
    np.testing.assert_allclose(found[1].flat_statistics, found[0].flat_statistics, rtol=1e-3, atol=1e-5)
    moved, apart = (found[0].flat_parameters - other.flat_parameters for other in (before, found[1]))
    assert np.linalg.norm(apart) < 0.05 * np.linalg.norm(moved)  # roundings decide which ReLUs are open


# ---- PyTorch


def state_of(model):
    return {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}


def compared_with(torch, model, depth, classes, channels, rng):
    """Outputs, gradients and running statistics of a model and of our network with its weights, both ways."""
    sides = {"height": 37, "width": 50}
    with torch.no_grad():  # statistics and scales that are not those of the beginning
        for name, tensor in model.state_dict().items():
            if name.endswith(("running_mean", "bias")):
                tensor.normal_(0, 0.1)
            if name.endswith("running_var") or "bn" in name and name.endswith("weight"):
                tensor.uniform_(0.5, 1.5)
    network = from_torchvision(state_of(model), **sides)
    X = rng.random((3, channels, *sides.values())).astype(np.float32)
    labels = rng.integers(0, classes, 3)
    Y = np.eye(classes, dtype=np.float32)[labels]
    model.eval()
    wanted = torch.softmax(model(torch.tensor(X)), dim=1).detach().numpy()
    np.testing.assert_allclose(network.predict(X, NUMPY), wanted, rtol=0, atol=1e-4)

    ours = resnet(depth, classes, channels, seed=5, **sides)
    model.load_state_dict({name: torch.tensor(array) for name, array in to_torchvision(ours).items()})
    wanted = torch.softmax(model(torch.tensor(X)), dim=1).detach().numpy()
    np.testing.assert_allclose(ours.predict(X, NUMPY), wanted, rtol=0, atol=1e-4)

    exact = (vector.astype(np.float64) for vector in (ours.flat_parameters, ours.flat_statistics))
    ours = Network(ours.layers, CROSS, ours.input_shape, *exact)  # else roundings decide which ReLUs are open
    model.train().double()
    torch.nn.functional.cross_entropy(model(torch.tensor(np.float64(X))), torch.tensor(labels)).backward()
    wanted = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
    training_step(ours, np.float64(X), np.float64(Y), 0.0, NUMPY)
    assert np.linalg.norm(ours.flat_gradient - wanted) < 1e-5 * np.linalg.norm(wanted)
    after = state_of(model)
    for name, array in to_torchvision(ours).items():
        if "running" in name:
            np.testing.assert_allclose(array, after[name], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize(("depth", "classes", "channels"), [(18, 5, 3), pytest.param(34, 9, 1, marks=pytest.mark.full)])
def test_outputs_gradients_and_statistics_are_those_of_pytorch(depth, classes, channels, rng):
    torch = pytest.importorskip("torch")
    compared_with(torch, in_pytorch(torch, depth, classes, channels), depth, classes, channels, rng)


@pytest.mark.parametrize("depth", [18, 34])
def test_weights_go_to_torchvision_and_back(depth, rng):
    torch, torchvision = pytest.importorskip("torch"), pytest.importorskip("torchvision")
    model = getattr(torchvision.models, f"resnet{depth}")(num_classes=9)
    compared_with(torch, model, depth, 9, 3, rng)
    network = from_torchvision(state_of(model))
    assert list(to_torchvision(network)) == list(model.state_dict())


def test_a_resnet_34_has_its_parameters_and_names_in_pytorchs_order():
    torch = pytest.importorskip("torch")
    network, model = resnet(), in_pytorch(torch, 34, 9, 1)
    assert network.flat_parameters.size == 21_283_017 == sum(p.numel() for p in model.parameters())
    state = to_torchvision(network)
    assert list(state) == list(model.state_dict())
    assert [array.shape for array in state.values()] == [tuple(t.shape) for t in model.state_dict().values()]
    wide = network.layers[-3].body.layers[0].W  # 512 filters of 512 · 3 · 3
    assert wide.std() == pytest.approx(math.sqrt(2 / (512 * 9)), rel=0.01) and abs(wide.mean()) < 1e-4
    assert network.shapes[0] == (1, 148, 197) and network.shapes[-3] == (512, 5, 7)
    np.testing.assert_array_equal(from_torchvision(state).flat_parameters, network.flat_parameters)


@pytest.mark.parametrize(("depth", "digest"), [(18, "761022b221a39ceb"), (34, "1a060acae7a42530")])
def test_names_and_shapes_are_those_of_torchvision(depth, digest):
    """The digest is of torchvision 0.28.0: a line such as "conv1.weight (64, 3, 7, 7)" for each array."""
    state = to_torchvision(resnet(depth, 1000, 3))
    lines = "".join(f"{name} {array.shape}\n" for name, array in state.items())
    assert hashlib.sha256(lines.encode()).hexdigest().startswith(digest)


def test_states_of_other_models_are_refused_in_one_line():
    state = to_torchvision(resnet(18, height=32, width=32))
    lost = {name: array for name, array in state.items() if name != "layer2.0.downsample.0.weight"}
    shaped = state | {"layer1.1.conv2.weight": np.zeros((64, 64, 1, 1), np.float32)}
    for wrong in ({}, lost, shaped, state | {"more": np.zeros(1)}, {"fc.weight": np.zeros((9, 512))}):
        refused(from_torchvision, wrong)
    refused(to_torchvision, make_network("image1x8x8,conv4x3,5"))
    for wrong in ({"depth": 50}, {"classes": 1}):
        refused(resnet, **wrong)


def test_the_benchmark_takes_the_same_steps_as_torchvision():
    found = benchmark.measure(4, 1, 1, device="cpu", depth=18, sides=(33, 40))
    assert found["steps"][0]["contender"] == benchmark.OURS and len(benchmark.shown(found).splitlines()) >= 4
    if len(found["steps"]) > 1:
        assert found["difference"] < 0.02  # of float32 gradients, where roundings decide which ReLUs are open
    else:
        assert "torch" in found["left_out"][benchmark.PYTORCH]


# ---- training


TINY = "image1x8x8,conv4x3same,batchnorm,pool2,12,batchnorm,3"
DATA = np.random.default_rng(0)
X = DATA.normal(size=(40, 1, 8, 8)).astype(np.float32)
Y = np.eye(3, dtype=np.float32)[np.argmax(X.mean(axis=(1, 3))[:, :3], axis=1)]


def trained(epochs, network=None, optimizer=None, done=0, **options):
    network, optimizer = network or make_network(TINY, "relu", CROSS, seed=1), optimizer or SGD(momentum=0.9)
    options = {"batch_size": 8, "learning_rate": 0.05, "seed": 3} | options
    history = train(network, X, Y, NUMPY, epochs=epochs, optimizer=optimizer, after=History(before=done), **options)
    return network, optimizer, history


def test_it_learns_is_resumed_from_a_file_exactly_and_says_why_no_epoch_is_fused(tmp_path):
    whole, _, history = trained(4)
    assert history.costs[-1] < 0.6 * history.costs[0] and history.plan == "operations"
    assert "step by step" in history.note and "\n" not in history.note
    half, optimizer, _ = trained(1)
    files.save(files.Model(half, optimizer=optimizer), tmp_path / "model.npz")
    model = files.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(model.network.flat_statistics, half.flat_statistics)
    again, _, _ = trained(3, model.network, model.optimizer, done=1)
    np.testing.assert_array_equal(again.flat_parameters, whole.flat_parameters)
    np.testing.assert_array_equal(again.flat_statistics, whole.flat_statistics)


def test_statistics_are_those_before_the_cost_was_no_longer_finite():
    before, _, _ = trained(1, learning_rate=0.05)
    network = make_network(TINY, "relu", CROSS, seed=1)
    _, _, history = trained(3, network, learning_rate=lambda epoch: 0.05 if epoch == 1 else 1e30)
    assert history.stopped and len(history.epochs) == 2
    np.testing.assert_array_equal(network.flat_parameters, before.flat_parameters)
    np.testing.assert_array_equal(network.flat_statistics, before.flat_statistics)


def test_statistics_do_not_change_where_a_network_is_only_used():
    network, _, _ = trained(1)
    kept = network.flat_statistics.copy()
    outputs = network.predict(X, NUMPY)
    np.testing.assert_allclose(network.predict(X[:1], NUMPY), outputs[:1], rtol=1e-5)  # not of this batch
    np.testing.assert_array_equal(network.flat_statistics, kept)
    other = network.on(NUMPY)
    training_step(other, X[:8], Y[:8], 0.1, NUMPY)
    np.testing.assert_array_equal(network.flat_statistics, kept)
    assert not np.array_equal(other.flat_statistics, kept)


def test_files_without_statistics_or_with_wrong_ones_are_refused(tmp_path):
    network, path = make_network(TINY, "relu", CROSS), tmp_path / "model.npz"
    files.save(files.Model(network), path)
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    size = network.flat_statistics.size
    assert size == 2 * (4 + 12)
    for statistics in (None, np.zeros(size + 1, "f"), np.zeros(size - 1, "f"), np.full(size, np.nan, "f")):
        changed = {name: array for name, array in arrays.items() if name != "statistics"}
        np.savez(path, **changed, **({} if statistics is None else {"statistics": statistics}))
        refused(files.load, path)


def test_a_resnet_in_words_is_the_same_network(tmp_path):
    network = make_network("image3x40x33,resnet18,7", "relu", CROSS)
    made = resnet(18, 7, 3, height=40, width=33)
    assert network.in_words == made.in_words == "image3x40x33,resnet18,7"
    assert [layer.describe() for layer in network.layers] == [layer.describe() for layer in made.layers]
    refuse_other_layers(made, "image3x40x33,resnet18,7", "the model's layers")
    for other in ("image3x40x33,resnet34,7", "image3x40x33,conv64x7p3s2,batchnorm,7"):
        refused(refuse_other_layers, made, other, "the model's layers")
    with pytest.raises(CourseError) as caught:
        architecture_of(network)
    assert "\n" not in str(caught.value)


def test_dropout_in_the_shortcut_draws_other_numbers_than_that_in_the_body():
    block = Residual([Dropout(0.5)], [Dropout(0.5)], "")
    A = block.forward(np.ones((4, 50), np.float32), NUMPY, TURN).A
    assert set(A.ravel().tolist()) == {0, 2, 4}  # kept by neither, by one, by both


# ---- over a group


@pytest.mark.parametrize("cuts", [(0, 3, 8), (0, 1, 3, 8)], ids=["3 and 5 rows", "1, 2 and 5 rows"])
def test_members_of_a_group_compute_what_one_computes_with_all_rows(cuts, rng):
    whole = mixed()["another shape"]
    images, targets = 30 + rng.normal(size=(8, 2, 5, 4)), rng.random((8, 2))
    wanted = np.concatenate([a.ravel() for of in backpropagation(whole, images, targets, NUMPY, TURN) for a in of])

    def part(group):
        network, rows = mixed()["another shape"], slice(cuts[group.rank], cuts[group.rank + 1])
        found = backpropagation(network, images[rows], targets[rows], NUMPY, TURN._replace(group=group))
        gradient = np.concatenate([a.ravel() for of in found for a in of])
        return gradient * (rows.stop - rows.start) / 8, network.flat_statistics

    gradients, statistics = zip(*simulate(part, len(cuts) - 1).results, strict=True)
    np.testing.assert_allclose(sum(gradients), wanted, rtol=1e-9, atol=1e-12)
    for found in statistics:
        np.testing.assert_array_equal(found, statistics[0])
        np.testing.assert_allclose(found, whole.flat_statistics, rtol=1e-9)
    assert not np.allclose(whole.flat_statistics, mixed()["another shape"].flat_statistics)
