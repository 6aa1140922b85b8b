"""The module of each command: a file here, or one in a package that may be missing."""

from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType

from nncourse.errors import CourseError

GROUP = "nncourse.commands"  # of the entry points in pyproject.toml
ELSEWHERE = {
    "experiment": "nnexperiment",
    "grade": "nnmarking",
    "handout": "nnmarking",
    "time --network": "nnexperiment",
}


def module_of(command: str) -> ModuleType:
    """The module of a command. CourseError for one whose package is missing here, or not registered."""
    package = ELSEWHERE.get(command)
    if package is None:
        return import_module(f"nnclassroom.commands.{command}")
    if not find_spec(package):
        raise CourseError(f"{command} needs the package {package}, which is missing here: install the whole course")
    for found in entry_points(group=GROUP, name=command.replace(" --", "-")):
        return import_module(found.module)
    raise CourseError(f"{command} is not registered in this environment, which is older: run make setup")
