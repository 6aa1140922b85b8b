"""locale/words.toml: which strings of the sources are for people where the rule does not tell."""

import fnmatch
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Words:
    """For one file: single words that are shown, strings that are names, and whether its comments are translated."""

    also: frozenset[str] = frozenset()
    never: frozenset[str] = frozenset()
    never_like: tuple[str, ...] = ()  # patterns of names
    names: frozenset[str] = frozenset()  # what the sources compare and look up
    code: bool = True  # whether comments and docstrings are units too
    kernels: frozenset[str] = frozenset()  # functions of a module that are kernels, without a decorator that says so
    documented: frozenset[str] = frozenset()  # functions and classes of a module whose docstrings are units

    def is_name(self, text: str) -> bool:
        """Whether this string is no text for people, as words.toml says."""
        return text in self.never or any(re.search(pattern, text) for pattern in self.never_like)


def read(path: Path) -> dict[str, dict]:
    """The tables of words.toml by file; "*" is for all files."""
    return tomllib.loads(path.read_text("utf-8"))


def of_file(tables: dict[str, dict], file: str, names: frozenset[str] = frozenset()) -> Words:
    """What holds for a file, named from the course's root: all the tables whose pattern fits."""
    fitting = [table for pattern, table in tables.items() if fnmatch.fnmatch(file, pattern)]
    chosen = {
        key: frozenset(text for table in fitting for text in table.get(key, ()))
        for key in ("also", "never", "kernels", "documented")
    }
    return Words(
        **chosen,
        never_like=tuple(pattern for table in fitting for pattern in table.get("never_like", ())),
        names=names,
        code=any(fnmatch.fnmatch(file, code) for table in fitting for code in table.get("code", ())),
    )
