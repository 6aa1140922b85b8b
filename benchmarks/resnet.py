"""Compare a training step of ResNet-34 with PyTorch's: python -m benchmarks.resnet, on a machine with an NVIDIA GPU.

Grey images of 148 × 197 pixels, nine classes, float32 without TF32, plain SGD. All contenders begin with the same
weights and take steps on the same batch, which is on the GPU. They take turns, with a few steps per round. PyTorch runs
eagerly, with cuDNN's kernels chosen by timing. Its default, a choice by rules, is timed first, in its own process.

Besides the times, it measures the memory that each contender holds, the seconds that Python needs to issue a step of
nncourse, the difference between the gradients, and (with CUDA events around each call) the time of each operation.
"""

import argparse
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import workers
from benchmarks.saved import refuse_out, save
from nncourse import device as devices
from nncourse.backend import Backend, choose
from nncourse.errors import CourseError
from nncourse.model.layers import StepPosition
from nncourse.model.network import Network, training_step
from nncourse.model.optimizers import SGD
from nncourse.model.resnet import IMAGE, resnet
from nnexperiment.trainers.pytorch_training import resnet_module

CLASSES, RATE = 9, 0.01
CONVOLUTIONS = ("convolution_forward", "convolution_weight_gradient", "convolution_input_gradient")
OURS, PYTORCH, BY_RULES = "nncourse", "PyTorch", "PyTorch, cuDNN by rules"
LIMIT = 120.0  # seconds for BY_RULES


class Timed:
    """A backend that records a CUDA event before and after each call of a kernel."""

    def __init__(self, backend: Backend, event: Callable[[], Any]):
        self.backend, self.event = backend, event
        self.spans: list[tuple[str, Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.backend, name)
        if name not in self.backend.kernels:
            return value

        def call(*arguments):
            start, stop = self.event(), self.event()
            start.record()
            result = value(*arguments)
            stop.record()
            self.spans.append((name, start, stop))
            return result

        return call


def batch_of(rows: int, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and the numbers of their classes."""
    rng = np.random.default_rng(0)
    return rng.random((rows, 1, height, width), np.float32), rng.integers(0, CLASSES, rows)


def our_step(network: Network, X: np.ndarray, labels: np.ndarray, backend: Backend) -> tuple[Callable, Network]:
    """step(), and the network that it trains."""
    there, optimizer = network.on(backend), SGD()
    there_X, Y = backend.to_device(X), backend.to_device(np.eye(CLASSES, dtype=np.float32)[labels])
    return lambda calls=backend: training_step(there, there_X, Y, RATE, calls, optimizer, StepPosition()), there


def pytorch_step(
    network: Network,
    X: np.ndarray,
    labels: np.ndarray,
    device: str,
    by_timing: bool = True,
    factors: str = "float32",
):
    """step(), and its gradient as one vector. The model is torchvision's; by_timing: how cuDNN's kernels are chosen.

    factors: "float32", "TF32", or "bf16": of products and convolutions. With bf16 what is between them is 16 bits too,
    where PyTorch's autocast allows it.
    """
    import torch

    torch.backends.cudnn.benchmark = by_timing
    model = resnet_module(torch, network).to(device).train()
    images, classes = torch.tensor(X, device=device), torch.tensor(labels, device=device)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        torch.backends.cudnn.allow_tf32 = factors == "TF32"  # of the whole process: another step may have other factors
        torch.set_float32_matmul_precision("high" if factors == "TF32" else "highest")
        optimiser.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=factors == "bf16"):
            cost = torch.nn.functional.cross_entropy(model(images), classes)
        cost.backward()
        optimiser.step()

    def gradient() -> np.ndarray:
        return np.concatenate([p.grad.cpu().numpy().ravel() for p in model.parameters()])

    return step, gradient


def pytorch_by_rules(request: tuple[int, int, int, str, int, tuple[int, int]]) -> list[float]:
    """Called in a separate process: seconds a step in each round, cuDNN's kernels chosen by rules."""
    rows, rounds, steps, device, depth, sides = request
    network = resnet(depth, CLASSES, height=sides[0], width=sides[1])
    place = "cuda" if device == "gpu" else "cpu"
    step, _ = pytorch_step(network, *batch_of(rows, *sides), place, by_timing=False)
    wait = synchronised(device)
    for _ in range(2):
        step()
    return [timed(step, steps, wait) for _ in range(rounds)]


def timed(step: Callable, steps: int, wait: Callable[[], None]) -> float:
    """Seconds a step."""
    wait()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - start) / steps


def measure(rows: int, rounds: int, steps: int, device: str = "gpu", depth: int = 34, sides=IMAGE) -> dict:
    """Seconds a step of each contender in each round, and what else the module's text tells."""
    by_rules, why = {}, {}
    try:
        request = (rows, rounds, steps, device, depth, tuple(sides))
        by_rules[BY_RULES] = workers.asked_once(pytorch_by_rules, request, LIMIT)
    except workers.FailedError as error:
        why[BY_RULES] = str(error)
    network = resnet(depth, CLASSES, height=sides[0], width=sides[1])
    X, labels = batch_of(rows, *sides)
    backend = choose("cuda", **dict.fromkeys(CONVOLUTIONS, "cudnn")) if device == "gpu" else choose("numpy")
    began = time.perf_counter()
    ours, there = our_step(network, X, labels, backend)
    ours()
    devices.synchronise(device)
    found: dict[str, Any] = {"prepared": {OURS: time.perf_counter() - began}, "left_out": why, "memory": {}}
    print(f"ours is ready after {found['prepared'][OURS]:.0f} s", flush=True)
    work, gradient = {OURS: ours}, devices.to_device(there.flat_gradient, "cpu").copy()
    found["memory"][OURS] = held(device)
    wait = synchronised(device)
    try:
        work[PYTORCH], theirs = pytorch_step(network, X, labels, "cuda" if device == "gpu" else "cpu")
        work[PYTORCH]()
        wait()
        wanted = theirs()
        found["difference"] = float(np.linalg.norm(gradient - wanted) / np.linalg.norm(wanted))
        found["memory"][PYTORCH] = held_by_pytorch(device)
    except ImportError as error:
        found["left_out"][PYTORCH] = str(error)
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for step in work.values():  # once more before the clock starts
        step()
    wait()
    start = time.perf_counter()
    ours()  # one alone: the GPU's queue has room for all of it
    found["batch"], found["issued"] = rows, time.perf_counter() - start
    wait()
    for _ in range(rounds):
        for name, step in work.items():
            seconds[name].append(timed(step, steps, wait))
    seconds |= by_rules
    found["steps"] = [
        {"contender": name, "seconds_a_step": statistics.median(each), "rounds": each} for name, each in seconds.items()
    ]
    found["operations"] = by_operation(ours, backend, device) if device == "gpu" else []
    return found


def by_operation(step: Callable, backend: Backend, device: str) -> list[dict]:
    """Seconds and calls of each operation in one step, the longest first; what is between them as "rest"."""
    import cupy

    calls = Timed(backend, cupy.cuda.Event)
    step(calls)
    devices.synchronise(device)
    calls.spans.clear()
    start, stop = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    step(calls)
    stop.record()
    devices.synchronise(device)
    spent: dict[str, float] = defaultdict(float)
    for name, first, last in calls.spans:
        spent[name] += cupy.cuda.get_elapsed_time(first, last) / 1000
    count = Counter(name for name, _, _ in calls.spans)
    spent["rest"] = cupy.cuda.get_elapsed_time(start, stop) / 1000 - sum(spent.values())
    ordered = sorted(spent, key=spent.__getitem__, reverse=True)
    return [{"operation": name, "seconds": spent[name], "calls": count[name]} for name in ordered]


def synchronised(device: str) -> Callable[[], None]:
    """A function that waits for both libraries' work."""

    def wait() -> None:
        devices.synchronise(device)
        if device == "gpu" and "torch" in sys.modules:
            sys.modules["torch"].cuda.synchronize()

    return wait


def held(device: str) -> int:
    """Bytes that CuPy holds on the GPU; 0 on the CPU."""
    if device == "cpu":
        return 0
    import cupy

    return cupy.get_default_memory_pool().total_bytes()


def held_by_pytorch(device: str) -> int:
    if device == "cpu":
        return 0
    import torch

    return torch.cuda.max_memory_allocated()


def shown(found: dict) -> str:
    """The results as text."""
    lines = [f"ResNet-34, batch {found['batch']}, ms a step (each round)"]
    for each in found["steps"]:
        rounds = " ".join(f"{1000 * seconds:.2f}" for seconds in each["rounds"])
        memory = found["memory"].get(each["contender"], 0) / 1e9
        lines.append(f"  {each['contender']:<32} {1000 * each['seconds_a_step']:7.2f}   ({rounds})  {memory:.1f} GB")
    lines.append(f"Python issues a step of ours in {1000 * found['issued']:.2f} ms")
    lines.append(f"gradients differ by {found.get('difference', float('nan')):.1e}; left out: {found['left_out']}")
    for each in found["operations"]:
        lines.append(f"  {each['operation']:<32} {1000 * each['seconds']:7.2f} ms in {each['calls']} calls")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="steps per round")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    if options.out:
        refuse_out(parser, options.out)
    try:
        found = measure(options.batch, options.rounds, options.steps)
    except CourseError as error:
        print(f"resnet: {error}", file=sys.stderr)
        sys.exit(2)
    print(shown(found))
    if options.out:
        save({"machine": devices.describe("gpu"), "versions": devices.versions()} | found, options.out)


if __name__ == "__main__":
    main()
