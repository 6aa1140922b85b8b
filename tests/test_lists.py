"""Lists that a spreadsheet made: points given by hand and the class's list (kind 15)."""

import codecs
from pathlib import Path

import pytest
from refusals import refused

from nnclassroom.commands import main
from nnclassroom.exercises.hints import exercises
from nnclassroom.handing_in import platform_names
from nnmarking import marks, roster
from tests.made_class import table

KEYS = ("sigmoid.numpy", "mse.numpy")
HEADER = "student,exercise,points,reason"
ROW = "Roca Ana,sigmoid.numpy,0.5,half"
SIGMOID = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"


@pytest.fixture
def listed(tmp_path):
    """listed(content) writes a list and returns its path."""

    def write(content: str | bytes) -> Path:
        path = tmp_path / "list.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


# ---- points given by hand --------------------------------------------------------------------------------------------

SEMICOLONS = f"{HEADER}\n{ROW}\n".replace(",", ";")
READ: dict[str, str | bytes] = {
    "plain": f"{HEADER}\n{ROW}\n",
    "decimal_comma": SEMICOLONS.replace(".5", ",5"),
    "decimal_comma_in_quotes": f"{HEADER}\n{ROW}\n".replace("0.5", '"0,5"'),
    "decimal_comma_between_tabs": SEMICOLONS.replace(".5", ",5").replace(";", "\t"),
    "empty_rows": f"{HEADER}\n{ROW}\n,,,\n,,,\n",
    "empty_rows_between": f"\n;;;\n{SEMICOLONS.replace(chr(10), chr(10) + ' ; ;;' + chr(10))}",
    "separator_line": f"sep=;\n{SEMICOLONS}",
    "separator_line_of_tabs": "sep=\t\r\n" + SEMICOLONS.replace(";", "\t").replace("\n", "\r\n"),
    "padded": f"{HEADER},,\n{ROW},,\n",
    "capitals_and_blanks": f"Student, Exercise ,POINTS,Reason\n{ROW}\n".replace(",half", ", half "),
    "utf_8_with_a_mark": codecs.BOM_UTF8 + f"{HEADER}\r\n{ROW}\r\n".encode(),
    "utf_16_of_excel": SEMICOLONS.replace(";", "\t").encode("utf-16"),
    "ends_of_an_old_mac": f"{HEADER}\r{ROW}\r",
}


@pytest.mark.parametrize("name", READ)
def test_kind_15_points_by_hand_are_read(name, listed):
    said: list[str] = []
    assert marks.read_overrides(listed(READ[name]), KEYS, said.append) == {("Roca Ana", KEYS[0]): (0.5, "half")}
    assert not said


@pytest.mark.parametrize("points", ["1_0", "٣", "-1", "nan", "inf", "1e999", "", "one", "0x1", "1.000,5", "1 000", "½"])
def test_kind_15_points_that_are_no_number_are_refused(points, listed):
    path = listed(f"{SEMICOLONS}Gil Eva;sigmoid.numpy;{points};half\n")
    assert f"{path}, line 3: expected points of at least 0" in refused(marks.read_overrides, path, KEYS)


def test_kind_15_a_comma_too_many_gives_no_zero(listed):
    said = refused(marks.read_overrides, listed(f"{HEADER}\n{ROW.replace('0.5', '0,5')}\n"), KEYS)
    assert "line 2" in said and "quotes" in said
    assert "line 2" in refused(marks.read_overrides, listed(f"{HEADER}\n{ROW}, and late\n"), KEYS)


def test_kind_15_lines_are_those_of_the_file(listed):
    path = listed(f'sep=,\n,,,\n{HEADER}\nRoca Ana,sigmoid.numpy,1,"two\nlines"\n\nGil Eva,sigmoid.numpy,x,half\n')
    assert ", line 7: expected points" in refused(marks.read_overrides, path, KEYS)


@pytest.mark.parametrize("content", ["", "\n,,,\n", "student,points\nRoca Ana,1\n", f"{ROW}\n"])
def test_kind_15_other_columns_are_named(content, listed):
    assert "expected the columns student, exercise, points, reason" in refused(
        marks.read_overrides, listed(content), KEYS
    )


def test_weights_may_have_a_byte_order_mark(tmp_path):
    path, known = tmp_path / "weights.toml", [each for each in exercises() if each.key in KEYS]
    for encoding in ("utf-8-sig", "utf-16"):
        path.write_text('[exercise]\n"sigmoid.numpy" = 4\n', encoding)
        assert marks.read_weights(path, known, {})["sigmoid.numpy"] == 4


# ---- the class's list ------------------------------------------------------------------------------------------------

CLASS = "name,id\nLuis Mora,21\nAna Roca,22\n"
TWICE = CLASS + "Ana Roca,22\n"


def test_kind_15_a_row_twice_is_one_student(listed):
    said: list[str] = []
    found = roster.read(listed(TWICE), said.append)
    assert found.names == ("Luis Mora", "Ana Roca") and found.row_of(platform_names.person("Ana Roca")) == 1
    assert len(said) == 1 and "twice" in said[0] and "lines 3 and 4" in said[0]
    again = "sep=;\n" + (TWICE + "Ana Roca , 22\n").replace(",", ";")
    assert len(roster.read(listed(again), said.append).names) == 2 and "lines 4 and 6" in said[-1]


DIFFERENT = {
    "another_name": CLASS + "Ana María Roca,22\n",
    "another_group": "name,id,group\nLuis Mora,21,A\nAna Roca,22,A\nAna Roca,22,B\n",
    "one_without_id": "name,id\nLuis Mora,21\nAna Roca,22\nAna Roca,\n",
    "first_without_id": "name,id\nLuis Mora,21\nAna Roca,\nANA ROCA,22\n",
    "names_alone": "name\nLuis Mora\nAna Roca\nAna Roca\n",
    "moodle": "Identifier,Full name,Email address\nParticipant 1,Luis,l@x.es\nParticipant 2,Ana,a@x.es\n"
    "Participant 2,Anna,b@x.es\n",
    "address": "name,id,email\nLuis,1,l@x.es\nAna,2,a@x.es\nEva,3,a@x.es\n",
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_kind_15_a_student_twice_in_rows_that_differ_is_refused(name, listed):
    said = refused(roster.read, listed(DIFFERENT[name]))
    assert "twice" in said and "lines 3 and 4" in said


@pytest.mark.parametrize(
    "content",
    [
        CLASS + "Ana Roca,23\n",
        "name,id,login\nLuis Mora,-,lm\nAna Roca,-,ar\nEva Gil,,\n",
        "name,email\nAna Roca,ana@x.es\nAna Gil,ana@y.es\n",
        'Student,ID,SIS Login ID\n    Points Possible,,\n"Roca, Ana",1,ar\n"Student, Test",9,t\n"Student, Test",9,t\n',
    ],
    ids=["two_of_one_name", "no_ids", "like_addresses", "canvas"],
)
def test_kind_15_other_rows_are_other_students(content, listed):
    said: list[str] = []
    assert len(roster.read(listed(content), said.append).rows) == content.count("\n") - 1 and not said


FORMS: dict[str, str | bytes] = {
    "semicolons": CLASS.replace(",", ";"),
    "tabs": CLASS.replace(",", "\t"),
    "separator_line": "sep=;\r\n" + CLASS.replace(",", ";").replace("\n", "\r\n"),
    "empty_rows": CLASS + ",\n,\n",
    "empty_rows_first": ",,\n,,\n" + CLASS,
    "padded": "name,id,,\nLuis Mora,21,,\nAna Roca,22,,\n",
    "utf_16": CLASS.replace(",", "\t").encode("utf-16"),
    "semicolons_and_a_comma": 'name;id;"lab, group"\nLuis Mora;21;"A, B"\nAna Roca;22;A\n',
    "commas_and_a_semicolon": "name,id,week 1; week 2\nLuis Mora,21,1\nAna Roca,22,2\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_kind_15_the_class_is_read_in_all_forms(name, listed):
    found = roster.read(listed(FORMS[name]))
    assert found.names == ("Luis Mora", "Ana Roca") and [ids[0] for ids in found.ids] == ["21", "22"]


def test_kind_15_a_list_of_excel_in_windows_1252(listed):
    said: list[str] = []
    content = "name;id\nJosé Núñez;21\nŽofia Šimková;22\n"
    found = roster.read(listed(content.encode("cp1252")), said.append)
    assert found.names == ("José Núñez", "Žofia Šimková") and len(said) == 1 and "Windows-1252" in said[0]
    found = roster.read(listed(content.encode()), said.append)
    assert found.names == ("José Núñez", "Žofia Šimková") and len(said) == 1
    rows = f"{HEADER}\nPeña Ana,sigmoid.numpy,1,añadido\n".encode("cp1252")
    assert marks.read_overrides(listed(rows), KEYS, said.append) == {("Peña Ana", KEYS[0]): (1, "añadido")}
    assert len(said) == 2


@pytest.mark.parametrize(
    "content",
    [
        b"PK\x03\x04\x14\x00\x06\x00\x08",
        b"PK\x03\x04 \xe9",
        b"\x89PNG\r\n\x1a\n\0\0\0\r",
        "name,id\nAna,1\n".encode("utf-16-le"),
        b"name\n\x8d\xff",
    ],
)
def test_kind_15_what_is_no_text_is_refused(content, listed):
    for read in (roster.read, lambda path: marks.read_overrides(path, KEYS)):
        assert "save it as CSV UTF-8" in refused(read, listed(content))
    assert "No such file" in refused(roster.read, Path("none.csv"))
    assert "quotes" in refused(roster.read, listed("name,id\nRoca, Ana,22\n"))


def test_kind_15_a_class_with_lists_of_a_spreadsheet(tmp_path, capsys):
    """Nobody's points vanish: the student who is twice on the list, in cp1252, and half a point between semicolons."""
    group = tmp_path / "group"
    for name, number, text in (("Núñez Ana", 22, SIGMOID), ("Mora Luis", 21, SIGMOID.replace("-z", "z"))):
        folder = group / f"{name}_{number}_assignsubmission_file_"
        folder.mkdir(parents=True)
        (folder / "sigmoid.numpy.py").write_text(text, "utf-8")
    (tmp_path / "class.csv").write_bytes("name;id\nLuis Mora;21\nAna Núñez;22\nAna Núñez;22\n;\n".encode("cp1252"))
    (tmp_path / "changed.csv").write_bytes(b"student;exercise;points;reason\nLuis Mora;sigmoid.numpy;0,5;half\n;;;\n")
    command = ["grade", str(group), "--out", str(tmp_path / "m.csv"), "--only", "sigmoid.numpy", "--no-sandbox"]
    command += ["--seed", "1", "--roster", str(tmp_path / "class.csv"), "--overrides", str(tmp_path / "changed.csv")]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "twice" in out and "Windows-1252" in out and "2 of 2 students have points" in out
    back = table(tmp_path / "m_roster.csv", ";")
    assert [(row["name"], row["points"]) for row in back] == [("Luis Mora", "0.5"), ("Ana Núñez", "1")]
