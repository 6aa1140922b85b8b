"""network_gradient: its reference against PyTorch, kernels that keep their arrays, parts and threads, and mistakes."""

import tracemalloc
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from epoch_networks import (
    CROSS,
    DIGITS,
    mistakes,
    mutant,
    rejected,
    takes_the_first_of_equals,
)
from epoch_networks import NETWORKS as CONVOLUTIONAL
from trainings import by_steps

from fused_epochs import convolutional_loops, gradient_compiled, gradient_cpu, gradient_loops
from fused_epochs.architecture import (
    ChainArchitecture,
    Filters,
    Neurons,
    Windows,
    architecture_of,
    chain_of,
    chain_of_dense,
    is_chain,
)
from fused_epochs.gradient import gradient_of, network_gradient
from nnclassroom.judge import check
from nncourse import threads
from nncourse.backend import choose
from nncourse.errors import CourseError
from nncourse.model.network import make_network
from nncourse.model.optimizers import OPTIMIZERS, SGD, Adam
from nncourse.model.training import History, train

LENET = "image1x14x12,conv4x5same,pool2,conv5x3,pool2,7,3"
HIDDEN = ("identity", "step", "sigmoid", "tanh", "relu", "leaky_relu", "softplus")
kernels = pytest.mark.parametrize("kernel", ["numpy", "numba"])


def example(words, rows, activation="tanh", cost=CROSS, seed=0):
    """A network, X and Y, one class a sample."""
    network, rng = make_network(words, activation, cost, seed=seed + 1), np.random.default_rng(seed)
    X = rng.standard_normal((rows, *network.input_shape), dtype=np.float32)
    return network, X, np.eye(network.sizes[-1], dtype=np.float32)[rng.integers(0, network.sizes[-1], rows)]


def gradient_by(kernel, network, X, Y):
    flat = X.reshape(len(X), -1)
    return network_gradient[kernel](network.flat_parameters, chain_of(network), flat, Y)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-6)


# ---- the architecture


def test_shapes_parameters_and_flops():
    network = make_network(LENET)
    found = chain_of(network)
    assert found.maps == ((1, 14, 12), (4, 14, 12), (4, 7, 6), (5, 5, 4), (5, 2, 2), (7,), (3,))
    assert found.weights == ((4, 1, 5, 5), (5, 4, 3, 3), (7, 20), (3, 7))
    assert found.shapes[1] == found.shapes[3] == () and found.names == ("sigmoid",) * 4
    assert found.contract_sizes == {"p": network.flat_parameters.size, "n_in": 168, "n_out": 3}
    products = [4 * 25 * 168, 5 * 36 * 20, 7 * 20, 3 * 7]
    assert found.flops_a_sample == 6 * sum(products) - 2 * products[0]
    assert str(found) == f"{LENET} sigmoid sigmoid sigmoid sigmoid mse"
    assert found.dense is None and found.convolutional is None
    arrays = [part for pair in found.views(network.flat_parameters) for part in pair]
    for one, other in zip(arrays, network.parameters, strict=True):
        assert np.shares_memory(one, other) and one.shape == other.shape


def test_an_architecture_for_fused_epochs_is_the_same_network():
    for found in (DIGITS, *CONVOLUTIONAL):
        assert found.chain.convolutional == found and str(found.chain) == str(found)
    dense = architecture_of(make_network([4, 3, 2]))
    assert chain_of_dense(dense).dense == dense and str(chain_of_dense(dense)) == "4,3,2 sigmoid sigmoid mse"
    assert chain_of(make_network("image1x4x4,3,2")).convolutional.sizes == (3, 2)


@pytest.mark.parametrize(
    "words", ["image1x8x8,conv2x3,pool2s1,3", "image1x8x8,averagepool2,3", "image1x8x8,dropout0.1,3", "4,dropout0.2,3"]
)
def test_other_layers_have_no_such_architecture(words):
    assert is_chain(make_network(words)) is False


# ---- the reference


def by_pytorch(torch, network, parameters, X, Y):
    """gradient_by_pytorch() for networks with pools after any convolution."""
    functions, cost = torch.nn.functional, network.cost
    parameters, A, Y = (torch.tensor(array, dtype=torch.float64) for array in (parameters, X, Y))
    parameters.requires_grad_()
    weighted = iter(zip(network.views(parameters), network.names, strict=True))
    for layer in network.layers:
        if isinstance(layer, Windows):
            A = functions.max_pool2d(A, layer.size)
            continue
        (W, b), name = next(weighted)
        if isinstance(layer, Filters):
            Z = functions.conv2d(functions.pad(A, (layer.before, layer.after) * 2), W, b, layer.stride)
        else:
            Z = A.flatten(1) @ W.T + b
        A = torch.softmax(Z, 1) if name == "softmax" else getattr(torch, name)(Z)
    assert cost == CROSS
    (functions.cross_entropy(Z, Y, reduction="sum") / len(Y)).backward()
    return parameters.grad.numpy()


@pytest.mark.parametrize("words", [LENET, "image2x9x9,pool2,conv3x2s2,pool2,conv2x1,4,3", "image3x7x6,conv2x3,3"])
def test_the_reference_is_pytorchs_gradient(words):
    torch = pytest.importorskip("torch")
    network, X, Y = example(words, 4)
    given = network.flat_parameters.astype(np.float64), X.astype(np.float64), Y.astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = by_pytorch(torch, chain_of(network), *given)
    np.testing.assert_allclose(gradient_of(given[0], chain_of(network), *given[1:]), expected, rtol=1e-9, atol=1e-12)


# ---- what a kernel keeps from step to step


@kernels
@pytest.mark.parametrize(
    "words", [LENET, "168,40,20,3", "168,9,3", "image1x14x12,conv4x2same,pool4,3", "image1x14x12,5,3"]
)
def test_a_prepared_kernel_follows_parameters_samples_and_rows(kernel, words):
    network, X, Y = example(words, 60)
    prepare = network_gradient[kernel].prepare
    gradient = prepare(network.flat_parameters, network.flat_gradient, chain_of(network))
    for rows in (slice(0, 33), slice(33, 60), slice(0, 33), slice(0, 1), slice(5, 12), slice(0, 60)):
        network.flat_gradient[:] = np.nan
        before = X.copy(), Y.copy(), network.flat_parameters.copy()
        gradient(X[rows], Y[rows])
        wanted = gradient_of(
            network.flat_parameters.astype(np.float64), chain_of(network), X[rows].astype(float), Y[rows].astype(float)
        )
        close(network.flat_gradient, wanted)
        for one, other in zip((X, Y, network.flat_parameters), before, strict=True):
            np.testing.assert_array_equal(one, other)
        network.flat_parameters -= np.float32(0.1) * network.flat_gradient


@kernels
def test_two_prepared_kernels_share_nothing(kernel):
    network, X, Y = example(LENET, 40)
    gradients = [np.empty_like(network.flat_parameters) for _ in range(2)]
    one, other = (network_gradient[kernel].prepare(network.flat_parameters, G, chain_of(network)) for G in gradients)
    one(X[:20], Y[:20])
    before = gradients[0].copy()
    other(X[20:], Y[20:])
    np.testing.assert_array_equal(gradients[0], before)
    one(X[:20], Y[:20])
    np.testing.assert_array_equal(gradients[0], before)


@kernels
def test_a_large_batch_is_divided_and_takes_no_more_memory(kernel, monkeypatch):
    network, X, Y = example(LENET, 50)
    at_once = gradient_by(kernel, network, X, Y)
    numbers = 6 * sum(np.prod(shape) for shape in chain_of(network).maps)
    monkeypatch.setattr(gradient_cpu, "MOST_NUMBERS", 7 * numbers)
    close(gradient_by(kernel, network, X, Y), at_once)
    monkeypatch.undo()
    network, X, Y = example("image1x28x28,conv8x3same,pool2,conv8x3same,pool2,10", 3000, "relu")
    gradient_by(kernel, network, X[:3], Y[:3])  # compiles
    tracemalloc.start()
    gradient_by(kernel, network, X, Y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6


@kernels
def test_parts_for_threads_are_the_whole_batch(kernel, monkeypatch):
    monkeypatch.setattr(gradient_cpu, "PER_PART", 1.0)
    for words in (LENET, "image1x14x12,conv4x2same,pool4,3"):
        network, X, Y = example(words, 70)
        alone = gradient_by(kernel, network, X, Y)
        with threads.Threads(0, exactly=3) as block:
            block.choose()
            assert gradient_cpu.parts_that_pay(chain_of(network), 70) == 3
            together = [gradient_by(kernel, network, X, Y) for _ in range(3)]
        close(together[0], alone)
        for each in together[1:]:
            np.testing.assert_array_equal(each, together[0])
        assert gradient_cpu.parts_that_pay(chain_of(network), 70) == 1
    assert gradient_cpu.parts_that_pay(chain_of(make_network([9, 5, 3])), 70) == 1


@kernels
def test_an_activation_that_no_kernel_of_gradients_knows_is_refused(kernel):
    network = ChainArchitecture((2,), (Neurons(1),), ("swish",), "mse")
    with pytest.raises(CourseError, match="swish"):
        network_gradient[kernel](np.zeros(3, "f"), network, np.zeros((1, 2), "f"), np.zeros((1, 1), "f"))


@kernels
@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("sign", [-1, 1])
def test_saturated_filters_stay_finite_without_warnings(kernel, name, sign):
    network, X, Y = example("image1x6x6,conv2x2same,pool2,conv2x2,3,2", 20, name)
    network.flat_parameters[:] = 1000
    with warnings.catch_warnings(), np.errstate(over="raise", divide="raise", invalid="raise"):
        warnings.simplefilter("error")
        assert np.isfinite(gradient_by(kernel, network, sign * np.ones_like(X), Y)).all()


def first_of_equals(kernel) -> bool:
    """takes_the_first_of_equals() for a kernel of network_gradient."""

    def sgd(parameters, network, X, Y, batch, rate):
        parameters -= np.float32(rate) * kernel(parameters, network.chain, X.reshape(len(X), -1), Y)

    return takes_the_first_of_equals(sgd)


@kernels
def test_of_equal_pixels_the_first_gets_the_delta(kernel):
    assert first_of_equals(network_gradient[kernel])


# ---- training


def trained(words, backend, optimizer, rows=50, **options):
    network, X, Y = example(words, rows)
    learning = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01, "seed": 5}
    return network, train(network, X, Y, backend, optimizer=optimizer, **learning | options)


@kernels
@pytest.mark.parametrize("words", [LENET, "168,30,3"])
@pytest.mark.parametrize("optimizer", [*OPTIMIZERS.values(), partial(SGD, momentum=0.9), partial(Adam, l2=0.1)])
def test_training_by_gradients_is_training_by_operations(kernel, words, optimizer):
    changes = [optimizer() for _ in range(2)]
    plain, history = trained(words, by_steps("numpy"), changes[0])
    assert history.plan == "operations"
    fused, history = trained(words, choose(kernel), changes[1], plan="gradient")
    assert history.plan == "gradient" and not history.note
    assert changes[1].steps == changes[0].steps == 12
    np.testing.assert_allclose(fused.flat_parameters, plain.flat_parameters, rtol=1e-3, atol=2e-5)
    for name, array in changes[0].state.items():
        np.testing.assert_allclose(changes[1].state[name], array, rtol=1e-3, atol=2e-5)


@kernels
def test_training_goes_on_exactly_where_it_stopped(kernel):
    network, X, Y = example(LENET, 50)
    learning = {"batch_size": 16, "learning_rate": 0.01, "seed": 5}
    whole = trained(LENET, choose(kernel), Adam(), epochs=4)[0]
    optimizer = Adam()
    for done in range(4):
        train(network, X, Y, choose(kernel), epochs=1, after=History(before=done), optimizer=optimizer, **learning)
    np.testing.assert_array_equal(network.flat_parameters, whole.flat_parameters)


def test_the_plan_of_gradients_is_for_chains_and_can_be_asked_for():
    assert trained("168,9,3", choose("numpy"), SGD(), plan="gradient")[1].plan == "gradient"
    assert trained("168,9,3", choose("numpy"), Adam())[1].plan == "gradient"
    for backend in (choose("numpy", dense_forward="loops"), choose("loops")):
        assert trained("168,9,3", backend, Adam())[1].plan == "operations"
    with pytest.raises(CourseError, match="the plan gradient does not fit"):
        trained("168,9,dropout0.5,3", choose("numpy"), Adam(), plan="gradient")


def test_a_fresh_process_finds_the_compiled_kernels_for_images(tmp_path):
    """They are imported when they are asked for, and not before."""
    import subprocess
    import sys

    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "from fused_epochs.catalogue import found; print(found('convolutional_sgd_epoch', gpu=False)['numba'])",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.startswith("numba")


# ---- check() rejects wrong kernels: each has one mistake in the text of a right one

ARRAY_MISTAKES = mistakes("epochs/gradient_cpu")
COMPILED_MISTAKES = mistakes("epochs/gradient_compiled")
LOOPS_MISTAKES = mistakes("epochs/convolutional_loops")


def twice(prepare):
    """A kernel of network_gradient that computes each gradient twice, so that nothing may be left from the first."""

    def kernel(parameters, network, X, Y):
        G = np.empty_like(parameters)
        gradient = prepare(parameters, G, network, len(X))
        gradient(X, Y)
        gradient(X, Y)
        return G

    return kernel


def products(right="", wrong=""):
    """gradient_cpu.py, with blocks so small that most convolutions have several, down and across."""
    names = mutant(gradient_cpu, right, wrong)
    names |= {"LEAST": 8, "BY_ARRAYS": replace(names["BY_ARRAYS"], block=2000)}  # the globals of its functions
    return names


def array_kernel(right="", wrong=""):
    names = products(right, wrong)
    return twice(lambda parameters, G, network, rows: names["prepare"](parameters, G, network))


def compiled_kernel(right="", wrong=""):
    """By products, with these functions in between."""
    functions = replace(mutant(gradient_compiled, right, wrong)["by_loops"](), block=2000)
    make = products()["gradient_function"]
    return twice(lambda parameters, G, network, rows: make(parameters, G, network, rows, 1 / rows, functions))


def loops_kernel(right="", wrong=""):
    """By the loops over images where they fit the network; else right."""
    names = mutant(convolutional_loops, right, wrong)

    def prepare(parameters, G, network, rows):
        if images := network.convolutional:
            return names["gradient_function"](parameters, G, images, rows, 1 / rows)
        return gradient_cpu.prepare(parameters, G, network)

    return twice(prepare)


@pytest.mark.parametrize("kernel", [array_kernel, compiled_kernel, loops_kernel])
def test_check_accepts_the_text_without_a_mistake(kernel):
    verdict = check.check(network_gradient, kernel())
    assert verdict, str(verdict)
    assert first_of_equals(kernel())


@pytest.mark.parametrize("mistake", ARRAY_MISTAKES)
def test_check_rejects_a_wrong_array_kernel(mistake):
    rejected(network_gradient, array_kernel(*ARRAY_MISTAKES[mistake]))


@pytest.mark.parametrize("mistake", COMPILED_MISTAKES)
def test_check_rejects_wrong_functions_between_the_products(mistake):
    rejected(network_gradient, compiled_kernel(*COMPILED_MISTAKES[mistake]))


@pytest.mark.parametrize("mistake", LOOPS_MISTAKES)
def test_check_rejects_wrong_loops_over_images(mistake):
    rejected(network_gradient, loops_kernel(*LOOPS_MISTAKES[mistake]))


@pytest.mark.parametrize(
    ("kernel", "right", "wrong"),
    [
        (array_kernel, "np.greater(pixel, largest, out=taken)", "np.greater_equal(pixel, largest, out=taken)"),
        (compiled_kernel, "larger = z[s] > largest[s]", "larger = z[s] >= largest[s]"),
        (loops_kernel, "(k_cd < k_ab))\n                best", "(k_cd > k_ab))\n                best"),
    ],
)
def test_that_another_of_equal_pixels_would_be_noticed(kernel, right, wrong):
    assert not first_of_equals(kernel(right, wrong))


def test_which_loops_compute_a_gradient():
    assert gradient_loops.has_few_deltas(DIGITS, 128)
    pooled_by_two = architecture_of(make_network("image1x8x8,conv4x3same,pool2,3"))
    assert gradient_loops.has_few_deltas(pooled_by_two, 8) and not gradient_loops.has_few_deltas(pooled_by_two, 9)
