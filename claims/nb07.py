"""The evidence for notebook 07: the network on the stand-in for the credit-card data, and what was counted on a GPU."""

from functools import cache
from types import SimpleNamespace

import numpy as np

from claims import Claim
from nnclassroom import choose, find
from nnclassroom.figures.nb07 import counts_at, curves
from nnclassroom.figures.overheads import known
from nncourse import datasets, make_network, metrics, train
from nncourse.kernels.confusion import COUNTED

K = choose("numpy")
CHEAP = 3 / 123


@cache
def frauds(seed: int) -> SimpleNamespace:
    """Scores on validation and test data, of the network trained as it is and with each fraud five times."""
    rest, test = datasets.credit_card_or_standin()
    training, held = datasets.split(rest, 0.25, seed=seed)
    scaling = datasets.fit_scaling(training.X, "standardization")
    X, X_held, X_test = (scaling.apply(part.X) for part in (training, held, test))
    found = SimpleNamespace(held=held.labels, test=test.labels)
    for name, times, epochs in (("plain", 1, 10), ("often", 5, 7)):
        copies = np.where(training.labels == 1, times, 1)
        network = make_network((30, 60, 10, 1), seed=seed)
        rows = np.repeat(X, copies, axis=0), np.repeat(training.Y, copies, axis=0)
        train(network, *rows, K, epochs=epochs, learning_rate=0.5, seed=seed)
        setattr(found, name, [network.predict(part, K)[:, 0] for part in (X_held, X_test)])
    return found


def measures(scores: np.ndarray, labels: np.ndarray, threshold: float) -> np.ndarray:
    """Precision and recall of frauds."""
    M = counts_at(scores, labels, threshold)
    return np.array([metrics.precision(M)[1], metrics.recall(M)[1]])


def as_many_frauds() -> bool:
    """The stand-in has about the 492 frauds of the original set, and 5,000 others."""
    rest, test = datasets.credit_card_or_standin()
    many = rest.labels.sum() + test.labels.sum()
    return bool(480 < many < 505 and abs(len(rest.X) + len(test.X) - many - 5000) < 10)


def accurate(seed: int) -> bool:
    d = frauds(seed)
    return metrics.accuracy(counts_at(d.plain[1], d.test, 0.5)) > 0.97


def euros(scores: np.ndarray, labels: np.ndarray, threshold: float) -> int:
    M = counts_at(scores, labels, threshold)
    return int(120 * M[1, 0] + 3 * M[0, 1])


def cheapest(seed: int) -> float:
    tried = np.geomspace(0.002, 0.998, 200)
    return float(tried[np.argmin([euros(frauds(seed).plain[0], frauds(seed).held, t) for t in tried])])


def between_one_and_five_times(seed: int) -> bool:
    return CHEAP < cheapest(seed) < 5 * CHEAP


def a_third_of_the_cost(seed: int) -> bool:
    d = frauds(seed)
    return 3 * euros(d.plain[1], d.test, cheapest(seed)) < euros(d.plain[1], d.test, 0.5)


def more_found_less_precise(seed: int) -> bool:
    d = frauds(seed)
    plain, low, often = (measures(s[1], d.test, t) for s, t in ((d.plain, 0.5), (d.plain, 0.1), (d.often, 0.5)))
    return all(other[0] < plain[0] and other[1] > plain[1] for other in (low, often))


def precision_where_nine_in_ten_are_found(seed: int, share: float) -> float:
    found, _, precise = curves(frauds(seed).plain[1], frauds(seed).test, share)
    return float(precise[np.argmax(found >= 0.9)])


def area(seed: int) -> float:
    """The share of pairs of a fraud and another transaction in which the fraud has the higher score."""
    scores, labels = frauds(seed).plain[1], frauds(seed).test
    return float((scores[labels == 1][:, None] > scores[labels == 0]).mean())


def splendid(seed: int) -> bool:
    return area(seed) > 0.99


def most_alarms_are_false(seed: int) -> bool:
    rare, here = (precision_where_nine_in_ten_are_found(seed, share) for share in (492 / 284_807, 0.09))
    return rare < 1 / 3 and here > 0.85


def in_the_middle(seed: int, low: float, high: float) -> list[tuple[float, float]]:
    """Mean score, and share of frauds, of both networks, of what has a score between low and high."""
    d, found = frauds(seed), []
    for scores, labels in ((np.concatenate(each), np.concatenate([d.held, d.test])) for each in (d.plain, d.often)):
        chosen = (scores > low) & (scores < high)
        found.append((float(scores[chosen].mean()), float(labels[chosen].mean())))
    return found


def scores_near_a_half(seed: int) -> bool:
    return all(0.4 < mean < 0.55 for mean, _ in in_the_middle(seed, 0.2, 0.8))


def half_and_a_third(seed: int) -> bool:
    (_, plain), (_, often) = in_the_middle(seed, 0.2, 0.8)
    return 0.4 < plain < 0.6 and often < 1 / 3


def low_scores_are_too_high(seed: int) -> bool:
    return in_the_middle(seed, 0.02, 0.05)[0][1] < 0.02 and cheapest(seed) > CHEAP


def counted_on_a_gpu() -> bool:
    cells = [each["classes"] for each in known("counting") if not each["common"]]
    return cells == [1, 2, 10, 100]


def budgets() -> bool:
    kinds = find("confusion_matrix").trial.budgets
    said = [limit.formula for name in ("atomic", "shared") for limit in kinds[name].limits]
    return COUNTED == {"n": 2048, "classes": 2} and said == ["n // 32", "n // 32", "n // 4"]


CLAIMS = [
    Claim("paradox-words", "and only 5,000 other transactions", once=as_many_frauds),
    Claim("atomic-exercise", "at least 64 atomic additions, and at most 64 labels", once=budgets),
    Claim("contention", "spread evenly over 1, 2, 10 and 100 classes", once=counted_on_a_gpu),
    Claim("contention-answer", "makes 2,048, yours may make at most 512", once=budgets),
    Claim("report-words", "is far above the 91 % of the program", seeds=accurate),
    Claim("cost-answer", "between one and five times 0.024", seeds=between_one_and_five_times),
    Claim("cost-answer", "less than a third of what ½ costs", seeds=a_third_of_the_cost),
    Claim("rate-words", "A network finds 90 % of the frauds", why="definition: what the next cell computes with"),
    Claim("repeat-words", "raises recall and lowers precision", seeds=more_found_less_precise),
    Claim("curves-answer", "An AUC above 0.99", seeds=splendid),
    Claim("curves-answer", "more than two of three alarms are false", seeds=most_alarms_are_false),
    Claim("calibration-answer", "Between 0.2 and 0.8 the mean score is near ½", seeds=scores_near_a_half),
    Claim("calibration-answer", "fewer than a third for the one", seeds=half_and_a_third),
    Claim("calibration-answer", "fewer than 2 % of these", seeds=low_scores_are_too_high),
    Claim("calibration-answer", "higher than 0.024", seeds=low_scores_are_too_high),
]
