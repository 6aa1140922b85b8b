"""How long a notebook takes a reader, by one formula: `python -m nncourse.classroom.lengths` prints all.

minutes = words / 100 + 2/3 · code cells + Σ over its exercises (5 + lines of the package's own answer)

Words are those of all markdown cells; lines are those of code, without comments and decorators. A notebook's first cell
states the hours, rounded up to a quarter: "Time: about 2¼ hours."
"""

import ast
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nncourse.classroom.course import by_notebook, solution_text
from nncourse.classroom.version import PACKAGE
from nncourse.errors import CourseError
from nncourse.kernels.catalogue import find
from nncourse.kernels.kernel import CudaKernel

READING, RUNNING, EXERCISE = 1 / 100, 2 / 3, 5.0  # minutes for a word, a code cell, and an exercise besides its lines
STATED = re.compile(r"\bTime: (?:about )?((?:half an|[\d¼½¾]+) hours?)\.")
FRACTIONS = ("", "¼", "½", "¾")


@dataclass(frozen=True)
class Length:
    """What the formula counts in one notebook."""

    notebook: str
    words: int
    cells: int
    answers: tuple[int, ...]  # lines of each answer
    stated: str  # what its first cell says, such as "2¼ hours"; "" if it says nothing in this form

    @property
    def minutes(self) -> float:
        return READING * self.words + RUNNING * self.cells + sum(EXERCISE + lines for lines in self.answers)

    @property
    def hours(self) -> float:
        return math.ceil(self.minutes / 15) / 4


def length(path: Path) -> Length:
    """The length of a notebook."""
    import nbformat

    cells = nbformat.read(path, as_version=4).cells
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    answers = tuple(answer_lines(each.operation, each.kernel) for each in by_notebook().get(path.stem, ()))
    stated = STATED.search(texts[0]) if texts else None
    words = sum(any(map(str.isalnum, word)) for text in texts for word in text.split())
    return Length(path.stem, words, len(cells) - len(texts), answers, stated[1] if stated else "")


def answer_lines(operation: str, kernel: str) -> int:
    """The lines of the package's own kernel, without blank ones, comments, docstrings and decorators."""
    text = solution_text(operation, kernel)
    if isinstance(find(operation)[kernel], CudaKernel):
        text = re.sub(r"^\s*//.*", "", text, flags=re.MULTILINE)
    else:
        text = _code_alone(text)
    return sum(bool(line.strip()) for line in text.splitlines())


def _code_alone(text: str) -> str:
    """A Python function without its docstring and comments."""
    tree = ast.parse(text)
    function = tree.body[0]
    if isinstance(function, ast.FunctionDef) and ast.get_docstring(function) is not None:
        del function.body[0]
    return ast.unparse(tree)


def in_words(hours: float) -> str:
    """Hours in quarters as a notebook states them: "half an hour", "1 hour", "2¼ hours"."""
    if hours == 0.5:
        return "half an hour"
    whole, quarters = divmod(round(hours * 4), 4)
    return f"{whole or ''}{FRACTIONS[quarters]} hour{'s' if hours > 1 else ''}"


def table(lengths: Sequence[Length]) -> list[str]:
    """The lines of a table, a notebook each."""
    lines = [f"{'notebook':28} {'words':>6} {'cells':>6} {'exercises':>10} {'lines':>6} {'minutes':>8}  hours"]
    for each in lengths:
        counted = f"{each.words:>6} {each.cells:>6} {len(each.answers):>10} {sum(each.answers):>6} {each.minutes:>8.0f}"
        hours = in_words(each.hours)
        differs = "" if each.stated == hours else f"; its head says {each.stated or 'nothing in this form'}"
        lines.append(f"{each.notebook:28} {counted}  {hours}{differs}")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Print the table of these notebooks, or of all; the exit status."""
    paths = [Path(name) for name in arguments] or sorted((PACKAGE.parent / "notebooks").glob("*.ipynb"))
    try:
        print("\n".join(table([length(path) for path in paths])))
    except (CourseError, OSError, ValueError) as error:
        print(f"lengths: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
