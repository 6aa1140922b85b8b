"""The test before and after the course: its forms on paper and as a notebook, and the gains of made classes."""

import csv
import re

import nbformat
import numpy as np
import pytest
from refusals import refused

from nnmarking import concept_forms, gains
from nnmarking.commands import concepts as command
from nnmarking.concepts import FORMS, LETTERS


def table(path, rows, encoding="utf-8", delimiter=","):
    """A table of answers: (student, form, letters)."""
    with open(path, "w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=delimiter).writerows(
            [["student", "form", *range(1, 13)], *([who, form, *has] for who, form, has in rows)]
        )
    return path


def letters(form, right, slips=()):
    """The right letters of the questions `right`, the misconception's of `slips`, and no answer for the others."""
    return [
        question.right if n in right else question.slip if n in slips else ""
        for n, question in enumerate(FORMS[form], 1)
    ]


def test_both_forms_ask_for_the_same_things_and_have_one_right_answer_each():
    assert len(FORMS["A"]) == len(FORMS["B"]) == 12
    for one, other in zip(*FORMS.values(), strict=True):
        assert one.topic == other.topic and one.text != other.text
        for question in (one, other):
            assert {question.right, question.slip} <= set(LETTERS) and question.right != question.slip
            assert len(set(question.choices)) == 4 and question.misconception
    rights = [question.right for form in FORMS.values() for question in form]
    assert len(set(rights)) > 2


@pytest.mark.parametrize("form", FORMS)
def test_paper_has_all_questions_and_does_not_tell_the_answers(form, capsys):
    assert command.run(options(paper=form)) == 0
    said = capsys.readouterr().out
    assert len(re.findall(r"^\*\*\d+\.\*\*", said, re.MULTILINE)) == 12 and said.count("- a) ") == 12
    assert not any(question.misconception in said for question in FORMS[form])


def options(**given):
    from argparse import ArgumentParser

    parser = ArgumentParser()
    command.add_options(parser)
    found = parser.parse_args([])
    vars(found).update(given)
    return found


def test_a_notebook_writes_a_row_that_is_read(tmp_path, monkeypatch):
    path = tmp_path / "test.ipynb"
    assert str(path) in concept_forms.write("B", path)
    cells = nbformat.read(path, 4).cells
    monkeypatch.chdir(tmp_path)
    names = {}
    for text in [cell.source for cell in cells if cell.cell_type == "code"]:
        exec(text.replace('student = ""', 'student = "Ada"').replace('q2 = ""', 'q2 = "b"'), names)
    assert gains.read(tmp_path) == {"Ada": gains.Answers("B", ("", "b", *[""] * 10))}


def test_gains_are_those_of_the_students_in_both_tables(tmp_path):
    before = [
        ("Ada", "A", letters("A", {1, 2, 3})),
        ("Bo", "B", letters("B", {1}, {9})),
        ("Cy", "A", letters("A", {1})),
    ]
    after = [
        ("Ada", "B", letters("B", range(1, 10))),
        ("Bo", "A", letters("A", range(1, 8), {9})),
        ("Di", "A", [""] * 12),
    ]
    first, second = (gains.read(table(tmp_path / name, rows)) for name, rows in (("b.csv", before), ("a.csv", after)))
    said = "\n".join(gains.report(first, second))
    assert "2 students took both tests; 2 took one" in said
    share = (3 + 1) / 24, (9 + 7) / 24
    assert f"right before {share[0]:.0%}, after {share[1]:.0%}" in said
    assert f"gain {(share[1] - share[0]) / (1 - share[0]):.2f}, between" in said
    assert re.search(r"chain rule +100% +100%", said) and re.search(r"shapes +50% +100% +1.00", said)
    assert re.search(r"^ +1 +1  only one thread at a time runs a line", said, re.MULTILINE)


def test_bounds_hold_the_true_gain_of_most_classes():
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(20):
        before, after = rng.binomial(12, 0.3, 30) / 12, rng.binomial(12, 0.65, 30) / 12
        low, high = gains.bounds(before, after)
        held += low <= 0.5 <= high
    assert held >= 16  # 19 are expected


def test_tables_of_spreadsheets_are_read(tmp_path, capsys):
    given = [("Íñigo", "A", letters("A", {1, 12})), ("Ana", "b", [" B "] * 12)]
    wanted = {"Íñigo": gains.Answers("A", tuple(given[0][2])), "Ana": gains.Answers("B", ("b",) * 12)}
    for encoding, delimiter in (("cp1252", ";"), ("utf-16", "\t"), ("utf-8-sig", ",")):
        assert gains.read(table(tmp_path / "x.csv", given, encoding, delimiter)) == wanted
    assert capsys.readouterr().out.count("read as Windows-1252") == 1


def test_wrong_tables_are_refused_in_a_line(tmp_path):
    right = ("Ada", "A", ["a"] * 12)
    for rows, said in (
        ([("Ada", "C", ["a"] * 12)], "form A or B"),
        ([("Ada", "A", ["e"] * 12)], "letters from a to d"),
        ([right, right], "line 3"),
        ([("", "A", ["a"] * 12)], "line 2"),
    ):
        assert said in refused(gains.read, table(tmp_path / "x.csv", rows))
    (tmp_path / "y.csv").write_text("student;form\n", "utf-8")
    assert "expected the columns" in refused(gains.read, tmp_path / "y.csv")
    one, other = ({name: gains.Answers("A", ("",) * 12)} for name in ("Ada", "Bo"))
    assert "in both tables" in refused(gains.report, one, other)
    assert "expected --paper A" in refused(command.run, options())
