"""What another package of the course adds, by an entry point of the one distribution: nncourse imports none of them."""

import contextlib
import functools
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from types import ModuleType


@functools.cache
def added(group: str, package: str) -> ModuleType | str:
    """The module that a package has registered in this group, or in words why there is none."""
    if not find_spec(package):
        return f"the package {package} is missing here"
    with contextlib.suppress(PackageNotFoundError):
        for found in distribution("nncourse").entry_points.select(group=group, name=package):
            return import_module(found.module)
    return f"{package} is not registered in this environment, which is older: run make setup"
