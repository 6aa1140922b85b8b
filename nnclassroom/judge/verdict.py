"""The verdict on a kernel: its kind, the case, and facts, of which words.py makes words.

A Fault is what is wrong with one run of a kernel. A Verdict is the outcome of a check: right, open, or the first fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from nnclassroom.judge.words import OPEN, PHRASES, RIGHT, UNCHECKED, without, words_of

__all__ = ["OPEN", "RIGHT", "UNCHECKED", "Case", "Fault", "Verdict"]


TINY_SECONDS = 1.0  # of computing, for the tiny cases of one check together


@dataclass(frozen=True)
class Fault:
    """What is wrong with one run: its kind and its facts."""

    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return words_of(self.kind, self.facts)


@dataclass(frozen=True)
class Case:
    """Arguments for a kernel, and a label that describes them."""

    label: str
    arguments: tuple[Any, ...]
    large: bool = False  # second stage: tried only if all others passed
    not_finite: bool = False  # an edge case of NaN or infinities: wrong values in it do not count
    plain: bool = False  # usual sizes and random values
    values: str = "random"  # one of VALUES in cases.py
    tiny: bool = False  # tried after another one failed, to show its numbers: it may take TINY_SECONDS
    again: int = 0  # the number of calls with other numbers in the same arrays that come before the one that is judged


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check. `case` is the one that failed, `run` how the emulator ran it.

    True if the kernel is right. `line` is the verdict in words: one line, and perhaps a compiler's excerpt
    below it. `numbers` are those of a tiny case in one line, "" otherwise. `unknown` is a pattern of words that its
    reader does not know yet: the line leaves out clauses that need them.
    """

    operation: str
    kernel: str
    kind: str
    facts: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    case: Case | None = None
    run: str = ""
    unknown: str = ""

    def __bool__(self) -> bool:
        return self.kind == RIGHT

    @property
    def line(self) -> str:
        place = ", ".join(filter(None, [self.case.label if self.case else "", self.run]))
        parts = [f"{self.operation} ({self.kernel})", place, words_of(self.kind, self.facts)]
        line = ": ".join(filter(None, parts))
        return without(line, self.unknown, self.facts.get("source", "")) if self.unknown else line

    @property
    def numbers(self) -> str:
        return PHRASES["numbers"].format_map(self.facts) if "yours" in self.facts else ""

    def __str__(self) -> str:
        sign = "✓" if self else "–" if self.kind == UNCHECKED else "✗"
        return f"{sign} {self.line}" + (f"\n  {self.numbers}" if self.numbers else "")

    __repr__ = __str__

    def __reduce__(self) -> tuple[Any, ...]:
        return Verdict, (self.operation, self.kernel, self.kind, dict(self.facts), self.case, self.run, self.unknown)
