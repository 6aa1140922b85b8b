"""Compare the kernels of a convolution's forward pass and of its gradients with PyTorch's, which are cuDNN's.

The layers are those of a ResNet-34 on images of 148 × 197 pixels, batch 128, and those of the digits CNN, batch 32.
float32 without TF32. Everything is on the GPU, and a kernel that is able to writes its result into an existing array.
PyTorch gets padded images where cuDNN does not have that kind of padding, and does not divide by the batch.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnclassroom.exercises.catalogue import find
from nncourse import device as devices
from nncourse.kernels.kernel import CudaKernel, Kernel
from nncourse.kernels.operation import Operation

REFERENCE = "PyTorch"
TOLERANCE = 1e-4  # relative, in the Frobenius norm: naive sums have 236,800 terms; the error with TF32 would be 3e-4
TIMING = {"enough": 0.02, "repeats": 3}  # options of devices.seconds, for each of the rounds
LONGEST = 60.0  # seconds after which no further operation is begun


@dataclass(frozen=True)
class Layer:
    """Square filters, as many zeros `before` and `after` each row and column; stride 1."""

    name: str
    batch: int
    c_in: int
    h_in: int
    w_in: int
    c_out: int
    k: int
    before: int
    after: int

    @property
    def sizes(self) -> dict[str, int]:
        more = self.before + self.after - self.k + 1
        named = {name: value for name, value in vars(self).items() if name != "name"}
        return named | {"stride": 1, "h_out": self.h_in + more, "w_out": self.w_in + more}


LAYERS = (
    Layer("64 channels, 37 × 50", 128, 64, 37, 50, 64, 3, 1, 1),
    Layer("128 channels, 19 × 25", 128, 128, 19, 25, 128, 3, 1, 1),
    Layer("512 channels, 5 × 7", 128, 512, 5, 7, 512, 3, 1, 1),
    Layer("digits CNN, layer 1", 32, 1, 28, 28, 4, 2, 0, 1),
    Layer("digits CNN, layer 2", 32, 4, 28, 28, 4, 2, 0, 1),
)


@dataclass(frozen=True)
class Arrays:
    """Images, filters, biases and deltas of one layer, on its device."""

    layer: Layer
    A: Any
    W: Any
    b: Any
    D: Any


def arrays_of(layer: Layer, device: str) -> Arrays:
    rng, sizes = np.random.default_rng(0), layer.sizes
    batch, c_in, c_out, k = layer.batch, layer.c_in, layer.c_out, layer.k
    shapes = (
        (batch, c_in, layer.h_in, layer.w_in),
        (c_out, c_in, k, k),
        (c_out,),
        (batch, c_out, sizes["h_out"], sizes["w_out"]),
    )
    made = [devices.to_device(rng.standard_normal(shape, dtype=np.float32), device) for shape in shapes]
    return Arrays(layer, *made)


# ---- the operations: their arguments for our kernels, and PyTorch's form of them


@dataclass(frozen=True)
class Pass:
    name: str
    operation: Operation
    arguments: Callable[[Arrays], tuple]
    pytorch: Callable[[Any, Arrays, str], Callable]  # torch, arrays, device -> a function that returns the result
    summed: bool = False  # PyTorch's result is a sum over the batch, ours the mean


def padding(arrays: Arrays) -> tuple[int, int, int]:
    return 1, arrays.layer.before, arrays.layer.after


def as_tensors(torch, arrays: Arrays, device: str) -> tuple[list, int, Callable]:
    """A, W, b and D as tensors; the padding that cuDNN does; pad(A), which does the rest."""
    place = "cuda" if device == "gpu" else "cpu"
    tensors = [torch.as_tensor(array, device=place) for array in (arrays.A, arrays.W, arrays.b, arrays.D)]
    before, after = arrays.layer.before, arrays.layer.after
    if before == after:
        return tensors, before, lambda A: A
    return tensors, 0, lambda A: torch.nn.functional.pad(A, (before, after, before, after))


def pytorch_forward(torch, arrays: Arrays, device: str) -> Callable:
    (A, W, b, _), around, pad = as_tensors(torch, arrays, device)
    return lambda: torch.nn.functional.conv2d(pad(A), W, b, padding=around)


def pytorch_gradient(torch, arrays: Arrays, device: str, wanted: int) -> Callable:
    """wanted: 0 for the gradient of the images, 1 for that of the filters."""
    (A, W, _, D), around, pad = as_tensors(torch, arrays, device)
    padded, mask = pad(A), [number == wanted for number in range(3)]
    before, (h_in, w_in) = arrays.layer.before, A.shape[2:]
    inside = slice(before - around, before - around + h_in), slice(before - around, before - around + w_in)

    def gradient():
        options = [1, 1], [around, around], [1, 1], False, [0, 0], 1
        found = torch.ops.aten.convolution_backward(D, padded, W, None, *options, mask)[wanted]
        return found if wanted else found[:, :, *inside]

    return gradient


PASSES = (
    Pass(
        "forward",
        find("convolution_forward"),
        lambda arrays: (arrays.A, arrays.W, arrays.b, *padding(arrays)),
        pytorch_forward,
    ),
    Pass(
        "input gradient",
        find("convolution_input_gradient"),
        lambda arrays: (arrays.D, arrays.W, arrays.layer.h_in, arrays.layer.w_in, *padding(arrays)),
        lambda torch, arrays, device: pytorch_gradient(torch, arrays, device, 0),
    ),
    Pass(
        "weight gradient",
        find("convolution_weight_gradient"),
        lambda arrays: (arrays.D, arrays.A, arrays.layer.k, *padding(arrays)),
        lambda torch, arrays, device: pytorch_gradient(torch, arrays, device, 1),
        summed=True,
    ),
)


# ---- measuring


def measure(rounds: int, device: str = "gpu", layers=LAYERS, names=None) -> dict:
    """The table `convolutions`, what was left out and why, and the versions of the libraries.

    A kernel that fails or is wrong is left out. After LONGEST seconds nothing further is begun.
    """
    begin = time.perf_counter()
    torch, records, left_out, versions = imported_torch(), [], {}, {}
    if isinstance(torch, str):
        left_out[REFERENCE] = torch
    else:
        versions["torch"] = torch.__version__
        if torch.backends.cudnn.is_available():
            versions["cudnn"] = str(torch.backends.cudnn.version())
    for layer in layers:
        arrays = arrays_of(layer, device)
        for each in PASSES:
            key = f"{layer.name}, {each.name}"
            if (spent := time.perf_counter() - begin) > LONGEST:
                left_out[f"{key} / all kernels"] = f"no time: {spent:.0f} s had passed"
                continue
            found, failed = one_pass(torch, each, arrays, rounds, device, names)
            records += found
            left_out |= {f"{key} / {kernel}": reason for kernel, reason in failed.items()}
    return {"convolutions": records, "left_out": left_out, "versions": versions}


def imported_torch() -> Any:
    """PyTorch without TF32, which times cuDNN's kernels before it takes one; or why it is missing, as text."""
    try:
        import torch
    except ImportError as error:
        return f"{type(error).__name__}: {error}"
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return torch


def one_pass(torch, each: Pass, arrays: Arrays, rounds: int, device: str, names) -> tuple[list[dict], dict[str, str]]:
    """The records of one operation on one layer, and the kernels that were left out, each with its reason."""
    arguments, family = each.arguments(arrays), "cupy" if device == "gpu" else "numpy"
    exact = (array.astype("float64") if hasattr(array, "astype") else array for array in arguments)
    reference = each.operation[family](*exact)
    work, left_out = {}, {}
    kernels = [k for k in each.operation.kernels.values() if k.device == device and (names is None or k.name in names)]
    for kernel in kernels:
        attempt(kernel.name, lambda kernel=kernel: ours(kernel, arguments), reference, work, left_out)
    if not isinstance(torch, str):
        sums = reference * arrays.layer.batch if each.summed else reference
        attempt(REFERENCE, lambda: each.pytorch(torch, arrays, device), sums, work, left_out)
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(rounds):
        for name, compute in work.items():
            seconds[name].append(devices.seconds(compute, device, **TIMING))
    return records(each, arrays.layer, seconds), left_out


def ours(kernel: Kernel, arguments: tuple) -> Callable:
    if kernel.missing():
        raise ValueError(kernel.missing())
    if isinstance(kernel, CudaKernel):
        made = kernel(*arguments)
        return lambda: kernel(*arguments, out=made)
    return lambda: kernel(*arguments)  # allocates its result


def attempt(name: str, prepare: Callable, reference, work: dict, left_out: dict[str, str]) -> None:
    """Add what prepare() returns to `work`, if its result is the reference up to rounding; otherwise say why not."""
    try:
        compute = prepare()
        result = compute()
        if not devices.on_gpu(result) and hasattr(result, "detach"):  # of PyTorch
            result = result.numpy()
        error = error_of(result, reference)
        if error <= TOLERANCE:
            work[name] = compute
        else:
            left_out[name] = f"wrong: off by {error:.1e}; expected at most {TOLERANCE:.0e}"
    except Exception as error:  # libraries may raise anything; the others are still of interest
        left_out[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def error_of(result, reference) -> float:
    xp = devices.array_module(reference)
    result = xp.asarray(result)
    if result.shape != reference.shape:
        return float("inf")
    return float(xp.sqrt(((result - reference) ** 2).sum() / (reference**2).sum()))


def records(each: Pass, layer: Layer, seconds: dict[str, list[float]]) -> list[dict]:
    """For each kernel its time and rate, and its share of PyTorch's speed; None where PyTorch did not run."""
    flops = each.operation.flops(**layer.sizes)
    reference = statistics.median(seconds[REFERENCE]) if REFERENCE in seconds else None
    found = []
    for name, rounds in seconds.items():
        median = statistics.median(rounds)
        share = reference / median if reference else None
        record = {"layer": layer.name, "batch": layer.batch, "pass": each.name, "kernel": name, "seconds": median}
        found.append(record | {"tflops": flops / median / 1e12, "of_pytorch": share, "rounds": rounds})
    return found
