"""The evidence for what the notebooks claim: a module for each notebook, listed and run by tools/claims.py.

An empirical sentence of a notebook (a number, an order, "never", "always", "most", "because") needs one of these:

* its numbers stand in the code or the saved output of its own section, where the student sees them;
* a Claim in CLAIMS of the notebook's module, which names the cell and the words, and holds a function that tries them,
  or says why there is none to run.
"""

from collections.abc import Callable
from dataclasses import dataclass

SEEDS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Claim:
    """Words of a notebook and their evidence.

    cell, says: the cell's id, and a part of one of its sentences, as it stands there, on one line.
    seeds: tries the words with one seed, on what a student has. They must hold for each of SEEDS.
    once: tries them where chance plays no part: a computation, a recorded result.
    why: for words that cannot be run: "derived: ...", "source: ...", "definition: ...", or "guess" where the sentence
        says so.
    """

    cell: str
    says: str
    seeds: Callable[[int], bool] | None = None
    once: Callable[[], bool] | None = None
    why: str = ""

    @property
    def evidence(self) -> str:
        """What the table shows."""
        tried = self.seeds or self.once
        return f"{tried.__module__.replace('.', '/')}.py, {tried.__name__}()" if tried else self.why
