"""network_epoch in one launch for networks of any size: the division of its products, and the launch of streamed.cu."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

import numpy as np

from cuda_on_cpu.text import CudaSource
from fused_epochs import rules
from fused_epochs.architecture import ChainArchitecture, Filters, Neurons, Rule, State, Windows
from fused_epochs.dense import MATHEMATICS, codes
from fused_epochs.dense_one_kernel import COPIES, MEETING, Chip, this_chip
from fused_epochs.network import network_epoch
from nncourse import device as devices
from nncourse.cuda.launch import launch
from nncourse.device import Array
from nncourse.errors import DoesNotFitError
from nncourse.kernels.activations import ALPHA
from nncourse.kernels.dense import ON_TENSOR_CORES
from nncourse.kernels.dense_epoch import CROSS_ENTROPIES

FILES = ("streamed_layers", "streamed_products", "streamed_images", "streamed_few", "streamed")
TEXTS = tuple(CudaSource.read(Path(__file__).with_name(f"{name}.cu")) for name in FILES)

THREADS = 256
MOST_DEPTH = 64  # steps along k whose factors are in shared memory together
LEAST_SHARED = 9_216  # numbers: for the sums of all groups of threads
RESERVED = 4_096  # bytes of shared memory for CUDA itself, a block's variables, and prepared steps
STAGES = (4, 3, 2)  # of factors in shared memory: as many as fit
MOST_OUTPUTS = 32  # of the head; a thread keeps a sum for each
MOST_SUMS = 40  # that a thread keeps in the head
MOST_LAYERS = 10  # each takes a second or so to compile
MOST_NUMBERS = 1 << 29  # in the activations of a batch: 2 GiB, and as much for the deltas
MOST_STEPS = 1_000  # in one launch: some milliseconds up to a second, between which Ctrl-C is heard
# Tiles of a product of matrices, rows × columns, and the cycles that a multiprocessor takes for a step along k. Large
# tiles read less, small ones keep more of the chip busy, and some products have few rows or columns.
TILES = {
    (8, 64): 15, (16, 32): 12.5, (32, 32): 19, (32, 64): 29, (64, 16): 22, (64, 64): 54, (128, 16): 30, (128, 32): 58,
    (128, 64): 120,
}  # fmt: skip
# The same on tensor cores, where a warp computes 32 × 32 elements: rough, from some products on an H200.
TENSOR_TILES = {(32, 32): 13, (32, 64): 20, (64, 64): 30, (128, 32): 32, (128, 64): 62}
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# Cycles for a tile, for each round of its elements over the threads, and for a sum that blocks share. All of these were
# fitted to some thousand products on an H100.
BEGIN, ROUND, ARRIVE, ADD = 1_900, 200, 2_400, 45
# The same for images, pixels × filters, with the multiplications in a cycle: much the same for all tiles.
IMAGE_TILES = (128, 8), (128, 16), (128, 32), (128, 64), (256, 8), (256, 16), (256, 32)
IMAGE_BEGIN, IMAGE_ROUND, IMAGE_RATE = 2_300, 100, 70
MOST_STAGE = 9_216  # numbers of a stage


@dataclass(frozen=True)
class Tile:
    """How a product is divided: see streamed_layers.cu. `size` elements are in a tile, of which there are `count`.

    stage: numbers of its factors in shared memory, of one stage.
    """

    high: int
    wide: int
    split: int
    part: int
    size: int
    count: int
    stage: int


def matrix_tile(product: "Product", high: int, wide: int, split: int) -> Tile:
    """A tile of a product of matrices."""
    depth = 32 if high * wide > 1024 else 64
    stage = sum(max(length * (depth + 4), depth * (length + 8)) for length in (high, wide))  # whichever way they lie
    columns = product.columns + (product.has_bias and product.columns % wide != 0)  # otherwise it is summed apart
    count = ceil(product.rows / high) * ceil(columns / wide)
    return Tile(high, wide, split, 0, high * wide, count, stage)


def best_matrix_tile(product: "Product", blocks: int, tensor_cores: bool) -> Tile:
    """The tile with which a product of matrices takes the fewest cycles on `blocks` blocks."""
    tiles = TILES | TENSOR_TILES if tensor_cores else TILES

    def cycles(tile: Tile) -> float:
        rounds, steps = tile.size / THREADS, ceil(product.depth / tile.split) * tiles[tile.high, tile.wide]
        shared = ARRIVE + ADD * rounds * tile.split if tile.split > 1 else 0
        return ceil(tile.count * tile.split / blocks) * (BEGIN + ROUND * rounds + steps + shared)

    splits = [split for split in SPLITS if split == 1 or product.depth >= 64 * split]
    return min((matrix_tile(product, *size, split) for size in tiles for split in splits), key=cycles)


def image_tile(product: "Product", high: int, wide: int, channels: int) -> Tile:
    """A tile of a convolution's forward pass or deltas: lines of pixels × filters."""
    (height, width), fours = product.image, ceil(product.image[1] / 4)
    whole = height * fours * 4 <= high
    lines = height if whole else lines_of_band(height, high // (fours * 4))
    samples = high // (height * fours * 4) if whole else 1
    down = ceil(product.batch / samples) if whole else product.batch * ceil(height / lines)
    pitch = ceil(max(fours * 4, width + product.k - 1) / 4) * 4
    patch = samples * channels * (lines + product.k - 1) * pitch
    stage = patch + channels * product.k**2 * (wide + 4)
    return Tile(high, wide, 1, channels, high * wide, down * ceil(product.columns / wide), stage)


def lines_of_band(height: int, most: int) -> int:
    """At most `most` lines: an even number if that takes no more bands, so that windows of 2 x 2 are in one band."""
    even = most // 2 * 2
    return even if even and ceil(height / even) == ceil(height / most) else most


def best_image_tile(product: "Product", blocks: int, most_stage: int) -> Tile | None:
    """The tile with which such a convolution takes the fewest cycles; None if its lines are too long for all."""

    def cycles(tile: Tile) -> float:
        steps = product.channels * product.k**2 * tile.size / IMAGE_RATE
        return ceil(tile.count / blocks) * (IMAGE_BEGIN + IMAGE_ROUND * tile.size / THREADS + steps)

    found = []
    for high, wide in IMAGE_TILES:
        if ceil(product.image[1] / 4) * 4 <= high:
            one = image_tile(product, high, wide, 1)
            most = max(1, min(product.channels, most_stage // one.stage))
            found.append(image_tile(product, high, wide, divided(product.channels, most)))
    fits = [tile for tile in found if tile.stage <= most_stage]
    return min(fits, key=cycles, default=None)


def divided(channels: int, most: int) -> int:
    """Channels per turn, at most `most`: the same number in every turn, unless that takes twice as many turns."""
    turns = ceil(channels / most)
    return ceil(channels / next((count for count in range(turns, 2 * turns) if channels % count == 0), turns))


def image_weights_tile(product: "Product", blocks: int, most_stage: int) -> Tile | None:
    """The tile of a convolution's gradients: filters × channels. None if not even one line of pixels fits."""
    k, (height, width) = product.k, product.image
    high = next((high for high in (8, 16, 32) if product.rows <= high), 64)
    members = high // (8 if k <= 3 else 4 if k <= 5 else 2)  # threads for a channel
    pitch, window = ceil(width / 4) * 4, ceil((k + 3) / 4) * 4
    pitch_below = ceil(max(pitch, width + k - 1) / 4) * 4

    def stage(channels: int, lines: int) -> int:
        of_lines = (lines + k - 1) * pitch_below + max(0, pitch - 4 + window - pitch_below)
        return high * lines * pitch + channels * (of_lines + 4 * (of_lines % 8 == 0))

    channels = min(product.channels, THREADS // members)
    while channels > 1 and (stage(channels, 1) > most_stage or high * (channels * k * k + 1) > LEAST_SHARED):
        channels //= 2
    lines = max((lines for lines in range(1, height + 1) if stage(channels, lines) <= most_stage), default=0)
    if k > 7 or not lines:
        return None
    lines = ceil(height / ceil(height / lines))
    count = ceil(product.rows / high) * ceil(product.channels / channels)
    split = max(1, min(blocks // count, product.batch * ceil(height / lines)))
    return Tile(high, channels, split, lines, high * (channels * k * k + 1), count, stage(channels, lines))


@dataclass(frozen=True)
class Product:
    """The sizes of a product, and if it is of images: their height and width, the filters' channels and k.

    has_bias: a dense layer's biases are one more column, where a tile has room for it.
    """

    rows: int
    columns: int
    depth: int
    batch: int
    image: tuple[int, int] = (0, 0)
    channels: int = 0
    k: int = 0
    has_bias: bool = False


def products(architecture: ChainArchitecture, batch: int) -> list[tuple[Product, ...]]:
    """The products of each layer: forward, deltas below, weights; () for a pool."""
    found: list[tuple[Product, ...]] = []
    for layer, weights, below, above in zip(
        architecture.layers, architecture.shapes, architecture.maps, architecture.maps[1:], strict=False
    ):
        if not weights:
            found.append(())
            continue
        count, inputs, pixels = weights[0], prod(weights[1:]), prod(above[1:])
        if not isinstance(layer, Filters):
            forward, deltas = Product(batch, count, inputs, batch), Product(batch, inputs, count, batch)
            found.append((forward, deltas, Product(count, inputs, batch, batch, has_bias=True)))
            continue
        of_result, of_below = ((above[1], above[2]), below[0], layer.k), ((below[1], below[2]), count, layer.k)
        if layer.stride > 1:
            of_result = of_below = (0, 0), 0, 0
        forward = Product(batch * pixels, count, inputs, batch, *of_result)
        deltas = Product(batch * prod(below[1:]), below[0], count * layer.k**2, batch, *of_below)
        found.append((forward, deltas, Product(count, inputs + 1, batch * pixels, batch, *of_result)))
    return found


def tiles_for(made: tuple[Product, ...], blocks: int, most_stage: int, tensor_cores: bool) -> tuple[Tile, ...]:
    """The tiles of a layer's products, with at most `most_stage` numbers in a stage."""
    found = []
    for number, product in enumerate(made):
        best = None
        if product.k:
            of_images = image_weights_tile if number == 2 else best_image_tile
            best = of_images(product, blocks, most_stage)
        found.append(best or best_matrix_tile(product, blocks, tensor_cores))
    return tuple(found)


@dataclass(frozen=True)
class Plan:
    """The tiles of each layer's products, none for a pool, and the launch.

    blocks: of the launch; `blocks_at_once` of them share a multiprocessor.
    together: samples that a block takes through the head at a time; 0 without a head.
    stages, shared: of factors in shared memory, and the numbers there are for these.
    tensor_cores: whether tiles of TENSOR_TILES are computed on these.
    """

    tiles: tuple[tuple[Tile, ...], ...]
    blocks: int
    blocks_at_once: int
    together: int
    stages: int
    shared: int
    tensor_cores: bool

    @property
    def shared_bytes(self) -> int:
        """Of the launch: the factors, and 8 bytes for each of the steps that are prepared."""
        return 4 * self.shared + 8 * (self.stages + 1) * MOST_DEPTH


@functools.lru_cache(maxsize=64)
def plan(architecture: ChainArchitecture, batch: int, chip: Chip, blocks_at_once: int = 1) -> Plan:
    """A division of the work for this chip."""
    blocks = chip.multiprocessors * blocks_at_once
    most_stage = min(MOST_STAGE, (chip.shared_bytes // blocks_at_once - RESERVED) // (4 * STAGES[-1]))
    tiles = tuple(tiles_for(each, blocks, most_stage, chip.tensor_cores) for each in products(architecture, batch))
    outputs = architecture.contract_sizes["n_out"]
    together = min(ceil(batch / blocks), MOST_SUMS // outputs) if outputs <= MOST_OUTPUTS else 0
    return planned(tiles, blocks, blocks_at_once, together, chip)


def planned(tiles: tuple[tuple[Tile, ...], ...], blocks: int, blocks_at_once: int, together: int, chip: Chip) -> Plan:
    """A plan with these tiles, and as many stages as fit."""
    stage = max(tile.stage for each in tiles for tile in each)
    for stages in STAGES:
        shared = max(LEAST_SHARED, stages * stage)
        made = Plan(tiles, blocks, blocks_at_once, together, stages, shared, chip.tensor_cores)
        if (made.shared_bytes + 1_024) * blocks_at_once <= chip.shared_bytes:
            return made
    raise DoesNotFitError(
        f"streamed expected {made.shared_bytes} bytes of shared memory a block; got {chip.shared_bytes}"
    )


@dataclass(frozen=True)
class Layout:
    """The table of streamed.cu, and the sizes of its arrays: numbers of A and of D, of parts, and of counters."""

    table: str
    numbers: int
    parts: int
    arrivals: int


@functools.lru_cache(maxsize=64)
def layout(made: Plan, architecture: ChainArchitecture, batch: int) -> Layout:
    """Where each layer's numbers are in memory."""
    none = ["{}"] * 3
    table = [_row("DENSE", architecture.shape, 1, 1, 0, "", 0, 0, tiles=none)]
    parameters_at = map_at = parts = arrivals = 0
    for number, layer in enumerate(architecture.layers):
        weights, above = architecture.shapes[number], architecture.maps[number + 1]
        tiles = []
        for tile in made.tiles[number]:
            tiles.append(f"{{{tile.high}, {tile.wide}, {tile.split}, {tile.part}, {parts}, {arrivals}}}")
            if tile.split > 1:
                parts, arrivals = parts + tile.count * tile.split * tile.size, arrivals + tile.count
        kind, k, stride, before = "DENSE", 1, 1, 0
        if isinstance(layer, Filters):
            kind, k, stride, before = "CONVOLUTION", layer.k, layer.stride, layer.before
        elif isinstance(layer, Windows):
            kind, k, stride, before = "POOL", layer.size, layer.size, 0
        name = architecture.activations[number]
        table.append(_row(kind, above, k, stride, before, name, parameters_at, map_at, tiles=tiles or none))
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
        "TENSOR_CORES": int(made.tensor_cores),
        "ALPHA": f"{ALPHA}f",
    }
    *before, text = TEXTS
    defines = tuple(f"{name}={value}" for name, value in constants.items())
    on_tensor_cores = (ON_TENSOR_CORES,) if made.tensor_cores else ()
    return replace(text, defines=defines, before=(MATHEMATICS, MEETING, COPIES, rules.RULES, *on_tensor_cores, *before))


EMULATED = Chip(99 * 1024, 3, False, True)  # few blocks: the emulator runs one thread after the other


@network_epoch.kernel("streamed", device="gpu", cuda=True)
def streamed(
    parameters: Array, M: Array, V: Array, architecture: ChainArchitecture, rule: Rule, X: Array, Y: Array, batch: int,
    rate: float, steps: int, made: Plan | None = None, **emulator: Any,
) -> State:  # fmt: skip
    """All steps in a few launches. `made` selects another plan than that for this GPU."""
    network_epoch.sizes(parameters, M, V, architecture, rule, X, Y, batch, rate, steps)
    refuse_others(architecture)
    n, batch, gpu = len(X), min(batch, max(1, len(X))), devices.on_gpu(parameters)
    made = made or plan(architecture, batch, this_chip() if gpu else EMULATED)
    xp, needed = devices.array_module(parameters), layout(made, architecture, batch)
    if max(needed.numbers, needed.parts) > MOST_NUMBERS:
        raise DoesNotFitError(f"streamed expected fewer numbers a batch than {needed.numbers}: take smaller batches")
    copied = tuple(
        4 if width % 4 == 0 and at % 16 == 0 else 1
        for at, width in ((devices.address(X), X.shape[1]), (devices.address(parameters), 4))
    )
    text = source(made, architecture, rule, batch, copied)
    scratch = [xp.zeros(max(4, size), np.float32) for size in (needed.numbers, needed.numbers, needed.parts)]
    for start in range(0, n, MOST_STEPS * batch):
        rows = slice(start, min(n, start + MOST_STEPS * batch))
        arrivals = xp.zeros(1 + needed.arrivals, np.int32)
        taken = steps + start // batch
        arguments = [parameters, M, V, X[rows], Y[rows], *scratch, arrivals, rows.stop - start, taken, rate]
        options: dict[str, Any] = {"shared_bytes": made.shared_bytes, "cooperative": True}
        launch(text, "network_epoch", (made.blocks,), (THREADS,), arguments, **options, **emulator)
    return parameters, M, V


def refuse_others(architecture: ChainArchitecture) -> None:
    """DoesNotFitError for a chain that is not worth compiling, or cannot be."""
    if not isinstance(architecture.layers[-1], Neurons):
        raise DoesNotFitError(f"streamed expected a dense layer at the end; got {architecture}")
    count = sum(1 for weights in architecture.shapes if weights)
    if count > MOST_LAYERS:
        raise DoesNotFitError(f"streamed expected at most {MOST_LAYERS} layers with weights; got {count}")
