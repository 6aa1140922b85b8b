"""Which tests run: `--tier quick` is make test, `full` is make test-full, `release` is make test-release.

Without --tier, by hand, all of full run, and those of release that are named. What quick leaves out, full has:

* tests with the mark `full`;
* of tests that are alike, such as the answers to an exercise, those that are neither the first of their kind, nor in
  the tenth that the commit's hash picks, nor of a topic that has changed. Where the judge or the emulator has changed
  against the commit before, all of them are in quick too;
* one of the two ways in which a notebook runs, as handed out or with NNCOURSE_SOLVE: the commit's hash picks the other,
  and one that has changed, or is named, runs in both.
"""

import functools
import os
import subprocess
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

TIERS = ("quick", "full", "release")
FIRST = "notebooks/00_start_here.ipynb"
# Paths that begin so are the judge and the emulator.
JUDGES = (
    "cuda_on_cpu/",
    "nncourse/cuda/",
    *(f"nncourse/kernels/{name}" for name in ("contract", "kernel.py", "operation", "signature", "trial")),
    "nnclassroom/judge/",
    *(f"nnclassroom/{name}" for name in ("exercises/kept_kernels", "notebook/cuda_cell", "notebook/exercise.py")),
)


@dataclass(frozen=True)
class Choice:
    """What decides which tests run: the tier, the commit's tenth, and the paths changed since the commit before."""

    tier: str = ""  # "" where nobody chose one
    tenth: int = 0
    changed: frozenset[str] = frozenset()
    named: tuple[str, ...] = ()  # files on the command line
    solved: bool = False  # whether the notebooks' exercises are solved

    @property
    def judge_changed(self) -> bool:
        return any(path.startswith(JUDGES) and not path.endswith(".md") for path in self.changed)

    def __str__(self) -> str:
        if self.tier != "quick":
            return f"tier: {self.tier or 'full, since none was chosen'}"
        which = "all answers, since the judge or the emulator has changed" if self.judge_changed else "answers"
        return f"tier: quick, {which}; tenth {self.tenth} of the others, {len(self.changed)} changed files"


@dataclass(frozen=True)
class Test:
    """The properties of a test that the choice uses."""

    __test__ = False  # for pytest: this is no class of tests

    name: str
    full: bool = False
    release: bool = False
    alike: bool = False  # one of many
    kind: Hashable | None = None  # the first of each kind is always taken; of None, no one
    sources: tuple[str, ...] = ()  # ends of paths, without suffixes: what the test is about


def many(
    values: Iterable[Any],
    name: Callable[[Any], str] = str,
    kind: Callable[[Any], Hashable] = lambda value: "any",
    operation: Callable[[Any], str] | str = "",
    file: Callable[[Any], str] = lambda value: "",
    on_gpu: Callable[[Any], bool] = lambda value: False,
) -> list[Any]:
    """Values for parametrize, of which quick takes the first of each kind, and a tenth of all.

    It takes all whose `operation` is of a topic that has changed, or that are read from a `file` that has. What runs
    `on_gpu` where there is one belongs to make test-gpu.
    """
    topic_of = operation if callable(operation) else lambda value: operation
    return [
        pytest.param(
            value,
            id=name(value),
            marks=[
                pytest.mark.one_of_many(kind(value), (*topic(topic_of(value)), *filter(None, [file(value)]))),
                *([pytest.mark.gpu] if on_gpu(value) else []),
            ],
        )
        for value in values
    ]


@functools.cache
def topic(operation: str) -> tuple[str, ...]:
    """Where an operation and its kernels are defined: `nncourse/kernels/dense`, `kernels/dense`, `kernels/dense_tiles`.

    No suffixes: to a topic belong the Python file and the CUDA text beside it.
    """
    from nnclassroom.exercises.catalogue import find

    if not operation:
        return ()
    found = find(operation)
    texts = [getattr(kernel, "source", None) for kernel in found.kernels.values()]
    files = [kernel.where.partition(":")[0] for kernel in found.kernels.values()]
    files += [shared.file for text in texts if text for shared in text.before]
    module = getattr(found.reference, "__module__", None) or ""
    return tuple(sorted({_stem(file) for file in files} | {module.replace(".", "/")} - {""}))


def of_item(item: pytest.Item) -> Test:
    """The test of a pytest item, from its marks."""
    alike = item.get_closest_marker("one_of_many")
    kind, sources = alike.args if alike else (None, ())
    full, release = (bool(item.get_closest_marker(name)) for name in ("full", "release"))
    return Test(item.nodeid, full, release, bool(alike), kind, sources)


def left_out(tests: Sequence[Test], choice: Choice) -> list[bool]:
    met: set[Hashable] = set()
    return [_left_out(test, choice, met) for test in tests]


def _left_out(test: Test, choice: Choice, met: set[Hashable]) -> bool:
    """`met` holds the kinds of earlier tests; this test's kind is added."""
    if choice.tier == "release":
        return not test.release
    if test.release and (choice.tier or not test.name.startswith(choice.named)):
        return True
    if choice.tier != "quick":
        return False
    if test.full:
        return True
    file = test.name.partition("::")[0]
    if file.endswith(".ipynb"):
        return choice.solved != _turn_of(file, choice) and file not in (*choice.changed, *choice.named)
    if not test.alike:
        return False
    kind = _family(test.name), test.kind
    first = test.kind is not None and kind not in met
    met.add(kind)
    return not (first or tenth_of(test.name) == choice.tenth or _changed(test, choice))


def _turn_of(notebook: str, choice: Choice) -> bool:
    """Whether it is the notebook's turn to run solved; the first one has no exercises."""
    return notebook != FIRST and (tenth_of(notebook) + choice.tenth) % 2 == 1


def _family(name: str) -> str:
    return name.partition("[")[0]


def _changed(test: Test, choice: Choice) -> bool:
    ends = tuple(f"/{end}" for end in (*test.sources, _stem(test.name.partition("::")[0])))
    return choice.judge_changed or any(f"/{_stem(path)}".endswith(ends) for path in choice.changed)


def _stem(path: str) -> str:
    return str(PurePosixPath(path).with_suffix(""))


def tenth_of(text: str) -> int:
    """Where the text's hash puts it, from 0 to 9; for a test's name, and for a commit."""
    return int(sha256(text.encode()).hexdigest(), 16) % 10


def choose(root: Path, tier: str, named: Iterable[str]) -> Choice:
    """The choice for the commit that is checked out in `root`, with uncommitted changes.

    Without Git or a commit before, nothing counts as changed.
    """
    if tier != "quick":
        return Choice(tier, named=tuple(named))
    solved = bool(os.environ.get("NNCOURSE_SOLVE"))
    git = functools.partial(_git, root)
    changed = [*git("diff", "--name-only", "HEAD~1"), *git("ls-files", "--others", "--exclude-standard")]
    return Choice(tier, tenth_of("".join(git("rev-parse", "HEAD"))), frozenset(changed), tuple(named), solved)


def _git(root: Path, *arguments: str) -> list[str]:
    """The lines that Git prints; none if it fails. In a container the folder may belong to another user."""
    command = ["git", "-c", "safe.directory=*", "-c", "core.quotePath=false", *arguments]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []
