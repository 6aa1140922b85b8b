"""What students hand in, in whatever form: every entry is read, or has a reason why it is not."""

import json
import stat
import time
import zipfile

import nbformat
import pytest
from nbformat import v4

from nnclassroom.exercises.hints import exercises
from nnclassroom.handing_in import pieces, submission
from nnclassroom.handing_in.kernel_files import file_of
from nnmarking import class_folder
from tests.made_class import put, without_ids
from tests.made_class import tarred as tar
from tests.made_class import zipped as archive

KNOWN = frozenset(map(file_of, exercises()))
SIGMOID = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"
NEURON = "def neuron(x, w, b):\n    for i in range(len(x)):\n        b = b + w[i] * x[i]\n    return b\n"
CUDA = 'extern "C" __global__ void sigmoid(const float* z, float* a, int n) {\n    a[0] = z[0];\n}\n'
EMPTY = 'extern "C" __global__ void relu(float* z) {\n    // your code here\n}\n'
BLANK = "def relu(z):\n    raise NotImplementedError  # your code here: about 1 line\n"
BLANK_CELL = v4.new_code_cell(f'@exercise("relu", kernel="numpy")\n{BLANK}')


def notebook() -> bytes:
    cells = [
        v4.new_markdown_cell("# Activations"),
        v4.new_code_cell("%matplotlib inline\nimport numpy as np"),
        v4.new_code_cell(f'@exercise("sigmoid", kernel="numpy")\n{SIGMOID}\nsigmoid(np.zeros(3))'),
        BLANK_CELL,
        v4.new_code_cell(f"%%cuda sigmoid naive --block 64\n{CUDA}"),
        v4.new_code_cell(f"%%cuda relu naive\n{EMPTY}"),
        v4.new_code_cell("this is (no Python"),
    ]
    return nbformat.writes(v4.new_notebook(cells=cells)).encode()


def packed(text: str, time: str) -> bytes:
    return archive({"submission.json": json.dumps({"time": time}), "my_kernels/sigmoid.numpy.py": text})


EXPORT = f'# In[3]:\n\n@exercise("sigmoid", kernel="numpy")\n{SIGMOID}'
ENVIRONMENT = {f".venv/lib/f{number}.py": "" for number in range(5000)} | {f"site/f{n}.py": "" for n in range(200)}
MAC = {"__MACOSX/._sigmoid.numpy.py": b"\x00\x05\x16\x07\xff", "my_kernels/._sigmoid.numpy.py": b"\x00\x05\xff"}
READ = {
    "a folder of kernels": ({"ada/sigmoid.numpy.py": SIGMOID}, ""),
    "a folder with my_kernels": (
        {"ada/my_kernels/sigmoid.numpy.py": SIGMOID, "ada/b/sigmoid.numpy.py": "no"},
        "my_kernels/sigmoid.numpy.py counts and not b/sigmoid.numpy.py, since it is a kept kernel",
    ),
    "a .zip": ({"ada.zip": archive({"sigmoid.numpy.py": SIGMOID})}, ""),
    "a .tar.gz": ({"ada.tar.gz": tar({"./my_kernels/sigmoid.numpy.py": SIGMOID})}, ""),
    "a .tgz in a folder": ({"ada/hand in.tgz": tar({"sigmoid.numpy.py": SIGMOID})}, ""),
    "a notebook": ({"ada.ipynb": notebook()}, ""),
    "a folder of notebooks": ({"ada/02.ipynb": notebook()}, ""),
    "a .zip of notebooks": ({"ada.zip": archive({"my/02.ipynb": notebook()})}, ""),
    "a second download": ({"ada/sigmoid(1).numpy.py": SIGMOID}, "sigmoid(1).numpy.py is read as sigmoid.numpy.py"),
    "an editor's name": ({"ada/sigmoid.numpy.py.txt": SIGMOID}, "is read as sigmoid.numpy.py"),
    "a capital letter": ({"ada/Sigmoid.numpy.py": SIGMOID}, "is read as sigmoid.numpy.py"),
    # Archives are read as folders are.
    "a .zip with backslashes": ({"ada.zip": archive({"course\\my_kernels\\sigmoid.numpy.py": SIGMOID})}, ""),
    "a .zip with an environment": ({"ada.zip": archive(ENVIRONMENT | {"my_kernels/sigmoid.numpy.py": SIGMOID})}, ""),
    "a folder with an environment": (
        {f"ada/{n}": t for n, t in ENVIRONMENT.items()} | {"ada/my_kernels/sigmoid.numpy.py": SIGMOID},
        "",
    ),
    "a .zip in a .zip": ({"ada.zip": archive({"work.zip": archive({"sigmoid.numpy.py": SIGMOID})})}, ""),
    "a .tar in a .zip in a folder": ({"ada/1.zip": archive({"a/w.tgz": tar({"sigmoid.numpy.py": SIGMOID})})}, ""),
    "a .zip called .tar.gz": ({"ada.tar.gz": archive({"sigmoid.numpy.py": SIGMOID})}, ""),
    "a .tar.gz called .zip": ({"ada.zip": tar({"sigmoid.numpy.py": SIGMOID})}, ""),
    "a .tar.gz called .tar": ({"ada.tar": tar({"sigmoid.numpy.py": SIGMOID})}, ""),
    "a .tar.xz": ({"ada.tar.xz": tar({"sigmoid.numpy.py": SIGMOID}, form="xz")}, ""),
    "a kernel in the 12th folder": ({"ada.zip": archive({"a/" * 12 + "sigmoid.numpy.py": SIGMOID})}, ""),
    "a kernel in the 30th folder": ({"ada/" + "a/" * 30 + "sigmoid.numpy.py": SIGMOID}, ""),
    "a link beside it": ({"ada.tgz": tar({"sigmoid.numpy.py": SIGMOID}, "/etc/passwd")}, ""),
    "a colon in a name": ({"ada.zip": archive({"sigmoid.numpy.py": SIGMOID, "notes 10:30.txt": ""})}, ""),
    "a Mac's .zip": ({"ada.zip": archive(MAC | {"my_kernels/sigmoid.numpy.py": SIGMOID})}, ""),
    "two folders": ({"ada.zip": archive({"a/sigmoid.numpy.py": SIGMOID, "b/sigmoid.numpy.py": SIGMOID})}, ""),
    # Texts as editors write them.
    "a mark and the line ends of Windows": (
        {"ada/sigmoid.numpy.py": b"\xef\xbb\xbf" + SIGMOID.replace("\n", "\r\n").encode()},
        "",
    ),
    "UTF-16": ({"ada/sigmoid.numpy.py": SIGMOID.encode("utf-16")}, ""),
    "a notebook with a byte-order mark": ({"ada.ipynb": b"\xef\xbb\xbf" + notebook()}, ""),
    "a notebook in UTF-16": ({"ada.ipynb": notebook().decode().encode("utf-16")}, ""),
    "a notebook with other line ends": ({"ada.ipynb": notebook().replace(b"\n", b"\r\n")}, ""),
    "a notebook without ids": ({"ada.ipynb": without_ids(notebook())}, ""),
    "Jupyter's export": ({"ada/02.py": EXPORT}, ""),
    "Jupyter's export alone": ({"ada_21_assignsubmission_file_02.py": EXPORT}, ""),
    # Files that a platform has named, without folders.
    "Moodle's notebook": ({"ada_21_assignsubmission_file_02.ipynb": notebook()}, ""),
    "Moodle's kernel": ({"ada_21_assignsubmission_file_sigmoid.numpy.py": SIGMOID}, ""),
    "Canvas's kernel": ({"ada_21_77_sigmoid.numpy.py": SIGMOID}, ""),
    "Canvas's second upload": ({"ada_21_77_sigmoid.numpy-1.py": SIGMOID}, "is read as sigmoid.numpy.py"),
}


@pytest.mark.parametrize("form", READ)
def test_what_is_read(form, tmp_path):
    files, note = READ[form]
    (found,) = class_folder.find([put(tmp_path / "group", files)], KNOWN)
    text = found.texts["sigmoid.numpy.py"]
    assert found.student == "ada" and "np.exp(-z)" in text and "\r" not in text
    assert not [said for said in found.problems if "is a link" not in said]
    assert any(note in each for each in found.notes) if note else not found.notes
    assert set(found.texts) <= {"sigmoid.numpy.py", "sigmoid.naive.cu"}
    if "sigmoid.naive.cu" in found.texts:
        assert found.texts["sigmoid.naive.cu"] == f"// %%cuda sigmoid naive --block 64\n{CUDA}"


def in_each_other(depth: int) -> bytes:
    return archive({"work.zip": in_each_other(depth - 1)} if depth else {"sigmoid.numpy.py": SIGMOID})


def with_password() -> bytes:
    """A .zip that says of its file that it is encrypted."""
    made = bytearray(archive({"sigmoid.numpy.py": SIGMOID}))
    made[6] |= 1
    made[made.index(b"PK\x01\x02") + 8] |= 1
    return bytes(made)


def with_link() -> bytes:
    """A .zip in which a kernel's name is that of a link."""
    link = zipfile.ZipInfo("sigmoid.numpy.py")
    link.external_attr = (stat.S_IFLNK | 0o644) << 16
    return archive({link: "/etc/passwd"})


UNREAD = {
    "a link in a .zip": ({"ada.zip": with_link()}, "a link"),
    "an absolute path": ({"ada.zip": archive({"/etc/sigmoid.numpy.py": SIGMOID})}, "a path out of the archive"),
    "a password": ({"ada.zip": with_password()}, "has a password"),
    "a .rar called .zip": ({"ada.zip": b"Rar!\x1a\x07\x01\x00" + bytes(40)}, "this is a RAR file"),
    "a .7z in a .zip": ({"ada.zip": archive({"work.zip": b"7z\xbc\xaf\x27\x1c" + bytes(40)})}, "this is a 7z file"),
    "a drive's path": (
        {"ada.zip": archive({"C:\\my_kernels\\sigmoid.numpy.py": SIGMOID})},
        "a path out of the archive",
    ),
    "a path with backslashes": (
        {"ada.zip": archive({"..\\..\\sigmoid.numpy.py": SIGMOID})},
        "a path out of the archive",
    ),
    "archives in archives": ({"ada.zip": in_each_other(6)}, "inside each other"),
    "pages": ({"ada/02.html": "<p>", "ada/02.png": "x"}, "no kernel and no notebook in it, only 02.html, 02.png"),
    "a .rar": ({"ada.rar": b"Rar!"}, "expected a .zip"),
    "a .rar in a folder": ({"ada/my.rar": b"Rar!"}, "my.rar is not read"),
    "words": ({"ada.txt": "done!"}, "expected a .zip, a .tar.gz, a folder or a notebook; got a .txt"),
    "a page alone": ({"ada.html": "<p>"}, "got a .html"),
    "an empty folder": ({"ada/.keep": ""}, "nothing in it"),
    "other files": ({"ada/report.pdf": b"%PDF", "ada/a.png": b"x"}, "report.pdf is not read"),
    "a blank notebook": ({"ada.ipynb": nbformat.writes(v4.new_notebook(cells=[BLANK_CELL]))}, "no filled-in"),
    "a damaged notebook": ({"ada.ipynb": b"{"}, "ada.ipynb: is not a notebook"),
    "a .tar.gz out of itself": ({"ada.tgz": tar({"../sigmoid.numpy.py": SIGMOID})}, "a path out of the archive"),
    "no .tar.gz": ({"ada.tar.gz": b"\x1f\x8b no"}, "cannot be read"),
    "a .zip cut short": ({"ada.zip": archive({"sigmoid.numpy.py": SIGMOID})[:40]}, "cannot be read"),
}


@pytest.mark.parametrize("form", UNREAD)
def test_what_is_not_read_has_its_reason(form, tmp_path):
    files, reason = UNREAD[form]
    (found,) = class_folder.find([put(tmp_path / "group", files)], KNOWN)
    assert found.student == "ada" and not found.texts
    assert reason in found.reason


def test_a_notebook_that_is_too_long_is_to_be_handed_in_without_its_outputs(tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "MOST_NOTEBOOK", 1 << 20)
    book = json.loads(notebook()) | {"metadata": {"long": "." * (1 << 20)}}
    (found,) = class_folder.find([put(tmp_path / "group", {"ada.ipynb": json.dumps(book)})], KNOWN)
    assert found.reason == "ada.ipynb: longer than 1 MB; clear its outputs"


def test_a_name_close_to_an_exercise_is_said(tmp_path):
    (found,) = class_folder.find([put(tmp_path / "group", {"ada/sigmoyd.numpy.py": SIGMOID})], KNOWN)
    assert found.notes == ("sigmoyd.numpy.py is not an exercise here; did you mean sigmoid.numpy.py?",)


def test_a_renamed_kernel_does_not_replace_the_right_one(tmp_path):
    files = {"ada/sigmoid.numpy.py": SIGMOID, "ada/sigmoid(1).numpy.py": "older"}
    (found,) = class_folder.find([put(tmp_path / "group", files)], KNOWN)
    assert found.texts == {"sigmoid.numpy.py": SIGMOID}
    assert found.problems == ("sigmoid(1).numpy.py: not read, since there is sigmoid.numpy.py",)


def test_a_kept_kernel_counts_before_the_cell_of_a_notebook(tmp_path):
    files = {"ada/my_kernels/sigmoid.numpy.py": "kept\n", "ada/notebooks/02.ipynb": notebook()}
    (found,) = class_folder.find([put(tmp_path / "group", files)], KNOWN)
    assert found.texts["sigmoid.numpy.py"] == "kept\n" and "sigmoid.naive.cu" in found.texts


def test_of_two_hand_ins_the_newest_by_its_record_counts(tmp_path):
    old, new = packed("old", "2026-11-02T12:00:00+00:00"), packed("new", "2026-11-02T13:30:00+02:00")
    group = put(tmp_path / "group", {"ada/1.zip": old, "ada/2.zip": new, "bob.zip": new, "bob.tar.gz": tar({"x": ""})})
    ada, bob = class_folder.find([group], KNOWN)
    assert ada.texts == {"sigmoid.numpy.py": "old"} and (ada.entries, ada.replaced) == (1, 0)  # 12:00 in London, 11:30
    assert "the newest counts: 1.zip" in ada.notes[0] and "by its record" in ada.notes[0]
    assert bob.texts == {"sigmoid.numpy.py": "new"} and (bob.entries, bob.replaced) == (2, 1)
    assert any("bob.tar.gz is not read" in note for note in bob.notes)


def test_somebodys_kernel_at_the_top_hides_no_class(tmp_path):
    group = put(tmp_path / "group", {"sigmoid.numpy.py": SIGMOID, "ada/neuron.loops.py": NEURON, "bob.rar": b"Rar!"})
    found = {each.student: each for each in class_folder.find([group], KNOWN)}
    assert set(found) == {"ada", "bob", "sigmoid.numpy"} and found["sigmoid.numpy"].reason
    assert found["ada"].texts == {"neuron.loops.py": NEURON}


def test_a_bomb_of_a_tar_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "MOST_PASSED", 1 << 20)
    group = put(tmp_path / "group", {"ada.tar.gz": tar({"zeros.bin": bytes(8 << 20), "sigmoid.numpy.py": SIGMOID})})
    (found,) = class_folder.find([group], KNOWN)
    assert "more than 1 MB" in found.reason and not found.texts


def test_archives_in_archives_are_not_read_without_end(tmp_path):
    inner = archive({f"{number}.zip": archive({"sigmoid.numpy.py": SIGMOID}) for number in range(100)})
    group = put(tmp_path / "group", {"ada.zip": archive({f"{number}.zip": inner for number in range(100)})})
    began = time.process_time()
    (found,) = class_folder.find([group], KNOWN)
    assert found.texts == {"sigmoid.numpy.py": SIGMOID} and time.process_time() - began < 20
    assert any(f"more than {submission.MOST_ARCHIVES} archives" in note for note in found.notes)
