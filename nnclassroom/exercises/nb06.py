"""Operations of the exercises of notebook 06: no backend has kernels of the package for them.

algorithm_1    one step of training, forward, deltas, gradients and update, with the operations that it is given
best_rate      the learning rate that a first search yields
stop_early     the epoch at which training ends, and the epoch whose weights are kept

A student's kept algorithm_1 is part of choose(…, mine=True): training steps of suitable networks run it.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from nnclassroom.judge import network_answer  # noqa: F401  (it holds students' texts)
from nnclassroom.judge.network_operation import NetworkOperation, lists
from nncourse.calls import Calls
from nncourse.kernels.contract import Sizes
from nncourse.kernels.dense_epoch import DenseArchitecture, dense_sgd_epoch, random_targets
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial

# ---- Algorithm 1


def _after_one_step(
    network: np.ndarray, layers: DenseArchitecture, X: np.ndarray, Y: np.ndarray, rate: float
) -> np.ndarray:
    """Sample by sample."""
    return dense_sgd_epoch.reference(network, layers, X, Y, len(X), rate)


Function = Callable[[np.ndarray], np.ndarray]

# Mistakes, and what a verdict says if the result has exactly their numbers.
MISTAKES = {
    "early update": "W was changed before hidden_delta passed D down through it: (4b) needs the W of the forward pass",
    "slope above": "(4b) gets σ'(z) of the layer above: it needs that of the layer below, into which D goes",
    "activations above": "(4d) gets the activations that leave the layer: it needs those that enter it, A[layer]",
    "last layer alone": "only the last layer has moved: move each layer, inside the loop",
    "first layer alone": "only the first layer has moved: move each layer, inside the loop",
    "not the first": "the first layer has not moved: it has parameters too, so move it",
    "weights alone": "the biases have not moved: update each b too",
    "biases alone": "the weights have not moved: update each W too",
    "uphill": "the step goes uphill: check the sign of G, which is A − Y, and of the rate",
    "averaged twice": "the gradients are divided by the batch twice: weight_gradient and bias_gradient already do it",
    "summed": "the gradients are sums over the batch: (4c) and (4d) are means",
    "no activation": "the layers have no sigmoid: A is σ of Z in each layer",
    "no activation at the end": "the last layer has no sigmoid: mse_gradient needs σ of the last Z",
    "tanh": "the hidden layers have tanh: this network has sigmoid in all layers",
    "relu": "the hidden layers have relu: this network has sigmoid in all layers",
    "tanh everywhere": "all layers have tanh: this network has sigmoid in all layers",
    "without rate": "the learning rate is left out: multiply each gradient by it",
    "rate twice": "the gradients are multiplied by the learning rate twice: sgd_update does it already",
    "moved twice": "each layer has moved twice: move it once",
    "sample by sample": "the layers move after each sample: send the whole batch through, then move each layer once",
}

# Mistakes in the slopes of the last layer, of hidden layers or of all: what stands in place of σ'(z), and the words.
SLOPES: dict[str, tuple[Function, str]] = {
    "no slope": (np.ones_like, "σ'(z) is left out"),
    "slope at a": (lambda z: _slope(_sigmoid(z)), "σ' is taken at the activations A"),
    "σ for the slope": (lambda z: _sigmoid(z), "σ(z) is taken for its slope"),
    "z for the slope": (lambda z: z, "z is taken for the slope"),
}
PLACES = {
    "": "{}: (4a) and (4b) multiply by σ' at the weighted sums Z",
    " at the end": "in the last layer {}: (4a) multiplies by σ' at the weighted sums Z",
    " below": "in a hidden layer {}: (4b) multiplies by σ' at the weighted sums Z",
}
MISTAKES |= {kind + where: words.format(said) for kind, (_, said) in SLOPES.items() for where, words in PLACES.items()}


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def _slope(z: np.ndarray) -> np.ndarray:
    return _sigmoid(z) * (1 - _sigmoid(z))


def _mistaken(
    mistake: str, network: np.ndarray, layers: DenseArchitecture, X: np.ndarray, Y: np.ndarray, rate: float
) -> np.ndarray | None:
    """One step in float64 with this mistake; None if its arrays do not fit together."""
    if mistake == "sample by sample":
        return dense_sgd_epoch.reference(network, layers, X, Y, 1, rate)
    new = network.copy()
    W, b = lists(layers, new)
    last = len(W) - 1
    others: dict[str, Function] = {"relu": lambda z: np.maximum(z, 0), "no activation": lambda z: z, "tanh": np.tanh}
    hidden = (others | {"tanh everywhere": np.tanh}).get(mistake, _sigmoid)
    output = np.tanh if mistake == "tanh everywhere" else _sigmoid
    output = (lambda z: z) if mistake.startswith("no activation") else output
    A, Z = [X], []
    for layer in range(last + 1):
        Z.append(A[layer] @ W[layer].T + b[layer])
        A.append((output if layer == last else hidden)(Z[layer]))
    slopes = [_slopes(mistake, layer == last)(z) for layer, z in enumerate(Z)]
    scale = {"uphill": -1, "averaged twice": 1 / len(X), "summed": len(X), "rate twice": rate, "moved twice": 2}
    step = (1 if mistake == "without rate" else rate) * scale.get(mistake, 1)
    D = (A[-1] - Y) * slopes[last]
    for layer in range(last, -1, -1):
        below = A[layer + 1] if mistake == "activations above" else A[layer]
        W_now = W[layer].copy()
        if below.shape[1] != W_now.shape[1]:
            return None
        stays = {"last layer alone": layer < last, "first layer alone": layer > 0, "not the first": layer == 0}
        moves = not stays.get(mistake, False)
        if moves and mistake != "biases alone":
            W[layer] -= step * D.T @ below / len(X)
        if moves and mistake != "weights alone":
            b[layer] -= step * D.mean(axis=0)
        if layer > 0:
            D = D @ (W[layer] if mistake == "early update" else W_now)
            at = layer if mistake == "slope above" else layer - 1
            if slopes[at].shape != D.shape:
                return None
            D = D * slopes[at]
    return new


def _slopes(mistake: str, at_the_end: bool) -> Function:
    """The function in place of σ' in the last layer or in hidden layers."""
    for kind, (function, _) in SLOPES.items():
        if mistake in (kind, kind + (" at the end" if at_the_end else " below")):
            return function
    return _slope


def _what_went_wrong(
    place: tuple[int, ...],
    network: np.ndarray,
    layers: DenseArchitecture,
    X: np.ndarray,
    Y: np.ndarray,
    rate: float,
    got: np.ndarray,
) -> str:
    """The mistake with exactly these numbers; else the first wrong layer, from the end."""
    exact, X, Y = (np.asarray(array, np.float64) for array in (network, X, Y))
    wanted = _after_one_step(exact, layers, X, Y, rate)
    for mistake, words in MISTAKES.items():
        with np.errstate(all="ignore"):
            made = _mistaken(mistake, exact, layers, X, Y, rate)
        if made is None or np.allclose(made, wanted, rtol=3e-5, atol=2e-5):
            continue
        if np.allclose(got, made, rtol=1e-5, atol=5e-6):
            return words
    (W, b), (W_true, b_true) = lists(layers, got), lists(layers, wanted)
    before = zip(*lists(layers, np.asarray(network)), strict=True)
    still = [np.array_equal(W[at], w) and np.array_equal(b[at], v) for at, (w, v) in enumerate(before)]
    if any(still) and not all(still):
        at = still.index(True)
        return f"W[{at}] and b[{at}] have not moved: let the loops go over all len(W) layers"
    near = partial(np.allclose, rtol=1e-5, atol=5e-6)
    for layer in range(len(W) - 1, -1, -1):
        right = near(W[layer], W_true[layer]), near(b[layer], b_true[layer])
        if not all(right):
            which = " and ".join(f"{name}[{layer}]" for name, is_right in zip("Wb", right, strict=True) if not is_right)
            if layer == len(W) - 1:
                return f"the last layer is wrong already, {which}: check the forward pass, (4a) and the update"
            return f"the layers from {layer + 1} on are right, but not {which}: check (4b)"
    return ""


def _network_of(*sizes: int, batch: int) -> Sizes:
    layers = DenseArchitecture(sizes, ("sigmoid",) * (len(sizes) - 1), "mse")
    return {"layers": layers, **layers.contract_sizes, "batch": batch}


algorithm_1 = NetworkOperation(
    "algorithm_1",
    "for each layer: W ← W − η dC/dW, b ← b − η dC/db",
    equation="Algorithm 1",
    contract="network (p,), layers () object, X (batch, n_in), Y (batch, n_out), rate () -> network (p,)",
    reference=_after_one_step,
    flops=None,
    trial=Trial(
        error_scale=lambda network, layers, X, Y, rate: np.full(network.shape, 4.0),
        values={
            "network": lambda rng, shape, sizes: rng.standard_normal(shape).astype(np.float32),
            "Y": random_targets,
            "rate": lambda rng, shape, sizes: (2.0, 0.5, 5.0, 1.5)[sizes["turn"] % 4] * float(rng.uniform(0.8, 1.2)),
        },
        edge_cases=("zeros",),
        advice=_what_went_wrong,
        sizes_to_check=(
            _network_of(2, 3, 1, batch=4),
            _network_of(3, 3, 3, 3, batch=2),
            _network_of(3, 2, batch=5),
            _network_of(1, 1, batch=1),
            _network_of(4, 5, 3, 2, batch=3),
            _network_of(3, 3, 3, batch=3),
            _network_of(2, 4, 3, 4, 3, 4, 1, batch=6),
            _network_of(30, 60, 10, 1, batch=10),
            _network_of(5, 1, 4, batch=1),
        ),
        draw_sizes=lambda rng: _network_of(
            *rng.integers(1, 9, rng.integers(2, 6)).tolist(), batch=int(rng.integers(1, 41))
        ),
    ),
)


@algorithm_1.kernel("loops", device="cpu")
def layer_by_layer(
    W: list[np.ndarray], b: list[np.ndarray], X: np.ndarray, Y: np.ndarray, rate: float, k: Calls
) -> None:
    A, Z = [X], []
    for layer in range(len(W)):
        Z.append(k.dense_forward(A[layer], W[layer], b[layer]))
        A.append(k.sigmoid(Z[layer]))
    D = k.output_delta(k.mse_gradient(A[-1], Y), k.sigmoid_derivative(Z[-1]))
    for layer in reversed(range(len(W))):
        dW, db = k.weight_gradient(D, A[layer]), k.bias_gradient(D)
        if layer > 0:
            D = k.hidden_delta(D, W[layer], k.sigmoid_derivative(Z[layer - 1]))
        k.sgd_update(W[layer], dW, rate)
        k.sgd_update(b[layer], db, rate)


# ---- the search for a learning rate


def _half_of_the_largest(rates: np.ndarray, costs: np.ndarray) -> np.float64:
    falls = np.array([row[-1] < row[0] for row in np.nan_to_num(costs, nan=np.inf, posinf=np.inf)])
    return np.float64(np.sort(np.append(rates[falls], 0.0))[-1] / 2)


def _rates(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Rising steps by a factor of ten; sometimes in another order, or by other factors."""
    rates = 10.0 ** (np.arange(shape[0]) - rng.integers(0, max(1, shape[0])))
    rates *= rng.uniform(0.2, 0.9, shape) if sizes["turn"] % 2 else 1
    return (rng.permutation(rates) if sizes["turn"] % 3 else rates).astype(np.float32)


# "falls" twice at the front, so that even of few rates the last one is not always the largest that falls.
KINDS = ["falls", "flat", "falls", "rises", "inf", "nan", "falls at first", "saturates"]
OF_TURN = {  # of five, or the last of all: instead of these
    2: ["wavers", "flat"],
    3: ["creeps", "slips"],
    4: ["flat", "nan", "rises", "comes back", "falls at first"],  # none falls
    12: ["recovers", "flat"],
}


def _first_costs(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """The cost before training in the first column, then the cost after each epoch: falling, flat, rising, ∞ or NaN.

    "wavers" ends below its start but rises in the last epoch; "comes back" ends above its start but falls in it;
    "creeps" and "slips" end above and below it by one rounding. What becomes ∞ or NaN falls before, and "recovers" is ∞
    between its start and a lower end.
    """
    n, columns = shape
    costs = np.full(shape, rng.uniform(0.1, 0.7))
    if sizes["turn"] % 2:  # each row has a first cost of its own
        costs *= rng.uniform(0.01, 100, (n, 1))
    turn = sizes["turn"] if sizes["turn"] in OF_TURN else sizes["turn"] % 5
    kinds = np.resize(OF_TURN[turn], n) if turn in OF_TURN else rng.permutation(np.resize(KINDS, n))
    t = np.arange(columns)
    for row, kind in zip(costs, kinds, strict=True):
        if kind == "falls":
            row *= rng.uniform(0.5, 0.95) ** t
        elif kind == "rises":
            row *= rng.uniform(1.1, 9) ** t
        elif kind == "falls at first" and columns > 2:
            row[1:-1] *= 0.5
            row[-1] *= 1.5
        elif kind == "wavers":
            row[1:] *= 0.4
            row[-1] *= 1.5
        elif kind == "comes back":
            row[1:] *= 9
            row[-1] /= 4
        elif kind == "recovers":
            row[1:-1] = np.inf
            row[-1] *= 0.6
        elif kind == "saturates":
            row[1:] *= rng.uniform(1.2, 2)
        elif kind in ("inf", "nan") and columns > 1:
            row *= 0.9**t
            row[columns - 1 if turn == 4 else int(rng.integers(1, columns)) :] = float(kind)
        elif kind in ("creeps", "slips"):
            row[:] = np.float32(row[0])
            row[-1] += np.spacing(np.float32(row[0])) * (1 if kind == "creeps" else -1)
    return costs.astype(np.float32)


def _shown(values: np.ndarray, most: int = 8, digits: int = 3) -> str:
    said = ", ".join(f"{value:.{digits}g}" for value in values[:most])
    return f"{said}, …" if len(values) > most else said


def _digits(values: np.ndarray) -> int:
    """How many digits tell these numbers apart."""
    return 3 if len({f"{value:.3g}" for value in values.flat}) == len(np.unique(values)) else 9


def _of_rates(place: tuple[int, ...], rates: np.ndarray, costs: np.ndarray) -> str:
    before, end = (_shown(costs[:, column], digits=_digits(costs[:, [0, -1]])) for column in (0, -1))
    return f"the rates are {_shown(rates)}; the costs are {before} before training, {end} at the end"


best_rate = Operation(
    "best_rate",
    "half of the largest η whose last cost is below its first; 0 if there is none. NaN and ∞ are not below",
    contract="rates (n,), costs (n, columns) -> rate ()",
    reference=_half_of_the_largest,
    flops=None,
    trial=Trial(
        values={"rates": _rates, "costs": _first_costs},
        edge_cases=(),
        advice=_of_rates,
        sizes_to_check=tuple(
            {"n": n, "columns": columns}
            for n, columns in (
                (4, 3),
                (1, 2),
                (2, 2),
                (7, 4),
                (6, 2),
                (7, 6),
                (8, 3),
                (9, 8),  # more columns than some take
                (12, 3),
                (5, 4),
                (3, 3),
                (12, 9),
                (6, 20),
            )
        ),
        draw_sizes=lambda rng: {"n": int(rng.integers(1, 13)), "columns": int(rng.integers(2, 31))},
    ),
)


@best_rate.kernel("numpy", device="cpu")
def half_of_the_largest(rates: np.ndarray, costs: np.ndarray) -> np.float32:
    falls = costs[:, -1] < costs[:, 0]  # False for NaN
    return rates[falls].max(initial=0) / 2


# ---- early stopping


def _by_running_minimum(costs: np.ndarray, patience: int) -> tuple[np.float64, np.float64]:
    """From the lowest cost so far at each epoch, the epoch in which it came first, and the epochs since then."""
    finite = np.where(np.isfinite(costs), costs, np.inf)
    lowest = np.minimum.accumulate(finite)
    best = np.array([np.flatnonzero(finite == low)[0] + 1 if np.isfinite(low) else 0 for low in lowest])
    waited = np.arange(1, len(costs) + 1) - best
    stop = np.append(np.flatnonzero(waited >= patience), len(costs) - 1)[0]
    return np.float64(stop + 1), np.float64(best[stop])


def _held_out_costs(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Costs with few different values, so that there are ties; some are huge, some contain NaN and ∞.

    In some they differ by roundings of float32: the lowest is the lowest, however little it is below the others. In
    some it is 0.
    """
    (n,), turn = shape, sizes["turn"]
    if turn % 6 == 3:
        costs: np.ndarray = np.linspace(1, 0.2, n)  # always falls: it never stops
    elif turn % 6 == 5:
        costs = np.full(n, (np.nan, np.inf)[turn // 6 % 2])
    else:
        t = np.arange(n)
        costs = np.round(abs(t - rng.integers(0, n)) / n + 0.1 * rng.integers(0, 4, n), 1) + 0.2
    if turn % 5 == 4:
        costs = costs - costs.min()
    if turn % 6 in (0, 3) and turn > 5:
        costs = 0.7 + np.round(10 * costs) * np.spacing(np.float32(0.7))
    if turn % 6 in (2, 4):
        costs[rng.random(n) < 0.3] = (np.nan, np.inf)[turn % 4 // 2]
    return (costs * (1e38 if turn % 6 == 1 and turn > 1 else 1)).astype(np.float32)  # the first cases are plausible


stop_early = Operation(
    "stop_early",
    "best: the first epoch with the lowest cost so far; stop: the first epoch that is `patience` after it, or the "
    "last one. Epochs are counted from 1; NaN is not low; best is 0 while there was none",
    contract="costs (n,), patience () int -> stop (), best () where patience >= 1",
    reference=_by_running_minimum,
    flops=None,
    trial=Trial(
        values={"costs": _held_out_costs},
        edge_cases=(),
        error_scale=lambda costs, patience: (0.0, 0.0),
        advice=lambda place, costs, patience: (
            f"the costs are {_shown(costs, 12, _digits(costs))}, and patience is {patience}"
        ),
        sizes_to_check=tuple(
            {"n": n, "patience": patience}
            for n, patience in (
                *((5, 2), (4, 1), (6, 2), (5, 3), (7, 3), (6, 4), (1, 1), (1, 3), (8, 2), (9, 9), (12, 3), (3, 1)),
                *((20, 4), (15, 5), (30, 5), (10, 10), (50, 8), (100, 12), (40, 1), (60, 20)),
                *((150, 25), (80, 2), (120, 40)),
            )
        ),
        draw_sizes=lambda rng: {"n": int(rng.integers(1, 100)), "patience": int(rng.integers(1, 50))},
    ),
)


@stop_early.kernel("loops", device="cpu")
def when_it_waited_too_long(costs: np.ndarray, patience: int) -> tuple[int, int]:
    best, lowest = 0, float("inf")
    for epoch, cost in enumerate(costs, start=1):
        if cost < lowest:  # False for NaN
            best, lowest = epoch, cost
        if epoch - best >= patience:
            return epoch, best
    return len(costs), best
