"""Check every CUDA kernel on a GPU with NVIDIA's compute-sanitizer, which comes with the CUDA toolkit.

python tools/sanitize.py                 memcheck (out-of-bounds accesses), then racecheck (shared memory)
python tools/sanitize.py racecheck       only one of its tools
"""

import shutil
import subprocess
import sys
from pathlib import Path

from nnclassroom.judge.check import check

TOOLS = ("memcheck", "racecheck")
FOUND = 9  # the exit status that compute-sanitizer returns if it finds errors


def main(tools: list[str]) -> int:
    """Run the tools. Returns the exit status: 0 if all kernels are right and no tool reports an error."""
    if not shutil.which("compute-sanitizer"):
        print("sanitize: no compute-sanitizer here: install the CUDA toolkit, or put its bin/ on PATH", file=sys.stderr)
        return 2
    status = 0
    for tool in tools or TOOLS:
        print(f"== {tool}", flush=True)
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), sys.executable, __file__]
        ended = subprocess.run([*command, "--check"])
        words = {0: "clean", FOUND: "found errors: see above"}.get(ended.returncode, "not all kernels are right")
        print(f"== {tool}: {words}", flush=True)
        status = max(status, ended.returncode)
    return status


def check_all() -> int:
    """Check every CUDA kernel on the GPU: 0 if all are right, else 1."""
    import cupy
    import pytest

    from nncourse.catalogue import epochs, operations

    cupy.cuda.set_allocator(None)  # one allocation per array: in CuPy's pool memcheck cannot see where arrays end
    every = (operations() | epochs()).values()
    there = (kernel for operation in every for kernel in operation.kernels.values())
    kernels = [kernel for kernel in there if kernel.cuda and not kernel.missing()]
    verdicts = [check(kernel.operation, kernel, device="gpu") for kernel in kernels]
    print(*verdicts, sep="\n", flush=True)
    # In the small cases of check(), one_kernel uses few blocks; these tests use clusters and grids.
    tests = Path(__file__).parents[1] / "tests"
    layouts = [str(tests / f"test_{kind}_epoch_one_kernel.py") for kind in ("dense", "convolutional")]
    status = pytest.main(["-q", "-p", "no:cacheprovider", "-k", "right_on_the_gpu", *layouts])
    return 0 if all(verdicts) and status == 0 else 1


if __name__ == "__main__":
    sys.exit(check_all() if sys.argv[1:] == ["--check"] else main(sys.argv[1:]))
