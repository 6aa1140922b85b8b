"""Make the page of a card, and docs/speed.md's table of cards, from results/card-MACHINE.json. Not a command."""

import json
import textwrap
from pathlib import Path
from typing import Any

from nnclassroom.formats import three_digits
from nnclassroom.timing import network_records

SIDE = 2048  # of the matrices: fits small cards
GRAPH = "PyTorch graph"
SHOWN = ("tiled", "vectorised", "double_buffered")  # in docs/speed.md
WIDTH = 100  # of the page
MISSING = "No card has been contributed yet."


def page(result: dict[str, Any]) -> str:
    """All that was measured, in at most 60 lines of at most WIDTH columns."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    limits = f"copy {_copy(result)} GB/s, float32 matrix product {_product(result)} TFLOP/s"
    lines = []
    for text in (result["machine"], f"{result['cpu']}; {result['date']}", versions, f"measured limits: {limits}"):
        lines += textwrap.wrap(text, WIDTH)
    ladder = f"dense_forward, {SIDE:,} × {SIDE:,}, float32", "dense", "kernel", "of cuBLAS", "of_cublas", ".1%"
    fewer_bits = "the same with fewer bits", "tensor_cores", "contender", "error", "error", ".0e"
    for title, table, name, head, key, digits in (ladder, fewer_bits):
        if records := result["tables"].get(table):
            lines += ["", f"{title:36}{'ms':>9}{'TFLOP/s':>9}{head:>11}"]
        for each in records or ():
            numbers = (f"{three_digits(number):>9}" for number in (1e3 * each["seconds"], each["tflops"]))
            lines.append(f"{each[name]:36}{''.join(numbers)}{each[key]:>11{digits}}")
    if records := result["tables"].get("networks"):
        names = network_records.names_of(records)
        lines += ["", network_records.head(names, GRAPH)]
        lines += [network_records.line(each, names, GRAPH) for each in records]
    reasons = [f"not measured: {name}: {why}" for name, why in result["left_out"].items()]
    lines += [""] * bool(reasons) + [textwrap.shorten(each, WIDTH, placeholder=" …") for each in reasons]
    return "\n".join(lines)


def words_and_rows(folder: Path) -> tuple[str, list[list[str]]]:
    """Words, and a row for each results/card-MACHINE.json. If there is none: MISSING, and no rows."""
    results = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("card-*.json"))]
    if not results:
        return MISSING, []
    of_all = {each["row"]: each for result in results for each in result["tables"].get("networks", [])}
    heads = [*(f"`{name}`" for name in SHOWN), *(f"row {row}, µs" for row in sorted(of_all)), "measured"]
    rows = [["card", "copy, GB/s", "product, TFLOP/s", *heads]]
    for result in results:
        shares = {each["kernel"]: f"{100 * each['of_cublas']:.1f} %" for each in result["tables"].get("dense", [])}
        steps = {each["row"]: _step(each) for each in result["tables"].get("networks", [])}
        cells = [*(shares.get(name, "–") for name in SHOWN), *(steps.get(row, "–") for row in sorted(of_all))]
        versions = [f"{name} {result['versions'][name]}" for name in ("cuda", "driver") if name in result["versions"]]
        made = ", ".join([result["date"], *versions])
        rows.append([result["machine"], _copy(result), _product(result), *cells, made])
    which = "; ".join(f"row {row} is {case(of_all[row])}, {of_all[row]['optimizer']}" for row in sorted(of_all))
    said = (
        "The copy bandwidth and the matrix product (float32 without TF32) are the measured limits of each card. A "
        f"kernel of `dense_forward`, with batch, inputs and outputs {SIDE:,}, has its share of the speed of cuBLAS. "
        f"Rows of `networks.txt` have the µs of a training step by `train()`, and in brackets its speedup over {GRAPH}"
        f": {which}."
    )
    return said, rows


def case(row: dict[str, Any]) -> str:
    """A network of networks.txt, and its batch."""
    layers = row["layers"] if row["layers"].startswith("image") else row["layers"].replace(",", "-")
    return f"{layers}, batch {row['batch']}"


def _copy(result: dict[str, Any]) -> str:
    return f"{result['limits']['copy'] / 1e9:,.0f}"


def _product(result: dict[str, Any]) -> str:
    return three_digits(result["limits"]["matrix"] / 1e12)


def _step(record: dict[str, Any]) -> str:
    """Microseconds of our training step, and its speedup over PyTorch's."""
    if not (ours := network_records.best_of_ours(record)):
        return "–"
    speedup = network_records.ratio(record, GRAPH)
    micro = network_records.micro(record["contenders"][ours]["seconds_a_step"])
    return f"{micro} ({three_digits(speedup)}×)" if speedup else micro
