"""Every forgery and attack of tests/answers is handed in by a student of its own, and the class is marked in the
sandbox: none is right, no honest student loses a mark, nothing is written, lost, reached or left running, and no secret
is told.
"""

import csv
import hashlib
import json
import os
import time
from pathlib import Path

import pytest
from forged import FORGERIES, PRECIOUS, assert_nothing_was_reached, make_precious, nothing_stays, outside, plant

from nnclassroom.exercises import kept_kernels
from nnclassroom.judge import sandbox
from nnclassroom.notebook.exams import is_cuda
from nncourse import device
from nnmarking.grade import grade
from tests.tiers import many

HONEST = "def sigmoid(z):\n    return 1 / (1 + np.exp(-z))\n"
LIMIT = 3.0  # seconds of computing: none needs more


def name_of(answer: dict) -> str:
    return f"{answer['operation']}.{answer['kernel']}.{'cu' if is_cuda(answer['kernel']) else 'py'}"


def hand_in(folder: Path, forgery: dict, tmp: Path) -> None:
    """A forger's folder of kept kernels: the text, a second wrong one, a forged record and planted files."""

    def filled(value: str) -> str:
        value = value.replace("{tmp}", str(tmp)).replace("{my_kernels}", str(folder))
        value = value.replace("{port}", str(outside().port))
        return value.replace("{package}", str(Path(sandbox.__file__).parent))

    folder.mkdir(parents=True)
    line = f"// %%cuda {forgery['line']}\n" if "line" in forgery else ""
    text = line + filled(forgery.get("text", "").lstrip("\n"))
    if "text" in forgery:
        (folder / name_of(forgery)).write_text(text, "utf-8")
    if "then" in forgery and name_of(forgery["then"]) != name_of(forgery):
        (folder / name_of(forgery["then"])).write_text(forgery["then"]["text"], "utf-8")
    for each in forgery.get("plant", ()):
        path = Path(each["path"].replace("{tmp}", str(tmp)))
        if not path.is_absolute() and ".." not in path.parts:
            plant(folder / path, each, filled)
    if "record" in forgery:
        record = json.dumps(forgery["record"]) if not isinstance(forgery["record"], str) else forgery["record"]
        digest = hashlib.sha256(text.encode()).hexdigest()
        if not os.path.lexists(folder / "progress.json"):
            (folder / "progress.json").write_text(record.replace("{hash}", digest), "utf-8")


@pytest.fixture(scope="module")
def handed_in(request) -> list[int]:
    """The numbers of the forgeries whose tests run now, or all if none of these does."""
    specs = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    return [spec.params["number"] for spec in specs if spec] or list(range(len(FORGERIES)))


@pytest.fixture(scope="module")
def marked(handed_in, tmp_path_factory, cuda_somewhere):
    """The marks of the class, the folder that forgeries aim at, and all that was said and written."""
    if reason := sandbox.why_none():
        pytest.skip(reason)
    home, tmp = tmp_path_factory.mktemp("class"), tmp_path_factory.mktemp("aim")
    for number in handed_in:
        hand_in(home / f"group/s{number:03}", FORGERIES[number], tmp)
        honest = home / f"group/s{number:03}honest"
        honest.mkdir()
        (honest / "sigmoid.numpy.py").write_text(f"{HONEST}# {number}\n")
    make_precious(tmp)
    before, said = contents(home / "group"), []
    with nothing_stays(), pytest.MonkeyPatch.context() as patched:
        patched.setattr(kept_kernels, "TIME_LIMIT", LIMIT)
        grade([home / "group"], home / "marks.csv", seed=4, say=said.append)
    assert contents(home / "group") == before
    with (home / "marks.csv").open(newline="", encoding="utf-8") as file:
        rows = {(row["student"], row["exercise"]): row for row in csv.DictReader(file)}
    time.sleep(1)
    return rows, tmp, "\n".join([*said, *(path.read_text("utf-8") for path in pages(home))])


def contents(folder: Path) -> dict[Path, bytes | None]:
    """All that lies in a folder, with what is in the files that are small."""
    return {path: path.read_bytes() if is_small(path) else None for path in folder.rglob("*")}


def is_small(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20


def pages(home: Path) -> list[Path]:
    return [*home.glob("marks*.csv"), *home.glob("marks*.jsonl"), *home.rglob("*.html")]


@pytest.mark.parametrize(
    "number",
    many(
        range(len(FORGERIES)),
        lambda number: FORGERIES[number]["name"],
        lambda number: FORGERIES[number]["kind"],
        lambda number: FORGERIES[number]["operation"],
        lambda number: FORGERIES[number]["file"],
    ),
)
def test_a_forgery_is_not_right(number, marked):
    rows, tmp, written = marked
    forgery = FORGERIES[number]
    if forgery.get("needs") == "gpu" and not device.gpu_available():
        pytest.skip("only a GPU shows that it is wrong")
    for each in (forgery, forgery | forgery.get("then", {})):
        key = f"s{number:03}", f"{each['operation']}.{each['kernel']}"
        assert key not in rows or (rows[key]["state"] != "right" and rows[key]["points"] == "0")
        assert each["file"] != "attacks" or rows[key]["state"] == "wrong"  # it was judged
    assert not ({forgery["leaves"]} & set(os.listdir(tmp)) if "leaves" in forgery else ())
    hidden = forgery.get("hides", ())
    for secret in [hidden] if isinstance(hidden, str) else hidden:
        assert secret not in written


def test_nothing_was_written_where_forgeries_aim_at(marked):
    there = {each["path"].partition("{tmp}/")[2] for f in FORGERIES for each in f.get("plant", ())} | {PRECIOUS}
    assert not [name for name in os.listdir(marked[1]) if name not in there]
    assert_nothing_was_reached(marked[1])


def test_no_honest_student_loses_a_mark(marked, handed_in):
    own = [row for (student, key), row in marked[0].items() if student.endswith("honest") and key == "sigmoid.numpy"]
    assert len(own) == len(handed_in) and {row["state"] for row in own} == {"right"}
