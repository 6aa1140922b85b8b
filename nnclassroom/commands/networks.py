"""The common part of `nncourse train` and `nncourse test`: options, processes, the backend."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from nnclassroom.arguments import PROGRAM, THREADS, number, whole

if TYPE_CHECKING:
    from nncourse.backend import Backend
    from nncourse.datasets import Dataset
    from nncourse.group import Group
    from nncourse.parallel.launch.heartbeat import Heartbeat

PATIENCE = 6.0  # seconds without a step


def add_options(parser: ArgumentParser) -> None:
    """Add the options of both commands."""
    parser.allow_abbrev = False
    parser.add_argument("--dataset", required=True, help="a CSV file, or a name such as breast_cancer or mnist")
    parser.add_argument("--model", required=True, help="the model: .npz, or the C program's text by any other ending")
    parser.add_argument("--backend", default="numpy", help="loops, numpy, numba, cupy or cuda (default numpy)")
    parser.add_argument("--use", action="append", default=[], metavar="OPERATION=KERNEL", help="dense_forward=tiled, …")
    parser.add_argument("--mine", action="store_true", help="take your own kept kernels where there are some")
    parser.add_argument("--threads", type=whole, metavar="N", help=THREADS)
    parser.add_argument("-v", "--verbose", action="store_true", help="show progress and the kernels that are used")
    parser.add_argument(
        "--processes", type=whole, metavar="K", help="so many share each batch, by MPI (default 1, or srun's number)"
    )
    parser.add_argument(
        "--patience",
        type=number,
        metavar="SECONDS",
        help=f"a process that takes longer for a step, and longer than ever, has hung (default {PATIENCE:g})",
    )


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
    from nncourse.catalogue import find

    pairs = [pair.partition("=") for text in options.use for pair in text.split(",")]
    overrides = {find(operation).name: kernel for operation, _, kernel in pairs}
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
        kernel = backend.kernels.get(operation) or backend.epochs.get(operation)
        print(f"  {operation}: {kernel.name if kernel else 'steps'}, {note}")
    if options.mine and not backend.yours:
        print(f"  none of your own kernels is for the {backend.device.upper()}: the course's are used")
