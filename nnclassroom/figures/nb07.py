"""Figures of notebook 07: confusion matrices, thresholds and their costs, curves of scores, calibration."""

from collections.abc import Mapping, Sequence

import numpy as np

from nnclassroom.figures.common import (
    INK,
    MARKS,
    draw_counts,
    figure_with_axes,
    line_style,
    plain_numbers,
    plot_confusion,
    row_of_axes,
    with_title,
)
from nnclassroom.figures.described import WordedFigure
from nncourse.backend import choose
from nncourse.model.metrics import f1, precision, recall

__all__ = [
    "counts_at",
    "plot_calibration",
    "plot_confusion",
    "plot_costs",
    "plot_curves",
    "plot_f1",
    "plot_threshold",
]

BINS = (0, 0.05, 0.2, 0.5, 0.8, 0.95, 1)  # of scores, for plot_calibration


def counts_at(scores: np.ndarray, labels: np.ndarray, threshold: float) -> np.ndarray:
    """The confusion matrix (2, 2) if scores (n,) above the threshold are predicted as class 1."""
    predictions = (np.asarray(scores) > threshold).astype(np.int32)
    return choose("numpy").confusion_matrix(np.asarray(labels).astype(np.int32), predictions, 2)


def recall_and_precision(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Recall and precision of class 1, (n, 2), at up to 200 thresholds between the lowest and the highest score."""
    tried = [counts_at(scores, labels, t) for t in np.unique(np.quantile(scores, np.linspace(0, 1, 200)))]
    found = [(recall(M)[1], precision(M)[1]) for M in tried if M[:, 1].any()]  # otherwise precision is undefined
    return np.array(found).reshape(-1, 2)


def plot_threshold(scores: np.ndarray, labels: np.ndarray, threshold: float = 0.5, title: str = "") -> WordedFigure:
    """Plot the effect of a threshold: scores of both classes, confusion matrix, and precision against recall."""
    figure, (left, middle, right) = row_of_axes(title, 3, width=10.0, width_ratios=(1.3, 0.8, 1))
    bins = np.linspace(min(0, np.min(scores)), max(1, np.max(scores)), 31)
    for label, (colour, _) in enumerate(MARKS):
        own = scores[labels == label]
        weights = np.full(len(own), 100 / max(1, len(own)))  # so that a rare class is visible
        fill = {"color": colour, "alpha": 0.55, "hatch": "//" if label else ""}
        left.hist(own, bins, weights=weights, label=f"class {label} ({len(own)} samples)", **fill)
    left.axvline(threshold, color="black", linestyle="--", label=f"threshold {threshold:.2f}")
    left.set(xlabel="score: the network's output", ylabel="share of the class, %")
    left.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1))  # above the bars
    M = counts_at(scores, labels, threshold)
    (tn, fp), (fn, tp) = M
    names = ((f"{tn}\ntrue\nnegative", f"{fp}\nfalse\npositive"), (f"{fn}\nfalse\nnegative", f"{tp}\ntrue\npositive"))
    draw_counts(middle, M, names)
    middle.set(xticks=(0, 1), yticks=(0, 1))
    right.plot(*recall_and_precision(scores, labels).T, color="tab:green")
    right.plot([recall(M)[1]], [precision(M)[1]], "o", color="black", markersize=8, label=f"F1 {f1(M)[1]:.3f}")
    right.set(xlabel="recall (class 1)", ylabel="precision (class 1)", xlim=(-0.03, 1.03), ylim=(-0.03, 1.05))
    right.legend(frameon=False, fontsize=9, loc="lower left")
    counts = f"{tp} true positives, {fp} false positives, {fn} false negatives, {tn} true negatives"
    rates = f"precision {precision(M)[1]:.3f}, recall {recall(M)[1]:.3f}, F1 {f1(M)[1]:.3f}"
    three = "Histograms of the scores of both classes, the confusion matrix, and precision against recall."
    figure.words = with_title(title, f"At threshold {threshold:.2f}: {counts}; {rates}.", three)
    return figure


def plot_f1(dots: Sequence[tuple[float, float]]) -> WordedFigure:
    """Plot lines of equal F1 over recall and precision, and dots (recall, precision) with the plain mean ½."""
    figure, axes = figure_with_axes("Lines of equal F1", 5.0, 4.0)
    R, P = np.meshgrid(np.linspace(0.01, 1, 100), np.linspace(0.01, 1, 100))
    lines = axes.contour(R, P, 2 * P * R / (P + R), levels=np.arange(0.1, 1, 0.1), cmap="viridis")
    axes.clabel(lines, fmt="%.1f")
    axes.plot(*zip(*dots, strict=True), "o", color="tab:red", clip_on=False, label="plain mean 0.5")
    axes.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
    figure.legend(loc="outside lower center", frameon=False)
    said = ", and at ".join(f"recall {r:g}, precision {p:g}" for r, p in dots)
    figure.words = f"Lines of equal F1, 0.1 to 0.9; the low ones run along both axes. Dots at {said}."
    return figure


def plot_costs(thresholds: np.ndarray, euros: Sequence[int]) -> WordedFigure:
    """Plot what errors cost at each threshold, with lines at ½ and at the cheapest."""
    best = int(np.argmin(euros))
    figure, axes = figure_with_axes("What the errors cost", 6.5)
    axes.plot(thresholds, euros, label="validation data")
    axes.axvline(0.5, color="0.4", linestyle=":", label="0.5")
    axes.axvline(thresholds[best], color="tab:red", linestyle="--", label=f"the cheapest, {thresholds[best]:.3f}")
    axes.set(xscale="log", xlabel="threshold", ylabel="cost, euros", ylim=(0, None))
    plain_numbers(axes.xaxis)
    axes.legend(frameon=False)
    lowest = f"lowest at {thresholds[best]:.3f} with {euros[best]} euros"
    figure.words = f"Cost over the threshold: {lowest}, {euros[0]} at the left end and {euros[-1]} at the right end."
    return figure


def curves(scores: np.ndarray, labels: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recall, false alarm rate and precision at each score as threshold, if class 1 were `share` of all samples."""
    is_one = labels[np.argsort(-scores, kind="stable")] == 1
    found, alarms = np.cumsum(is_one) / is_one.sum(), np.cumsum(~is_one) / (~is_one).sum()
    return found, alarms, share * found / (share * found + (1 - share) * alarms)


def plot_curves(scores: np.ndarray, labels: np.ndarray, shares: Sequence[float]) -> WordedFigure:
    """Plot ROC and precision-recall curves of scores, once for each share of class 1 among all samples."""
    figure, (left, right) = row_of_axes(None, 2, 9.0, 3.6)
    said = []
    for number, share in enumerate(shares):
        found, alarms, precise = curves(scores, labels, share)
        area = float(np.trapezoid(np.append(0, found), np.append(0, alarms)))
        at = int(np.argmax(found >= 0.9))
        style = line_style(number) | {"marker": "", "color": f"C{2 + number}"}
        left.plot(np.append(0, alarms), np.append(0, found), label=f"{share:.2%} frauds: AUC {area:.3f}", **style)
        right.plot(found, precise, label=f"{share:.2%} frauds", **style)
        said.append(f"{share:.2%} frauds: AUC {area:.3f}; at recall {found[at]:.2f} precision {precise[at]:.2f}.")
    left.set(xlabel="false alarm rate", ylabel="recall", title="ROC curve")
    right.set(xlabel="recall", ylabel="precision", title="Precision–recall curve", ylim=(-0.03, 1.05))
    left.legend(frameon=False, fontsize=9, loc="lower right")
    right.legend(frameon=False, fontsize=9, loc="lower left")
    figure.words = f"ROC and precision–recall curves. {' '.join(said)}"
    return figure


def in_bins(scores: np.ndarray, labels: np.ndarray) -> list[tuple[int, float, float]]:
    """For each of BINS with samples: how many, their mean score, and the share of class 1 among them."""
    bins = np.digitize(scores, BINS[1:-1])
    chosen = [bins == number for number in range(len(BINS) - 1)]
    return [(int(c.sum()), float(scores[c].mean()), float(np.mean(labels[c]))) for c in chosen if c.any()]


def plot_calibration(scores: Mapping[str, np.ndarray], labels: np.ndarray) -> WordedFigure:
    """Plot the share of class 1 over the mean score, in bins of the scores of several networks."""
    figure, axes = figure_with_axes("Is a score a probability?", 5.5, 4.2)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=1, label="calibrated")
    said = []
    for number, (name, values) in enumerate(scores.items()):
        counts, means, shares = zip(*in_bins(values, labels), strict=True)
        axes.plot(means, shares, label=name, **line_style(number))
        points = zip(counts, means, shares, strict=True)
        said.append(f"{name}: {', '.join(f'{mean:.2f} {share:.2f} ({count})' for count, mean, share in points)}.")
    axes.set(xlabel="mean score in a bin", ylabel="share of frauds in the bin")
    axes.legend(frameon=False)
    figure.words = f"For each bin the mean score, the share of frauds, and how many samples. {' '.join(said)}"
    return figure
