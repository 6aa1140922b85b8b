"""The page's accuracies: by epoch, on the test images, by batch and image size, and of the small network."""

from collections.abc import Sequence

from nnclassroom.pages import image, paragraphs, table
from nnexperiment import numbers, thesis
from nnexperiment.numbers import Curve, Experiment, Row
from nnexperiment.page_figures import curves_and_times, curves_in_words, figure_with_axes, plot_curves
from nnexperiment.page_times import seconds

SAME_STEP = 0.1  # rate of the small network at which its steps are those of table 3.1, with its cost and rate 0.5
COLLAPSE = 0.5  # of the best accuracy so far, below which a network has forgotten


def accuracies(own: Experiment) -> str:
    """Figures 4.5 and 4.6: least, mean and greatest accuracy of the runs, by epoch and at the end."""
    reached = [row for row in own.rows if row.accuracy is not None]
    if not reached:
        return ""
    known = thesis.ACCURACY if own.plan.network == "resnet34" else {}
    lines = [
        [row.label, str(row.runs), *(f"{value:.1%}" for value in row.accuracy or ()), known.get(row.batch, "–")]
        for row in reached
    ]
    curves = numbers.curves_of(own.results)
    figure, (left, right) = figure_with_axes(2)
    plot_curves(left, curves)
    labels, three = [row.label for row in reached], [row.accuracy for row in reached if row.accuracy]
    means = [mean for _, mean, _ in three]
    spreads = [[mean - least for least, mean, _ in three], [most - mean for _, mean, most in three]]
    right.bar(labels, means, yerr=spreads, capsize=4, width=0.6)
    right.set(ylabel="accuracy, test", ylim=(0, 1))
    right.tick_params("x", rotation=20)
    text = f"Accuracy on the validation images by epoch, and on the test images. {curves_in_words(curves)}"
    broken = [result["name"] for result in own.results if not result["finite"]]
    notes = [f"In {', '.join(broken)} the parameters are no longer finite: use a smaller rate."] if broken else []
    notes.append(
        "Lines show the mean of the runs, areas the range from least to greatest. See the thesis’s figures 4.5 and 4.6."
    )
    if own.plan.network.startswith("resnet"):
        notes.append(
            "Two GPUs with 64 images each compute the same gradient, up to rounding, as one GPU with 128 images. Two "
            "with 128 each do what one does with 256. Batch normalisation is the exception: each GPU normalises with "
            "the mean and variance of its own images only."
        )
        notes += beside_one(reached)
    heads = ["on the test images", "runs", "least", "mean", "most", "the thesis"]
    return f"<h2>Accuracy</h2>{table(lines, heads)}{image(figure, text, whole=True)}{paragraphs(notes)}"


def beside_one(rows: Sequence[Row]) -> list[str]:
    """The accuracy of several GPUs compared with one GPU with as many images per step: the effect of the statistics."""
    ones = {row.batch: row for row in rows if row.kind == "gpu" and row.count == 1}
    notes = []
    for row in rows:
        if row.kind == "gpu" and row.count > 1 and row.batch in ones and row.accuracy:
            one = ones[row.batch]
            least, mean, most = one.accuracy or (0.0, 0.0, 0.0)
            reached = f"{row.label}: mean accuracy {row.accuracy[1]:.1%} in {in_runs(row)}"
            notes.append(f"{reached}. {one.label}: {mean:.1%} in {in_runs(one)}, from {least:.1%} to {most:.1%}.")
    return notes


def in_runs(row: Row) -> str:
    return "1 run" if row.runs == 1 else f"{row.runs} runs"


def sizes(experiments: Sequence[Experiment]) -> str:
    """Figures 3.5 and 3.6: accuracy and time by batch, with a part for each image size and learning rate."""
    parts = [_size(each) for each in experiments if numbers.curves_of(each.results)]
    if not parts:
        return ""
    about = (
        "Compare the thesis’s figures 3.5 and 3.6. With larger images (222 × 295), its training was slower and less "
        "stable. At batch 72 the accuracy collapsed, and the thesis blamed the rate. With smaller images (112 × 148), "
        "the accuracy fell as the batch grew, to at most 60 % beyond 128, and the time fell by only 3 %."
    )
    return f"<h2>Batch and image size</h2>{paragraphs([about])}{''.join(parts)}"


def _size(each: Experiment) -> str:
    curves, rows = numbers.curves_of(each.results), [row for row in each.rows if row.accuracy]
    lines, collapsed = [], []
    for row in rows:
        curve = curves[row.label]
        lines.append(
            [
                str(row.batch),
                seconds(row.loop),
                f"{max(curve.mean):.1%}",
                f"{curve.mean[-1]:.1%}",
                f"{row.accuracy[1]:.1%}" if row.accuracy else "–",
            ]
        )
        if fall := collapse_of(curve):
            collapsed.append(f"With batch {row.batch} the accuracy collapsed: from {fall[0]:.0%} to {fall[1]:.0%}.")
    figure = curves_and_times(curves, rows)
    size = f"{each.plan.height} × {each.plan.width} pixels, rate {each.plan.learning_rate:g}, {each.plan.epochs} epochs"
    text = f"Accuracy by epoch and time of training, {size}. {curves_in_words(curves)}"
    heads = ["batch", "training", "best", "last", "on the test images"]
    notes = collapsed or ["No accuracy collapsed: none fell below half of its earlier best."]
    return f"<h3>{size}</h3>{table(lines, heads)}{image(figure, text, whole=True)}{paragraphs(notes)}"


def collapse_of(curve: Curve) -> tuple[float, float] | None:
    """The accuracies before and after the deepest fall to less than half of the best so far; None if there is none."""
    best, deepest = 0.0, None
    for value in curve.mean:
        if value < COLLAPSE * best and (deepest is None or value / best < deepest[1] / deepest[0]):
            deepest = (best, value)
        best = max(best, value)
    return deepest


def small_network(experiments: Sequence[Experiment]) -> str:
    """Table 3.1: 784-192-10 on MNIST with several frameworks, and with ours."""
    lines = [list(line) for line in thesis.FRAMEWORKS]
    for each in experiments:
        for row in each.rows:
            if row.accuracy:
                time = seconds(row.loop + row.test)
                lines.append([f"here, {row.label} ({each.plan.epochs} epochs)", f"{row.accuracy[1]:.0%}", time])
    notes = [
        "The thesis trained 784-192-10 on MNIST: 8 epochs, batch 50, SGD with rate 0.5. The network is so small that "
        "PyTorch was slower on the GPU than on the CPU: each operation waits for its launch.",
        "In the thesis, PyTorch's cost was the mean of the squares over the ten outputs. The cost here, half of their "
        "sum, is five times as large, so a rate of 0.1 takes the same steps. PyTorch's 90 % is due to its cost: "
        "pytorch/small_test.py gets 90 % with it, and 97 % with cross-entropy.",
    ]
    for rate in (each.plan.learning_rate for each in experiments if each.plan.learning_rate != SAME_STEP):
        notes.append(f"The rate here was {rate:g}, so the steps were {rate / SAME_STEP:g} times as large.")
    if len(lines) == len(thesis.FRAMEWORKS):
        options = f"--devices cpu,1 --epochs 8 --batch-size 50 --learning-rate {SAME_STEP} --cpu-steps 0"
        notes.append(f"To add your own run: nncourse experiment mnist {options} --out FOLDER/mnist")
    heads = ["table 3.1", "accuracy", "time"]
    return f"<h2>A small network</h2>{table(lines, heads)}{paragraphs(notes)}"
