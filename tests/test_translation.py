"""tools/translate.py: the same code in another language, catalogues that follow the English, and the switch."""

import ast
import fnmatch
import os
import shutil
import subprocess
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
    words,
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


@pytest.mark.full
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
    assert len(books) == len(list((ROOT / "notebooks").glob("*.ipynb")))
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


SHOWING = {"figures", "widgets", "axes", "replace"}  # modules and functions of notebooks that show what they are given


def misused(cells: list[str], rules: Words) -> list[str]:
    """The words of a notebook that are translated, and passed to a function that looks them up, or compared elsewhere.

    A function that the notebook itself defines gets translated words wherever it is called.
    """
    trees = [ast.walk(python_text.parsed(cell).tree) for cell in cells]
    nodes = [node for tree in trees for node in tree]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    looked_up = {word for node in nodes for word in python_text.names_at(node)}
    found = []
    for cell in cells:
        source = python_text.parsed(cell)
        said = {(unit.begin, unit.end) for unit in python_text.units(cell, rules) if unit.kind.endswith("string")}
        parents = {child: parent for parent in ast.walk(source.tree) for child in ast.iter_child_nodes(parent)}
        for node in parents:
            if not isinstance(node, ast.Constant | ast.JoinedStr) or isinstance(parents[node], ast.JoinedStr):
                continue
            if (source.at(node.lineno, node.col_offset), source.at(node.end_lineno, node.end_col_offset)) not in said:
                continue
            parent, word = parents[node], node.value if isinstance(node, ast.Constant) else ""
            option = parent.arg if isinstance(parent, ast.keyword) else ""
            parent = parents[parent] if option else parent
            if isinstance(parent, ast.Call):
                called = ast.unparse(parent.func).split(".")
                known = SHOWING | own | python_text.SHOWN_BY
                if option not in python_text.SHOWN_ARGUMENTS and not known & {called[0], called[-1]}:
                    found.append(f"{ast.unparse(parent)[:60]} gets {word!r}")
            elif word in looked_up and not python_text.WORDS_OF.search(
                ast.unparse(parents[parent]).partition(" = ")[0]
            ):
                found.append(f"{word!r} is looked up, or compared")
    return found


def test_no_notebook_passes_on_a_translated_word_that_is_a_name(all_sources):
    """datasets.mnist("prueba") fails only for who downloads it."""
    for source in all_sources:
        if source.path.suffix == ".ipynb":
            assert not misused(notebooks.python_cells(notebooks.read(source.path)), source.words), source.file


@pytest.mark.parametrize(
    ("cell", "count"),
    [
        ('rows = {"test": 1}\nfetch("test")', 1),
        ('rows = {"test": 1}\ndef fetch(part):\n    return part\nfetch("test")', 0),
        ('rows = {"test": 1}\nprint(rows["test"])', 1),
        ('rows = {"test": 1}\nprint("test", *(name != "test" for name in rows))', 1),
        ('row_words = {"test": "test"}\nprint(row_words["test"])', 0),
        ('datasets.mnist("test")\nfigures.plot(rows, "test")', 0),
    ],
)
def test_translated_words_that_are_names_are_found(cell, count):
    assert len(misused([cell], Words(also=frozenset({"test"})))) == count


def test_units_are_whole_sentences_without_the_marks_around_them():
    text = "# Title\n\nOne line,\nand the next.\n\n- an item\n  goes on\n\n$$a = 1$$\n"
    text += "\n```\ncode\n```\n\n| `x` | a number |\n"
    said = [unit.text for unit in markdown.units(text)]
    assert said == ["Title", "One line, and the next.", "an item goes on", "| `x` | a number |"]
    address = markdown.units("See\n<https://a.example/b>. Cite it.\n")
    assert [unit.text for unit in address] == ["See <https://a.example/b>. Cite it."]


WITH_WORDS = 'WAY_WORDS: dict[str, str] = {"back": "back", "at once": "at once"}\nprint(times["at once"])\n'
SHOWN = 'plot_lines(lines, "epoch", "cost")\nprint(f"{name:8} {notes.get(name, \'the course’s\')}")\nlook("epoch")\n'
HOLES = 'say = f"{low} to {high}", f"{n} block{\'s\' * (n > 1)}", f"of {name}", f"layer{n}", f"{file}.{kind}"\n'
SENTENCES = 'def f(x):\n    """Add. It adds."""\n    # One line\n    # and the next.\n'
SENTENCES += '    say(f"got {x} of "\n        "two")\n'


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (SENTENCES, ["Add. It adds.", "One line and the next.", "got {x} of two"]),
        ('made = Operation("bias sum", "db = mean of D", "D (batch, n) -> db (n,)", f)\n', ["db = mean of D"]),
        (SHOWN, ["epoch", "cost", "{name:8} {notes.get(name, 'the course’s')}"]),
        (HOLES, ["{low} to {high}", "{n} block{'s' * (n > 1)}", "of {name}"]),
    ],
    ids=[
        "sentences",
        "formulas, not names",
        "words in figures and of get",
        "words between holes, not names with holes",
    ],
)
def test_units_of_code(code, said):
    assert [unit.text for unit in python_text.units(code, Words())] == said


def test_keys_of_a_dictionary_of_words_are_names_and_its_values_are_read():
    found = [(unit.text, unit.begin) for unit in python_text.units(WITH_WORDS, Words())]
    assert found == [(text, WITH_WORDS.index(f': "{text}"') + 2) for text in ("back", "at once")]


def test_of_a_row_of_measurements_the_name_is_a_unit():
    text = "| 2 GPUs, 64 each | 1.5 ms | 3.0× |\n| tiled | 1.5 ms | 3.0× |\n"
    found = markdown.units(text, measured=False)
    assert [unit.text for unit in found] == ["2 GPUs, 64 each"]
    assert units.replaced(text, found, lambda unit: "2 GPU").startswith("| 2 GPU | 1.5 ms | 3.0× |\n| tiled |")


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
    upper = text.replace("opens it", "OPENS IT").replace("✗ no: 1 of them wrong", "✗ NO: 1 OF THEM WRONG")
    assert units.replaced(text, found, lambda unit: unit.text.upper()) == upper


def small_course(root: Path, sentence: str = SENTENCE) -> Path:
    """A root with one notebook, two files of the package, and nothing translated."""
    (root / "nncourse").mkdir(parents=True, exist_ok=True)
    (root / "notebooks").mkdir(exist_ok=True)
    (root / "locale").mkdir(exist_ok=True)
    shutil.copyfile(ROOT / "nncourse" / "language.py", root / "nncourse" / "language.py")
    (root / "nncourse" / "words.py").write_text(
        'def told(n: int) -> str:\n    return f"expected {n} of them; got none"\n'
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


@pytest.fixture
def root(tmp_path) -> Path:
    """A small course with the catalogues of what is to be translated."""
    commands.update(small_course(tmp_path), "es")
    return tmp_path


NOTEBOOK = {SENTENCE: "Suma lo que llega. Luego decide.", "one of them": "uno", "it is {x} now": "ahora es {x}"}


def test_a_changed_sentence_becomes_fuzzy_and_status_names_it(root, capsys):
    assert commands.status(root, "es") == 1
    translate(root, "01_neurons", NOTEBOOK)
    assert commands.status(root, "es", ["01_neurons"]) == 0
    before = (root / "locale/es/01_neurons.po").read_text("utf-8")
    commands.update(root, "es")  # nothing has changed
    assert (root / "locale/es/01_neurons.po").read_text("utf-8") == before
    changed = SENTENCE.replace("adds up", "sums up")
    small_course(root, changed)
    capsys.readouterr()
    assert commands.status(root, "es", ["01_neurons"]) == 1  # also before anybody has said update
    assert f"untranslated: first, paragraph: {changed!r}" in capsys.readouterr().out
    commands.update(root, "es")
    (said,) = (said for said in catalogue.read(root / "locale/es/01_neurons.po", "es") if said.text == changed)
    assert said.fuzzy and said.string == NOTEBOOK[SENTENCE] and said.was == SENTENCE
    assert commands.status(root, "es", ["01_neurons"]) == 1
    assert f"fuzzy: first, paragraph: {changed!r}" in capsys.readouterr().out


def test_translations_follow_a_file_that_moves_to_another_room(root, capsys):
    """The general one and the one of a cell do; one whose file is gone is named."""
    translate(root, "01_neurons", NOTEBOOK)
    path = root / "locale" / "es" / "01_neurons.po"
    cell = '\nmsgctxt "notebooks/01_neurons.ipynb#second"\nmsgid "one of them"\nmsgstr "una"\n'
    file = '\nmsgctxt "nncourse/old.py"\nmsgid "one of them"\nmsgstr "unas"\n'
    path.rename(path.with_name("nncourse_old.po")).open("a").write(cell + file)
    commands.update(root, "es")
    said = {(said.context, said.string) for said in catalogue.read(path, "es") if said.text == "one of them"}
    assert said == {(None, "uno"), ("notebooks/01_neurons.ipynb#second", "una")}
    assert "dropped, there is no nncourse/old.py: 'one of them': 'unas'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ("expected {self.reference}, see kernels/peer/all.cu", "se pide {self.reference}: kernels/peer/all.cu"),
        ("expected {self.truth.size}, see kernels/peer.cu", "se pide {self.truth.size}: kernels/peer.cu"),
        ("expected {said(truth)}, see kernels/peer.cu", "se pide {said(truth)}: kernels/peer.cu"),
        ("need {self.truth}, see kernels/peer.cu", None),
        ("expected {self.truth} or see kernels/peer.cu", None),
    ],
)
def test_a_translation_takes_the_new_names_of_files_and_of_code(now, said):
    english, spanish = "expected {self.truth}, see kernels/peer.cu", "se pide {self.truth}: kernels/peer.cu"
    again = catalogue.with_new_names(catalogue.Said(english, None, spanish, False), now)
    assert (again and again.string) == said


def test_of_a_module_its_kernels_are_translated_and_what_words_toml_names():
    code = '"""Head."""\n# one\n@relu.kernel("numpy")\ndef relu(z):\n    # of it\n    return z\n\n\n'
    code += 'def other():\n    """Not shown."""\n    # two\n    pass\n\n\n'
    code += 'def train():\n    """Train it."""\n    # three\n    pass\n'
    named = Words(code=True, kernels=frozenset({"other"}), documented=frozenset({"train"}))
    said = [[unit.text for unit in package.units_of_module(code, words)] for words in (Words(code=False), named)]
    assert said == [["of it"], ["Head.", "of it", "Not shown.", "two", "Train it."]]


def test_the_tables_of_words_toml_are_for_files_that_are_there(all_sources):
    files = [source.file for source in all_sources]
    tables = words.read(ROOT / "locale" / "words.toml")
    patterns = {*tables, *(code for table in tables.values() for code in table.get("code", ()))}
    assert [pattern for pattern in sorted(patterns) if not fnmatch.filter(files, pattern)] == []


@pytest.mark.skipif(not shutil.which("msgfmt"), reason="needs gettext's msgfmt")
def test_msgfmt_takes_a_catalogue_with_fuzzy_paragraphs(tmp_path):
    """Each paragraph of a notebook has changed in a word, so that all are fuzzy with the English they were."""
    root = small_course(tmp_path)
    shutil.copyfile(ROOT / "notebooks" / "01_neurons.ipynb", root / "notebooks" / "01_neurons.ipynb")
    (root / "locale" / "es").mkdir()
    path = root / "locale" / "es" / "01_neurons.po"
    shutil.copyfile(ROOT / "locale" / "es" / "01_neurons.po", path)
    changed = (root / "notebooks" / "01_neurons.ipynb").read_text("utf-8").replace(" the ", " its ")
    (root / "notebooks" / "01_neurons.ipynb").write_text(changed, "utf-8")
    commands.update(root, "es")
    assert sum(said.fuzzy and bool(said.was) for said in catalogue.read(path, "es")) > 20
    told = subprocess.run(["msgfmt", "-o", os.devnull, str(path)], capture_output=True, text=True)
    assert told.returncode == 0 and not told.stderr


def test_write_translates_and_tells_what_stays_english(root, capsys):
    translate(root, "01_neurons", {SENTENCE: "Suma.", "it is {x} now": "ahora es {x}"})
    assert commands.write(root, "es") == 0
    told = capsys.readouterr().out
    assert "texts stay English" in told and "notebooks/01_neurons.ipynb, second: 'one of them'" in told
    first, second = nbformat.read(root / "notebooks/es/01_neurons.ipynb", as_version=4).cells
    assert first.source == "Suma."
    switch = 'import os\n\nos.environ["NNCOURSE_LANG"] = "es"\nimport nncourse\n\n'
    assert second.source == switch + 'x = 1  # one of them\nprint(f"ahora es {x}")'
    assert "expected {n} of them" in (root / "nncourse/languages/es/nncourse/words.py").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "said", "kind", "what"),
    [
        ("it is {x} now", "ahora es {y}", "f-string", "holes"),
        ("expected %s; got %(got)r", "se pide %s", "string", "holes"),
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


def test_words_in_holes_and_formulas_and_a_folder_with_another_name_may_change():
    assert not compare.differs("it is {'up' if x else 'down'}", "{'arriba' if x else 'abajo'}", "f-string")
    assert not compare.differs(r"$1 \text{ otherwise}$ is", r"es $1 \text{ si no}$", "paragraph")
    assert not compare.differs("in `my_notebooks/`", "en `mis_cuadernos/`", "paragraph")
    assert compare.differs("in `my_kernels/`", "en `mis_cuadernos/`", "paragraph")


def test_a_wrong_translation_is_refused_and_the_rest_written(root, capsys):
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


def test_what_is_generated_is_made_anew_only_when_something_has_changed(root):
    assert not stamp.is_new(root, "es")
    commands.write(root, "es")
    assert stamp.is_new(root, "es")
    small_course(root, "Another sentence.")  # in a notebook, which the package's stamp does not count
    assert not stamp.is_new(root, "es")


def test_a_changed_catalogue_stops_no_command_and_changed_code_does(root):
    commands.write(root, "es")
    language = stamp.module(root)
    assert language["folder_of"]("es") == root / "nncourse" / "languages" / "es"
    translate(root, "01_neurons", NOTEBOOK)
    assert not stamp.is_new(root, "es") and language["folder_of"]("es")
    (root / "nncourse" / "words.py").write_text("told = None\n")
    with pytest.raises(ImportError, match="older than its sources: run python tools/translate.py write es"):
        language["folder_of"]("es")
    with pytest.raises(ImportError, match="NNCOURSE_LANG=xx: expected one of en, es; got 'xx'"):
        language["folder_of"]("xx")


def test_one_notebook_is_written_alone(root, capsys):
    commands.write(root, "es")
    translate(root, "01_neurons", NOTEBOOK)
    translate(root, "nncourse", {"expected {n} of them; got none": "se piden {n}"})
    assert commands.write(root, "es", ["01_neurons"]) == 0
    assert NOTEBOOK[SENTENCE] in (root / "notebooks/es/01_neurons.ipynb").read_text("utf-8")
    words_py = root / "nncourse/languages/es/nncourse/words.py"
    assert "expected {n}" in words_py.read_text("utf-8")
    assert commands.write(root, "es", ["nncourse"]) == 0 and "se piden {n}" in words_py.read_text("utf-8")
    assert commands.write(root, "es", ["01_neuron"]) == 1 and "got 01_neuron" in capsys.readouterr().out


def test_a_notebook_that_was_edited_is_read_back(root, capsys):
    translate(root, "01_neurons", NOTEBOOK)
    commands.write(root, "es")
    path = root / "notebooks/es/01_neurons.ipynb"
    new = {SENTENCE: "Suma lo que le llega.\n\nDespués decide.", "one of them": "una", "it is {x} now": "hoy: {x}"}
    edited = nbformat.read(path, as_version=4)
    for cell in edited.cells:
        for english, said in NOTEBOOK.items():
            cell.source = cell.source.replace(said, new[english])
    nbformat.write(edited, path)
    assert commands.read(root, "es", ["01_neurons"]) == 0
    said = {said.text: said.string for said in catalogue.read(root / "locale/es/01_neurons.po", "es")}
    assert said == new
    before = path.read_text("utf-8")
    commands.write(root, "es", ["01_neurons"])
    assert path.read_text("utf-8") == before
    path.write_text(before.replace("hoy: {x}", "hoy").replace("Suma", "Junta"), "utf-8")
    assert commands.read(root, "es", ["01_neurons"]) == 1  # a hole is lost: that one is refused
    said = {said.text: said.string for said in catalogue.read(root / "locale/es/01_neurons.po", "es")}
    assert said["it is {x} now"] == "hoy: {x}" and said[SENTENCE].startswith("Junta")
    path.write_text(before.replace("x = 1", "x = 2"), "utf-8")
    capsys.readouterr()
    assert commands.read(root, "es", ["01_neurons"]) == 1
    assert "cell second: more than its words has changed" in capsys.readouterr().out


@pytest.fixture(scope="module")
def spanish_problems(all_sources) -> dict[str, tuple[list[str], list[str], int]]:
    """For each catalogue what is missing or old, and what is wrong."""
    there = commands.read_all(ROOT, "es")
    found = sources.entries(all_sources)
    return {name: commands.problems(entries, there.get(name, [])) for name, entries in found.items()}


def missing_texts(problems, most: int) -> str:
    """How many texts each catalogue lacks, and the first of them."""
    lines = []
    for name, (texts, _, _) in problems.items():
        lines += [f"{name}: {len(texts)}", *(f"    {text}" for text in texts[:most])] if texts else []
    return "\n".join(lines)


def test_no_spanish_translation_changes_what_it_may_not(spanish_problems):
    wrong = [f"{name}: {line}" for name, (_, lines, _) in spanish_problems.items() for line in lines]
    assert not wrong, "\n".join(wrong)


def test_missing_spanish_is_told(spanish_problems, record_property):
    """A change of the English needs no Spanish: what is missing is listed at the end, and is an error in a release."""
    if count := sum(len(texts) for texts, _, _ in spanish_problems.values()):
        told = f"{count} Spanish texts are missing or old:\n{missing_texts(spanish_problems, most=3)}"
        record_property("told", told)


@pytest.mark.release
def test_nothing_of_the_spanish_edition_is_missing(spanish_problems):
    missing = missing_texts(spanish_problems, most=10)
    assert not missing, missing
