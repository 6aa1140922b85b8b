"""The brake: no room of the house outgrows its limit."""

import math
import tomllib

import pytest

from tools import sizes

ABOUT = tomllib.loads((sizes.ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["nncourse"]["lines"]
ROOMS = ABOUT["rooms"]


@pytest.fixture(scope="module")
def counted() -> dict[str, int]:
    if not (sizes.ROOT / ".git").exists():
        pytest.skip("no Git here, which says what belongs to a room")
    return sizes.measured(sizes.tracked(), ROOMS, ABOUT["generated"])


def test_no_room_has_outgrown_its_limit(counted):
    assert not list(sizes.outgrown(counted, ROOMS))
    assert all(counted.values()), "a room without files"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_that_grows_by_three_per_cent_is_named(room):
    most = ROOMS[room]["most"]
    assert not list(sizes.outgrown({room: int(1.01 * most)}, ROOMS))
    (line,) = sizes.outgrown({room: math.ceil(1.03 * most)}, ROOMS)
    assert line.startswith(f"{room} has ")


def test_generated_files_and_other_folders_do_not_count():
    lines = {"a/one.py": 10, "a/b/two.py": 5, "a/made.py": 100, "c/three.py": 7, "a/one.toml": 1}
    rooms = {
        "deep": {"files": ["a/b/**.py"]},
        "flat": {"files": ["a/*.py", "c/*"]},
        "both": {"rooms": ["deep", "flat"]},
    }
    assert sizes.measured(lines, rooms, ["a/made.py"]) == {"deep": 5, "flat": 17, "both": 22}
