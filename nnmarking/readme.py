"""README.md of a hand-out, in the language of the course: what a student needs, and no link that leads out of it
but to the repository, if its address is known.

python -m nnmarking.readme        its text, for a hand-out in another language than this process's
"""

import os
import subprocess
import sys

from nncourse.errors import CourseError
from nncourse.language import ROOT, current
from nnmarking.repository import hosts

TEXT = """# Neural networks, from one neuron to CUDA kernels that you wrote

## Start

On Linux, with make, g++ and Python 3.11 or newer, in this folder:

    make lab

The first time it sets everything up in `.venv`, about 1 GB, which takes a few minutes; then it opens JupyterLab at
[notebooks/00_start_here.ipynb](notebooks/00_start_here.ipynb). With an NVIDIA driver of CUDA 12 or 13 the matching
CuPy is installed too; without a GPU your kernels run on the CPU. `PYTHON=python3.12 make lab` takes another
interpreter, `JUPYTER_PORT=8899 make lab` another port.

On Windows and macOS (on Windows, `.venv\\Scripts\\activate`):

    python3 -m venv .venv
    source .venv/bin/activate
    pip install -e ".[cpu,devices]"     # with an NVIDIA GPU cuda13,toolkit13 or cuda12,toolkit12 instead of cpu
    jupyter lab notebooks/00_start_here.ipynb

## Work

The notebooks have no outputs: predict, then run. What you fill in is checked at once; what is right is kept as a plain
file in `my_kernels/` and drives later notebooks.

    source .venv/bin/activate
    nncourse progress                      # what is done
    nncourse check sigmoid                 # kernels against the reference
    nncourse submit --out NAME.zip         # your kernels in one file, to hand in

## A new version

    nncourse update course.zip

in this folder brings in what has changed. Cells that you changed stay; whatever is replaced lies in `backups/`.
"""
ADDRESS = """
## Elsewhere

The course's repository is <{address}>. Without an installation it runs here: {links}.
"""
PARTED = "\f"


def text(language: str, address: str = "") -> str:
    """The text in a language; CourseError if the package does not speak it.

    address: of the repository, to which the text then has a link.
    """
    words, more = in_language(language, __name__, TEXT + PARTED + ADDRESS).split(PARTED)
    if not address:
        return words
    links = ", ".join(f"[{name}]({link})" for name, link in hosts(address, language=language).items())
    return words + more.format(address=address, links=links)


def in_language(language: str, module: str, words: str) -> str:
    """What a module prints in this language: `words`, if it is this process's. CourseError if it cannot be had."""
    if language == current():
        return words
    command = [sys.executable, "-m", module]
    environment = os.environ | {"NNCOURSE_LANG": language, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, env=environment, cwd=ROOT)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise CourseError(f"the texts of a hand-out in {language} cannot be made: {said}")
    return done.stdout.decode("utf-8")


if __name__ == "__main__":
    sys.stdout.write(TEXT + PARTED + ADDRESS)
