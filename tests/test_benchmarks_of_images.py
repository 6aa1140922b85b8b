"""Benchmarks of the digits CNN and of convolutions: contenders agree with the reference, wrong ones are left out."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import convolutions, digits, learning, trainers
from benchmarks.contenders import CPU, Case
from fused_epochs.architecture import architecture_of
from fused_epochs.convolutional import convolutional_adam_epoch
from nncourse.calls import ADAM
from nnexperiment.trainers import jax_training, pytorch_training
from nnexperiment.trainers.training import CHECKED, TOLERANCE, DisagreesError, Trainer, timed

STEPS = CHECKED + 5  # the last of them on a smaller batch
SMALL = Case("small images", (), 4, samples=4 * STEPS - 1, words="image2x9x8,conv3x2same,conv2x3same,pool4,6,3")


@pytest.fixture(scope="module")
def problem():
    return digits.problem_of(SMALL)


@pytest.fixture(scope="module")
def reference(problem):
    """The parameters after an epoch."""
    before, X, Y = (array.astype(np.float64) for array in (problem.parameters, problem.X, problem.Y))
    state = before, np.zeros_like(before), np.zeros_like(before)
    given = architecture_of(problem.network), X, Y, problem.batch, digits.RATE, 0, *ADAM.values()
    return convolutional_adam_epoch.reference(*state, *given)[0]


def aot_eager(step):
    """A step compiled in this way, since the usual compiler takes half a minute."""
    return lambda *given: step(*given, "aot_eager")


FORMS = {
    "numpy": ("numpy", trainers.ours("numpy", "numpy")),
    "steps": ("numpy", trainers.ours("numpy", "steps")),
    "eager": ("torch", pytorch_training.eager("cpu")),
    "eager, channels last": ("torch", pytorch_training.eager("cpu", channels_last=True)),
    "graph": ("torch", pytorch_training.graph(pytorch_training.eager_step, "cpu")),
    "graph, channels last": ("torch", pytorch_training.graph(pytorch_training.eager_step, "cpu", channels_last=True)),
    "compiled": ("torch", pytorch_training.graph(aot_eager(pytorch_training.compiled_step), "cpu")),
    "compiled, Adam too": ("torch", pytorch_training.graph(aot_eager(pytorch_training.compiled_update_step), "cpu")),
    "JAX": ("jax", jax_training.scan("cpu", jax_training.pooled_by_windows)),
    "JAX, shapes": ("jax", jax_training.scan("cpu", jax_training.pooled_by_shape)),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.full
def test_all_take_the_same_steps_in_an_epoch_and_begin_again(name, problem, reference):
    needed, make = FORMS[name]
    pytest.importorskip(needed)
    trainer = make(problem)
    for _ in range(2):
        facts = digits.examined(trainer, problem)  # raises unless the first steps are right
        assert facts["difference"] < 1e-5 and facts["error"] < TOLERANCE and facts["accuracy"] is None
        trainer.train(STEPS)
        assert np.allclose(trainer.parameters(), reference, atol=1e-5)
        trainer.train(1)  # goes on from there, and is forgotten by the next begin()


def slightly_wrong(what):
    """A form whose kernel is given something that is almost right."""

    def make(problem):
        options = {"batch": problem.batch, "rate": digits.RATE, "steps": 0} | what
        state = [problem.parameters.copy() for _ in range(3)]

        def begin():
            state[0][...], state[1][...], state[2][...] = problem.parameters, 0, 0

        def train(steps):
            rows = slice(steps * problem.batch)
            given = architecture_of(problem.network), problem.X[rows], problem.Y[rows]
            convolutional_adam_epoch["numpy"](*state, *given, *options.values(), *ADAM.values())

        return Trainer(begin, timed(train), lambda: state[0])

    return make


WRONG = {"rate": {"rate": 1.001 * digits.RATE}, "batch": {"batch": 2 * SMALL.batch}, "correction": {"steps": 1}}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_contender_is_refused(what, problem):
    digits.examined(slightly_wrong({})(problem), problem)
    with pytest.raises(DisagreesError, match="off by"):
        digits.contender({"": slightly_wrong(WRONG[what])})(SMALL)


def test_of_several_forms_the_fastest_right_one_is_timed():
    right = trainers.ours("numpy", "numpy")

    def slow(problem):
        trainer = right(problem)
        return replace(trainer, train=lambda steps: 0.05 + trainer.train(steps))

    def broken(problem):
        raise RuntimeError("no such layout")

    forms = {"broken": broken, "wrong": slightly_wrong(WRONG["rate"]), "slow": slow, "quick": right}
    work, times, facts = digits.contender(forms, steps=7)(SMALL)
    assert times == 7 and facts == {}
    work()
    assert facts["form"] == "quick" and facts["error"] < TOLERANCE
    with pytest.raises(RuntimeError, match="layout"):
        digits.contender({"broken": broken, "wrong": slightly_wrong(WRONG["rate"])})(SMALL)


@pytest.mark.parametrize("name", ["nncourse numpy", "nncourse numpy, fused", "PyTorch eager", "scikit-learn"])
def test_contenders_of_dense_networks_on_the_cpu_know_images_or_say_not(name):
    pytest.importorskip({"PyTorch eager": "torch", "scikit-learn": "sklearn"}.get(name, "numpy"))
    if name == "scikit-learn":
        with pytest.raises(ValueError, match="convolution"):
            CPU[name](SMALL)
        return
    work, times, facts = CPU[name](SMALL)
    work()
    assert times == STEPS and facts["difference"] < 1e-5


def test_mnist_is_standardised_and_the_digits_cnn_learns_it(real_data):
    X, Y, X_test, labels = learning.standardised_mnist()
    assert X.shape == (50_000, 1, 28, 28) and Y.shape == (50_000, 10) and len(X_test) == len(labels) == 10_000
    assert abs(X.mean()) < 1e-3 and abs(X.std() - 1) < 1e-3
    found = learning.digits(1, 2, "numpy", "numpy", samples=1600)
    trained = [(record["epochs"], record["schedule"]) for record in found]
    assert trained == [(1, "constant"), (2, "constant"), (2, f"cosine,{learning.DIGITS_EPOCHS}")]
    assert found[0]["accuracy"] < found[1]["accuracy"] and found[1]["accuracy"] > 0.7
    assert found[1]["seconds"] > found[0]["seconds"] > 0


# ---- convolutions

LAYERS = (
    convolutions.Layer("same, odd", 3, 2, 7, 5, 4, 3, 1, 1),
    convolutions.Layer("same, even", 2, 3, 6, 5, 2, 2, 0, 1),
)


def test_kernels_of_convolutions_stand_beside_pytorch():
    pytest.importorskip("torch")
    found = convolutions.measure(2, "cpu", LAYERS, ["numpy", "loops"])
    assert not found["left_out"] and found["versions"]["torch"]
    records = found["convolutions"]
    assert len(records) == len(LAYERS) * len(convolutions.PASSES) * 3
    for record in records:
        assert record["seconds"] > 0 and len(record["rounds"]) == 2
        assert (record["of_pytorch"] == 1) == (record["kernel"] == "PyTorch")
    sizes = LAYERS[0].sizes
    assert (sizes["h_out"], sizes["w_out"]) == (7, 5) and LAYERS[1].sizes["h_out"] == 6
    flops = 2 * 3 * 4 * 7 * 5 * 2 * 3 * 3
    assert records[0]["tflops"] == pytest.approx(flops / records[0]["seconds"] / 1e12)


def test_a_wrong_or_failing_convolution_is_left_out_with_its_reason():
    reference, work, left_out = np.full((3, 3), 2.0), {}, {}

    def fails():
        raise ValueError("no plan\nand more words")

    tried = {"right": reference, "wrong": reference * 1.001, "nan": reference * np.nan, "shape": reference[:1]}
    for name, result in tried.items():
        convolutions.attempt(name, lambda result=result: lambda: result.astype(np.float32), reference, work, left_out)
    convolutions.attempt("fails", fails, reference, work, left_out)
    assert work.keys() == {"right"} and left_out.keys() == {"wrong", "nan", "shape", "fails"}
    assert left_out["fails"] == "ValueError: no plan" and "off by 1.0e-03" in left_out["wrong"]


def test_when_the_time_is_over_nothing_further_is_begun(monkeypatch):
    monkeypatch.setattr(convolutions, "LONGEST", 0.0)
    found = convolutions.measure(1, "cpu", LAYERS[:1], ["numpy"])
    assert not found["convolutions"] and "no time" in found["left_out"]["same, odd, forward / all kernels"]
