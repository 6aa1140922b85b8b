"""`nncourse submit`: pack a student's kept kernels and their records in one file."""

import datetime
import json
import os
from pathlib import Path

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.kept_kernels import MOST_RECORD, MOST_TEXT
from nnclassroom.handing_in.submission import KERNEL_FILE, OTHERS, RECORD
from nnclassroom.notebook.exams import QUESTIONS
from nnclassroom.notebook.sitting import FOLDER
from nnclassroom.version import course_version
from nnclassroom.zips import refuse_other_name, write_zip
from nncourse.errors import CourseError, read_regular


def pack(path: Path, name: str = "") -> int:
    """Write the kept kernels and their records to a .zip. Returns the number of kernels.

    In the folder of an examination these are its answers, otherwise the student's kernels for the course.
    """
    folder = Path(FOLDER) if Path(QUESTIONS).is_file() else kept_kernels.folder()
    refuse_other_name(path)
    names = sorted(entry.name for entry in os.scandir(folder)) if folder.is_dir() else []
    kernels = [each for each in names if KERNEL_FILE.fullmatch(each)]
    if not kernels:
        raise CourseError(f"{folder}: expected kernels to hand in, got none: solve an exercise first")
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    about = {"name": name, "course": course_version(), "time": now}
    files = {RECORD: (json.dumps(about, indent=1, ensure_ascii=False) + "\n").encode()}
    for each in [*kernels, *(other for other in OTHERS if other in names)]:
        try:
            files[f"my_kernels/{each}"] = read_regular(folder / each, MOST_TEXT if each in kernels else MOST_RECORD)
        except (OSError, ValueError) as error:
            raise CourseError(f"{folder / each}: cannot be handed in: {error}") from None
    write_zip(path, files)
    return len(kernels)
