"""Operations of the exercises of notebooks 12 and 12b, on what many devices exchange. No network calls them.

shards             which rows are whose
all_reduce         every rank gets the sum of all vectors: through a root, in a tree, in a ring
reduce_scatter     the first half of the ring: every rank gets the sum of one chunk
all_gather         the second half: every rank gets the chunks of all
weighted_gradient  the gradient of all rows from those of shards that are not equal
averaging_round    some steps on each rank's own parameters, then their mean
server_update      what a parameter server does with gradients, in the order they arrive
pipeline           when each device of a pipeline begins with each micro-batch
gather_maps        every rank gets the maps of all filters, where each has computed its own

Every member of a group runs those kernels that exchange something, unchanged on a simulated group and over MPI: see
judge/group_operation.py.
"""

from collections.abc import Iterator
from functools import partial
from itertools import combinations, product
from math import ceil, log2

import numpy as np

from nnclassroom.judge import group_answer  # noqa: F401  (it holds students' texts)
from nnclassroom.judge.group_operation import Exchanged, GroupOperation
from nncourse.group import Group
from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial, exact
from nncourse.parallel import ring

MOST_PUSHES = 8  # that a verdict lists
MEETINGS = ("send", "receive", "barrier", "all_reduce", "broadcast", "gather")

# ---- shards


def _bounds(rows: int, ranks: int) -> np.ndarray:
    """The rows before rank r: r whole shares, and one more for each of the first rows % ranks ranks among them."""
    before = np.arange(ranks + 1)
    return before * (rows // ranks) + np.minimum(before, rows % ranks)


shards = Operation(
    "shards",
    "rank r has the rows bounds[r] to bounds[r + 1] − 1: as equal as possible, with one more for the first ranks",
    contract="rows () int, ranks () int -> bounds (edges,) int where edges = ranks + 1, ranks >= 1",
    reference=_bounds,
    flops=None,
    trial=Trial(
        edge_cases=(),
        sizes_to_check=tuple(
            {"rows": rows, "ranks": ranks}
            for rows, ranks in (
                (10, 4),
                (12, 4),
                (7, 3),
                (5, 1),
                (3, 5),
                (1, 2),
                (0, 3),
                (60000, 8),
                (60000, 7),
                (1000, 999),
                (70_000, 8),
                (20_000_003, 3),
            )
        ),
        draw_sizes=lambda rng: {"rows": int(rng.integers(0, 200)), "ranks": int(rng.integers(1, 20))},
    ),
)


@shards.kernel("numpy", device="cpu")
def equal_shards(rows: int, ranks: int) -> np.ndarray:
    sizes = np.full(ranks, rows // ranks)
    sizes[: rows % ranks] += 1
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


# ---- the all-reduce


def _chain_or_root(exchanged: Exchanged) -> str:
    """A tree has ⌈log₂ K⌉ rounds up and as many down; half as many more are allowed, for trees with other branches."""
    if exchanged.size < 3:
        return ""
    depth = ceil(log2(exchanged.size))
    if exchanged.rounds <= 3 * depth + 1:
        return ""
    wanted = f"{depth} up and {depth} down will do for {exchanged.size} ranks, if pairs add at the same time"
    return f"{exchanged.rounds} messages come one after the other: {wanted}"


def _no_root(exchanged: Exchanged) -> str:
    """One rank, the root, receives a vector from each of the others and sends them the sum."""
    pairs = [{message.source, message.to} for message in exchanged.messages]
    if exchanged.size > 2 and pairs and not set.intersection(*pairs):
        return "no rank takes part in every message: expected one root, to which all send and from which all receive"
    most = 2 * (exchanged.size - 1)
    return f"{len(pairs)} messages are sent: expected 2 (K − 1) = {most}" if len(pairs) > most else ""


def _no_ring(exchanged: Exchanged, halves: int = 2) -> str:
    """In a ring a rank talks to its neighbours, and sends 2 (K − 1) chunks of about n / K: in one half, K − 1."""
    size, n = exchanged.size, exchanged.arguments[0].shape[1]
    for message in exchanged.messages:
        if (message.to - message.source) % size not in (1, size - 1):
            step = f"rank {message.source} sends to rank {message.to} at its step {message.step}"
            return f"{step}: in a ring a rank sends only to its neighbours"
    chunk = n // size + n % size  # the last chunk may hold all that is left over
    for rank in range(size) if size > 2 else ():
        sent = [message.values.size for message in exchanged.messages if message.source == rank]
        if sum(sent) > halves * (size - 1) * chunk:
            formula = "2 (K − 1) n / K" if halves == 2 else "(K − 1) n / K"
            wanted = f"with {size} chunks it is {formula} = {halves * (size - 1) * n / size:.4g}"
            whole = "; it sends whole vectors: send a chunk in each step, 1/K of the vector" if min(sent) == n else ""
            return f"rank {rank} sends {sum(sent)} numbers: {wanted}{whole}"
    return ""


def _of_whom(place: tuple[int, ...], V: np.ndarray, exchanged: Exchanged, halves: int = 2) -> str:
    """Whose numbers a wrong sum lacks or counts twice, whether they belong to another place, and when they came."""
    rank, first = place
    got, parts = exchanged.got["V"][rank].astype(np.float64), V.astype(np.float64)
    words = []
    for counts in _guesses(exchanged.size) if len(set(parts[:, first])) == exchanged.size else ():
        fits = np.abs(got - counts @ parts) <= 1e-6 * np.abs(parts).sum(axis=0)
        if fits[first]:
            words.append(f"{_numbers(rank, first, fits[first:])}: {_counted(counts, rank)}")
            break
    else:
        words += _of_another_place(got, parts, rank, first)
    more = _first_wrong_step(V, exchanged, halves) or _when_it_came(exchanged, rank, exchanged.got["V"][rank, first])
    more = more or _sum_that_came(V, exchanged, rank)
    if exchanged.messages and not any(message.to == rank for message in exchanged.messages):
        more = [f"no rank sends to rank {rank}: send the sum back to it"]
    return "; ".join([*words, *more])


def _of_another_place(got: np.ndarray, parts: np.ndarray, rank: int, first: int) -> list[str]:
    """Whether two successive numbers are the sums of some ranks' numbers at another place, in words."""
    if len(parts) > 8:
        return []
    whose = np.array(list(product((0, 1), repeat=len(parts)))[1:])
    sums, allowed = whose @ parts, 1e-6 * np.abs(parts).sum(axis=0).max()
    for there in range(parts.shape[1] - 1) if first + 1 < len(got) else ():
        if (np.abs(sums[:, there : there + 2] - got[first : first + 2]) <= allowed).all(axis=1).any():
            return [
                f"rank {rank}'s numbers {first} and {first + 1} are from another chunk: numbers {there} and {there + 1}"
            ]
    return []


def _numbers(rank: int, first: int, fits: np.ndarray) -> str:
    end = first + int(np.argmin(np.append(fits, False)))
    return (f"number {first}" if end == first + 1 else f"numbers {first} to {end - 1}") + f" of rank {rank}"


def _guesses(size: int) -> Iterator[np.ndarray]:
    """How often each rank may have been counted, likely mistakes first."""
    once, ranks = np.ones(size), np.arange(size)
    yield once / size
    yield from ((ranks < some) * once for some in range(1, size))
    for left_out in range(1, size + 1) if size <= 8 else (1, 2, size - 1, size):
        for some in combinations(range(size), left_out):
            yield once - np.isin(ranks, some)
    for times in (2, 3, size):
        for some in (tuple(range(size)), *combinations(range(size), 1), *combinations(range(size), 2)):
            yield once + (times - 1) * np.isin(ranks, some)
    if size <= 4:
        yield from map(np.array, product(range(9), repeat=size))


def _counted(counts: np.ndarray, rank: int) -> str:
    """Which ranks are missing, and which are counted more than once, in words."""
    if counts[0] == 1 / len(counts):
        return "the mean, not the sum"
    if not counts.any():
        return "nothing of any rank"
    if counts.sum() == 1:
        only = int(np.argmax(counts))
        return "only its own, no sum" if only == rank else f"only rank {only}'s, no sum"
    words = []
    for times in sorted(set(counts.astype(int).tolist()) - {1}):
        ranks = [str(each) for each in np.flatnonzero(counts == times)]
        who = f"rank {ranks[0]} is" if len(ranks) == 1 else f"ranks {', '.join(ranks[:-1])} and {ranks[-1]} are"
        if len(ranks) > 3 and int(ranks[-1]) - int(ranks[0]) == len(ranks) - 1:
            who = f"ranks {ranks[0]} to {ranks[-1]} are"
        words.append(f"{who} missing" if times == 0 else f"{who} counted {_times(times)}")
    return ", ".join(words)


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _when_it_came(exchanged: Exchanged, rank: int, value: np.floating) -> list[str]:
    """The last message that held exactly this number, in words."""
    for message in reversed(exchanged.messages):
        if message.to == rank and message.taken and value in message.values:
            line = f", line {message.line}" if message.line else ""
            return [f"it came at step {message.taken} from rank {message.source} (its step {message.step}{line})"]
    return []


def _sum_that_came(V: np.ndarray, exchanged: Exchanged, rank: int) -> list[str]:
    """The message that brought a rank the whole sum, which is not in its vector, in words."""
    whole, allowed = V.astype(np.float64).sum(axis=0), 1e-6 * np.abs(V).sum(axis=0)
    for message in exchanged.messages:
        here = message.to == rank and message.taken and message.values.shape == whole.shape
        if here and (np.abs(message.values - whole) <= allowed).all():
            came = f"the sum came at step {message.taken} from rank {message.source}"
            return [f"{came}, but it is not in the vector that was passed: receive into `vector`"]
    return []


def _first_wrong_step(V: np.ndarray, exchanged: Exchanged, halves: int) -> list[str]:
    """Which step of a ring, or of its first half, goes wrong first, in words: what is sent or done with what came.

    In step s a rank sends what came in step s − 1: up to step K − 1 with its own numbers added, so the sum of s ranks.
    """
    size = len(V)
    sent = [[message for message in exchanged.messages if message.source == rank] for rank in range(size)]
    ways = {(message.to - message.source) % size for message in exchanged.messages}
    counts = {len(messages) for messages in sent}
    if not 2 < size <= 8 or len(ways) != 1 or len(counts) != 1 or any(len(set(column)) < size for column in V.T):
        return []
    way, steps = ways.pop(), halves * (size - 1)
    drawn = f"figures.plot_ring({'all_reduce' if halves == 2 else 'reduce_scatter'}) draws what yours sends"
    places: dict[tuple[int, int], int] = {}  # of the chunk that a rank sends in a step
    for step, rank in product(range(1, min(steps, *counts) + 1), range(size)):
        message, behind = sent[rank][step - 1], [(rank - way * back) % size for back in range(size)]
        there = _places(message.values, np.isin(range(size), behind[:step]), V)
        place = places[step - 1, behind[1]] if step > 1 else there[0] if there else None
        if place not in there:
            line = f" (line {message.line})" if message.line else ""
            words = f"the ring goes wrong in step {step}: from rank {rank}{line} expected {_due(step, size)}"
            return [f"{words}, got {_content(message.values, V, rank)}", drawn]
        places[step, rank] = place
    if counts != {steps}:
        has = f"a ring of {size} has 2 (K − 1)" if halves == 2 else f"this half of a ring of {size} has K − 1"
        return [f"each rank sends {_times(counts.pop())}: {has} = {steps} steps", drawn]
    for step, rank in product(range(size - 1, steps + 1), range(size)):
        message = sent[(rank - way) % size][step - 1]
        place, end = places[step, message.source], places[step, message.source] + message.values.size
        whole = V.astype(np.float64)[:, place:end].sum(axis=0)
        if not np.allclose(exchanged.got["V"][rank, place:end], whole, rtol=1e-4, atol=1e-5):
            what = f"the sum that rank {rank} completes" if step < size else f"what rank {rank} gets"
            return [f"each step sends what it should, but {what} in step {step} is not in its vector at the end"]
    return []


def _due(step: int, size: int) -> str:
    """What a rank must send in a step of a ring, in words."""
    if step == 1:
        return "a chunk of its own numbers"
    if step < size:
        return f"the chunk that came in step {step - 1}, with its own numbers added"
    if step == size:
        return f"the chunk that it completed in step {step - 1}, the sum of all"
    return f"the chunk that came in step {step - 1}, as it came"


def _places(values: np.ndarray, counts: np.ndarray, V: np.ndarray) -> list[int]:
    """Where these values are the numbers of all ranks, each as often as it is counted."""
    sums, allowed = counts @ V.astype(np.float64), 1e-6 * np.abs(V).sum(axis=0, dtype=np.float64)
    ends = [(first, first + values.size) for first in range(V.shape[1] - values.size + 1)]
    return [first for first, end in ends if (np.abs(values - sums[first:end]) <= allowed[first:end]).all()]


def _content(values: np.ndarray, V: np.ndarray, rank: int) -> str:
    """Whose numbers a message of a rank holds, in words."""
    for counts in _guesses(len(V)):
        if values.size and (there := _places(values.ravel(), counts, V)):
            last = there[0] + values.size - 1
            numbers = f"number {last}" if last == there[0] else f"numbers {there[0]} to {last}"
            whose = "the sum of all" if (counts == 1).all() else _counted(counts, rank)
            return f"{numbers} ({whose})"
    return "1 number" if values.size == 1 else f"{values.size} numbers"


all_reduce = GroupOperation(
    "all_reduce",
    "every rank gets V[0] + V[1] + … + V[K − 1]",
    contract="V (ranks, n) -> V (ranks, n)",
    reference=lambda V: np.broadcast_to(V.sum(axis=0), V.shape).copy(),
    same_bits=True,
    demands={"root": _no_root, "tree": _chain_or_root, "ring": _no_ring},
    outside={"tree": "it has no partner in this round, and goes on to the next"},
    flops=None,
    trial=Trial(
        edge_cases=("zeros",),
        advice=_of_whom,
        sizes_to_check=tuple(
            {"ranks": ranks, "n": n}
            for ranks, n in ((4, 8), (2, 6), (3, 7), (1, 5), (8, 5), (7, 7), (2, 1), (5, 1203), (16, 5), (33, 35))
        ),
        draw_sizes=lambda rng: {"ranks": int(rng.integers(1, 8)), "n": int(rng.integers(1, 40))},
    ),
)


@all_reduce.kernel("root", device="cpu")
def through_a_root(group: Group, vector: np.ndarray) -> None:
    if group.rank == 0:
        part = np.empty_like(vector)
        for rank in range(1, group.size):
            group.receive(part, rank)
            vector += part
        for rank in range(1, group.size):
            group.send(vector, rank)
    else:
        group.send(vector, 0)
        group.receive(vector, 0)


@all_reduce.kernel("tree", device="cpu")
def in_a_tree(group: Group, vector: np.ndarray) -> None:
    part, distance = np.empty_like(vector), 1
    while distance < group.size and group.rank % (2 * distance) == 0:  # up: each round halves the ranks with a sum
        if group.rank + distance < group.size:
            group.receive(part, group.rank + distance)
            vector += part
        distance *= 2
    if group.rank > 0:  # the sum goes up to rank - distance, and comes back from there
        group.send(vector, group.rank - distance)
        group.receive(vector, group.rank - distance)
    while distance > 1:  # down: the same way back
        distance //= 2
        if group.rank + distance < group.size:
            group.send(vector, group.rank + distance)


all_reduce.kernel("ring", device="cpu")(ring.in_a_ring)


# ---- its halves

ANYTHING = 1e30  # the error that is allowed where a half leaves what it likes


def _own(rank: int, size: int, n: int) -> np.ndarray:
    """The numbers of the chunk that a rank has whole between the halves: chunk (rank + 1) % size."""
    return np.array_split(np.arange(n), size)[(rank + 1) % size]


def _scattered(V: np.ndarray) -> np.ndarray:
    found = V.copy()
    for rank in range(len(V)):
        own = _own(rank, *V.shape)
        found[rank, own] = V[:, own].sum(axis=0)
    return found


def _scattered_magnitude(V: np.ndarray) -> np.ndarray:
    """The other chunks may hold anything: parts of sums, or what they held before."""
    allowed, sums = np.full(V.shape, ANYTHING), np.abs(V).sum(axis=0)
    for rank in range(len(V)):
        own = _own(rank, *V.shape)
        allowed[rank, own] = sums[own]
    return allowed


def _of_scattered(place: tuple[int, ...], V: np.ndarray, exchanged: Exchanged) -> str:
    """Which other chunk a rank has whole, or what is wrong with the sum."""
    rank, size = place[0], len(V)
    whole = np.abs(exchanged.got["V"][rank] - V.sum(axis=0)) <= 1e-6 * np.abs(V).sum(axis=0)
    for chunk, numbers in enumerate(np.array_split(np.arange(V.shape[1]), size)):
        if len(numbers) and whole[numbers].all():
            return f"rank {rank}: expected chunk (rank + 1) % K = {(rank + 1) % size} whole, got chunk {chunk}"
    return _of_whom(place, V, exchanged, halves=1)


reduce_scatter = GroupOperation(
    "reduce_scatter",
    "rank r gets chunk (r + 1) mod K of V[0] + V[1] + … + V[K − 1]; what its other chunks hold does not matter",
    contract="V (ranks, n) -> V (ranks, n)",
    reference=_scattered,
    demands={"ring": partial(_no_ring, halves=1)},
    flops=None,
    trial=Trial(
        error_scale=_scattered_magnitude,
        edge_cases=("zeros",),
        advice=_of_scattered,
        sizes_to_check=all_reduce.trial.sizes_to_check,
        draw_sizes=all_reduce.trial.draw_sizes,
    ),
)

reduce_scatter.kernel("ring", device="cpu")(ring.reduce_scatter)


def _gathered(V: np.ndarray) -> np.ndarray:
    found = np.empty_like(V[0])
    for rank in range(len(V)):
        own = _own(rank, *V.shape)
        found[own] = V[rank, own]
    return np.broadcast_to(found, V.shape).copy()


def _of_gathered(place: tuple[int, ...], V: np.ndarray, exchanged: Exchanged) -> str:
    """Who has the chunk whole, whose numbers are there instead, and when they came."""
    (rank, first), size = place, len(V)
    chunk, owner = next((one % size, (one - 1) % size) for one in range(size) if first in _own(one - 1, *V.shape))
    got = exchanged.got["V"][rank, first]
    words = [f"number {first} is in chunk {chunk}, which rank {owner} has whole"]
    whose = [other for other in range(size) if V[other, first] == got]
    if not whose and np.isclose(got, V[rank, first] + V[owner, first], rtol=1e-5):
        words.append("here it is added to what was there: replace that instead")
    elif whose:
        words.append("here is still what the rank had before" if rank in whose else f"here is rank {whose[0]}'s")
    words += _when_it_came(exchanged, rank, got)
    return "; ".join([*words, "figures.plot_ring(all_gather) draws what yours sends"])


all_gather = GroupOperation(
    "all_gather",
    "every rank gets chunk (r + 1) mod K of V[r], for each r",
    contract="V (ranks, n) -> V (ranks, n)",
    reference=_gathered,
    same_bits=True,
    demands={"ring": partial(_no_ring, halves=1)},
    flops=None,
    trial=Trial(
        error_scale=exact,
        edge_cases=("zeros",),
        advice=_of_gathered,
        sizes_to_check=all_reduce.trial.sizes_to_check,
        draw_sizes=all_reduce.trial.draw_sizes,
    ),
)

all_gather.kernel("ring", device="cpu")(ring.all_gather)


# ---- gradients of shards, and means of parameters


def _rows(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """In every other case one rank has no rows, if there are several; in some they have more than 16 bits count."""
    rows = rng.integers(1, 50, shape, dtype=np.int32) * (5000 if sizes["turn"] % 3 == 2 else 1)
    if sizes["turn"] % 2 and rows.size > 1:
        rows[rng.integers(rows.size)] = 0
    return rows


def _says(result: str, exchanged: Exchanged, mistakes: dict[str, np.ndarray]) -> str:
    """The words for the first of these mistakes whose values are the result; "" if there is none."""
    got = exchanged.got[result]
    for words, values in mistakes.items():
        if np.allclose(got, values, rtol=1e-4, atol=1e-6):
            return words
    return ""


def _of_weights(place: tuple[int, ...], G: np.ndarray, rows: np.ndarray, exchanged: Exchanged) -> str:
    shares = rows[:, None] / rows.sum()
    mistakes = {
        "this is the plain mean: weight each rank by its rows": np.broadcast_to(G.mean(axis=0), G.shape),
        "this is the plain sum: weight each rank by its share of the rows": np.broadcast_to(G.sum(axis=0), G.shape),
        "this is the sum of rows times gradients: divide it by the number of all rows": np.broadcast_to(
            rows @ G, G.shape
        ),
        "a rank without rows counts as if it had one: give it the weight 0": np.broadcast_to(
            np.maximum(rows, 1) @ G / np.maximum(rows, 1).sum(), G.shape
        ),
        "each rank has the plain sum times its own share: multiply by the share before the sum": shares * G.sum(axis=0),
        "each rank has only its own gradient times its share: add them up over all ranks": shares * G,
    }
    return _says("G", exchanged, mistakes)


def _more_than_one_exchange(exchanged: Exchanged) -> str:
    """The steps need no exchange: one all-reduce after them will do, or a gather and a broadcast, or messages."""
    n, size = exchanged.arguments[0].shape[1], exchanged.size
    met = [name for name in exchanged.meetings if name != "barrier"]
    if met.count("all_reduce") > 1 or len(met) > 2:
        return f"the round makes {len(met)} exchanges: make one, after all steps"
    sent = sum(message.values.size for message in exchanged.messages)
    if sent > max(size, 2) * (size - 1) * n:
        return f"the round sends {sent} numbers: exchange the {n} parameters once, after all steps"
    return ""


def _of_averages(place: tuple[int, ...], W: np.ndarray, G: np.ndarray, rate: float, exchanged: Exchanged) -> str:
    own, first, mean = W - rate * G.sum(axis=1), W - rate * G[:, 0], W - rate * G.mean(axis=1)
    every = W
    for step in range(G.shape[1]):
        every = np.broadcast_to((every - rate * G[:, step]).sum(axis=0), W.shape)
    mistakes = {
        "this is the sum of the parameters: divide it by the number of ranks": np.broadcast_to(
            own.sum(axis=0), W.shape
        ),
        "the sum is divided by the number of steps: divide it by the number of ranks": np.broadcast_to(
            own.sum(axis=0) / G.shape[1], W.shape
        ),
        "each rank keeps its own parameters: take their mean over the ranks": own,
        "the mean is taken before the steps: take it after them": W.mean(axis=0) - rate * G.sum(axis=1),
        "only the first step is made: make one for each row of G": np.broadcast_to(first.mean(axis=0), W.shape),
        "one step is made, with the mean of G: make one for each row of G": np.broadcast_to(mean.mean(axis=0), W.shape),
        "the ranks add up after every step: exchange once, at the end": every / len(W),
        "this is the mean of the gradients alone: take that of the parameters, for W may differ from rank to rank": W
        - rate * G.sum(axis=1).mean(axis=0),
    }
    return _says("W", exchanged, mistakes)


def _of_all_rows(G: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.average(G, axis=0, weights=rows), G.shape).copy()


def _draw(rng: np.random.Generator) -> dict[str, int]:
    return {"ranks": int(rng.integers(1, 6)), "n": int(rng.integers(1, 30))}


def _without_rows(rank: int, G: np.ndarray, rows: np.ndarray) -> str:
    return "" if rows[rank] else f"rank {rank} has no rows: it must take part all the same, with weight 0"


SIZES = tuple({"ranks": ranks, "n": n} for ranks, n in ((2, 4), (3, 5), (4, 7), (1, 5), (8, 3), (7, 30)))

weighted_gradient = GroupOperation(
    "weighted_gradient",
    "every rank gets Σ rows_r G_r / Σ rows_r: the mean over all rows",
    contract="G (ranks, n), rows (ranks,) int -> G (ranks, n)",
    reference=_of_all_rows,
    same_bits=True,
    methods=MEETINGS,
    ended=_without_rows,
    flops=None,
    trial=Trial(
        values={"rows": _rows}, edge_cases=("zeros",), advice=_of_weights, sizes_to_check=SIZES, draw_sizes=_draw
    ),
)


@weighted_gradient.kernel("numpy", device="cpu")
def by_rows(group: Group, gradient: np.ndarray, rows: int) -> None:
    total = np.array([rows], np.float64)
    group.all_reduce(total)
    gradient *= rows / total[0]
    group.all_reduce(gradient)


averaging_round = GroupOperation(
    "averaging_round",
    "W_r ← W_r − η G_r[t] for each t on every rank r, then every rank gets the mean of all W_r",
    contract="W (ranks, n), G (ranks, steps, n), rate () -> W (ranks, n)",
    reference=lambda W, G, rate: np.broadcast_to((W - rate * G.sum(axis=1)).mean(axis=0), W.shape).copy(),
    same_bits=True,
    methods=MEETINGS,
    demands={"": _more_than_one_exchange},
    flops=None,
    trial=Trial(
        values={"rate": lambda rng, shape, sizes: float(10 ** rng.uniform(-4, 0))},
        error_scale=lambda W, G, rate: np.broadcast_to(
            (np.abs(W) + abs(rate) * np.abs(G).sum(axis=1)).mean(axis=0), W.shape
        ),
        edge_cases=("zeros",),
        advice=_of_averages,
        sizes_to_check=tuple(sizes | {"steps": steps} for sizes, steps in zip(SIZES, (3, 2, 1, 4, 1, 5), strict=True)),
        draw_sizes=lambda rng: _draw(rng) | {"steps": int(rng.integers(1, 6))},
    ),
)


@averaging_round.kernel("numpy", device="cpu")
def steps_then_mean(group: Group, W: np.ndarray, G: np.ndarray, rate: float) -> None:
    for gradient in G:
        W -= rate * gradient
    group.all_reduce(W)
    W /= group.size


# ---- the parameter server


def _stale(worker: np.ndarray) -> np.ndarray:
    """The updates by others between a worker's previous push and this one."""
    pushes = np.arange(len(worker))
    before = np.array([max(np.flatnonzero(worker[:push] == worker[push]), default=-1) for push in pushes])
    return pushes - before - 1


def _workers(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Up to five workers; up to 1,000 where there are many pushes, and worker 0 has the first and the last of them."""
    many = sizes["pushes"] > 20
    workers = rng.integers(int(many), 1000 if many else rng.integers(1, 6), shape, dtype=np.int32)
    if many:
        workers[[0, -1]] = 0
    return workers


def _by_server(W: np.ndarray, G: np.ndarray, worker: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    staleness = _stale(worker)
    return W - rate * (1 / (1 + staleness)) @ G, staleness


def _server_magnitude(W: np.ndarray, G: np.ndarray, worker: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    staleness = _stale(worker)
    return np.abs(W) + abs(rate) * (1 / (1 + staleness)) @ np.abs(G), staleness


server_update = Operation(
    "server_update",
    "for each push i in order: s_i = updates since its worker's fetch, W ← W − η / (1 + s_i) G_i",
    contract="W (n,), G (pushes, n), worker (pushes,) int, rate () -> W (n,), staleness (pushes,) int",
    reference=_by_server,
    flops=None,
    trial=Trial(
        error_scale=_server_magnitude,
        values={"worker": _workers},
        advice=lambda place, W, G, worker, rate: (
            f"the staleness of pushes of workers {', '.join(map(str, worker[:MOST_PUSHES]))} is "
            f"{', '.join(map(str, _stale(worker)[:MOST_PUSHES]))}"
        ),
        edge_cases=("zeros", "large"),
        sizes_to_check=tuple(
            {"pushes": pushes, "n": n} for pushes, n in ((6, 3), (1, 4), (2, 1), (9, 5), (20, 2), (40, 7), (300, 3))
        ),
        draw_sizes=lambda rng: {"pushes": int(rng.integers(1, 100)), "n": int(rng.integers(1, 40))},
    ),
)


@server_update.kernel("loops", device="cpu")
def in_order_of_arrival(W: np.ndarray, G: np.ndarray, worker: np.ndarray, rate: float) -> tuple[np.ndarray, np.ndarray]:
    fetched = dict.fromkeys(worker, 0)  # the number of updates in each worker's parameters; at first 0
    staleness = np.empty(len(G), np.int32)
    for version in range(len(G)):  # the number of updates before this push
        staleness[version] = version - fetched[worker[version]]
        W -= rate / (1 + staleness[version]) * G[version]
        fetched[worker[version]] = version + 1
    return W, staleness


# ---- the pipeline


def _begins(seconds: np.ndarray, batches: int) -> np.ndarray:
    """The first micro-batch never waits; each later one follows after the time of the slowest device so far."""
    first = np.cumsum(seconds) - seconds
    return first[:, None] + np.outer(np.maximum.accumulate(seconds), np.arange(batches))


def _seconds_of_devices(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """In every other case the second device takes longer than all others together."""
    seconds = rng.uniform(0.5, 3, shape)
    if sizes["turn"] % 2 == 0:
        seconds[1:2] *= 50
    return seconds.astype(np.float32)


def _with_their_own(seconds: np.ndarray, batches: int) -> np.ndarray:
    """A running sum less a device's own time rounds that time too."""
    return _begins(seconds, batches) + np.cumsum(seconds)[:, None]


def _of_waits(place: tuple[int, ...], seconds: np.ndarray, batches: int) -> str:
    """For what the device waits before it begins with the micro-batch there, in words."""
    (d, b), begin = place, _begins(seconds.astype(np.float64), batches)
    waits = [f"device {d - 1} ends it at {begin[d - 1, b] + seconds[d - 1]:.4g}"] if d else []
    waits += [f"device {d} ends micro-batch {b - 1} at {begin[d, b - 1] + seconds[d]:.4g}"] if b else []
    if not waits:
        return "the first device begins with the first micro-batch at 0"
    return f"that is device {d} with micro-batch {b}: {', and '.join(waits)}"


pipeline = Operation(
    "pipeline",
    "device d begins with micro-batch b when both d − 1 has ended it and d has ended b − 1",
    contract="seconds (devices,), batches () int -> begin (devices, batches)",
    reference=_begins,
    flops=None,
    trial=Trial(
        tolerance=64.0,  # a device's time is added up to a hundred times
        error_scale=_with_their_own,
        values={"seconds": _seconds_of_devices},
        edge_cases=(),
        advice=_of_waits,
        sizes_to_check=tuple(
            {"devices": devices, "batches": batches}
            for devices, batches in ((2, 2), (1, 1), (1, 4), (3, 1), (4, 4), (4, 8), (7, 3), (8, 32), (2, 70))
        ),
        draw_sizes=lambda rng: {"devices": int(rng.integers(1, 9)), "batches": int(rng.integers(1, 100))},
    ),
)


@pipeline.kernel("loops", device="cpu")
def one_after_the_other(seconds: np.ndarray, batches: int) -> np.ndarray:
    begin = np.zeros((len(seconds), batches), np.float32)
    for d in range(len(seconds)):
        for b in range(batches):
            if d > 0:
                begin[d, b] = begin[d - 1, b] + seconds[d - 1]
            if b > 0:
                begin[d, b] = max(begin[d, b], begin[d, b - 1] + seconds[d])
    return begin


# ---- a layer that is split by its filters


def _all_maps(maps: np.ndarray) -> np.ndarray:
    return np.stack([np.concatenate(list(maps), axis=1)] * len(maps))


def _more_than_once(exchanged: Exchanged) -> str:
    """A rank has to tell its own maps to each of the others, and nothing else."""
    own = exchanged.arguments[0][0].size
    for rank in range(exchanged.size):
        sent = sum(message.values.size for message in exchanged.messages if message.source == rank)
        if sent > (exchanged.size - 1) * own:
            return f"rank {rank} sends {sent} numbers: send its own {own} once to each of the others"
    return ""


def _of_maps(place: tuple[int, ...], maps: np.ndarray, exchanged: Exchanged) -> str:
    """Whose maps stand in the place of others, in words."""
    rank, _, channel = place[:3]
    own = maps.shape[2]
    found = exchanged.got["A"][rank][:, channel]
    for other, number in product(range(len(maps)), range(own)):
        if np.array_equal(found, maps[other][:, number]):
            due = f"filter {channel % own} of rank {channel // own}"
            return f"in channel {channel} of rank {rank} expected {due}, got filter {number} of rank {other}"
    return f"expected filter {channel % own} of rank {channel // own}"


gather_maps = GroupOperation(
    "gather_maps",
    "every rank gets the maps of rank 0's filters, then those of rank 1's, and so on",
    contract="maps (ranks, batch, own, h, w) -> A (ranks, batch, c, h, w) where c = ranks * own",
    reference=_all_maps,
    same_bits=True,
    demands={"": _more_than_once},
    flops=None,
    trial=Trial(
        error_scale=exact,
        edge_cases=("zeros",),
        advice=_of_maps,
        sizes_to_check=tuple(
            dict(zip(("ranks", "batch", "own", "h", "w"), sizes, strict=True))
            for sizes in ((2, 1, 2, 2, 2), (3, 2, 1, 2, 3), (4, 2, 2, 1, 2), (1, 2, 3, 2, 2), (7, 1, 2, 2, 1))
        ),
        draw_sizes=lambda rng: {
            name: int(rng.integers(1, 5 if name == "ranks" else 4)) for name in ("ranks", "batch", "own", "h", "w")
        },
    ),
)


@gather_maps.kernel("numpy", device="cpu")
def told_in_pairs(group: Group, maps: np.ndarray) -> np.ndarray:
    parts = [maps if rank == group.rank else np.empty_like(maps) for rank in range(group.size)]
    for other in range(group.size):  # of each pair the lower rank sends first: nobody waits in vain
        if group.rank < other:
            group.send(maps, other)
        if group.rank != other:
            group.receive(parts[other], other)
        if group.rank > other:
            group.send(maps, other)
    return np.concatenate(parts, axis=1)
