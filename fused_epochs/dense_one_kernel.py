"""An epoch of a dense network in one launch: its layout on the chip, and the launch of dense_one_kernel.cu.

It is a kernel of dense_sgd_epoch and, for any optimizer, of network_epoch.
"""

import functools
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from cuda_on_cpu.text import CudaSource
from fused_epochs.architecture import ChainArchitecture, Rule, State
from fused_epochs.dense import MATHEMATICS, codes
from fused_epochs.network import PLAIN, network_epoch
from fused_epochs.rules import RULES, rule_constants
from nncourse import device as devices
from nncourse.cuda.launch import launch
from nncourse.device import Array
from nncourse.errors import DoesNotFitError
from nncourse.kernels.activations import ALPHA
from nncourse.kernels.dense_epoch import CROSS_ENTROPIES, DenseArchitecture, dense_sgd_epoch
from nncourse.kernels.operation import cuda_beside

ALONE, CLUSTER, GRID, CLUSTERS = range(4)
IN_REGISTERS, IN_SHARED, IN_GLOBAL = range(3)
MEETING = CudaSource.read(Path(__file__).with_name("meeting.cu"))
COPIES = CudaSource.read(Path(__file__).with_name("copies.cu"))
MOST_REGISTERS = 120  # of a thread, for weights and sums of layer 1; the rest is for its other variables
MOST_SAMPLES = 48  # sums that a thread holds at a time
# Of a thread, for all but weights, their memory, inputs and sums.
OTHER_REGISTERS = {ALONE: 32, CLUSTER: 32, GRID: 48, CLUSTERS: 48}
SPREAD = 65_536  # multiplications of layer 1 in a forward pass from which several blocks pay for their synchronisation
NEAR = 8  # blocks of a cluster: as many as every GPU with clusters supports
MOST_HEARD = 12  # fours of sums that a thread hears from clusters at a time: more would not fit into registers
MOST_ABOVE = 250_000  # multiplications of a step above layer 1; with 500,000 it took three times as long as streamed


TENSOR_CORES = (8, 0), (9, 0), (10, 0), (10, 3)  # of GPUs for data centres: others have few


@dataclass(frozen=True)
class Chip:
    """The limits of a GPU: bytes of shared memory per block, multiprocessors, and whether it has clusters.

    tensor_cores: whether it multiplies TF32 more than three times as fast as float32, by NVIDIA's figures.
    """

    shared_bytes: int
    multiprocessors: int
    clusters: bool
    tensor_cores: bool = False


@dataclass(frozen=True)
class Plan:
    """The constants of dense_one_kernel.cu that do not follow from the network. They are explained there."""

    blocks: int
    meeting: int
    threads: int
    lanes: int
    quads: int
    neurons: int
    samples: int
    group: int
    stages: int
    keeps: bool = False
    memory: int = IN_REGISTERS


@functools.lru_cache(maxsize=64)
def plan(architecture: DenseArchitecture, batch: int, chip: Chip, rule: Rule = PLAIN, **chosen: Any) -> Plan:
    """A layout that fits the chip; `chosen`: fields of it that are given. Raises DoesNotFitError if there is none."""
    above = batch * sum(n_out * n_in for n_out, n_in in architecture.shapes[1:])
    if above > MOST_ABOVE and not chosen:
        raise DoesNotFitError(
            f"one_kernel expected at most {MOST_ABOVE:,} multiplications a step above layer 1, since few threads share "
            f"them; got {above:,}: take the plan streamed"
        )
    work = (batch + 2) * architecture.sizes[0] * architecture.sizes[1]
    spread = len(architecture.sizes) > 2 and work >= SPREAD
    wanted = min(48, ceil(architecture.sizes[1] / 4))  # four neurons a block; more blocks synchronise more slowly
    grids = [(min(blocks, chip.multiprocessors), GRID) for blocks in (wanted, 8)]
    clusters = [(NEAR, CLUSTER)] if chip.clusters else []
    choices = grids + clusters if work >= 16 * SPREAD else clusters + grids
    several = ceil(wanted / NEAR) * NEAR
    # The blocks of a cluster need multiprocessors that are neighbours: not all of them can have one.
    if chip.clusters and NEAR < several <= chip.multiprocessors // 2 and work >= 6 * SPREAD:
        choices = [(several, CLUSTERS), *choices]
    choices = [*choices, (1, ALONE)] if spread else [(1, ALONE)]
    if "blocks" in chosen:
        choices = [(chosen["blocks"], chosen.get("meeting", GRID if chosen["blocks"] > 1 else ALONE))]
    for blocks, meeting in choices:
        for stages in (chosen["stages"],) if "stages" in chosen else (2, 1):
            made = _layout(architecture, batch, blocks, meeting, stages, rule, chosen)
            if made and meeting == CLUSTERS and _heard(made, architecture) > MOST_HEARD:
                made = None
            for memory in (IN_SHARED, IN_GLOBAL) if made and made.memory else (IN_REGISTERS,):
                made = made and replace(made, memory=chosen.get("memory", memory))
                if made and shared_bytes(made, architecture, batch, rule) <= chip.shared_bytes:
                    return made
    raise DoesNotFitError(
        f"one_kernel expected a network and a batch that fit on the chip ({chip.shared_bytes} bytes of shared memory a "
        f"block), got {architecture} in batches of {batch}; take another kernel, or fewer neurons or samples"
    )


def _layout(
    architecture: DenseArchitecture, batch: int, blocks: int, meeting: int, stages: int, rule: Rule,
    chosen: dict[str, Any],
) -> Plan | None:  # fmt: skip
    """A layout with threads of some neurons × some inputs for layer 1. None if it needs too many threads in a block."""
    own = ceil(architecture.sizes[1] / blocks)
    quads_in_row = ceil(architecture.sizes[0] / 4)
    # If one warp covers a row of weights, prefer more weights per thread: four warps keep a multiprocessor busy.
    usual = (2, 1, 4) if quads_in_row <= 64 else (1, 2, 4)
    for quads in (chosen["quads"],) if "quads" in chosen else usual:
        lanes = chosen.get("lanes", min(32, 1 << max(0, ceil(np.log2(quads_in_row / quads)))))
        side = 32 // lanes
        warps_k = ceil(quads_in_row / (lanes * quads))
        # As many neurons per thread as leave work for several warps: each input that is read is then used more often.
        neurons = max(1, min(12, ceil(own / side) if warps_k >= 4 else ceil(own / (side * 4))))
        neurons = chosen.get("neurons", neurons)
        warps_j = ceil(own / (side * neurons))
        samples = max(d for d in range(1, batch + 1) if batch % d == 0 and d * neurons <= MOST_SAMPLES)
        samples = chosen.get("samples", samples)
        weights = 4 * quads * neurons
        if weights + samples * neurons > MOST_REGISTERS:
            continue
        # Threads for the layers above: one group per sample unless these are too many. In a cluster a block has little
        # to do above layer 1, so the threads of layer 1 must be enough. In a grid more threads are faster, unless they
        # leave too few registers for what an optimizer remembers. A grid's groups only have to add to the sums of
        # layer 2, which are few.
        threads = 32 * warps_k * warps_j
        most = {CLUSTER: threads, ALONE: 640}.get(meeting, max(threads, 448 if rule == PLAIN else 256))
        group = 16 if meeting in (GRID, CLUSTERS) else 32
        while group > 4 and batch * group > most:
            group //= 2
        group = chosen.get("group", group)
        threads = chosen.get("threads", max(threads, min(most, ceil(batch * group / 32) * 32)))
        if threads <= 1024:
            # Registers of a thread: each quarter of a multiprocessor has 512 for one thread of each of its warps.
            registers = min(255, 512 // ceil(threads / 128) // 8 * 8) - OTHER_REGISTERS[meeting]
            # Forward, a thread holds sums; in an update, gradients.
            remembered = weights * len(rule.memory)
            needed = weights + remembered + (max(samples * neurons, weights) if rule != PLAIN else 0)
            inputs = 4 * quads * batch
            keeps = chosen.get("keeps", inputs <= 128 and needed + inputs <= registers)
            return Plan(
                blocks, meeting, threads, lanes, quads, neurons, samples, group, stages,
                keeps=stages == 2 and keeps,
                memory=IN_REGISTERS if needed <= registers or not remembered else IN_SHARED,
            )  # fmt: skip
    return None


def shared_bytes(made: Plan, architecture: DenseArchitecture, batch: int, rule: Rule = PLAIN) -> int:
    """The size of the struct Shared in the .cu text, in bytes."""
    n_in, *widths = architecture.sizes
    own, *_ = kept = _kept(made, architecture)
    rows = _rows(made, batch)
    span = 4 * made.lanes * made.quads
    warps_k = ceil(n_in / span)
    side = 32 // made.lanes
    warps_j = ceil(own / (made.neurons * side))
    cross = made.neurons if made.neurons in (1, 2, 4, 8, 16, 32) and made.neurons <= made.lanes else 1
    weights = sum(
        n_out * 4 * (by + 8 * max(0, ceil((ceil(n_below / 4) - by) / 8)))
        for (n_below, n_out), by in zip(pairwise(kept), sharing(made, architecture), strict=True)
    )
    neurons = 4 * sum(ceil(n / 4) for n in kept)
    padded = 4 * (neurons // 4 | 1)  # a row, padded to an odd multiple of four to avoid bank conflicts
    numbers = (
        (2 if made.stages == 2 else warps_j) * batch * (ceil(n_in / 4) * 4 + 4)
        + rows * (cross * ceil(warps_j * side * made.neurons / 4) * 4 + warps_k * own + 3 * padded + 2 * widths[-1])
        + 8 + weights + 4 + neurons
        + _parts(made, architecture, batch)
    )  # fmt: skip
    remembered = weights + 8 + neurons
    if made.memory == IN_SHARED:
        remembered += 4 * made.quads * made.neurons * 32 * warps_k * warps_j
    return 4 * (numbers + len(rule.memory) * remembered + 24)  # what is not there has a number; padding at its end


def meeting_size(made: Plan, architecture: DenseArchitecture, batch: int) -> int:
    """The numbers that blocks exchange through global memory, or through memory that emulates a cluster."""
    if made.meeting == ALONE:
        return 1
    n_second, *_ = above = architecture.sizes[2:]
    if made.meeting == CLUSTER:
        return _parts(made, architecture, batch)
    if made.meeting == CLUSTERS:
        sums = 4 * _fours_of_clusters(made) * batch * n_second
        return 2 * sums + made.blocks * _parts(made, architecture, batch)
    padded = [4 * ceil(n / 4) for n in above]
    return batch * (made.blocks * n_second + 2 * sum(padded) - padded[-1])


def _heard(made: Plan, architecture: DenseArchitecture) -> int:
    """The fours of sums of layer 2 that a thread hears from all clusters, for a sample."""
    return ceil(architecture.sizes[2] / made.group) * _fours_of_clusters(made)


def _fours_of_clusters(made: Plan) -> int:
    return ceil(made.blocks / NEAR / 4)


def _parts(made: Plan, architecture: DenseArchitecture, batch: int) -> int:
    """The partial sums of layer 2 that a block has from the others of its cluster."""
    if made.meeting == CLUSTER:
        return 2 * made.blocks * _rows(made, batch) * architecture.sizes[2]
    return NEAR * ceil(batch / NEAR) * architecture.sizes[2] if made.meeting == CLUSTERS else 1


def _rows(made: Plan, batch: int) -> int:
    """The samples of a batch, plus surplus rows so that each group of threads has the same number."""
    groups = made.threads // made.group
    return ceil(batch / groups) * groups


def _kept(made: Plan, architecture: DenseArchitecture) -> list[int]:
    """The neurons of each layer that a block holds: a part of layer 1, and all neurons of the layers above."""
    return [ceil(architecture.sizes[1] / made.blocks), *architecture.sizes[2:]]


def sharing(made: Plan, architecture: DenseArchitecture) -> list[int]:
    """For each layer from the second on, how many threads of a group share a sum, so that few threads are idle.

    Each computes four products or more; or, where the sums go to other blocks, sends to some of these. At most four
    share a sum, because each asks all others for their parts.
    """
    counts = []
    for layer, (n_below, n_out) in enumerate(pairwise(_kept(made, architecture)), 2):
        sends = layer == 2 and made.meeting == CLUSTER
        group = made.group if layer == 2 or made.meeting != GRID else 32
        counts.append(max(1, min(4, group // n_out, made.blocks if sends else ceil(n_below / 4))))
    return counts


@functools.lru_cache(maxsize=64)
def source(made: Plan, architecture: DenseArchitecture, batch: int, copy: int, rule: Rule = PLAIN) -> CudaSource:
    """The .cu text for this network, plan and optimizer; `copy` elements are copied at once."""
    constants: dict[str, int | str] = {field.name.upper(): int(getattr(made, field.name)) for field in fields(Plan)}
    constants |= rule_constants(rule)
    constants |= {
        "SIZES": ", ".join(map(str, architecture.sizes)),
        "ACTIVATIONS": ", ".join(map(str, codes(architecture.activations))),
        "SHARING": ", ".join(map(str, sharing(made, architecture))),
        "LAYERS": len(architecture.activations),
        "COST": "CROSS_ENTROPY" if architecture.cost in CROSS_ENTROPIES else architecture.cost.upper(),
        "BATCH": batch,
        "COPY": copy,
        "ALPHA": f"{ALPHA}f",
        "SHARED_BYTES": shared_bytes(made, architecture, batch, rule),
    }
    defines = (f"{name}={value}" for name, value in constants.items())
    return cuda_beside(__file__, *defines, before=(MATHEMATICS, MEETING, COPIES, RULES))


@functools.cache
def this_chip() -> Chip:
    """The limits of the current GPU."""
    import cupy

    chip = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    kind = chip["major"], chip["minor"]
    return Chip(chip["sharedMemPerBlockOptin"], chip["multiProcessorCount"], kind >= (9, 0), kind in TENSOR_CORES)


EMULATED = Chip(99 * 1024, 4, False)  # few blocks: the emulator runs one thread after the other


def epoch(
    parameters: Array,
    memory: dict[str, Array],
    architecture: DenseArchitecture,
    rule: Rule,
    X: Array,
    Y: Array,
    batch: int,
    rate: float,
    steps: int,
    chip: Chip | None = None,
    made: Plan | None = None,
    **emulator: Any,
) -> None:
    """All steps of the epoch in one launch. `memory`: M and V, those that the rule has.

    `chip` and `made` select a layout other than that for this GPU.
    """
    batch = min(batch, max(1, len(X)))
    gpu = devices.on_gpu(parameters)
    chip = chip or (this_chip() if gpu else EMULATED)
    made = made or plan(architecture, batch, chip, rule)
    xp = devices.array_module(parameters)
    address = X.data.ptr if gpu else X.ctypes.data
    copy = next(n for n in (4, 2, 1) if architecture.sizes[0] % n == 0 and address % (4 * n) == 0)
    text = source(made, architecture, batch, copy, rule)
    meeting_place = xp.zeros(meeting_size(made, architecture, batch), np.float32)
    M, V = (memory[name] if name in rule.memory else xp.zeros(1, np.float32) for name in "MV")
    arguments = [parameters, M, V, X, Y, meeting_place, len(X), rate, steps]
    needed, waits = shared_bytes(made, architecture, batch, rule), made.meeting in (GRID, CLUSTERS)
    options: dict[str, Any] = {"shared_bytes": needed, "cooperative": waits}
    launch(text, "dense_epoch", (made.blocks,), (made.threads,), arguments, **options, **emulator)


@dense_sgd_epoch.kernel("one_kernel", device="gpu", cuda=True)
def one_kernel(
    parameters: Array, architecture: DenseArchitecture, X: Array, Y: Array, batch: int, rate: float, **options: Any
) -> Array:
    """W ← W − η G; `options` are those of epoch()."""
    dense_sgd_epoch.sizes(parameters, architecture, X, Y, batch, rate)
    epoch(parameters, {}, architecture, PLAIN, X, Y, batch, rate, 0, **options)
    return parameters


@network_epoch.kernel("one_kernel", device="gpu", cuda=True, otherwise="streamed")
def network_one_kernel(
    parameters: Array, M: Array, V: Array, architecture: ChainArchitecture, rule: Rule, X: Array, Y: Array, batch: int,
    rate: float, steps: int, **options: Any,
) -> State:  # fmt: skip
    """Any optimizer; `options` are those of epoch(). DoesNotFitError if a layer is not dense."""
    network_epoch.sizes(parameters, M, V, architecture, rule, X, Y, batch, rate, steps)
    epoch(parameters, {"M": M, "V": V}, dense_only(architecture), rule, X, Y, batch, rate, steps, **options)
    return parameters, M, V


def dense_only(chain: ChainArchitecture) -> DenseArchitecture:
    """A chain of dense layers as a DenseArchitecture; DoesNotFitError for other layers."""
    if chain.dense is None:
        raise DoesNotFitError(f"one_kernel expected dense layers only, got {chain}; take the plan streamed")
    return chain.dense
