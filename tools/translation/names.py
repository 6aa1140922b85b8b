"""The names of the course's things that a student sees in every language: they are taken from the package."""

import re
import tomllib
from pathlib import Path


def of_the_course(root: Path) -> dict[str, set[str]]:
    """The names by kind: operations, kernels, arguments with sizes, and what a network and its training are made of."""
    from nnclassroom.exercises.catalogue import EXERCISES
    from nnclassroom.widgets.playground.engine import DATA
    from nncourse import device
    from nncourse.backend import DEVICES
    from nncourse.calls import ACTIVATIONS
    from nncourse.catalogue import TOPICS, defined_in, epoch_topics
    from nncourse.datasets import GENERATORS, MNIST_SETS, SCALINGS, SHIPPED, SILHOUETTES
    from nncourse.model.initialisers import INITIALISERS
    from nncourse.model.network import COSTS
    from nncourse.model.optimizers import OPTIMIZERS

    operations = defined_in((*TOPICS, *epoch_topics(), *EXERCISES)).values()
    hints = tomllib.loads((root / "nnclassroom" / "exercises" / "hints.toml").read_text("utf-8"))
    exercises = [key.split(".") for notebook in hints.values() for key in notebook]
    kernels = {name for operation in operations for name in operation.kernels}
    arguments = {
        name
        for operation in operations
        for name in (*operation.names, *operation.cuda_arguments, *operation.size_names)
    }
    return {
        "operation": {operation.name for operation in operations} | {name for name, _ in exercises},
        "kernel": kernels | {name for _, name in exercises},
        "argument": arguments,
        "activation": set(ACTIVATIONS),
        "cost": set(COSTS),
        "optimizer": set(OPTIMIZERS),
        "initialiser": set(INITIALISERS),
        "scaling": set(SCALINGS),
        "data": {*DATA, *SHIPPED, *GENERATORS, *MNIST_SETS, SILHOUETTES},
        "backend": set(DEVICES),
        "device": set(DEVICES.values()),
        "notebook": set(hints),
        "processor": {device.describe("cpu").rpartition(",")[0]},
    }


def one_of(names: set[str]) -> str:
    """A regular expression for one of the names, which may be shown with blanks for underscores."""
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return r"(?<!\w)(?:" + "|".join(re.escape(name).replace("_", "[_ ]") for name in longest_first) + r")(?!\w)"
