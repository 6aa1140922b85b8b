"""check() must reject wrong kernels. A mutant is a kernel of the package with one mistake put into its text.

Those in CUDA C are in tests/mutants/, a file for each .cu file. They show on real hardware every time, unless they say
`gpu = false`, `counts = false` or `race = true`.
"""

import re
import time
import tomllib
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from cuda_on_cpu import emulate
from nnclassroom.judge import check
from nncourse.catalogue import operations
from nncourse.kernels.activations import relu, sigmoid
from nncourse.kernels.confusion import confusion_matrix
from nncourse.kernels.convolution import convolution_forward
from nncourse.kernels.convolution_backpropagation import (
    convolution_bias_gradient,
    convolution_input_gradient,
    convolution_weight_gradient,
)
from nncourse.kernels.dense import dense_forward
from nncourse.kernels.kernel import CudaKernel
from nncourse.kernels.update import sgd_update
from tests.tiers import many


@dataclass(frozen=True)
class Mutant:
    operation: str
    kernel: str
    mistake: str
    right: str  # some text of the kernel: its first occurrence there, or all in the file if the kernel has none
    wrong: str  # what takes its place
    gpu: bool = True  # False where a GPU may not show it
    counts: bool = True  # False if it is wrong with NaN and infinities alone
    race: bool = False  # right in every thread order, as long as one thread runs after the other; a GPU may be lucky


def _mutants() -> list[Mutant]:
    tables = [tomllib.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.toml"))]
    return [
        Mutant(operation, kernel, mistake, **texts)
        for table in tables
        for operation, kernels in table.items()
        for kernel, mistakes in kernels.items()
        for mistake, texts in mistakes.items()
    ]


FOLDER = Path(__file__).parent / "mutants"
ALL = _mutants()
RACES = [mutant for mutant in ALL if mutant.race]
MUTANTS = [mutant for mutant in ALL if not mutant.race]


OTHER_KERNEL = re.compile(r'^extern "C" __global__ .*?^\}\n', re.MULTILINE | re.DOTALL)


def kernel_of(mutant: Mutant):
    """The package's kernel with the mistake in it."""
    kernel = operations()[mutant.operation][mutant.kernel]
    # lines of the text's other kernels are left empty: they would take seconds to compile
    alone = OTHER_KERNEL.sub(
        lambda match: match[0] if f" {kernel.entry}(" in match[0] else "\n" * match[0].count("\n"), kernel.source.text
    )
    kernel = replace(kernel, source=replace(kernel.source, text=alone))
    head, function, tail = kernel.source.text.partition(f" {kernel.entry}(")
    # helpers stand before the kernel, its own lines after: the mistake goes into the kernel if it has such a line
    if mutant.right in tail.split("\n}", 1)[0]:
        text = head + function + tail.replace(mutant.right, mutant.wrong, 1)
    else:
        text = kernel.source.text.replace(mutant.right, mutant.wrong)
    shared = kernel.source.before
    if text == kernel.source.text:  # what several texts share
        shared = tuple(replace(source, text=source.text.replace(mutant.right, mutant.wrong)) for source in shared)
    source = replace(kernel.source, text=text, before=shared)
    assert source != kernel.source, f"{mutant.right!r} is not in {source.file}: bring the mutant up to date"
    return replace(kernel, source=source)


def mutants(chosen):
    """Of each operation one mistake is tried with every commit."""

    def name(mutant: Mutant) -> str:
        return f"{mutant.operation}-{mutant.kernel}-{mutant.mistake}"

    operation = attrgetter("operation")
    return pytest.mark.parametrize("mutant", many(chosen, name, operation, operation))


def test_every_cuda_kernel_has_a_mutant():
    """A function that is a kernel of several operations needs one with any of them."""

    def function(kernel: CudaKernel) -> tuple[str, str]:
        return kernel.source.file, kernel.entry

    known = operations()
    tried = {function(known[mutant.operation][mutant.kernel]) for mutant in ALL}
    cuda = [each for operation in known.values() for each in operation.kernels.values() if isinstance(each, CudaKernel)]
    without = [f"{each.operation.name} ({each.name})" for each in cuda if function(each) not in tried]
    assert not without, f"expected a mutant in tests/mutants for each CUDA kernel; none for {', '.join(without)}"


@mutants(MUTANTS)
def test_mutant_is_rejected_under_the_emulator(mutant):
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    kernel = kernel_of(mutant)
    verdict = check.check(kernel.operation, kernel, device="emulator")
    assert bool(verdict) != mutant.counts, str(verdict)
    assert mutant.counts or verdict.facts["not finite"]
    assert "compile" not in verdict.line and "argument count" not in verdict.line, str(verdict)


@mutants(RACES)
def test_race_is_found_under_the_emulator(mutant):
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    kernel = kernel_of(mutant)
    lines = kernel.source.text.splitlines()
    verdict = check.check(kernel.operation, kernel, device="emulator")
    assert not verdict, f"accepted: {verdict}"
    assert "looking for races" in verdict.line and "\n" not in verdict.line
    found = int(verdict.line.split(f"{kernel.source.file}:")[1].split(":")[0])
    assert mutant.wrong in lines[found - 1] or any(sum in lines[found - 1] for sum in ("z +=", "sum +=")), verdict.line


@mutants([mutant for mutant in MUTANTS if mutant.gpu])
def test_mutant_is_rejected_on_the_gpu(mutant, gpu):
    kernel = kernel_of(mutant)
    verdict = check.check(kernel.operation, kernel, device="gpu")
    assert bool(verdict) != mutant.counts, str(verdict)


def test_lost_updates_are_seen_on_the_gpu(gpu):
    """Counting without atomics: the emulator says that counts may be lost, real hardware does lose them."""
    mutant = next(mutant for mutant in RACES if mutant.mistake == "counts without atomics")
    assert not check.check(confusion_matrix, kernel_of(mutant), device="gpu")


# ---- Python kernels


def damages_its_argument(A, W, b):
    A *= 1.0000001
    Z = A @ W.T + b
    A[0, 0] = 7
    return Z


def slow_and_wrong_type(A, W, b):
    return A.astype(np.float64) @ W.T + b


def half_precision(A, W, b):
    return (A.astype(np.float16) @ W.T.astype(np.float16) + b).astype(np.float32)


convolve = convolution_forward["numpy"]


def continues_the_edges(A, W, b, stride, before, after):
    sides = (before, after)
    return convolve(np.pad(A, ((0, 0), (0, 0), sides, sides), mode="edge"), W, b, stride, 0, 0)


def skips_after_padding_only(A, W, b, stride, before, after):
    Z = convolve(A, W, b, 1, before, after)
    return Z[:, :, stride - 1 :: stride, stride - 1 :: stride].copy() if Z.shape[2:] > (stride, stride) else Z


WRONG_PYTHON = [
    ("the filter turned around", convolution_forward, lambda A, W, *more: convolve(A, W[:, :, ::-1, ::-1], *more)),
    ("the filter transposed", convolution_forward, lambda A, W, *more: convolve(A, W.swapaxes(2, 3), *more)),
    ("before and after exchanged", convolution_forward, lambda A, W, b, k, m, n: convolve(A, W, b, k, n, m)),
    ("all padding in front", convolution_forward, lambda A, W, b, k, m, n: convolve(A, W, b, k, m + n, 0)),
    ("no bias", convolution_forward, lambda A, W, b, *more: convolve(A, W, np.zeros_like(b), *more)),
    ("the bias of another filter", convolution_forward, lambda A, W, b, *more: convolve(A, W, np.roll(b, 1), *more)),
    ("the first channel only", convolution_forward, lambda A, W, *more: convolve(A[:, :1], W[:, :1].copy(), *more)),
    ("the edges continued", convolution_forward, continues_the_edges),
    ("the wrong one of `stride` windows", convolution_forward, skips_after_padding_only),
    ("bias forgotten", dense_forward, lambda A, W, b: A @ W.T),
    (
        "weights transposed where square",
        dense_forward,
        lambda A, W, b: A @ (W if W.shape[0] == W.shape[1] else W.T) + b,
    ),
    ("result transposed", dense_forward, lambda A, W, b: (A @ W.T + b).T),
    ("bias as a column", dense_forward, lambda A, W, b: A @ W.T + b[:, None] if len(A) == len(b) else A @ W.T + b),
    ("damages its argument", dense_forward, damages_its_argument),
    ("float64", dense_forward, slow_and_wrong_type),
    ("half precision inside", dense_forward, half_precision),
    ("returns nothing", dense_forward, lambda A, W, b: None),
    ("raises", dense_forward, lambda A, W, b: A @ W + b),
    ("one number", dense_forward, lambda A, W, b: np.float32(0)),
    ("overflows to NaN", sigmoid, lambda z: np.exp(z) / (1 + np.exp(z))),
    ("a list", relu, lambda z: [max(0.0, float(x)) for x in z.flat]),
    ("NaN at zero", relu, lambda z: z * (z > 0) / (z != 0)),
    ("leaves its argument as it was", sgd_update, lambda W, G, rate: W - np.float32(rate) * G),
    ("gives nothing back", sgd_update, lambda W, G, rate: np.subtract(W, rate * G, out=W)[:0]),
    ("does nothing", sgd_update, lambda W, G, rate: W),
    ("changes the gradient", sgd_update, lambda W, G, rate: np.subtract(W, np.multiply(G, rate, out=G), out=W)),
    (
        "transposed",
        confusion_matrix,
        lambda labels, predictions, classes: confusion_matrix["numpy"](predictions, labels, classes),
    ),
    (
        "sum, not mean",
        convolution_weight_gradient,
        lambda D, A, *sizes: convolution_weight_gradient["numpy"](D, A, *sizes) * np.float32(len(D)),
    ),
    (
        "deltas and pixels exchanged",
        convolution_weight_gradient,
        lambda D, A, *sizes: convolution_weight_gradient["numpy"](D, A, *sizes).swapaxes(0, 1).copy(),
    ),
    (
        "before and after exchanged",
        convolution_weight_gradient,
        lambda D, A, k, stride, before, after: convolution_weight_gradient["numpy"](D, A, k, stride, after, before),
    ),
    ("one row only", convolution_bias_gradient, lambda D: D[:, :, 0].sum(axis=(0, 2)) / len(D)),
    ("mean over all pixels", convolution_bias_gradient, lambda D: D.mean(axis=(0, 2, 3))),
    (
        "the forward pass",
        convolution_input_gradient,
        lambda D, W, *sizes: convolution_input_gradient["numpy"](D, W[:, :, ::-1, ::-1].copy(), *sizes),
    ),
    (
        "mean, not sum",
        convolution_input_gradient,
        lambda D, W, *sizes: convolution_input_gradient["numpy"](D, W, *sizes) / len(D),
    ),
    ("counts as floats", confusion_matrix, lambda *a: confusion_matrix["numpy"](*a).astype(np.float32)),
]


@pytest.mark.parametrize(("operation", "wrong"), [pair[1:] for pair in WRONG_PYTHON], ids=[w[0] for w in WRONG_PYTHON])
def test_wrong_python_kernel_is_rejected(operation, wrong):
    verdict = check.check(operation, wrong)
    assert not verdict, f"accepted: {verdict}"
    assert "\n" not in verdict.line


def test_verdict_names_the_case_the_place_and_both_values():
    line = check.check(dense_forward, lambda A, W, b: A @ W.T).line
    for word in ("A (1, 1)", "1 of 1 wrong", "Z[0, 0]", "got", "expected"):
        assert word in line


def test_endless_cuda_kernel_ends_in_a_verdict(monkeypatch):
    if emulate.why_not():
        pytest.skip(emulate.why_not())
    mutant = Mutant("sgd_update", "naive", "", "if (i < n)", "while (i >= 0) if (i < n)")
    monkeypatch.setattr(check, "LAUNCH_SECONDS", 1.0)
    kernel, start = kernel_of(mutant), time.monotonic()
    verdict = check.check(sgd_update, kernel, device="emulator")
    assert not verdict and "did not end within 1 s" in verdict.line
    assert time.monotonic() - start < 60
