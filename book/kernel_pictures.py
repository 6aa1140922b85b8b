"""Draw the pictures of kernels, once, and cache them: which thread reads and writes which element."""

import hashlib
import json
from dataclasses import dataclass
from math import ceil, log2, prod
from pathlib import Path

import numpy as np

from nnclassroom.figures import picture
from nnclassroom.figures.accesses import Accesses
from nnclassroom.figures.described import png
from nncourse.errors import CourseError
from nncourse.kernels.kernel import CudaKernel

SIZES = {  # where a kernel is for no smaller ones
    "one_step": {"n_in": 64, "n_out": 64},
    "one_sample": {"n_in": 64, "n_out": 64},
    "whole_tiles": {"batch": 16, "n_in": 16, "n_out": 16},
}


@dataclass(frozen=True)
class Drawing:
    """A picture as a PNG file's content, and its words."""

    png: bytes
    words: str


def drawing_of(kernel: CudaKernel, cache: Path, made_with: str) -> Drawing | None:
    """The picture of a kernel on small arrays; None if it cannot be drawn there.

    `cache` keeps it for the next time, under a hash of the kernel's text and launch, of this file, and of `made_with`,
    which stands for the package that draws it.
    """
    launch = (kernel.block, kernel.grid, kernel.over, kernel.tile, kernel.shared, sorted(kernel.constants.items()))
    sizes = SIZES.get(kernel.operation.name, {})
    known = f"{kernel.operation.name} {kernel.entry} {launch} {kernel.source.text} {made_with}{sizes or ''}"
    known += Path(__file__).read_text("utf-8")
    stem = cache / hashlib.sha256(known.encode()).hexdigest()
    if not stem.with_suffix(".json").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        drawn, said = _drawn(kernel, sizes)
        stem.with_suffix(".png").write_bytes(drawn)
        stem.with_suffix(".json").write_text(json.dumps(said), "utf-8")
    words = json.loads(stem.with_suffix(".json").read_text("utf-8"))
    return Drawing(stem.with_suffix(".png").read_bytes(), words) if words else None


def _drawn(kernel: CudaKernel, sizes: dict[str, int]) -> tuple[bytes, str]:
    try:
        shown = picture.show(kernel.operation, kernel, **sizes)
        if small := small_block(kernel, shown.accesses):
            shown = picture.show(kernel.operation, kernel, small, **sizes)
        figure = shown.figure
    except CourseError:  # its arguments cannot be small, or be drawn at random
        return b"", ""
    return png(figure)[0], figure.words


def small_block(kernel: CudaKernel, seen: Accesses) -> tuple[int, ...] | None:
    """Threads per block with which a naive kernel's small arrays fill blocks; None if they fill its own, or may not."""
    trace = seen.trace
    busy = len(np.unique(trace.accesses[["block", "thread"]]))
    if kernel.name != "naive" or kernel.grid is not None or 2 * busy > prod(trace.grid) * prod(trace.block):
        return None
    return (4, 2) if len(kernel.block) == 2 else (max(4, 2 ** ceil(log2(busy / len(picture.BLOCKS)))),)
