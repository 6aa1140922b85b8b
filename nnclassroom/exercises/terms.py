"""Which words a verdict may use: those that the exercise's notebook, or one before it, has introduced."""

import functools

from nnclassroom.exercises.blanks import exercises

# A pattern of terms for each notebook that introduces some, and that of names in CUDA C.
TERM_WORDS = {
    "03b": r"\b(?:shared memory|global memory|barriers?|sectors?|banks?|coalesced|tiles?)\b",
    "04": r"\b(?:atomic additions?|shuffles?|lanes?|in a tree|a tree)\b",
    "08b": r"\b(?:occupancy)\b",
    "12": r"\b(?:ranks?|deadlocks?|sends?)\b",
    "14": r"\b(?:tensor cores?|mantissa)\b",
}
NAMES = {"03b": r"__shared__|__syncthreads", "04": r"\batomic[A-Z]\w+|__shfl\w+", "14": r"\bb?float16\b"}


@functools.cache
def unknown_to(operation: str, kernel: str) -> str:
    """A pattern of the terms that come after the notebook of an exercise; "" for a kernel that is no exercise."""
    at = next((each.notebook for each in exercises() if (each.operation, each.kernel) == (operation, kernel)), "")
    number = at.partition("_")[0]
    later = [pattern for table in (TERM_WORDS, NAMES) for notebook, pattern in table.items() if notebook > number]
    return "|".join(later) if at else ""
