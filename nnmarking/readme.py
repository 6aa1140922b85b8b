"""README.md of a hand-out, in the language of the course. It says what a student needs, and has no link to anything
outside the hand-out, except to the repository if its address is known.

python -m nnmarking.readme        prints this module's text, for a hand-out in a different language
"""

import os
import subprocess
import sys

from nncourse.errors import CourseError
from nncourse.language import ROOT, current
from nnmarking.repository import hosts

TEXT = """# Neural networks, from one neuron to CUDA kernels that you wrote

This folder is your copy of nncourse, a hands-on course in neural networks and GPU programming.

## Start

On Linux you need make, g++ and Python 3.11 or newer. Run this command in this folder:

    make lab

The first run installs everything in `.venv`, which takes about 1 GB and a few minutes. With an NVIDIA driver for CUDA
12 or 13 it also installs CuPy; without a GPU your kernels run on the CPU. Each run opens JupyterLab at
[notebooks/00_start_here.ipynb](notebooks/00_start_here.ipynb). `PYTHON=python3.12 make lab` uses a different
interpreter, `JUPYTER_PORT=8899 make lab` a different port.

On Windows and macOS, run these commands (on Windows, run `.venv\\Scripts\\activate` as the second one):

    python3 -m venv .venv
    source .venv/bin/activate
    pip install -e ".[lab,cpu,devices]"     # with an NVIDIA GPU cuda13,toolkit13 or cuda12,toolkit12 instead of cpu
    jupyter lab notebooks/00_start_here.ipynb

## Work

The notebooks have no outputs: predict, then run. Your code is checked as soon as you run its cell. Correct code is kept
as a plain file in `my_kernels/`, and later notebooks use it. These commands help you:

    source .venv/bin/activate
    nncourse progress                      # show which exercises are done
    nncourse check sigmoid                 # check kernels against the reference
    nncourse submit --out NAME.zip         # pack your kernels in one file, to hand in

## Update to a new version

Run this command in this folder. Cells that you have changed stay, and whatever is replaced is copied to `backups/`:

    nncourse update course.zip
"""
ADDRESS = """
## Elsewhere

The course's repository is <{address}>. You can run the course without an installation here: {links}.
"""
PARTED = "\f"


def text(language: str, address: str = "") -> str:
    """The text in a language. CourseError if the packages are not available in it.

    address: of the repository, to which the text then has a link.
    """
    words, more = in_language(language, __name__, TEXT + PARTED + ADDRESS).split(PARTED)
    if not address:
        return words
    links = ", ".join(f"[{name}]({link})" for name, link in hosts(address, language=language).items())
    return words + more.format(address=address, links=links)


def in_language(language: str, module: str, words: str) -> str:
    """What a module prints in this language; `words` if this process uses it. CourseError if it is not available."""
    if language == current():
        return words
    command = [sys.executable, "-m", module]
    environment = os.environ | {"NNCOURSE_LANG": language, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, env=environment, cwd=ROOT)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise CourseError(f"a hand-out in {language} needs translated texts, which cannot be made: {said}")
    return done.stdout.decode("utf-8")


if __name__ == "__main__":
    sys.stdout.write(TEXT + PARTED + ADDRESS)
