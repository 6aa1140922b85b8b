"""Print the number of lines of each part of the code, and its limit: `make sizes`. The tests run it too.

The limits are in pyproject.toml, `tool.nncourse.lines`, for "rooms": groups of files. Raise a limit in the commit that
needs it, and say in its body what for. Every line counts, docstrings and comments too; generated files do not count.
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
ABOVE = 0.02  # of a limit: the share above it that is let pass


def tracked(root: Path = ROOT) -> dict[str, int]:
    """The lines of each file that Git knows, by its path."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    files = [name for name in listed.split("\0") if name and (root / name).is_file()]
    return {name: (root / name).read_bytes().count(b"\n") for name in files}


def measured(lines: Mapping[str, int], rooms: Mapping[str, Mapping], generated: Sequence[str]) -> dict[str, int]:
    """The lines of each room: of the files that match one of its patterns, generated ones left out.

    A room may have other `rooms` in place of `files`: it is these together.
    """
    own = {
        room: [each for other in about.get("rooms", [room]) for each in rooms[other]["files"]]
        for room, about in rooms.items()
    }
    return {
        room: sum(count for name, count in lines.items() if _in(name, files) and not _in(name, generated))
        for room, files in own.items()
    }


def _in(name: str, patterns: Sequence[str]) -> bool:
    """Whether a path is one of these, or a pattern such as `nncourse/**.py` or `nncourse/*.py` has it."""
    path = PurePosixPath(name)
    for pattern in patterns:
        folder, deep, ending = pattern.partition("**")
        if deep and name.startswith(folder) and name.endswith(ending):
            return True
        if not deep and path.match(pattern) and len(path.parts) == len(PurePosixPath(pattern).parts):
            return True
    return False


def outgrown(sizes: Mapping[str, int], rooms: Mapping[str, Mapping]) -> Iterator[str]:
    """A line for each room that is more than ABOVE over its limit."""
    for room, size in sizes.items():
        limit = rooms[room]["most"]
        if size > limit * (1 + ABOVE):
            yield (
                f"{room} has {size:,} lines, {100 * (size / limit - 1):.1f} % more than its limit of {limit:,}: remove "
                "some, or raise the limit in pyproject.toml and say in the commit what for"
            )


def main() -> int:
    """Print the table; the exit status is 1 if a room has outgrown its limit."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["nncourse"]["lines"]
    rooms = about["rooms"]
    sizes = measured(tracked(), rooms, about["generated"])
    print(f"{'room':26}{'lines':>8}{'limit':>8}")
    for room, size in sizes.items():
        print(f"{room:26}{size:8,}{rooms[room]['most']:8,}")
    said = list(outgrown(sizes, rooms))
    print(*said, sep="\n")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
