"""The wheel is the course: with the packages it holds what lies beside them in a clone, in nncourse/course/.

These are data sets, recorded results, notebooks without outputs, and notebooks and packages in other languages, which
are generated for it. An editable installation finds all of that in the clone.
"""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
LINK = re.compile(r"!?\[([^]]*)\]\((?!https?:|#)[^)]*\)")  # to a file of the repository


class Build(build_py):
    """The packages, and the rest of the course in nncourse/course/."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for language in sorted(path.name for path in (ROOT / "locale").glob("*") if path.is_dir()):
                subprocess.run([sys.executable, "tools/translate.py", "write", language], cwd=ROOT, check=True)
            copy_course(Path(self.build_lib) / "nncourse")


def copy_course(package: Path) -> None:
    """Copy the course's files into the built package nncourse."""
    course = package / "course"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    for pattern in settings["tool"]["nncourse"]["shipped"]:
        for path in ROOT.glob(pattern):
            copy(path, course / path.relative_to(ROOT))
    for path in ROOT.glob("notebooks/**/*.ipynb"):
        there = course / path.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(without_outputs(path.read_text("utf-8")), "utf-8")
    for path in ROOT.glob("nncourse/languages/**/*"):
        if path.is_file() and "__pycache__" not in path.parts:
            copy(path, package / path.relative_to(ROOT / "nncourse"))


def copy(path: Path, there: Path) -> None:
    there.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, there)


def without_outputs(text: str) -> str:
    """The text of a notebook's file, without outputs and execution counts."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def description() -> str:
    """README.md for where the repository's files are not: pictures are left out, links to files are their words."""
    return LINK.sub(lambda found: "" if found[0][0] == "!" else found[1], (ROOT / "README.md").read_text("utf-8"))


setup(cmdclass={"build_py": Build}, long_description=description(), long_description_content_type="text/markdown")
