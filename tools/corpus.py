"""Judge an old corpus of answers with today's judge: python -m tools.corpus --from d565c5a --processes 16

It reads tests/answers, tests/exercises and tests/mutants of commit d565c5a, which had each text as a whole: right and
wrong answers, forgeries, attacks, mutants. `--from` names a commit, or a folder with these three folders, which
`git archive d565c5a tests | tar -x -C FOLDER` makes. It prints JSON: how many texts of each kind were refused and
accepted, each text that was judged wrongly, and each text that has no counterpart today, with the reason. It leaves
forged records and planted files to tests/test_forgeries.py.
"""

import argparse
import collections
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuda_on_cpu import emulate
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.judge import check
from nnclassroom.notebook import cuda_cell
from nncourse import device
from nncourse.errors import CourseError
from nncourse.kernels.operation import Operation

# Operations that have another name today: old → new, and for kernels ("operation", "kernel") → kernel.
RENAMED: dict[str, str] = {}
RENAMED_KERNELS: dict[tuple[str, str], str] = {}
UNJUDGED = {"sandbox": "only the sandbox of grade stops it: tests/test_grade_forgeries.py"}
if not device.gpu_available():
    UNJUDGED["gpu"] = "only a GPU shows that it is wrong"
KINDS = ("right", "wrong", "forgery", "mutant")
FOLDERS = ("answers", "exercises", "mutants")


@dataclass(frozen=True)
class Text:
    """A text of the old corpus."""

    kind: str
    name: str
    operation: str
    kernel: str
    fields: dict[str, Any] = field(hash=False)
    file: str = ""


def read(origin: str) -> list[Text]:
    """The corpus of a commit, or of a folder."""
    texts = []
    for path, text in files(origin):
        table = tomllib.loads(text)
        texts += list(mutants(path, table) if "mutants" in path else answers(path, table))
    return texts


def files(origin: str) -> Iterator[tuple[str, str]]:
    """The path and the text of each file, as `answers/name.toml`."""
    if Path(origin).is_dir():
        root = Path(origin) / "tests" if (Path(origin) / "tests").is_dir() else Path(origin)
        for folder in FOLDERS:
            for path in sorted((root / folder).rglob("*.toml")):
                yield path.relative_to(root).as_posix(), path.read_text("utf-8")
        return
    paths = git("ls-tree", "-r", "--name-only", origin, *(f"tests/{folder}" for folder in FOLDERS)).split()
    for name in paths:
        yield name.removeprefix("tests/"), git("show", f"{origin}:{name}")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, encoding="utf-8").stdout


def answers(path: str, table: dict[str, Any]) -> Iterator[Text]:
    for kind, entries in table.items():
        for each in entries:
            name = each.get("mistake") or each.get("name") or each.get("idea") or "of the exercise"
            yield Text(kind, name, each["operation"], each["kernel"], each, path)


def mutants(path: str, table: dict[str, Any]) -> Iterator[Text]:
    """Those of epochs and peer are no texts for `check`: their names are told, as without a counterpart."""
    if path.count("/") > 1:
        yield from (Text("mutant", name, "", "", {}, path) for name in table)
        return
    for operation, kernels in table.items():
        for kernel, mistakes in kernels.items():
            for name, fields in mistakes.items():
                yield Text("mutant", name, operation, kernel, fields, path)


def judged(text: Text) -> tuple[str, str]:
    """ "refused", "accepted", "not finite" or "without", and the verdict's line or why there is none."""
    try:
        operation = find(RENAMED.get(text.operation, text.operation)) if text.operation else None
        if reason := UNJUDGED.get(text.fields.get("needs", "")):
            return "without", reason
        kernel = RENAMED_KERNELS.get((text.operation, text.kernel), text.kernel)
        if operation is None:
            return "without", "its own test judges it, not check()"
        verdict = of_mutant(text) if text.kind == "mutant" else of_answer(text, operation, kernel)
    except (CourseError, KeyError, AssertionError, StopIteration) as error:
        return "without", f"{type(error).__name__}: {error}"
    if verdict is None:
        return "without", "open: nothing is written into it"
    if not verdict:
        return "refused", verdict.line
    return ("not finite" if verdict.facts.get("not finite") else "accepted"), verdict.line


def of_mutant(text: Text) -> check.Verdict:
    from tests.test_wrong_kernels import Mutant, kernel_of

    mutant = Mutant(text.operation, text.kernel, text.name, **text.fields)
    kernel = kernel_of(mutant)
    return check.check(kernel.operation, kernel, device="emulator")


def of_answer(text: Text, operation: Operation, kernel: str) -> check.Verdict | None:
    """As a notebook judges it. After a forgery a plainly wrong text is judged by the same session, where it has one."""
    launch, fields = None, text.fields
    source = filled(fields["text"])
    if "line" in fields:
        launch = cuda_cell.launch_options(operation, cuda_cell.parsed(fields["line"]))
        source = f"// %%cuda {fields['line']}\n{source}"
    if text.kind == "forgery":
        kept_kernels.TIME_LIMIT = 3.0
    elif "time limit" in fields.get("kinds", ()):
        kept_kernels.TIME_LIMIT = 2.0
    else:
        kept_kernels.TIME_LIMIT = LIMIT
    verdict = kept_kernels.judged(operation, kernel, source, launch)
    if "then" in fields and verdict is not None and not verdict:
        then = fields["then"]
        verdict = kept_kernels.judged(find(then["operation"]), then["kernel"], filled(then["text"]), None)
    return verdict


LIMIT = kept_kernels.TIME_LIMIT


def filled(text: str) -> str:
    """A text of a forgery with its places filled in; what it aims at is in a folder of this process."""
    from tests import forged

    if not any(place in text for place in ("{tmp}", "{port}", "{package}", "{my_kernels}")):
        return text
    folder = Path(tempfile.mkdtemp())
    forged.make_precious(folder)
    places = {"{tmp}": folder, "{port}": forged.outside().port, "{my_kernels}": kept_kernels.folder()}
    places["{package}"] = Path(check.__file__).parents[2] / "nncourse"
    for name, place in places.items():
        text = text.replace(name, str(place))
    return text.replace("{hash}", hashlib.sha256(text.encode()).hexdigest())


def right(text: Text, outcome: str) -> bool:
    """Whether the judge says what it should."""
    if text.kind == "right":
        return outcome != "refused"
    if not text.fields.get("counts", True):
        return outcome == "not finite"
    return outcome == "refused"


def one(text: Text) -> tuple[Text, str, str, float]:
    start = time.perf_counter()
    try:
        outcome, line = judged(text)
    except Exception as error:  # one text must not end the run
        outcome, line = "without", f"{type(error).__name__}: {error}"
    return text, outcome, line, time.perf_counter() - start


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--from", dest="origin", default="d565c5a", metavar="COMMIT", help="commit, or folder")
    options.add_argument("--processes", type=int, default=os.cpu_count(), metavar="N")
    options.add_argument("--part", default="1/1", metavar="K/N", help="judge the K-th of N equal parts")
    options.add_argument("--kind", choices=KINDS, help="judge only texts of this kind")
    given = options.parse_args()
    k, n = map(int, given.part.split("/"))
    texts = [text for text in read(given.origin) if given.kind in (None, text.kind)][k - 1 :: n]
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    otherwise, without, slow = [], [], []
    os.environ["NNCOURSE_MY_KERNELS"] = tempfile.mkdtemp()
    with multiprocessing.get_context("spawn").Pool(given.processes, maxtasksperchild=40) as pool:
        for text, outcome, line, seconds in pool.imap_unordered(one, texts):
            counts[text.kind][outcome] += 1
            about = {"kind": text.kind, "file": text.file, "operation": text.operation, "kernel": text.kernel}
            about |= {"name": text.name, "outcome": outcome, "line": line}
            if outcome == "without":
                without.append(about)
            elif not right(text, outcome):
                otherwise.append(about)
            slow.append((round(seconds, 1), f"{text.operation}-{text.kernel}-{text.name}"))
            print(f"{sum(map(sum, (c.values() for c in counts.values())))}/{len(texts)}", end="\r", file=sys.stderr)
    device_name = device.describe("gpu" if device.gpu_available() else "cpu")
    found = {"from": given.origin, "part": given.part, "device": device_name, "emulator": emulate.why_not() or "there"}
    found |= {"texts": len(texts), "counts": counts, "slowest": sorted(slow)[-5:]}
    found |= {"otherwise": otherwise, "without": without}
    print(json.dumps(found, indent=1, ensure_ascii=False))
    return 1 if otherwise else 0


if __name__ == "__main__":
    raise SystemExit(main())
