"""The common part of `nncourse train`, `test` and `time`: options, the backend, the optimizer, processes."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from nnclassroom.arguments import PROGRAM, THREADS, number, whole

if TYPE_CHECKING:
    from nncourse.backend import Backend
    from nncourse.datasets import Dataset
    from nncourse.group import Group
    from nncourse.model.files import Model
    from nncourse.model.optimizers import Optimizer
    from nncourse.parallel.launch.heartbeat import Heartbeat

OPTIMIZER_OPTIONS = "optimizer", "momentum", "beta", "beta1", "beta2", "epsilon", "l2"
DEFAULTS = {"activation": "sigmoid", "cost": "mse"}
PATIENCE = 6.0  # seconds without a step


def add_options(parser: ArgumentParser) -> None:
    """Add the options of train and test."""
    parser.allow_abbrev = False
    parser.add_argument(
        "--dataset", required=True, help="name of a data set, such as breast_cancer or mnist, or a CSV file"
    )
    add_label(parser, "the model's column, or otherwise the last")
    parser.add_argument(
        "--model", required=True, help="file of the model; it is in the C program's text format unless it ends in .npz"
    )
    parser.add_argument(
        "--backend", default="numpy", help="backend that computes: loops, numpy, numba, cupy or cuda (default numpy)"
    )
    add_kernels(parser)
    parser.add_argument("--threads", type=whole, metavar="N", help=THREADS)
    parser.add_argument("-v", "--verbose", action="store_true", help="show the progress and the kernels in use")
    parser.add_argument(
        "--processes",
        type=whole,
        metavar="K",
        help="number of processes that share each batch, over MPI or NCCL (default 1, or as many as srun started)",
    )
    parser.add_argument(
        "--patience",
        type=number,
        metavar="SECONDS",
        help="treat a process as hung when a step takes longer than SECONDS and longer than any step before it "
        f"(default {PATIENCE:g})",
    )


def add_label(parser: ArgumentParser, default: str) -> None:
    """Add the option that names the column of classes."""
    what = "column with the classes in the CSV file: its name, or its number counted from 1"
    parser.add_argument("--label", metavar="NAME|NUMBER", help=f"{what} (default: {default})")


def label_of(options: Namespace, model: Model | None) -> str | None:
    """The column that --label names, else the one with which the model was trained; None for the last."""
    from nncourse import datasets

    if options.label is not None:
        return options.label
    known = model.provenance.get("label") if model and datasets.is_table(options.dataset) else None
    return known if isinstance(known, str) else None


def say_notes(data: Dataset, group: Group) -> None:
    """Print what looks odd in a table, once for all processes."""
    for note in data.notes if group.rank == 0 else ():
        print(f"nncourse: {note}", file=sys.stderr)


def tokens_in_words(model: Model, data: Dataset, backend: Backend, group: Group, options: Namespace) -> str:
    """The share of a set's tokens that a network of sequences gets right; of whole samples too, if not all count."""
    from nncourse.model import metrics

    X = model.scaled(data.samples_for(model.network.input_shape))
    tokens, whole = metrics.tokens_right(model.network, X, data.Y, backend, group, options.threads)
    said = f"{100 * tokens:.2f} % of the tokens right"
    return said if (data.Y >= 0).all() else f"{said}, {100 * whole:.2f} % of the samples entirely right"


def add_kernels(parser: ArgumentParser) -> None:
    """Add the options that choose kernels of a backend."""
    parser.add_argument(
        "--use",
        action="append",
        default=[],
        metavar="OPERATION=KERNEL",
        help="kernel for an operation: dense_forward=tiled, …",
    )
    parser.add_argument("--mine", action="store_true", help="use your own kept kernels")


def add_steps(parser: ArgumentParser) -> None:
    """Add the options of a training step, of train and time: the optimizer's, the activation and the cost."""
    add = parser.add_argument
    add("--optimizer", help="optimizer of the training: sgd (default), adam, rmsprop or adagrad")
    add("--momentum", type=number, help="momentum of sgd, from 0 (default) up to 1, such as 0.9")
    add("--beta", type=number, help="decay of the running mean of rmsprop (default 0.9)")
    add("--beta1", type=number, help="decay of adam's running mean of gradients (default 0.9)")
    add("--beta2", type=number, help="decay of adam's running mean of squared gradients (default 0.999)")
    add("--epsilon", type=number, help="number added before an optimizer divides by a root (default 1e-8)")
    add("--l2", type=number, help="weight decay λ: λ W is added to the gradient (default 0)")
    add(
        "--activation",
        help="activation of the hidden layers (default sigmoid), or one per layer with weights: tanh,sigmoid",
    )
    add("--cost", help="cost function: mse (default), mae, binary_cross_entropy or categorical_cross_entropy")


def optimizer_of(options: Namespace) -> Optimizer:
    """The optimizer that the options ask for."""
    from nncourse.model.optimizers import make_optimizer

    given = {name: value for name in OPTIMIZER_OPTIONS if (value := getattr(options, name)) is not None}
    return make_optimizer(given.pop("optimizer", "sgd"), **given)


def optimizer_in_words(optimizer: Optimizer) -> str:
    """The optimizer and its options that are not the usual ones: "sgd with momentum 0.9 and l2 0.0001"."""
    about, usual = optimizer.describe(), type(optimizer)().describe()
    options = [f"{name} {value:g}" for name, value in about.items() if value != usual[name]]
    return " with ".join(filter(None, (about["kind"], " and ".join(options))))


def one_or_more(text: str) -> str | list[str]:
    """An activation, or the list of several with commas between them."""
    names = text.split(",")
    return names if len(names) > 1 else names[0]


def together(options: Namespace, work: Callable[[Namespace, Heartbeat | None], int]) -> int:
    """Call work(options, heart) in this process, or in several, which this one, srun or mpiexec starts.

    A process that learns alone, as most do, has no heart, and imports nothing that starts and watches several.
    """
    from nncourse.parallel.launch import world

    if options.processes is None and options.patience is None and world.launcher_environment(os.environ).size == 1:
        return work(options, None)
    from nncourse.parallel.launch import start

    patience = PATIENCE if options.patience is None else options.patience
    command = [*PROGRAM, *options.arguments]
    return start.run(command, options.processes, patience, lambda heart: work(options, heart))


def joined(device: str, heart: Heartbeat | None, load: Callable[[], Dataset]) -> tuple[Group, Dataset]:
    """The group of all processes, and the data, which the first process loads before the others."""
    if heart is None:
        from nncourse.group import Alone

        return Alone(device), load()
    from nncourse.parallel.launch import member

    group = member.join(device, heart)
    return group, member.first_one(group, load)


def backend_for(options: Namespace) -> Backend:
    """The backend that the options ask for."""
    from nncourse.backend import OLD_OPERATIONS
    from nncourse.catalogue import find

    pairs = [pair.partition("=") for text in options.use for pair in text.split(",")]
    overrides = {
        operation if operation in OLD_OPERATIONS else find(operation).name: kernel for operation, _, kernel in pairs
    }
    if options.mine:
        from nnclassroom.exercises import own_backend

        return own_backend.choose(options.backend, mine=True, **overrides)
    from nncourse import backend

    return backend.choose(options.backend, **overrides)


def say_backend(backend: Backend, options: Namespace) -> None:
    """Print all kernels with --verbose; otherwise the backend's name and the kernels that have a note."""
    if options.verbose:
        print(backend)
        return
    print(f"backend: {backend.name}")
    for operation, note in backend.notes.items():
        print(f"  {operation}: {backend.kernels[operation].name}, {note}")
    if options.mine and not backend.yours:
        print(f"  none of your own kernels is for the {backend.device.upper()}: the course's are used")
