"""Check CUDA C: on a GPU where there is one, and on the emulator, which finds what a GPU may hide."""

from dataclasses import replace

from cuda_on_cpu import emulate
from cuda_on_cpu.nvrtc import refuse_uncompilable, why_no_nvrtc
from cuda_on_cpu.source import refuse_misspelt
from nnclassroom.judge import check as judge
from nnclassroom.judge.forbidden_cuda import forbidden
from nnclassroom.judge.verdict import RIGHT, Verdict
from nncourse import device as devices
from nncourse.kernels.kernel import CudaKernel
from nncourse.kernels.operation import Operation

# Verdicts of a GPU that the emulator may explain: the race behind wrong values, the thread, the line.
EXPLAINED = ("wrong value", "not in place", "outside", "bounds", "crash")


def check_cuda(operation: Operation, kernel: CudaKernel, seed: int | None, sandbox: tuple[str, ...]) -> Verdict:
    """The verdict on a kernel in CUDA C. A text that nothing here can run raises CourseError for its mistakes."""
    if found := forbidden(kernel.source):
        return Verdict(operation.name, kernel.name, "forbidden", {"said": f"{kernel.source.file}: {found}"})
    reason = emulate.why_not()
    if not devices.gpu_available():
        if reason:  # what can be said of a text that nothing here can run
            refuse_misspelt(kernel.source)
            if why_no_nvrtc() is None:
                refuse_uncompilable(kernel.source)
        return judge.check(operation, kernel, device="emulator", seed=seed, sandbox=sandbox)
    verdict = judge.check(operation, kernel, device="gpu", seed=seed)
    if reason or verdict.kind not in (RIGHT, *EXPLAINED):
        return verdict
    emulated = judge.check(operation, kernel, device="emulator", seed=seed, sandbox=sandbox)
    if verdict:
        more = {"emulated too": True, "waste": emulated.facts.get("waste", ())}
        return replace(verdict, facts={**verdict.facts, **more}) if emulated else emulated
    if emulated or (emulated.kind == "wrong value" and not emulated.facts.get("unset")):
        return verdict
    return replace(emulated, facts={**emulated.facts, "context": verdict.facts.get("context", "")})


def emulated(operation: Operation, kernel: CudaKernel) -> Verdict | None:
    """The emulator's verdict on a kernel; None where nothing can run it."""
    return None if emulate.why_not() else judge.check(operation, kernel, device="emulator")
