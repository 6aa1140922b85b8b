"""A notebook run in English and in another language: that both keep the same kernels, draw and print the same numbers.

A run is told as facts, each with a name: a kernel that was kept, a figure's data, the numbers that a cell printed. What
is compared is said with the functions that collect them. Measured times differ from run to run: a fact that differs is
no fault if it also differs between two runs in one language.
"""

import ast
import json
import os
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat

from . import cuda_text, drawn_data, on_screen

ENGLISH = "en"
MOST_RUNS = 5  # in both languages together
HOOK = "from tools.translation import drawn_data\n\ndrawn_data.watch()"
EXERCISE = re.compile(r'^@exercise\("(\w+)", kernel="(\w+)"\)|^%%cuda (\w+) (\w+)', re.MULTILINE)
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")
LINE = re.compile(r"(?<=\.py|\.cu):\d+")  # of a file, which has other lines in another language
SIGN = re.compile(r"[○✗✓] \w+ \(\w+\)")
KERNELS = "my_kernels"
RUNS = " runs"  # the end of the name of a fact: a cell's error, or ""
MOST_SHOWN = 300  # letters of a difference
REFERENCE = "IPY_MODEL_"  # before the name of another widget, which is drawn by lot
OF_WORDS = {
    "06_training": {"save-run numbers"}
}  # facts of a notebook that follow from words: sizes of files with words
Facts = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What was compared in two runs of a notebook, and what differs."""

    failed: tuple[str, ...]  # cells, with their errors
    faults: tuple[str, ...]  # what differs, and how, while it is the same in all runs in one language
    varying: tuple[str, ...]  # names of facts that differ between runs in one language
    counts: dict[str, int]  # of what was compared, and is equal

    def __str__(self) -> str:
        """What was equal, what was not compared, and in lines of their own what is wrong."""
        told = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        varies = f"; varies from run to run: {', '.join(self.varying)}" if self.varying else ""
        return "\n    ✗ ".join([f"equal: {told}{varies}", *(f"failed: {each}" for each in self.failed), *self.faults])


def path_of(root: Path, language: str, name: str) -> Path:
    """The file of a notebook in a language."""
    folder = root / "notebooks" if language == ENGLISH else root / "notebooks" / language
    return folder / f"{name}.ipynb"


def compared(root: Path, name: str, language: str, solved: bool) -> Comparison:
    """Run a notebook in English and in a language, and where they differ again in each, to see what is measured."""
    runs: dict[str, list[Facts]] = {ENGLISH: [], language: []}
    for turn in range(MOST_RUNS):
        now = (ENGLISH, language)[turn % 2]
        runs[now].append(run(root, path_of(root, now, name), now, solved))
        if turn and not compare(*runs.values()).faults:
            break
    return compare(*runs.values())


def compare(english: list[Facts], other: list[Facts]) -> Comparison:
    """One or more runs in English, and some in another language."""
    one, two, runs = english[0], other[0], [*english, *other]
    names = list(dict.fromkeys(name for run in runs for name in run))
    varying = [name for name in names if _varies(name, english) or _varies(name, other)]
    failed = [f"{n.removesuffix(RUNS)}: {run[n]}" for run in runs for n in run if n.endswith(RUNS) and run[n]]
    there = [name for name in names if name not in varying]
    equal = {name: one[name] for name in there if name in one and name in two and one[name] == two[name]}
    differing = [name for name in there if name not in equal and not name.endswith(RUNS)]
    faults = [f"{name}: {_difference(one.get(name), two.get(name))}" for name in differing]
    drawn = [artist for name, facts in equal.items() if name.endswith(", data") for artist in facts]
    counts = {
        "cells": sum(name.endswith(RUNS) for name in equal),
        "kernels": sum(name.startswith("kernel ") for name in equal),
        "exercises": sum(len(facts) for name, facts in equal.items() if name.endswith(" exercises")),
        "figures": sum(name.endswith(", data") for name in equal),
        "drawn values": sum(size for *_, size, _ in drawn),
        "widgets": sum(name.startswith("widget ") for name in equal),
        "printed numbers": sum(len(facts) for name, facts in equal.items() if name.endswith(" numbers")),
    }
    return Comparison(tuple(dict.fromkeys(failed)), tuple(faults), tuple(varying), counts)


def _varies(name: str, runs: list[Facts]) -> bool:
    return any(run.get(name) != runs[0].get(name) for run in runs)


def _difference(english: Any, other: Any) -> str:
    """What one has and the other has not, in a line."""
    both = [Counter(map(str, each)) if isinstance(each, list) else Counter([str(each)]) for each in (english, other)]
    only = [", ".join((one - two).elements())[:MOST_SHOWN] or "nothing else" for one, two in (both, both[::-1])]
    return f"English has {only[0]}; the other language has {only[1]}"


def run(root: Path, path: Path, language: str, solved: bool) -> Facts:
    """The facts of one run: as handed out, or with the right answer in each exercise's cell."""
    notebook = nbformat.read(path, as_version=4)
    if solved:
        fill_in(notebook, answers(root))
    with tempfile.TemporaryDirectory() as folder:
        kernels = Path(folder) / KERNELS
        environment = os.environ | {
            "NNCOURSE_LANG": language,
            "NNCOURSE_MY_KERNELS": str(kernels),
            "NNCOURSE_SOLVE": "",
        }
        environment |= {"PYTHONPATH": str(root), "NNCOURSE_STRICT": "1" if solved else ""}
        notebook = on_screen.run(notebook, str(path.parent), environment, HOOK)
        facts = [*of_kernels(kernels), *of_cells(notebook.cells, folder), *of_widgets(notebook)]
    return {name: fact for name, fact in facts if name not in OF_WORDS.get(path.stem, ())}


def answers(root: Path) -> dict[tuple[str, str], str]:
    """A right answer to each exercise: those of the tests."""
    tables = [tomllib.loads(file.read_text("utf-8")) for file in (root / "tests" / "exercises").glob("*.toml")]
    return {(each["operation"], each["kernel"]): each["text"].strip() for table in tables for each in table["right"]}


def fill_in(notebook: Any, right: dict[tuple[str, str], str]) -> None:
    """Write the answers into the cells, below the comments that stand there, as a student does."""
    for cell in notebook.cells:
        found = EXERCISE.search(cell.source) if cell.cell_type == "code" else None
        if found:
            operation, kernel = filter(None, found.groups())
            cell.source = _answered(cell.source, found, right[operation, kernel])


def _answered(source: str, found: re.Match, answer: str) -> str:
    in_cuda = found[0].startswith("%%cuda")
    lines = source[found.start() :].splitlines()
    mark = "//" if in_cuda else "#"
    comments = [line[line.index(mark) :] for line in lines[1:] if mark in line]
    if in_cuda:
        return "\n".join([lines[0], *comments, answer])
    first = next(node for node in ast.parse(answer).body if isinstance(node, ast.FunctionDef)).body[0]
    before, after = answer.splitlines()[: first.lineno - 1], answer.splitlines()[first.lineno - 1 :]
    inner = [" " * first.col_offset + comment for comment in comments]
    return source[: found.start()] + "\n".join([lines[0], *before, *inner, *after])


def of_kernels(folder: Path) -> Iterator[tuple[str, Any]]:
    """The kept kernels' code without comments and docstrings; how they are launched; the verdict of each attempt."""
    for path in sorted([*folder.glob("*.py"), *folder.glob("*.cu")]):
        yield f"kernel {path.name}", code(path.name, path.read_text("utf-8"))
    record = folder / "progress.json"
    kept = json.loads(record.read_text("utf-8")) if record.is_file() else {}
    yield "kept", {key: entry.get("launch") for key, entry in kept.items()}
    made = folder / "attempts.jsonl"
    attempts = map(json.loads, made.read_text("utf-8").splitlines()) if made.is_file() else ()
    yield "attempts", [(each["key"], each["kind"]) for each in attempts]


def code(name: str, text: str) -> str:
    """A kernel's code without comments and docstrings."""
    if name.endswith(".cu"):
        return cuda_text.without_comments(text)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def of_cells(cells: list, folder: str) -> Iterator[tuple[str, Any]]:
    """Of each cell: that it ran, figures, states of exercises, and the printed numbers in order of size.

    In order of size, since another language may say them in another order.
    """
    for cell in cells:
        if cell.cell_type != "code" or cell.id == on_screen.HOOK_CELL:
            continue
        shown = [output for output in cell.outputs if output.get("name") != "stderr"]
        errors = [f"{output.ename}: {output.evalue}" for output in shown if output.output_type == "error"]
        yield f"{cell.id}{RUNS}", " ".join(errors)
        said = "\n".join(next(on_screen.of_output(output), "") for output in shown).replace(folder, "")
        figures, text = _figures(said)
        yield f"{cell.id} pictures", sum("image/png" in output.get("data", {}) for output in shown)
        for number, figure in enumerate(figures, 1):
            yield f"{cell.id} figure {number}, parts", [part[:3] for part in figure]
            yield f"{cell.id} figure {number}, data", figure
        yield f"{cell.id} exercises", sorted(SIGN.findall(text))
        yield f"{cell.id} numbers", numbers(text)


def _figures(said: str) -> tuple[list[list], str]:
    """The data of figures among what a cell printed, each once, and the rest."""
    pattern = re.compile(rf"\n{drawn_data.MARK}(.*)\n")
    figures = [json.loads(each) for each, _ in groupby(pattern.findall(said))]
    return figures, pattern.sub("", said)


def numbers(text: str) -> list[str]:
    """The numbers in a text, sorted; without the numbers of lines in files."""
    return sorted(NUMBER.findall(LINE.sub("", text)))


def of_widgets(notebook: Any) -> Iterator[tuple[str, list]]:
    """The numbers in the state of each widget, and in its texts."""
    state = notebook.metadata.get("widgets", {}).get(on_screen.WIDGETS, {}).get("state", {})
    for number, model in enumerate(state.values(), 1):
        parts = {name: value for name, value in model["state"].items() if not on_screen.NO_TEXTS.search(name)}
        held = [each["data"] for each in model.get("buffers", ())]
        yield f"widget {number}, {model['model_name']}", sorted([*_in_value(parts), *held])


def _in_value(value: Any) -> Iterator[str]:
    """The numbers in a trait; ends of floats that no text shows are dropped."""
    if isinstance(value, str) and not value.startswith(REFERENCE):
        yield from numbers(on_screen.page(value) if "<" in value else value)
    elif isinstance(value, float | int):
        yield f"{value:.7g}"
    elif isinstance(value, dict | list | tuple):
        parts: Iterable = value.values() if isinstance(value, dict) else value
        for part in parts:
            yield from _in_value(part)
