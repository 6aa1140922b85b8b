"""tools/translate.py: the same code in another language, catalogues that follow the English, and the switch."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest

from tools.translation import (
    catalogue,
    commands,
    compare,
    cuda_text,
    markdown,
    notebooks,
    package,
    python_text,
    sources,
    stamp,
    units,
)
from tools.translation.words import Words

ROOT = Path(__file__).resolve().parents[1]
SENTENCE = "A neuron adds up what comes in. Then it decides."


@pytest.fixture(scope="module")
def all_sources() -> list[sources.Source]:
    return sources.collect(ROOT)


def flowed(text: str) -> str:
    """A text without its line breaks: paragraphs of docstrings may be wrapped in another way."""
    return " ".join(text.replace("\\n", " ").split())


def test_the_package_said_again_is_the_same_code(all_sources):
    for source in all_sources:
        if source.path.parent == ROOT or source.path.suffix == ".ipynb" or not source.units:
            continue
        english = source.path.read_text("utf-8")
        again = units.replaced(english, source.units, lambda unit: unit.text)
        if source.path.suffix == ".py":
            assert flowed(ast.dump(ast.parse(english))) == flowed(ast.dump(ast.parse(again))), source.file
        elif source.path.suffix != ".md":
            assert package.same_code(source.path, english, again), source.file


def test_the_notebooks_said_again_are_the_same(all_sources):
    books = [source for source in all_sources if source.path.suffix == ".ipynb"]
    assert len(books) == 17
    for source in books:
        english = nbformat.read(source.path, as_version=4)
        again, refused = notebooks.translated(english, source.words, lambda unit: unit.text, "")
        assert not refused
        for cell, other in zip(english.cells, again.cells, strict=True):
            assert cell.id == other.id and cell.metadata == other.metadata
            if cell.cell_type == "markdown":
                assert cell.source.split() == other.source.split()
            elif not cell.source.startswith("%%cuda"):
                plain = [python_text.parsed(each.source).tree for each in (cell, other)]
                assert flowed(ast.dump(plain[0])) == flowed(ast.dump(plain[1])), cell.id


def test_units_are_whole_sentences_without_the_marks_around_them():
    text = "# Title\n\nOne line,\nand the next.\n\n- an item\n  goes on\n\n$$a = 1$$\n"
    text += "\n```\ncode\n```\n\n| `x` | a number |\n"
    said = [unit.text for unit in markdown.units(text)]
    assert said == ["Title", "One line, and the next.", "an item goes on", "| `x` | a number |"]
    code = 'def f(x):\n    """Add. It adds."""\n    # One line\n    # and the next.\n'
    code += '    say(f"got {x} of "\n        "two")\n'
    said = [unit.text for unit in python_text.units(code, Words())]
    assert said == ["Add. It adds.", "One line and the next.", "got {x} of two"]


def test_formulas_are_translated_and_names_of_operations_are_not():
    code = 'made = Operation("bias sum", "db = mean of D over the batch", "D (batch, n) -> db (n,)", f)\n'
    assert [unit.text for unit in python_text.units(code, Words())] == ["db = mean of D over the batch"]


def translated_c(source: str, said: dict[str, str]) -> str:
    found = cuda_text.units(source)
    assert [unit.text for unit in found] == list(said)
    return units.replaced(source, found, lambda unit: said[unit.text])


def test_lists_in_comments_of_c_keep_their_layout():
    source = (
        "//\n// Kernels:\n//   naive  one element a thread\n//   tiled  a block shares\n//          what it reads\n"
    )
    source += "// The end.\nint a;\n"
    items = "naive  one element a thread", "tiled  a block shares what it reads"
    said = dict(zip(("Kernels:", *items, "The end."), "ABCD", strict=True))
    assert translated_c(source, said) == "//\n// A\n//   B\n//   C\n// D\nint a;\n"
    later = "word " * 40
    again = translated_c(source, said | {items[1]: later}).splitlines()
    assert again[3].startswith("//   word") and again[4].startswith("//" + " " * 10 + "word")


def test_long_comments_of_c_are_wrapped_by_paragraph():
    again = translated_c("/* One.\n\n   Two\n   lines. */\n", {"One.": "Uno.", "Two lines.": "dos " * 40})
    assert again.startswith("/* Uno.\n\n   dos ") and again.endswith(" */\n")
    assert max(map(len, again.splitlines())) <= 104 and again.count("\n") == 4


def test_names_in_docstrings_stand_in_lines_of_their_own_and_empty_marks_stay():
    code = '"""Title.\n\nshards   whose\nreduce   all\n"""\n#\n# The place\nx = 1\n'
    found = python_text.units(code, Words())
    assert [unit.text for unit in found] == ["Title.", "shards   whose", "reduce   all", "The place"]
    assert units.replaced(code, found, lambda unit: unit.text) == code


def test_comments_in_fences_of_markdown_are_units():
    cell = nbformat.v4.new_markdown_cell("Look:\n\n```python\nx = 1  # one of them\n```\n", id="shown")
    again, refused = notebooks.translated(nbformat.v4.new_notebook(cells=[cell]), Words(), lambda _: "así", "es")
    assert not refused and again.cells[0].source == "así\n\n```python\nx = 1  # así\n```\n"


def test_comments_and_printed_sentences_in_the_code_of_a_document_are_units():
    typed = "Type:\n\n    make lab   # opens it\n    cd course && make test\n"
    text = f"{typed}\nIt says:\n\n    loops  cpu\n    ✗ no: 1 of them wrong\n"
    found = markdown.units_in_code(text)
    assert [(unit.text, unit.kind) for unit in found] == [("opens it", "comment"), ("✗ no: 1 of them wrong", "output")]
    assert units.replaced(text, found, lambda unit: unit.text.upper()) == text.replace("opens it", "OPENS IT").replace(
        "✗ no: 1 of them wrong", "✗ NO: 1 OF THEM WRONG"
    )


def small_course(root: Path, sentence: str = SENTENCE) -> Path:
    """A root with one notebook, two files of the package, and nothing translated."""
    (root / "nncourse").mkdir(parents=True, exist_ok=True)
    (root / "notebooks").mkdir(exist_ok=True)
    (root / "locale").mkdir(exist_ok=True)
    shutil.copyfile(ROOT / "nncourse" / "language.py", root / "nncourse" / "language.py")
    (root / "nncourse" / "words.py").write_text(
        'def told(n: int) -> str:\n    return f"wanted {n} of them; got none"\n'
    )
    (root / "locale" / "words.toml").write_text('["*"]\ncode = ["notebooks/*"]\n')
    cells = [
        nbformat.v4.new_markdown_cell(sentence, id="first"),
        nbformat.v4.new_code_cell('x = 1  # one of them\nprint(f"it is {x} now")', id="second"),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), root / "notebooks" / "01_neurons.ipynb")
    return root


def translate(root: Path, name: str, said: dict[str, str]) -> None:
    """Put translations into a catalogue, as a translator does."""
    path = root / "locale" / "es" / f"{name}.po"
    text = path.read_text("utf-8")
    for english, other in said.items():
        assert f'msgid "{english}"\nmsgstr ""' in text
        text = text.replace(f'msgid "{english}"\nmsgstr ""', f'msgid "{english}"\nmsgstr "{other}"')
    path.write_text(text, "utf-8")


NOTEBOOK = {SENTENCE: "Suma lo que llega. Luego decide.", "one of them": "uno", "it is {x} now": "ahora es {x}"}


def test_a_changed_sentence_becomes_fuzzy_and_status_names_it(tmp_path, capsys):
    root = small_course(tmp_path)
    commands.update(root, "es")
    assert commands.status(root, "es") == 1
    translate(root, "01_neurons", NOTEBOOK)
    assert commands.status(root, "es", ["01_neurons"]) == 0
    changed = SENTENCE.replace("adds up", "sums up")
    small_course(root, changed)
    capsys.readouterr()
    assert commands.status(root, "es", ["01_neurons"]) == 1  # also before anybody has said update
    assert f"untranslated: first, paragraph: {changed!r}" in capsys.readouterr().out
    commands.update(root, "es")
    (said,) = (said for said in catalogue.read(root / "locale/es/01_neurons.po", "es") if said.text == changed)
    assert said.fuzzy and said.string == NOTEBOOK[SENTENCE] and said.previous == SENTENCE
    assert commands.status(root, "es", ["01_neurons"]) == 1
    assert f"fuzzy: first, paragraph: {changed!r}" in capsys.readouterr().out


def test_update_says_the_same_when_nothing_has_changed(tmp_path):
    root = small_course(tmp_path)
    commands.update(root, "es")
    translate(root, "01_neurons", NOTEBOOK)
    path = root / "locale" / "es" / "01_neurons.po"
    before = path.read_text("utf-8")
    commands.update(root, "es")
    assert path.read_text("utf-8") == before


def test_write_translates_and_leaves_english_where_nothing_is_said(tmp_path):
    root = small_course(tmp_path)
    commands.update(root, "es")
    translate(root, "01_neurons", {SENTENCE: "Suma.", "it is {x} now": "ahora es {x}"})
    assert commands.write(root, "es") == 0
    first, second = nbformat.read(root / "notebooks/es/01_neurons.ipynb", as_version=4).cells
    assert first.source == "Suma."
    switch = 'import os\n\nos.environ["NNCOURSE_LANG"] = "es"\n\n'
    assert second.source == switch + 'x = 1  # one of them\nprint(f"ahora es {x}")'
    assert "wanted {n} of them" in (root / "nncourse/languages/es/words.py").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "said", "kind", "what"),
    [
        ("it is {x} now", "ahora es {y}", "f-string", "holes"),
        ("it is {'up' if x else 'down'}", "está {'arriba' if y else 'abajo'}", "f-string", "holes"),
        ("call `hint`", "llama a `pista`", "paragraph", "code"),
        ("where $x = 1$", "donde $x = 2$", "paragraph", "formulas"),
        ("see [01](01_neurons.ipynb)", "ver [01](02.ipynb)", "paragraph", "links"),
        ("<b>one</b>", "uno", "paragraph", "tags"),
        ("| a | b |", "| a b |", "table row", "cells"),
        (", and so on", "y así", "string", "blanks"),
        ("a " + "${n} b", "una b", "template", "holes"),
    ],
)
def test_what_a_translation_may_not_change(text, said, kind, what):
    if what == "blanks":
        text, said = f" {text}", said
    assert list(compare.differs(text, said, kind)) == [what]
    assert not compare.differs(text, text, kind)


def test_words_in_holes_and_formulas_may_change():
    assert not compare.differs("it is {'up' if x else 'down'}", "{'arriba' if x else 'abajo'}", "f-string")
    assert not compare.differs(r"$1 \text{ otherwise}$ is", r"es $1 \text{ si no}$", "paragraph")


def test_a_wrong_translation_is_refused_and_the_rest_written(tmp_path, capsys):
    root = small_course(tmp_path)
    commands.update(root, "es")
    translate(root, "01_neurons", NOTEBOOK | {"it is {x} now": "ahora es {y}"})
    assert commands.write(root, "es") == 1
    assert "notebooks/01_neurons.ipynb, second: 'it is {x} now': holes" in capsys.readouterr().out
    first, second = nbformat.read(root / "notebooks/es/01_neurons.ipynb", as_version=4).cells
    assert first.source == NOTEBOOK[SENTENCE] and "it is {x} now" in second.source


def test_code_that_would_change_is_refused():
    cell = nbformat.v4.new_code_cell("x = 1  # one of them", id="second")
    book = nbformat.v4.new_notebook(cells=[cell])
    result, refused = notebooks.translated(book, Words(), lambda unit: "uno\nx = 2", "")
    assert refused == ["second"] and result.cells[0].source == cell.source


SAYS = """
import numpy as np
from nncourse.classroom import widgets
from nncourse.classroom.course import hint
from nncourse.classroom.exercise import exercise
from nncourse.kernels import check

hint("neuron", "loops")

@exercise("step", kernel="numpy")
def step(z):
    return np.where(z > 0, 1, 0)

drawn = widgets.neuron(np.zeros((2, 2), np.float32), np.array([0, 1]))
print("label", drawn.controls[0]["label"])
print(check.__file__)
"""


@pytest.fixture(scope="module")
def in_pseudo(tmp_path_factory):
    """A copy of the course in which every text is in brackets."""
    root = tmp_path_factory.mktemp("course")
    for name in ("nncourse", "locale", "notebooks"):
        ignored = shutil.ignore_patterns("__pycache__", "languages", "es", "pseudo", "0[1-9]*.ipynb", "1*.ipynb")
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    assert commands.write(root, "pseudo") == 0
    return root


def run(root: Path, *arguments: str, language: str = "pseudo") -> subprocess.CompletedProcess:
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "NNCOURSE_LANG": language}
    environment["NNCOURSE_MY_KERNELS"] = str(root / "kernels")
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, cwd=root)


def test_verdict_hint_error_and_label_come_in_the_language(in_pseudo):
    (in_pseudo / "says.py").write_text(SAYS, "utf-8")
    told = run(in_pseudo, "says.py")
    assert told.returncode == 0, told.stderr
    assert "⟦Let z start as the bias b." in told.stdout
    assert re.search(r"✗ step \(numpy\): .*int64.*⟦, wanted⟧ float32", told.stdout)
    assert "label ⟦weight w1⟧" in told.stdout
    assert str(in_pseudo / "nncourse" / "languages" / "pseudo") in told.stdout
    wrong = run(in_pseudo, "-m", "nncourse", "check", "nosuch")
    assert wrong.returncode == 2 and "⟦wanted⟧ ⟦an operation⟧⟦, one of⟧" in wrong.stderr


KEEPS = """
from nncourse.classroom.exercise import exercise

@exercise("relu", kernel="{kernel}")
def relu(z):
    return {xp}.maximum(z, 0)
"""
TELLS = """
from nncourse.classroom import overheads
from nncourse.classroom.version import course_version, package_files
from nncourse.kernels import kept_kernels
from nncourse.kernels.backend import choose
print(course_version(), len(package_files()), kept_kernels.folder(), overheads.RESULTS)
print(sorted(choose("numpy", mine=True).yours), *kept_kernels.progress().values())
"""


@pytest.mark.parametrize(("keeps", "uses"), [("en", "pseudo"), ("pseudo", "en")])
def test_both_languages_are_one_course_and_share_kept_kernels(keeps, uses, in_pseudo):
    shutil.rmtree(in_pseudo / "kernels", ignore_errors=True)
    (in_pseudo / "keeps.py").write_text(KEEPS.format(kernel="numpy", xp="np"), "utf-8")
    (in_pseudo / "tells.py").write_text(TELLS, "utf-8")
    kept = run(in_pseudo, "keeps.py", language=keeps)
    assert "✓" in kept.stdout, kept.stdout + kept.stderr
    told = [run(in_pseudo, "tells.py", language=language).stdout for language in (keeps, uses)]
    assert told[0] == told[1] and "['relu']" in told[0]


def test_a_hand_out_in_another_language_speaks_it(in_pseudo, tmp_path):
    path = tmp_path / "course.zip"
    made = run(in_pseudo, "-m", "nncourse", "handout", "--out", str(path))
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path)
    manifest = json.loads((tmp_path / "course/MANIFEST.json").read_text("utf-8"))
    assert manifest["language"] == "pseudo"
    (first,) = manifest["notebooks"]
    assert "⟦" in (tmp_path / "course" / first).read_text("utf-8")
    wrong = run(tmp_path / "course", "-m", "nncourse", "check", "nosuch")
    assert wrong.returncode == 2 and "⟦wanted⟧ ⟦an operation⟧⟦, one of⟧" in wrong.stderr
    english = run(tmp_path / "course", "-m", "nncourse", "check", "nosuch", language="")
    assert english.returncode == 2 and "wanted an operation, one of" in english.stderr


def test_what_is_generated_is_made_anew_only_when_something_has_changed(tmp_path):
    root = small_course(tmp_path)
    commands.update(root, "es")
    assert not stamp.is_new(root, "es")
    commands.write(root, "es")
    assert stamp.is_new(root, "es")
    small_course(root, "Another sentence.")  # in a notebook, which the package's stamp does not count
    assert not stamp.is_new(root, "es")


def test_a_language_that_is_missing_or_old_is_refused_in_one_line(in_pseudo):
    missing = run(in_pseudo, "-m", "nncourse", "check", "relu", language="xx")
    assert missing.returncode == 2
    assert missing.stderr == "nncourse: NNCOURSE_LANG=xx: wanted one of en, pseudo; got 'xx'\n"
    (in_pseudo / "locale" / "pseudo").mkdir()
    (in_pseudo / "locale" / "pseudo" / "new.po").write_text("")
    old = run(in_pseudo, "-c", "import nncourse")
    assert "older than its sources: run python tools/translate.py write pseudo" in old.stderr
    assert old.stderr.count("\n") == 1
    (in_pseudo / "locale" / "pseudo" / "new.po").unlink()
    (in_pseudo / "locale" / "pseudo").rmdir()


def test_a_folder_that_has_another_name_may_be_said():
    assert not compare.differs("in `my_notebooks/`", "en `mis_cuadernos/`", "paragraph")
    assert compare.differs("in `my_kernels/`", "en `mis_cuadernos/`", "paragraph")


def test_nothing_of_the_spanish_edition_is_missing_or_wrong(capsys):
    assert commands.status(ROOT, "es") == 0, capsys.readouterr().out
