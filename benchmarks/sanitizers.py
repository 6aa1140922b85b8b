"""Compare the emulator's findings with compute-sanitizer's: python -m benchmarks.sanitizers [--limit SECONDS].

Needs a GPU and the CUDA toolkit. Each wrong kernel of tests/mutants/ is judged on the emulator. Then NVIDIA's tools
watch one launch of it on a GPU, with the arguments of the case in which the emulator refused it. memcheck (accesses out
of bounds) and initcheck (memory that nothing has set) watch all kernels, racecheck and synccheck those with shared
memory or barriers. Results are saved (--out FOLDER), so that a later run continues.
"""

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import machines, saved
from nncourse import device as devices

TOOLS = {"memcheck": "", "initcheck": "", "racecheck": "__shared__", "synccheck": "__sync"}  # what the text must have
FOUND = 9  # the exit status of compute-sanitizer where a tool finds something
PATIENCE = 60.0  # seconds for a launch
AT_ONCE = 12


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--limit", type=float, default=float("inf"), help="stop, and save, after this many seconds")
    parser.add_argument("--out", type=Path, default=saved.RESULTS, help="folder for the results (default results/)")
    parser.add_argument(
        "--launch", nargs=2, help="only launch this mutant with these arguments: the command that a tool runs"
    )
    options = parser.parse_args(arguments)
    if options.launch:
        return launch(int(options.launch[0]), Path(options.launch[1]))
    if not devices.gpu_available():
        parser.error(devices.why_no_gpu())
    path, until = options.out / "sanitizers.json", time.monotonic() + options.limit
    before = json.loads(path.read_text("utf-8"))["mutants"] if path.is_file() else []
    rows = {(row["operation"], row["kernel"], row["mistake"]): row for row in before}
    with tempfile.TemporaryDirectory() as folder:
        for row in watched(rows, Path(folder), until):
            rows[row["operation"], row["kernel"], row["mistake"]] = row
    saved.save(machines.about("gpu") | {"mutants": list(rows.values())}, path)
    print(*words_and_rows({"mutants": list(rows.values())})[1], sep="\n")
    return 0


def watched(known: Mapping[Any, Any], folder: Path, until: float) -> Iterator[dict[str, Any]]:
    """A row for each mutant that is not known yet, until the time is over."""
    from tests.test_wrong_kernels import ALL

    todo = [n for n, mutant in enumerate(ALL) if (mutant.operation, mutant.kernel, mutant.mistake) not in known]
    with ProcessPoolExecutor(AT_ONCE) as emulators, ThreadPoolExecutor(AT_ONCE) as tools:
        judged = [emulators.submit(emulated, n, folder) for n in todo]
        seen = []
        for future in as_completed(judged):
            if time.monotonic() > until:
                break
            n, row, text = future.result()
            if row:
                asked = [tool for tool, word in TOOLS.items() if word in text]
                seen.append((row, {tool: tools.submit(found_by, tool, n, folder, until) for tool in asked}))
        for future in judged:
            future.cancel()
        for row, by_tool in seen:
            answers = {tool: future.result() for tool, future in by_tool.items()}
            if None not in answers.values():
                yield row | answers


def emulated(number: int, folder: Path) -> tuple[int, dict[str, Any], str]:
    """The emulator's verdict on a mutant, and its text. The case's arguments are left in the folder. No row if it is
    wrong with NaN alone, which is no matter of memory."""
    from nnclassroom.judge.check import check
    from tests.test_wrong_kernels import ALL, kernel_of

    mutant = ALL[number]
    kernel = kernel_of(mutant)
    verdict = check(kernel.operation, kernel, device="emulator", seed=0)
    if verdict or verdict.case is None:
        return number, {}, ""
    (folder / f"{number}.pickle").write_bytes(pickle.dumps(verdict.case.arguments))
    row = {"operation": mutant.operation, "kernel": mutant.kernel, "mistake": mutant.mistake, "emulator": verdict.kind}
    unset = bool(verdict.facts.get("unset") or verdict.facts.get("nan") in ("unwritten", "shared"))
    text = "".join(source.text for source in (*kernel.source.before, kernel.source))
    return number, row | {"unset": unset, "said": verdict.line}, text


def found_by(tool: str, number: int, folder: Path, until: float) -> bool | None:
    """Whether the tool finds something in one launch; None if there was no time."""
    if time.monotonic() > until:
        return None
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), sys.executable, "-m"]
    command += ["benchmarks.sanitizers", "--launch", str(number), str(folder / f"{number}.pickle")]
    try:
        return subprocess.run(command, capture_output=True, timeout=PATIENCE).returncode == FOUND
    except subprocess.TimeoutExpired:
        return False


def launch(number: int, path: Path) -> int:
    """Launch a mutant once. One allocation per array, so that memcheck sees where each ends."""
    import cupy

    from tests.test_wrong_kernels import ALL, kernel_of

    cupy.cuda.set_allocator(None)
    arguments = pickle.loads(path.read_bytes())
    kernel_of(ALL[number])(
        *(devices.to_device(value, "gpu") if isinstance(value, np.ndarray) else value for value in arguments)
    )
    devices.synchronise("gpu")
    return 0


# What the emulator says and the tool that is meant for it.
FINDINGS = {
    "bounds": ("an access out of bounds", "memcheck"),
    "race": ("a race", "racecheck"),
    "barrier": ("a barrier that some threads never reach", "synccheck"),
    "never set": ("a number that nothing has set", "initcheck"),
}
OTHER = "wrong numbers alone, or a changed argument"


def words_and_rows(result: Mapping[str, Any]) -> tuple[str, list[list[str]]]:
    """A row for each kind of finding: how many mutants have it, and in how many of these the tool finds something."""
    rows = result["mutants"]
    kinds = ["never set" if row["unset"] else row["emulator"] for row in rows]
    lines = []
    for kind, (words, tool) in FINDINGS.items():
        mine = [row for row, its in zip(rows, kinds, strict=True) if its == kind]
        lines.append([words, f"{len(mine)}", f"{tool}: {sum(bool(row.get(tool)) for row in mine)}"])
    others = [row for row, kind in zip(rows, kinds, strict=True) if kind not in FINDINGS]
    found = sum(any(row.get(tool) for tool in TOOLS) for row in others)
    lines.append([OTHER, f"{len(others)}", f"any of the four: {found}"])
    said = f"{len(rows)} wrong kernels, each watched in one launch on the case in which the emulator refused it:"
    return said, [["the emulator says", "kernels", "compute-sanitizer finds something"], *lines]


if __name__ == "__main__":
    sys.exit(main())
