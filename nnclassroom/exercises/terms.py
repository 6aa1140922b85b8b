"""Which terms a verdict may use: those that the exercise's notebook, or one before it, has introduced."""

import functools
import re

from nnclassroom.exercises.blanks import exercises

# How the terms that each notebook introduces begin: "barrier" stands for barriers too.
TERM_WORDS = {
    "03b": "shared memory, global memory, barrier, sector, bank, coalesced, tile, __shared__, __syncthreads",
    "04": "atomic, shuffles, lane, tree, __shfl",
    "08b": "occupancy",
    "12": "rank, deadlock",
    "14": "tensor core, mantissa, float16, bfloat16",
}


@functools.cache
def unknown_to(operation: str, kernel: str) -> str:
    """A pattern of the terms that come after the notebook of an exercise; "" for a kernel that is no exercise."""
    found = [each.notebook for each in exercises() if (each.operation, each.kernel) == (operation, kernel)]
    later = [terms for notebook, terms in TERM_WORDS.items() if found and notebook > found[0].partition("_")[0]]
    words = [re.escape(word) for terms in later for word in terms.split(", ")]
    return rf"\b(?:{'|'.join(words)})" if words else ""
