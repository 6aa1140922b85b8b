"""Make docs/speed.md's tables of products on tensor cores from results/tensor_cores-MACHINE.json. Not a command."""

import json
from pathlib import Path


def read(folder: Path) -> list[dict]:
    """The results of all machines."""
    return [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("tensor_cores-*.json"))]


def words_and_rows(result: dict) -> tuple[str, list[list[str]]]:
    """Words, and a row for each contender: TFLOP/s and errors by size."""
    columns = list(dict.fromkeys(_sizes(record) for record in result["products"]))
    cells: dict[str, dict[str, str]] = {}
    best = {(each["contender"], _sizes(each)): each["tflops"] for each in result["products"]}
    for each in result["products"]:
        beside = best.get((f"PyTorch {each['factors']}", _sizes(each)))
        share = f"{each['tflops'] / beside:.0%}, " if beside and each["contender"].startswith("nncourse") else ""
        text = f"{each['tflops']:,.3g} ({share.replace('%', ' %')}{each['error']:.0e})"
        cells.setdefault(each["contender"], {})[_sizes(each)] = text
    rows = [[name, *(of.get(sizes, "–") for sizes in columns)] for name, of in cells.items()]
    said = (
        "Z = A Wᵀ + b with factors of fewer bits on tensor cores, and sums in float32: TFLOP/s by batch × inputs × "
        "outputs, and in brackets the largest error of an element over the root mean square of all. Before it the "
        "course's kernels have their share of PyTorch's rate with the same factors. PyTorch calls cuBLAS; for bf16 "
        "and fp16 A, W, b and Z are 16 bits wide. The last column is the largest product of ResNet-34."
    )
    if steps := result["steps"]:
        times = ", ".join(f"{each['factors']} {1e3 * each['seconds_a_step']:.1f} ms" for each in steps)
        errors = " and ".join(f"{each['gradient']:.0e} ({each['factors']})" for each in steps[1:])
        said += (
            f" A training step of ResNet-34 by PyTorch, {steps[0]['batch']} images: {times}, bf16 by autocast; its "
            f"gradient is off by {errors} of its norm."
        )
    return said, [["TFLOP/s (error)", *columns], *rows]


def _sizes(record: dict) -> str:
    sizes = record["batch"], record["n_in"], record["n_out"]
    return f"{sizes[0]:,}³" if len(set(sizes)) == 1 else " × ".join(f"{size:,}" for size in sizes)
