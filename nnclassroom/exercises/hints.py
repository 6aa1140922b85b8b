"""The exercises of the course in order, their hints and solutions, and the student's progress."""

import ast
import functools
import re
import sys
import tomllib
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.formats import duration
from nnclassroom.pages import running_ipython
from nncourse.errors import CourseError
from nncourse.kernels.kernel import CudaKernel, Kernel

# A top-level definition in a .cu text: the comment above it, and all lines up to its closing brace, or a single line.
CUDA_FUNCTION = re.compile(
    r"(?:^//[^\n]*\n)*^(?:extern|__device__|template)[^\n]*?(?:__launch_bounds__ ?\([^\n)]*\)[^\n]*?)?(\w+)\("
    r"(?:[^\n]*\}$|[^\n]*(?:\n[^\n]*?)*?^\})",
    re.MULTILINE,
)
CUDA_DEFINITION = re.compile(r"^(?:#define|__constant__ \w+) (\w+)\b.*", re.MULTILINE)  # of one line, at the top level


@dataclass(frozen=True)
class Exercise:
    """One blank of a notebook."""

    notebook: str
    operation: str
    kernel: str
    hint: str

    @property
    def key(self) -> str:
        """The key in hints.toml and in the record of kept kernels."""
        return f"{self.operation}.{self.kernel}"


@functools.cache
def exercises() -> tuple[Exercise, ...]:
    """All exercises of hints.toml, in the order of the notebooks."""
    text = (Path(__file__).parent / "hints.toml").read_text("utf-8")
    return tuple(
        Exercise(notebook, *key.split("."), hint)
        for notebook, hints in tomllib.loads(text).items()
        for key, hint in hints.items()
    )


def hint(operation: str, kernel: str) -> None:
    """Print the hint for an exercise. Raises CourseError for an unknown exercise.

    >>> hint("dense_forward", "numpy")
    Write down the shapes. ...
    """
    known = {(exercise.operation, exercise.kernel): exercise for exercise in exercises()}
    if (operation, kernel) not in known:
        there = [name for other, name in known if other == operation]
        wanted = f"one of its exercises {', '.join(there)}" if there else "an exercise of the notebook"
        raise CourseError(f"there is no exercise {operation} ({kernel}); wanted {wanted}")
    print(known[operation, kernel].hint.strip())


def solution(operation: str, kernel: str) -> None:
    """Show the package's kernel: one way to write it, not the only one. Raises CourseError if there is no such kernel.

    >>> solution("sigmoid", "numpy")
    def sigmoid_array(z):
        return 0.5 * np.tanh(0.5 * z) + 0.5
    """
    chosen = find(operation)[kernel]  # CourseError if there is no such kernel
    is_cuda, text = isinstance(chosen, CudaKernel), text_of(chosen)
    if notebook := running_ipython():
        notebook.display.display(notebook.display.Code(text, language="cuda" if is_cuda else "python"))
    else:
        print(text)


def solution_text(operation: str, kernel: str) -> str:
    """The text of the package's kernel; "" if it has none of that name."""
    chosen = find(operation).kernels.get(kernel)
    if chosen is None:
        return ""
    return _cuda_text(chosen) if isinstance(chosen, CudaKernel) else _python_text(chosen.where)


def text_of(kernel: Kernel) -> str:
    """A kernel of the package as readers see it: its function, in CUDA C with its idea and the constants that it uses.

    CourseError if it is not a function in a file.
    """
    if not isinstance(kernel, CudaKernel):
        return _python_text(kernel.where)
    text = _cuda_text(kernel)
    return "\n\n".join(filter(None, (_cuda_idea(kernel), _cuda_definitions(kernel.source.text, text), text)))


def by_notebook() -> dict[str, list[Exercise]]:
    """The exercises of each notebook, in the order of the course."""
    return {name: list(group) for name, group in groupby(exercises(), attrgetter("notebook"))}


def progress_lines() -> list[str]:
    """One line per exercise: ✓, ✗ or ○, and date and speed of its kept kernel. The last line says how many are done.

    Each kept kernel is judged now. Its date and its speed are what the record says.

    >>> progress_lines()[-1]
    '0 of ... exercises; kept in ...'
    """
    record, lines, done = kept_kernels.progress(), [], 0
    for notebook, group in by_notebook().items():
        lines.append(notebook)
        for exercise in group:
            entry, title = record.get(exercise.key), f"{exercise.operation} ({exercise.kernel})"
            if entry and (verdict := kept_kernels.verdict_of(find(exercise.operation), exercise.kernel, entry)):
                done += 1
                speed = duration(entry["seconds"]) if entry.get("seconds") else "not timed"
                lines.append(f"  ✓ {title:36} {str(entry.get('date', ''))[:10]}  {speed:>10}")
            elif entry:
                lines.append(f"  ✗ {title:36} {verdict.line.splitlines()[0]}")
            else:
                lines.append(f"  ○ {title}")
    return [*lines, f"{done} of {len(exercises())} exercises; kept in {kept_kernels.folder()}"]


def file_of(where: str) -> Path:
    """The file of `kernels/dense.py:12`, which names it from its package or from the folder above its own.

    CourseError if neither package has it.
    """
    name = where.partition(":")[0]
    packages = Path(__file__).parents[2]
    for folder in (packages / "nncourse", packages / "nnclassroom"):
        for path in (found for pattern in (name, f"*/{name}") for found in folder.glob(pattern)):
            return path
    raise CourseError(f"{where}: there is no function to show")


def _python_text(where: str) -> str:
    """The function that begins at `kernels/file.py:line`, without its decorators."""
    text, line = file_of(where).read_text("utf-8"), int(where.partition(":")[2])
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and line in [part.lineno for part in (node, *node.decorator_list)]:
            return ast.get_source_segment(text, node)
    raise CourseError(f"{where}: there is no function to show")


def _cuda_text(kernel: CudaKernel) -> str:
    """The kernel's function in its .cu text, after the device functions that it calls."""
    functions = {match[1]: match[0] for match in CUDA_FUNCTION.finditer(kernel.source.text)}
    wanted, found = [kernel.entry], {}
    while wanted:
        name = wanted.pop()
        found[name] = functions[name]
        called = [other for other in functions if re.search(rf"\b{other}(?:<[^<>;]*>)?\(", functions[name])]
        wanted += [other for other in called if other not in found]
    return "\n\n".join(functions[name] for name in functions if name in found)


def _cuda_idea(kernel: CudaKernel) -> str:
    """The line on the kernel in the head of a .cu file of its operation, as a comment; "" if there is none."""
    texts = [each.source.text for each in kernel.operation.kernels.values() if isinstance(each, CudaKernel)]
    found = (re.search(rf"^//   {kernel.name}  +(.+)$", text, re.MULTILINE) for text in texts)
    return next((f"// {match[1]}" for match in found if match), "")


def _cuda_definitions(source: str, text: str) -> str:
    """The constants of a .cu source that `text` uses, and those that these need, one a line."""
    lines, names = {match[1]: match[0] for match in CUDA_DEFINITION.finditer(source)}, set()
    while new := {name for name in lines if re.search(rf"\b{name}\b", text)} - names:
        names |= new
        text = "\n".join(lines[name] for name in new)
    return "\n".join(line for name, line in lines.items() if name in names)


if __name__ == "__main__":  # for NNCOURSE_SOLVE, so that tests walk through half-solved notebooks; "1": the other half
    first = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    print(",".join(exercise.key for exercise in exercises()[first::2]))
