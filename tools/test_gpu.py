"""Test on a GPU all that a GPU changes, and print a table: tools/test_gpu.py [--part 1/2] [--processes 8] [--anew].

All notebooks run as handed out and with every exercise solved. The correct answers to all exercises are judged and
timed, and the tests with the mark `gpu` run. A skipped test counts as failed, unless it needs a second GPU or cuDNN.
What has passed with the present files is not run again, unless --anew: build/gpu/ records it, and notebooks' output.

The tests use the Python that runs this file, with the packages of the extra `test`; make test-gpu uses .venv's.
Exit status: 0, all passed; 1, something failed; 2, there is no GPU.
"""

import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

NEEDED = ("pytest", "xdist", "pytest_timeout", "nbval", "hypothesis")
MAY_BE_SKIPPED = re.compile(r"second GPU|cuDNN")
MEMORY = 8 << 30  # bytes of a GPU for each process that runs tests
MOST_PROCESSES = 12
PACKAGES = runpy.run_path(str(ROOT / "nncourse" / "language.py"))["PACKAGES"]
SOURCES = (
    *(f"{name}/**/*" for name in PACKAGES),
    "tests/**/*",
    "benchmarks/**/*",
    "datasets/*",
    "notebooks/*.ipynb",
    "conftest.py",
)
ANSWERS = "tests/test_timed_answers.py"


@dataclass(frozen=True)
class Group:
    """What one call of pytest runs: `what` is its line in the table."""

    what: str
    paths: tuple[str, ...]
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    by_file: bool = False  # whether the table counts files, notebooks, or tests
    alone: bool = False  # nothing else may use the GPU meanwhile


def groups() -> list[Group]:
    nbval = ("--nbval-lax", "--nbval-cell-timeout", "300")
    all_but_first = ("--ignore", "notebooks/00_start_here.ipynb")  # which has no exercises
    solved = {"NNCOURSE_SOLVE": "all", "NNCOURSE_STRICT": "1"}
    return [
        Group("notebooks, solved", ("notebooks",), (*nbval, *all_but_first), solved, by_file=True),
        Group("notebooks, open", ("notebooks",), nbval, by_file=True),
        Group("exercises judged", (ANSWERS,), ("-m", "gpu")),
        Group("tests on a GPU", ("tests",), ("-m", "gpu and not timed", "--ignore", ANSWERS)),
        Group("measurements", ("tests",), ("-m", "gpu and timed"), alone=True),
    ]


def main() -> int:
    parser = ArgumentParser(description=__doc__, usage="test_gpu.py [--part 1/2] [--processes N] [--anew]")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--anew", action="store_true")
    options = parser.parse_args()
    if not re.fullmatch(r"[1-9]/[1-9]", options.part) or options.part[0] > options.part[2]:
        return refuse(f"expected a part such as 1/2, got {options.part}")
    if lacking := [name for name in NEEDED if not find_spec(name)]:
        return refuse(f"expected {', '.join(lacking)} in {sys.executable}, found none: run make setup")

    from nncourse import device

    if reason := device.why_no_gpu():
        return refuse(f"expected a GPU: {reason}")
    folder = ROOT / "build" / "gpu" / files_now()
    if options.anew:
        for record in folder.glob("*.jsonl"):
            record.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    processes = options.processes or number_of_processes()
    print(f"{device.describe('gpu')}; files {folder.name}, part {options.part}, {processes} processes", flush=True)
    start = time.monotonic()
    rows = [run(group, folder, options, processes) for group in groups()]
    print(table(rows, time.monotonic() - start))
    return int(any(row.failed for row in rows))


def refuse(said: str) -> int:
    print(f"test-gpu: {said}", file=sys.stderr)
    return 2


def files_now() -> str:
    """A hash of all files that decide on the outcome: there need be no Git, and changes need not be committed."""
    together = hashlib.sha256()
    for file in (file for source in SOURCES for file in sorted(ROOT.glob(source))):
        if file.is_file() and "__pycache__" not in file.parts:
            together.update(f"{file.relative_to(ROOT).as_posix()}\0".encode() + file.read_bytes())
    return together.hexdigest()[:12]


def number_of_processes() -> int:
    """As many as there are cores, and memory on the GPU."""
    import cupy

    from nncourse.threads import usable_cores

    memory = cupy.cuda.runtime.memGetInfo()[1]
    return max(1, min(MOST_PROCESSES, usable_cores(), memory // MEMORY))


@dataclass(frozen=True)
class Row:
    """What became of a group, in this run and in earlier ones with the same files."""

    what: str
    passed: int
    earlier: int  # of the passed ones
    skipped: Counter[str]  # that may be, by the reason
    failed: dict[str, str]  # by name, the reason
    seconds: float
    timed: int = 0  # of the passed ones


def run(group: Group, folder: Path, options: Namespace, processes: int) -> Row:
    """Run what of a group has not passed yet, and count."""
    record = folder / f"{group.what.replace(' ', '-')}.jsonl".replace(",", "")
    before = outcomes(record)
    done = [name for name, outcome in finished(before, group).items() if outcome == "passed"]
    (folder / "done.txt").write_text("".join(f"{name}\n" for name in done))
    others = {name: value for name, value in os.environ.items() if name not in ("NNCOURSE_SOLVE", "NNCOURSE_STRICT")}
    environment = others | group.environment | {
        "NNCOURSE_REQUIRE_GPU": "1",
        "NNCOURSE_MY_KERNELS": str(folder / "no_kernels"),
        "NNCOURSE_GPU_RECORD": str(record),
        "NNCOURSE_GPU_DONE": str(folder / "done.txt"),
        "NNCOURSE_GPU_PART": options.part,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", *group.paths, *group.options, "-q", "-p", "tools.gpu_record"]
    several = ["--numprocesses", str(processes), "--dist", "loadscope", "--no-loadscope-reorder"]
    command += ["-n", "0"] if group.alone else several
    start = time.monotonic()
    status = subprocess.run(command, cwd=ROOT, env=environment).returncode
    seconds = time.monotonic() - start
    return counted(group, outcomes(record), before, status, seconds)


def outcomes(record: Path) -> list[dict]:
    """The lines of a record; the last one may have been cut off."""
    lines = record.read_text("utf-8").splitlines() if record.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def finished(lines: Sequence[dict], group: Group) -> dict[str, str]:
    """The latest outcome of each test, or of each notebook: passed only if all of its cells have."""
    latest = {line["test"]: line["outcome"] for line in lines}
    if not group.by_file:
        return latest
    files: dict[str, set[str]] = {}
    cells: Counter[str] = Counter()
    for name, outcome in latest.items():
        file = name.partition("::")[0]
        files.setdefault(file, set()).add(outcome)
        cells[file] += 1
    whole = {file: cells[file] == code_cells(ROOT / file) for file in files}
    return {file: "passed" if found == {"passed"} and whole[file] else "failed" for file, found in files.items()}


def code_cells(notebook: Path) -> int:
    return sum(cell["cell_type"] == "code" for cell in json.loads(notebook.read_text("utf-8"))["cells"])


def counted(group: Group, lines: Sequence[dict], before: Sequence[dict], status: int, seconds: float) -> Row:
    """The row of a group. A status that no test explains, such as of an error in collecting, is a failure too."""
    latest = {line["test"]: line for line in lines}
    skipped, failed = Counter[str](), {}
    for name, line in latest.items():
        if line["outcome"] == "skipped" and MAY_BE_SKIPPED.search(line["reason"]):
            skipped[line["reason"]] += 1
        elif line["outcome"] != "passed":
            failed.setdefault(name.partition("::")[0] if group.by_file else name, line["reason"])
    now, then = (list(finished(of, group).values()).count("passed") for of in (lines, before))
    if status not in (0, 1, 5):
        failed["pytest"] = f"ended with status {status}"
    timed = sum(line["outcome"] == "passed" and line.get("timed", False) for line in latest.values())
    return Row(group.what, now, then, skipped, failed, seconds, timed)


def table(rows: Sequence[Row], seconds: float) -> str:
    """What ran, of at most 100 columns; then the reasons of what was skipped, and what failed."""
    lines = [f"{'':20}{'passed':>8}{'(earlier)':>11}{'skipped':>9}{'failed':>8}{'time':>8}"]
    for row in rows:
        counts = f"{row.passed:8}{row.earlier:11}{sum(row.skipped.values()):9}{len(row.failed):8}"
        lines.append(f"{row.what:20}{counts}{row.seconds:7.0f} s")
        lines += [f"{'  of these, timed':20}{row.timed:8}"] if row.timed else []
    lines.append(f"{'all':20}{'':36}{seconds:7.0f} s")
    for reason, count in sum((row.skipped for row in rows), Counter()).items():
        lines.append(f"skipped {count}: {reason}")
    lines += [f"failed {name}: {reason}" for row in rows for name, reason in row.failed.items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
