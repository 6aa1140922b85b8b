"""The repository's address, from [project.urls] in pyproject.toml, and links to hosts that run the repository."""

import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nnclassroom.handing_out.own_copy import copy_name
from nncourse.errors import CourseError
from nncourse.language import current


def settings(root: Path) -> dict[str, Any]:
    """The settings in a clone's pyproject.toml."""
    return tomllib.loads((root / "pyproject.toml").read_text("utf-8"))


def address(root: Path, named: str | None = None) -> str:
    """The address without "/" and ".git" at its end: `named`, or otherwise the one in pyproject.toml; "" without one.

    CourseError if it is not an address.
    """
    found = settings(root)["project"].get("urls", {}).get("Repository", "") if named is None else named
    if found and not found.startswith("https://"):
        raise CourseError(f"expected the repository's address, https://…; got {found!r}")
    return found.rstrip("/").removesuffix(".git")


def hosts(address: str, notebook: str = "", language: str | None = None) -> dict[str, str]:
    """Links that run the repository without an installation, by the name of the host; {} without an address.

    notebook: the name of the file that Binder then opens.
    language: of the notebooks; by default this process's.
    """
    if not address:
        return {}
    binder = f"https://mybinder.org/v2/git/{quote(address, safe='')}/HEAD"
    path = quote(f"lab/tree/{copy_name(language or current())}/{notebook}", safe="")
    found = {"Binder": f"{binder}?urlpath={path}"}
    on_github = address.removeprefix("https://github.com/")
    return found | ({"Codespaces": f"https://codespaces.new/{on_github}"} if on_github != address else {})
