"""Read, find and download IDX files, the form of MNIST and Fashion-MNIST."""

import gzip
import hashlib
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from nncourse.errors import CourseError, reason_of, write_atomically

DEEPEST = 3  # folders below the one that is searched: MNIST/raw, and one for each file as in Kaggle's archive
MOST_NAMED = 8  # files in a message


def read_idx(path: str | Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes, gzipped or not, as a uint8 array of the shape given in its header.

    The format is that of MNIST (LeCun, Cortes and Burges): two zero bytes, a type code, the number of dimensions, each
    dimension as a big-endian 32-bit integer, then the values.
    Raises CourseError for a file that is missing or damaged, in a different format, or of the wrong length.
    """
    try:
        content = Path(path).read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise CourseError(f"{path}: expected an IDX file, but it cannot be read ({reason_of(error)})") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise CourseError(f"{path}: expected an IDX file of unsigned bytes, but this is a different format")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise CourseError(f"{path}: expected an IDX file, but this one ends within its header; download it again")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    if len(shape) not in (1, 3) or len(content) - start != math.prod(shape):
        found = f"{len(content) - start} bytes follow a header that says {shape}"
        raise CourseError(f"{path}: expected an IDX file of labels or images, but {found}; download it again")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


# ---- finding files, under whatever names a mirror gives them


def plain(name: str) -> str:
    """A name without capitals, dots, hyphens and the like: Train-Images.idx3-ubyte becomes trainimagesidx3ubyte."""
    return re.sub(r"[\W_]+", "", name.casefold())


def folders_of(name: str, root: Path) -> list[Path]:
    """The folders in `root` that have the name of a data set, in any spelling: mnist, MNIST, Fashion-MNIST."""
    found = [entry for entry in _entries(root) if plain(entry.name) == plain(name) and entry.is_dir()]
    return sorted(found, key=lambda entry: entry.name != name)


def found_below(folder: Path, file: str, name: str) -> Path | None:
    """The IDX file in a folder or below, gzipped or not, in any spelling of its name; None if there is none.

    train-images.idx3-ubyte and TRAIN-IMAGES-IDX3-UBYTE both count as train-images-idx3-ubyte.gz. The least deep file is
    taken; of several, the one with the usual name. Folders of other data sets (KMNIST) are left out.
    """
    wanted, usual = plain(file.removesuffix(".gz")), (file, file.removesuffix(".gz"))
    for files in _files_by_depth(folder, name):
        if alike := [path for path in files if plain(re.sub(r"(?i)\.gz$", "", path.name)) == wanted]:
            return min(alike, key=lambda path: (path.name != usual[0], path.name != usual[1], path.name))
    return None


def named(folder: Path, name: str, deepest: int = DEEPEST) -> str:
    """The files in a folder and below it, as a message lists them; "" if there are none."""
    files = [str(path.relative_to(folder)) for files in _files_by_depth(folder, name, deepest) for path in files]
    more = [f"… ({len(files)} in all)"] if len(files) > MOST_NAMED else []
    return ", ".join([*files[:MOST_NAMED], *more])


def _files_by_depth(folder: Path, name: str, deepest: int = DEEPEST) -> Iterator[list[Path]]:
    """The files in a folder, in the folders in it, and so on."""
    folders = [folder]
    for _ in range(1 + deepest):
        entries = [entry for each in folders for entry in _entries(each)]
        yield [entry for entry in entries if entry.is_file()]
        folders = [entry for entry in entries if entry.is_dir() and not _is_of_others(entry.name, name)]


def _is_of_others(folder: str, name: str) -> bool:
    """Whether a folder is that of another data set of MNIST's form, which has files of the same names."""
    return "mnist" in plain(folder) and plain(folder) != plain(name)


def _entries(folder: Path) -> Iterable[Path]:
    """The entries of a folder, in order, without hidden ones; none if it cannot be read."""
    try:
        return sorted(entry for entry in folder.iterdir() if entry.name[0] != "." and entry.name != "__MACOSX")
    except OSError:
        return []


# ---- downloading


def fetch(file: str, md5: str, mirrors: Sequence[str], folder: Path, advice: str = "") -> Path:
    """Download `file` into `folder` from the first mirror whose copy has this MD5. Returns its path.

    A mirror that sends nothing for 20 seconds is skipped. Raises CourseError, with the advice, if all mirrors fail.
    """
    # Imported here because they are slow to import and rarely needed.
    from http.client import HTTPException
    from urllib.request import urlopen

    from tqdm import tqdm

    failures = []
    for mirror in mirrors:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with (
                urlopen(f"{mirror}/{file}", timeout=20) as response,
                tqdm.wrapattr(response, "read", total=getattr(response, "length", None), desc=file) as shown,
            ):
                content = b"".join(iter(partial(shown.read, 1 << 16), b""))
            found = hashlib.md5(content, usedforsecurity=False).hexdigest()
            if found != md5:
                raise ValueError(f"the MD5 is {found}, not {md5}")
            write_atomically(folder / file, partial(Path.write_bytes, data=content))
            return folder / file
        except (OSError, HTTPException, ValueError) as error:
            failures.append(f"{mirror}: {' '.join(str(error).split())}")
    advice = advice or f"download it elsewhere and put it into {folder}"
    raise CourseError(f"cannot download {file}: {advice} ({'; '.join(failures)})")
