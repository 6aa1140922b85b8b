"""Make README.md's tables from the results files: python -m benchmarks.tables (--check only compares)."""

import json
import re
import statistics
import sys
from pathlib import Path

from benchmarks.saved import RESULTS

ROOT = Path(__file__).resolve().parent.parent
REFERENCES = ("JAX scan", "PyTorch compile + graph", "PyTorch eager")  # the reference is the first that ran


def table(name: str, results: Path = RESULTS) -> str:
    """A results file as Markdown: one table of contenders from `seconds`, or one table per part from `tables`."""
    result = json.loads((results / f"{name}.json").read_text("utf-8"))
    return gpu_tables(result) if "tables" in result else call_table(result)


def call_table(result: dict) -> str:
    """The table of a CPU run: medians over the rounds, and speedups over PyTorch."""
    medians = {
        case: {contender: statistics.median(values) for contender, values in times.items()}
        for case, times in result["seconds"].items()
    }
    threads = ", one thread" if result["threads"] else ""
    said = f"{result['machine']}{threads}; {_made(result)}. In brackets: times PyTorch's speed."
    return "\n".join([*_contenders("µs a call", medians, ("PyTorch eager",)), "", said])


def gpu_tables(result: dict) -> str:
    """The tables of a run of benchmarks.gpu, as far as they were measured, each with a description."""
    makers = {
        "epochs": _epochs,
        "floors": lambda records: _floors(records, result["tables"].get("parts", [])),
        "dense": _dense,
        "mnist": _mnist,
        "credit_card": _credit_card,
    }
    there = [make(result["tables"][name]) for name, make in makers.items() if result["tables"].get(name)]
    said = f"{result['machine']}; {result['cpu']}; {_made(result)}."
    return "\n\n".join(["\n".join(lines) for lines in there] + [" ".join([said, *_left_out(result["left_out"])])])


def _left_out(reasons: dict[str, str]) -> list[str]:
    """A sentence for each contender (with its networks) or part that was left out, with the reason."""
    networks: dict[tuple[str, str], list[str]] = {}
    for key, why in reasons.items():
        *case, name = key.split(" / ")
        networks.setdefault((name, why), []).extend(text.split(",")[0] for text in case)
    return [
        f"Not measured: {name}{' for ' * bool(cases)}{', '.join(cases)} ({why})."
        for (name, why), cases in networks.items()
    ]


def _made(result: dict) -> str:
    versions = ", ".join(f"{key} {value}" for key, value in result["versions"].items() if key != "nncourse")
    return f"{result['date']}; {versions}"


def _rows(head: list[str], rows: list[list[str]]) -> list[str]:
    first, *others = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    return [first, "|" + "---|" * len(head), *others]


def _contenders(title: str, medians: dict[str, dict[str, float]], references: tuple[str, ...]) -> list[str]:
    """A row per case, a column per contender: its time, and its speedup over the first of `references` that ran."""
    contenders = list(dict.fromkeys(contender for times in medians.values() for contender in times))
    rows = []
    for case, times in medians.items():
        reference = next((name for name in references if name in times), None)
        cells = []
        for contender in contenders:
            if contender not in times:
                cells.append("–")
                continue
            ratio = f" ({times[reference] / times[contender]:.2g}×)" if reference and contender != reference else ""
            cells.append(_micro(times[contender]) + ratio)
        rows.append([case, *cells])
    return _rows([title, *contenders], rows)


def _micro(seconds: float) -> str:
    """Microseconds."""
    return _three_digits(seconds * 1e6)


def _three_digits(value: float) -> str:
    """Three significant digits, but no rounding before the decimal point, and at most three decimals."""
    decimals = next((d for d, least in enumerate((100, 10, 1)) if value >= least), 3)
    return f"{value:,.{decimals}f}"


def _network(record: dict) -> str:
    return f"{record['network']}, batch {record['batch']}"


def _epochs(records: list[dict]) -> list[str]:
    medians: dict[str, dict[str, float]] = {}
    for record in records:
        medians.setdefault(_network(record), {})[record["contender"]] = record["seconds_a_step"]
    there = {record["contender"] for record in records}
    reference = next((name for name in REFERENCES if name in there), "")
    said = (
        f"Training, an epoch of {records[0]['samples']:,} samples that lie on the GPU; nncourse's columns are kernels "
        "of `dense_sgd_epoch`."
    ) + (f" In brackets: times the speed of {reference}." if reference else "")
    return [said, "", *_contenders("µs a step", medians, (reference,))]


def _floors(records: list[dict], parts: list[dict]) -> list[str]:
    rows = []
    for r in records:
        measured = _micro(r["seconds_a_step"]) if r["seconds_a_step"] else "–"
        floors = [_micro(r[name]) for name in ("arithmetic", "shared_memory", "barriers")]
        meeting = f"{r['blocks']} × {r['threads']}" + ("" if r["meeting"] == "alone" else f", {r['meeting']}")
        rows.append([_network(r), meeting, measured, *floors, r["limit"] or "–"])
    head = ["µs a step", "blocks × threads", "one_kernel", "arithmetic", "shared memory", "barriers", "limited by"]
    said = (
        "The floors of `one_kernel`: a step's FLOPs over the rate of the multiprocessors used, its bytes over the "
        "bandwidth of shared memory, its barriers times their measured latency. Limited by latency: the three together "
        "explain less than half."
    )
    measured = "; ".join(f"{part['what']} {_amount(part['value'], part['unit'])}" for part in parts)
    return [f"{said} Measured: {measured}.", "", *_rows(head, rows)]


def _amount(value: float, unit: str) -> str:
    """A latency in µs, or a rate in 10⁹ (G) of its unit."""
    return f"{_micro(value)} µs" if unit == "s" else f"{value / 1e9:,.0f} G{unit}"


def _dense(records: list[dict]) -> list[str]:
    side = records[0]["side"]
    rows = [
        [
            r["kernel"],
            _three_digits(r["seconds"] * 1e3),
            _three_digits(r["tflops"]),
            _percent(r["of_cublas"]),
            _percent(r["of_limit"]),
        ]
        for r in records
    ]
    head = ["kernel", "ms", "TFLOP/s", "of cuBLAS", "of the limit"]
    said = (
        f"dense_forward with batch, inputs and outputs {side:,}, float32 without TF32. cuBLAS computes the product "
        "alone; the limit is the best matrix product measured on this machine."
    )
    return [said, "", *_rows(head, rows)]


def _mnist(records: list[dict]) -> list[str]:
    accuracies, seconds = ([r[key] for r in records] for key in ("accuracy", "seconds"))
    r = records[0]
    return [
        f"MNIST, 784-30-10, {r['epochs']} epochs of {r['samples']:,} samples in batches of 10 by `{r['kernel']}`, "
        f"rate {r['rate']:g}, {len(records)} seeds: {_percent(statistics.mean(accuracies), 2)} of the test set right, "
        f"at least {_percent(min(accuracies), 2)}; {max(seconds):.2f} s of training at most."
    ]


def _credit_card(records: list[dict]) -> list[str]:
    r = records[0]
    times = ", ".join(f"{each['backend']} {_three_digits(each['seconds'])} s" for each in records)
    return [
        f"30-60-10-1 on {r['data']}, {r['samples']:,} samples, {r['epochs']} epochs in batches of 10, the whole "
        f"training (one thread of the CPU): {times}."
    ]


def _percent(share: float, decimals: int = 1) -> str:
    return f"{100 * share:.{decimals}f} %"


def with_tables(text: str, results: Path = RESULTS) -> str:
    """`text` with the tables between <!-- table NAME --> and <!-- end --> replaced by new ones."""

    def fill(match: re.Match) -> str:
        return f"<!-- table {match[1]} -->\n{table(match[1], results)}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> int:
    readme = ROOT / "README.md"
    old = readme.read_text("utf-8")
    new = with_tables(old)
    if "--check" in sys.argv:
        return int(old != new)
    readme.write_text(new, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
