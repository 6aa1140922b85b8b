"""The evidence for notebook 05: its own cells, with the networks worked out by hand and the patients of its ward."""

import functools
from typing import Any

import numpy as np

from claims import Claim
from claims.cells import defined
from nnclassroom import find

HEAD = "setup", "network", "nudge", "price", "slope", "deep-network", "deep-nudge", "mean"
EQUATIONS = "output_delta", "hidden_delta", "bias_gradient", "weight_gradient"


@functools.cache
def cells() -> dict[str, Any]:
    """What the notebook's cells define, with the course's four equations in place of the student's."""
    names = defined("05_backpropagation", *HEAD)
    own = {name: find(name)["numpy"] for name in EQUATIONS}
    ward = names["figures"].Ward(seed=7)
    return defined("05_backpropagation", "backward", "differences", "check", "treatment", **names, **own, ward=ward)


def by_hand() -> bool:
    """2-3-1: the output, the delta that comes down to each neuron, and the slope by the first input."""
    network, steps = cells()["small"], cells()["small_steps"]
    down, parts = steps["d3"][0] * network.layers[1].W[0], steps["d2"] * network.layers[0].W[:, 0]
    shown = np.round([*parts, parts.sum()], 4).tolist() == [-0.0070, 0, 0.0058, -0.0012]
    return shown and round(steps["a3"].item(), 2) == 0.72 and np.abs(down).argmax() == 1


def slope_at_a() -> bool:
    def ratio(z: float) -> float:
        a = 1 / (1 + np.exp(-z))
        again = 1 / (1 + np.exp(-a))
        return float(again * (1 - again) / (a * (1 - a)))

    return abs(ratio(0.5) - 0.97) < 0.005 and 4 < ratio(3) < 5


def two_paths() -> bool:
    slope, upper = cells()["slope"], cells()["upper"]
    return np.round([upper, slope, slope - upper], 6).tolist() == [-0.001683, -0.000991, 0.000692] and (
        abs(upper / slope - 1.7) < 0.01
    )


def ratios(fault: str) -> dict[int, np.ndarray]:
    """A patient's gradient of each layer as multiples of the right one."""
    names = cells()
    ill, right = (patient(fault) for fault in (fault, "healthy"))
    ill, right = (names["backward"](names["deep"], names["X4"], names["Y4"], one) for one in (ill, right))
    return {n: np.append(ill[f"dw{n}"] / right[f"dw{n}"], ill[f"db{n}"] / right[f"db{n}"]) for n in (2, 3, 4)}


def patient(fault: str) -> Any:
    """The equations of the patient who has this fault."""
    ward = cells()["ward"]
    return next(ward[name] for name in ward.names if "✓" in repr(ward.check(**{name: fault})))


def symptoms() -> bool:
    slope = ratios("slope")
    return (
        slope[3].round().min() == slope[3].round().max() == 4
        and (slope[2].min().round(), slope[2].max().round()) == (14, 40)
        and slope[2].std() > 1
        and all((ratio.round(6) == -1).all() for ratio in ratios("sign").values())
    )


def treated(seed: int) -> bool:
    """Steps of rate 16 from starts that differ in the ninth digit: without the mean, rounding decides where it ends."""
    train, deep = cells()["trained"], cells()["deep"]
    flat, start = deep.flat_parameters, deep.flat_parameters.copy()
    flat *= 1 + 1e-9 * np.random.default_rng(seed).standard_normal(flat.size)
    try:
        four_times = np.isclose(train(patient("healthy"), rate=2), train(patient("mean"), rate=0.5), rtol=1e-6)
        return bool(
            four_times and train(patient("healthy"), rate=16) < 0.00025 and train(patient("mean"), rate=16) > 0.05
        )
    finally:
        flat[...] = start


def longer_steps() -> bool:
    """Without the slopes: the length of the first step, and its direction, layer by layer."""
    names, found = cells(), {}
    for fault in ("slope", "healthy"):
        by_name = names["backward"](names["deep"], names["X4"], names["Y4"], patient(fault))
        found[fault] = [np.append(by_name[f"dw{n}"], by_name[f"db{n}"]) for n in (2, 3)]
    pairs = list(zip(found["slope"], found["healthy"], strict=True))
    lengths = [np.linalg.norm(ill) / np.linalg.norm(right) for ill, right in pairs]
    cosines = [ill @ right / np.linalg.norm(ill) / np.linalg.norm(right) for ill, right in pairs]
    return np.round(lengths).tolist() == [25, 4] and min(cosines) > 0.9


def lost_by_relu(seed: int) -> bool:
    """The factor that the deltas lose in each layer with ReLU and Xavier's weights, from other weights and samples."""
    names, rng = cells(), np.random.default_rng(seed)
    X, Y = rng.standard_normal((32, 40)), rng.integers(0, 2, (32, 1))
    network = names["make_network"]([40] * 12 + [1], "relu", initialiser="xavier", seed=seed)
    deltas = names["figures"].Steps(network, X, Y)
    return 1.2 < (np.linalg.norm(deltas["d13"]) / np.linalg.norm(deltas["d2"])) ** (1 / 11) < 1.6


CELL = "definition: of the cell below"
CLAIMS = [
    Claim("nudge-words", "the output at present is 0.72", once=by_hand),
    Claim("nudge-answer", "Because each parameter needs a forward pass", why="derived: a nudge changes one parameter"),
    Claim("chain-words", "| factor | is | because |", why="definition: the head of a table"),
    Claim("chain-answer", "it went a step of 0.01 along a curve", why=CELL.replace("below", "above")),
    Claim("chain-answer", "they belong to the arrow that always stayed", why="derived: all paths end in C"),
    Claim("hand-hidden-answer", "is the largest of the three, for its weight is −0.7", once=by_hand),
    Claim("hand-hidden-answer", "it never learns again", why="derived: all its gradients are 0"),
    Claim("hand-input-answer", "−0.0012 together", once=by_hand),
    Claim(
        "hand-input-answer",
        "with one index too many",
        why="source: the draft, (3.28) and (3.29): p from 0 to h1.size()",
    ),
    Claim("entropy-words", "By 3 per cent only", once=slope_at_a),
    Claim("entropy-words", "more than four times the right slope", once=slope_at_a),
    Claim("entropy-answer", "With the squared error the delta is 0.001", why="derived: 0.999 · 0.999 · 0.001"),
    Claim("entropy-answer", "because it shows (4a) in full", why="definition: of what the notebook does"),
    Claim(
        "softmax-answer",
        "the *Cantabria thesis* multiplies by one slope",
        why="source: the thesis, (2.2) in figure 2.4",
    ),
    Claim("deep-paths-words", "it is 70 per cent too large", once=two_paths),
    Claim("deep-deltas-words", "−0.001683 + 0.000692 = −0.000991", once=two_paths),
    Claim("mean-answer", "there are twice as many of them", why="derived: every sample is there twice"),
    Claim("mean-answer", "would take a step twice as long", why="derived: twice as many samples add up"),
    Claim("shapes-words", "samples never mix", why="derived: from (4a) and (4b)"),
    Claim("work-answer", "Here it is 1.3 times", why="derived: (12,900 + 48,200) / 48,200"),
    Claim("work-answer", "(here 2.3)", why="derived: 1 + 1.3"),
    Claim("wrong-answer", "in layer 2 between 14 and 40", once=symptoms),
    Claim("wrong-answer", "every number −1 times the right one", once=symptoms),
    Claim("treatment-words", "At the start the cost is 0.189", why=CELL.replace("below", "mean")),
    Claim("treatment-answer", "with `rate=2` does exactly the same", seeds=treated),
    Claim("treatment-answer", "are 25 and 4 times as long at the start", once=longer_steps),
    Claim("treatment-answer", "the healthy patient reaches 0.0002", seeds=treated),
    Claim("treatment-answer", "Notebooks 11 and 14 meet wrong gradients again", why="definition: of those notebooks"),
    Claim("vanishing-words", "eleven hidden layers of 40 neurons", why=CELL),
    Claim("vanishing-answer", "about the same factor, 4.4", why="derived: 1.2e7 ** (1 / 11)"),
    Claim("vanishing-answer", "ReLU loses a factor of about 1.4 a layer", seeds=lost_by_relu),
    Claim("now-try", "With one more layer of three, nine", why="derived: 3 · 3"),
    Claim("appendix", "(3.26) to (3.29)", why="source: the draft"),
]
