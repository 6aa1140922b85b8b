"""Grey silhouettes of made-up fish in nine classes: a stand-in for the fish masks of a study of training on two GPUs.

No image is of a real fish. A class is a tail (forked, round or pointed) with a back fin (in front, behind, or both).
The positions in front and behind overlap: a third of the single fins could be either, so at most 89 % can be right.
Body, size, rotation, side, position, outline, grey and noise are random and do not depend on the class.
"""

import math

import numpy as np

TAILS = "forked tail", "round tail", "pointed tail"
FINS = "fin in front", "fin behind", "two fins"
CLASSES = tuple(f"{tail}, {fin}" for tail in TAILS for fin in FINS)
AT_ONCE = 50  # images drawn together, with one random generator
ANGLES = 1024  # at which an outline is computed
WAVES = np.arange(2, 7)  # wave numbers of the random waves in an outline


def drawn(labels: np.ndarray, height: int, width: int, seed: int = 0) -> np.ndarray:
    """An image of each label from 0 to 8: (n, height, width) uint8, dark to light. Same seed, same images."""
    images = np.empty((len(labels), height, width), np.uint8)
    y, x = np.meshgrid(np.arange(height, dtype=np.float32), np.arange(width, dtype=np.float32), indexing="ij")
    x, y = (x.ravel() - (width - 1) / 2).astype(np.float32), (y.ravel() - (height - 1) / 2).astype(np.float32)
    for number, start in enumerate(range(0, len(labels), AT_ONCE)):
        rng, rows = np.random.default_rng([seed, number]), slice(start, start + AT_ONCE)
        images[rows] = _images(labels[rows], x, y, height, width, rng).reshape(-1, height, width)
    return images


def _images(
    labels: np.ndarray, x: np.ndarray, y: np.ndarray, height: int, width: int, rng: np.random.Generator
) -> np.ndarray:
    """The pixels of some images, (n, height * width) uint8; x and y are relative to the middle of the image."""
    n = len(labels)
    outline = outlines(labels, rng).astype(np.float32)

    def drawn_from(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, (n, 1)).astype(np.float32)

    half = drawn_from(0.28, 0.36) * min(width, 1.35 * height)  # of the body's length, in pixels
    turn, side = drawn_from(-0.5, 0.5), rng.choice(np.array([-1, 1], np.float32), (n, 1))
    left, up = drawn_from(-0.08, 0.08) * width, drawn_from(-0.1, 0.1) * height
    across, down = side * (x - left) / half - np.float32(0.22), (y - up) / half  # room for the tail
    along = np.cos(turn) * across + np.sin(turn) * down
    off = np.cos(turn) * down - np.sin(turn) * across
    place = np.arctan2(-off, along)
    place *= ANGLES / (2 * math.pi)
    index = place.astype(np.int32) & (ANGLES - 1)
    edge = np.take_along_axis(outline, index, axis=1)
    edge -= np.hypot(along, off)
    edge *= half
    edge += np.float32(0.5)
    inside = np.clip(edge, 0, 1, out=edge)  # the edge is one pixel wide
    dark, light = drawn_from(0.02, 0.25), drawn_from(0.45, 0.95)
    shade = drawn_from(-0.25, 0.25)  # from belly to back
    grey = inside * (light - dark + shade * off)
    grey += dark
    noise = rng.standard_normal(grey.shape, np.float32)
    noise *= drawn_from(0.02, 0.12)
    grey += noise
    grey *= 255
    return np.clip(grey, 0, 255, out=grey).astype(np.uint8)


def outlines(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The distance from the middle to the outline at ANGLES angles, from the nose over the back: (n, ANGLES).

    A body is about 2 units long and 0.6 to 0.9 high.
    """
    n, angle = len(labels), np.linspace(0, 2 * math.pi, ANGLES, endpoint=False)
    tails, fins = np.divmod(np.asarray(labels), len(FINS))

    def drawn_from(low: float, high: float) -> np.ndarray:
        return rng.uniform(low, high, (n, 1))

    deep = drawn_from(0.3, 0.46)
    body = 1 / np.sqrt(np.cos(angle) ** 2 + (np.sin(angle) / deep) ** 2)
    waves = rng.normal(0, 0.012, (n, len(WAVES), 2))
    wobble = waves[:, :, 0] @ np.cos(np.outer(WAVES, angle)) + waves[:, :, 1] @ np.sin(np.outer(WAVES, angle))
    r = body * (1 + wobble)
    # The tail: two lobes, far from the axis, so near it that they merge, or on it.
    apart = np.choose(tails, [0.26, 0.08, 0.0])[:, None] * drawn_from(0.85, 1.15)
    narrow = np.choose(tails, [0.1, 0.2, 0.13])[:, None] * drawn_from(0.85, 1.15)
    long = np.choose(tails, [0.85, 0.4, 0.65])[:, None] * drawn_from(0.85, 1.15)
    behind = np.abs(angle - math.pi)
    r += long * np.exp(-(((behind - apart) / narrow) ** 2))
    # Back fins in front or behind, at places that overlap; a belly fin, which all have, anywhere.
    high = drawn_from(0.16, 0.28)
    for where, has in ((drawn_from(1.05, 1.65), fins != 1), (drawn_from(1.45, 2.05), fins != 0)):
        r += has[:, None] * high * _bump(angle - where, 0.16)
    r += drawn_from(0.05, 0.22) * _bump(angle - drawn_from(4.2, 5.2), 0.15)
    return r


def _bump(away: np.ndarray, narrow: float) -> np.ndarray:
    return np.exp(-((away / narrow) ** 2))
