"""Which terms a verdict may use: those that the exercise's notebook, or one before it, has introduced."""

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


def unknown_to(operation: str, kernel: str, text: str) -> str:
    """A pattern of the terms that come after the notebook of an exercise; "" for a kernel that is not an exercise.

    text: the answer. A student who uses terms of a later notebook knows them.
    """
    found = [each.notebook for each in exercises() if (each.operation, each.kernel) == (operation, kernel)]
    later = [words for notebook, words in TERM_WORDS.items() if found and notebook > found[0].partition("_")[0]]
    return "|".join(pattern for pattern in map(_pattern, later) if not re.search(pattern, text))


def _pattern(words: str) -> str:
    return rf"\b(?:{'|'.join(map(re.escape, words.split(', ')))})"
