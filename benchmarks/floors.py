"""Compute lower bounds (floors) for the time of a step of one_kernel: from its arithmetic, shared memory and barriers.

floors.cu measures the rates and latencies on the current GPU, with the plan's numbers of threads and blocks. This file
counts the least amounts of work: see each function.
"""

from itertools import pairwise
from math import ceil

import numpy as np

from cuda_on_cpu.text import CudaSource
from fused_epochs.dense_one_kernel import ALONE, CLUSTER, CLUSTERS, GRID, MEETING, NEAR, Plan, plan, this_chip
from nncourse.cuda.launch import launch
from nncourse.kernels.dense_epoch import DenseArchitecture
from nncourse.kernels.operation import cuda_beside

MEETINGS = {ALONE: "alone", CLUSTER: "cluster", GRID: "grid", CLUSTERS: "clusters"}
# Exchanges of a step: of partial sums, in a cluster, in the grid or in both; and, if each block has some of the
# samples, of what it computed for them.
EXCHANGES = {ALONE: {}, CLUSTER: {"cluster": 1}, GRID: {"grid": 2}, CLUSTERS: {"cluster": 1, "grid": 1}}
THREADS, READS, CHAINS, LENGTH = 1024, 8, 8, 16  # of the two kernels that measure a rate

# ---- amounts of work, counted from dense_one_kernel.cu


def barriers(made: Plan) -> dict[str, int]:
    """Barriers per step: two in the block, after layer 1's sums and before the update; the exchanges of several."""
    return {"block": 2} | EXCHANGES[made.meeting]


def blocks_at(barrier: str, made: Plan) -> int:
    """The blocks that meet at a barrier of this name."""
    return 1 if barrier == "block" else NEAR if barrier == "cluster" and made.meeting == CLUSTERS else made.blocks


def shared_bytes_a_step(made: Plan, architecture: DenseArchitecture, batch: int) -> int:
    """Minimal bytes written to and read from one block's shared memory in a step.

    A read of the same address by all threads of a warp counts once. Activations, deltas, targets and biases are left
    out, because they are few.
    """
    n_in, *widths = architecture.sizes
    own = ceil(widths[0] / made.blocks)
    kept = [own, *widths[1:]]
    span = 4 * made.lanes * made.quads  # inputs that a warp covers
    warps_k, warps_j = ceil(n_in / span), ceil(own / (made.neurons * 32 // made.lanes))
    # Inputs are written, and read by every row of warps. If they are replaced in place, each row has its own copy and
    # reads it again for the gradient; otherwise a thread may keep what it read in registers.
    inputs = batch * n_in * (3 * warps_j if made.stages == 1 else 1 + warps_j)
    # Partial sums of layer 1 are written and read, one from each warp that shares a neuron; so are its deltas.
    sums = batch * own * (2 * warps_k if warps_k > 1 else 0) + batch * own * (1 + warps_k)
    # Each weight above layer 1 is read in the forward pass and for the deltas, once for all samples that a warp has at
    # the same time; its gradient reads one activation per sample; its update reads and writes it.
    of_all, of_own = ceil(batch * made.group / 32), ceil(batch / made.blocks) if made.meeting == GRID else batch
    above = sum(
        n_out * n_below * (2 * (of_all if layer == 2 else min(of_all, of_own)) + batch + 2)
        for layer, (n_below, n_out) in enumerate(pairwise(kept), 2)
    )
    return 4 * (inputs + sums + above)


def floor(made: Plan, architecture: DenseArchitecture, batch: int, parts: dict[str, float]) -> dict:
    """Seconds per step that each of the three takes alone. `parts`: see measured_rates() and measured_barriers()."""
    flops, size = batch * architecture.flops_a_sample, shared_bytes_a_step(made, architecture, batch)
    counted = barriers(made)
    return {
        "blocks": made.blocks,
        "threads": made.threads,
        "meeting": MEETINGS[made.meeting],
        "flops_a_step": flops,
        "shared_bytes_a_step": size,
        "barriers_a_step": counted,
        "arithmetic": flops / (made.blocks * parts["multiply_add"]),  # a block has a multiprocessor to itself
        "shared_memory": size / parts["shared_reads"],
        "barriers": sum(count * parts[f"{name}_barrier"] for name, count in counted.items()),
    }


def limit(record: dict) -> str:
    """What limits a step, from its floors and its measured time; "" if that was not measured.

    If the three floors together explain less than half of the time, the limit is latency: instructions wait for the
    results of earlier ones, which neither rates nor barriers show.
    """
    if not record["seconds_a_step"]:
        return ""
    floors = {name: record[name] for name in ("arithmetic", "shared_memory", "barriers")}
    if sum(floors.values()) < record["seconds_a_step"] / 2:
        return "latency"
    return max(floors, key=floors.get).replace("_", " ")


# ---- measurements


def source(blocks: int) -> CudaSource:
    """floors.cu for this number of blocks at a barrier."""
    constants = {"BLOCKS": blocks, "THREADS": THREADS, "READS": READS, "CHAINS": CHAINS, "LENGTH": LENGTH}
    return cuda_beside(__file__, *(f"{name}={value}" for name, value in constants.items()), before=(MEETING,))


def barrier(name: str, blocks: int, threads: int, rounds: int, xp=np):
    """A function that passes a barrier `rounds` times, and the array that its kernel writes."""
    done, numbers = xp.zeros(blocks, np.int32), xp.zeros(2 * blocks, np.float32)
    text, told = source(blocks), [numbers] if name == "grid" else []

    def work() -> None:
        numbers.fill(0)
        arguments = [done, *told, rounds]
        launch(text, f"{name}_barrier", (blocks,), (threads,), arguments, cooperative=name == "grid")

    return work, done


def shared_reads(rounds: int, xp=np):
    """A function that reads THREADS × READS × rounds float4 from one multiprocessor's shared memory, and the sums."""
    numbers, sums = xp.ones(THREADS + 32 * READS, np.float32), xp.zeros(THREADS, np.float32)
    return lambda: launch(source(1), "shared_reads", (1,), (THREADS,), [numbers, sums, rounds]), sums


def multiply_add(rounds: int, xp=np):
    """A function that does THREADS × CHAINS × LENGTH × rounds multiply-adds, and the sums."""
    sums = xp.zeros(THREADS, np.float32)
    return lambda: launch(source(1), "multiply_add", (1,), (THREADS,), [sums, 0.5, 1.0, rounds]), sums


def best(work) -> float:
    """Seconds of a launch on the GPU, the minimum of several."""
    from nncourse import device as devices

    return devices.seconds(work, "gpu", pick=min)


def measured_rates() -> dict[str, float]:
    """Bytes read from shared memory per second, and FLOP per second, of one multiprocessor. Needs a GPU."""
    import cupy

    rounds = 5_000  # some milliseconds
    return {
        "shared_reads": 16 * THREADS * READS * rounds / best(shared_reads(rounds, cupy)[0]),
        "multiply_add": 2 * THREADS * CHAINS * LENGTH * rounds / best(multiply_add(rounds, cupy)[0]),
    }


def measured_barriers(made: Plan) -> dict[str, float]:
    """Seconds of each kind of barrier in the plan. Needs a GPU."""
    import cupy

    found = {}
    for name in barriers(made):
        blocks = blocks_at(name, made)
        rounds = 100_000 if name == "block" else 10_000
        found[f"{name}_barrier"] = best(barrier(name, blocks, made.threads, rounds, cupy)[0]) / rounds
    return found


def measure(cases: list[tuple]) -> dict[str, list[dict]]:
    """Records of the tables `floors` and `parts`; `cases` are pairs (architecture, batch). Needs a GPU."""
    rates = measured_rates()
    parts = {
        "multiplications and additions of one multiprocessor": (rates["multiply_add"], "FLOP/s"),
        "its reads from shared memory": (rates["shared_reads"], "B/s"),
    }
    floors = []
    for architecture, batch in cases:
        made = plan(architecture, batch, this_chip())
        found = measured_barriers(made)
        network = "-".join(map(str, architecture.sizes))
        floors.append({"network": network, "batch": batch, **floor(made, architecture, batch, rates | found)})
        for name, value in found.items():
            blocks = blocks_at(name.removesuffix("_barrier"), made)
            parts[f"{name.replace('_', ' ')} of {blocks} × {made.threads} threads"] = value, "s"
    described = [{"what": what, "value": value, "unit": unit} for what, (value, unit) in parts.items()]
    return {"floors": floors, "parts": described}
