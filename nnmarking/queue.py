"""Judge many submissions: identical ones once, several at a time. A journal lets an interrupted run continue.

Several threads judge, each with its own worker (judge/worker.py). A submission that breaks a worker, or takes too long
on a busy machine, is judged again when nothing else runs; only that verdict counts.
"""

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from nnclassroom.exercises import kept_kernels
from nnclassroom.handing_in.caught import caught
from nnclassroom.judge.worker import Worker, WorkerError
from nncourse.errors import CourseError, printable, reason_of

# Wall time in seconds, many times what a check needs. The judge itself limits CPU time, so that a busy machine costs
# no student a mark.
LIMIT, LIMIT_CUDA = 400.0, 600.0
TELL = 10.0  # seconds from one line of progress to the next
TWICE = ("time limit", "crash")  # verdicts that may be due to the machine
ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")  # differs from run to run


@dataclass(frozen=True)
class Terms:
    """What is the same for all submissions of one marking. A verdict holds only under these terms."""

    seed: int
    version: str  # of the course
    device: str  # "cpu" or "gpu"
    definitions: str = ""  # of an examination's operations: see nnclassroom/exercises/exam_operations.py
    sandbox: tuple[str, ...] = ()
    limits: tuple[float, float] = (LIMIT, LIMIT_CUDA)


@dataclass(frozen=True)
class Task:
    """A submission to judge: the code of one exercise, and for CUDA C how it is launched."""

    operation: str
    kernel: str
    text: str
    launch: dict[str, Any] | None

    def key(self, terms: Terms) -> str:
        """A hash of everything that the verdict depends on."""
        under = [terms.seed, terms.version, terms.device, terms.definitions, bool(terms.sandbox)]
        depends = [self.operation, self.kernel, self.text, self.launch, *under]
        return hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Judged:
    """A verdict as it is stored in the journal."""

    kind: str
    line: str


def judge(task: Task, terms: Terms, worker: Worker) -> Judged:
    """The verdict on one submission. If the worker fails, its kind is "crash" or "time limit"."""
    title = f"{task.operation} ({task.kernel})"
    wall = terms.limits[1 if task.launch else 0]
    given = (task.operation, task.kernel, task.text, task.launch, terms.seed, terms.sandbox)
    try:
        # quiet: what an answer prints, escape sequences too, is not for the terminal of the person who marks
        options = (kept_kernels.TIME_LIMIT, terms.definitions)
        verdict = worker.call(kept_kernels.check, *given, *options, seconds=wall, quiet=True)
    except WorkerError as error:
        return Judged(error.kind, f"{title}: {error}")
    if verdict.facts.get("context") == "lost":
        worker.end()  # after such an error its CUDA context is unusable
    return Judged(verdict.kind, ADDRESS.sub("0x…", "\n".join(map(printable, verdict.line.split("\n")))))


class Journal:
    """The verdicts so far, one JSON object per line. A line that a killed run left incomplete does not count."""

    def __init__(self, path: Path):
        self.path = path
        self.verdicts: dict[str, Judged] = {}
        self.seed: int | None = None  # of the last verdict
        try:
            text = path.read_text("utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError):
            raise CourseError(f"{path}: expected the journal of an earlier run; it cannot be read: delete it") from None
        for line in text.split("\n"):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                self.verdicts[entry["key"]] = Judged(entry["kind"], entry["line"])
                self.seed = entry["seed"]
        self.broken = bool(text) and not text.endswith("\n")

    def add(self, key: str, judged: Judged, seed: int) -> None:
        """Write a verdict to the file at once."""
        line = json.dumps({"key": key, "seed": seed, **asdict(judged)}, ensure_ascii=False)
        try:
            with self.path.open("a", encoding="utf-8", newline="\n") as file:
                file.write(("\n" if self.broken else "") + line + "\n")
        except OSError as error:
            raise CourseError(f"{self.path}: cannot be written: {reason_of(error)}") from None
        self.broken = False
        self.verdicts[key] = judged


def judge_all(
    tasks: Mapping[str, Task], terms: Terms, jobs: int, journal: Journal, say: Callable[[str], None] = print
) -> dict[str, Judged]:
    """The verdict of each task, by its key. Tasks that are in the journal are not judged again."""
    left = {key: task for key, task in tasks.items() if key not in journal.verdicts}
    if len(left) < len(tasks):
        say(f"judged before, according to the journal: {len(tasks) - len(left)} of {len(tasks)}")
    again, done, start = {}, 0, time.monotonic()
    said = start
    with contextlib.closing(_run(left, terms, jobs)) as verdicts:
        for key, judged in verdicts:
            if judged.kind == "cannot be checked":  # a fault of this machine
                raise CourseError(judged.line)
            if judged.kind in TWICE:
                again[key] = left[key]
                continue
            journal.add(key, judged, terms.seed)
            done += 1
            if time.monotonic() - said >= TELL and done < len(left):
                said = time.monotonic()
                say(f"judged {done} of {len(left)}, {_in_words((said - start) / done * (len(left) - done))} left")
    for number, (key, task) in enumerate(sorted(again.items(), key=_order), 1):
        say(f"judged again, alone: {number} of {len(again)}, {task.operation} ({task.kernel})")
        for _, judged in _run({key: task}, terms, 1):
            journal.add(key, judged, terms.seed)
    return {key: journal.verdicts[key] for key in tasks}


def _in_words(seconds: float) -> str:
    """A time that is only estimated."""
    return f"about {seconds / 60:.0f} min" if seconds >= 90 else f"about {max(10, round(seconds, -1)):.0f} s"


def _order(item: tuple[str, Task]) -> tuple[str, ...]:
    key, task = item
    return task.operation, task.kernel, key


def _run(tasks: Mapping[str, Task], terms: Terms, jobs: int) -> Generator[tuple[str, Judged], None, None]:
    """Judge with `jobs` workers; verdicts come in the order of completion. A crash affects only its own submission."""
    workers = [Worker() for _ in range(jobs)]
    free: SimpleQueue[Worker] = SimpleQueue()
    for worker in workers:
        free.put(worker)

    def judged(key: str, task: Task) -> tuple[str, Judged]:
        worker = free.get()
        title = f"{task.operation} ({task.kernel})"
        try:
            return key, caught(lambda: judge(task, terms, worker), lambda said: Judged("crash", f"{title}: {said}"))
        finally:
            free.put(worker)

    pool = ThreadPoolExecutor(jobs)
    futures = [pool.submit(judged, key, task) for key, task in sorted(tasks.items(), key=_order)]
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        at_work = True
        while at_work:  # an interrupted marking does not wait for verdicts
            for worker in workers:
                worker.end()
            at_work = bool(wait([future for future in futures if future.running()], timeout=0.05).not_done)
