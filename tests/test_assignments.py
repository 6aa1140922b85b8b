"""A week's homework: some exercises, a deadline, the class's list, and what a learning platform reads back."""

import json
import zipfile
from datetime import datetime
from pathlib import Path

import pytest
from refusals import command_refused, refused

from nnclassroom.commands import main
from nnclassroom.exercises.hints import exercises
from nncourse.errors import CourseError
from nnmarking import assignment, marks, roster
from tests.made_class import table

SIGMOID = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"
MOODLE = """\ufeffIdentifier,Full name,Email address,Status,Grade,Maximum grade,Feedback comments
Participant 12345,Ada Lovelace,ada@example.org,Submitted,,4.00,
Participant 12346,José Núñez,jose@example.org,Submitted,,4.00,
Participant 12347,Grace Hopper,grace@example.org,No submission,,4.00,
"""
CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,Week 1 (77)
    Points Possible,,,,,10
"Lovelace, Ada",501,s1,ada,A,3
"Hopper, Grace",502,s2,grace,A,
"""


def hand_in(path: Path, time: str = "", text: str = SIGMOID) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("my_kernels/sigmoid.numpy.py", text)
        made.writestr("submission.json", json.dumps({"time": time}))


def mark(folder: Path, *options: str) -> list[dict]:
    command = ["grade", str(folder / "group"), "--out", str(folder / "marks.csv"), "--no-sandbox", "--seed", "1"]
    assert main([*command, *options]) == 0
    return table(folder / "marks.csv")


@pytest.mark.parametrize(
    ("only", "notebooks"),
    [("02", {"02_activations"}), ("03,03b_dense_on_the_gpu", {"03_dense_layers", "03b_dense_on_the_gpu"})],
)
def test_notebooks_are_chosen_by_number_or_name(only, notebooks):
    wanted = [each for each in exercises() if each.notebook in notebooks]
    assert wanted and [*assignment.chosen(exercises(), only)] == wanted
    assert len(assignment.chosen(exercises(), "")) == len(exercises())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "99"], "a notebook's number or an exercise"),
        (["--due", "tomorrow"], "2026-12-01T23:59"),
        (["--late", "10"], "--late needs a deadline"),
        (["--due", "2026-12-01", "--late", "120"], "from 0 to 100"),
        (["--roster", "none.csv"], "none.csv"),
    ],
)
def test_a_mistake_in_an_assignment_is_one_line(options, said, tmp_path, capsys):
    hand_in(tmp_path / "group/ada.zip")
    assert said in command_refused(
        capsys, ["grade", str(tmp_path / "group"), "--out", str(tmp_path / "m.csv"), *options]
    )


def test_each_day_begun_after_the_deadline_costs_its_share():
    rule = assignment.deadline("2026-12-01T23:59+00:00", 25)
    times = ["2026-12-01T23:59+00:00", "2026-12-02T00:00+00:00", "2026-12-03T00:00+00:00", "2026-12-09T00:00+00:00"]
    days = [rule.days_late(datetime.fromisoformat(time)) for time in times]
    assert days == [0, 1, 2, 8] and [rule.share(each) for each in days] == [1, 0.75, 0.5, 0]
    assert rule.days_late(None) == 0


def test_a_week_of_homework_with_moodles_list(tmp_path, capsys):
    hand_in(tmp_path / "group/Ada Lovelace_12345_assignsubmission_file_/x.zip", "2026-12-01T12:00+00:00")
    hand_in(tmp_path / "group/José Núñez_12346_assignsubmission_file_/x.zip", "2026-12-02T12:00+00:00")
    (tmp_path / "class.csv").write_text(MOODLE, "utf-8")
    due = ["--due", "2026-12-01T23:59+00:00", "--late", "10"]
    rows = mark(tmp_path, "--only", "02", *due, "--roster", str(tmp_path / "class.csv"))
    assert {row["notebook"] for row in rows} == {"02_activations"} and len(rows) == 3 * len(
        assignment.chosen(exercises(), "02")
    )
    totals = {row["student"]: row for row in table(tmp_path / "marks_by_student.csv")}
    assert set(totals) == {"Ada Lovelace", "José Núñez", "Grace Hopper"}
    assert [totals[name]["points"] for name in totals] == ["1", "0", "0.9"] and totals["José Núñez"]["days late"] == "1"
    back = table(tmp_path / "marks_roster.csv")
    assert list(back[0]) == MOODLE.lstrip("\ufeff").partition("\n")[0].split(",")
    assert [(row["Identifier"][-5:], row["Grade"], row["Maximum grade"]) for row in back] == [
        ("12345", "1", "4.00"), ("12346", "0.9", "4.00"), ("12347", "", "4.00"),
    ]  # fmt: skip
    with zipfile.ZipFile(tmp_path / "marks_feedback.zip") as archive:
        pages = {name: archive.read(name).decode() for name in archive.namelist()}
    assert set(pages) == {
        f"{name}_{number}_assignsubmission_file_feedback.html"
        for name, number in (("Ada Lovelace", 12345), ("José Núñez", 12346), ("Grace Hopper", 12347))
    }
    late = pages["José Núñez_12346_assignsubmission_file_feedback.html"]
    assert "0.9 of 4 points" in late and "1 day late" in late and "neuron" not in late
    said = capsys.readouterr().out
    assert "late: José Núñez, 1 day late\n" in said and "its maximum is" not in said
    assert [totals[name]["id"] for name in totals] == ["12345", "12347", "12346"]
    assert "no hand-in from Grace Hopper" in said and "2 of 3 students have points, in the column Grade" in said


def test_canvas_gets_its_own_columns_and_names_back(tmp_path, capsys):
    hand_in(tmp_path / "group/lovelaceada_LATE_501_9001_ada.zip")
    hand_in(tmp_path / "group/grace.zip")
    hand_in(tmp_path / "group/mallory.zip")
    (tmp_path / "class.csv").write_text(CANVAS, "utf-8")
    listed = ["--roster", str(tmp_path / "class.csv"), "--column", "Week 1 (77)"]
    rows = mark(tmp_path, "--only", "sigmoid.numpy", *listed)
    assert {row["student"] for row in rows} == {"Lovelace, Ada", "Hopper, Grace", "mallory"}
    assert "class.csv: its maximum is 10 points, but here it is 1: " in capsys.readouterr().out
    back = table(tmp_path / "marks_roster.csv")
    assert list(back[0]) == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Week 1 (77)"]
    assert [row["Week 1 (77)"] for row in back] == ["1", "1", "1"] and back[0]["Student"].strip() == "Points Possible"
    with zipfile.ZipFile(tmp_path / "marks_feedback.zip") as archive:
        assert "lovelaceada_501_9001_feedback.html" in archive.namelist()
    totals = {row["student"]: row["problems"] for row in table(tmp_path / "marks_by_student.csv")}
    assert "not listed in class.csv" in totals["mallory"] and not totals["Hopper, Grace"]


def test_two_people_of_one_name_stay_two():
    found = roster.students(["Jo Li_1_assignsubmission_file_", "Jo Li_2_assignsubmission_file_", "Jo Ko"], None)
    assert [name for name, _ in found.values()] == ["Jo Li (1)", "Jo Li (2)", "Jo Ko"]


def test_names_are_found_in_any_order_and_without_accents(tmp_path):
    path = tmp_path / "class.csv"
    path.write_text("nombre;apellidos;usuario\nJosé;Núñez Gil;jng7\nAna;Gil;ag1\nAna;Gil;ag2\n", "utf-8")
    listed = roster.read(path)
    found = roster.students(["nunez gil jose", "JNG7", "Ana Gil", "ag2", "eve"], listed)
    assert [row for _, row in found.values()] == [0, 0, None, 2, None]
    assert found["ag2"][0] == "Ana Gil (ag2)"
    path.write_text("points\n3\n", "utf-8")
    with pytest.raises(CourseError, match="a column with names"):
        roster.read(path)


@pytest.mark.parametrize("due", ["2026-12-01", "20261201", "2026-W49-2"])
def test_a_date_alone_is_the_end_of_its_day(due):
    rule = assignment.deadline(due, 10)
    times = ["2026-12-01T12:00", "2026-12-01T23:59:59", "2026-12-02T00:00", "2026-12-02T23:59", "2026-12-03T00:00"]
    assert [rule.days_late(datetime.fromisoformat(each).astimezone()) for each in times] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    ("only", "same"), [("1,2", "01,02"), ("3b", "03b"), ("2,sigmoid.numpy", "02"), (" 7 ,12", "07,12")]
)
def test_notebooks_are_chosen_without_the_leading_zero(only, same):
    assert assignment.chosen(exercises(), only) == assignment.chosen(exercises(), same) != ()
    assert "got '99'" in refused(assignment.chosen, exercises(), "1,99")


def test_names_in_a_message_are_sorted(tmp_path):
    said = [refused(assignment.chosen, exercises(), "77")]
    (tmp_path / "w.toml").write_text('[notebook]\n"77" = 2\n')
    said.append(refused(marks.read_weights, tmp_path / "w.toml", exercises(), {}))
    for each in said:
        names = each.partition("one of ")[2].partition("; got")[0].removesuffix(" in all)").split(", ")
        names = [name for name in names if not name.startswith("…")]
        assert len(names) >= 2 and names == sorted(names)
