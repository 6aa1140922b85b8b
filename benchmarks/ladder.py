"""Compare the kernels of dense_forward with cuBLAS on large square matrices, in one process and on the same data."""

import statistics

import numpy as np

from benchmarks.workers import WrongResultError
from nncourse import device as devices
from nncourse.kernels.dense import dense_forward
from nncourse.kernels.kernel import MANTISSA, CudaKernel

TOLERANCE = 1e-5  # relative, in the Frobenius norm; the error with TF32 would be 3e-4


def contenders(A, W, b, Z, names=None) -> dict:
    """Functions that compute Z, each with one kernel; "cuBLAS" computes only the product, without the bias."""
    xp = devices.array_module(A)
    found = {"cuBLAS": lambda: xp.matmul(A, W.T, out=Z)}
    in_float32 = [k.name for k in dense_forward.kernels.values() if k.device == "gpu" and k.mantissa == MANTISSA]
    for name in names or in_float32:
        found[name] = _into(dense_forward[name], A, W, b, Z)
    return found


def _into(kernel, A, W, b, Z):
    if isinstance(kernel, CudaKernel):
        return lambda: kernel(A, W, b, out=Z)
    return lambda: kernel(A, W, b)  # allocates its result


def measure(side: int, rounds: int, device: str = "gpu", names=None) -> list[dict]:
    """A record for each kernel, timed round by round. Raises WrongResultError if a result is wrong."""
    rng = np.random.default_rng(0)
    A, W = (devices.to_device(rng.standard_normal((side, side), dtype=np.float32), device) for _ in range(2))
    b = devices.to_device(rng.standard_normal(side, dtype=np.float32), device)
    Z = devices.array_module(A).empty_like(A)
    reference = A.astype("float64") @ W.T.astype("float64")
    work = contenders(A, W, b, Z, names)
    for name, compute in work.items():
        Z.fill(float("nan"))
        result = compute()
        refuse_wrong(name, result, reference if name == "cuBLAS" else reference + b)
    seconds = {name: [] for name in work}
    for _ in range(rounds):
        for name, compute in work.items():
            seconds[name].append(devices.seconds(compute, device, repeats=3))
    return records(side, seconds, devices.limits(device)["matrix"])


def refuse_wrong(name: str, result, reference) -> None:
    """Raise WrongResultError unless the result equals the reference up to rounding."""
    error = float(((result - reference) ** 2).sum() / (reference**2).sum()) ** 0.5
    if not error <= TOLERANCE:
        raise WrongResultError(f"dense_forward ({name}) is off by {error:.1e}; expected at most {TOLERANCE:.0e}")


def records(side: int, seconds: dict[str, list[float]], limit: float) -> list[dict]:
    """Times, rates, and the fractions of cuBLAS's rate and of `limit`, the machine's rate in FLOP per second."""
    flops = dense_forward.flops(batch=side, n_in=side, n_out=side)
    best = statistics.median(seconds["cuBLAS"])
    found = []
    for name, rounds in seconds.items():
        median = statistics.median(rounds)
        rate = flops / median
        shares = {"of_cublas": best / median, "of_limit": rate / limit}
        found.append(
            {"kernel": name, "side": side, "seconds": median, "tflops": rate / 1e12, **shares, "rounds": rounds}
        )
    return found
