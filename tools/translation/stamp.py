"""What a language's files were made from: the English package, as nncourse/language.py hashes it; the notebooks' all.

That file is run by itself: importing the package would ask for the language of NNCOURSE_LANG.
"""

import hashlib
import runpy
from pathlib import Path

TOOLS = Path(__file__).resolve().parent


def write(root: Path, language: str, package: Path) -> None:
    """Put the stamps into the folders of a language that were generated now: the package's and the notebooks'."""
    language_py = module(root)
    (package / language_py["STAMP"]).write_text(language_py["stamp"](root), "utf-8")
    (root / "notebooks" / language / language_py["STAMP"]).write_text(_of_all(root, language, language_py), "utf-8")


def is_new(root: Path, language: str) -> bool:
    """Whether what is generated was made from what is there now."""
    language_py = module(root)
    package, notebooks = root / "nncourse" / "languages" / language, root / "notebooks" / language
    wanted = {package: language_py["stamp"](root), notebooks: _of_all(root, language, language_py)}
    stamps = {folder / language_py["STAMP"]: text for folder, text in wanted.items()}
    return all(path.is_file() and path.read_text("utf-8") == text for path, text in stamps.items())


def module(root: Path) -> dict:
    """The names of nncourse/language.py."""
    return runpy.run_path(str(root / "nncourse" / "language.py"))


def _of_all(root: Path, language: str, language_py: dict) -> str:
    """A hash of the package's stamp, the notebooks, the catalogues, words.toml and this tool."""
    together = hashlib.sha256(language_py["stamp"](root).encode())
    for path in [
        *sorted((root / "notebooks").glob("*.ipynb")),
        *sorted((root / "locale" / language).glob("*.po")),
        root / "locale" / "words.toml",
        *sorted(TOOLS.glob("*.py")),
    ]:
        together.update(hashlib.sha256(path.read_bytes()).digest())
    return together.hexdigest()
