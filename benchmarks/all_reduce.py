"""Time sums over GPUs, by peer memory and by NCCL: python -m benchmarks.all_reduce [--devices 2,4] [--quick].

Prints tables and, without --quick, writes results/all_reduce.json, or --out FILE. One process drives all GPUs of the
host. NVLink multicast stays off. If a contender adds wrongly, or its sums are not equal bit for bit on all GPUs, the
run ends with status 1.
"""

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.several_gpus import command
from benchmarks.workers import WrongResultError
from fused_epochs.all_reduce import GPUs, after_rounds, way_for
from nncourse import device as devices
from nncourse.errors import CourseError

os.environ["NCCL_NVLS_ENABLE"] = "0"

RESNET = 21_283_017  # parameters of ResNet-34 with 9 classes and one channel
SIZES = (2_500, 26_594, 141_000, 1_048_576, RESNET)
MOST = 1 << 20  # numbers for which there are buffers
CALLS = 20  # in one graph, and timed together
SAMPLES = 5


class WrongSumError(WrongResultError):
    """A contender has added wrongly."""


def main(arguments: list[str] | None = None) -> int:
    about, quick = __doc__.splitlines()[0], "two small sizes, to test that everything runs"
    return command("all_reduce", about, [2, 4], quick, run, table, arguments)


def run(counts: list[int], quick: bool) -> dict:
    """All contenders for each of these numbers of GPUs, as far as there are so many."""
    sizes = SIZES[:2] if quick else SIZES
    there = devices.gpu_count()
    records, left_out = [], {f"{count} GPUs": f"there are {there}" for count in counts if count > there}
    for count in counts:
        if count <= there:
            with closing_nccl(count, left_out) as members:
                peers = GPUs(range(count), MOST)
                warm_up(peers)
                for n in sizes:
                    records += measured(peers, members, n, left_out)
                    print(f"{count} GPUs, {n} numbers: done", file=sys.stderr, flush=True)
    head = {"machine": devices.describe("gpu"), "cpu": devices.describe("cpu"), "gpus": there}
    versions = devices.versions() | ({"nccl": nccl_version()} if any("NCCL" in r["contender"] for r in records) else {})
    return head | {"versions": versions, "records": records, "fits": fits(records), "left_out": left_out}


def warm_up(peers: GPUs, seconds: float = 0.3) -> None:
    """Keep the GPUs busy until their clocks have risen."""
    vectors = [on_gpu(np.zeros(1000, np.float32), gpu) for gpu in peers.devices]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        timed(lambda: peers.all_reduce(vectors, "flags", 1000), peers.devices)
    peers.refuse_missed()


# ---- the contenders


def measured(peers: GPUs, members: list[Any], n: int, left_out: dict[str, str]) -> list[dict]:
    """A record for each contender: seconds for one all-reduce of n numbers."""
    rng, found = np.random.default_rng(n), []
    base = rng.standard_normal(n, np.float32)
    numbers = [base * np.float32(1 + 0.3 * rank) + np.float32(rank) for rank in range(peers.size)]
    vectors = [on_gpu(vector, device) for vector, device in zip(numbers, peers.devices, strict=True)]
    streams = made_streams(peers.devices)
    best = way_for(n, peers.size, peers.most)
    ways = [way for way in ("flags", "words", "pieces") if way == "pieces" or n <= peers.most]

    def record(contender: str, times: list[float], error: float, **more: Any) -> None:
        found.append(
            {"devices": peers.size, "n": n, "contender": contender, "seconds": statistics.median(times)}
            | {"samples": times, "largest_error": error}
            | more
        )

    for way in ways:
        error = checked_rounds(peers, vectors, numbers, way)
        times, rounds = inside(peers, vectors, way)
        refuse_difference(vectors, f"{way}, inside")
        record(f"{way}, inside a kernel", times, error, rounds=rounds, chosen=way == best)
    contenders: list[tuple[str, Callable[[], None]]] = [("peer memory, ", lambda: peers.all_reduce(vectors, best))]
    if members:
        contenders.append(("NCCL, ", lambda: nccl_all_reduce(members, vectors)))
    for name, call in contenders:
        error = checked(call, vectors, numbers, streams, peers.devices, name)
        times = launched(call, peers.devices, streams)
        used = {} if "NCCL" in name else {"way": best}
        record(f"{name}launched", times, error, **used)
        try:
            graphs = recorded(call, peers.devices, streams)
        except Exception as problem:  # what CUDA or NCCL does not record
            left_out[f"{peers.size} GPUs, {n}: {name}graph"] = f"{type(problem).__name__}: {problem}"
            continue
        error = checked(
            lambda graphs=graphs: replay(graphs[1], streams), vectors, numbers, streams, peers.devices, name
        )
        times = launched(lambda graphs=graphs: replay(graphs[CALLS], streams), peers.devices, streams, 4, CALLS)
        record(f"{name}in a graph", times, error, **used)
    peers.refuse_missed()
    return found


def inside(peers: GPUs, vectors: list[Any], way: str) -> tuple[list[float], int]:
    """Seconds for a round within one launch: those that a launch of twice as many rounds takes longer."""
    rounds = max(10, int(5e-3 / (4e-6 + 2e-11 * vectors[0].size * peers.size)))
    times = []
    for sample in range(SAMPLES + 1):
        short, long = (
            timed(lambda r=r: peers.all_reduce(vectors, way, r), peers.devices) for r in (rounds, 2 * rounds)
        )
        if sample > 0:  # the first is a rehearsal
            times.append((long - short) / rounds)
    return times, rounds


def launched(call: Callable, gpus: tuple[int, ...], streams: list[Any], calls: int = CALLS, of: int = 1) -> list[float]:
    """Seconds a call, of calls that are launched one after the other; each call is `of` all-reduces."""

    def several():
        with using(streams, gpus):
            for _ in range(calls):
                call()

    times = [timed(several, gpus) / calls / of for _ in range(SAMPLES + 1)]
    return times[1:]


def recorded(
    call: Callable, gpus: tuple[int, ...], streams: list[Any], counts: tuple[int, ...] = (1, CALLS)
) -> dict[int, list[Any]]:
    """CUDA graphs of so many calls: a graph for each GPU, since each has its own stream."""
    graphs: dict[int, list[Any]] = {}
    for calls in counts:
        with using(streams, gpus):
            for stream, gpu in zip(streams, gpus, strict=True):
                with on(gpu):
                    stream.begin_capture()
            problem = None
            try:
                for _ in range(calls):
                    call()
            except Exception as error:
                problem = error
            graphs[calls] = []
            for stream, gpu in zip(streams, gpus, strict=True):
                with on(gpu):  # a recording has to be ended, or nothing works any more
                    try:
                        graphs[calls].append(stream.end_capture())
                    except Exception as error:
                        problem = problem or error
            if problem:
                raise problem
    return graphs


def replay(graphs: list[Any], streams: list[Any]) -> None:
    for graph, stream in zip(graphs, streams, strict=True):
        with on(stream.device_id):
            graph.launch(stream)


def nccl_all_reduce(members: list[Any], vectors: list[Any]) -> None:
    import cupy
    from cupy.cuda import nccl

    nccl.groupStart()
    for member, vector in zip(members, vectors, strict=True):
        place, stream = vector.data.ptr, cupy.cuda.get_current_stream(vector.data.device_id).ptr
        member.allReduce(place, place, vector.size, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream)
    nccl.groupEnd()


# ---- right sums, and the same bits


def checked(
    call: Callable, vectors: list[Any], numbers: list[np.ndarray], streams: list, gpus: tuple[int, ...], name: str
) -> float:
    """The largest error of one call; WrongSumError above rounding, or if bits differ between GPUs."""
    fill(vectors, numbers)
    with using(streams, gpus):
        call()
    wait(gpus)
    return refuse_wrong(vectors, after_rounds(numbers, 1)[0], numbers, name)


def checked_rounds(peers: GPUs, vectors: list[Any], numbers: list[np.ndarray], way: str) -> float:
    """The same for 1 and for 7 rounds in one launch, which differ in no bit from the same additions in NumPy."""
    for rounds in (1, 7) if numbers[0].size < 2_000_000 else (3,):
        fill(vectors, numbers)
        peers.all_reduce(vectors, way, rounds)
        peers.refuse_missed()
        wanted = after_rounds(numbers, rounds)[0]
        if not np.array_equal(vectors[0].get(), wanted):
            raise WrongSumError(f"{way} on {peers.size} GPUs, {rounds} rounds of {wanted.size} numbers: wrong sums")
        refuse_difference(vectors, way)
    return 0.0


def refuse_wrong(vectors: list[Any], wanted: np.ndarray, numbers: list[np.ndarray], name: str) -> float:
    error = float(np.abs(vectors[0].get() - wanted).max())
    allowed = 4 * len(numbers) * 2**-23 * float(sum(np.abs(vector).max() for vector in numbers))
    if not error <= allowed:
        raise WrongSumError(f"{name}{len(numbers)} GPUs, {wanted.size} numbers: an error of {error}")
    refuse_difference(vectors, name)
    return error


def refuse_difference(vectors: list[Any], name: str) -> None:
    first = vectors[0].get().view(np.int32)
    if not all(np.array_equal(first, other.get().view(np.int32)) for other in vectors[1:]):
        raise WrongSumError(f"{name}: the GPUs do not have the same bits")


# ---- GPUs, streams and time


def on(gpu: int) -> Any:
    import cupy

    return cupy.cuda.Device(gpu)


def on_gpu(vector: np.ndarray, gpu: int) -> Any:
    import cupy

    with on(gpu):
        return cupy.asarray(vector)


def fill(vectors: list[Any], numbers: list[np.ndarray]) -> None:
    for vector, values in zip(vectors, numbers, strict=True):
        with on(vector.data.device_id):
            vector.set(values)
    wait(tuple(vector.data.device_id for vector in vectors))


def wait(gpus: tuple[int, ...]) -> None:
    for gpu in gpus:
        on(gpu).synchronize()


def timed(work: Callable[[], None], gpus: tuple[int, ...]) -> float:
    wait(gpus)
    start = time.perf_counter()
    work()
    wait(gpus)
    return time.perf_counter() - start


def made_streams(gpus: tuple[int, ...]) -> list[Any]:
    import cupy

    streams = []
    for gpu in gpus:
        with on(gpu):
            streams.append(cupy.cuda.Stream(non_blocking=True))
    return streams


@contextlib.contextmanager
def using(streams: list[Any], gpus: tuple[int, ...]) -> Iterator[None]:
    """Each GPU's stream as its current one. Not by `with stream:`, whose end takes the GPU in use for the stream's."""
    import cupy

    try:
        for stream, gpu in zip(streams, gpus, strict=True):
            with on(gpu):
                stream.use()
        yield
    finally:
        for gpu in gpus:
            with on(gpu):
                cupy.cuda.Stream.null.use()


@contextlib.contextmanager
def closing_nccl(count: int, left_out: dict[str, str]) -> Iterator[list[Any]]:
    """NCCL's communicators, one for each GPU; none, with the reason in left_out, where there is no NCCL."""
    try:
        from nncourse.parallel.nccl import nccl

        members = nccl().NcclCommunicator.initAll(list(range(count)))
    except (CourseError, RuntimeError) as error:
        left_out[f"{count} GPUs, NCCL"] = str(error)
        members = []
    try:
        yield members
    finally:
        for member in members:
            member.destroy()


def nccl_version() -> str:
    from cupy.cuda import nccl

    number = nccl.get_version()
    return f"{number // 10_000}.{number // 100 % 100}.{number % 100}"


# ---- what comes out


def fits(records: list[dict]) -> list[dict]:
    """seconds = alpha + beta · n for each contender, by least squares of the relative errors."""
    found = []
    for count, contender in dict.fromkeys((record["devices"], record["contender"]) for record in records):
        mine = [r for r in records if (r["devices"], r["contender"]) == (count, contender)]
        if len(mine) > 1:
            seconds, n = (np.array([record[key] for record in mine], float) for key in ("seconds", "n"))
            columns = np.stack([1 / seconds, n / seconds], axis=1)
            alpha, beta = np.linalg.lstsq(columns, np.ones(len(mine)), rcond=None)[0]
            found.append({"devices": count, "contender": contender, "alpha": float(alpha), "beta": float(beta)})
    return found


def table(result: dict) -> str:
    """Microseconds, a column for each size; then alpha in microseconds and 4 / beta in gigabytes a second."""
    records, lines = result["records"], []
    known = {(r["devices"], r["contender"], r["n"]): r for r in records}
    fitted = {(fit["devices"], fit["contender"]): fit for fit in result["fits"]}
    for count in dict.fromkeys(record["devices"] for record in records):
        sizes = sorted({record["n"] for record in records if record["devices"] == count})
        lines += [f"{count} GPUs, µs" + " " * 14 + "".join(f"{n:>12,}" for n in sizes) + "     α µs    4/β GB/s"]
        for contender in dict.fromkeys(record["contender"] for record in records if record["devices"] == count):
            cells = [known.get((count, contender, n)) for n in sizes]
            shown = (f"{cell['seconds'] * 1e6:>12.1f}" if cell else " " * 11 + "–" for cell in cells)
            fit = fitted.get((count, contender))
            end = f"{fit['alpha'] * 1e6:>9.1f}{4e-9 / fit['beta']:>12.1f}" if fit else ""
            lines.append(f"{contender:<26}{''.join(shown)}{end}")
    lines += [f"left out: {what}: {why}" for what, why in result["left_out"].items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
