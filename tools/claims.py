"""Check what the notebooks claim, and for how many seeds it holds: python tools/claims.py [09 14] [--list]

Each line has a claim, its evidence, and the seeds for which it holds. With --list nothing is run: it prints the
sentences that have no evidence. claims/__init__.py says what counts as evidence.
"""

import argparse
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from claims import SEEDS, Claim  # noqa: E402
from nnclassroom.handing_out.notebook_files import parsed  # noqa: E402

FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
FORMULA, CODE, TAG = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL), re.compile(r"`[^`]*`"), re.compile(r"<[^>]+>")
BLOCKS = re.compile(
    r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.) ?)"
)  # paragraphs, and the items of a list or the rows of a table
SENTENCES = re.compile(r"(?<=[.!?])[\s)*_”]+(?=[A-Z“*_(])")
# Numbers in words of the course: (3a), notebook 05, exercise 2, the year 1958, a neuron 2-3-1, matrices of 3 × 4.
NAMES = re.compile(
    r"\(\d+[a-z]?\)|\b[Nn]otebooks? \d+\w?(?:(?:, | and | to )\d+\w?)*|\b(?:19|20)\d\d\b|\d+(?:-\d+)+"
    r"|\d[\d,]* ?× ?\d[\d,]*|\b(?:float|int|bf|tf|fp|TF|BF|FP)\d+|\b[A-Z][A-Za-z]+-?\d+\b|\b0\d[a-c]?\b"
)
PICTURE = re.compile(r"base64,[A-Za-z0-9+/=]+")  # its bytes are no evidence, whatever digits they spell
NUMBER = re.compile(r"(?<![\w.])[−-]?\d+(?:[, ]\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")
UNIT = re.compile(r"\s*(?:%|per cent|times\b|×|[mµn]?s\b|seconds?\b|[KMGT]B\b|[GT]FLOP)")
STRONG = re.compile(r"\b(?:never|always|(?<!at )most|because|times as|twice as)\b", re.IGNORECASE)


class Sentence(NamedTuple):
    """A sentence that claims something, and the cell it stands in."""

    cell: str
    text: str


class Notebook(NamedTuple):
    """What is looked at in one notebook."""

    cells: dict[str, str]  # the text of each markdown cell, on one line
    open: list[Sentence]  # that claim something and have no evidence
    count: int  # sentences that claim something


def module_of(notebook: Path) -> str:
    """The module of its claims: 09_optimisers.ipynb has claims.nb09."""
    return f"claims.nb{notebook.stem.partition('_')[0]}"


def claims_of(notebook: Path) -> list[Claim]:
    """The claims of a notebook; none if it has no module."""
    name = module_of(notebook)
    if not (ROOT / f"{name.replace('.', '/')}.py").exists():
        return []
    claims: list[Claim] = importlib.import_module(name).CLAIMS
    return claims


def sentences(source: str) -> Iterator[str]:
    """The sentences of a markdown cell without code, formulas and tags."""
    text = TAG.sub(" ", CODE.sub(" ", FORMULA.sub(" ", FENCE.sub("", source))))
    for block in BLOCKS.split(text):
        if not block.lstrip().startswith("#"):  # a heading claims nothing
            yield from SENTENCES.split(on_one_line(block))


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def numbers(text: str) -> Iterator[str]:
    """The numbers of a text as digits, with two digits or more, or with a unit behind them."""
    for match in NUMBER.finditer(NAMES.sub(" ", text)):
        digits, unit = _plain(match[0]), UNIT.match(text_after(text, match[0]))
        if len(re.sub(r"\D", "", digits)) > 1 or unit:
            yield digits


def text_after(text: str, part: str) -> str:
    return text.partition(part)[2]


def looked_at(path: Path) -> Notebook:
    """The sentences of a notebook that claim something, and those of them that have no evidence."""
    cells: dict[str, str] = {}
    unproved, count = [], 0
    claims, sections = claims_of(path), _shown_by_section(path)
    for cell in parsed(path.read_bytes(), path.name).cells:
        if cell.cell_type != "markdown":
            continue
        cells[cell.id] = on_one_line(cell.source)
        said = [claim.says for claim in claims if claim.cell == cell.id]
        for text in sentences(cell.source):
            there = list(numbers(text))
            if text.rstrip().endswith("?") or not there and not STRONG.search(text):
                continue
            count += 1
            proved = any(_without_marks(words) in text for words in said)
            beside = not STRONG.search(text) and all(_in(number, sections[cell.id]) for number in there)
            if not (proved or beside):
                unproved.append(Sentence(cell.id, text))
    return Notebook(cells, unproved, count)


def _without_marks(words: str) -> str:
    """Words as sentences() has them."""
    return on_one_line(TAG.sub(" ", CODE.sub(" ", FORMULA.sub(" ", words))))


def _shown_by_section(path: Path) -> dict[str, list[float]]:
    """For each cell the numbers in the code, outputs and formulas of its section, from one heading to the next."""
    groups: list[list[Any]] = [[]]
    for cell in parsed(path.read_bytes(), path.name).cells:
        if cell.cell_type == "markdown" and re.search(r"^#+ ", cell.source, re.MULTILINE) and groups[-1]:
            groups.append(groups[-1][-2:])  # an answer stands above the next heading
        groups[-1].append(cell)
    shown: dict[str, list[float]] = {}
    for group in groups:
        there = [number for cell in group for number in _numbers_in(_shown(cell))]
        shown |= {cell.id: there for cell in group if cell.id not in shown}
    return shown


def _shown(cell: Any) -> str:
    if cell.cell_type == "markdown":
        return " ".join(part for kind in (FENCE, FORMULA, CODE) for part in kind.findall(cell.source))
    texts = [cell.source]
    for output in cell.outputs:
        data = output.get("data", {})
        texts += [output.get("text", ""), *(str(data[kind]) for kind in data if kind in ("text/plain", "text/html"))]
    return PICTURE.sub("", "\n".join(texts))


def _in(number: str, shown: Sequence[float]) -> bool:
    """Whether a number is among those shown, rounded as it is here."""
    places = len(number.partition(".")[2])
    return any(round(other, places) == float(number) for other in shown)


def _numbers_in(text: str) -> list[float]:
    return [float(_plain(each)) for each in NUMBER.findall(text)]


def _plain(number: str) -> str:
    return re.sub(r"[, ]", "", number).replace("−", "-")


def tried(claim: Claim) -> tuple[int, int] | None:
    """In how many of how many tries the words hold; None if there is nothing to run."""
    if claim.once:
        return int(claim.once()), 1
    if claim.seeds:
        return sum(map(claim.seeds, SEEDS)), len(SEEDS)
    return None


def shown(claim: Claim, result: tuple[int, int] | None) -> str:
    """A line of the table."""
    holds = "  –  " if result is None else f"{result[0]} of {result[1]}"
    mark = "✗" if result and result[0] < result[1] else " "
    return f"{mark} {holds:6}  {claim.cell}: {claim.says}\n{'':10}{claim.evidence}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit status is 1 if a claim does not hold, or, with --list, if one has no evidence."""
    parser = argparse.ArgumentParser(description="check what the notebooks claim")
    parser.add_argument(
        "notebooks", nargs="*", metavar="NOTEBOOK", help="number of a notebook, such as 09 (default: all)"
    )
    parser.add_argument("--list", action="store_true", help="only print the sentences that have no evidence")
    options = parser.parse_args(arguments)
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    known = {path.stem.partition("_")[0]: path for path in paths}
    for number in options.notebooks:
        if number not in known:
            parser.error(f"expected one of {', '.join(known)}; got {number!r}")
    failed = 0
    for number in options.notebooks or known:
        path = known[number]
        notebook, claims = looked_at(path), claims_of(path)
        print(f"{path.stem}: {notebook.count} sentences, {len(claims)} claims, {len(notebook.open)} without evidence")
        if options.list:
            failed += len(notebook.open)
            print(*(f"  {each.cell}: {each.text}" for each in notebook.open), sep="\n")
            continue
        for claim in claims:
            result = tried(claim)
            failed += result is not None and result[0] < result[1]
            print(shown(claim, result), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    os.environ.setdefault("NNCOURSE_MY_KERNELS", str(ROOT / "build" / "no_kernels"))
    sys.exit(main())
