"""The exercises of the course, in order."""

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Exercise:
    """One blank of a notebook."""

    notebook: str
    operation: str
    kernel: str
    hints: tuple[str, ...]  # each says more than the one before

    @property
    def key(self) -> str:
        """The key in hints.toml and in the record of kept kernels."""
        return f"{self.operation}.{self.kernel}"


@functools.cache
def exercises() -> tuple[Exercise, ...]:
    """All exercises of hints.toml, in the order of the notebooks."""
    text = (Path(__file__).parent / "hints.toml").read_text("utf-8")
    return tuple(
        Exercise(notebook, operation, kernel, tuple(hint.strip().split("\n\n")))
        for notebook, hints in tomllib.loads(text).items()
        for key, hint in hints.items()
        for operation, kernel in [key.split(".")]
    )
