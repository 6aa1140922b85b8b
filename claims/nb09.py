"""The evidence for notebook 09: valleys by computation, trainings on the digits that ship."""

from functools import cache
from types import SimpleNamespace

import numpy as np

from claims import Claim
from nnclassroom import choose, find, widgets
from nncourse import (
    SGD,
    Adam,
    cosine_decay,
    datasets,
    evaluate,
    exponential_decay,
    make_network,
    metrics,
    step_decay,
    train,
)
from nncourse.kernels import update
from nncourse.model.network import Network
from nncourse.model.optimizers import Optimizer, Schedule

BACKEND = choose("numpy")
RATES = {
    "plain": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
    "momentum 0.9": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    "Adam": (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1),
}
HIDDEN = "784,30,10"


@cache
def digits() -> SimpleNamespace:
    """The parts that the notebook makes of the digits that ship."""
    whole, test = datasets.mnist("train", name="mnist_sample"), datasets.mnist("test", name="mnist_sample")
    held, rest = np.split(np.random.default_rng(1).permutation(len(whole.X)), [600])
    mean, deviation = whole.X[rest].mean(), whole.X[rest].std()
    scaled, X_test = (whole.X - mean) / deviation, (test.X - mean) / deviation
    X, Y = scaled[rest], whole.Y[rest]
    return SimpleNamespace(X=X, Y=Y, X_held=scaled[held], Y_held=whole.Y[held], X_test=X_test, Y_test=test.Y)


def trained(words: str, seed: int, epochs: int, rate: float | Schedule, optimizer: Optimizer, size: int = 32,
            count: int = 2400) -> tuple[Network, float, float]:  # fmt: skip
    """A network, and its costs on the training and on the validation digits."""
    network, d = make_network(words, "relu", "categorical_cross_entropy", initialiser="he", seed=seed), digits()
    rows = slice(count)
    more = {"epochs": epochs, "batch_size": size, "learning_rate": rate, "seed": seed, "optimizer": optimizer}
    history = train(network, d.X[rows], d.Y[rows], BACKEND, **more)
    return network, history.costs[-1], evaluate(network, d.X_held, d.Y_held, BACKEND)


def share(network: Network, X: np.ndarray, Y: np.ndarray) -> float:
    return metrics.accuracy(metrics.confusion(network, X, Y, BACKEND))


def one_layer(seed: int, epochs: int) -> Network:
    network, d = make_network((784, 10), cost="categorical_cross_entropy", seed=seed), digits()
    train(network, d.X, d.Y, BACKEND, epochs=epochs, batch_size=32, learning_rate=0.03, seed=seed)
    return network


# ---- the baselines, and the test


def baselines(seed: int) -> bool:
    d = digits()
    labels, true = d.Y.argmax(axis=1), d.Y_held.argmax(axis=1)
    means = np.stack([d.X[labels == digit].mean(axis=0) for digit in range(10)])
    nearest = ((means**2).sum(axis=1) - 2 * d.X_held @ means.T).argmin(axis=1)
    frequent = (true == np.bincount(labels).argmax()).mean()
    single = share(one_layer(seed, 8), d.X_held, d.Y_held)
    return 0.07 < frequent < 0.13 and 0.76 < (true == nearest).mean() < 0.84 and 0.86 < single < 0.90


def read(seed: int) -> bool:
    """All 2,400 digits, 20 epochs of Adam."""
    network, d = trained(HIDDEN, seed, 20, 0.001, Adam())[0], digits()
    return 0.885 < share(network, d.X_held, d.Y_held) < 0.92


def tested(seed: int) -> bool:
    """The lead in three seeds on the test digits."""
    d = digits()
    leads = [
        share(trained(HIDDEN, each, 20, 0.001, Adam())[0], d.X_test, d.Y_test)
        - share(one_layer(each, 20), d.X_test, d.Y_test)
        for each in range(seed, seed + 3)
    ]
    return bool(0.005 < np.mean(leads) < 0.03)


# ---- the comparison


@cache
def attempt(kind: str, size: int, rate: float, seed: int) -> tuple[float, float]:
    optimizer = {"plain": SGD(), "momentum 0.9": SGD(momentum=0.9), "Adam": Adam()}[kind]
    return trained(HIDDEN, seed, 8, rate, optimizer, size)[1:]


@cache
def searched(seed: int, size: int) -> dict[str, np.ndarray]:
    """The validation cost with each rate, on the mean of three seeds."""
    seeds = range(seed, seed + 3)
    return {
        kind: np.array([np.mean([attempt(kind, size, rate, each)[1] for each in seeds]) for rate in rates])
        for kind, rates in RATES.items()
    }


def best(seed: int, size: int) -> dict[str, float]:
    return {kind: RATES[kind][int(np.nanargmin(costs))] for kind, costs in searched(seed, size).items()}


def best_rates(seed: int) -> bool:
    small, large = best(seed, 32), best(seed, 120)
    ordered = all(2.5 < each["plain"] / each["momentum 0.9"] < 35 for each in (small, large))
    return (
        ordered
        and all(each["plain"] > 9 * each["Adam"] for each in (small, large))
        and all(large[kind] >= small[kind] for kind in RATES)
    )


def ten_times_too_large(seed: int) -> bool:
    """Two rates above the best one, ten times as large."""

    def worse(kind: str, size: int) -> float:
        costs = searched(seed, size)[kind]
        return float(costs[int(np.nanargmin(costs)) + 2] / np.nanmin(costs))

    return all(1.4 < worse("Adam", size) < 2.2 for size in (32, 120)) and worse("plain", 120) > 5


def usual_rate(seed: int) -> bool:
    small, large = (searched(seed, size)["Adam"] for size in (32, 120))
    return small[1] < 1.1 * small.min() and large[1] < 1.2 * large.min()


def raced(seed: int) -> bool:
    """No winner on the validation digits; in training with large batches plain descent is behind Adam in each seed."""
    seeds = range(seed + 3, seed + 6)
    for size in (32, 120):
        rates = best(seed, size)
        costs = {kind: np.array([attempt(kind, size, rates[kind], each) for each in seeds]) for kind in RATES}
        spread = max(np.ptp(each[:, 1]) for each in costs.values())
        if any(abs((each - costs["plain"])[:, 1].mean()) > spread for each in costs.values()):
            return False
    return bool((costs["Adam"][:, 0] < costs["plain"][:, 0]).all())


# ---- L2, dropout, schedules


def with_l2(seed: int) -> bool:
    rates = (0, 0.003, 0.01, 0.03, 0.1, 0.3)
    found = [trained("784,64,10", seed, 40, 0.05, SGD(l2=l2), 20, 300) for l2 in rates]
    squares, costs = [float((each[0].flat_parameters ** 2).sum()) for each in found], [each[2] for each in found]
    return squares == sorted(squares, reverse=True) and int(np.argmin(costs)) == 3


def with_dropout(seed: int) -> bool:
    """Three seeds: new digits read with neither, with L2, and with dropout."""
    means = []
    for words, l2 in (("784,256,10", 0), ("784,256,10", 0.03), ("784,dropout0.2,256,dropout0.5,10", 0)):
        networks = [trained(words, each, 40, 0.05, SGD(l2=l2), 20, 300)[0] for each in (seed, seed + 1, seed + 2)]
        means.append(np.mean([share(network, digits().X_held, digits().Y_held) for network in networks]))
    return bool(np.allclose(means, (0.83, 0.84, 0.855), atol=0.011)) and means[2] > means[0] + 0.01


def scheduled(seed: int) -> bool:
    falling = step_decay(0.2, epochs=4, factor=0.3), exponential_decay(0.2, factor=0.8), cosine_decay(0.2, 12)
    kept = trained(HIDDEN, seed, 12, 0.2, SGD())
    fell = [trained(HIDDEN, seed, 12, each, SGD()) for each in falling]
    near = max(each[2] for each in fell) - min(each[2] for each in fell) < kept[2] - max(each[2] for each in fell)
    return near and all(each[1] > kept[1] for each in fell)


def warmed_up(seed: int) -> bool:
    kernel = find("warm_up_cosine")["numpy"]
    warm = trained(HIDDEN, seed, 12, lambda epoch: float(kernel(np.array([epoch], np.int32), 0.5, 3, 12)[0]), SGD())
    return trained(HIDDEN, seed, 12, cosine_decay(0.5, 12), SGD())[1] > 1.7 * warm[1]


# ---- valleys, by computation


def steps_down(kappa: float, rate: float, momentum: float = 0.0) -> int:
    w, V, steps = np.ones(2), np.zeros(2), 0
    while max(abs(w).max(), rate * abs(V).max()) > 0.01:
        V = momentum * V + np.array([1, kappa]) * w
        w, steps = w - rate * V, steps + 1
    return steps


def plain_steps() -> bool:
    return [steps_down(kappa, 2 / (kappa + 1)) for kappa in (10, 50, 1000, 13_000)] == [27, 133, 2650, 34_440]


def steps_with_momentum() -> bool:
    roots = [(kappa, np.sqrt(kappa)) for kappa in (50, 1000, 13_000)]
    found = [steps_down(kappa, (2 / (root + 1)) ** 2, ((root - 1) / (root + 1)) ** 2) for kappa, root in roots]
    return found == [34, 177, 717] and 4.4 < found[1] / found[0] < 5.5


def bent() -> bool:
    """Momentum with the rate 0.05; and all three at the widget's rates."""
    race = widgets.race

    def arrived(shape: str, optimizer: Optimizer, rate: float, steps: int = 1200) -> int | None:
        return race.arrival(race.descend(shape, (-1.8, 1.2), optimizer, rate, BACKEND, steps)[1])

    racers = (SGD(), 0.036), (SGD(momentum=0.7), 0.036), (Adam(), 0.1)
    both = [[arrived(shape, *racer) or 9999 for racer in racers] for shape in ("straight", "bent")]
    out = [race.descend("bent", (-1.8, 1.2), SGD(momentum=mu), 0.05, BACKEND, 10)[1][-1] for mu in (0.5, 0.7, 0.9)]
    return all(np.greater(both[1], both[0])) and min(out) > 1e6


def plain_does_not_stay() -> bool:
    """Plain descent in the bent valley with the rate 0.05; and its border at the lowest place, 2 over the curvature."""
    race = widgets.race
    costs = race.descend("bent", (-1.8, 1.2), SGD(), 0.05, BACKEND, 1000)[1]
    curvature = np.linalg.eigvalsh([[41, -20], [-20, 10]])[-1]
    there = race.arrival(costs[: race.STEPS + 1]) is not None
    return bool(there and len(costs) == 1001 and (costs[200:] > race.DOWN).all() and 0.039 < 2 / curvature < 0.04)


def of_the_digits() -> bool:
    inputs = np.hstack([digits().X[:1000], np.ones((1000, 1))])
    curvatures = np.linalg.eigvalsh(inputs.T @ inputs / len(inputs))[::-1]
    own = np.hstack([inputs[:, :-1] - inputs[:, :-1].mean(axis=0), np.ones((1000, 1))])
    without_mean = np.linalg.eigvalsh(own.T @ own / len(own))[-1]
    to_median, lowest = curvatures[0] / np.median(curvatures), curvatures[curvatures > 1e-6].min()
    edges = 2 / curvatures[0], 2 / without_mean
    return (
        len(curvatures) == 785 and 12_000 < to_median < 15_000 and curvatures[0] / lowest > 1e8
        and 240 < curvatures[0] < 260 and 45 < without_mean < 55 and np.allclose(edges, (0.008, 0.04), rtol=0.1)
    )  # fmt: skip


def borders() -> bool:
    """The largest rates along a curvature of 50 with the momentum 0, 0.5 and 0.9."""

    def down(rate: float, momentum: float) -> bool:
        w, V = 1.0, 0.0
        for _ in range(2000):
            V = momentum * V + 50 * w
            w -= rate * V
        return abs(w) < 1

    return all(
        down(0.98 * edge, mu) and not down(1.02 * edge, mu) for mu, edge in ((0, 0.04), (0.5, 0.06), (0.9, 0.076))
    )


def in_the_cache() -> bool:
    return update.BLOCK == 32_768


CLAIMS = [
    Claim("digits", "a set of 70,000 digits", why="source: LeCun, Cortes and Burges; 28 × 28 is the shape"),
    Claim("digits", "the others too (11 MB)", why="source: the sizes of MNIST's four files"),
    Claim("digits", "3,600 of them ship with the course", why="definition: mnist_sample, 3,000 and 600"),
    Claim("beat", "always says the digit that is most frequent", why="definition: the classifier"),
    Claim("beat-answer", "About 10, 80 and 88.", seeds=baselines),
    Claim("beat-answer", "quotes 75 % for such a layer", why="source: the thesis, 1.1.1"),
    Claim(
        "beat-answer", "it cites lists 88 %", why="source: LeCun, Cortes and Burges: a linear classifier, 12.0 % errors"
    ),
    Claim("beat-answer", "Turn momentum up to 0.9", why="definition: an instruction"),
    Claim("zigzag", "With a learning rate of 0.05 momentum leaps out there within ten steps", once=bent),
    Claim("zigzag", "but after the 150 steps that are drawn it rises again, for good", once=plain_does_not_stay),
    Claim("border-answer", "it takes 27", once=plain_steps),
    Claim("condition-answer", "133 and 2,650", once=plain_steps),
    Claim("condition-answer", "with 7,850 directions", why="derived: 10 · 785"),
    Claim("condition-answer", "The matrix has 785 of them", once=of_the_digits),
    Claim("edge", "A factor of 13,000", once=of_the_digits),
    Claim("edge", "κ would be above 100 million", once=of_the_digits),
    Claim("edge-words", "with 95 and with 105 per cent", why="definition: the cell's code"),
    Claim("edge-answer", ", about 0.008", once=of_the_digits),
    Claim("momentum-run-answer", "White: more than 300", why="definition: `most`"),
    Claim("momentum-map-answer", "a few places near the end are faster", why="derived: 23 on the map, 34 in the table"),
    Claim("momentum-condition-answer", "the root of twenty is 4.5", once=steps_with_momentum),
    Claim("momentum-condition-answer", "717 instead of 34,440", once=steps_with_momentum),
    Claim("sizes-answer", "old squares fade (β = 0.9)", why="definition: RMSProp's default"),
    Claim("adam-answer", "5,000 times as large", why="derived: 5 / 0.001"),
    Claim(
        "passes",
        "about 33 numbers for each weight",
        why="derived: the passes of the formula, line by line: 7 + 10 + 16",
    ),
    Claim("passes-answer", "33 / 7 = 4.7", why="derived: as it stands there"),
    Claim("passes-answer", "takes 32,768 weights at a time", once=in_the_cache),
    Claim("passes-answer", "all four arrays, 67 MB", why="derived: 4 · 4 · 2²² bytes"),
    Claim("own-answer", "About 90 per cent with the digits that ship", seeds=read),
    Claim("own-answer", "all 60,000 training digits", why="definition: MNIST's training part"),
    Claim("fair-predict", "It takes 15 to 60 seconds", why="guess"),
    Claim("fair-search-answer", "at least ten times Adam's", seeds=best_rates),
    Claim("fair-search-answer", "one and a half to two times as high", seeds=ten_times_too_large),
    Claim("fair-search-answer", "more than five times as high there", seeds=ten_times_too_large),
    Claim("fair-answer", "the table has no winner", seeds=raced),
    Claim("fair-answer", "at most a fifth above it", seeds=usual_rate),
    Claim("l2-answer", "With λ = 0.03 it is lowest", seeds=with_l2),
    Claim("dropout-digits-answer", "About 83 per cent of new digits", seeds=with_dropout),
    Claim("generalise", "a well-tuned Adam was never behind", why="source: Choi and others (2019)"),
    Claim("schedules-answer", "all three that fall end lower", seeds=scheduled),
    Claim("warm-answer", "about twice the cost, or more", seeds=warmed_up),
    Claim("test-answer", "by one or two of a hundred", seeds=tested),
    Claim("test-answer", "2 of 100 are 12 of the 600", why="derived: 600 / 100 · 2"),
    Claim("end", "a digit is 784 numbers", why="derived: 28 · 28"),
    Claim("more", "for 0 and 0.5 too", why="definition: an instruction"),
    Claim("more", ": 0.04, 0.06 and 0.076", once=borders),
    Claim("more", "falls from about 250 to 50", once=of_the_digits),
]
