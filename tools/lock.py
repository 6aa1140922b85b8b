"""Write requirements/*.txt, the hashed lock files, from pyproject.toml: `make locks`. Needs uv (pip install uv).

The files work with plain pip on Python 3.11, 3.12 and 3.13. base.txt locks the dependencies and the build tool; every
other file locks one extra, with base.txt as a constraint, so that they can be installed together.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKED_EXTRAS = ("cpu", "cuda12", "cuda13", "toolkit12", "toolkit13", "devices", "test", "book")  # all others at will


def locked_requirements() -> dict[str, list[str]]:
    """For each lock file, by its stem, the requirements of pyproject.toml that it locks."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = pyproject["project"]["optional-dependencies"]
    base = pyproject["project"]["dependencies"] + extras["lab"] + pyproject["build-system"]["requires"]
    return {"base": base} | {name: extras[name] for name in LOCKED_EXTRAS}


def constraints(name: str) -> list[str]:
    """The uv options that make a lock file consistent with those that it is installed with."""
    together = {"toolkit12": ["base", "cuda12"], "toolkit13": ["base", "cuda13"], "book": ["base", "test"]}
    beside = [] if name == "base" else together.get(name, ["base"])
    return [option for other in beside for option in ("--constraints", f"requirements/{other}.txt")]


def lock(name: str, requirements: list[str]) -> None:
    """Write requirements/<name>.txt."""
    command = ["uv", "pip", "compile", "-", "--output-file", f"requirements/{name}.txt", *constraints(name)]
    command += ["--universal", "--python-version", "3.11", "--upgrade", "--generate-hashes"]
    command += ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "--quiet"]
    subprocess.run(command, input="\n".join(requirements), text=True, cwd=ROOT, check=True)


def main() -> int:
    """Lock every set of requirements."""
    for name, requirements in locked_requirements().items():
        print(f"locking requirements/{name}.txt")
        try:
            lock(name, requirements)
        except FileNotFoundError:
            print("uv is not on the PATH: pip install uv, then run make locks again", file=sys.stderr)
            return 1
        except subprocess.CalledProcessError:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
