"""A made class is marked: a row for everybody, each reason right, copies found and honest ones not, twice the same."""

import os
import re
import time
import zipfile

import pytest

from nnclassroom.commands import main
from nnclassroom.exercises.hints import exercises
from nnclassroom.handing_in.kernel_files import file_of
from nnclassroom.handing_in.pieces import stem_of
from nncourse.errors import printable
from nnmarking import assignment, class_folder
from tests import made_class, test_cells, test_cuda_text, test_hand_ins, test_one_stops_nobody

ONLY = "2,3b,sigmoid.naive"
KNOWN = frozenset(map(file_of, exercises()))


def test_every_entry_has_its_row_and_its_reason(tmp_path):
    made_class.make(tmp_path, list(assignment.chosen(exercises(), ONLY)))
    found = {each.entry: each for each in class_folder.find([tmp_path], KNOWN)}
    assert set(found) == {printable(path.name) for path in tmp_path.iterdir()} and len(found) == 71
    assert {name for name, each in found.items() if not each.texts} == set(made_class.UNREAD)
    for name, reason in made_class.UNREAD.items():
        assert reason in found[name].reason, name
    for name, said in made_class.SAID.items():
        assert any(said in each for each in (*found[name].notes, *found[name].problems)), name
    quiet = set(found) - set(made_class.UNREAD) - set(made_class.SAID)
    assert not any(found[name].notes or found[name].problems or found[name].reason for name in quiet)


def odd() -> list[tuple[dict[str, str | bytes], str, str]]:
    """What other tests hand in, each as a student: the files, the states that sigmoid may have, and what is said."""
    found = [(files, "right", said) for files, said in test_hand_ins.READ.values()]
    found += [(files, "missing", said) for files, said in test_hand_ins.UNREAD.values()]
    found += [(files, "right", "") for files in test_one_stops_nobody.SEVERAL.values()]
    for name, content, state in test_one_stops_nobody.GIVEN.values():
        found.append(({f"ada/{name.replace('a.py', 'sigmoid.numpy.py')}": content}, state, ""))
    for source in test_cells.ANSWERED.values():
        found.append(({"ada.ipynb": test_one_stops_nobody.notebook(source)}, "right wrong", ""))
    right = test_cuda_text.SIGMOID
    cuda = [(text, "right", "") for text in (*test_cuda_text.GIVEN.values(), f"\ufeff{right}")]
    cuda += [(text, "wrong", said) for said, (_, text) in list(test_cuda_text.STRANGE.items())[:4]]
    unclear = {right[:-2]: "this { is", f"/* {right}": "this /* is", f"#if 0\n{right}#endif\n": "left out by the #if"}
    cuda += [(text, "wrong", said) for text, said in unclear.items()]
    return found + [({"ada/sigmoid.naive.cu": text}, *expected) for text, *expected in cuda]


@pytest.mark.full
def test_a_class_of_200_is_marked_twice_the_same(tmp_path, capsys, record_property):
    group, forms = tmp_path / "submissions", {}
    for number, (files, states, said) in enumerate(odd()):
        who = f"odd{chr(97 + number // 26)}{chr(97 + number % 26)}"
        forms[who] = states, said.replace("ada.", f"{who}.")
        named = {re.sub("^(ada|Luis Mora|luis)", who, name): content for name, content in files.items()}
        made_class.put(group, {name.replace("_21_", f"_{300 + number}_"): each for name, each in named.items()})
    chosen = list(assignment.chosen(exercises(), ONLY))
    made_class.make(group, chosen, max(4, 200 - 67 - len(forms)))
    for path in group.rglob("*"):
        os.utime(path, (1_790_000_000, 1_790_000_000))
    found = {each.student: each for each in class_folder.find([group], KNOWN)}
    unread = {name for name, each in found.items() if not each.texts}
    assert (size := len(found)) >= 200
    # The class's list as Excel saves it, with a row twice; weights and points by hand, written by hand.
    names = [(each.number or 5000 + n, name.partition(" (")[0]) for n, (name, each) in enumerate(found.items())]
    rows = [f"Participant {number};{name};" for number, name in names if name.isascii()]
    listed, weights, changed = (tmp_path / name for name in ("class.csv", "weights.toml", "changed.csv"))
    rows = ["Identifier;Full name;Grade", *rows, rows[0], ";;", "Participant 9;Íñigo Núñez;"]
    listed.write_bytes("\r\n".join(rows).encode("cp1252"))
    weights.write_text('[notebook]\n"02" = 2\n')
    changed.write_text("student;exercise;points;reason\nlatin;softmax.numpy;0,5;on paper\n;;;\n")
    command = ["grade", str(group), "--seed", "3", "--only", ONLY, "--due", "2026-12-01", "--late", "20"]
    command += ["--roster", str(listed), "--weights", str(weights), "--overrides", str(changed), "--no-sandbox"]
    outputs = []
    for jobs in "12":
        (folder := tmp_path / jobs).mkdir()
        began = time.perf_counter()
        assert main([*command, "--out", str(folder / "marks.csv"), "--jobs", jobs]) == 0
        seconds = time.perf_counter() - began
        outputs.append({p.relative_to(folder): p.read_bytes() for p in folder.rglob("*.*") if "journal" not in p.name})
    assert outputs[0] == outputs[1]
    said = capsys.readouterr().out
    record_property("told", f"a class of {size} was marked in {seconds:.0f} s")
    entries = len(list(group.iterdir()))
    assert f"hand-ins: {entries} from {size} students; {size - len(unread)} read, {len(unread)} not read" in said
    assert said.count("\nnot read: ") == 2 * len(unread) and "no hand-in from Íñigo Núñez" in said
    assert "read as Windows-1252" in said and "counted once" in said
    totals = {row["student"]: row for row in made_class.table(folder / "marks_by_student.csv")}
    assert set(totals) == {*found, "Íñigo Núñez"} and list(totals) == sorted(totals)
    for name, reason in (made_class.UNREAD | made_class.SAID).items():
        assert reason in totals[stem_of(name)]["problems"], name
    marks = made_class.table(folder / "marks.csv")
    rows_of = {name: [row for row in marks if row["student"] == name] for name in totals}
    assert all(len(rows) == len(chosen) for rows in rows_of.values())
    for who, (states, reason) in forms.items():
        own = [row for row in rows_of[who] if row["exercise"].startswith("sigmoid.")]
        assert {row["state"] for row in own} & set(states.split()), who
        assert reason in " ".join([totals[who]["problems"], *(row["verdict"] for row in own)]), who
        assert (states == "missing") == (who in unread), who
    wrong = {row["student"] for row in marks if row["state"] == "wrong" and row["kind"] != "unreadable"}
    assert wrong <= set(forms)
    assert totals["zip_00"]["days late"] == "1" and sum(row["days late"] != "" for row in totals.values()) == 1
    assert [row["points"] for row in rows_of["latin"] if row["exercise"] == "softmax.numpy"] == ["0.5"]
    assert {row["weight"] for row in marks if row["notebook"].startswith("02_")} == {"2"}
    alike = {row["student"]: row["alike"] for row in marks if f"{row['exercise']}.cu" == made_class.COPIED}
    copied = {name for name, whose in alike.items() if whose and "the course" not in whose}
    assert copied == {"ordinary_00", "copy_names", "copy_dead", "copy_order"}
    assert all(alike[name].count("%") == 3 for name in copied)
    assert {alike[f"ordinary_{number:02}"].startswith("the course") for number in range(1, 5)} == {True, False}
    grades = {row["Full name"]: row["Grade"] for row in made_class.table(folder / "marks_roster.csv", ";")}
    assert {name for name, grade in grades.items() if not grade} == {*unread, "Íñigo Núñez"}
    with zipfile.ZipFile(folder / "marks_feedback.zip") as archive:
        names = archive.namelist()
    assert "Moodle 3_1003_assignsubmission_file_feedback.html" in names and len(names) == size + 1
    assert "canvasc_2002_9002_feedback.html" in names
    assert (folder / "marks_overview.html").stat().st_size < 1_200_000
