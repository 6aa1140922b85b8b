"""`nncourse update`: bring a new hand-out into a student's copy without losing any of the student's work.

Cells are identified by their ids, and MANIFEST.json has a hash of each cell as it was handed out. So three versions are
merged: the one handed out, the student's and the new one. Cells that only the course has changed are replaced. Cells
that the student has changed, added or deleted stay as they are. If both have changed a cell, the student's stays, and
the new one goes below it, with a note. If the course moves a cell to a different notebook, the student's version moves
too, with the student's own cells below it. Old names in the student's cells are reported at each update, with their
replacements. Every file that changes is copied to backups/ first. my_kernels/ and other files stay untouched.
"""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path, PurePosixPath
from typing import Any

from nnclassroom.handing_out import moved_cells, old_names
from nnclassroom.handing_out.notebook_files import MANIFEST, cell_hash, give_ids, language_info, parsed, to_bytes
from nncourse.errors import CourseError, decoded, reason_of, write_atomically

BACKUPS = "backups"
OWN = ("my_kernels", BACKUPS)  # never written by an update
MARK = "nncourse_update"  # in the metadata of a cell that an update has added below the student's
MOST_BYTES = 256 << 20  # of all files in a hand-out
NOTE = (
    "**Update of the course.** The cell above is yours; the cell below is the course's new version of it. "
    "Delete the one that you do not want, and this note."
)
NOTE_DELETED = "**Update of the course.** You have deleted this cell; the course has a new version of it, below."


def update(handout: Path, folder: Path) -> list[str]:
    """Bring the hand-out, a .zip or an unpacked one, into the copy in `folder`. Returns lines that say what was done.

    A second call changes nothing. If this is not a hand-out or not a copy, raises CourseError and changes nothing.
    """
    files, new = _opened(handout)
    base = read_manifest(folder)
    if base is None:
        wanted = f"{folder.absolute()}: expected your copy of a hand-out, with its {MANIFEST}"
        raise CourseError(f"{wanted}; run this in that folder, or name it with --folder")
    for what in ("kind", "language"):
        if base[what] != new[what]:
            raise CourseError(f"{handout}: expected a hand-out of {what} {base[what]}, like yours; got {new[what]}")
    said = apply(files, new, base, folder) or [f"nothing to do: your copy is at course {new['course']}"]
    return said + old_names.named(folder, new)


class FileLine(str):
    """The line for a file that is new or was updated, if there is nothing else to say about it."""

    name: str
    is_new: bool

    def __new__(cls, name: str, is_new: bool) -> "FileLine":
        line = super().__new__(cls, f"new: {name}" if is_new else f"updated {name}")
        line.name, line.is_new = name, is_new
        return line


def apply(files: Mapping[str, bytes], new: Mapping[str, Any], base: Mapping[str, Any], folder: Path) -> list[str]:
    """Bring new files into a copy whose manifest is `base`. Returns lines that say what was done, if anything was.

    Raises CourseError if a file cannot be read or written; the same call may be repeated later.
    """
    try:
        return _applied(files, new, base, folder)
    except OSError as error:
        raise CourseError(f"{error.filename or folder}: cannot be updated: {reason_of(error)}") from None


def _applied(files: Mapping[str, bytes], new: Mapping[str, Any], base: Mapping[str, Any], folder: Path) -> list[str]:
    copy = _Copy(folder, base, new["notebooks"])
    todo: dict[str, bytes | None] = {}
    said = copy.said
    for name in sorted(files):
        path = folder / name
        content, line = _merged_file(path, name, files[name], base, new, copy)
        if content is not None and (not path.is_file() or path.read_bytes() != content):
            todo[name] = content
            said.append(line)
    for name in sorted(set(base["files"]) - set(files)):
        if _is_harmless(name) and (folder / name).is_file():
            unchanged = _hash((folder / name).read_bytes()) == base["files"][name]
            if unchanged or (name in copy.moved and not copy.has_own_cells(name)):
                todo[name] = None
                said.append(f"removed {name}, which the course no longer has")
            elif name in copy.moved:
                todo[name] = to_bytes(copy.notebooks[name])
                said.append(f"kept {name}, which the course no longer has: the cells that are left in it are yours")
    if not todo:
        write_manifest(folder, new)
        return said
    backup = _new_backup(folder)
    for name in todo:
        if (folder / name).is_file():
            (backup / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / name, backup / name)
    # Moved cells are written to their new notebook before they are removed from the old one, and the manifest comes
    # last, so that an interrupted update can be repeated.
    for name in sorted(todo, key=lambda name: (name in copy.moved, todo[name] is None)):
        content = todo[name]
        if content is None:
            (folder / name).unlink()
        else:
            _write(folder / name, content)
    write_manifest(folder, new)
    way = f"from course {base['course']} to {new['course']}; " if base["course"] != new["course"] else ""
    if any(backup.iterdir()):
        said.append(f"{way}the previous versions of these files are in {backup.relative_to(folder)}")
    else:
        backup.rmdir()
        said.append(f"{way}nothing of yours was replaced")
    if {"pyproject.toml", *(name for name in todo if name.startswith("requirements/"))} & todo.keys():
        said.append("run `make lab` again: the course now needs different packages")
    return said


class _Copy:
    """The student's notebooks by name, with all cells in the notebooks where the course has them now.

    `handed_out` has the manifest's hashes, arranged in the same way.
    """

    def __init__(self, folder: Path, base: Mapping[str, Any], new: Mapping[str, Mapping[str, str]]) -> None:
        self.handed_out = {name: dict(cells) for name, cells in base["notebooks"].items()}
        self.broken: set[str] = set()
        self.notebooks: dict[str, Any] = {}
        self.said: list[str] = []
        self.moved: set[str] = set()  # notebooks from which cells have moved away
        for name in sorted({*self.handed_out, *new}):
            self._read(folder / name, name, new.get(name, {}))
        self.before = {name: _saying(notebook.cells) for name, notebook in self.notebooks.items()}
        for old, where in moved_cells.destinations(base["notebooks"], new).items():
            if old in self.notebooks:
                self._move(old, where, stays=old in new)

    def _read(self, path: Path, name: str, new: Mapping[str, str]) -> None:
        if not path.is_file():
            return
        try:
            notebook = parsed(path.read_bytes(), name)
        except CourseError:
            self.broken.add(name)
            return
        give_ids(notebook.cells, self.handed_out.get(name, {}))
        # A notebook that was not handed out, but has cells of the new one, was left by an interrupted update.
        if name in self.handed_out or any(cell.id in new for cell in notebook.cells):
            self.notebooks[name] = notebook

    def _move(self, old: str, where: Mapping[str, str], stays: bool) -> None:
        handed_out = dict(self.handed_out[old])
        remaining, going = moved_cells.follow(self.notebooks[old].cells, handed_out, where, stays)
        for target in set(where.values()) - self.notebooks.keys():
            self.handed_out[target] = {}  # missing or deleted, so all of it is new
        moved_cells.shift(self.handed_out, old, where)
        self.notebooks[old].cells = remaining
        self.moved.add(old)
        for target, cells in going.items():
            own = sum(cell_hash(cell) != handed_out.get(cell.id) for cell in cells)
            if own:
                self.said.append(f"moved {own} of your cells with the course's cells from {old} to {target}")
            if target not in self.notebooks:
                self.notebooks[target] = deepcopy(self.notebooks[old])
                self.notebooks[target].cells = []
            there = self.notebooks[target]
            known = set(_saying(there.cells))
            there.cells += [cell for cell in cells if (cell.id, cell_hash(cell)) not in known]
            give_ids(there.cells, self.handed_out[target])

    def has_own_cells(self, name: str) -> bool:
        """Whether a notebook still has cells of the student's own."""
        handed_out = self.handed_out[name]
        return any(cell_hash(cell) != handed_out.get(cell.id) for cell in self.notebooks[name].cells)


def _opened(handout: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """The files of a hand-out by name, and its manifest. CourseError unless they agree."""
    wanted = f"{handout}: expected a .zip that `nncourse handout` has written"
    if handout.is_dir():
        return _unpacked(handout, wanted)
    try:
        with zipfile.ZipFile(handout) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            if sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise CourseError(f"{wanted}; this one is too large")
            files = {entry.filename.partition("/")[2]: archive.read(entry) for entry in entries}
        new = json.loads(files.pop(MANIFEST))
    except CourseError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, NotImplementedError, RuntimeError, EOFError) as error:
        raise CourseError(f"{wanted}; got {reason_of(error)}") from None
    if not _is_manifest(new):
        raise CourseError(f"{wanted}; this one is damaged: download it again")
    return _checked(files, new, wanted)


def _checked(files: dict[str, bytes], new: dict[str, Any], wanted: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Both unchanged, if the files are those of the manifest and have harmless names; otherwise CourseError."""
    if {name: _hash(content) for name, content in files.items()} != new["files"]:
        raise CourseError(f"{wanted}; this one is damaged: download it again")
    for name in files:
        if not _is_harmless(name):
            raise CourseError(f"{wanted}; this one has a file with a forbidden name, {name!r}")
    return files, new


def _is_harmless(name: str) -> bool:
    """Whether a file of a hand-out may have this name: it must be inside the copy, but not in the student's folders."""
    parts = name.split("/")
    is_inside = not PurePosixPath(name).is_absolute() and not {"..", ""} & set(parts) and "\\" not in name
    return is_inside and parts[0] not in OWN


def _unpacked(handout: Path, wanted: str) -> tuple[dict[str, bytes], dict[str, Any]]:
    """As _opened(), for an unpacked hand-out in a folder."""
    new = read_manifest(handout)
    if new is None:
        raise CourseError(f"{wanted}, or a folder with an unpacked one; this folder has no {MANIFEST}")
    try:
        files = {name: (handout / name).read_bytes() for name in new["files"]}
    except OSError as error:
        raise CourseError(f"{wanted}; {error.filename}: {reason_of(error)}") from None
    return _checked(files, new, wanted)


def _is_manifest(found: Any) -> bool:
    texts, tables = ("course", "kind", "language"), ("files", "notebooks")
    return (
        isinstance(found, dict)
        and all(isinstance(found.get(key), str) for key in texts)
        and all(isinstance(found.get(key), dict) for key in tables)
        and all(map(_are_hashes, (found["files"], *found["notebooks"].values())))
    )


def _are_hashes(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(text, str) for text in found.values())


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest of the student's copy; None if there is none."""
    path = folder / MANIFEST
    try:
        found = json.loads(decoded(path.read_bytes())) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    return found if _is_manifest(found) else None


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a copy."""
    _write(folder / MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode())


def _merged_file(
    path: Path, name: str, content: bytes, base: Mapping[str, Any], new: Mapping[str, Any], copy: _Copy
) -> tuple[bytes | None, str]:
    """The new content of the file (None to leave it as it is), and a line that says what was done."""
    if name in copy.notebooks:
        return _merged_notebook(copy, name, content, is_new=not path.is_file())
    if not path.is_file():
        if os.path.lexists(path):  # a folder, or a broken link, which may have a purpose
            copy.said.append(f"{name} is not updated: in your copy it is not a file")
            return None, ""
        # A notebook that the student has deleted stays deleted, unless it has changed.
        gone = name in base["notebooks"] and base["notebooks"][name] == new["notebooks"].get(name)
        return (None if gone else content), FileLine(name, is_new=True)
    if name in copy.broken and name in base["notebooks"]:
        return content, f"updated {name}; your version is no longer a notebook, and is in the backup"
    mine = path.read_bytes()
    if _hash(mine) == base["files"].get(name) or mine == content:
        return content, FileLine(name, is_new=False)
    if base["files"].get(name) == new["files"][name]:
        return None, ""  # only the student has changed it
    return content, f"updated {name}; your version of it is in the backup"


def _merged_notebook(copy: _Copy, name: str, content: bytes, is_new: bool) -> tuple[bytes | None, str]:
    """The merged notebook (None if nothing in it changes), and a line that says what was done."""
    new, mine = parsed(content, name), copy.notebooks[name]
    give_ids(new.cells, {})  # as the manifest does
    cells, conflicts = merged(mine.cells, new.cells, copy.handed_out.get(name, {}))
    if copy.before.get(name) == _saying(cells):
        return None, ""
    mine.cells, mine.nbformat_minor = cells, max(mine.nbformat_minor, new.nbformat_minor)
    if mine.metadata.get("language_info") == {"name": "python"}:  # this copy has not been opened yet
        mine.metadata["language_info"] = language_info()
    line: str = FileLine(name, is_new)
    if conflicts:
        line = f"{line}; cells kept in both versions, since both you and the course changed them: {len(conflicts)}"
    return to_bytes(mine), line


def _saying(cells: Iterable[Any]) -> list[tuple[str, str]]:
    """The id of each cell, and a hash of its text."""
    return [(cell.id, cell_hash(cell)) for cell in cells]


def merged(mine: Sequence[Any], new: Sequence[Any], base: Mapping[str, str]) -> tuple[list[Any], list[str]]:
    """The merged cells, and the ids of cells that both have changed. `base` has each cell's hash as handed out."""
    own = {cell.id: cell for cell in mine}
    theirs = {cell.id: cell for cell in new}
    beside = _earlier_updates(mine)
    result, conflicts = [], []
    for name in _order(list(own), list(theirs), base):
        here, there = own.get(name), theirs.get(name)
        if there is None:
            if cell_hash(here) != base.get(name):
                result.append(here)  # the student's own, or changed by the student
            continue
        changed = base.get(name) != cell_hash(there)
        if here is None:
            if name not in base:
                result.append(there)
            elif changed:  # deleted by the student, and changed since
                result += _beside(there, name, NOTE_DELETED)
                conflicts.append(name)
        elif cell_hash(here) == cell_hash(there) or not changed:
            result.append(here)
        elif cell_hash(here) == base.get(name):
            taken = deepcopy(there)
            taken.metadata = here.metadata | there.metadata
            result.append(taken)
        else:
            result += [here, *_beside(there, name, NOTE)]
            conflicts.append(name)
    replaced = {id(cell) for name in conflicts for cell in beside.get(name, ())}
    return [cell for cell in result if id(cell) not in replaced], conflicts


def _order(mine: Sequence[str], new: Sequence[str], base: Mapping[str, str]) -> list[str]:
    """All ids in the new order, with each of the student's own cells after the cell that it follows.

    If the student has moved cells of the course, the student's order counts, and each new cell follows the one before.
    """
    handed_out = [name for name in base if name in set(mine)]
    moved = [name for name in mine if name in base] != handed_out
    first, second = (mine, new) if moved else (new, mine)
    order = list(first)
    before = ""
    for name in second:
        if name not in order:
            order.insert(order.index(before) + 1 if before else 0, name)
        before = name
    return order


def _beside(cell: Any, name: str, words: str) -> list[Any]:
    """The course's new cell below a note, both marked, so that a later update recognises them."""
    from nbformat import v4

    new = deepcopy(cell)
    new["id"] = f"{name[:40]}-new-{cell_hash(cell)[:8]}"
    note = v4.new_markdown_cell(words, id=f"{name[:40]}-note-{cell_hash(cell)[:8]}")
    for each in (note, new):
        each.metadata[MARK] = {"of": name, "hash": cell_hash(each)}
    return [note, new]


def _earlier_updates(cells: Iterable[Any]) -> dict[str, list[Any]]:
    """Cells that an earlier update has added below the student's, unchanged since: id -> cells."""
    found: dict[str, list[Any]] = {}
    for cell in cells:
        mark = cell.metadata.get(MARK)
        if isinstance(mark, dict) and mark.get("hash") == cell_hash(cell):
            found.setdefault(str(mark.get("of")), []).append(cell)
    return found


def _new_backup(folder: Path) -> Path:
    number = 1
    while (folder / BACKUPS / f"{number:03}").exists():
        number += 1
    backup = folder / BACKUPS / f"{number:03}"
    try:
        backup.mkdir(parents=True)
    except OSError as error:
        raise CourseError(f"{backup}: cannot be made: {reason_of(error)}; nothing was changed") from None
    return backup


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda new: new.write_bytes(content))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
