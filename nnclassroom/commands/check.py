"""`nncourse check`: kernels against the reference."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from nncourse.errors import refuse_unknown

if TYPE_CHECKING:
    from nncourse.kernels.kernel import Kernel
    from nncourse.kernels.operation import Operation


def add_options(parser: ArgumentParser) -> None:
    add_kernels(parser)
    parser.add_argument(
        "--emulate", action="store_true", help="check CUDA kernels on the CPU emulator, even with a GPU"
    )


def add_kernels(parser: ArgumentParser) -> None:
    """The operation, or all, and its kernels, or all."""
    parser.add_argument("operation", nargs="?", help="name of the operation (default: all operations of the networks)")
    add_kernel_names(parser)


def add_kernel_names(parser: ArgumentParser) -> None:
    """Kernels of the operation, or all."""
    parser.add_argument(
        "--kernel",
        action="append",
        default=[],
        help="name of a kernel to use (default: all); repeat the option for several kernels",
    )


def chosen(options: Namespace) -> list[Operation]:
    """The operation that the options name, else all operations of the networks."""
    from nnclassroom.exercises.catalogue import find
    from nncourse.catalogue import epochs, operations

    return [find(options.operation)] if options.operation else [*(operations() | epochs()).values()]


def run(options: Namespace) -> int:
    from nnclassroom.judge.check import check

    operations = chosen(options)
    known = dict.fromkeys(name for operation in operations for name in operation.kernels)
    for name in options.kernel:
        refuse_unknown("a kernel", name, known)
    right = wrong = unchecked = 0
    for operation in operations:
        for name in [name for name in operation.kernels if name in options.kernel or not options.kernel]:
            kernel = operation[name]
            if reason := _why_not(kernel, options.emulate):
                print(f"– {operation.name} ({name}): not checked, {reason}")
                unchecked += 1
                continue
            verdict = check(operation, name, device="emulator" if options.emulate and kernel.cuda else None)
            print(verdict, flush=True)
            right, wrong = right + bool(verdict), wrong + (not verdict)
    print(f"{right} right, {wrong} wrong, {unchecked} not checked")
    return 1 if wrong else 0


def _why_not(kernel: Kernel, emulate: bool) -> str:
    """Why a kernel cannot be checked on this machine; "" if it can. CUDA C runs on a GPU or on the emulator."""
    from cuda_on_cpu import emulate as emulator
    from nncourse import device

    if kernel.device == "cpu" or (device.gpu_available() and not emulate):
        return kernel.missing()
    return (emulator.why_not() or "") if kernel.cuda else "it needs a GPU"
