"""Plans of train(): which one is chosen, what a missing or unregistered package of plans changes, old spellings."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trainings import by_steps

from fused_epochs.planner import operations_for
from nncourse.backend import OLD_OPERATIONS, choose
from nncourse.catalogue import find
from nncourse.errors import CourseError, DoesNotFitError
from nncourse.model.network import make_network
from nncourse.model.optimizers import make_optimizer
from nncourse.model.training import OLD_ARGUMENTS, train
from tests import registered

ROOT = Path(__file__).resolve().parents[1]
LENET = "image1x12x12,conv4x3same,pool2,conv4x3,pool2,8,3"
CHAIN = "image1x8x8,conv4x2same,conv4x2same,pool4,8,3"
# Network, optimizer, the operations of whole epochs that fit, the best first, and the plan on the CPU.
CHOICES = [
    ("8,6,3", "sgd", ["dense_sgd_epoch", "network_epoch"], "numpy"),
    ("8,6,3", "adam", ["network_epoch"], "gradient"),
    (CHAIN, "sgd", ["convolutional_sgd_epoch", "network_epoch"], "numpy"),
    (CHAIN, "adam", ["convolutional_adam_epoch", "network_epoch"], "numpy"),
    (CHAIN, "rmsprop", ["network_epoch"], "gradient"),
    (LENET, "adam", ["network_epoch"], "gradient"),
    ("8,6,dropout0.5,3", "sgd", [], "operations"),
    ("image1x8x8,conv4x3same,batchnorm,pool2,3", "adam", [], "operations"),
]


def data(words: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, *make_network(words).input_shape), dtype=np.float32)
    return X, np.eye(3, dtype=np.float32)[rng.integers(0, 3, 20)]


@pytest.mark.parametrize(("words", "kind", "operations", "plan"), CHOICES)
def test_the_plan_of_a_network_is_known_without_a_gpu(words, kind, operations, plan):
    optimizer = make_optimizer(kind)
    assert operations_for(make_network(words), optimizer)[0] == operations
    assert all("one_kernel" in find(name).kernels for name in operations)  # what backend cuda tries
    history = train(make_network(words), *data(words), choose("numpy"), epochs=1, optimizer=optimizer)
    assert history.plan == plan and bool(history.note) == (plan == "operations")
    assert train(make_network(words), *data(words), by_steps("numpy"), epochs=1).plan == "operations"


def test_a_plan_that_is_unknown_or_does_not_fit_is_refused_in_one_line():
    for plan, said in (("quick", "expected a plan, one of"), ("recorded", "only a GPU records steps; leave it out")):
        with pytest.raises(CourseError, match=said) as caught:
            train(make_network("8,3"), *data("8,3"), choose("numpy"), epochs=1, plan=plan)
        assert "\n" not in str(caught.value)
    with pytest.raises(DoesNotFitError):
        train(make_network("8,3"), *data("8,3"), choose("numpy"), epochs=1, plan="one_kernel")


@pytest.mark.parametrize("name", OLD_ARGUMENTS)
def test_old_arguments_are_told_their_new_ones(name):
    with pytest.raises(CourseError, match=f"no argument {name} any more: write ."):
        train(make_network("8,3"), *data("8,3"), choose("numpy"), epochs=1, **{name: None})


@pytest.mark.parametrize("name", OLD_OPERATIONS)
@pytest.mark.parametrize(("old", "plan"), [("steps", "operations"), ("numpy", "numpy")])
def test_old_spellings_of_plans_are_told_their_new_ones(name, old, plan):
    with pytest.raises(CourseError, match=f'{name} is a plan.* write train.*plan="{plan}".*, or --plan {plan}$'):
        choose("numpy", **{name: old})


# ---- without the package, and where it is not registered

WITHOUT = """
import sys
sys.modules["fused_epochs"] = None
"""
TRAIN = """
from nncourse import choose, datasets, make_network, train
data = datasets.moons()
for backend in (choose("numpy"), choose("numpy", dense_forward="loops")):
    history = train(make_network([2, 3, 1]), data.X, data.Y, backend, epochs=1)
    print(history.plan, "|", history.note)
"""
COMMAND = """
from nnclassroom.commands import main
words = "train --dataset moons --layers 2,3,1 --epochs 1 --model new.npz"
raise SystemExit(main(words.split()))
"""
SLOWER = "trained step by step, which is slower: "
MISSING = f"{SLOWER}the package fused_epochs is missing here"
OLDER = f"{SLOWER}fused_epochs is not registered in this environment, which is older: run make setup"


def run(program: str, folder: Path, *path: Path) -> subprocess.CompletedProcess:
    """The program in a fresh process that finds modules in these folders first."""
    before = "".join(f"import sys; sys.path.insert(0, {str(place)!r})\n" for place in path)
    words = [sys.executable, "-c", before + program]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder)


def test_without_the_package_all_is_trained_step_by_step_and_it_is_said(tmp_path):
    done = run(WITHOUT + TRAIN, tmp_path, ROOT)
    assert done.stdout.splitlines() == [f"operations | {MISSING}", "operations | "], done.stderr


def test_without_the_package_the_command_trains(tmp_path):
    done = run(WITHOUT + COMMAND, tmp_path, ROOT)
    assert done.returncode == 0 and (tmp_path / "new.npz").exists()
    assert done.stderr.splitlines() == [f"nncourse: {MISSING}"]


def test_an_environment_from_before_a_pull_is_told_to_be_set_up_again(tmp_path):
    older = registered.write(tmp_path / "older", {"console_scripts": registered.points()["console_scripts"]})
    done = run(TRAIN, tmp_path, ROOT, older)
    assert done.stdout.splitlines() == [f"operations | {OLDER}", "operations | "], done.stderr


def test_the_operation_has_no_kernels_without_it(tmp_path):
    done = run(WITHOUT + "import nncourse; print([*nncourse.find('dense_sgd_epoch').kernels])", tmp_path, ROOT)
    assert done.stdout == "[]\n", done.stderr
