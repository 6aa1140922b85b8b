"""A cell `%%cuda OPERATION KERNEL [options]`: its first line parsed, its text as it is kept, whether it is empty."""

import argparse
import shlex
from typing import Any

from cuda_on_cpu.source import has_empty_kernel
from cuda_on_cpu.text import CudaSource
from cuda_on_cpu.tokens import tokens
from nnclassroom.arguments import Parser
from nncourse.errors import CourseError
from nncourse.kernels.operation import Operation

BLANK = "____"  # in a cell that is partly written, what a student puts something for
USAGE = "%%cuda OPERATION KERNEL [--block 16,16] [--tile 64,64] [--grid 1] [--over n] [--shared BYTES]"


def parsed(line: str) -> argparse.Namespace:
    """Parse the options of the line. Raises CourseError for invalid ones."""
    parser = Parser(prog="%%cuda", add_help=False, allow_abbrev=False)
    parser.add_argument("operation")
    parser.add_argument("kernel")
    for option in ("--block", "--tile", "--grid", "--over"):
        parser.add_argument(option, type=_sizes)
    parser.add_argument("--shared", type=int)
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise CourseError(f"%%cuda: {error}; expected {USAGE}") from None


def launch_options(operation: Operation, options: argparse.Namespace) -> dict[str, Any]:
    """The options for CudaKernel: from the line, else from the package's kernel of the same name, else block 256.

    Raises CourseError for a block or tile that is not positive integers.
    """
    usual = operation.kernels.get(options.kernel)
    chosen: dict[str, Any] = {"block": [256]}
    for name in ("block", "tile", "grid", "over", "shared"):
        given = getattr(options, name)
        value = getattr(usual, name, None) if given is None else given  # a Python kernel has no such attributes
        if value:
            chosen[name] = list(value) if isinstance(value, tuple) else value
    if constants := getattr(usual, "constants", None):
        chosen["constants"] = dict(constants)
    for name in ("block", "tile"):
        if not all(isinstance(size, int) and size > 0 for size in chosen.get(name, ())):
            raise CourseError(f"%%cuda: expected --{name} as numbers such as 256 or 16,16; got {chosen[name]}")
    if 0 in chosen.get("grid", ()):
        raise CourseError("%%cuda: expected a --grid of at least 1 block; got 0, which computes nothing")
    return chosen


def text_to_keep(line: str, body: str) -> str:
    """The text of a cell, which begins with its first line as a comment: its line numbers are then those of the cell.

    A byte-order mark before the body, which a file pasted into the cell may have had, is left out.
    """
    return f"// %%cuda {line.strip()}\n{body.removeprefix(chr(0xFEFF))}"


def is_empty(text: str) -> bool:
    """Whether the kernel's body contains only comments, or there is a blank left: ____."""
    source = CudaSource(text, "")
    return has_empty_kernel(source) or BLANK in {token.text for token in tokens(text)}


def _sizes(text: str) -> list[int | str]:
    """Parse "16,16" or "batch" into a list of numbers and names of sizes."""
    return [int(word) if word.isdecimal() else word.strip() for word in text.split(",")]
