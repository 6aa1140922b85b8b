"""Time training steps of many networks with nncourse, PyTorch and JAX: python -m benchmarks.networks.

    python -m benchmarks.networks                                        # every row of networks.txt
    python -m benchmarks.networks --rows 1-9,12 --rounds 3 --limit 500   # stops in time, and prints how to continue
    python -m benchmarks.networks --only images --threads default        # on a CPU: each library's default of threads
    python -m benchmarks.networks --random 20 --seed 7                   # networks drawn at random

On a GPU all contenders of a row share one process. On a CPU each has its own, with one thread unless --threads says
otherwise. First the first steps of each contender are compared with a float64 reference; then all take turns, round by
round. Rows are saved one by one in results/networks-MACHINE.json, with those that are there already. If train() chooses
a different plan from the recorded one, the row is not saved and the exit status is 1: delete the record to accept it.
"""

import argparse
import datetime
import gc
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import machines, merging, saved, workers
from nnclassroom.timing import network_records
from nncourse.threads import begin_with_one, granted
from nnexperiment.trainers import networks
from nnexperiment.trainers.training import CHECKED

LIST = Path(__file__).with_suffix(".txt")
FIELDS = ("layers", "batch", "optimizer", "activation", "cost")
PREPARING, MEASURING = 150.0, 60.0  # seconds for an answer
LONG = 30.0  # seconds that a row may take, until one has shown more
MOST_COMPILED = 6
ONE_THREAD = workers.ONE_THREAD | {"NPROC": "1"}  # JAX's number of threads
NAIVE = "naive"
ENDING = 5.0  # seconds to end a process that hangs


class OutOfTimeError(Exception):
    """The time that --limit gives is over."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rows", type=numbers, default=[], metavar="1-9,12", help="rows of networks.txt to time (default: all)")
    add("--only", choices=("dense", "images"), help="kind of the networks to time (default: both)")
    add("--random", type=int, default=0, metavar="N", help="time N networks drawn at random instead")
    add("--seed", type=int, help="seed of --random (default: any)")
    add("--device", choices=("cpu", "gpu"), help="device (default: the GPU if there is one)")
    add("--backend", default="", metavar="A,B", help="the course's backends (default: cuda, or numpy,numba)")
    add("--naive", action="store_true", help="on a GPU, also time the naive kernel of each operation")
    add("--compile", type=numbers, default=[], metavar="1-9,12", help="at most six rows for torch.compile, on a GPU")
    add("--threads", choices=("one", "default"), default="one", help="threads of each contender on a CPU")
    add("--apart", action="store_true", help="on a GPU, give each contender a process of its own")
    add("--rounds", type=int, default=5)
    add("--limit", type=float, default=float("inf"), metavar="SECONDS", help="stop before SECONDS are over")
    add("--out", type=Path, default=saved.RESULTS, metavar="FOLDER", help="folder for the results (default: results/)")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"expected --rounds of at least 1, got {options.rounds}")
    if len(options.compile) > MOST_COMPILED:
        parser.error(f"expected at most {MOST_COMPILED} rows to compile, got {len(options.compile)}")
    from nncourse import device as devices
    from nncourse.backend import DEVICES

    device = options.device or ("gpu" if devices.gpu_available() else "cpu")
    if device == "gpu" and not devices.gpu_available():
        parser.error(devices.why_no_gpu())
    saved.refuse_out(parser, options.out / "networks.json")
    rows = chosen(options)
    if not rows:
        parser.error(f"expected rows of {LIST.name}, 1 to {len(listed())}; got none that --rows and --only name")
    backends = options.backend.split(",") if options.backend else ["cuda"] if device == "gpu" else ["numpy", "numba"]
    if device == "gpu" and options.naive:
        backends.append(NAIVE)
    for name in backends:
        if name != NAIVE and (DEVICES.get(name) != device or name == "loops"):
            there = ", ".join(each for each, place in DEVICES.items() if place == device and each != "loops")
            parser.error(f"expected --backend for the {device.upper()}, some of {there}; got {name}")
    try:
        return run(rows, device, backends, options)
    except workers.FailedError as error:
        print(f"benchmarks.networks: {error}", file=sys.stderr)
        return 1


def run(rows: list[dict], device: str, backends: list[str], options) -> int:
    """Time the rows, print a line for each and save it. Returns the exit status."""
    begin = time.perf_counter()
    deadline = begin + options.limit - ENDING
    threads = 0 if device == "gpu" else 1 if options.threads == "one" else granted()
    begin_with_one()  # as `nncourse` does; the processes of the contenders inherit it
    result, path = begun(device, options.out)
    names = list(networks.contenders(device, dict.fromkeys(backends, "")))
    missing = networks.not_installed(names)
    names = [name for name in names if name not in missing and (options.compile or name != network_records.COMPILED)]
    over = next((name for name in network_records.REFERENCES[device] if name in names), "")
    cores = f", up to {threads} threads" if threads > 1 else ", one thread" if threads else ""
    print(f"{result['machine']}{cores}\n{', '.join(f'{name} {v}' for name, v in result['versions'].items())}")
    for name, why in missing.items():
        print(f"left out: {name}: {why}")
    print(network_records.head(names, over), flush=True)
    team = Team(device, backends, ONE_THREAD if threads == 1 else {}, device == "cpu" or options.apart)
    done, longest, changed = [], LONG, []
    try:
        for row in rows:
            started = time.perf_counter()
            if started + longest > deadline:
                raise OutOfTimeError
            asked = [name for name in names if name != network_records.COMPILED or row["row"] in options.compile]
            found = contest(row, team, asked, options.rounds, deadline)
            done.append(row | ({"threads": threads} if threads else {}) | {"date": today()} | found)
            print(network_records.line(done[-1], names, over), flush=True)
            for name, why in found["left_out"].items():
                print(f"   left out: {name}: {why}"[:80], flush=True)
            done[-1]["left_out"] |= missing
            if unlike := list(other_plans(result["rows"], done[-1])):
                changed += unlike
                continue
            result["rows"] = merged(result["rows"], done[-1])
            saved.save(result, path, said=False)
            longest = max(longest, 1.2 * (time.perf_counter() - started))
    except OutOfTimeError:
        left = [str(row["row"]) for row in rows[len(done) :]]
        again = f"--random {options.random} --seed {rows[0]['seed']} " if options.random else ""
        print(f"the time is over; not measured: {again}--rows {','.join(left)}")
    finally:
        team.end()
    print("\n".join(network_records.summary(done, names)))
    if done:
        print(f"{workers.since(begin).strip()}; the best of {options.rounds} rounds; written: {path}")
    print(*changed, sep="\n", end="\n" if changed else "")
    return 1 if changed else 0


def begun(device: str, folder: Path) -> tuple[dict, Path]:
    """The results so far of this machine and these versions, and the file to write them to."""
    about = workers.asked_once(machines.about, device, PREPARING)
    path = folder / f"networks-{machines.slug(about['machine'])}.json"
    before = read(path) or read(saved.RESULTS / path.name)
    if before and (unlike := merging.differences(before, about)):
        print(f"a new file is begun, because these are not those of {path.name}: {unlike}")
        before = {}
    about["versions"] = before.get("versions", {}) | about["versions"]
    return {"device": device} | about | {"rows": before.get("rows", [])}, path


# ---- rows


def listed(path: Path = LIST) -> list[dict]:
    """The rows of networks.txt: its fields and `row`, its number, from 1 on."""
    lines = [line.split() for line in path.read_text("utf-8").splitlines() if line.strip() and line[0] != "#"]
    rows = [dict(zip(FIELDS, words, strict=True)) | {"row": number} for number, words in enumerate(lines, 1)]
    return [row | {"batch": int(row["batch"])} for row in rows]


def chosen(options) -> list[dict]:
    """The rows that --rows, --only and --random name. The seed of --random is printed."""
    if options.random:
        seed = options.seed if options.seed is not None else int(np.random.SeedSequence().entropy % 10**6)
        print(f"{options.random} networks drawn at random, seed {seed}")
        rows = drawn(options.random, seed)
    else:
        rows = listed()
    return [
        row
        for row in rows
        if (not options.rows or row["row"] in options.rows)
        and (not options.only or row["layers"].startswith("image") == (options.only == "images"))
    ]


def numbers(text: str) -> list[int]:
    """The numbers of "3-5,9": 3, 4, 5, 9."""
    found = []
    for part in text.split(","):
        if not (ends := re.fullmatch(r"(\d+)(?:-(\d+))?", part)):
            raise argparse.ArgumentTypeError(f"expected numbers such as 3-5,9; got {text}")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return found


def drawn(count: int, seed: int) -> list[dict]:
    """Networks drawn at random: 1 to 4 dense layers of 8 to 1,024 neurons, the last of 10; 0 to 3 convolutions of 4 to
    32 filters of 3 x 3 or 5 x 5 on 1 x 28 x 28 or 3 x 32 x 32, each with a pool behind it or not; SGD, momentum or
    Adam; batches of 1 to 512. Sizes are spread evenly by their logarithm.
    """
    rng = np.random.default_rng(seed)

    def between(low: int, high: int) -> int:
        return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))

    rows = []
    for number in range(1, count + 1):
        words, convolutions = ["784"], int(rng.integers(0, 4))
        if convolutions:
            words = [str(rng.choice(["image1x28x28", "image3x32x32"]))]
        for _ in range(convolutions):
            words.append(f"conv{between(4, 32)}x{rng.choice([3, 5])}{rng.choice(['', 'same'])}")
            words += ["pool2"] * int(rng.integers(0, 2))
        words += [str(between(8, 1024)) for _ in range(int(rng.integers(0, 4)))]
        row = {"layers": ",".join([*words, "10"]), "batch": between(1, 512)}
        row["optimizer"] = str(rng.choice(["sgd", "sgd,momentum=0.9", "adam"]))
        more = {"activation": "relu", "cost": "categorical_cross_entropy", "row": number, "seed": seed}
        rows.append(row | more)
    return rows


def problem_of(row: dict, device: str):
    """The row's network, optimizer and samples."""
    from nncourse.model.network import make_network
    from nncourse.model.optimizers import make_optimizer

    network = make_network(row["layers"], row["activation"], row["cost"], seed=1)
    kind, *pairs = row["optimizer"].split(",")
    optimizer = make_optimizer(kind, **{name: float(value) for name, value in (pair.split("=") for pair in pairs)})
    return networks.problem_of(network, row["batch"], optimizer, device, least=CHECKED)


# ---- measuring


class Team:
    """The processes of the contenders, one for all, or one for each if `apart`. They start when they are asked."""

    def __init__(self, device: str, backends: list[str], environment: dict[str, str], apart: bool):
        self.device, self.backends, self.environment, self.apart = device, backends, environment, apart
        self.running: dict[str, workers.Worker] = {}

    def ask(self, name: str, what: str, row: dict, limit: float):
        """The answer of the contender's process."""
        place = name if self.apart else ""
        if place not in self.running:
            arguments = self.device, self.backends
            self.running[place] = workers.start(measure, *arguments, environment=self.environment)
        return workers.ask(self.running[place], (what, name, row), limit)

    def end(self) -> None:
        """End all processes."""
        for worker in self.running.values():
            workers.end(worker)
        self.running.clear()


def contest(row: dict, team: Team, names: list[str], rounds: int, deadline: float) -> dict:
    """The record of a row. A contender that fails is left out; then the processes start anew, without it.

    Raises OutOfTimeError when the deadline is over.
    """
    names, left_out = list(names), {}
    while True:
        facts: dict[str, dict] = {}
        times: dict[str, list[float]] = {name: [] for name in names}
        steps = [("prepare", name) for name in names] + [("time", name) for _ in range(rounds) for name in names]
        for what, name in [*steps, *(("forget", name) for name in names)]:
            left = deadline - time.perf_counter()
            try:
                answer = team.ask(name, what, row, max(0.1, min(left, PREPARING if what == "prepare" else MEASURING)))
            except workers.FailedError as error:
                team.end()
                if time.perf_counter() > deadline:
                    raise OutOfTimeError from None
                left_out[name] = str(error)
                names.remove(name)
                break
            if what == "time":
                times[name].append(answer["seconds"])
                facts[name] = answer["facts"]
        else:
            return networks.record(times, facts, left_out)


PREPARED: dict[str, tuple] = {}  # in a contender's process: contenders that are ready
PROBLEM: list = []  # there: the row, and its problem


def measure(device: str, backends: list[str], request: tuple[str, str, dict]) -> dict | None:
    """In a contender's process: prepare a row, return the seconds of a step, or forget the row."""
    what, name, row = request
    if what == "forget":
        forget(device)
        return None
    if what == "time":
        trainer, steps = PREPARED[name]
        return {"seconds": networks.seconds_a_step(trainer, steps), "facts": {"steps": steps} | trainer.facts}
    if PROBLEM[:1] != [row]:
        PROBLEM[:] = row, problem_of(row, device)
    make = networks.contenders(device, {each: backend(each) for each in backends})[name]
    PREPARED[name] = networks.prepared(name, make, PROBLEM[1], device, check=True)
    return None


def backend(name: str):
    """The backend of this name; for "naive" the naive kernel of each operation of cuda that has one."""
    from nncourse.backend import choose
    from nncourse.catalogue import operations

    if name != NAIVE:
        return choose(name)
    return choose("cuda", **{each.name: NAIVE for each in operations().values() if NAIVE in each.kernels})


def forget(device: str) -> None:
    """Free the memory of a row."""
    PREPARED.clear()
    PROBLEM.clear()
    gc.collect()
    if device == "gpu":
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()


# ---- results


def read(path: Path) -> dict:
    """A results file; {} if there is none."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def other_plans(rows: list[dict], new: dict) -> Iterator[str]:
    """A line for each contender whose plan is not the one recorded for the same network."""
    for row in (row for row in rows if identity(row) == identity(new)):
        for name, found in new["contenders"].items():
            if (expected := row["contenders"].get(name, {}).get("kernel")) not in (None, found.get("kernel")):
                why = f" ({found['note']})" if found["note"] else ""
                yield f"row {new['row']} is not saved: {name}: expected the plan {expected}, got {found['kernel']}{why}"


def merged(rows: list[dict], new: dict) -> list[dict]:
    """The rows with a new one in the place of the same network's: those drawn at random last."""
    kept = [row for row in rows if identity(row) != identity(new)]
    return sorted([*kept, new], key=lambda row: (row.get("seed", -1), row.get("threads", 0), row["row"]))


def identity(row: dict) -> tuple:
    return (*(row[field] for field in FIELDS), row.get("threads"), row.get("seed"))


def today() -> str:
    return datetime.date.today().isoformat()


if __name__ == "__main__":
    sys.exit(main())
