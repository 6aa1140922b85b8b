"""Time all contenders on all cases: each contender has its own process, and they take turns, round by round.

Used by benchmarks.cpu and benchmarks.gpu; not a command.
"""

import functools
import statistics
import time

from benchmarks import workers
from benchmarks.contenders import CASES, CONTENDERS, too_slow

# Time limits in seconds: PREPARING for all cases of a run together, MEASURING for each measurement.
PREPARING, MEASURING = {"cpu": 400.0, "gpu": 150.0, "base": 150.0, "digits": 130.0}, 60.0
# Options of nncourse.device.seconds for one measurement; short on a GPU, where machine time is limited.
SHORT = {"enough": 0.05, "repeats": 2}
PATIENCE = {"cpu": {"enough": 1.0}, "gpu": SHORT, "base": SHORT, "digits": SHORT}


def compare(group: str, rounds: int, quick: bool = False, cases=None, names=None) -> dict:
    """Time the contenders of a group. All prepare at the same time, then they are timed one after the other.

    `cases` and `names` select some of them. Returns "seconds": case -> contender -> one number per round; "left_out":
    what was left out, and why; "versions": of the imported libraries; "facts": case -> contender -> what it says.
    Raises WrongResultError if a contender computes a wrong result.
    """
    begin = time.perf_counter()
    cases, names = cases or CASES[group], names or CONTENDERS[group]
    seconds: dict[str, dict[str, list[float]]] = {case: {} for case in cases}
    facts: dict[str, dict[str, dict]] = {case: {} for case in cases}
    left_out: dict[str, str] = {}
    versions: dict[str, str] = {}
    pairs = [(case, name) for case in cases for name in names if not too_slow(case, name)]
    running = {name: workers.start(measure, group, quick, name) for name in names}
    try:
        for case, name in pairs:
            workers.send(running[name], ("prepare", case))
        for case, name in pairs:
            key, left = f"{case} / {name}", max(1.0, begin + PREPARING[group] - time.perf_counter())
            _ask(running[name], None, key, left, left_out)
            print(f"{workers.since(begin)}  {left_out.get(key, 'ready')}: {key}", flush=True)
        print(f"{workers.since(begin)}  prepared", flush=True)
        for number in range(rounds):
            for case, name in pairs:
                key = f"{case} / {name}"
                if key not in left_out and (one := _ask(running[name], ("time", case), key, MEASURING, left_out)):
                    seconds[case].setdefault(name, []).append(one["seconds"])
                    versions |= one["versions"]
                    facts[case][name] = one["facts"]
            print(f"{workers.since(begin)}  round {number + 1} of {rounds}", flush=True)
    finally:
        for worker in running.values():
            workers.end(worker)
    for key in left_out:  # a contender that failed in a later round has nothing to compare
        case, name = key.split(" / ")
        seconds[case].pop(name, None)
    return {"versions": versions, "seconds": seconds, "left_out": left_out, "facts": facts}


def _ask(worker: workers.Worker, request, key: str, limit: float, left_out: dict[str, str]):
    """The worker's answer, or None after noting the reason in `left_out`. request=None fetches a pending answer."""
    try:
        return workers.ask(worker, request, limit) if request else workers.receive(worker, limit)
    except workers.FailedError as error:
        left_out[key] = str(error)


def measure(group: str, quick: bool, name: str, request: tuple[str, str]) -> dict | None:
    """In a contender's process: prepare a case, or return the seconds of a call, the libraries' versions, and facts."""
    from nncourse import device as devices

    what, case = request
    work, times, *facts = prepared(group, quick, name, case)
    if what == "prepare":
        return None
    # "cpu": the host's clock, because work() of a GPU contender returns only when the GPU has finished.
    return {
        "seconds": devices.seconds(work, "cpu", **(SHORT if quick else PATIENCE[group])) / times,
        "versions": versions(),
        "facts": facts[0] | {"steps": times} if facts else {"steps": times},
    }


@functools.cache
def prepared(group: str, quick: bool, name: str, case: str) -> tuple:
    """A contender's work on a case, prepared once; the steps of one call; perhaps a dictionary of facts."""
    return CONTENDERS[group][name](CASES[group][case].smaller() if quick else CASES[group][case])


def versions() -> dict[str, str]:
    """nncourse.device.versions() and, if it is imported, the version of JAX."""
    import sys

    from nncourse import device as devices

    found = devices.versions()
    return found | ({"jax": sys.modules["jax"].__version__} if "jax" in sys.modules else {})


def show(result: dict) -> None:
    """Print the medians and what was left out."""
    for case, times in result["seconds"].items():
        print(case)
        for contender, values in times.items():
            print(f"  {contender:28}{statistics.median(values) * 1e6:12.1f} µs")
    for key, reason in result["left_out"].items():
        print(f"left out: {key}: {reason}")
