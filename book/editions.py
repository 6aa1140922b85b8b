"""Find the sources of the book's editions, one for each language: its notebooks, its texts and its words."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from nncourse.errors import CourseError

ROOT = Path(__file__).resolve().parent.parent
ENGLISH = "en"


@dataclass(frozen=True)
class Edition:
    """One language's sources.

    `texts` is a folder laid out like the repository, which holds README.md, docs/, book/ and so on in that language.
    """

    language: str
    notebooks: Path
    texts: Path

    def text(self, name: str) -> str:
        """A Markdown file by its path in the repository. CourseError if the language lacks it."""
        path = self.texts / name
        if not path.is_file():
            raise CourseError(f"{path}: expected this text in the language {self.language!r}; it is not there")
        return path.read_text("utf-8")

    def words(self) -> ModuleType:
        """The book's own words."""
        path = self.texts / "book" / "words.py"
        if not path.is_file():
            raise CourseError(
                f"{path}: expected the book's words in the language {self.language!r}; they are not there"
            )
        specification = importlib.util.spec_from_file_location(f"book_words_{self.language}", path)
        assert specification and specification.loader
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        return module


def edition(language: str, notebooks: Path | None = None, texts: Path | None = None) -> Edition:
    """The edition of a language. Its folders are the repository's unless given: those of English, or generated ones.

    CourseError if there are no notebooks.
    """
    english = language == ENGLISH
    notebooks = notebooks or ROOT / "notebooks" / ("" if english else language)
    texts = texts or (ROOT if english else ROOT / "build" / "texts" / language)
    if not any(notebooks.glob("*.ipynb")):
        raise CourseError(f"{notebooks}: expected the notebooks in the language {language!r}; there are none")
    return Edition(language, notebooks, texts)


def languages() -> list[str]:
    """English, and every language whose notebooks have been generated."""
    folders = (ROOT / "notebooks").iterdir()
    return [ENGLISH, *sorted(each.name for each in folders if each.is_dir() and any(each.glob("*.ipynb")))]
