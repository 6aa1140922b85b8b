"""No verdict uses a term before its notebook: the table of terms, and what is left out.

test_answers.py and test_judge.py look for such terms in the verdict on each wrong answer.
"""

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.terms import TERM_WORDS, unknown_to
from nnclassroom.judge.verdict import Verdict
from nnclassroom.judge.words import without, words_of
from tests.exercise_answers import WRONG, in_cuda
from tools.translation import catalogue

ROOT = Path(__file__).resolve().parents[1]
LANGUAGE = "es"
EARLY = "tile|atomic"
TERMS = [(notebook, word) for notebook, words in TERM_WORDS.items() for word in words.split(", ")]
RACE = """extern "C" __global__ void sigmoid(const float* z, float* a, int n) {
    int i = threadIdx.x / 2;
    if (i < n) a[i] = 1.0f / (1.0f + expf(-z[i]));
}
"""
IN_SPANISH = """
import json, re, sys
from nnclassroom.exercises.catalogue import find
from nnclassroom.notebook import cuda_cell, exercise

for given in json.load(open(sys.argv[1])):
    operation = find(given["operation"])
    launch = cuda_cell.launch_options(operation, cuda_cell.parsed(given["line"]))
    verdict = exercise.judged(operation, given["kernel"], given["text"], launch)[1]
    if verdict.unknown and re.search(verdict.unknown, verdict.line):
        print(verdict.line)
print("all", verdict.line)
"""


@pytest.mark.parametrize(("notebook", "word"), TERMS)
def test_a_notebook_introduces_its_terms(notebook, word):
    path = next((ROOT / "notebooks").glob(f"{notebook}_*.ipynb"))
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
    assert re.search(rf"(?i)\b{re.escape(word)}", text)


def test_what_an_exercise_does_not_know():
    unknown = unknown_to("sigmoid", "naive", "")
    assert all(re.search(unknown, text) for text in ("use __syncthreads()", "two barriers", "atomicAdd", "float16"))
    assert not re.search(unknown, "a warp of threads in shuffled order")
    assert not re.search(unknown_to("mse", "shuffle", ""), "barriers, shuffles")
    assert re.search(unknown_to("dense_forward", "tiled", ""), "shuffles") and not unknown_to("sigmoid", "mine", "")
    own = unknown_to("sigmoid", "naive", "__shared__ float a;")
    assert "barrier" not in own and "atomic" in own


@pytest.mark.parametrize(
    ("line", "own", "left"),
    [
        ("no tile; wrong; a tile; use atomicAdd", "", "no tile; wrong"),
        ("wrong; in the line: x; tile = 1; atomics", "x; tile = 1", "wrong; in the line: x; tile = 1"),
        ("does not compile\nx.cu:1: error: a tile; expected", "", "does not compile\nx.cu:1: error: a tile; expected"),
        ("right\n  right, but a tile\n  right, but slow", "", "right\n  right, but slow"),
    ],
)
def test_clauses_with_other_terms_are_left_out(line, own, left):
    assert without(line, EARLY, own) == left


def test_a_race_in_notebook_02_is_told_of_its_index_alone(emulator):
    """And where it is no exercise, or in a later notebook, of what to do if the index is right."""
    operation = kept_kernels.find("sigmoid")
    first = kept_kernels.judged(operation, "naive", RACE, {"block": [256]})
    assert first.line.endswith("check the index") and "barrier" not in first.line
    mine = kept_kernels.judged(operation, "mine", RACE, {"block": [256]})
    assert mine.line.endswith("check the index; if it is right, use atomicAdd or __syncthreads()")


def test_shuffles_are_named_to_one_who_uses_them():
    facts = {"wrong": 1, "size": 1, "place": "C", "got": "nan", "expected": "1", "nan": "shared", "block": 32}
    assert "shuffle" not in words_of("wrong value", facts)
    assert words_of("wrong value", facts | {"shuffles": True}).endswith("a lane that takes no part?")


def test_what_a_reader_does_not_know_goes_with_the_verdict():
    verdict = Verdict("relu", "numpy", "traffic", {"said": "slow; a tile"}, unknown=EARLY)
    assert pickle.loads(pickle.dumps(verdict)).line == verdict.line == "relu (numpy): the sums are right, but slow"


@pytest.mark.parametrize("name", ["nnclassroom_judge", "cuda_on_cpu"])
def test_a_translated_clause_has_the_terms_of_the_english_one(name):
    def terms(text: str, words: dict[str, str]) -> list[set[str]]:
        clauses = re.sub(r"\{[^{}]*\}", "", text).split("; ")
        found = [{notebook for notebook, word in words.items() if _has(clause, word)} for clause in clauses]
        return list(filter(None, found))

    def _has(clause: str, word: str) -> bool:
        return any(re.search(rf"\b{re.escape(each)}", clause) for each in word.split(", "))

    folder = ROOT / "locale" / LANGUAGE
    theirs = {said.text: said.string for said in catalogue.read(folder / "nnclassroom_exercises.po", LANGUAGE)}
    of_spanish = {notebook: theirs[words] for notebook, words in TERM_WORDS.items()}
    said = catalogue.read(folder / f"{name}.po", LANGUAGE)
    other = [each.text for each in said if terms(each.text, TERM_WORDS) != terms(each.string, of_spanish)]
    assert not other and len(said) > 100


@pytest.mark.full
def test_no_term_is_too_early_in_spanish(spanish, emulator, tmp_path):
    """All wrong answers in CUDA C: words about memory, barriers and atomics are for them."""
    (tmp_path / "in_spanish.py").write_text(IN_SPANISH, "utf-8")
    (tmp_path / "wrong.json").write_text(json.dumps([each for each in WRONG if in_cuda(each)]), "utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NNCOURSE_LANG": spanish}
    environment["NNCOURSE_MY_KERNELS"] = str(tmp_path / "kernels")
    command = [sys.executable, "in_spanish.py", "wrong.json"]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("all ") and "se esperaba" in told.stdout
