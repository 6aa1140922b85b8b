"""Estimate how long a notebook takes a reader, with one formula: `python tools/lengths.py` prints all estimates.

With --write it first corrects the hours in the notebooks' first cells and in README's list.

minutes = words / 37 + 2 · the lines of its exercises

The two numbers are fitted to the estimates of readers who solved everything in each notebook. The hours differ from
these by at most a quarter, most in 05: 2½ where readers estimated 3¼. With a third number, for each exercise or each
cell, that would be a sixth.

The words are those of all Markdown cells. An exercise is a cell with `your code here: about 6 lines`, and these are its
lines. An exercise below a heading with "if you like" is optional, and takes no time. A notebook's first cell states the
hours, to a quarter: "Time: about 2¼ hours."
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnclassroom.handing_out.notebook_files import parsed
from nncourse.errors import CourseError
from nncourse.language import ROOT

READING, WRITING = 1 / 37, 2  # minutes for a word, and for a line of an exercise
STATED = re.compile(r"\bTime: about ((?:half an|[\d¼½¾]+) hours?)\b")
BLANK, LINES = "your code here", re.compile(r"your code here: (?:about )?(?:\d+ to )?(\d+) lines?\b")
HEADING = re.compile(r"^#+ .*", re.MULTILINE)
FRACTIONS = ("", "¼", "½", "¾")


@dataclass(frozen=True)
class Length:
    """What the formula counts in one notebook."""

    notebook: str
    words: int
    cells: int
    exercises: tuple[int, ...]  # the lines of each
    stated: str  # what its first cell says, such as "2¼ hours"; "" if it says nothing in this form

    @property
    def minutes(self) -> float:
        return READING * self.words + WRITING * sum(self.exercises)

    @property
    def hours(self) -> float:
        return max(round(self.minutes / 15), 1) / 4


def length(path: Path) -> Length:
    """The length of a notebook. CourseError if one of its exercises does not say how many lines it wants."""
    cells = parsed(path.read_bytes(), path.name).cells
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    stated = STATED.search(texts[0]) if texts else None
    words = sum(any(map(str.isalnum, word)) for text in texts for word in text.split())
    return Length(path.stem, words, len(cells) - len(texts), _exercises(path.name, cells), stated[1] if stated else "")


def _exercises(notebook: str, cells: Sequence[Any]) -> tuple[int, ...]:
    """The lines of each exercise, without extra ones."""
    found, extra = [], False
    for cell in cells:
        if cell.cell_type == "markdown":
            headings = HEADING.findall(cell.source)
            extra = "if you like" in headings[-1].lower() if headings else extra
        elif BLANK in cell.source and not extra:
            lines = LINES.search(cell.source)
            if not lines:
                raise CourseError(f"{notebook}, cell {cell.id}: expected `{BLANK}: about 6 lines`, with a number")
            found.append(int(lines[1]))
    return tuple(found)


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
        exercises = f"{len(each.exercises):>10} {sum(each.exercises):>6}"
        hours = in_words(each.hours)
        differs = "" if each.stated == hours else f"; its head says {each.stated or 'nothing in this form'}"
        counted = f"{each.notebook:28} {each.words:>6} {each.cells:>6} {exercises} {each.minutes:>8.0f}"
        lines.append(f"{counted}  {hours}{differs}")
    return lines


def write_hours(path: Path) -> None:
    """Correct the hours that a notebook's head states; what is not stated is not added."""
    found, hours = length(path), in_words(length(path).hours)
    if found.stated and found.stated != hours:
        text = path.read_text("utf-8")
        path.write_text(STATED.sub(lambda match: match[0].replace(match[1], hours), text, count=1), "utf-8")
    readme, number = ROOT / "README.md", path.stem.partition("_")[0]
    row = re.compile(rf"^(\| \[{number} .*\| )[\d¼½¾]+( \|)$", re.MULTILINE)
    readme.write_text(row.sub(rf"\g<1>{hours.partition(' ')[0]}\g<2>", readme.read_text("utf-8")), "utf-8")


def main(arguments: Sequence[str]) -> int:
    """Print the table of these notebooks, or of all, after --write; the exit status."""
    named = [Path(name) for name in arguments if name != "--write"]
    paths = named or sorted((ROOT / "notebooks").glob("*.ipynb"))
    try:
        for path in paths if "--write" in arguments else ():
            write_hours(path)
        print("\n".join(table([length(path) for path in paths])))
    except (CourseError, OSError) as error:
        print(f"lengths: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
