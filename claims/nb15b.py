"""The evidence for notebook 15b: recorded times and texts, and what small networks write."""

from functools import cache
from typing import Any

import numpy as np

from claims import Claim
from claims.cells import defined
from nnclassroom import find
from nnclassroom.figures import nb15_fused, overheads
from nncourse import Adam, cosine_decay, datasets, make_network, train
from nncourse.backend import choose
from nncourse.datasets_sequences import CHARACTERS, decoded, encoded, prose
from nncourse.model.generation import generate
from nncourse.model.training import History, evaluate

NOTEBOOK, NUMPY, COST, KINDS = "15b_fused_attention", choose("numpy"), "token_cross_entropy", len(CHARACTERS)
FUSED, SHARED, KEPT, STORED, SDPA = nb15_fused.SHOWN
STEPS, WRITER = 150 * 32, f"tokens32x{KINDS},embed64,block4x256,block4x256,layernorm,{KINDS}"  # windows, layers


# ---- recorded times


def of_length(t: int, causal: bool) -> dict[str, float]:
    """Recorded milliseconds."""
    (found,) = (
        each["milliseconds"]
        for each in overheads.recorded("attention")["attention"]
        if each["length"] == t and each["causal"] == causal
    )
    return found


def passes_take_twice_as_long() -> bool:
    limits = overheads.recorded("gpu")["limits"]
    return (12 * 4 / limits["copy"]) / (4 * 64 / limits["matrix"]) > 2


def exercise_wins_from_4096() -> bool:
    at = {t: of_length(t, True) for t in (1024, 4096, 16384)}
    ratios = {t: each[SHARED] / each[STORED] for t, each in at.items()}
    ahead = at[4096][STORED] / at[4096][FUSED], at[16384][FUSED] / at[16384][SDPA]
    return ratios[1024] > 2 and 0.5 < ratios[4096] < 1 and ratios[16384] < 0.5 and ahead[0] > 7 and ahead[1] < 1.1


def half_idle() -> bool:
    """64 blocks of the exercise's kernel, and the multiprocessors that the record names."""
    machine = overheads.recorded("attention")["machine"]
    blocks = 8 * 1024 // 128
    return int(machine.split(" multiprocessors")[0].split()[-1]) > 2 * blocks


def storing_costs() -> bool:
    ratios = [of_length(t, True)[KEPT] / of_length(t, True)[FUSED] for t in (1024, 2048, 4096, 8192, 16384)]
    return bool(min(ratios) > 1.65 and max(ratios) < 2.75)


def without_the_mask() -> bool:
    longer = all(
        of_length(t, False)[name] > of_length(t, True)[name]
        for t in (4096, 8192, 16384)
        for name in (FUSED, SHARED, KEPT, SDPA)
    )
    shorter = all(of_length(t, False)[STORED] < of_length(t, True)[STORED] for t in (4096, 8192, 16384))
    at = {t: of_length(t, False) for t in (1024, 4096, 8192, 16384)}
    ratios = {t: each[SHARED] / each[STORED] for t, each in at.items()}
    order = 0.95 < ratios[4096] < 1.05 < ratios[8192] and 0.8 < ratios[16384] < 0.86
    return longer and shorter and order and all(4 >= each[STORED] / each[FUSED] >= 3 for each in at.values())


# ---- times here


@cache
def token() -> dict[str, Any]:
    return defined(NOTEBOOK, "setup", "token", display=id, attention_step=find("attention_step")["numpy"])


def cached_tokens_cost_alike() -> bool:
    times = {name: dict(zip(token()["texts"], each, strict=True)) for name, each in token()["times"].items()}
    anew, kept = times["anew"], times["kept"]
    return anew[512] > 3 * anew[64] and anew[512] / anew[64] > 2 * kept[512] / kept[64]


# ---- what networks write


def the_same_sums(seed: int) -> bool:
    small, unseen = (datasets.sums(2, part, samples=6000, unseen=500) for part in ("train", "test"))
    adder = make_network("tokens9x12,embed64,block4x128,block4x128,layernorm,12", cost=COST, seed=seed)
    options = {"epochs": 6, "batch_size": 64, "learning_rate": cosine_decay(0.003, 6, 2), "seed": seed}
    train(adder, small.X, small.Y, NUMPY, optimizer=Adam(), **options)
    one, other = (way(adder, unseen.X[:, :6], NUMPY, count=3) for way in (token()["anew"], generate))
    return np.array_equal(one, other)


@cache
def writer(seed: int) -> tuple[Any, list[float]]:
    """The network after 150 steps, and the costs after these and after 150 more, each on its windows."""
    windows = datasets.text(length=32)
    network, optimizer, costs = make_network(WRITER, cost=COST, seed=seed), Adam(), []
    there = network
    for first in (0, STEPS):
        some = slice(first, first + STEPS)
        history: History = train(
            there, windows.X[some], windows.Y[some], NUMPY,
            epochs=1, batch_size=32, learning_rate=0.003, optimizer=optimizer, seed=seed,
        )  # fmt: skip
        costs.append(history.costs[-1])
        there = network.with_flat_parameters(network.flat_parameters.copy())
    return network, costs


def begins_above(seed: int) -> bool:
    unseen = datasets.text(length=32, part="test")
    return 4.85 < evaluate(make_network(WRITER, cost=COST, seed=seed), unseen.X, unseen.Y, NUMPY) < 5.5


@cache
def words_of(seed: int, temperature: float) -> list[str]:
    """The words of eight texts of 250 characters."""
    begin = np.array([encoded("A network ", CHARACTERS)] * 8)
    rows = generate(writer(seed)[0], begin, NUMPY, 250, temperature, seed)
    return " ".join(decoded(row[10:], CHARACTERS) for row in rows).split()


def short_words(seed: int) -> bool:
    first, more = writer(seed)[1]
    return 2.1 < first < 2.8 and 0.7 < more / first < 0.9 and words_of(seed, 0.5).count("the") > 5


def fewer_words_if_cold(seed: int) -> bool:
    cold, cool, warm, hot = (
        len(set(words)) / len(words) for words in (words_of(seed, each) for each in (0.1, 0.5, 1.0, 2.0))
    )
    known = {word for word in prose().split() if len(word) > 3 and word.isalpha()}
    long = [word for word in words_of(seed, 2.0) if len(word) > 3]
    return cold < cool < warm and hot > 0.9 and sum(word in known for word in long) < 0.05 * len(long)


def unseen_cost_turns() -> bool:
    """With each seed the lowest cost on unseen windows comes more than three epochs before the end."""
    records = overheads.recorded("text")["records"]
    return all(min(each["costs"][:-3]) < min(each["costs"][-3:]) for each in records)


def about_120_steps() -> bool:
    return all(112 <= each["windows"]["learnt"] / 32 <= 128 for each in overheads.recorded("text")["records"])


DEFINED = "definition: of the kernel in the next cell"
CLAIMS = [
    Claim("title", "32 lanes of a warp", why="definition: of a warp"),
    Claim("write-words", "when the token at position 20 has been appended", why="definition: of the question"),
    Claim("write-words", "It has 2 blocks and 512 positions", why="definition: of the list of layers"),
    Claim("warp-words", "All 32 lanes must call it", why="source: the CUDA C++ Programming Guide, warp shuffles"),
    Claim("fused-words", "for one head and", why="definition: of the question"),
    Claim("step-spec", "key and value are already in it", why="definition: of the exercise"),
    Claim("now-try", "0.1, then 2", why="definition: of the task"),
    Claim("now-try-answer", "More than 16", why="derived: a tile has 16 keys"),
    Claim("time-words", "about 8.6 GB", why="derived: 8 · 16384² · 4"),
    Claim("one-pass-words", "more than twice as long", once=passes_take_twice_as_long),
    Claim("carried-answer", "0.135 + 1 = 1.135", why="derived: exp(−2) + 1"),
    Claim("carried-answer", "1.135 + 0.368 = 1.503", why="derived: exp(−1) added"),
    Claim("merge-spec", "Together: top 5", why="derived: 1.135 · exp(−2) + 1.368"),
    Claim("merge-spec", "more: 1.571, as in the figure", why="derived: exp(−3) added"),
    Claim("warp-spec", "Five rounds: 16, 8, 4, 2, 1.", why="derived: 2⁵ = 32"),
    Claim("warp-spec", "After the first, lanes 5 and 21", why="derived: 5 with the bit 16, then with the bit 8"),
    Claim("warp-spec", "Five rounds, from 16 apart to 1", why="definition: of the exercise"),
    Claim("fused-words", "A block takes 128 queries of one head", why=DEFINED),
    Claim("fused-words", "16 at a time (03b)", why=DEFINED),
    Claim("fused-words", "are 16 numbers in registers", why=DEFINED),
    Claim("fused-spec", "32 blocks for a head", why="derived: 4096 / 128"),
    Claim("fused-spec", "so 128 times as requests", why="derived: 4096 / 32 warps"),
    Claim("lengths-words", "512 numbers of", why="derived: 32 · 16"),
    Claim(
        "lengths-words", "three times: a score, its exponential, the weight", why="derived: of attention_forward, naive"
    ),
    Claim("lengths-question", "8 heads of width 64", why="definition: of benchmarks/attention.py"),
    Claim("lengths-answer", "more than twice as long as the stored scores", once=exercise_wins_from_4096),
    Claim("lengths-answer", "At 4,096 it is faster", once=exercise_wins_from_4096),
    Claim("lengths-answer", "more than half of them idle", once=half_idle),
    Claim("lengths-answer", "it is 3 times as fast (see *Now try*)", once=without_the_mask),
    Claim("lengths-answer", "within a tenth", once=exercise_wins_from_4096),
    Claim("lengths-answer", "1.7 to 2.7 times as long", once=storing_costs),
    Claim("lengths-answer", "about nine of them", why="derived: the eight steps, and the mask added"),
    Claim("write-words", "took the most probable next token", why="definition: of generate() in notebook 15"),
    Claim("step-spec", "524,288, keys and values of two blocks", why="derived: 2 · 2 · 512 · 64 · 4"),
    Claim("step-spec", "about 4.3 GB for a single text", why="derived: 2 · 32 · 4096 · 4096 · 4"),
    Claim("token-answer", "more than three times as long as for 64", once=cached_tokens_cost_alike),
    Claim("token-answer", "it grows far less", once=cached_tokens_cost_alike),
    Claim("text-words", "has not changed which token", seeds=the_same_sums),
    Claim("text-answer", "such as *the*", seeds=short_words),
    Claim("text-answer", "about half of what it was before learning", seeds=short_words),
    Claim("text-answer", "fewer different words than at 1.0", seeds=fewer_words_if_cold),
    Claim("text-answer", "128 characters at once, with three seeds", why="definition: of benchmarks/text.py"),
    Claim("text-words", "is a little above", seeds=begins_above),
    Claim("text-words", "divided by their sum", why="definition: of generate()"),
    Claim("text-answer", "This network takes 32 characters, and the text has 70", why="definition: of the cell before"),
    Claim("text-answer", "Once it has more than 32", why="definition: of generate()"),
    Claim("text-answer", "An epoch has about 120 steps", once=about_120_steps),
    Claim("texts-answer", "was lowest some epochs before the last", once=unseen_cost_turns),
    Claim("end", "changes no earlier position", why="derived: no position sees a later one"),
    Claim("now-try-answer", "fewer different words come than at 0.5", seeds=fewer_words_if_cold),
    Claim("now-try-answer", "hardly a word is left", seeds=fewer_words_if_cold),
    Claim("now-try-answer", "By a fifth or so", seeds=short_words),
    Claim("now-try-answer", "take longer without the mask", once=without_the_mask),
    Claim("now-try-answer", "3 to 4 times as fast as they are", once=without_the_mask),
    Claim("now-try-answer", "by a sixth", once=without_the_mask),
]
