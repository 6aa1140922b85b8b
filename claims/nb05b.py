"""The evidence for notebook 05b: recorded times of a GPU, and counts on the emulator."""

from claims import Claim
from nnclassroom import picture
from nnclassroom.figures import overheads

SECONDS = {
    (row["samples"], row["kernel"]): row["seconds"] for row in overheads.recorded("overheads")["weight_gradients"]
}


def swapped() -> bool:
    few, many = (SECONDS[samples, "swapped"] / SECONDS[samples, "naive"] for samples in (8, 1024))
    return 2.6 <= few < 2.7 and 1.005 < many < 1.015


def library() -> bool:
    gain = SECONDS[1024, "naive"] / SECONDS[1024, "tiled"]
    return 1.07 < gain < 1.09 and 6.5 < SECONDS[1024, "tiled"] / SECONDS[1024, "cupy"] < 7.5


def sectors() -> bool:
    """In the figure."""
    seen = picture.show("hidden_delta", "naive", batch=4, n_out=3, n_in=16, block=(8, 2)).accesses
    return all(seen[name].sectors == seen[name].fewest for name in ("W", "S", "D_below"))


BY_HAND = "derived: from the shapes of the result"
CLAIMS = [
    Claim("cuda-words", "threads for a last layer 60 → 10, batch 10", why="definition: the example of the table"),
    Claim("cuda-words", "10 · 10 = 100", why=BY_HAND),
    Claim("cuda-words", "the neurons above | 10 · 60 = 600", why=BY_HAND),
    Claim("cuda-words", "one bias | the **batch** | 10 |", why=BY_HAND),
    Claim("cuda-words", "one weight | the **batch** | 10 · 60 = 600", why=BY_HAND),
    Claim("bias-gradient-cuda-words", "with 10 neurons only 10 threads work", why=BY_HAND),
    Claim("gpu-words", "block 1 covers columns 8 to 15 of the first two samples", why="derived: blocks of 8 × 2"),
    Claim("gpu-words", "it touches no more sectors than it must", once=sectors),
    Claim("gpu-answer", "the swapped kernel took 2.6 times as long", once=swapped),
    Claim("gpu-answer", "are then one access in 17", why="derived: two reads for each sample, one write"),
    Claim("gpu-answer", "both kernels read equally well: 1 % apart", once=swapped),
    Claim("gpu-answer", "gains 8 %, and no more", once=library),
    Claim("gpu-answer", "is seven times as fast", once=library),
    Claim("now-try", "it got NaN, never set", why="derived: results begin as NaN"),
    Claim("now-try", "12 % each: a warp touches one cell in each of 32 rows", why="derived: 4 bytes of a sector's 32"),
]
