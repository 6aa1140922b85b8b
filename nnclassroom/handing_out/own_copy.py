"""A student's copy of the notebooks of a clone, without outputs: `make lab` makes it and keeps it up to date.

The course's notebooks are those of git's last commit, or without git those in notebooks/. Work that a student did in
notebooks/ before there was a copy goes into the new copy: everything that differs from the commit, and the newest
stash. Notebooks in other languages are generated in notebooks/LANGUAGE; each language has a copy of its own.
"""

import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnclassroom.handing_out import assistants, old_names, update
from nnclassroom.handing_out.notebook_files import MANIFEST, cell_hashes, clean, manifest_of, parsed
from nncourse.errors import CourseError, reason_of
from nncourse.language import ENGLISH, SHIPPED

NOTEBOOKS = "notebooks"
COPY, COPIES = "my_notebooks", {"es": "mis_cuadernos"}  # folders of a student's copy, in English and other languages
Files = dict[str, bytes]  # notebooks by their names


def copy_name(language: str) -> str:
    """The folder of a student's copy of the notebooks in this language."""
    return COPY if language == ENGLISH else COPIES.get(language, f"{COPY}_{language}")


def folder_of(root: Path, language: str = ENGLISH) -> Path:
    """The folder with a student's notebooks, in this language, for the course in `root`.

    It is NNCOURSE_MY_NOTEBOOKS, if set; in a hand-out notebooks/, which has no outputs; otherwise my_notebooks/ in the
    course's folder, or in the user's home if the course cannot be written to or is an installed package.
    """
    if named := os.environ.get("NNCOURSE_MY_NOTEBOOKS"):
        return Path(named).absolute()
    if (root / MANIFEST).is_file():
        return root / NOTEBOOKS
    name = copy_name(language)
    beside = root / name
    own = root != SHIPPED and os.access(beside if beside.exists() else root, os.W_OK)
    return beside if own else Path.home() / name


def bring(root: Path, folder: Path, language: str = ENGLISH) -> list[str]:
    """Make the copy in `folder`, or update it. Returns lines that say what was done, if anything was.

    Raises CourseError if the copy cannot be made or written.
    """
    if folder == root / NOTEBOOKS:  # a hand-out is a copy already; `nncourse update` updates it
        handed_out = update.read_manifest(root)
        return old_names.named(root, handed_out) if handed_out else []
    base = update.read_manifest(folder)
    if base and base["language"] != language:
        got = f"they are in {base['language']}, and stay as they are"
        raise CourseError(
            f"{folder}: expected your notebooks in {language}; {got}: set NNCOURSE_MY_NOTEBOOKS to a new folder"
        )
    source = _source(root, language)
    if base and base.get("source") == source and not _damaged(folder, base):
        return []
    course = _course(root, language)
    if not course:
        raise CourseError(f"{_folder(root, language)}: expected the course's notebooks, found none")
    if base is None and any((folder / name).exists() for name in course):
        return [f"{folder} is not updated, since its {MANIFEST} is missing: move the folder away to get a new copy"]
    new = _manifest(course, source, language)
    if base is None:
        return _made(root, folder, course, new, language)
    said = _few(update.apply(_handed_out(course, language), new, base, folder)) + old_names.named(folder, new)
    elsewhere = _differing(_there(root), _committed(root, "HEAD") or {}) if language == ENGLISH else {}
    if elsewhere:
        said.append(f"{NOTEBOOKS}/ has uncommitted changes, which are not taken over: {_names(elsewhere)}")
    return [f"{folder.name}/: {line}" for line in said]


def _few(said: Sequence[str]) -> list[str]:
    """The lines of an update. Those that say only "new" or "updated" are combined."""
    plain = [line for line in said if isinstance(line, update.FileLine)]
    both = [(is_new, _names(line.name for line in plain if line.is_new == is_new)) for is_new in (False, True)]
    grouped = [update.FileLine(names, is_new) for is_new, names in both if names]
    return [*grouped, *(line for line in said if line not in plain)]


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(name.removesuffix(".ipynb") for name in names))


def _made(root: Path, folder: Path, course: Files, new: Mapping[str, Any], language: str) -> list[str]:
    """Make the copy, with the student's earlier work, in one rename, so that an interruption leaves no half of it."""
    said = [f"Your notebooks are in {folder}, without outputs. Your work there stays when the course changes."]
    generated = language != ENGLISH
    files = _handed_out(course, language)
    start = _Start(files, _manifest(course, "", language)) if generated else _start(root, course, said)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{COPY}-") as beside:
            made = Path(beside) / COPY
            made.mkdir()
            for name, content in start.files.items():
                (made / name).write_bytes(content)
            said += [
                line
                for line in update.apply(files, new, start.manifest, made)[:-1]
                if not isinstance(line, update.FileLine)
            ]
            if not generated and _tree(root) is None:
                update.write_manifest(made, start.manifest)
            if folder.is_dir():  # with files of the student's own
                for path in sorted(made.iterdir(), key=lambda path: path.name == MANIFEST):
                    if path.name != assistants.FILE or not os.path.lexists(folder / path.name):
                        path.rename(folder / path.name)
            else:
                made.rename(folder)
    except OSError as error:
        advice = "set NNCOURSE_MY_NOTEBOOKS to a different folder for your notebooks"
        raise CourseError(f"{folder}: cannot be made: {reason_of(error)}; {advice}") from None
    return said


# A student's work before there was a copy


@dataclass(frozen=True)
class _Start:
    """The files that a new copy begins with, and the manifest of those that the course handed out."""

    files: Files
    manifest: dict[str, Any]


def _start(root: Path, course: Files, said: list[str]) -> _Start:
    there = _there(root)
    damaged = [name for name in sorted(there) if not _is_notebook(there[name], name)]
    if _tree(root) is None:
        said += [_not_taken(name) for name in damaged]
        return _start_without_git(course, said)
    earlier = _committed(root, "stash^1") or {}
    stashed = _differing(_committed(root, "stash") or {}, earlier)
    work = _differing(there, course)
    base = (earlier if stashed else course) | {name: course[name] for name in work}
    taken = stashed | work
    own = {name: content for name, content in there.items() if name not in course and name not in base}
    if taken or own:
        said.append(
            f"Your changes to these notebooks were copied from {NOTEBOOKS}/, and stay there too: {_names(taken | own)}."
        )
    said += [_not_taken(name) for name in damaged if name in course and name not in taken]
    return _Start(_handed_out(base | taken) | own, _manifest(base, ""))


def _not_taken(name: str) -> str:
    return f"{NOTEBOOKS}/{name} is damaged: if you have worked in it, your changes are not copied."


def _start_without_git(there: Files, said: list[str]) -> _Start:
    """Without git, every cell may be the student's in a notebook whose cells were run in a different order."""
    touched = {name for name, content in there.items() if _was_run(content, name)}
    if touched:
        said.append(f"These notebooks were copied from {NOTEBOOKS}/, and stay there too: {_names(touched)}.")
    manifest = _manifest(there, "")
    for name in touched:
        manifest["notebooks"][name] = dict.fromkeys(manifest["notebooks"][name], "")
    return _Start(_handed_out(there), manifest)


def _was_run(content: bytes, name: str) -> bool:
    """Whether the cells have numbers other than those of a single run from top to bottom."""
    counts = [cell.execution_count for cell in parsed(content, name).cells if cell.cell_type == "code"]
    return counts != list(range(1, len(counts) + 1)) and any(counts)


def _differing(some: Files, others: Files) -> Files:
    """The notebooks in `some` in which the text of a cell differs from that in `others`."""
    return {
        name: content
        for name, content in some.items()
        if name in others
        and content != others[name]
        and _is_notebook(content, name)
        and cell_hashes(content, name) != cell_hashes(others[name], name)
    }


def _is_notebook(content: bytes, name: str) -> bool:
    try:
        return bool(parsed(content, name))
    except CourseError:
        return False


# The course's notebooks


def _folder(root: Path, language: str) -> Path:
    return root / NOTEBOOKS if language == ENGLISH else root / NOTEBOOKS / language


def _course(root: Path, language: str) -> Files:
    committed = _committed(root, "HEAD") if language == ENGLISH else None
    there = {} if committed else _there(root, language)
    return committed or {name: content for name, content in there.items() if _is_notebook(content, name)}


def _there(root: Path, language: str = ENGLISH) -> Files:
    paths = filter(Path.is_file, sorted(_folder(root, language).glob("*.ipynb")))
    return {path.name: path.read_bytes() for path in paths}


def _handed_out(course: Files, language: str = ENGLISH) -> Files:
    """The course's files in a copy: these notebooks without outputs, and the rules for coding assistants."""
    files = {name: clean(content, name) for name, content in course.items()}
    return files | {assistants.FILE: assistants.text(language).encode()}


def _manifest(course: Files, source: str, language: str = ENGLISH) -> dict[str, Any]:
    return manifest_of(_handed_out(course, language), {"kind": "copy", "language": language, "source": source})


def _source(root: Path, language: str) -> str:
    """Identifies the source of a copy, for a quick comparison: the tree in git, and a hash of the files."""
    tree = _tree(root) if language == ENGLISH else language
    files = [*_there(root, language).values(), assistants.text(language).encode()]
    there = hashlib.sha256(b"".join(files)).hexdigest()[:16]
    return f"{tree or '-'} {there}"


def _damaged(folder: Path, base: Mapping[str, Any]) -> bool:
    """Whether a file of the copy is no longer a notebook."""
    try:
        paths = [folder / name for name in base["notebooks"]]
        return not all(isinstance(json.loads(path.read_bytes()), dict) for path in paths if path.is_file())
    except (OSError, ValueError, RecursionError):
        return True


def _tree(root: Path) -> str | None:
    """The committed notebooks, as git names them; None without git, or if `root` is not a clone."""
    prefix = _git(root, "rev-parse", "--show-prefix")
    tree = _git(root, "rev-parse", f"HEAD:{NOTEBOOKS}")
    return tree.decode().strip() if prefix is not None and not prefix.strip() and tree else None


def _committed(root: Path, commit: str) -> Files | None:
    """The notebooks of a commit; None if there is no such commit, or no git."""
    if _tree(root) is None:
        return None
    archive = _git(root, "archive", "--format=tar", commit, NOTEBOOKS)
    if archive is None:
        return None
    files: Files = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            name = member.name.removeprefix(f"{NOTEBOOKS}/")
            content = tar.extractfile(member) if name.endswith(".ipynb") and "/" not in name else None
            if content:
                files[name] = content.read()
    return files


def _git(root: Path, *arguments: str) -> bytes | None:
    """The output of a git command; None if it fails or there is no git."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, env=environment, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
