"""The evidence for notebook 14: trainings of its networks with the course's kernels, and recorded results."""

import json
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from claims import SEEDS, Claim
from claims.cells import defined
from nnclassroom import choose, find
from nnclassroom.figures import nb14 as figures
from nnclassroom.figures import overheads
from nncourse import SGD, Adam, Kernel, backpropagation, metrics, train
from nncourse.model import Network, resnet
from nncourse.model.layers import LayerSequence

NOTEBOOK, THESIS = "14_resnet_and_frameworks", "source: the Cantabria thesis (2021)"
BACKEND = choose("numpy")


@cache
def cells() -> dict[str, Any]:
    """What the notebook's cells define; those that test a network look for it under the name net."""
    names = defined(NOTEBOOK, "setup", "chain", "four-networks", "small-network", "data")
    truth = names["tails"](names["test"])
    return defined(NOTEBOOK, "trap-run", **names | {"net": names["small_resnet"](), "said": truth, "truth": truth})


def without_terms(D: Any, A: Any, mean: Any, variance: Any, gamma: Any, dgamma: Any, dbeta: Any, epsilon: Any) -> Any:
    return D * (gamma / np.sqrt(variance + np.float32(epsilon)))[:, None, None]


WRONG = Kernel(find("batchnorm_backward"), "broken", "cpu", "", without_terms)
BROKEN = choose("numpy", batchnorm_backward=WRONG)


@cache
def chain(shortcuts: bool, normalise: bool, seed: int, broken: bool = False, epochs: int = 6) -> tuple[float, ...]:
    """The last cost, the share of test digits that are right, and the length of the first block's weights."""
    n, backend = SimpleNamespace(**cells()), BROKEN if broken else BACKEND
    network = n.chain(shortcuts, normalise, seed=seed)
    options = {"epochs": epochs, "batch_size": 32, "learning_rate": 0.05, "seed": seed, "optimizer": SGD()}
    with np.errstate(all="ignore"):
        cost = train(network, n.read.X / 16, n.read.Y, backend, **options).costs[-1]
        right = metrics.accuracy(metrics.confusion(network, n.unread.X / 16, n.unread.Y, backend))
    return cost, right, float(np.linalg.norm(network.layers[1].parameters[0]))


def little_without_shortcuts(seed: int) -> bool:
    return max(chain(False, False, seed)[1], chain(False, True, seed)[1]) < 0.45


def both_read(seed: int) -> bool:
    return bool(chain(True, True, seed)[1] > 0.9 and np.isnan(chain(True, False, seed)[0]))


def broken_reads_less(seed: int) -> bool:
    return chain(True, True, seed)[1] - chain(True, True, seed, broken=True)[1] > 0.1


def broken_weights_grow() -> bool:
    """For most seeds: which ones differs from machine to machine."""
    grown = [chain(True, True, s, broken=True, epochs=1)[2] > 1.1 * chain(True, True, s, epochs=1)[2] for s in SEEDS]
    return sum(grown) > len(SEEDS) / 2


@cache
def small(seed: int, blocks: int = 3, shortcuts: bool = True, classes: int = 3, epochs: int = 4) -> SimpleNamespace:
    """A trained network, its costs, and the shares of test images that are right, as the notebook tests them."""
    n = SimpleNamespace(**cells())
    Y, truth = (n.Y, n.tails(n.test)) if classes == 3 else (n.learn.Y, n.test.Y.argmax(axis=1))
    network = n.small_resnet(widths=tuple(np.repeat((8, 16, 32), blocks // 3)), classes=classes, seed=seed)
    if not shortcuts:
        layers = [plain(each, n.norm) if isinstance(each, n.Residual) else each for each in network.layers]
        network = Network(layers, network.cost, network.input_shape)
    options = {"epochs": epochs, "batch_size": 32, "learning_rate": 0.01, "seed": seed, "optimizer": Adam()}
    costs = train(network, n.X, Y, BACKEND, **options).costs
    used = (network.predict(n.X_test, BACKEND).argmax(axis=1) == truth).mean()
    cells()["net"] = network
    n.gather_statistics(network)
    rows, by_class = range(len(truth)), np.argsort(truth, kind="stable")
    how = {"mixed": (rows, 60), "by_class": (by_class, 60), "single": (rows, 1)} if classes == 3 else {}
    shares = {
        name: n.share_right(*each) for name, each in how.items() if name == "mixed" or epochs == 4 and blocks == 3
    }
    said = network.predict(n.X_test, BACKEND).argmax(axis=1)
    anew = (said == truth).mean()
    return SimpleNamespace(network=network, costs=costs, used=used, anew=anew, said=said, truth=truth, **shares)


def plain(block: Any, norm: Any) -> LayerSequence:
    body = block.body.layers
    return LayerSequence([*body[:-1], norm(len(body[-1].parameters[0]), "relu")])


def any_share(seed: int) -> bool:
    return bool(0.7 <= small(seed).used <= 0.995 and small(seed).costs[-1] < small(seed).costs[0] / 2)


def several_below() -> bool:
    return sum(small(seed).used < 0.92 for seed in range(1, 6)) > 1


def anew_is_right(seed: int) -> bool:
    return bool(small(seed).anew > 0.9)


def large_batches_hide_it(seed: int) -> bool:
    return small(seed).mixed > 0.9 and max(small(seed).by_class, small(seed).single) < small(seed).mixed - 0.2


def lags_after_an_epoch(seed: int) -> bool:
    return bool(small(seed, epochs=1).mixed > small(seed, epochs=1).used)


def few_weights_change(seed: int) -> bool:
    network, changed = small(seed).network, []
    found = backpropagation(network, cells()["X"][:480], cells()["Y"][:480], BACKEND)
    gradient = np.concatenate([array.ravel() for layer in found for array in layer])
    for kind in ("bfloat16", "float16"):
        before = figures.rounded(network.flat_parameters, kind)
        after = figures.rounded(before - 0.01 * figures.rounded(gradient, kind), kind)
        changed.append((after != before).mean())
    return bool(max(changed) < 0.2 and (np.abs(gradient) < 2.0**-14).mean() > 0.1)


def six_blocks_read(seed: int) -> bool:
    three, six = (sum(part.products for part in figures.parts(small(seed, blocks).network)) for blocks in (3, 6))
    return bool(small(seed, blocks=6).anew > 0.9 and 1.8 < six / three < 2.3)


def three_plain_blocks_read(seed: int) -> bool:
    return bool(small(seed, shortcuts=False).anew > 0.9)


def nine_classes(seed: int) -> bool:
    found = small(seed, classes=9)
    tail, right = found.said // 3 == found.truth // 3, found.said == found.truth
    return bool(0.2 < right.mean() < 0.5 and tail.mean() > 0.7 and tail[~right].mean() > 0.5)


def early_behind_and_late_alike() -> bool:
    early: dict[int, list[float]] = {128: [], 256: []}
    last = []
    for path in (overheads.RESULTS / "experiment" / "runs").glob("gpu*.json"):
        run = json.loads(path.read_text("utf-8"))
        early[run["batch"]].append(round(100 * run["accuracies"][9]))
        last.append(round(100 * run["accuracy"], 1))
    ends = [end for batch in (256, 128) for end in (min(early[batch]), max(early[batch]))]
    return len(early[128]) == len(early[256]) == 4 and [*ends, min(last), max(last)] == [11, 41, 69, 81, 83.8, 84.9]


def limits() -> bool:
    found = overheads.recorded("gpu")["limits"]
    return round(found["copy"] / 1e12, 1) == 4.3 and round(found["matrix"] / 1e12) == 51


def plan() -> bool:
    found = figures.parts(resnet(34, classes=9, channels=1))
    stages = [part for part in found if part.blocks]
    each = [part.products / part.blocks for part in stages]
    largest = stages[2].products == max(part.products for part in found) and stages[2].blocks == 6
    products, said = (sum(getattr(part, name) for part in found) for name in ("products", "parameters"))
    rest = round(stages[-1].parameters / 1e6), round(products / 1e9, 1), round(6 * 128 * products / 1e12, 1)
    return bool(
        largest and (round(said / 1e6, 1), *rest) == (21.3, 13, 2.3, 1.8) and 130e6 < min(each) < max(each) < 155e6
    )


def beside_cudnn() -> bool:
    times: dict[tuple[str, str], dict[str, float]] = {}
    for each in overheads.table("convolutions"):
        times.setdefault((each["layer"], each["pass"]), {})[each["kernel"]] = each["seconds"]
    known = [each for (layer, _), each in times.items() if "channels" in layer]
    naive, ours = (sorted(each[kernel] / each["cudnn"] for each in known) for kernel in ("naive", "implicit_gemm"))
    ahead, behind = [ratio for ratio in ours if ratio < 1], [round(ratio, 1) for ratio in ours if ratio > 1]
    return round(naive[0]) == 6 and 45 < naive[-1] < 50 and (len(ahead), behind[0], behind[-1]) == (4, 1.3, 1.9)


CLAIMS = [
    Claim("thesis-words", "On it are the thesis's figures", why="definition: of nnexperiment/page.py"),
    Claim("chain-answer", "is about 24,000", why="derived: 1.4 ** 30 is 24,201"),
    Claim("cuda-predict", "An H200 copied 4.3 TB and computed 51 TFLOP per second", once=limits),
    Claim("four-answer", "fewer than 45 % are right.", seeds=little_without_shortcuts),
    Claim("four-answer", "With both, a network of 32 layers reads more than 90 %", seeds=both_read),
    Claim("alone-answer", "a deviation of 0.83", why="derived: √(1 − 1/π), since max(0, z) has the mean 1/√2π"),
    Claim("break-answer", "with each of five seeds it lost more than ten percentage points.", seeds=broken_reads_less),
    Claim("break-answer", "those of the first block were longer after one epoch", once=broken_weights_grow),
    Claim("fish-words", "The thesis looked for many images of one size", why=f"{THESIS}, sections 1.3 and 3.4"),
    Claim("fish-words", "3,000 of the 40,000 took the network to 95 %", why=f"{THESIS}, section 3.2"),
    Claim("fish-answer", "take 0.9 GB.", why="derived: 7,650 · 148 · 197 numbers of 4 bytes"),
    Claim("train-answer", "Anything from 70 to 99 %, depending on the seed", seeds=any_share),
    Claim("train-answer", "Several of our five seeds stayed below 92 %.", once=several_below),
    Claim("trap-answer", "With statistics gathered anew more than 90 % are right", seeds=anew_is_right),
    Claim("trap-answer", "In large mixed batches the mistake hardly shows", seeds=large_batches_hide_it),
    Claim("stale-answer", "the weights still move fast, and the statistics lag behind.", seeds=lags_after_an_epoch),
    Claim(
        "stale-answer", "It calls `eval()` for the validation, and never `train()` again.", why=f"{THESIS}, listing 3.3"
    ),
    Claim("stale-answer", "From the second epoch on", why="definition: of use mode, in PyTorch as in the course"),
    Claim("plan-answer", "It has 21.3 million parameters. 13 million of them", once=plan),
    Claim("plan-answer", "they are spread evenly, on average 130 to 155 million per block in each stage", once=plan),
    Claim("cudnn-answer", "is ahead of the library in four lines of nine", once=beside_cudnn),
    Claim("bits-words", "| float32 | 8 bits | 23 bits |", why="definition: IEEE 754"),
    Claim("bits-answer", "float16 ends at 65,504, and 10⁻⁸ becomes 0.", why="definition: IEEE 754, binary16"),
    Claim("bits-step-answer", "Few: the steps are smaller than half the distance", seeds=few_weights_change),
    Claim("thesis-read", "80 % right with 128 images a step, and 74 %", why=THESIS),
    Claim("experiment-words", "11 to 41 % against 69 to 81 %.", once=early_behind_and_late_alike),
    Claim("experiment-words", "all eight are between 83.8 and 84.9 %", once=early_behind_and_late_alike),
    Claim("course-end", "you write it, nudge it, and train a network with it", why="definition: of that notebook"),
    Claim("now-try-answer", "They read more than 90 %, as three do", seeds=six_blocks_read),
    Claim("now-try-answer", "Three blocks learn without shortcuts, too", seeds=three_plain_blocks_read),
    Claim("now-try-answer", "Of nine classes 20 to 50 % are right", seeds=nine_classes),
    Claim("now-try-answer", "about ten seconds of training.", why="derived: 27,000 images at 2,414 a second take 11 s"),
    Claim("table-words", "XLA compiles for it", why="source: OpenXLA's documentation, back ends"),
    Claim("table-words", "run on processors of several makers.", why="source: Khronos, SYCL 2020, introduction"),
    Claim("appendix", "2.1 has its layers on devices 0 and 1", why=f"{THESIS}, listing 2.1"),
    Claim("appendix", "2.2 and 2.3 call `backward()` of the network", why=f"{THESIS}, listings 2.2 and 2.3"),
    Claim("appendix", "3.3 never leaves use mode", why=f"{THESIS}, listing 3.3"),
    Claim("appendix", "3.5 computes the accuracy after each epoch", why=f"{THESIS}, listing 3.5"),
]
