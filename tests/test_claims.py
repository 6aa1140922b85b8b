"""What the notebooks claim has evidence: tools/claims.py finds it, and it holds."""

import json
from pathlib import Path

import pytest

from claims import SEEDS, Claim
from nncourse.language import ROOT
from tests import tiers
from tools import claims

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_claim_names_words_of_its_cell_and_one_evidence(path):
    cells = claims.looked_at(path).cells
    for claim in claims.claims_of(path):
        assert cells.get(claim.cell, "").count(claim.says) == 1, (claim.cell, claim.says)
        assert sum(map(bool, (claim.seeds, claim.once, claim.why))) == 1, claim
        assert not claim.why or claim.why == "guess" or claim.why.startswith(("derived: ", "source: ", "definition: "))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_sentence_is_without_evidence(path):
    assert [f"{cell}: {text}" for cell, text in claims.looked_at(path).open] == []


@pytest.mark.full
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_a_commit_touches_holds(path):
    """`make claims` tries all."""
    changed = tiers.choose(ROOT, "full", []).changed
    if not changed & {f"notebooks/{path.name}", f"{claims.module_of(path).replace('.', '/')}.py"}:
        pytest.skip("neither the notebook nor its claims have changed since the commit before")
    for claim in claims.claims_of(path):
        held, tries = claims.tried(claim) or (1, 1)
        assert held == tries, claims.shown(claim, (held, tries))


def written(tmp_path: Path, *cells: str) -> Path:
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": []}
    for number, source in enumerate(cells):
        kind = "code" if source.startswith("print") else "markdown"
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source}
        notebook["cells"].append(cell | ({"outputs": [], "execution_count": None} if kind == "code" else {}))
    path = tmp_path / "99_other.ipynb"
    path.write_text(json.dumps(notebook), "utf-8")
    return path


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (("It reads 95 % of them.",), ["It reads 95 % of them."]),
        (("print(95.2)", "It reads 95 of them."), []),  # rounded
        (("print(94.2)", "It reads 95 of them."), ["It reads 95 of them."]),
        (("# A\n\nText.", "print(95)", "## B\n\nIt reads 95 of them. So it is.", "More."), []),  # an answer
        (("print(95)", "# A", "text", "## B", "text", "It reads 95 of them."), ["It reads 95 of them."]),
        (("Adam is never slower.",), ["Adam is never slower."]),
        (("print([64, 256, 1024])", "Of 64, 256 and 1,024 threads. Notebook 12 has 64."), []),
        (("At most one, in notebook 05, by (3a), since 1958, for 2-3-1 and float32.",), []),
        (("Does it read 95 %?",), []),
        (("It has `95` and $w = 95$ of them.",), []),
    ],
)
def test_sentences_without_evidence_are_found(tmp_path, cells, found):
    assert [text for _, text in claims.looked_at(written(tmp_path, *cells)).open] == found


def test_the_table_says_in_how_many_seeds_a_claim_holds():
    claim = Claim("cell", "words", seeds=lambda seed: seed < 3)
    assert claims.tried(claim) == (2, len(SEEDS)) and claims.shown(claim, (2, 5)).startswith("✗ 2 of 5")
    assert claims.tried(Claim("cell", "words", once=lambda: True)) == (1, 1)
    assert claims.tried(Claim("cell", "words", why="guess")) is None
