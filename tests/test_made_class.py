"""A class of 70 entries of every form is marked: 70 rows, each reason right, copies found and honest ones not."""

import zipfile
from pathlib import Path

import pytest

from nnclassroom.commands import main
from nnclassroom.exercises.hints import exercises
from nnclassroom.handing_in.kernel_files import file_of
from nnclassroom.handing_in.pieces import stem_of
from nnmarking import assignment, class_folder
from tests import made_class

ONLY = "02,03b"


@pytest.fixture(scope="module")
def group(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("class") / "submissions"
    made_class.make(folder, list(assignment.chosen(exercises(), ONLY)))
    return folder


def test_every_entry_has_its_row_and_its_reason(group):
    known = frozenset(map(file_of, exercises()))
    found = {each.entry: each for each in class_folder.find([group], known)}
    assert set(found) == {path.name for path in group.iterdir()} and len(found) == 70
    assert {name for name, each in found.items() if not each.texts} == set(made_class.UNREAD)
    for name, reason in made_class.UNREAD.items():
        assert reason in found[name].reason, name
    for name, said in made_class.SAID.items():
        assert any(said in each for each in (*found[name].notes, *found[name].problems)), name
    quiet = set(found) - set(made_class.UNREAD) - set(made_class.SAID)
    assert not any(found[name].notes or found[name].problems or found[name].reason for name in quiet)


@pytest.mark.full
def test_the_class_is_marked(group, tmp_path, capsys):
    listed = tmp_path / "class.csv"
    rows = "".join(f"Participant {1000 + n},Moodle {n},m{n}@example.org,\n" for n in range(9))
    listed.write_text(f"Identifier,Full name,Email address,Grade\n{rows}", "utf-8")
    command = ["grade", str(group), "--out", str(tmp_path / "marks.csv"), "--seed", "3", "--only", ONLY]
    command += ["--due", "2026-12-01T23:59+00:00", "--late", "20", "--roster", str(listed)]
    assert main([*command, "--no-sandbox"]) == 0
    said = capsys.readouterr().out
    assert "70 handed in by 70 students: 61 read, 9 not read, 0 replaced by newer ones" in said
    assert said.count("\nnot read: ") == 9 and "nothing came from Moodle 8" in said
    totals = {row["student"]: row for row in made_class.table(tmp_path / "marks_by_student.csv")}
    assert len(totals) == 71
    for name, reason in (made_class.UNREAD | made_class.SAID).items():
        assert reason in totals[stem_of(name)]["problems"], name
    marks = made_class.table(tmp_path / "marks.csv")
    assert not [row for row in marks if row["state"] == "wrong" and row["kind"] != "unreadable"]
    assert totals["zip_00"]["days late"] == "1" and totals["zip_01"]["days late"] == ""
    alike = {row["student"]: row["alike"] for row in marks if f"{row['exercise']}.cu" == made_class.COPIED}
    found = {name for name, whose in alike.items() if whose and "the course" not in whose}
    assert found == {"ordinary_00", "copy_names", "copy_dead", "copy_order"}
    assert all(alike[name].count("%") == 3 for name in found)
    assert {alike[f"ordinary_{number:02}"].startswith("the course") for number in range(1, 5)} == {True, False}
    grades = {row["Full name"]: row["Grade"] for row in made_class.table(tmp_path / "marks_roster.csv")}
    assert grades.pop("Moodle 8") == "" and all(float(grade) > 0 for grade in grades.values()) and len(grades) == 8
    with zipfile.ZipFile(tmp_path / "marks_feedback.zip") as archive:
        names = archive.namelist()
    assert "Moodle 3_1003_assignsubmission_file_feedback.html" in names and len(names) == 71
    assert "canvasc_2002_9002_feedback.html" in names
    assert (tmp_path / "marks_overview.html").stat().st_size < 400_000
