"""Operations of the exercises of notebook 13: results computed from measured times and powers.

speedup_and_efficiency   from repeated runs on 1 and more devices
amdahl_fit               the share of the work that is done in parallel, from speedups
scaling_laws             what Amdahl and Gustafson say about more devices
rows_for_exchange        how many rows a device needs for the exchange to be a given share of the step
cpu_share                how much of a batch a CPU should get beside K GPUs
energy_and_edp           from readings of the power of several devices
"""

from collections.abc import Callable, Iterator

import numpy as np

from nncourse.kernels.contract import Sizes
from nncourse.kernels.operation import Operation
from nncourse.kernels.trial import Mistakes, Trial


def _device_counts(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """1, then others in rising order: 2, 4, 8, … or any. They follow from the case, so that the times can suit them."""
    n = shape[0]
    if sizes["turn"] % 2:
        return (2.0 ** np.arange(n)).astype(np.float32)
    steps = np.random.default_rng(sizes["turn"]).integers(1, 5, n - 1)
    return np.concatenate([[1], 1 + np.cumsum(steps)]).astype(np.float32)


def _positive(low: float, high: float) -> Callable[..., np.ndarray]:
    """Float32 numbers from `low` to `high`, as many below the geometric mean as above."""
    return lambda rng, shape, sizes: np.exp(rng.uniform(np.log(low), np.log(high), shape)).astype(np.float32)


def _run_times(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Seconds as they are measured: K devices are faster, runs differ, and some are disturbed.

    In every third case K devices are more than K times as fast, as they may be if their parts fit into caches.
    """
    K = _device_counts(rng, shape[:1], sizes)
    power = 1.1 if sizes["turn"] % 3 == 2 else rng.uniform(0.5, 0.95)
    runs = rng.uniform(1.0, 1.1, shape) * np.where(rng.random(shape) < 0.1, rng.uniform(1.5, 4, shape), 1)
    return (rng.uniform(2, 200) / K[:, None] ** power * runs).astype(np.float32)


def _some_devices(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    return rng.choice([1, 2, 3, 4, 8, 64, 1024, 9999], shape).astype(np.float32)


def _any_number(rng: np.random.Generator) -> dict[str, int]:
    return {"n": int(rng.integers(1, 100))}


def _some(numbers: np.ndarray) -> str:
    """Some of these numbers, rounded, for a verdict."""
    return ", ".join(f"{number:.4g}" for number in numbers[:5]) + ("" if len(numbers) <= 5 else " …")


# ---- speedup and efficiency


def _by_sorting(times: np.ndarray, devices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    runs = np.sort(times, axis=1)
    last = runs.shape[1] - 1
    middle = (runs[:, last // 2] + runs[:, (last + 1) // 2]) / 2
    speedup = np.exp(np.log(middle[0]) - np.log(middle))
    return speedup, speedup / devices


def _mistakes_of_speedup(
    place: tuple[int, ...], times: np.ndarray, devices: np.ndarray
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    S, E = _by_sorting(times, devices)
    yield "this is T_K / T_1, which falls when K devices are faster: S_K is T_1 / T_K", (1 / S, E)
    other = (
        ("the means of the runs are taken, which one slow run can distort: take the medians", times.mean(axis=1)),
        ("the shortest run of each row is taken: take the medians", times.min(axis=1)),
        ("the first run of each row is taken: take the medians", times[:, 0]),
    )
    for words, T in other:
        yield words, (T[0] / T, T[0] / T / devices)
    yield "S is multiplied by K: the efficiency is S_K / K", (S, S * devices)
    words = "S is divided by the number of the row: divide it by K, which is in `devices`"
    yield words, (S, S / np.arange(1, len(S) + 1))
    yield "this is S: the efficiency is S_K / K", (S, S)


speedup_and_efficiency = Operation(
    "speedup_and_efficiency",
    "S_K = T_1 / T_K, E_K = S_K / K; T is the median of a row's runs; the first row is one device",
    contract="times (n, runs), devices (n,) -> S (n,), E (n,)",
    reference=_by_sorting,
    flops=None,
    trial=Trial(
        values={"devices": _device_counts, "times": _run_times},
        edge_cases=(),
        mistakes=_mistakes_of_speedup,
        advice=lambda place, times, devices: (
            f"K is {devices[place[0]]:g} there; its runs took {_some(times[place[0]])} s, those of one device "
            f"{_some(times[0])} s"
        ),
        sizes_to_check=tuple(
            {"n": n, "runs": runs}
            for n, runs in ((2, 1), (1, 1), (3, 3), (2, 4), (4, 5), (1, 3), (6, 2), (5, 10), (12, 7))
        ),
        draw_sizes=lambda rng: {"n": int(rng.integers(1, 16)), "runs": int(rng.integers(1, 20))},
    ),
)


@speedup_and_efficiency.kernel("numpy", device="cpu")
def median_over_runs(times: np.ndarray, devices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    T = np.median(times, axis=1)
    S = T[0] / T
    return S, S / devices


# ---- Amdahl's law, fitted


def _least_squares(devices: np.ndarray, S: np.ndarray) -> float:
    x, y = 1 - 1 / devices, 1 - 1 / S
    slope = np.linalg.lstsq(x[:, None], y, rcond=None)[0][0]
    return min(max(slope, 0.0), 1.0)


def _terms(devices: np.ndarray, S: np.ndarray) -> float:
    x = 1 - 1 / devices
    return (x * (1 + 1 / S)).sum() / (x * x).sum()


def _several_devices(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """At least one number above 1, in any order; sometimes also 1, or repeated numbers."""
    K = rng.choice([1, 2, 2, 3, 4, 8, 16, 64], shape).astype(np.float32)
    K[rng.integers(len(K))] = rng.choice([2, 4, 8])
    return K


def _speedups(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Random speedups; some above the number of devices or below 1, for which p is clipped."""
    low, high = ((1.0, 8.0), (1.2, 3.0), (60.0, 300.0), (0.2, 0.9), (0.9, 2.0))[sizes["turn"] % 5]
    return rng.uniform(low, high, shape).astype(np.float32)


def _mistakes_of_fit(place: tuple[int, ...], devices: np.ndarray, S: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    if (devices > 1).all():
        own = ((1 - 1 / S) / (1 - 1 / devices)).mean()
        words = "this is the mean of y / x over all points: the p with the smallest sum of squares is different"
        if 0 < own < 1:  # other mistakes come to 0 or 1 as well
            yield words, np.asarray(own)
    x, y = 1 - 1 / devices, 1 - 1 / S
    slope = (x * y).sum() / (x * x).sum()
    if 0 < slope < 1:
        yield "this is 1 − p, the part that is not divided: return p", np.asarray(1 - slope)
        exchanged = (x * y).sum() / (y * y).sum()
        if 0 < exchanged < 1:
            yield "this is Σ x y / Σ y²: check for which p the derivative is 0", np.asarray(exchanged)
    else:
        yield "p is below 0 or above 1: return 0 or 1 then", np.asarray(slope)


amdahl_fit = Operation(
    "amdahl_fit",
    "the p from 0 to 1 for which Σ (1/S_K − ((1 − p) + p/K))² is smallest",
    contract="devices (n,), S (n,) -> p ()",
    reference=_least_squares,
    flops=None,
    trial=Trial(
        error_scale=_terms,
        values={"devices": _several_devices, "S": _speedups},
        edge_cases=(),
        advice=lambda place, devices, S: (
            f"there the speedups S are {_some(S)}, with {_some(devices)} devices"
            if len(S) > 1
            else f"there the speedup S is {_some(S)} with {_some(devices)} devices"
        ),
        mistakes=_mistakes_of_fit,
        sizes_to_check=tuple({"n": n} for n in (2, 1, 3, 3, 5, 1, 2, 4, 4, 6, 1, 7, 9, 10, 12, 25, 40, 50, 60, 100)),
        draw_sizes=_any_number,
    ),
)


@amdahl_fit.kernel("numpy", device="cpu")
def least_squares_through_one(devices: np.ndarray, S: np.ndarray) -> float:
    x, y = 1 - 1 / devices, 1 - 1 / S
    return float(np.clip((x * y).sum() / (x * x).sum(), 0, 1))


# ---- both laws


def _by_work(p: float, devices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From the work in units of one device's time, and the time that K devices need for it."""
    times = np.stack([np.full(len(devices), 1 - p), np.divide(p, devices)]).sum(axis=0)
    done = np.stack([np.full(len(devices), 1 - p), np.multiply(p, devices)]).sum(axis=0)
    return times**-1.0, done


def _mistakes_of_laws(
    place: tuple[int, ...], p: float, devices: np.ndarray
) -> Iterator[tuple[str, tuple[np.ndarray, np.ndarray]]]:
    strong, weak = _by_work(p, devices)
    yield "p and 1 − p are swapped: p is the part that is divided among the devices", _by_work(1 - p, devices)
    yield "this is the time of K devices: the speedup is 1 divided by it", (1 / strong, weak)
    yield "`strong` and `weak` are swapped: return Amdahl's law first, then Gustafson's", (weak, strong)
    yield "the part that is not divided is left out: add 1 − p", (devices / p if p else strong, p * devices)


scaling_laws = Operation(
    "scaling_laws",
    "Amdahl, the same work on K devices: S = 1 / ((1 − p) + p/K); Gustafson, K times the work: S = (1 − p) + p K",
    contract="p (), devices (n,) -> strong (n,), weak (n,)",
    reference=_by_work,
    flops=None,
    trial=Trial(
        # For p near 1 the quotient amplifies the rounding of 1 − p. K − (1 − p)(K − 1) is right too.
        error_scale=lambda p, devices: ((1 + p + p / devices) / (1 - p + p / devices) ** 2, 1 + p + devices),
        values={
            "p": lambda rng, shape, sizes: (0.9, 0.5, 1.0, 0.0, 0.99, float(rng.uniform()))[sizes["turn"] % 6],
            "devices": _some_devices,
        },
        edge_cases=(),
        advice=lambda place, p, devices: f"p is {p:.4g} and K {devices[place]:g} there",
        mistakes=_mistakes_of_laws,
        sizes_to_check=tuple({"n": n} for n in (3, 1, 2, 4, 7, 12, 5, 20, 50, 9, 33, 64)),
        draw_sizes=_any_number,
    ),
)


@scaling_laws.kernel("numpy", device="cpu")
def amdahl_and_gustafson(p: float, devices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    strong = 1 / ((1 - p) + p / devices)
    weak = (1 - p) + p * devices
    return strong, weak


# ---- the rows that an exchange is worth


def _by_step(
    share: float, a: float, r: float, alpha: float, beta: float, size: float, devices: np.ndarray
) -> np.ndarray:
    """From the whole step, of which the exchange is the share, and what it has left for rows."""
    exchange = 2 * alpha * (devices - 1) + 2 * (size - size / devices) / beta
    step = exchange / share
    return np.maximum((step - exchange - a) * r, 0)


def _terms_of_rows(
    share: float, a: float, r: float, alpha: float, beta: float, size: float, devices: np.ndarray
) -> np.ndarray:
    return (2 * (alpha * devices + size / beta) / abs(share) + a) * r


def _mistakes_of_rows(
    place: tuple[int, ...], share: float, a: float, r: float, alpha: float, beta: float, size: float,
    devices: np.ndarray,
) -> Mistakes:  # fmt: skip
    rounds = 2 * (devices - 1)
    exchange, others = rounds * (alpha + size / devices / beta), 1 / share - 1
    seconds = exchange * others - a
    yield "this is below 0 where the fixed part alone is long enough: return 0 there", seconds * r
    texts = (
        (
            "the exchange is that share of the computing here: the step is both, computing and exchange",
            exchange / share,
        ),
        ("the fixed part a is computing too, and needs no rows: subtract it", exchange * others + a),
        ("this has K − 1 messages: in a ring each device sends 2 (K − 1)", exchange / 2 * others),
        ("the whole gradient is in each message here: in a ring it is a K-th", rounds * (alpha + size / beta) * others),
    )
    for words, computing in texts:
        yield words, np.maximum((computing - a) * r, 0)
    yield "these are the rows of all devices together: return those of one", np.maximum(seconds * r, 0) * devices
    yield "r is rows per second: multiply seconds by it", np.maximum(seconds / r, 0)


def _from(*values: float) -> Callable[..., float]:
    """Near one of these numbers, another one for each case; whole where they are large."""

    def make(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> float:
        value = float(values[sizes["turn"] % len(values)] * rng.uniform(0.7, 1.3))
        return float(round(value)) if value > 1 else value

    return make


rows_for_exchange = Operation(
    "rows_for_exchange",
    "exchange = 2 (K − 1) (α + size/(K β)); the rows for which it is that share of a + rows/r + exchange, and 0 if a "
    "alone is long enough",
    contract="share (), a (), r (), alpha (), beta (), size (), devices (n,) -> rows (n,)",
    reference=_by_step,
    flops=None,
    trial=Trial(
        error_scale=_terms_of_rows,
        values={
            "share": _from(0.1, 0.25, 0.05, 0.5),
            "a": _from(3e-4, 1e-5, 2e-3, 1e-5, 5e-2),
            "r": _from(2e5, 1e7, 2400.0),
            "alpha": _from(2e-6, 1e-5, 5e-5, 1e-6),
            "beta": _from(1e10, 1.25e9, 2.7e11),
            "size": _from(610_600.0, 106_376.0, 85_132_068.0, 4000.0, 0.0),
            "devices": _some_devices,
        },
        edge_cases=(),
        advice=lambda place, share, a, r, alpha, beta, size, devices: (
            f"the exchange among {devices[place]:g} takes "
            f"{2 * (devices[place] - 1) * (alpha + size / devices[place] / beta):.4g} s there; a is {a:g} s, "
            f"r {r:g} rows/s, the share {share:g}"
        ),
        mistakes=_mistakes_of_rows,
        sizes_to_check=tuple({"n": n} for n in (2, 1, 3, 4, 7, 12, 5, 20, 9, 33, 64, 6)),
        draw_sizes=_any_number,
    ),
)


@rows_for_exchange.kernel("numpy", device="cpu")
def rows_by_a_ring(
    share: float, a: float, r: float, alpha: float, beta: float, size: float, devices: np.ndarray
) -> np.ndarray:
    exchange = 2 * (devices - 1) * (alpha + size / (devices * beta))
    return np.maximum(r * (exchange * (1 - share) / share - a), 0)


# ---- the CPU beside the GPUs


def _ending_together(f: np.ndarray, gpus: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From two equations: the shares add up to 1, and the CPU, f times as slow, ends when the GPUs do."""
    shares = np.array([np.linalg.solve([[1, gpus], [each, -1]], [1, 0]) for each in f]).reshape(-1, 2)
    return shares[:, 0], shares[:, 1], gpus * shares[:, 1]


cpu_share = Operation(
    "cpu_share",
    "all end together if the CPU, f times as slow as a GPU, gets 1 / (K f + 1) of the batch and each of K GPUs f times "
    "as much; the time is that of the K GPUs alone, times K f / (K f + 1)",
    contract="f (n,), gpus () int -> cpu (n,), gpu (n,), time (n,)",
    reference=_ending_together,
    flops=None,
    trial=Trial(
        values={"f": _positive(0.2, 300)},
        edge_cases=(),
        advice=lambda place, f, gpus: f"f is {f[place]:.4g} there, and K is {gpus}",
        sizes_to_check=tuple(
            {"n": n, "gpus": gpus}
            for n, gpus in ((2, 3), (1, 2), (2, 1), (1, 1), (3, 4), (5, 3), (8, 2), (13, 8), (40, 1), (4, 6))
        ),
        draw_sizes=lambda rng: _any_number(rng) | {"gpus": int(rng.integers(1, 40))},
    ),
)


@cpu_share.kernel("numpy", device="cpu")
def shares_by_speed(f: np.ndarray, gpus: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    cpu = 1 / (gpus * f + 1)
    gpu = f * cpu
    return cpu, gpu, gpus * gpu


# ---- energy


def _weighted_readings(t: np.ndarray, P: np.ndarray, idle: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Each reading counts for half the interval before it and half the interval after it."""
    around = np.concatenate([t[:1], t, t[-1:]])
    E = P @ ((around[2:] - around[:-2]) / 2)
    T = np.diff(t).sum()
    return E, E - idle * T, E.sum() * T


def _joules_in_all(t: np.ndarray, P: np.ndarray, idle: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    E = (np.abs(P[:, 1:]) + np.abs(P[:, :-1])) @ (t[1:] + t[:-1]) / 2
    return E, E + idle * t[-1], E.sum() * t[-1]


def _idle(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Usual watts; in every third case more than the readings, so that the energy above idle is negative."""
    return _positive(*((10, 90), (10, 90), (300, 900))[sizes["turn"] % 3])(rng, shape, sizes)


def _reading_times(rng: np.random.Generator, shape: tuple[int, ...], sizes: Sizes) -> np.ndarray:
    """Readings at unequal distances, on a clock that does not begin at 0."""
    return (rng.uniform(0, 5) + np.cumsum(rng.uniform(0.1, 0.9, shape))).astype(np.float32)


energy_and_edp = Operation(
    "energy_and_edp",
    "E_d = Σ (P_i + P_i+1)/2 (t_i+1 − t_i); above idle, E_d less the idle power times T; EDP = T Σ E_d, with "
    "T = t_last − t_first",
    contract="t (readings,), P (devices, readings), idle (devices,) -> E (devices,), above (devices,), edp ()",
    reference=_weighted_readings,
    flops=None,
    trial=Trial(
        error_scale=_joules_in_all,
        values={"t": _reading_times, "P": _positive(40, 700), "idle": _idle},
        edge_cases=(),
        advice=lambda place, t, P, idle: (
            (
                "2 readings have one interval between them"
                if len(t) == 2
                else f"{len(t)} readings have {len(t) - 1} intervals between them"
            )
            + f", T = {t[-1] - t[0]:.4g} s in all"
            + (
                f"; idle, this device takes {idle[place]:.4g} W, so {idle[place] * (t[-1] - t[0]):.4g} J"
                if place
                else ""
            )
        ),
        sizes_to_check=tuple(
            {"readings": readings, "devices": devices}
            for readings, devices in ((3, 1), (2, 1), (2, 2), (4, 3), (6, 1), (9, 2), (30, 4), (200, 2))
        ),
        draw_sizes=lambda rng: {"readings": int(rng.integers(2, 60)), "devices": int(rng.integers(1, 12))},
    ),
)


@energy_and_edp.kernel("numpy", device="cpu")
def trapezia(t: np.ndarray, P: np.ndarray, idle: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    E = ((P[:, 1:] + P[:, :-1]) / 2 * np.diff(t)).sum(axis=1)
    T = t[-1] - t[0]
    return E, E - idle * T, E.sum() * T
