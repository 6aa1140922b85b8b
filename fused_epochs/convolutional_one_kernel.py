"""Epochs of convolutional networks in one launch of convolutional_one_kernel.cu: memory layout, and launch."""

import functools
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, prod
from typing import Any

import numpy as np

from cuda_on_cpu.text import CudaSource
from fused_epochs.architecture import ConvolutionalArchitecture, State
from fused_epochs.convolutional import convolutional_adam_epoch, convolutional_sgd_epoch
from fused_epochs.convolutional_layout import fours
from fused_epochs.dense import MATHEMATICS, codes
from fused_epochs.dense_one_kernel import COPIES, EMULATED, MEETING, Chip, this_chip
from nncourse import device as devices
from nncourse.cuda.launch import launch
from nncourse.device import Array
from nncourse.errors import DoesNotFitError
from nncourse.kernels.activations import ALPHA
from nncourse.kernels.dense_epoch import CROSS_ENTROPIES
from nncourse.kernels.operation import cuda_beside

TALL = 4  # elements of a column that a thread computes
MOST_THREADS = 512
MOST_SHARE = 16  # neurons of the first dense layer that a block updates: a thread holds a number for each
MOST_TAPS = 512  # weights of a filter: the loops over them are unrolled


@dataclass(frozen=True)
class Layout:
    """How the work is divided, and where everything is in the shared memory of a block; offsets in floats."""

    blocks: int
    threads: int
    each: int  # samples per block
    maps_size: int  # of one sample
    lists: tuple[tuple[str, tuple[int, ...]], ...]  # constants of the .cu text, a number for each map or convolution
    parts: tuple[tuple[str, int], ...]  # the offsets of everything else
    shared_floats: int


@functools.lru_cache(maxsize=64)
def layout(architecture: ConvolutionalArchitecture, batch: int, adam: bool, chip: Chip) -> Layout:
    """A layout that fits the chip. Raises DoesNotFitError if there is none."""
    blocks = min(chip.multiprocessors, max(batch, ceil(architecture.sizes[0] / 8)))
    largest = max(height * width for _, height, width in architecture.maps)
    threads = min(MOST_THREADS, 64 * ceil(largest / 64))
    made = _laid_out(architecture, batch, adam, blocks, threads)
    taps = max((prod(shape[1:]) for shape in architecture.shapes[: len(architecture.convolutions)]), default=0)
    if (
        ceil(architecture.sizes[0] / blocks) > MOST_SHARE
        or taps > MOST_TAPS
        or 4 * made.shared_floats > chip.shared_bytes
    ):
        raise DoesNotFitError(
            f"one_kernel expected a network and a batch that fit on the chip ({chip.shared_bytes} bytes of shared "
            f"memory a block), got {architecture} in batches of {batch}; take the plan operations, or fewer neurons"
        )
    return made


def _laid_out(architecture: ConvolutionalArchitecture, batch: int, adam: bool, blocks: int, threads: int) -> Layout:
    each = ceil(batch / blocks)
    maps, filters = architecture.maps, architecture.convolutions
    rows, pitches, delta_rows, delta_pitches, delta_sizes, forward, backward = [], [], [], [], [], [], []
    for number, (f, (c_in, height, width)) in enumerate(zip(filters, maps, strict=False)):
        _, high, wide = maps[number + 1]
        strips_in, strips_out = TALL * ceil(height / TALL), TALL * ceil(high / TALL)
        rows.append(max(height + f.before + f.after, (strips_out - 1) * f.stride + f.k))
        pitches.append(_pitch(width + f.before + f.after, f.stride, wide))
        edge = f.k - 1 if number > 0 and f.stride == 1 else 0
        below = strips_in + f.before + f.k - 1 if edge else 0
        delta_rows.append(max(high + 2 * edge, strips_out + edge, below))
        delta_pitches.append(_pitch(wide + 2 * edge, 1, width))
        delta_sizes.append(f.count * delta_rows[-1] * delta_pitches[-1])
        forward.append((c_in * f.k * f.k + 1) * fours(f.count))
        backward.append(f.count * f.k * f.k * fours(c_in) if number > 0 else 0)
    rows.append(maps[-1][1])
    pitches.append(_pitch(maps[-1][2], 1, maps[-1][2]))
    map_sizes = [c * r * p for (c, _, _), r, p in zip(maps, rows, pitches, strict=True)]
    maps_at, maps_size = _one_behind_the_other(map_sizes)
    deltas_at, end = _one_behind_the_other(delta_sizes, each * maps_size)
    forward_at, end = _one_behind_the_other(forward, end)
    backward_at, end = _one_behind_the_other(backward, end)

    inputs, *widths = architecture.dense.sizes
    numbers, outputs, warps = filter_numbers(architecture), widths[-1], threads // 32
    share, above = ceil(widths[0] / blocks), list(pairwise(widths))  # see the .cu text
    shares = [ceil((n_in + 1) / blocks) for n_in, _ in above]
    first, upper = share * (inputs + 1), sum(k * n_out for k, (_, n_out) in zip(shares, above, strict=True))
    gathered = fours(fours(share) + sum(k + n_out for k, (_, n_out) in zip(shares, above, strict=True)))
    groups = max(1, threads // fours(inputs + 1))
    sizes = {
        "dense": dense_numbers(architecture),
        "samples": each * sample_numbers(architecture),
        "outputs": outputs,
        "own": batch * gathered,
        "targets": each * outputs,
        "remembered": 2 * (first + upper) if adam else 0,
        "filter_memory": 3 * numbers,
        "tables": 2 * numbers + 2 * each * inputs,
        "pooled": inputs,
        "scratch": max(4 * threads, fours(inputs), warps * numbers, groups * first + upper + max(threads, numbers)),
    }
    starts, end = _one_behind_the_other(list(sizes.values()), end)
    lists = {
        "MAP_ROWS": rows,
        "MAP_PITCHES": pitches,
        "MAPS_AT": maps_at,
        "DELTAS_ROWS": [*delta_rows, 0],
        "DELTAS_PITCHES": [*delta_pitches, 0],
        "DELTAS_AT": [*deltas_at, 0],
        "FORWARD_AT": [*forward_at, 0],
        "BACKWARD_AT": [*backward_at, 0],
    }
    frozen = tuple((name, tuple(numbers)) for name, numbers in lists.items())
    return Layout(blocks, threads, each, maps_size, frozen, tuple(zip(sizes, starts, strict=True)), end)


def _pitch(width: int, stride: int, across: int) -> int:
    """The length of a map's row, at least `width`, with which threads read from different banks of shared memory.

    Adjacent threads have adjacent columns, `across` of them, then the columns TALL rows below.
    """
    fitting = (pitch for pitch in range(width, width + 8) if (TALL * stride * pitch - stride * across) % 32 == 0)
    return next(fitting, width)


def _one_behind_the_other(sizes: list[int], start: int = 0) -> tuple[list[int], int]:
    """Where each begins, at a multiple of four, and where the last ends."""
    ends = list(accumulate(map(fours, sizes), initial=fours(start)))
    return ends[:-1], ends[-1]


def filter_numbers(architecture: ConvolutionalArchitecture) -> int:
    """Weights and biases of all convolutions."""
    return sum(prod(shape) + shape[0] for shape in architecture.shapes[: len(architecture.convolutions)])


def dense_numbers(architecture: ConvolutionalArchitecture) -> int:
    """Weights and biases of all dense layers, with padding."""
    return sum(n_out * fours(n_in) + fours(n_out) for n_out, n_in in architecture.dense.shapes)


def sample_numbers(architecture: ConvolutionalArchitecture) -> int:
    """Inputs and deltas of the dense layers for one sample, with padding."""
    return sum(fours(n_in) + fours(n_out) for n_out, n_in in architecture.dense.shapes)


def meeting_floats(made: Layout, architecture: ConvolutionalArchitecture, batch: int) -> int:
    """The size of meeting_place in the .cu text."""
    samples = batch * sample_numbers(architecture)
    return dense_numbers(architecture) + samples + made.blocks * fours(filter_numbers(architecture))


@functools.lru_cache(maxsize=64)
def source(made: Layout, architecture: ConvolutionalArchitecture, batch: int, adam: bool) -> CudaSource:
    """The .cu text for this network and layout."""
    filters, maps = architecture.convolutions, architecture.maps
    lists = {
        "CHANNELS": [channels for channels, _, _ in maps],
        "HEIGHTS": [height for _, height, _ in maps],
        "WIDTHS": [width for _, _, width in maps],
        "SIDES": [*(f.k for f in filters), 1],
        "STRIDES": [*(f.stride for f in filters), 1],
        "BEFORES": [*(f.before for f in filters), 0],
        "SIZES": architecture.dense.sizes,
        "ACTIVATIONS": codes(architecture.activations),
        **dict(made.lists),
    }
    inputs_at, end = _one_behind_the_other([n_in for _, n_in in architecture.dense.shapes])
    lists["LAYER_INPUTS_AT"] = inputs_at
    lists["LAYER_DELTAS_AT"] = _one_behind_the_other([n_out for n_out, _ in architecture.dense.shapes], end)[0]
    constants = {
        "CONVOLUTIONS": len(filters),
        "LAYERS": len(architecture.sizes),
        "INPUTS": architecture.dense.sizes[0],
        "POOL": architecture.pool,
        "COST": "CROSS_ENTROPY" if architecture.cost in CROSS_ENTROPIES else architecture.cost.upper(),
        "BATCH": batch,
        "BLOCKS": made.blocks,
        "THREADS": made.threads,
        "EACH": made.each,
        "TALL": TALL,
        "MAPS_SIZE": made.maps_size,
        "SHARED_FLOATS": made.shared_floats,
        "ADAM": int(adam),
        "ALPHA": f"{ALPHA}f",
        **{f"{name.upper()}_AT": start for name, start in made.parts},
    }
    defines = [f"{name}={', '.join(map(str, numbers))}" for name, numbers in lists.items()]
    defines += [f"{name}={constant}" for name, constant in constants.items()]
    return cuda_beside(__file__, *defines, before=(MATHEMATICS, MEETING, COPIES))


def _epoch(
    changed: tuple[Array, ...], architecture: ConvolutionalArchitecture, X: Array, Y: Array, batch: int, rate: float,
    steps: int, betas: tuple[float, float], epsilon: float, chip: Chip | None, emulator: dict[str, Any],
) -> None:  # fmt: skip
    """All steps of the epoch in one launch; `changed` are the parameters, and for Adam M and V."""
    parameters, *remembered = changed
    adam = bool(remembered)
    batch = min(batch, max(1, len(X)))
    chip = chip or (this_chip() if devices.on_gpu(parameters) else EMULATED)
    made = layout(architecture, batch, adam, chip)
    xp = devices.array_module(parameters)
    meeting_place = xp.zeros(meeting_floats(made, architecture, batch), np.float32)
    arrived = xp.zeros(1, np.int32)
    M, V = remembered or [xp.zeros(1, np.float32)] * 2
    powers = [beta**steps for beta in betas]
    arguments = [parameters, M, V, X, Y, meeting_place, arrived, len(X), rate, *betas, epsilon, *powers]
    options: dict[str, Any] = {"shared_bytes": 4 * made.shared_floats, "cooperative": True}
    text = source(made, architecture, batch, adam)
    launch(text, "convolutional_epoch", (made.blocks,), (made.threads,), arguments, **options, **emulator)


@convolutional_sgd_epoch.kernel("one_kernel", device="gpu", cuda=True)
def sgd(
    parameters: Array, architecture: ConvolutionalArchitecture, X: Array, Y: Array, batch: int, rate: float,
    chip: Chip | None = None, **emulator: Any,
) -> Array:  # fmt: skip
    """W ← W − η G in one launch for the epoch. `chip` selects a layout other than that for this GPU."""
    convolutional_sgd_epoch.sizes(parameters, architecture, X, Y, batch, rate)
    _epoch((parameters,), architecture, X, Y, batch, rate, 0, (0.0, 0.0), 1.0, chip, emulator)
    return parameters


@convolutional_adam_epoch.kernel("one_kernel", device="gpu", cuda=True)
def adam(
    parameters: Array, M: Array, V: Array, architecture: ConvolutionalArchitecture, X: Array, Y: Array, batch: int,
    rate: float, steps: int, beta1: float, beta2: float, epsilon: float, chip: Chip | None = None, **emulator: Any,
) -> State:  # fmt: skip
    """Adam in one launch for the epoch. `chip` selects a layout other than that for this GPU."""
    changed, betas = (parameters, M, V), (beta1, beta2)
    convolutional_adam_epoch.sizes(*changed, architecture, X, Y, batch, rate, steps, *betas, epsilon)
    _epoch(changed, architecture, X, Y, batch, rate, steps, betas, epsilon, chip, emulator)
    return parameters, M, V
