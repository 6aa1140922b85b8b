"""Make docs/speed.md's tables of networks from results/networks-MACHINE.json, one per machine and number of threads.

Used by benchmarks.tables; not a command.
"""

import json
from pathlib import Path

from nnclassroom.formats import three_digits
from nnclassroom.timing import network_records

MISSING = "Not measured yet: `python -m benchmarks.networks` does it."


def read(folder: Path) -> list[dict]:
    """The results of all machines, those of GPUs first."""
    found = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("networks-*.json"))]
    return sorted(found, key=lambda result: result["device"] != "gpu")


def parts(result: dict) -> list[tuple[str, list[dict], list[dict]]]:
    """For each number of threads: words for it, the rows of networks.txt, and those drawn at random."""
    threads = sorted({row.get("threads", 0) for row in result["rows"]})
    found = []
    for count in threads:
        rows = [row for row in result["rows"] if row.get("threads", 0) == count]
        said = f"up to {count} threads each" if count > 1 else "one thread each" if count else ""
        found.append((said, [row for row in rows if "seed" not in row], [row for row in rows if "seed" in row]))
    return found


def heads_and_cells(rows: list[dict], device: str) -> tuple[list[str], list[list[str]]]:
    """The first line of a table, and a line for each row."""
    names, over = network_records.names_of(rows), network_records.reference(rows, device)
    ratios = dict.fromkeys(name for name in (over, "PyTorch eager") if name in names)
    heads = ["row", "µs a step", "batch, optimizer", *names, "plan", *(f"times {name}'s speed" for name in ratios)]
    lines = []
    for row in rows:
        there, best = row["contenders"], network_records.best_of_ours(row)
        cells = [network_records.micro(there[name]["seconds_a_step"]) if name in there else "–" for name in names]
        plan = f"`{there[best]['kernel']}`" if best else "–"
        speeds = (network_records.ratio(row, name) for name in ratios)
        speedups = [f"{three_digits(speed)}×" if speed else "–" for speed in speeds]
        layers = row["layers"] if row["layers"].startswith("image") else row["layers"].replace(",", "-")
        case = [str(row["row"]), layers, f"{row['batch']}, {row['optimizer'].replace(',', ' ')}"]
        lines.append([*case, *cells, plan, *speedups])
    return heads, lines


def summaries(rows: list[dict], drawn: list[dict]) -> str:
    """Least and median ratios, of the rows and of the networks drawn at random; contenders without a result there."""
    said = network_records.summary(rows, network_records.names_of(rows))
    for seed in dict.fromkeys(row["seed"] for row in drawn):
        some = [row for row in drawn if row["seed"] == seed]
        ratios = network_records.summary(some, network_records.names_of(some))
        failed = [f"{name} in row {row['row']}" for row in some for name in row["left_out"]]
        but = f"; left out, since it failed or was too far from the reference: {', '.join(failed)}" if failed else ""
        said.append(f"{len(some)} networks drawn at random (seed {seed}): {'; '.join(ratios)}{but}")
    return " ".join(f"{each[0].upper()}{each[1:]}." for each in said)
