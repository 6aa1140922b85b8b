"""Answers to the exercises: tests/exercises/NN_notebook.toml, a right one of each and wrong ones."""

import tomllib
from pathlib import Path

FILES = sorted((Path(__file__).parent / "exercises").glob("*.toml"))
TABLES = {file.stem: tomllib.loads(file.read_text("utf-8")) for file in FILES}
RIGHT = [right for tables in TABLES.values() for right in tables["right"]]
WRONG = [wrong | {"file": stem} for stem, tables in TABLES.items() for wrong in tables["wrong"]]


def in_cuda(answer: dict) -> bool:
    """Whether an answer is in CUDA C: it is judged on a GPU where there is one."""
    return "line" in answer
