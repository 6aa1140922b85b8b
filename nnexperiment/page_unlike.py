"""The page's part on unequal devices that train together: the CPU with GPUs, or a slow process with a fast one."""

from nnclassroom.pages import image, paragraphs, table
from nnexperiment import numbers
from nnexperiment.numbers import Experiment
from nnexperiment.page_figures import curves_and_times, curves_in_words
from nnexperiment.page_times import seconds


def unlike(each: Experiment) -> str:
    """Figure 3.3: accuracy and time of unequal devices, compared with one device."""
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
        "In the thesis’s figure 3.3 the CPU got a twelfth of a GPU’s images. Training was slower than on one GPU, less "
        "accurate and less stable. With shares by speed, all devices finish together. But the CPU also feeds the GPUs, "
        "and gradients have to be exchanged.",
        "A device’s gradient is a mean over its images. The batch’s gradient is the mean of these, weighted by their "
        "numbers of images. Counted alike, as in the thesis, few images move the network as much as many.",
    )
    plan = each.plan
    size = f"{plan.network}, {plan.height} × {plan.width} pixels, {plan.epochs} epochs"
    slow = f" The first process was made {plan.slow:g} times as slow on purpose." if _is_slowed(each) else ""
    given = f" The CPU's share was not measured but set: {plan.cpu_share:.0%} of a batch." if plan.cpu_share else ""
    heads = ["", "shares", "training", "S of the loop", "on the test images"]
    words = paragraphs([f"{size}.{slow}{given}"])
    return f"<h2>Unequal devices</h2>{words}{table(lines, heads)}{image(figure, text, whole=True)}{paragraphs(about)}"


def _is_slowed(each: Experiment) -> bool:
    return any(result["kind"] == "unequal" for result in each.results)
