"""The command line. A mistake is one line on stderr, and status 2.

Each command is a module with add_options(parser) and run(options), imported when the command is given: a file here, or
an entry point of a package that may be missing. The handout's C program took --train and --test; its two command lines
work here as they stand.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from nnclassroom.arguments import Parser
from nncourse import __version__
from nncourse.errors import CourseError, nearest

COMMANDS = {
    "lab": "open JupyterLab at your copy of the notebooks",
    "notebooks": "write your copy of the notebooks, for a different Jupyter",
    "train": "train a network and save it",
    "test": "test a saved network",
    "check": "check kernels against the reference",
    "time": "time kernels and compare them with this machine's limits",
    "profile": "count memory accesses of CUDA kernels, on the emulator and with a GPU's counters",
    "progress": "show which exercises are done",
    "report": "write one HTML page to hand in: progress, kernels, speedup, results",
    "experiment": "repeat the Cantabria thesis's experiment on a CPU, on one GPU and on several",
    "submit": "pack your kept kernels into one file to hand in",
    "take": "load the kernels that you packed with `submit` on another machine",
    "update": "bring a new hand-out into your copy and keep your own work",
    "handout": "for instructors: make one .zip for students",
    "concepts": "for instructors: make a test to give before and after the course, and compute a class's gain",
    "grade": "for instructors: mark what a class handed in",
    "nbval": "for instructors: run notebooks from top to bottom, as a test",
    "info": "show this machine's devices, limits and versions",
}
# In packages that may be missing: their entry points in pyproject.toml name the modules.
GROUP = "nncourse.commands"
ELSEWHERE = {
    "experiment": "nnexperiment",
    "grade": "nnmarking",
    "handout": "nnmarking",
    "concepts": "nnmarking",
    "time --network": "nnexperiment",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    if hasattr(sys.stdout, "reconfigure"):  # a terminal without ✓ shows ? instead of a traceback
        sys.stdout.reconfigure(errors="replace")
    try:
        options = _parsed(list(sys.argv[1:] if argv is None else argv))
        return options.run(options)
    except (CourseError, MemoryError) as error:
        print(f"nncourse: {str(error) or 'more memory was needed than this machine has'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nncourse: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has closed it, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parsed(arguments: list[str]) -> Namespace:
    """The parsed options. The C program's `--train`, anywhere, means the command `train`."""
    for command in ("train", "test"):
        if f"--{command}" in arguments and arguments[0].startswith("-"):
            arguments.remove(f"--{command}")
            arguments.insert(0, command)
    parser = Parser(
        prog="nncourse",
        description="Open the course, train and test neural networks, check and time kernels, and mark a class.",
    )
    version = f"nncourse {__version__}"
    parser.add_argument("--version", action="version", version=version, help="show program's version number and exit")
    commands = parser.add_subparsers(required=True)
    for command, words in COMMANDS.items():
        added = commands.add_parser(command, help=words, description=f"{words[0].upper()}{words[1:]}.")
        if arguments[:1] == [command]:
            module = module_of(command)
            module.add_options(added)
            added.set_defaults(run=module.run, arguments=arguments, spellings=added._option_string_actions)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        guess = nearest(unknown[0], options.spellings)
        raise CourseError(f"{unknown[0]!r} is not understood{guess} (see nncourse {arguments[0]} --help)")
    return options


def module_of(command: str) -> ModuleType:
    """The module of a command. CourseError for one whose package is missing here, or not registered."""
    from nncourse.entry_points import registered  # here: few commands need it, and it is slow

    package = ELSEWHERE.get(command)
    if package is None:
        return import_module(f"nnclassroom.commands.{command}")
    if not find_spec(package):
        raise CourseError(f"{command} needs the package {package}, which is missing here: install the whole course")
    if module := registered(GROUP, command.replace(" --", "-")):
        return module
    raise CourseError(f"{command} is not registered in this environment, which is older: run make setup")
