"""Measure how long a student waits for a verdict: python -m benchmarks.verdicts

The tests' correct answers to all exercises are judged as in a notebook, on all cores of the machine. "Cold" means that
nothing is cached that the emulator compiled for these answers. What all emulator programs share is compiled before.
"""

import os
import statistics
import tempfile
import time

from cuda_on_cpu import emulate
from nnclassroom.exercises import kept_kernels
from nnclassroom.exercises.catalogue import find
from nnclassroom.judge import worker
from nnclassroom.notebook import cuda_cell
from nncourse import device
from tests.exercise_answers import RIGHT


def seconds_of(answer: dict) -> float:
    """The time of one verdict. RuntimeError if the answer is not right."""
    operation, launch, text = find(answer["operation"]), None, answer["text"]
    if "line" in answer:
        launch = cuda_cell.launch_options(operation, cuda_cell.parsed(answer["line"]))
        text = f"// %%cuda {answer['line']}\n{text}"
    start = time.perf_counter()
    verdict = kept_kernels.judged(operation, answer["kernel"], text, launch)
    if not verdict:
        raise RuntimeError(str(verdict))
    return time.perf_counter() - start


def in_words(times: list[float]) -> str:
    return f"median {statistics.median(times):.3f} s, longest {max(times):.3f} s, {len(times)} exercises"


def main() -> None:
    python = [answer for answer in RIGHT if "line" not in answer]
    cuda = [answer for answer in RIGHT if "line" in answer]
    print(device.describe("gpu" if device.gpu_available() else "cpu"))
    start = time.perf_counter()
    seconds_of(python[0])
    print(f"the very first verdict, which starts the processes: {time.perf_counter() - start:.3f} s")
    print(f"Python: {in_words([seconds_of(answer) for answer in python])}")
    if device.gpu_available() or emulate.why_not() is None:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            emulate.why_not.cache_clear()
            emulate.why_not()  # compiles what all share
            worker.end()  # its environment is that of its start
            seconds_of(python[0])
            for kind in ("cold", "warm"):
                print(f"CUDA C, {kind}: {in_words([seconds_of(answer) for answer in cuda])}")


if __name__ == "__main__":
    main()
