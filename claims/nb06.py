"""The evidence for notebook 06: descents by computation, trainings on breast_cancer, moons and digits, stop_early."""

from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from claims import SEEDS, Claim
from nnclassroom import choose, find
from nnclassroom.exercises.nb06 import algorithm_1, stop_early
from nnclassroom.figures.nb06 import SURFACES, descend
from nnclassroom.widgets.playground.engine import Engine, Settings
from nncourse import datasets, device, evaluate, make_network, metrics, train, training_step
from nncourse.model.network import Network
from nncourse.model.training import History

K, SIZES = choose("numpy"), (30, 60, 10, 1)
WAVES = ("x1", "x2", "sin πx1", "sin πx2")


@cache
def cells(seed: int) -> SimpleNamespace:
    """Training, validation and test data of breast_cancer, and their standardised inputs."""
    rest, test = datasets.split(datasets.load("breast_cancer"), 0.2, seed=seed)
    training, validation = datasets.split(rest, 0.25, seed=seed)
    scaling = datasets.fit_scaling(training.X, "standardization")
    X, X_held, X_test = (scaling.apply(part.X) for part in (training, validation, test))
    return SimpleNamespace(raw=training, held=validation, test=test, X=X, Y=training.Y, X_held=X_held, X_test=X_test)


@cache
def trained(seed: int, rate: float, epochs: int = 20) -> tuple[Network, History]:
    network, d = make_network(SIZES, seed=seed), cells(seed)
    return network, train(network, d.X, d.Y, K, epochs=epochs, learning_rate=rate, seed=seed)


def share_of_right(network: Network, X: np.ndarray, Y: np.ndarray) -> float:
    return metrics.accuracy(metrics.confusion(network, X, Y, K))


def steep_and_flat() -> bool:
    flat, steep = SURFACES["bowl"][1](1.0, 1.0)
    ends = [descend("bowl", (-1.8, 1.0), rate, 100)[1][-1] for rate in (0.199, 0.201)]
    return bool(steep == 10 * flat and ends[0] < 1 < 6.62 < ends[1])


def a_ridge_parts_the_valleys() -> bool:
    ends = {x: descend("two valleys", (x, 1.0), 0.02, 1000) for x in (-2.0, -0.5, 0.06, 0.1, 0.5, 2.0)}
    deeper = ends[-2.0][1][-1] < ends[2.0][1][-1]
    return bool(deeper and all((path[-1][0] > 0) == (x > 0.08) for x, (path, _) in ends.items()))


def seconds_of(operation: str, kernel: str) -> float:
    W, G = np.ones(1 << 14, np.float32), np.ones(1 << 14, np.float32)
    return device.seconds(lambda: find(operation)[kernel](W, G, 0.1), "cpu")


def numpy_beats_the_loop() -> bool:
    return seconds_of("sgd_update", "loops") > 200 * seconds_of("sgd_update", "numpy")


class EarlyUpdate:
    """A backend that hands hidden_delta the W after this step's update."""

    def __init__(self, rate: float):
        self.rate, self.gradient = rate, np.zeros(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(K, name)

    def weight_gradient(self, D: np.ndarray, A: np.ndarray) -> np.ndarray:
        self.gradient = K.weight_gradient(D, A)
        return self.gradient

    def hidden_delta(self, D: np.ndarray, W: np.ndarray, S: np.ndarray) -> np.ndarray:
        return K.hidden_delta(D, W - np.float32(self.rate) * self.gradient, S)


def an_early_update_hardly_shows(seed: int) -> bool:
    costs, d, rng = [], cells(seed), np.random.default_rng(seed)
    orders = [rng.permutation(len(d.X)) for _ in range(20)]
    for backend in (K, EarlyUpdate(0.5)):
        network = make_network(SIZES, seed=seed)
        W, b = network.parameters[::2], network.parameters[1::2]
        for rows in (order[at : at + 10] for order in orders for at in range(0, len(d.X), 10)):
            algorithm_1["loops"](W, b, d.X[rows], d.Y[rows], 0.5, backend)
        costs.append(evaluate(network, d.X, d.Y, K))
    return bool(costs[0] != costs[1] and abs(costs[0] / costs[1] - 1) < 0.01)


def agree_to_the_last_bit(seed: int) -> bool:
    ours, theirs = make_network(SIZES, seed=seed), make_network(SIZES, seed=seed)
    d = cells(seed)
    for at in range(0, 100, 10):
        W, b = ours.parameters[::2], ours.parameters[1::2]
        algorithm_1["loops"](W, b, d.X[at : at + 10], d.Y[at : at + 10], 0.5, K)
        training_step(theirs, d.X[at : at + 10], d.Y[at : at + 10], 0.5, K)
    return bool(np.array_equal(ours.flat_parameters, theirs.flat_parameters))


def jagged_and_smooth(seed: int) -> bool:
    d, rises = cells(seed), []
    for size in (1, len(d.X)):
        network, costs = make_network(SIZES, seed=seed), []
        for at in (step * size % (len(d.X) - size + 1) for step in range(60)):
            training_step(network, d.X[at : at + size], d.Y[at : at + size], 0.5, K)
            costs.append(evaluate(network, d.X, d.Y, K))
        rises.append(int((np.diff(costs) > 0).sum()))
    return rises[0] > 20 and rises[1] == 0


def step_seconds(size: int) -> float:
    d, network = cells(1), make_network(SIZES, seed=1)
    return device.seconds(lambda: training_step(network, d.X[:size], d.Y[:size], 0.1, K), "cpu")


def ten_small_steps_take_longer() -> bool:
    return 10 * step_seconds(1) > 4 * step_seconds(10)


def crawls_falls_saturates(seed: int) -> bool:
    before = evaluate(make_network(SIZES, seed=seed), cells(seed).X, cells(seed).Y, K)
    slow, good, huge = (trained(seed, rate) for rate in (0.01, 1.0, 1000.0))
    left = slow[1].costs[-1] / before, good[1].costs[-1] / before
    flat = len(set(huge[1].costs)) == 1 and np.ptp(huge[0].predict(cells(seed).X, K)) == 0
    return bool(left[0] > 0.5 and left[1] < 0.1 and flat)


def first_weights_of_seed_4_hide_saturation() -> bool:
    return bool(evaluate(make_network(SIZES, seed=4), cells(1).X, cells(1).Y, K) > trained(1, 1000.0)[1].costs[-1])


def five_beats_a_half_at_first(seed: int) -> bool:
    half, five = (trained(seed, rate)[1].costs for rate in (0.5, 5.0))
    lead = half[4] / five[4] > half[19] / five[19] > 1
    return bool(five[4] < half[9] and lead and (np.diff(five) > 0).sum() > 3 > (np.diff(half) > 0).sum())


@cache
def started(seed: int, scaling: str, initialiser: str) -> tuple[float, float]:
    """Cost after 15 epochs, and F1 on the validation data."""
    d, network = cells(seed), make_network(SIZES, initialiser=initialiser, seed=seed)
    fitted = datasets.fit_scaling(d.raw.X, scaling)
    history = train(network, fitted.apply(d.raw.X), d.Y, K, epochs=15, learning_rate=0.5, seed=seed)
    return history.costs[-1], float(metrics.f1(metrics.confusion(network, fitted.apply(d.held.X), d.held.Y, K))[1])


def scaling_and_first_weights(seed: int) -> bool:
    dead = [started(seed, *names) for names in (("none", "uniform"), ("none", "xavier"), ("normalization", "uniform"))]
    learns, crawls = started(seed, "normalization", "xavier"), started(seed, "standardization", "uniform")
    all_dead = all(f == 0 and cost > 0.11 for cost, f in dead)
    return all_dead and learns[1] > 0.4 and started(seed, "standardization", "xavier")[0] < crawls[0] / 3 < 0.11 / 3


def table_of_stops() -> bool:
    stop, nan = stop_early["loops"], np.nan
    found = [stop(np.array(c, np.float32), p) for c, p in (([5, 4, 3, 4, 5, 6, 1], 2), ([5, 4, 3, 4, 5, 6, 1], 5))]
    found += [stop(np.array(c, np.float32), 2) for c in ([nan] * 3, [3, 2, 2, 2], [3, nan, 2, np.inf])]
    return found == [(5, 3), (7, 7), (2, 0), (4, 2), (4, 3)]


@cache
def moons(seed: int) -> list[tuple[float, float]]:
    """Share of right answers and cost on the judges: one neuron, 2-32-32-1 stopped, and not stopped."""
    rest, few = datasets.split(datasets.moons(samples=1000, noise=0.3, seed=seed), 0.06, seed=seed)
    judges, choosers = datasets.split(rest, 0.3, seed=seed)
    options: dict[str, Any] = {"learning_rate": 0.3, "seed": seed, "validation": (choosers.X, choosers.Y)}

    def network(hidden: tuple[int, ...], epochs: int) -> tuple[Network, History]:
        made = make_network((2, *hidden, 1), "tanh", "binary_cross_entropy", seed=seed)
        return made, train(made, few.X, few.Y, K, epochs=epochs, **options)

    large, history = network((32, 32), 600)
    best = stop_early["loops"](np.array(history.validation_costs, np.float32), 50)[1]
    three = network((), 100)[0], network((32, 32), best)[0], large
    return [(share_of_right(one, judges.X, judges.Y), evaluate(one, judges.X, judges.Y, K)) for one in three]


def stopping_saves_cost(seed: int) -> bool:
    costs = [cost for _, cost in moons(seed)]
    return costs[1] == min(costs)


def stopping_may_lose_answers() -> bool:
    return sum(moons(seed)[2][0] >= moons(seed)[1][0] for seed in SEEDS) == 3


def digits(seed: int, epochs: int) -> tuple[float, float]:
    """With 40 % of wrong labels: the share of given labels reproduced, and of test digits read correctly."""
    learn, unseen = datasets.split(datasets.load("digits"), 0.2, seed=seed)
    rng, given = np.random.default_rng(seed), learn.labels.copy()
    wrong = rng.random(len(given)) < 0.4
    given[wrong] = (given[wrong] + rng.integers(1, 10, wrong.sum())) % 10
    reader = make_network((64, 64, 10), "relu", "categorical_cross_entropy", initialiser="he", seed=seed)
    options: dict[str, Any] = {"epochs": epochs, "batch_size": 32, "learning_rate": 0.1, "seed": seed}
    train(reader, learn.X / 16, np.eye(10, dtype=np.float32)[given], K, **options)
    said, tested = (reader.predict(part.X / 16, K).argmax(axis=1) for part in (learn, unseen))
    return float((said == given).mean()), float((tested == unseen.labels).mean())


def right_labels_come_first(seed: int) -> bool:
    given, tested = digits(seed, 10)
    return given < 0.6 and 0.88 < tested < 0.96


def wrong_labels_by_heart(seed: int) -> bool:
    given, tested = digits(seed, 300)
    return given > 0.6 and 0.55 < tested < 0.75


@cache
def played(seed: int, epochs: int, features: tuple[str, ...]) -> float:
    engine = Engine(Settings(seed=seed, data="spirals", noise=0.05, features=features))
    engine.train(epochs=epochs)
    return engine.right()


def too_fast_a_playground(seed: int) -> bool:
    engine = Engine(Settings(seed=seed, learning_rate=30.0))
    for _ in range(60):
        engine.train(epochs=1)
        engine.measure()
    costs = np.array(engine.history)[:, 1]
    return bool(0.3 < (np.diff(costs[5:]) > 0).mean() < 0.7)


def waves_save_time(seed: int) -> bool:
    return played(seed, 100, WAVES) >= 0.9 and played(seed, 100, WAVES[:2]) < 0.8


def both_arrive(seed: int) -> bool:
    return min(played(seed, 500, WAVES), played(seed, 500, WAVES[:2])) > 0.9


def unscaled_are_all_malignant(seed: int) -> bool:
    network = trained(seed, 0.5, 30)[0]
    return bool(network.predict(cells(seed).test.X, K).min() > 0.95)


def a_hundred_at_once() -> bool:
    d, network = cells(1), make_network(SIZES, seed=1)
    one, many = (device.seconds(partial(network.predict, d.X[:n], K), "cpu") for n in (1, 100))
    return many < 15 * one


@cache
def searched(seed: int) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Validation cost and learning rate of the nine trainings of a grid, and of nine random ones."""
    d, rng = cells(seed), np.random.default_rng(seed)

    def attempt(rate: float, hidden: int) -> tuple[float, float]:
        options: dict[str, Any] = {"epochs": 6, "learning_rate": rate, "seed": seed}
        network = make_network((30, hidden, 10, 1), seed=seed)
        train(network, d.X, d.Y, K, **options)
        return evaluate(network, d.X_held, d.held.Y, K), rate

    grid = [attempt(rate, hidden) for rate in (0.01, 1.0, 100.0) for hidden in (4, 20, 100)]
    return grid, [attempt(10 ** rng.uniform(-2, 2), int(rng.integers(4, 101))) for _ in range(9)]


def random_is_ahead(seed: int) -> bool:
    grid, random = searched(seed)
    return min(random)[0] < min(grid)[0] and 1 < min(random)[1] < 100


def rates_matter_more(seed: int) -> bool:
    logs = np.log([cost for cost, _ in searched(seed)[0]]).reshape(3, 3)  # a row for each rate
    return bool(np.ptp(logs.mean(axis=1)) > 3 * np.ptp(logs.mean(axis=0)))


SAME = "derived: a minimum over several noisy results lies below its expectation; a new measurement does not"
CLAIMS = [
    Claim("sgd-cost", "30 GB/s can do at most 5 GFLOP/s", why="derived: 2 FLOP for 12 bytes"),
    Claim("descent-words", "the bowl is ten times as steep in one direction as in the other", once=steep_and_flat),
    Claim("descent-words", "A ridge at w1 ≈ 0.08 separates them", once=a_ridge_parts_the_valleys),
    Claim("sgd-timing-answer", "Several hundred times or more", once=numpy_beats_the_loop),
    Claim("algorithm-predict", "the cost differs by less than 1 %", seeds=an_early_update_hardly_shows),
    Claim("algorithm-answer", "the weights even agree to the last bit", seeds=agree_to_the_last_bit),
    Claim("algorithm-task", "your `sgd_update` would never run", why="definition: the judge asks for k.sgd_update"),
    Claim("batch-answer", "On the left batch 1 is jagged", seeds=jagged_and_smooth),
    Claim("batch-why", "take much longer than one step with ten", once=ten_small_steps_take_longer),
    Claim("rate-answer", "after 20 epochs more than half of it is left", seeds=crawls_falls_saturates),
    Claim("search-rate", "so high that even η = 1000, saturated,", once=first_weights_of_seed_4_hide_saturation),
    Claim("best-rate-answer", "In five epochs η = 5 comes further", seeds=five_beats_a_half_at_first),
    Claim("init-answer", "Unscaled, none learns", seeds=scaling_and_first_weights),
    *(Claim("fit-stop", f"| {row} |", once=table_of_stops) for row in ("2 | 5 | 3", "5 | 7 | 7", "3, 2, 2, 2")),
    Claim("fit-regions-words", "On the judges the stopped one has the lowest cost", seeds=stopping_saves_cost),
    Claim("fit-regions-words", "in three of them the network", once=stopping_may_lose_answers),
    Claim("noisy-words", "Here are 1,438 handwritten digits", why="derived: 80 % of the 1,797 of the data set"),
    Claim("noisy-words", "for 10 epochs, and one for 300", why="definition: the next cell trains so long"),
    Claim("noisy-answer", "about nine in ten of the test digits", seeds=right_labels_come_first),
    Claim("noisy-answer", "only six or seven in ten of the test digits", seeds=wrong_labels_by_heart),
    Claim(
        "noisy-answer",
        "even a perfect network would score about 90 %",
        why="derived: it agrees with nine labels in ten",
    ),
    Claim("playground-words", "A learning rate of 30.", why="definition: a setting to try"),
    Claim("playground-answers", "The cost leaps up and down", seeds=too_fast_a_playground),
    Claim("playground-answers", "the network with the two waves has nine points in ten", seeds=waves_save_time),
    Claim("playground-answers", "After 500 epochs both have more than nine", seeds=both_arrive),
    Claim("infer-answer", "calls *every* sample malignant", seeds=unscaled_are_all_malignant),
    Claim("infer-answer", "A hundred samples in one matrix take a few times as long", once=a_hundred_at_once),
    Claim("search-words", "these are 3,125 trainings", why="derived: 5 ** 5, and a 24th of it"),
    Claim("search-words", "that is 130 days", why="derived: 5 ** 5, and a 24th of it"),
    Claim("search-figure-words", "The random one.", seeds=random_is_ahead),
    Claim("search-figure-words", "the learning rate matters and the number", seeds=rates_matter_more),
    Claim("search-test-words", "too good on average", why=SAME),
    Claim("search-test-words", "twice as many combinations", why="derived: the same time, half of it for each"),
    Claim("end", "nearly always right can be worthless", why="source: notebook 07, a program that finds no fraud"),
]
