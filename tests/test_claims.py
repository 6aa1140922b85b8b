"""What the notebooks claim has evidence: tools/claims.py finds it, and it holds."""

import copy
import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from claims import SEEDS, Claim
from nnclassroom.figures import overheads
from nncourse import datasets
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


def idle_twice(found):
    for each in found["records"]:
        for gpu in each["energies"]:
            gpu["idle_watts"] = 2 * gpu.get("idle_watts", 0)


def at_one_rate(found):
    for trip in found["transfers"]:
        trip["back"] = trip["bytes"] / 6e9


def kernels_swapped(found):
    names = {"swapped": "naive", "naive": "swapped"}
    for row in found["weight_gradients"]:
        row["kernel"] = names.get(row["kernel"], row["kernel"])


PLANTED = [  # notebook, words, the results file, and what becomes of it
    ("03b", "waits about 700 cycles", "waits", lambda found: found["latencies"].update({"global memory": 1400})),
    ("03b", "16 is faster than 8 at 1,024³", "waits", lambda found: found["tiles"].update({"8": 1e-5})),
    ("03b", "was right at 64³", "waits", lambda found: found["lost_barrier"].update({"1024": [0] * 5})),
    ("04", "It is 70 times faster", "overheads", lambda found: found["sums"].update(cupy=found["sums"]["tree"])),
    ("05b", "2.6 times as long", "overheads", kernels_swapped),
    ("08", "get slower from 64 MB on", "overheads", at_one_rate),
    ("13", "idle H200s took 115", "devices_gpu", idle_twice),
    ("14", "An H200 copied 4.3 TB", "gpu", lambda found: found["limits"].update(copy=2e12)),
]
SHUFFLED = [  # notebook, and words that do not hold where each image has the label of another
    ("03", "read more than 90 of a hundred digits"),
    ("04", "About ninety of a hundred unseen digits"),
    ("09", "About 90 per cent with the digits that ship"),
]


def anew(notebook: str, words: str) -> Claim:
    """A claim from a module of its own, which remembers no data."""
    spec = importlib.util.find_spec(f"claims.nb{notebook}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return next(claim for claim in module.CLAIMS if words in claim.says)


@pytest.mark.parametrize(("notebook", "words", "file", "change"), PLANTED, ids=[row[1] for row in PLANTED])
def test_another_record_breaks_the_words_that_quote_it(monkeypatch, notebook, words, file, change):
    assert anew(notebook, words).once()
    found = copy.deepcopy(overheads.recorded(file))
    change(found)
    recorded = overheads.recorded
    monkeypatch.setattr(overheads, "recorded", lambda name: found if name == file else recorded(name))
    assert not anew(notebook, words).once()


@pytest.mark.full
@pytest.mark.parametrize(("notebook", "words"), SHUFFLED)
def test_shuffled_labels_break_the_words_about_reading(monkeypatch, notebook, words):
    for name in ("load", "mnist"):
        monkeypatch.setattr(datasets, name, shuffled(getattr(datasets, name)))
    assert not anew(notebook, words).seeds(1)


def shuffled(loads):
    """A function that loads the same data with their targets in another order."""

    def loaded(*arguments, **options):
        data = loads(*arguments, **options)
        return replace(data, Y=np.random.default_rng(0).permutation(data.Y))

    return loaded
