"""network_epoch in one launch for networks of any size: how its products are divided, and the launch of streamed.cu."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

import numpy as np

from cuda_on_cpu.source import CudaSource
from nncourse import device as devices
from nncourse.architecture import ChainArchitecture, Filters, Neurons, Rule, Windows
from nncourse.cuda.launch import launch
from nncourse.epochs import rules
from nncourse.epochs.dense import CROSS_ENTROPIES, MATHEMATICS, codes
from nncourse.epochs.dense_one_kernel import COPIES, MEETING, Chip, this_chip
from nncourse.epochs.network import network_epoch
from nncourse.errors import DoesNotFitError
from nncourse.kernels.activations import ALPHA
from nncourse.kernels.operation import cuda_beside

THREADS = 256
MOST_DEPTH = 64  # steps along k whose factors are in shared memory together
LEAST_SHARED = 9_216  # numbers: for the sums of all groups of threads
RESERVED = 1_024  # bytes of shared memory that CUDA needs itself, and the variables of a block
STAGES = (4, 3, 2)  # of factors in shared memory: as many as fit
MOST_OUTPUTS = 32  # of the head; a thread keeps a sum for each
MOST_SUMS = 40  # that a thread keeps in the head
MOST_STEPS = 1_000  # in one launch: some milliseconds up to a second, between which Ctrl-C is heard
# Large tiles read less, small ones keep more of the chip busy, and some products have few rows or columns.
TILES = ((8, 64), (16, 32), (32, 32), (32, 64), (64, 16), (64, 64), (128, 8), (128, 16), (128, 32), (128, 64))
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
# Cycles of a multiprocessor, measured on an H200: for the first loads and the last stores of a tile, for a shared sum;
# for a number that is loaded; and its multiplications in a cycle.
BEGIN, ARRIVE, LOAD, MULTIPLICATIONS = 1_500, 1_500, 0.12, 80


@dataclass(frozen=True)
class Tile:
    """How a product is divided: elements of a tile, and blocks that share its sum."""

    high: int
    wide: int
    split: int = 1

    @property
    def stage(self) -> int:
        """Numbers of its two factors in shared memory, whichever way they lie there."""
        depth = 32 if self.high * self.wide > 1024 else 64
        return max((self.high + self.wide) * (depth + 4), depth * (self.high + self.wide + 8))


def tile_for(rows: int, columns: int, depth: int, blocks: int) -> Tile:
    """The tile with which a product takes the fewest cycles on so many blocks."""

    def cycles(tile: Tile) -> float:
        units = ceil(rows / tile.high) * ceil(columns / tile.wide) * tile.split
        step = tile.high * tile.wide / MULTIPLICATIONS + (tile.high + tile.wide) * LOAD
        return ceil(units / blocks) * (BEGIN + ceil(depth / tile.split) * step + ARRIVE * (tile.split > 1))

    sizes = [Tile(*size, split) for size in TILES for split in SPLITS if split == 1 or depth >= 64 * split]
    return min(sizes, key=cycles)


@dataclass(frozen=True)
class Plan:
    """The tiles of each layer's products, none for a pool, and the launch.

    blocks: of the launch; `blocks_at_once` of them share a multiprocessor.
    together: samples that a block takes through the head at a time; 0 without a head.
    stages, shared: of factors in shared memory, and the numbers there are for these.
    """

    tiles: tuple[tuple[Tile, ...], ...]
    blocks: int
    blocks_at_once: int
    together: int
    stages: int
    shared: int

    @property
    def shared_bytes(self) -> int:
        """Of the launch: the factors, and 8 bytes for each of the steps that are prepared."""
        return 4 * self.shared + 8 * (self.stages + 1) * MOST_DEPTH


def products(architecture: ChainArchitecture, batch: int) -> list[tuple[tuple[int, int, int], ...]]:
    """(rows, columns, depth) of the products of each layer: forward, deltas below, weights; () for a pool."""
    found: list[tuple[tuple[int, int, int], ...]] = []
    for layer, weights, below, above in zip(
        architecture.layers, architecture.shapes, architecture.maps, architecture.maps[1:], strict=False
    ):
        if not weights:
            found.append(())
            continue
        (count, inputs), pixels, deltas = (
            (weights[0], prod(weights[1:])),
            prod(above[1:]),
            (batch, prod(below), weights[0]),
        )
        if isinstance(layer, Filters):
            deltas = batch * prod(below[1:]), below[0], count * layer.k**2
        found.append(((batch * pixels, count, inputs), deltas, (count, inputs + 1, batch * pixels)))
    return found


def plan(architecture: ChainArchitecture, batch: int, chip: Chip, blocks_at_once: int = 1) -> Plan:
    """A division of the work for this chip."""
    blocks = chip.multiprocessors * blocks_at_once
    tiles = tuple(tuple(tile_for(*sizes, blocks) for sizes in each) for each in products(architecture, batch))
    outputs = architecture.contract_sizes["n_out"]
    together = min(ceil(batch / blocks), MOST_SUMS // outputs) if outputs <= MOST_OUTPUTS else 0
    return planned(tiles, blocks, blocks_at_once, together, chip)


def planned(tiles: tuple[tuple[Tile, ...], ...], blocks: int, blocks_at_once: int, together: int, chip: Chip) -> Plan:
    """A plan with these tiles, and as many stages as fit."""
    stage = max(tile.stage for each in tiles for tile in each)
    for stages in STAGES:
        made = Plan(tiles, blocks, blocks_at_once, together, stages, max(LEAST_SHARED, stages * stage))
        if (made.shared_bytes + RESERVED) * blocks_at_once <= chip.shared_bytes:
            return made
    raise DoesNotFitError(
        f"streamed wanted {made.shared_bytes} bytes of shared memory a block; got {chip.shared_bytes}"
    )


@dataclass(frozen=True)
class Layout:
    """The table of streamed.cu, and the sizes of its arrays: numbers of A and of D, of parts, and of counters."""

    table: str
    numbers: int
    parts: int
    arrivals: int


def layout(made: Plan, architecture: ChainArchitecture, batch: int) -> Layout:
    """Where each layer's numbers lie in memory."""
    none = ["{}"] * 3
    table = [_row("DENSE", architecture.shape, 1, 1, 0, "", 0, 0, tiles=none)]
    parameters_at = map_at = parts = arrivals = 0
    for number, layer in enumerate(architecture.layers):
        weights, above = architecture.shapes[number], architecture.maps[number + 1]
        tiles = []
        for (rows, columns, _), tile in zip(products(architecture, batch)[number], made.tiles[number], strict=True):
            tiles.append(f"{{{tile.high}, {tile.wide}, {tile.split}, {parts}, {arrivals}}}")
            if tile.split > 1:
                count = ceil(rows / tile.high) * ceil(columns / tile.wide)
                parts, arrivals = parts + count * tile.split * tile.high * tile.wide, arrivals + count
        kind, *filters = "DENSE", 1, 1, 0
        if isinstance(layer, Filters):
            kind, *filters = "CONVOLUTION", layer.k, layer.stride, layer.before
        elif isinstance(layer, Windows):
            kind, *filters = "POOL", layer.size, layer.size, 0
        table.append(
            _row(kind, above, *filters, architecture.activations[number], parameters_at, map_at, tiles=tiles or none)
        )
        map_at += ceil(batch * prod(above) / 4) * 4  # an address at which four can be copied at once
        parameters_at += prod(weights) + weights[0] if weights else 0
    return Layout(", ".join(table), map_at, parts, arrivals)


def _row(
    kind: str, shape: tuple[int, ...], k: int, stride: int, before: int, activation: str, *at: int, tiles: Sequence[str]
) -> str:
    """A Row of streamed.cu. Numbers in a row are channels of one pixel."""
    image = shape if len(shape) == 3 else (shape[0], 1, 1)
    code = codes([activation])[0] if activation else 0
    return f"{{{kind}, {', '.join(map(str, (*image, k, stride, before, code, *at)))}, {', '.join(tiles)}}}"


@functools.lru_cache(maxsize=64)
def source(
    made: Plan, architecture: ChainArchitecture, rule: Rule, batch: int, at_once: tuple[int, int] = (4, 4)
) -> CudaSource:
    """The .cu text for this network, optimizer and plan."""
    constants = rules.rule_constants(rule) | {
        "TABLE": layout(made, architecture, batch).table,
        "LAYERS": len(architecture.layers),
        "COST": "CROSS_ENTROPY" if architecture.cost in CROSS_ENTROPIES else architecture.cost.upper(),
        "BATCH": batch,
        "BLOCKS": made.blocks,
        "BLOCKS_AT_ONCE": made.blocks_at_once,
        "THREADS": THREADS,
        "STAGES": made.stages,
        "SHARED": made.shared,
        "MOST_DEPTH": MOST_DEPTH,
        "X_AT_ONCE": at_once[0],
        "PARAMETERS_AT_ONCE": at_once[1],
        "HAS_HEAD": int(made.together > 0),
        "TOGETHER": max(1, made.together),
        "ALPHA": f"{ALPHA}f",
    }
    defines = (f"{name}={value}" for name, value in constants.items())
    return cuda_beside(__file__, *defines, before=(MATHEMATICS, MEETING, COPIES, rules.RULES))


EMULATED = Chip(99 * 1024, 3, False)  # few blocks: the emulator runs one thread after the other


@network_epoch.kernel("streamed", device="gpu", cuda=True)
def streamed(parameters, M, V, architecture, rule, X, Y, batch, rate, steps, made: Plan | None = None, **emulator):
    """All steps in a few launches. `made` selects another plan than that for this GPU."""
    network_epoch.sizes(parameters, M, V, architecture, rule, X, Y, batch, rate, steps)
    if not isinstance(architecture.layers[-1], Neurons):
        raise DoesNotFitError(f"streamed wanted a dense layer at the end; got {architecture}")
    n, batch, gpu = len(X), min(batch, max(1, len(X))), devices.on_gpu(parameters)
    made = made or plan(architecture, batch, this_chip() if gpu else EMULATED)
    xp, needed = devices.array_module(parameters), layout(made, architecture, batch)
    copied = tuple(
        4 if width % 4 == 0 and at % 16 == 0 else 1
        for at, width in ((address(X), X.shape[1]), (address(parameters), 4))
    )
    text = source(made, architecture, rule, batch, copied)
    scratch = [xp.zeros(max(4, size), np.float32) for size in (needed.numbers, needed.numbers, needed.parts)]
    for start in range(0, n, MOST_STEPS * batch):
        rows = slice(start, min(n, start + MOST_STEPS * batch))
        arrivals = xp.zeros(1 + needed.arrivals, np.int32)
        taken = steps + start // batch
        arguments = [parameters, M, V, X[rows], Y[rows], *scratch, arrivals, rows.stop - start, taken, rate]
        options = {"shared_bytes": made.shared_bytes, "cooperative": True}
        launch(text, "network_epoch", (made.blocks,), (THREADS,), arguments, **options, **emulator)
    return parameters, M, V


def address(array) -> int:
    """Where an array of NumPy or CuPy begins."""
    return array.data.ptr if devices.on_gpu(array) else array.ctypes.data
