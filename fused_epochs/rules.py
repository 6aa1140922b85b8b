"""The constants of rules.cu: an optimizer for the CUDA kernels of epochs."""

from math import log
from pathlib import Path

from cuda_on_cpu.text import CudaSource
from fused_epochs.architecture import Rule

RULES = CudaSource.read(Path(__file__).with_name("rules.cu"))


def rule_constants(rule: Rule) -> dict[str, str]:
    """Name → value in C. β of RMSProp, which has a mean of squares as Adam has, is BETA_2."""
    options = dict(rule.options)
    beta_1, beta_2 = options.get("beta1", 0.0), options.get("beta2", options.get("beta", 0.0))
    numbers = {
        "MOMENTUM": options.get("momentum", 0.0),
        "L2": options.get("l2", 0.0),
        "EPSILON": options.get("epsilon", 0.0),
    }
    for name, beta in (("1", beta_1), ("2", beta_2)):
        logarithm = log(beta) if beta else -1e30  # as good as minus infinity
        numbers |= {f"BETA_{name}": beta, f"REST_{name}": 1 - beta, f"LOG_{name}": logarithm}
    return {"RULE": rule.kind.upper()} | {name: f"{float(number)!r}f" for name, number in numbers.items()}
