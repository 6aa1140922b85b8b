"""Measure the time that tensor cores save, and their errors: python -m benchmarks.tensor_cores [--quick] [--out FILE].

On an NVIDIA GPU, in one process, the course's kernels and PyTorch (that is, cuBLAS) compute Z = A Wᵀ + b. Factors are
float32, TF32, bf16 and fp16; sums are float32. The numbers in A and W have mean 0 and deviation 1. They are on the GPU,
for bf16 and fp16 in 16 bits, and so is the result. Its error is the largest difference of an element from a float64
reference, divided by the root mean square of all elements. Then PyTorch takes a training step of ResNet-34, as in
resnet.py. Contenders take turns. Writes results/tensor_cores-MACHINE.json.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import resnet, tables
from benchmarks.machines import about, slug
from benchmarks.saved import RESULTS, dated, refuse_out, save
from benchmarks.workers import WrongResultError
from nncourse import device as devices
from nncourse.catalogue import find
from nncourse.kernels.kernel import MANTISSA
from nncourse.model.resnet import IMAGE
from nncourse.model.resnet import resnet as make_resnet

SQUARES = 1024, 2048, 4096
# batch, n_in, n_out of the convolution with the most products in ResNet-34, for 128 images of 148 x 197 pixels:
# 512 filters of 512 x 3 x 3 numbers at each of 5 x 7 places
LARGEST = (128 * 5 * 7, 512 * 3 * 3, 512)
BITS = {"float32": MANTISSA, "TF32": 10, "fp16": 10, "bf16": 7}  # of mantissa
FACTORS = "float32", "TF32", "bf16"  # of ResNet-34's steps
PYTORCH, OURS = "PyTorch ", "nncourse "
RUNGS = (
    "double_buffered",
    "small_tiles",
    "stream_k",
    "by_shape",
    "tensor_cores",
    "wgmma",
    "wgmma_buffered",
    "tma",
    "tma_pipelined",
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to test that all runs; writes nothing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="file for the results (default: results/tensor_cores-MACHINE.json)")
    options = parser.parse_args(arguments)
    if options.out:
        refuse_out(parser, options.out)
    if not devices.gpu_available():
        print(f"benchmarks.tensor_cores: {devices.why_no_gpu()}", file=sys.stderr)
        return 2
    sizes = [(side,) * 3 for side in SQUARES[: 1 if options.quick else None]] + [LARGEST]
    result = about("gpu") | {"products": [], "steps": [], "left_out": {}}
    for each in sizes:
        result["products"] += products(each, options.rounds, left_out=result["left_out"])
        print(f"measured: {' × '.join(map(str, each))}", flush=True)
    result["steps"] = steps(8 if options.quick else 128, options.rounds, left_out=result["left_out"])
    result = dated(result)
    if not options.quick:
        save(result, options.out or RESULTS / f"tensor_cores-{slug(result['machine'])}.json")
    print(tables.tensor_core_table(result))
    return 0


# ---- one product


def products(
    sizes: tuple[int, int, int], rounds: int, device: str = "gpu", left_out: dict[str, str] | None = None
) -> list[dict]:
    """A record for each contender, timed round by round. Raises WrongResultError if a result is wrong."""
    batch, n_in, n_out = sizes
    rng = np.random.default_rng(28)
    A, W, b = (rng.standard_normal(shape, np.float32) for shape in ((batch, n_in), (n_out, n_in), n_out))
    there = [devices.to_device(array, device) for array in (A, W, b)]
    exact = there[0].astype("float64") @ there[1].astype("float64").T + there[2]
    work = ours(there) | pytorch(A, W, b, device, {} if left_out is None else left_out)
    errors = {name: refuse_wrong(name, result(), exact, factors) for name, (factors, result, _) in work.items()}
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, (_, _, compute) in work.items():
            seconds[name].append(devices.seconds(compute, device, repeats=3))
    flops = find("dense_forward").flops(batch=batch, n_in=n_in, n_out=n_out)
    head = {"batch": batch, "n_in": n_in, "n_out": n_out}
    return [
        head
        | {"contender": name, "factors": work[name][0], "seconds": (median := statistics.median(each))}
        | {"tflops": flops / median / 1e12, "error": errors[name], "rounds": each}
        for name, each in seconds.items()
    ]


def ours(arguments: list[Any]) -> dict[str, tuple[str, Callable[[], Any], Callable[[], Any]]]:
    """By name: the factors, a function that returns the result, and one to time: the ladder's last rungs."""
    found = {}
    Z = devices.array_module(arguments[0]).empty((len(arguments[0]), len(arguments[1])), np.float32)
    for name in RUNGS:
        kernel = find("dense_forward")[name]
        if not kernel.missing():
            compute = _into(kernel, arguments, Z)
            found[f"{OURS}{name}"] = ("float32" if kernel.mantissa == MANTISSA else "TF32", compute, compute)
    return found


def _into(kernel: Any, arguments: list[Any], Z: Any) -> Callable[[], Any]:
    return lambda: kernel(*arguments, out=Z)


def pytorch(A: np.ndarray, W: np.ndarray, b: np.ndarray, device: str, left_out: dict[str, str]) -> dict:
    """The same of PyTorch, with each kind of factors. Without PyTorch `left_out` says so."""
    try:
        import torch
    except ImportError as error:
        left_out[PYTORCH.strip()] = str(error)
        return {}
    place = "cuda" if device == "gpu" else "cpu"
    types = {"float32": torch.float32, "TF32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False  # sums in float32
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    found = {}
    for factors, kind in types.items():
        there = [torch.from_numpy(array).to(place, kind) for array in (A, W, b)]
        compute = _linear(torch, "high" if factors == "TF32" else "highest", there)
        result = _as_array(compute, device)
        found[PYTORCH + factors] = (factors, result, compute)
    return found


def _linear(torch: Any, precision: str, arguments: list[Any]) -> Callable[[], Any]:
    def compute() -> Any:
        torch.set_float32_matmul_precision(precision)  # of the whole process
        return torch.nn.functional.linear(*arguments)

    return compute


def _as_array(compute: Callable[[], Any], device: str) -> Callable[[], Any]:
    return lambda: devices.to_device(compute().float().cpu().numpy(), device)


def refuse_wrong(name: str, result: Any, exact: Any, factors: str) -> float:
    """The largest error over the root mean square. Raises WrongResultError if these factors do not explain it."""
    error = float(abs(result - exact).max()) / float((exact**2).mean()) ** 0.5
    if not error <= (most := max(1e-4, 2.0 ** (3 - BITS[factors]))):
        raise WrongResultError(f"dense_forward ({name}) is off by {error:.1e}; expected at most {most:.0e}")
    return error


# ---- a training step of ResNet-34


def steps(
    rows: int,
    rounds: int,
    device: str = "gpu",
    depth: int = 34,
    sides: tuple[int, int] = IMAGE,
    left_out: dict[str, str] | None = None,
) -> list[dict]:
    """A record for each kind of factors: seconds a step, and how far the first gradient is from float32's."""
    network = make_resnet(depth, resnet.CLASSES, height=sides[0], width=sides[1])
    X, labels = resnet.batch_of(rows, *sides)
    wait, place = resnet.synchronised(device), "cuda" if device == "gpu" else "cpu"
    work, gradients = {}, {}
    try:
        for factors in FACTORS:
            work[factors], gradient = resnet.pytorch_step(network, X, labels, place, factors=factors)
            work[factors]()
            gradients[factors] = gradient()
    except ImportError as error:
        (left_out if left_out is not None else {})["ResNet-34 / " + PYTORCH.strip()] = str(error)
        return []
    seconds: dict[str, list[float]] = {factors: [] for factors in work}
    for step in work.values():  # once more before the clock starts
        step()
    for _ in range(rounds):
        for factors, step in work.items():
            seconds[factors].append(resnet.timed(step, 5, wait))
    exact = gradients["float32"]
    return [
        {"batch": rows, "factors": factors, "seconds_a_step": statistics.median(each), "rounds": each}
        | {"gradient": float(np.linalg.norm(gradients[factors] - exact) / np.linalg.norm(exact))}
        for factors, each in seconds.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
