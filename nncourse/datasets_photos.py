"""Photographs in folders, one for each class, as images of one size. Pillow reads the files.

The steps are those of the Cantabria thesis: each folder is a class; a photograph is made grey and resized.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from nncourse.errors import CourseError

MODES = {1: "L", 3: "RGB"}  # Pillow's names: grey, and red, green and blue
WIDE = 257  # between 16 and 8 bits: 65,535 becomes 255


def classes_in(folder: Path) -> dict[str, list[Path]]:
    """The classes of a folder, one for each subfolder, with the photographs below it, in the order of their names.

    Raises CourseError unless at least two classes have photographs.
    """
    from PIL import Image

    suffixes = set(Image.registered_extensions())
    folders = sorted(place for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    files = {
        place.name: sorted(file for file in place.rglob("*") if file.is_file() and file.suffix.lower() in suffixes)
        for place in folders
    }
    found = {name: files[name] for name in files if files[name]}
    if len(found) < 2:
        names = ", ".join(found) or "none"
        raise CourseError(f"{folder}: expected a folder with photographs for each of two classes or more; got {names}")
    return found


def read(file: Path, height: int, width: int, channels: int) -> np.ndarray | None:
    """A photograph as (channels, height, width) uint8, upright; None if it is damaged."""
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as opened:
            photo = ImageOps.exif_transpose(opened)
            if photo.mode.startswith("I"):  # 16 bits, which Pillow would cut off at 255
                photo = Image.fromarray((np.asarray(photo) / WIDE).astype(np.uint8))
            photo = photo.convert(MODES[channels]).resize((width, height), Image.Resampling.BILINEAR)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return None
    return np.asarray(photo).reshape(height, width, channels).transpose(2, 0, 1)


def read_all(
    files: list[Path], height: int, width: int, channels: int, most: int | None, damaged: list[Path]
) -> Iterator[np.ndarray]:
    """The first `most` photographs that can be read; files that cannot be read are added to `damaged`."""
    left = len(files) if most is None else most
    for file in files:
        if left == 0:
            return
        photo = read(file, height, width, channels)
        if photo is None:
            damaged.append(file)
        else:
            left -= 1
            yield photo
