"""Sequences of tokens: sums as text, and the course's own prose. Each character is a token, the number of its kind.

    sums     347+085=2340: two numbers of three digits, and the digits of their sum from the last to the first, as in
             adding by hand. sums5 has five digits. Only the digits after = count.
    text     the Markdown of the notebooks, in the course's language, in windows of 64 characters. Every next character
             counts.

A sample's target at each position is the next token, or −1 where it does not count.
"""

import json
from collections.abc import Iterable, Sequence

import numpy as np

from nncourse import language
from nncourse.errors import CourseError

DIGITS_AND_SIGNS = "0123456789+="
# The kinds of characters in prose, the same for all languages and versions. UNKNOWN stands for all other characters.
UNKNOWN = "□"
CHARACTERS = "\n" + "".join(map(chr, range(32, 127))) + "áéíóúüñÁÉÍÓÚÜÑ¿¡×·−–…µηαβσ½¼∞→±" + UNKNOWN
NAMED = r"sums[3-7]?|text"
LENGTH = 64  # of a window of text
UNSEEN = 2000  # sums for testing
SUMS = 25_600  # for training
IN_TEST = 10  # every tenth window is for testing

Samples = tuple[np.ndarray, np.ndarray]  # tokens and targets, (samples, t) float32


def digits_of(name: str) -> int:
    """How many digits the numbers of a set of sums have; 0 for text."""
    return int(name[4:] or 3) if name.startswith("sums") else 0


def kinds_of(name: str) -> str:
    """The characters of a set; a token is the number of one."""
    return CHARACTERS if name == "text" else DIGITS_AND_SIGNS


def usual_options(name: str) -> dict[str, str | int]:
    """The defaults of `nncourse train` for a set of sequences, by the names of its options."""
    digits, kinds = digits_of(name), len(kinds_of(name))
    layers = f"tokens{3 * digits + 3 if digits else LENGTH}x{kinds},embed64,block4x256,block4x256,layernorm,{kinds}"
    epochs, batch_size = {0: 10, 3: 5}.get(digits, 8), 128 if digits else 32
    how: dict[str, str | int] = {"epochs": epochs, "schedule": f"cosine,{epochs},2", "batch_size": batch_size}
    return how | {"layers": layers, "cost": "token_cross_entropy", "optimizer": "adam", "scaling": "none"}


def sums(digits: int, samples: int, unseen: int, seed: int) -> tuple[Samples, Samples]:
    """Different sums for training and for testing: if a + b is for testing, neither it nor b + a is for training."""
    base, count = 10**digits, samples + 2 * unseen
    if min(samples, unseen) < 1 or count > base**2:
        raise CourseError(
            f"expected at most {base**2} sums of {digits} digits in all; got {samples} and twice {unseen}"
        )
    pairs = np.random.default_rng(seed).choice(base**2, count, replace=False)
    there, others = pairs[:unseen], pairs[unseen:]
    others = others[~np.isin(others % base * base + others // base, there)]
    return _as_text(others[:samples], digits), _as_text(there, digits)


def _as_text(pairs: np.ndarray, digits: int) -> Samples:
    """The sums of pairs a · 10^digits + b."""
    a, b = divmod(pairs[:, None], 10**digits)
    powers, sign = 10 ** np.arange(digits + 1), np.ones_like(a)
    parts = a // powers[-2::-1] % 10, 10 * sign, b // powers[-2::-1] % 10, 11 * sign, (a + b) // powers % 10
    X = np.concatenate(parts, axis=1).astype(np.float32)
    Y = np.full_like(X, -1)
    Y[:, 2 * digits + 1 : -1] = X[:, 2 * digits + 2 :]
    return X, Y


def text(length: int) -> tuple[Samples, Samples]:
    """The prose, cut into windows of this length; every tenth is for testing."""
    tokens = np.array(encoded(prose(), CHARACTERS), np.float32)
    count = (len(tokens) - 1) // length
    if length < 1 or count < IN_TEST:
        raise CourseError(f"expected windows of 1 to {(len(tokens) - 1) // IN_TEST} characters; got {length}")
    X, Y = (tokens[start : start + count * length].reshape(count, length) for start in (0, 1))
    unseen = np.arange(count) % IN_TEST == IN_TEST - 1
    return (X[~unseen], Y[~unseen]), (X[unseen], Y[unseen])


def prose() -> str:
    """The Markdown of the notebooks in the course's language, in their order."""
    chosen = language.current()
    folder = language.COURSE / "notebooks" / ("" if chosen == language.ENGLISH else chosen)
    cells = [cell for path in sorted(folder.glob("*.ipynb")) for cell in json.loads(path.read_text("utf-8"))["cells"]]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    if not texts:
        raise CourseError(
            f"{folder}: expected the notebooks, whose prose is the data set text; found none: get the course again"
        )
    return "\n\n".join(texts).replace("\u202f", " ").replace("\xa0", " ")  # the spaces within large numbers


def encoded(written: str, kinds: str | Sequence[str]) -> list[int]:
    """The token of each character: its index among the kinds; the last kind stands for all other characters."""
    numbers = {character: number for number, character in enumerate(kinds)}
    return [numbers.get(character, len(kinds) - 1) for character in written]


def decoded(tokens: Iterable[float], kinds: str | Sequence[str]) -> str:
    """The characters that these tokens stand for."""
    return "".join(kinds[int(token)] for token in tokens)
