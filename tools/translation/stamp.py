"""What a language's files were made from, as nncourse/language.py hashes it.

That file is run by itself: importing the package would ask for the language of NNCOURSE_LANG.
"""

import runpy
from pathlib import Path


def write(root: Path, language: str, folder: Path) -> None:
    """Put the stamp into a folder that was generated now."""
    module = runpy.run_path(str(root / "nncourse" / "language.py"))
    (folder / module["STAMP"]).write_text(module["stamp"](root, language), "utf-8")
