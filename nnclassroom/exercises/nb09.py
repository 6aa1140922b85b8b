"""Operations of the exercises of notebook 09: no network calls them, and no backend has kernels for them.

corrected_mean    a running mean that starts at 0 and is right from its first number on
warm_up_cosine    a schedule of the learning rate: up in equal steps, then down half a cosine wave
"""

import math
from collections.abc import Iterator

import numpy as np

from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Trial


def _weighted_mean(g: np.ndarray, beta: float) -> np.ndarray:
    """By the matrix of all weights: a number counts β times as much as the one after it."""
    ago = np.subtract.outer(np.arange(len(g)), np.arange(len(g)))
    weights = np.tril(float(beta) ** np.maximum(ago, 0))
    return weights @ g / weights.sum(axis=1)


def _rounded_powers(g: np.ndarray, beta: float) -> np.ndarray:
    """A product of t + 1 factors β is off by t roundings in float32, which 1 less the product is too; g[0] is exact."""
    t = np.arange(len(g))
    return _weighted_mean(abs(g), beta) * (1 + t / (16 * (1 - beta ** (t + 1.0))))


def _whose_weights(t: int) -> str:
    return (
        f"each of g[0] … g[{t}] must weigh β times as much as the next one"
        if t
        else "m[0] must be g[0] itself, whose weight is 1"
    )


def _running(g: np.ndarray, beta: float, m: float, factor: float = 1.0) -> np.ndarray:
    """m ← β m + (1 − β) g, from a number m on."""
    means = np.empty_like(g)
    for t in range(len(g)):
        means[t] = m = beta * m + (1 - beta) * g[t]
    return means


def _mistakes(place: tuple[int, ...], g: np.ndarray, beta: float) -> Iterator[tuple[str, np.ndarray]]:
    t, power = place[0], beta ** np.arange(len(g) + 1.0)
    uncorrected = _running(g, beta, 0.0)
    added_up = (
        f"the weights of g[0] … g[{t}] add up to {1 - power[t + 1]:.4g}: divide by that, so that they add up to 1"
    )
    yield added_up if t else _whose_weights(0), uncorrected
    yield f"m begins with g[0], which then weighs too much: {_whose_weights(t)}", _running(g, beta, g[0])
    yield (
        f"this is the plain mean, in which all numbers weigh the same: {_whose_weights(t)}",
        (np.cumsum(g) / np.arange(1, len(g) + 1)),
    )
    yield "every m is divided by 1 − β: divide each by what m would be there if all g were 1", uncorrected / (1 - beta)
    words = "the divisor is that of one step earlier: take that of the same step"
    yield words, uncorrected / (1 - power[:-1])
    words = "the divisor is that of one step later: take that of the same step"
    yield words, uncorrected / (1 - beta * power[1:])


corrected_mean = Operation(
    "corrected_mean",
    "m_t = β m_t−1 + (1 − β) g_t from m_0 = 0, divided by what it would be if all g were 1",
    contract="g (n,), beta () -> m (n,)",
    reference=_weighted_mean,
    flops=None,
    trial=Trial(
        error_scale=_rounded_powers,
        # 1 − β is small: in float32, 1 − 0.999 is off by 1.3e-5 of itself, but these numbers are exact.
        values={"beta": lambda rng, shape, sizes: 1 - (3 / 32, 2**-10, 1 / 2, 2**-7, 1, 2**-14)[sizes["turn"] % 6]},
        edge_cases=("zeros", "large"),
        advice=lambda place, g, beta: _whose_weights(place[0]),
        mistakes=_mistakes,
        sizes_to_check=({"n": 3}, {"n": 1}, {"n": 2}, {"n": 12}, {"n": 40}, {"n": 150}, {"n": 300}),
        draw_sizes=lambda rng: {"n": int(rng.integers(1, 40))},
    ),
)


@corrected_mean.kernel("loops", device="cpu")
def mean_so_far(g: np.ndarray, beta: float) -> np.ndarray:
    m, means = 0.0, np.empty_like(g)
    for t in range(len(g)):
        m = beta * m + (1 - beta) * g[t]
        means[t] = m / (1 - beta ** (t + 1))
    return means


def _up_and_down(epoch: np.ndarray, rate: float, warm: int, epochs: int) -> np.ndarray:
    down = np.cos(math.pi / 2 * (epoch - warm) / (epochs - warm + 1)) ** 2  # (1 + cos 2x) / 2 = cos² x
    return rate * np.where(epoch < warm, epoch / warm, down)


def _part_of_the_way(epoch: int, warm: int) -> str:
    return "on the way up" if epoch < warm else "the first with the full rate" if epoch == warm else "on the way down"


def _mistakes_of_warm_up(
    place: tuple[int, ...], epoch: np.ndarray, rate: float, warm: int, epochs: int
) -> Iterator[tuple[str, np.ndarray]]:
    right = _up_and_down(epoch, rate, warm, epochs)
    down = (1 + np.cos(math.pi * (epoch - warm) / max(epochs - warm, 1))) / 2
    words = (
        "the rate is 0 in the last epoch already: divide by epochs − warm + 1, so that it would be 0 in the next one"
    )
    yield words, np.where(epoch < warm, right, rate * down)
    words = "the rate is 0 in epoch 1: epochs count from 1, so the rise is epoch / warm"
    yield words, np.where(epoch < warm, rate * (epoch - 1) / warm, right)


def _of_a_run(n: int, warm: int, epochs: int) -> dict[str, int]:
    return {"n": n, "warm": warm, "epochs": epochs}


def _any_run(rng: np.random.Generator) -> dict[str, int]:
    epochs = int(10 ** rng.uniform(0, 3.3))
    return _of_a_run(int(rng.integers(1, 40)), int(rng.integers(1, epochs + 1)), epochs)


warm_up_cosine = Operation(
    "warm_up_cosine",
    "η rises in equal steps up to epoch `warm`, then falls as half a cosine wave",
    contract="epoch (n,) int, rate (), warm () int, epochs () int -> eta (n,)",
    reference=_up_and_down,
    flops=None,
    trial=Trial(
        error_scale=lambda epoch, rate, warm, epochs: np.full(epoch.shape, abs(rate)),
        values={
            "epoch": lambda rng, shape, sizes: rng.integers(1, sizes["epochs"] + 1, shape, dtype=np.int32),
            "rate": lambda rng, shape, sizes: float(10 ** rng.uniform(-3, 0)),
        },
        edge_cases=(),
        advice=lambda place, epoch, rate, warm, epochs: (
            f"that is epoch {epoch[place]}, {_part_of_the_way(epoch[place], warm)}"
        ),
        mistakes=_mistakes_of_warm_up,
        sizes_to_check=tuple(
            _of_a_run(*sizes)
            for sizes in (
                *(
                    (6, 3, 8),
                    (1, 1, 1),
                    (3, 1, 2),
                    (8, 1, 10),
                    (8, 5, 5),
                    (20, 4, 20),
                    (50, 10, 200),
                    (50, 1, 30),
                    (20, 30, 400),
                ),
                (60, 40, 44),  # a long warm-up, during which the formula of the cosine wave goes up and down
            )
        ),
        draw_sizes=_any_run,
    ),
)


@warm_up_cosine.kernel("numpy", device="cpu")
def up_and_down(epoch: np.ndarray, rate: float, warm: int, epochs: int) -> np.ndarray:
    up = epoch / warm
    down = (1 + np.cos(np.pi * (epoch - warm) / (epochs - warm + 1))) / 2
    return (rate * np.where(epoch < warm, up, down)).astype(np.float32)
