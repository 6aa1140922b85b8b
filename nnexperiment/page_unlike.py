"""The page's part on unequal devices that train together: the CPU beside GPUs, or a slow process beside a fast one."""

from nnclassroom.pages import image, paragraphs, table
from nnexperiment import numbers
from nnexperiment.numbers import Experiment
from nnexperiment.page_figures import curves_and_times, curves_in_words
from nnexperiment.page_times import seconds


def unlike(each: Experiment) -> str:
    """Figure 3.3: accuracy and time of unequal devices beside one device."""
    rows = [row for row in each.rows if row.accuracy]
    base = numbers.base_of(rows)
    shares = {numbers.label_of(result): result["shares"] for result in each.results}
    lines = []
    for row in rows:
        own = " + ".join(f"{share:.1%}" for share in shares[row.label] or [1.0])
        speedup = f"{base.loop / row.loop:.3g}" if base else "–"
        reached = f"{row.accuracy[1]:.1%}" if row.accuracy else "–"
        lines.append([row.label, own, seconds(row.loop), speedup, reached])
    curves = numbers.curves_of(each.results)
    figure = curves_and_times(curves, rows)
    text = f"Accuracy by epoch and time of training. {curves_in_words(curves)}"
    about = (
        "The thesis’s figure 3.3: with a twelfth of a GPU’s images for the CPU, training was slower than on one GPU, "
        "less accurate and less stable. Shares by speed let all devices end together. But the CPU also feeds the GPUs, "
        "and gradients have to be exchanged.",
        "A device’s gradient is a mean over its images. The gradient of the batch is the sum of these, each times its "
        "images over all images. Counted alike, as the thesis’s were, few images move the network as much as many.",
    )
    plan = each.plan
    size = f"{plan.network}, {plan.height} × {plan.width} pixels, {plan.epochs} epochs"
    slow = f" The first process was made {plan.slow:g} times as slow on purpose." if _is_slowed(each) else ""
    given = f" The CPU's share was not measured but given: {plan.cpu_share:.0%} of a batch." if plan.cpu_share else ""
    heads = ["", "shares", "training", "S of the loop", "on the test images"]
    words = paragraphs([f"{size}.{slow}{given}"])
    return f"<h2>Unequal devices</h2>{words}{table(lines, heads)}{image(figure, text, whole=True)}{paragraphs(about)}"


def _is_slowed(each: Experiment) -> bool:
    return any(result["kind"] == "unequal" for result in each.results)
