"""Additions by the course's other packages: they register entry points, so nncourse need not import the packages."""

import contextlib
import functools
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from types import ModuleType


@functools.cache
def added(group: str, package: str) -> ModuleType | str:
    """The module that a package has registered in this group, or a text that says why there is none."""
    if not find_spec(package):
        return f"the package {package} is missing here"
    module = registered(group, package)
    return module or f"{package} is not registered in this environment, which is older: run make setup"


def registered(group: str, name: str) -> ModuleType | None:
    """The module that the distribution registers by this name; None if the installed one is older than the name."""
    with contextlib.suppress(PackageNotFoundError):
        for found in distribution("nncourse").entry_points.select(group=group, name=name):
            return import_module(found.module)
    return None
