"""The first line of a cell `%%cuda OPERATION KERNEL [options]`, and whether there is anything below it."""

import argparse
import shlex

from nncourse.cuda.source import COMMENT, KERNEL
from nncourse.errors import CourseError
from nncourse.kernels.operation import Operation

USAGE = "%%cuda OPERATION KERNEL [--block 16,16] [--tile 64,64] [--grid 1] [--over n] [--shared BYTES]"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        raise CourseError(f"%%cuda: {message}; wanted {USAGE}")


def parsed(line: str) -> argparse.Namespace:
    """The options of the line; CourseError for others."""
    parser = _Parser(prog="%%cuda", add_help=False, allow_abbrev=False)
    parser.add_argument("operation")
    parser.add_argument("kernel")
    for option in ("--block", "--tile", "--grid", "--over"):
        parser.add_argument(option, type=_sizes)
    parser.add_argument("--shared", type=int)
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise CourseError(f"%%cuda: {error}; wanted {USAGE}") from None


def launch_options(operation: Operation, options: argparse.Namespace) -> dict:
    """CudaKernel's options: those of the package's kernel of that name, where the line says nothing else."""
    usual = operation.kernels.get(options.kernel)
    chosen = {"block": [256]}
    for name in ("block", "tile", "grid", "over", "shared"):
        given = getattr(options, name)
        value = getattr(usual, name, None) if given is None else given  # a Python kernel has none of them
        if value:
            chosen[name] = list(value) if isinstance(value, tuple) else value
    for name in ("block", "tile"):
        if not all(isinstance(size, int) and size > 0 for size in chosen.get(name, ())):
            raise CourseError(f"%%cuda: wanted --{name} as numbers such as 256 or 16,16; got {chosen[name]}")
    return chosen


def is_empty(text: str) -> bool:
    """True if the kernel's body holds nothing but comments."""
    plain = COMMENT.sub(" ", text)
    declared = KERNEL.search(plain)
    return bool(declared) and not plain[declared.end() :].strip("{}; \t\r\n")


def _sizes(text: str) -> list[int | str]:
    """16,16 or batch as numbers and names of sizes."""
    return [int(word) if word.isdecimal() else word.strip() for word in text.split(",")]
