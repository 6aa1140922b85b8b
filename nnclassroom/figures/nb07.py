"""Figures of notebook 07: confusion matrices, and how a threshold changes them."""

import numpy as np

from nnclassroom.figures.common import MARKS, draw_counts, plot_confusion, row_of_axes, with_title
from nnclassroom.figures.described import Described, WordedFigure
from nncourse.backend import choose
from nncourse.model.metrics import f1, precision, recall

__all__ = ["Described", "counts_at", "plot_confusion", "plot_threshold"]


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
