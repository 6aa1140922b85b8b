"""Measure one card in a minute or two: the parts of `python -m benchmarks.gpu --quick`. card_tables.py makes its page.

Needs no data, and no library but the course's. Not a command.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

from benchmarks.card_tables import GRAPH, case
from nnclassroom.timing import network_records

PARTS = ("dense", "tensor_cores", "networks")
ROWS = (4, 9, 21)  # of networks.txt
EAGER = "PyTorch eager"


def ladder(side: int, rounds: int, device: str = "gpu", names: Sequence[str] = ()) -> dict[str, Any]:
    """The records of dense_forward's kernels, and the reasons why some are left out: they do not run on this card."""
    import numpy as np

    from benchmarks import ladder
    from nncourse import device as devices

    A, b, Z = (devices.to_device(np.ones(shape, np.float32), device) for shape in ((64, 64), 64, (64, 64)))
    usable, left_out = [], {}
    for name, compute in ladder.contenders(A, A, b, Z, names).items():
        try:
            compute()
            devices.synchronise(device)
            usable.append(name)
        except Exception as error:  # of the compiler, the launch, or the driver
            left_out[f"dense / {name}"] = next(iter(str(error).splitlines()), type(error).__name__)
    found = ladder.measure(side, rounds, device, [name for name in usable if name != "cuBLAS"])
    return {"dense": found, "left_out": left_out}


def tensor_cores(side: int, rounds: int) -> dict[str, Any]:
    """The records of products with factors of fewer bits, and the reasons why this card cannot run some kernels."""
    from benchmarks import tensor_cores
    from nncourse.kernels.dense import dense_forward
    from nncourse.kernels.kernel import MANTISSA

    reasons = {each.name: each.missing() for each in dense_forward.kernels.values() if each.mantissa < MANTISSA}
    left_out = {name: why for name, why in reasons.items() if why}
    if len(left_out) == len(reasons):
        return {"left_out": left_out}
    return {"tensor_cores": tensor_cores.products((side,) * 3, rounds, left_out=left_out), "left_out": left_out}


def training(rounds: int, rows: Sequence[int] = ROWS, device: str = "gpu", backend: str = "cuda") -> dict[str, Any]:
    """Training steps by train() with its default plan, beside PyTorch's if it is installed.

    Raises WrongResultError if train() does not agree with the reference.
    """
    from benchmarks import networks, workers

    ours = f"{network_records.OURS}{backend}"
    others = [name for name in networks.networks.contenders(device, {}) if name in (EAGER, GRAPH)]
    left_out = networks.networks.not_installed(others)
    names = [ours, *(name for name in others if name not in left_out)]
    found, team = [], networks.Team(device, [backend], {}, apart=device == "cpu")
    try:
        for row in (row for row in networks.listed() if row["row"] in rows):
            record = networks.contest(row, team, names, rounds, inf)
            reasons = record.pop("left_out")
            if reasons.get(ours, "").startswith("DisagreesError"):
                raise workers.WrongResultError(f"train(), {case(row)}: {reasons[ours]}")
            left_out |= {f"{case(row)} / {name}": why for name, why in reasons.items()}
            found.append(row | record)
    finally:
        team.end()
    return {"tables": {"networks": found}, "versions": {}, "left_out": left_out}
