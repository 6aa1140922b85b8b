"""Write the reference: a page for each topic of the package, with every operation and every kernel."""

import hashlib
import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import nncourse
from book import kernel_pictures
from book.files import Tree
from book.markdown import figure, of_docstring, plain, table
from nnclassroom.exercises.catalogue import exercise_topics
from nnclassroom.exercises.hints import exercises
from nnclassroom.exercises.solutions import file_of, text_of
from nncourse.catalogue import epoch_topics
from nncourse.catalogue import topics as topics_of_networks
from nncourse.errors import CourseError
from nncourse.kernels import dense_epoch
from nncourse.kernels.contract import Argument
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

FOLDER = "reference"
DRAWN_BY = (
    "nnclassroom/figures/picture.py",
    "nnclassroom/figures/accesses.py",
    "nnclassroom/figures/described.py",
    "cuda_on_cpu/*.py",
    "cuda_on_cpu/*.h",
)
PACKAGES = Path(nncourse.__path__[0]).parent  # where they lie in the book's language
OF_NETWORKS, OF_EXERCISES = (*topics_of_networks(), dense_epoch, *epoch_topics()), exercise_topics()
Titles = Mapping[str, str]  # of notebooks, by the names of their files without .ipynb


@dataclass(frozen=True)
class Topic:
    """A module that defines operations, and those that it defines."""

    module: ModuleType
    operations: tuple[Operation, ...]

    @property
    def name(self) -> str:
        """The name of its page: activations, dense_epoch, nb12."""
        _, rooms = self.module.__name__.split(".", 1)
        return rooms.removeprefix("kernels.").removeprefix("exercises.").replace(".", "_")


def topics() -> list[Topic]:
    """The topics of the package in the order of the course; an operation belongs to the first module that has it."""
    seen: set[str] = set()
    found = []
    for module in (*OF_NETWORKS, *OF_EXERCISES):
        here = {each.name: each for each in vars(module).values() if isinstance(each, Operation)}
        own = tuple(operation for name, operation in here.items() if name not in seen)
        seen |= {operation.name for operation in own}
        if own:
            found.append(Topic(module, own))
    return found


def pages(only: Collection[str] | None = None) -> list[str]:
    """The paths of all pages, or of those of the topics `only`, the index first."""
    return [f"{FOLDER}/index.md", *(f"{FOLDER}/{topic.name}.md" for topic in _chosen(only))]


def write(tree: Tree, words: ModuleType, titles: Titles, cache: Path, only: Collection[str] | None = None) -> None:
    """Write these pages. `titles` are those of the notebooks to link to; `cache` keeps pictures for the next time."""
    stamp = drawn_by()
    for topic in _chosen(only):
        tree.write(f"{FOLDER}/{topic.name}.md", page_of(topic, words, titles, tree, cache, stamp))
    tree.write(f"{FOLDER}/index.md", index(_chosen(only), words))


def _chosen(only: Collection[str] | None) -> list[Topic]:
    return [topic for topic in topics() if only is None or topic.name in only]


def drawn_by() -> str:
    """A hash of the files of the packages that make a picture."""
    files = [path for pattern in DRAWN_BY for path in sorted(PACKAGES.glob(pattern))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


# ---- pages


def index(chosen: Sequence[Topic], words: ModuleType) -> str:
    """The page that lists every operation by what it computes."""
    lines = [f"# {words.OPERATIONS_TITLE}", "", words.REFERENCE_INTRODUCTION, "", words.SPOILERS, ""]
    headings = {words.OPERATIONS_OF_NETWORKS: OF_NETWORKS, words.OPERATIONS_OF_EXERCISES: OF_EXERCISES}
    for heading, modules in headings.items():
        rows = [
            (f"{link(operation, topic)} {operation.equation}".rstrip(), plain(operation.formula))
            for topic in chosen
            if topic.module in modules
            for operation in topic.operations
        ]
        if rows:
            lines += [f"## {heading}", "", table((words.OPERATION, words.FORMULA), rows), ""]
    names = [topic.name for topic in chosen]
    return "\n".join([*lines, "```{toctree}", ":hidden:", ":maxdepth: 1", *names, "```", ""])


def page_of(topic: Topic, words: ModuleType, titles: Titles, tree: Tree, cache: Path, stamp: str) -> str:
    """The page of a topic. Pictures are written into the tree."""
    lines = [f"# {code(topic.name)}", "", of_docstring(inspect.getdoc(topic.module) or ""), ""]
    for operation in topic.operations:
        lines += about(operation, words, titles)
        for same in together(operation):
            lines += shown(same, words)
            if isinstance(same[0], CudaKernel):
                lines += pictured(same[0], tree, cache, stamp)
    return "\n".join([*lines, *called(topic, words)])


def called(topic: Topic, words: ModuleType) -> list[str]:
    """The CUDA and C that a topic's kernels in Python compile and launch themselves: the files of their names."""
    files = {file_of(each.where) for operation in topic.operations for each in operation.kernels.values()}
    beside = [file.with_suffix(suffix) for file in sorted(files) for suffix in (".cu", ".c")]
    there = [file for file in dict.fromkeys(beside) if file not in files and file.is_file()]
    lines = [f"## {words.CALLED}", ""] if there else []
    for file in there:
        fence = "```cuda" if file.suffix == ".cu" else "```c"
        lines += [f"### {name_of(file)}", "", fence, file.read_text("utf-8").rstrip("\n"), "```", ""]
    return lines


def name_of(file: Path) -> str:
    """A file of the packages as a page names it: `nncourse/kernels/dense.py`."""
    return code(file.relative_to(PACKAGES).as_posix())


def about(operation: Operation, words: ModuleType, titles: Titles) -> list[str]:
    """An operation: its equation, its contract, and in which notebooks it is an exercise."""
    conditions = [f"{name} = {formula.text.strip()}" for name, formula in operation.shapes.derived.items()]
    conditions += map(str, operation.shapes.conditions)
    notebooks = dict.fromkeys(each.notebook for each in exercises() if each.operation == operation.name)
    has_cuda = any(isinstance(kernel, CudaKernel) for kernel in operation.kernels.values())
    lines = [f"({anchor(operation)})=", f"## `{operation.name}` {operation.equation}".rstrip(), ""]
    lines += ["```{code-block} text", ":class: nncourse-equation", "", operation.formula.replace("`", ""), "```", ""]
    lines += [table(words.CONTRACT_HEADINGS, contract_rows(operation, words)), ""]
    if conditions:
        lines += [words.CONDITIONS.format(conditions=", ".join(map(code, conditions))), ""]
    if has_cuda:
        lines += [words.CUDA_TAKES.format(arguments=", ".join(map(code, operation.cuda_arguments))), ""]
    if notebooks:
        links = [f"[{titles[name]}](../notebooks/{name}.ipynb)" if name in titles else name for name in notebooks]
        lines += [words.EXERCISE_IN.format(notebooks=listed(links, words)), ""]
    return lines


def contract_rows(operation: Operation, words: ModuleType) -> list[tuple[str, str, str, str]]:
    """A row for each argument and for each new result: name, shape, elements, role."""
    changed = {result.name for result in operation.shapes.in_place}

    def as_row(named: Argument, role: str) -> tuple[str, str, str, str]:
        elements = {"int": words.WHOLE, "object": words.OBJECT}.get(named.kind, words.REAL)
        return code(named.name), shape(named, words), elements, role

    rows = [as_row(each, words.IN_PLACE if each.name in changed else words.ARGUMENT) for each in operation.arguments]
    return rows + [as_row(each, words.RESULT) for each in operation.shapes.new]


def shape(named: Argument, words: ModuleType) -> str:
    """A shape in words: `(batch, n_in)`, one number, or any."""
    if named.any_shape:
        return words.ANY_SHAPE.format(size=code(named.dims[0].lstrip("*")))
    if not named.dims:
        return "" if named.kind == "object" else words.ONE_NUMBER
    return code(f"({', '.join(named.dims)}{',' if len(named.dims) == 1 else ''})")


def together(operation: Operation) -> list[list[Kernel]]:
    """The operation's kernels; those with one text, such as numpy and cupy, together."""
    groups: dict[str, list[Kernel]] = {}
    for kernel in operation.kernels.values():
        groups.setdefault(kernel.where, []).append(kernel)
    return list(groups.values())


def shown(same: Sequence[Kernel], words: ModuleType) -> list[str]:
    """One text of a kernel: its names and devices, where it is, and the source."""
    first = same[0]
    is_cuda = isinstance(first, CudaKernel)
    devices = " / ".join(dict.fromkeys(kernel.device.upper() for kernel in same))
    names = listed([code(kernel.name) for kernel in same], words)
    file = name_of(file_of(first.where))
    said = words.LAUNCHED.format(file=file, block=" × ".join(map(str, first.block))) if is_cuda else words.KERNEL_IN
    said = said.format(file=file)
    if {"loops", "numba"} <= {kernel.name for kernel in same}:
        said += f" {words.COMPILED}"
    try:
        text = text_of(first)
    except CourseError:  # made by a function, as the activations' derivatives are
        text = ""
    source = [f"```{'cuda' if is_cuda else 'python'}", text, "```", ""] if text else []
    return [f"### {words.KERNEL.format(names=names, device=devices)}", "", said, "", *source]


def pictured(kernel: CudaKernel, tree: Tree, cache: Path, stamp: str) -> list[str]:
    """The picture of a CUDA kernel, which is written into the tree."""
    drawing = kernel_pictures.drawing_of(kernel, cache, stamp)
    if drawing is None:
        return []
    name = f"pictures/{kernel.operation.name}.{kernel.name}.png"
    tree.write(f"{FOLDER}/{name}", drawing.png)
    return [figure(name, " ".join(drawing.words.split())), ""]


def link(operation: Operation, topic: Topic) -> str:
    """A link to an operation from the index."""
    return f"[{code(operation.name)}]({topic.name}.md#{anchor(operation)})"


def anchor(operation: Operation) -> str:
    """The name by which pages link to an operation."""
    return f"operation-{operation.name.replace('_', '-')}"


def code(text: str) -> str:
    return f"`{text}`"


def listed(texts: Sequence[str], words: ModuleType) -> str:
    """Texts as a list in a sentence: a, b and c."""
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} {words.AND} {texts[-1]}"
