"""Kernels for the recorded steps of one training: where one of a library is faster than the course's, it is taken.

Which is faster depends on the sizes and on the GPU, so it is measured, before the first epoch.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from nncourse.backend import Backend, Through
from nncourse.catalogue import find
from nncourse.errors import DoesNotFitError
from nncourse.kernels.kernel import Kernel
from nncourse.model.data_parallel import Part
from nncourse.model.layers import StepPosition
from nncourse.model.network import training_step
from nncourse.model.recorded_steps import RecordedEpoch
from nncourse.model.task import Task

LIBRARY = "cupy"  # the kernels by cuBLAS, and by CuPy's sums
MEASURED = "weight_gradient", "dense_forward", "hidden_delta", "bias_gradient", "layernorm_gradients"
LEAST_SHARE = 0.5  # of a step's FLOPs, for which it pays to measure
STEPS, TIMES, GAIN = 10, 3, 0.98


def with_faster_kernels(task: Task, parts: Sequence[Part]) -> tuple[Task, str]:
    """The task with the fastest of these kernels, and in words what was replaced; the task itself if nothing was.

    A student's kernels and those that were asked for stay, and so do all of a group, whose members must agree.
    """
    backend = task.backend
    if (
        not (isinstance(backend, Backend) and backend.fusable and backend.name == "cuda")
        or task.together.group.size > 1
    ):
        return task, ""
    flops = _flops_of_a_step(task)
    if sum(flops.get(name, 0) for name in MEASURED) < LEAST_SHARE * sum(flops.values()):
        return task, ""
    some = parts[:STEPS]
    best, replaced = _seconds(task, some), list[str]()
    for name in sorted(set(MEASURED) & flops.keys(), key=lambda name: -flops[name]):
        other = replace(backend, kernels=MappingProxyType({**backend.kernels, name: find(name)[LIBRARY]}))
        try:
            seconds = _seconds(replace(task, backend=other), some)
        except DoesNotFitError:
            continue
        if seconds < GAIN * best:
            backend, best = other, seconds
            replaced.append(name)
    return replace(
        task, backend=backend
    ), f"{', '.join(replaced)} by {LIBRARY}, measured to be faster" if replaced else ""


def _flops_of_a_step(task: Task) -> dict[str, int]:
    """The FLOPs of each operation in a step, which is taken with copies."""
    network, optimizer = task.copies()
    flops: dict[str, int] = {}

    def counted(kernel: Kernel, *arguments: Any) -> Any:
        operation: Any = kernel.operation
        if operation.flops:
            sizes = {name: size for name, size in operation.sizes(*arguments).items() if isinstance(size, int)}
            flops[operation.name] = flops.get(operation.name, 0) + operation.flops(**sizes)
        return kernel(*arguments)

    rows = slice(task.batch_size)
    through = Through(task.backend, counted)
    training_step(network, task.X[rows], task.Y[rows], task.rate, through, optimizer, StepPosition(task.seed))
    return flops


def _seconds(task: Task, parts: Sequence[Part]) -> float:
    """The least time of some replayed steps, which are taken with copies."""
    import cupy

    network, optimizer = task.copies()
    epoch = RecordedEpoch(replace(task, network=network, optimizer=optimizer), parts)
    order, seconds = cupy.arange(sum(part.size for part in parts)), []
    for _ in range(TIMES):
        cupy.cuda.runtime.deviceSynchronize()
        start = time.perf_counter()
        epoch(order, task.rate, StepPosition(task.seed))
        cupy.cuda.runtime.deviceSynchronize()
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
