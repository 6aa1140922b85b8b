"""Training any network with nncourse, PyTorch and JAX: all take the same steps; `nncourse time --network`. No time is
asserted."""

from dataclasses import replace

import numpy as np
import pytest

from nnclassroom.commands import main
from nnclassroom.timing import network_records as records
from nncourse.backend import choose
from nncourse.model.network import make_network
from nncourse.model.optimizers import SGD, AdaGrad, Adam, RMSProp
from nnexperiment.trainers import jax_training, networks, pytorch_training, training
from nnexperiment.trainers.training import CHECKED, DisagreesError, drawn, error_of

CROSS = "categorical_cross_entropy"
# Layers, batch, optimizer, activation, cost: each layer, optimizer, activation and cost that has a counterpart.
CASES = {
    "dense": ("9,7,4,2", 5, SGD(), "sigmoid", "mse"),
    "one output": ("9,7,1", 4, SGD(momentum=0.9), "tanh", "binary_cross_entropy"),
    "l2": ("9,7,3", 4, SGD(momentum=0.5, l2=0.01), "relu", CROSS),
    "adam": ("9,7,3", 4, Adam(l2=0.01), "softplus", CROSS),
    "other betas": ("9,7,3", 4, Adam(beta1=0.8, beta2=0.99, epsilon=1e-3), "leaky_relu", "mae"),
    "rmsprop": ("9,7,3", 4, RMSProp(), "sigmoid", CROSS),
    "adagrad": ("9,7,3", 4, AdaGrad(), "identity", "mse"),
    "softmax, mse": ("9,5,3", 4, SGD(), ["relu", "softmax"], "mse"),
    "images": ("image2x9x8,conv3x2same,pool2,conv4x3p1s2,6,3", 4, Adam(), "relu", CROSS),
    "pools": ("image1x11x11,conv3x3,pool3s2p1,averagepool2,globalpool,3", 4, SGD(momentum=0.9), "sigmoid", CROSS),
    "overlapping": ("image1x12x12,conv3x3,averagepool3s2,3", 4, SGD(), "tanh", CROSS),
}
CONTENDERS = {
    "numpy": ("numpy", training.own("numpy")),
    "numba": ("numba", training.own("numba", threads=1)),
    "eager": ("torch", pytorch_training.eager("cpu")),
    "graph": ("torch", pytorch_training.graph(pytorch_training.eager_step, "cpu")),
    "JAX": ("jax", jax_training.scan("cpu")),
}


def problem_of(case: str, steps: float = CHECKED):
    layers, batch, optimizer, activation, cost = CASES[case]
    problem = drawn(make_network(layers, activation, cost, seed=1), batch, optimizer, int(steps * batch))
    return replace(problem, rate=optimizer.usual_rate)


@pytest.mark.parametrize("name", CONTENDERS)
@pytest.mark.parametrize("case", CASES)
def test_a_step_by_each_from_the_same_weights_gives_the_same_parameters(case, name):
    library, make = CONTENDERS[name]
    pytest.importorskip(library)
    problem = problem_of(case)
    expected = after(problem, 1)
    trainer = make(problem)
    trainer.begin()
    assert trainer.train(1) > 0
    moved = np.linalg.norm(expected - problem.parameters)
    assert moved > 0 and np.linalg.norm(trainer.parameters() - expected) < 1e-4 * moved
    assert error_of(trainer, problem) < 1e-4  # after CHECKED steps, and from the beginning again


def after(problem, steps: int) -> np.ndarray:
    """The parameters after some steps one by one, by the reference's float32."""
    network, optimizer = problem.network.with_flat_parameters(problem.parameters.copy()), problem.new_optimizer
    rows = slice(steps * problem.batch)
    step_by_step = training.train_step_by_step
    step_by_step(network, problem.X[rows], problem.Y[rows], problem.batch, problem.rate, choose("numpy"), optimizer)
    return network.flat_parameters


@pytest.mark.parametrize("compiled", [pytorch_training.compiled_step, pytorch_training.compiled_update_step])
@pytest.mark.parametrize("case", ["images", "one output", "rmsprop"])
@pytest.mark.full
def test_compiled_steps_are_the_same(case, compiled):
    pytest.importorskip("torch")
    step = lambda *given: compiled(*given, "aot_eager")  # noqa: E731  (the usual compiler takes half a minute)
    problem = problem_of(case)
    assert error_of(pytorch_training.graph(step, "cpu")(problem), problem) < 1e-4


@pytest.mark.parametrize("name", CONTENDERS)
def test_a_smaller_last_batch_belongs_to_the_epoch(name):
    library, make = CONTENDERS[name]
    pytest.importorskip(library)
    problem = problem_of("dense", CHECKED + 2.6)
    trainer = make(problem)
    trainer.begin()
    trainer.train(problem.steps)
    assert problem.steps == CHECKED + 3 and len(problem.X) % problem.batch == 3
    assert np.allclose(trainer.parameters(), after(problem, problem.steps), atol=1e-5)


WRONG = {
    "rate": lambda problem: replace(problem, rate=1.01 * problem.rate),
    "momentum": lambda problem: replace(problem, optimizer=SGD(momentum=0.89)),
    "order": lambda problem: replace(problem, X=problem.X[::-1].copy(), Y=problem.Y[::-1].copy()),
    "cost": lambda problem: replace(problem, network=make_network("9,7,1", "tanh", "mse", seed=1)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_contender_that_does_something_else_is_refused(what):
    problem = problem_of("one output")
    with pytest.raises(DisagreesError, match="off by"):
        error_of(training.own("numpy")(WRONG[what](problem)), problem)


@pytest.mark.parametrize("layers", ["9,7,dropout0.5,3", "image1x6x6,conv2x3,batchnorm,3"])
@pytest.mark.parametrize("name", ["eager", "JAX"])
def test_a_layer_without_counterpart_is_named(name, layers):
    library, make = CONTENDERS[name]
    pytest.importorskip(library)
    problem = drawn(make_network(layers), 4, SGD(), 80)
    with pytest.raises(ValueError, match="no counterpart of (dropout|batch)"):
        make(problem)


def test_an_epoch_is_of_whole_batches_and_never_too_short():
    small, large = make_network("30,16,1"), make_network("784,1000,1000,10")
    for network, batch, device in ((small, 10, "gpu"), (small, 1, "cpu"), (large, 512, "cpu"), (large, 7, "gpu")):
        problem = networks.problem_of(network, batch, SGD(), device, least=CHECKED)
        assert len(problem.X) == problem.steps * batch
        assert CHECKED <= problem.steps <= networks.MOST_STEPS[device]


# ---- records


def made_up(**seconds: float) -> dict:
    """A record of contenders with these seconds a step."""
    names = {"cuda": "nncourse cuda", "naive": "nncourse naive", "eager": "PyTorch eager", "jax": "JAX scan"}
    facts = {names[key]: {"kernel": f"by {key}"} if key in ("cuda", "naive") else {} for key in seconds}
    return networks.record({names[key]: [2 * each, each, 3 * each] for key, each in seconds.items()}, facts, {})


ROW = {"row": 4, "layers": "784,128,10", "batch": 32, "optimizer": "sgd,momentum=0.9"}


def test_ratios_are_those_of_the_fastest_of_ours_in_its_best_round():
    found = made_up(cuda=2e-6, naive=4e-6, eager=1e-3, jax=1e-5)
    assert records.ratio(found, "JAX scan") == pytest.approx(5) and records.ratio(found, "PyTorch graph") is None
    assert records.best_of_ours(found) == "nncourse cuda" and records.best_of_ours(made_up(jax=1.0)) is None
    slower = made_up(cuda=4e-6, jax=1e-5)
    (said,) = records.summary([ROW | found, ROW | slower | {"row": 5}], ["nncourse cuda", "JAX scan"])
    assert "least 2.5 (row 5), median 3.75, of 2 rows" in said
    assert records.reference([slower], "gpu") == "JAX scan" and records.reference([], "cpu") == "PyTorch eager"


@pytest.mark.parametrize("layers", ["784,128,10", "image1x28x28,conv6x5same,pool2,conv16x5,pool2,120,84,10"])
def test_a_table_of_records_is_80_columns_wide_and_names_the_plan(layers):
    found = ROW | made_up(cuda=2e-6, eager=1.234e-1, jax=1e-5) | {"layers": layers}
    names = [*records.names_of([found]), "PyTorch graph"]
    lines = [records.head(names, "JAX scan"), *records.line(found, names, "JAX scan").splitlines()]
    assert max(map(len, lines)) == records.WIDTH
    numbers = lines[-1].split("m0.9")[1].split()
    assert numbers == ["2", "123400", "10", "–", "by", "cuda", "5×"]
    assert records.line(ROW | made_up(eager=1.0), names, "JAX scan").endswith(" –")


# ---- the command


@pytest.mark.full
def test_the_command_prints_ours_beside_the_others_that_are_installed(capsys):
    asked = ["time", "--network", "6,5,3", "--optimizer", "sgd", "--momentum", "0.9", "--batch-size", "8"]
    assert main([*asked, "--backend", "numpy", "--threads", "1"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert max(map(len, lines)) <= 80 and not said.err and "sgd with momentum 0.9" in said.out
    assert any(line.startswith("nncourse numpy ") and line.endswith("gradient") for line in lines)
    for name, library in (("PyTorch eager", "torch"), ("JAX scan", "jax")):
        there = networks.not_installed([name])
        assert f"{name}: {library} is not installed" in lines if there else any(f"{name}  " in line for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        "--network 6",
        "--network 6,3 --optimizer adamw",
        "--network 6,3 --beta1 0.5",
        "--network 6,3 --batch-size 0",
        "--network 6,3 --threads 0",
        "--network 6,3 --backend loops",
        "--network 6,4,3 --activation swish",
        "--network 6,3 --kernel numpy",
        "dense_forward --network 6,3",
        "dense_forward --optimizer adam",
        "dense_forward --batch-size 8",
    ],
)
def test_a_mistake_is_one_line(arguments, capsys):
    assert main(["time", *arguments.split()]) == 2
    said = capsys.readouterr()
    assert not said.out and len(said.err.splitlines()) == 1
