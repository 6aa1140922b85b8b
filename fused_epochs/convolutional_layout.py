"""The memory layout of a convolutional network in convolutional_loops.py.

Each sample has a row with its maps: the sample itself and the output of each convolution. Each channel of a map is a
plane: its rows, and the zeros around them that the filters above see. All rows of all maps have the same length, the
`pitch`. So a filter with stride 1 always finds its pixel (i, j) i · pitch + j numbers after its pixel (0, 0).

Filters come in fours, each with a multiple of four numbers; filters and numbers that are added have weight 0.
"""

import functools
from dataclasses import dataclass

import numpy as np

from fused_epochs.architecture import ConvolutionalArchitecture
from fused_epochs.dense import codes

FIELDS = 17
# The columns of the table. First the map: its shape, the numbers between two planes, where it begins in the row, and
# where in a plane its image and the zeros around it begin.
CHANNELS, HEIGHT, WIDTH, PLANE, AT, FIRST, IN = range(7)
# The filters that see this map: where they begin in the parameters, and in `weights`; how many numbers each has there,
# and where their offsets begin. The last three columns are for the backward pass.
K, STRIDE, ACTIVATION, W_AT, WEIGHT_AT, TAPS, OFFSET_AT, BACK_AT, BACK_TAPS, BACK_OFFSET_AT = range(7, FIELDS)


@dataclass(frozen=True)
class Layout:
    """The table, a row for each map, and the offsets of the numbers that a filter sees.

    w[places] = parameters[sources] arranges the filters in a vector w of length `weights`. All maps of a sample have
    `numbers` numbers.
    """

    pitch: int
    numbers: int
    table: np.ndarray
    offsets: np.ndarray
    places: np.ndarray
    sources: np.ndarray
    weights: int


def fours(number: int) -> int:
    """The next multiple of four."""
    return -(-number // 4) * 4


@functools.lru_cache(maxsize=16)
def layout(architecture: ConvolutionalArchitecture) -> Layout:
    """The layout for a network; its arrays must not be changed."""
    maps, filters = architecture.maps, architecture.convolutions
    pitch = max([maps[-1][2], *(n[2] + f.before + f.after for f, n in zip(filters, maps, strict=False))])
    table = np.zeros((len(maps), FIELDS), np.int64)
    at = 0
    for number, (channels, height, width) in enumerate(maps):
        f = filters[number] if number < len(filters) else None
        before, around = (f.before, f.before + f.after) if f else (0, 0)
        # In the backward pass the filters below see zeros before a plane.
        lead = (filters[number - 1].k - 1) * (pitch + 1) if number > 1 else 0
        plane = lead + (height + around) * pitch
        table[number, : IN + 1] = channels, height, width, plane, at, lead + before * (pitch + 1), lead
        at += (fours(channels) if number > 0 else channels) * plane + lead
    offsets, places, sources = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    w_at = weight_at = offset_at = 0
    for number, f in enumerate(filters):
        here, above = table[number], table[number + 1]
        channels, size = here[CHANNELS], here[CHANNELS] * f.k**2
        o, c, i, j = np.indices((f.count, channels, f.k, f.k)).reshape(4, -1)
        source = w_at + np.arange(o.size)
        here[K], here[STRIDE], here[ACTIVATION] = f.k, f.stride, codes(architecture.activations)[number]
        here[W_AT], here[WEIGHT_AT], here[TAPS], here[OFFSET_AT] = w_at, weight_at, fours(size), offset_at
        # A filter's bias precedes its numbers.
        step, one = 1 + fours(size), slice(0, size)
        places += [weight_at + o * step + 1 + (c * f.k + i) * f.k + j, weight_at + np.arange(f.count) * step]
        sources += [source, w_at + o.size + np.arange(f.count)]
        offsets += [(c * here[PLANE] + i * pitch + j)[one], np.zeros(fours(size) - size, np.int64)]
        weight_at += fours(f.count) * step
        offset_at += fours(size)
        # Backward: a filter for each channel, over the deltas of all filters, from the last pixel to the first.
        size = f.count * f.k**2
        here[BACK_AT], here[BACK_TAPS], here[BACK_OFFSET_AT] = weight_at, fours(size), offset_at
        back = (o * f.k + i) * f.k + j
        step = 1 + fours(size)
        places.append(weight_at + c * step + 1 + back)
        sources.append(source)
        reached = np.zeros(fours(size), np.int64)
        reached[back] = above[AT] + above[FIRST] + o * above[PLANE] - i * pitch - j + here[FIRST] - here[IN]
        offsets.append(reached)
        weight_at += fours(channels) * step
        offset_at += fours(size)
        w_at += o.size + f.count
    return Layout(
        pitch,
        int(at),
        table,
        np.concatenate(offsets).astype(np.uint64),
        np.concatenate(places),
        np.concatenate(sources),
        max(1, int(weight_at)),
    )
