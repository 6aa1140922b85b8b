"""The constants of rules.cu, for the rule of an optimizer."""

import math
from pathlib import Path

from cuda_on_cpu.source import CudaSource
from nncourse.architecture import Rule

RULES = CudaSource.read(Path(__file__).with_name("rules.cu"))


def constants(rule: Rule) -> dict[str, str]:
    """The constants for -D, by name."""
    given = dict(rule.options)
    kind = "MOMENTUM" if given.get("momentum") else rule.kind.upper()
    beta1 = given.get("momentum", given.get("beta1", 0.0))
    beta2 = given.get("beta", given.get("beta2", 0.0))
    numbers = {
        "L2": given["l2"],
        "BETA1": beta1,
        "REST1": 1 - beta1,
        "LOG_BETA1": math.log(beta1) if beta1 else -math.inf,
        "BETA2": beta2,
        "REST2": 1 - beta2,
        "LOG_BETA2": math.log(beta2) if beta2 else -math.inf,
        "EPSILON": given.get("epsilon", 0.0),
    }
    return {"RULE": kind} | {name: in_cuda(value) for name, value in numbers.items()}


def in_cuda(number: float) -> str:
    """A float32 literal of CUDA C."""
    return "-INFINITY" if number == -math.inf else f"{number:.9e}f"
