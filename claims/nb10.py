"""The evidence for notebook 10: counts, by computation; and the recorded times of an H200."""

import numpy as np

from claims import Claim
from nnclassroom import choose, find, picture
from nnclassroom.figures import nb10, overheads
from nncourse import datasets

OPERATION = find("convolution_forward")


def places() -> bool:
    def along(image: int, k: int, stride: int, before: int, after: int) -> int:
        arrays = np.empty((1, 1, image, image)), np.empty((1, 1, k, k)), np.empty(1)
        return int(OPERATION.sizes(*arrays, stride, before, after)["h_out"])

    rows = (5, 3, 1, 0, 0), (5, 3, 2, 1, 1), (28, 2, 1, 0, 1), (28, 4, 4, 0, 0), (8, 3, 2, 0, 0)
    return [along(*row) for row in rows] == [3, 3, 28, 7, 3]


def blur_reads() -> bool:
    """Of 640 reads, the two before and behind each end are outside: 2 + 1 on either side."""
    inside = sum(0 <= i + offset < 128 for i in range(128) for offset in range(-2, 3))
    reads = picture.show("blur", "shared", n=128).accesses.reads_of("x")
    return inside == 634 and 5 * 128 == 640 and np.flatnonzero(reads > 1).tolist() == [62, 63, 64, 65]


def shared_reads() -> bool:
    limit = OPERATION.trial.budgets["shared"].limits[0]
    inside = sum(0 <= y + i < 32 and 0 <= x + j < 32 for y in range(32) for x in range(32)
                 for i in (-1, 0, 1) for j in (-1, 0, 1))  # fmt: skip
    return inside == 8836 and limit.kind == "reads" and 32 * 32 * 9 // 3 == 3072


def keeps_up_with_the_library() -> bool:
    sizes = {"batch": 128, "c_in": 64, "h_in": 37, "w_in": 50, "c_out": 64, "k": 3}
    layer = sizes | {"stride": 1, "before": 1, "after": 1}
    seconds = overheads.convolution_seconds("64 channels, 37 × 50", layer, ["implicit_gemm", "cudnn"])
    return seconds["implicit_gemm"] < 1.05 * seconds["cudnn"]


def shifted() -> bool:
    """On the digits that ship, with the course's filter."""
    backend, images = choose("numpy"), datasets.mnist("train", name="mnist_sample").images[:100]
    bank, changes = nb10.LEFT_EDGES[None, None].astype(np.float32), []
    both = [
        backend.relu(backend.convolution_forward(A, bank, np.zeros(1, np.float32), 1, 1, 1))
        for A in (images, np.roll(images, 1, axis=3))
    ]
    for size in (1, 2, 4):
        here, there = (backend.maxpool_forward(A, size, size, 0)[0] for A in both)
        changes.append(abs(here - there).sum() / (here + there).sum())
    return bool(np.allclose(changes, (0.47, 0.3, 0.15), atol=0.03))


def flops_per_byte() -> bool:
    def rate(c_in: int, c_out: int, k: int) -> float:
        return 2 * c_in * k * k * c_out / (4 * (c_in + c_out))

    return np.allclose([rate(1, 4, 2), rate(4, 4, 2), rate(64, 64, 3)], [1.6, 4, 144])


def twice_the_mean() -> bool:
    ones = np.array([1, 2, 3, 2, 1])
    shifted = [np.pad(np.ones((3, 3)), ((i, 2 - i), (j, 2 - j))) for i in range(3) for j in range(3)]
    return bool((np.outer(ones, ones) == np.sum(shifted, axis=0)).all())


CLAIMS = [
    Claim("sizes", "| 28 | 2 | 1 | 0 | 1 | |", why="definition: sizes to work out"),
    Claim("sizes", "| 28 | 4 | 4 | 0 | 0 | |", why="definition: sizes to work out"),
    Claim("sizes-answer", "The column: 3, 3, 28, 7, 3.", once=places),
    Claim("saves-answer", "100,480 parameters against 20", why="derived: 128 · 785 against 4 · 5, 5,024 times"),
    Claim("saves-answer", "The convolution writes 3,136 numbers per image", why="derived: 4 · 28 · 28"),
    Claim("write-loops", "about 1.6 million products", why="derived: 32 · 4 · 28 · 28 · 4 · 4; the time is a guess"),
    Claim("write-blur", "128 numbers of `x` are read 634 times", once=blur_reads),
    Claim("write-blur", "may read them at most 256 times", why="definition: the budget of blur is 2 n"),
    Claim("blur-answer", "6 of them are outside `x`, which leaves 634", once=blur_reads),
    Claim("blur-answer", "The numbers 62 to 65", once=blur_reads),
    Claim("shared-budget", "the naive kernel reads `A` 8,836 times", once=shared_reads),
    Claim("shared-budget", "at most 3,072 times", once=shared_reads),
    Claim("ladder-answer", "computes 64 products from 16 numbers, and keeps up", once=keeps_up_with_the_library),
    Claim("pooling", "from 0 to 15", why="definition: a place counts the 16 pixels"),
    Claim("pooling-answer", "the largest is 4, in row 0, column 3", why="derived: from the matrix above"),
    Claim("pooling-answer", "the first of them counts, row 2, column 2, place 10", why="derived: 2 · 4 + 2"),
    Claim("shift-answer", "it is nearly a half, then 30 %, then 15 %", once=shifted),
    Claim("shift-answer", "a pixel that crosses the border of a window", why="derived: windows stay where they are"),
    Claim("cost", "(1 → 4 and 4 → 4, both 2 × 2)", why="definition: the layers to work out"),
    Claim("cost-answer", "= 1.6 FLOP per byte", once=flops_per_byte),
    Claim("cost-answer", "uses each pixel 9 · 64 times", why="derived: k² windows hold it, for each of 64 filters"),
    Claim("try-answers", "25 weights, 1/81 times", once=twice_the_mean),
    Claim("end", "Notebook 11 goes back through convolution and pooling", why="definition: what notebook 11 is"),
]
