"""Names that learning platforms give to hand-ins: whose a hand-in is, and the student's own name of the file."""

import re
from dataclasses import dataclass

# How platforms name what they let you download: person, number, and for Canvas the number of the attachment.
MOODLE = re.compile(r"(?P<name>[^_]+)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<file>.*))?", re.DOTALL)
CANVAS = re.compile(r"(?P<name>[^\W\d_]+)(?:_LATE)?_(?P<id>\d+)_(?P<attachment>\d+)_(?P<file>.+)", re.DOTALL)


@dataclass(frozen=True)
class Person:
    """The author of a hand-in, by its name: `Lovelace Ada_12345_assignsubmission_file_` is by Lovelace Ada, 12345."""

    name: str
    number: str = ""
    feedback: str = ""  # the name under which the platform takes a page back; "" if it did not name the hand-in


def person(entry: str) -> Person:
    """The person in the name of an entry, as Moodle or Canvas writes it; otherwise the name itself."""
    if found := MOODLE.fullmatch(entry):
        return Person(found["name"], found["id"], moodle_feedback(found["name"], found["id"]))
    if found := CANVAS.fullmatch(entry):
        return Person(found["name"], found["id"], f"{found['name']}_{found['id']}_{found['attachment']}_feedback.html")
    return Person(entry)


def file_of(entry: str) -> str:
    """The student's own name of a file that a platform has renamed: `mse.numpy.py`; otherwise the name as it is."""
    found = MOODLE.fullmatch(entry) or CANVAS.fullmatch(entry)
    return (found and found["file"]) or entry


def moodle_feedback(name: str, number: str) -> str:
    return f"{name.replace('_', ' ')}_{number}_assignsubmission_file_feedback.html"
