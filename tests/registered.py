"""The entry points of pyproject.toml, for tests in an environment that was set up before they were written there."""

import os
import sys
import tomllib
from importlib import metadata as installed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def here() -> None:
    """Let this process, and those that it starts, find them before those of the environment."""
    folder = write(ROOT / "build" / "registered", points())
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


def points() -> dict[str, dict[str, str]]:
    """The entry points by group."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {"console_scripts": about["scripts"], **about["entry-points"]}


def write(folder: Path, groups: dict[str, dict[str, str]]) -> Path:
    """The metadata of a distribution nncourse with these entry points, in a folder for sys.path."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    metadata = folder / f"nncourse-{about['version']}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    lines = [
        line for name, found in groups.items() for line in (f"[{name}]", *(f"{k} = {v}" for k, v in found.items()))
    ]
    for file, text in (
        ("METADATA", _installed() or f"Metadata-Version: 2.1\nName: nncourse\nVersion: {about['version']}\n"),
        ("entry_points.txt", "\n".join([*lines, ""])),
    ):
        started = metadata / f"{file}.{os.getpid()}"  # several processes begin at once
        started.write_text(text, "utf-8")
        started.replace(metadata / file)
    return folder


def _installed() -> str | None:
    """The metadata that the environment has of the course, with what it requires; None if it has none."""
    try:
        return installed.distribution("nncourse").read_text("METADATA")
    except installed.PackageNotFoundError:
        return None
