"""Make the tables of README.md and docs/ from the results: python -m benchmarks.tables [--check]."""

import json
import re
import statistics
import sys
from math import ceil
from pathlib import Path

from benchmarks import (
    attention,
    card_tables,
    counts,
    device_tables,
    devices_cpu,
    digits,
    network_tables,
    sanitizers,
    tensor_core_tables,
)
from benchmarks.saved import RESULTS
from nnexperiment.trainers.training import CHECKED

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "speed.md", ROOT / "docs" / "confirmed.md")
BASE = "C"  # the handout's base, a plain C program
REFERENCES = ("JAX scan", "PyTorch compile + graph", "PyTorch eager")  # the reference is the first that ran
MAKERS = {
    "attention": attention.words_and_rows,
    "counts": counts.words_and_rows,
    "sanitizers": sanitizers.words_and_rows,
    **device_tables.MAKERS,
}


def table(name: str, results: Path = RESULTS) -> str:
    """A results file as Markdown: one table of contenders from `seconds`, or one table per part from `tables`."""
    if name == "networks":
        return network_table(results)
    if name == "tensor_cores":
        return "\n\n".join(map(tensor_core_table, tensor_core_tables.read(results)))
    if name == "cards":
        said, rows = card_tables.words_and_rows(results)
        return "\n".join([said, "", *_rows(rows[0], rows[1:])]) if rows else said
    if (results / name).is_dir():
        result = device_tables.read_experiment(results / name)
    else:
        result = json.loads((results / f"{name}.json").read_text("utf-8"))
    if name == "recorded":
        return recorded_table(result)
    if "exchange" in result:
        return devices_cpu.table(result)
    if make := MAKERS.get(name):
        said, rows = make(result)
        return "\n".join([said, "", *_rows(rows[0], rows[1:]), "", f"{_machine(result)}."])
    return gpu_tables(result) if "tables" in result else call_table(result)


def network_table(results: Path) -> str:
    """The tables of all machines that networks were timed on."""
    found = []
    for result in network_tables.read(results):
        for threads, rows, drawn in network_tables.parts(result):
            days = dict.fromkeys(sorted(row["date"] for row in [*rows, *drawn]))
            made = _made(result | {"date": " to ".join(list(days)[:: max(1, len(days) - 1)])})
            machine = "; ".join(filter(None, (result["machine"], threads, made)))
            table = _rows(*network_tables.heads_and_cells(rows, result["device"])) if rows else []
            found.append("\n".join([*table, "", f"{machine}. {network_tables.summaries(rows, drawn)}"]).strip())
    return "\n\n".join(found) or network_tables.MISSING


def tensor_core_table(result: dict) -> str:
    """The table of one machine's products on tensor cores."""
    said, rows = tensor_core_tables.words_and_rows(result)
    why = [f"{name} ({reason})" for name, reason in result["left_out"].items()]
    machine = [f"{result['machine']}; {_made(result)}.", *(f"Not measured: {each}." for each in why)]
    return "\n".join([said, "", *_rows(rows[0], rows[1:]), "", " ".join(machine)])


def recorded_table(result: dict) -> str:
    """Training steps on a GPU, launched from Python and recorded: speedups over PyTorch."""
    medians: dict[str, dict[str, float]] = {}
    for each in result["records"]:
        medians.setdefault(f"{_network(each)}, {each['optimizer']}", {})[each["contender"]] = each["seconds_a_step"]
    said = f"{_machine(result)}. In brackets: speedup over PyTorch eager."
    return "\n".join([*_contenders("µs a step", medians, ("PyTorch eager",)), "", said])


def call_table(result: dict) -> str:
    """The tables of a CPU run, medians over the rounds: speedups over PyTorch, and over the plain C program."""
    medians = {
        case: {contender: statistics.median(values) for contender, values in times.items()}
        for case, times in result["seconds"].items()
    }
    threads = ", one thread" if result["threads"] else ""
    said = f"{result['machine']}{threads}; {_made(result)}. In brackets: speedup over PyTorch."
    in_c = [name for times in medians.values() for name in times if name.split(",")[0] == BASE]
    others = {case: {name: times[name] for name in times if name not in in_c} for case, times in medians.items()}
    lines = [*_contenders("µs a call", others, ("PyTorch eager",)), "", said]
    training = {case: times for case, times in medians.items() if BASE in times}
    return "\n".join([*lines, "", *_over_base(training, "One thread.")] if training else lines)


def gpu_tables(result: dict) -> str:
    """The tables of a run of benchmarks.gpu, as far as they were measured, each with a description."""
    found = result["tables"]
    makers = {
        "epochs": _epochs,
        "base": _base,
        "floors": lambda records: _floors(records, found.get("parts", [])),
        "dense": _dense,
        "mnist": _mnist,
        "credit_card": _credit_card,
        "digits": _digits,
        "accuracies": _accuracies,
        "convolutions": _convolutions,
    }
    of_digits = [record for record in found.get("epochs", []) if record["network"] == digits.NAME]
    dense = [record for record in found.get("epochs", []) if record["network"] != digits.NAME]
    found = found | {"epochs": dense, "digits": of_digits}
    there = [make(found[name]) for name, make in makers.items() if found.get(name)]
    said = f"{result['machine']}; {result['cpu']}; {_made(result)}."
    return "\n\n".join(["\n".join(lines) for lines in there] + [" ".join([said, *_left_out(result["left_out"])])])


def _left_out(reasons: dict[str, str]) -> list[str]:
    """A sentence for each contender (with its networks) or part that was left out, with the reason."""
    networks: dict[tuple[str, str], list[str]] = {}
    for key, why in reasons.items():
        *case, name = key.split(" / ")
        networks.setdefault((name, why), []).extend(text.split(",")[0] for text in case)
    return [
        f"Not measured: {name}{' for ' * bool(cases)}{', '.join(dict.fromkeys(cases))} ({why})."
        for (name, why), cases in networks.items()
    ]


def _machine(result: dict) -> str:
    """The machine, its CPU if that is named beside it, the day and the versions."""
    return "; ".join(filter(None, (result["machine"], result.get("cpu"), _made(result))))


def _made(result: dict) -> str:
    """The day, other days of parts that were measured before, and the versions."""
    versions = ", ".join(f"{key} {value}" for key, value in result["versions"].items() if key != "nncourse")
    earlier: dict[str, list[str]] = {}
    for part, date in result.get("dates", {}).items():
        if date != result["date"]:
            earlier.setdefault(date, []).append(part)
    before = "".join(f" ({', '.join(parts)}: {date})" for date, parts in earlier.items())
    return f"{result['date']}{before}; {versions}"


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
            ratio = f" ({factor(times[reference] / times[contender])})" if reference and contender != reference else ""
            cells.append(_micro(times[contender]) + ratio)
        rows.append([case, *cells])
    return _rows([title, *contenders], rows)


def _micro(seconds: float) -> str:
    """Microseconds."""
    return _three_digits(seconds * 1e6)


def factor(value: float) -> str:
    """Two digits, without a power of ten: 0.012×, 4.7×, 690×."""
    return f"{float(f'{value:.2g}'):,.15g}×"


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
        f"Training, an epoch of {records[0]['samples']:,} samples stored on the GPU; nncourse's columns are kernels "
        "of `dense_sgd_epoch`."
    ) + (f" In brackets: speedup over {reference}." if reference else "")
    return [said, "", *_contenders("µs a step", medians, (reference,))]


def _base(records: list[dict]) -> list[str]:
    medians: dict[str, dict[str, float]] = {}
    for record in records:
        medians.setdefault(_network(record), {})[record["contender"]] = record["seconds_a_step"]
    how = (
        f"Batches of {records[0]['samples']:,} samples; on one thread of the CPU, or on the GPU, where the samples lie."
    )
    return _over_base(medians, how)


def _over_base(medians: dict[str, dict[str, float]], how: str) -> list[str]:
    """A row per contender, a column per case: its time, and its speedup over the plain C program."""
    said = (
        "The handout's base: training by a plain C program (`fused_epochs/dense_plain.c`), in double or in "
        f"float, `gcc -O3`; fast: `-march=native -ffast-math`. {how} In brackets: speedup over C in double."
    )
    rows = []
    for name in dict.fromkeys(name for times in medians.values() for name in times):
        cells = []
        for times in medians.values():
            known = BASE in times and name in times
            ratio = f" ({factor(times[BASE] / times[name])})" if known and name != BASE else ""
            cells.append(_micro(times[name]) + ratio if name in times else "–")
        rows.append([name, *cells])
    return [said, "", *_rows(["µs a step", *medians], rows)]


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


def _digits(records: list[dict]) -> list[str]:
    first, ours = records[0], "nncourse one_kernel"
    steps = ceil(first["samples"] / first["batch"])
    fastest = next((record["seconds_a_step"] for record in records if record["contender"] == ours), None)
    rows = []
    for r in records:
        longer = f"{r['seconds_a_step'] / fastest:,.3g} ×" if fastest and r["contender"] != ours else "–"
        right = _percent(r["accuracy"], 2) if r["accuracy"] is not None else "–"
        name = r["contender"] + "¹" * (r["steps"] < steps)
        times = _micro(r["seconds_a_step"]), _three_digits(r["seconds_an_epoch"] * 1e3)
        rows.append([name, *times, longer, _power_of_ten(r["difference"]), right])
    part = min(r["steps"] for r in records)
    last = first["samples"] % first["batch"]
    each = f"{steps:,} steps of {first['batch']}" + (f", the last of {last}" if last else "")
    said = (
        f"The digits CNN, `{digits.WORDS}`, by Adam: an epoch of {first['samples']:,} samples stored on the GPU, "
        f"{each}; nncourse's are kernels of `convolutional_adam_epoch`. The difference is the largest of a parameter "
        f"from a float64 reference after {CHECKED} steps, the accuracy that on the test set after the epoch."
    ) + (f" ¹ Timed for {part} steps; the epoch is calculated." if part < steps else "")
    head = ["contender", "µs a step", "ms an epoch", "of one_kernel", "difference", "accuracy"]
    return [said, "", *_rows(head, rows)]


def _power_of_ten(value: float) -> str:
    """One digit: 4 · 10⁻⁷."""
    digit, power = f"{value:.0e}".split("e")
    return f"{digit} · 10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _accuracies(records: list[dict]) -> list[str]:
    """A sentence for each training: mean and smallest accuracy over the seeds, and the longest time."""
    trainings: dict[tuple, list[dict]] = {}
    for record in records:
        trainings.setdefault((record["epochs"], record["rate"], record["schedule"]), []).append(record)
    sentences = []
    for (epochs, rate, schedule), each in trainings.items():
        accuracies = [record["accuracy"] for record in each]
        kind = "" if schedule == "constant" else f", schedule `{schedule}`"
        sentences.append(
            f"after {epochs} epoch{'s' * (epochs > 1)} at rate {rate:g}{kind} "
            f"{_percent(statistics.mean(accuracies), 2)} of the test set right, at least "
            f"{_percent(min(accuracies), 2)}, {_three_digits(max(record['seconds'] for record in each))} s at most"
        )
    seeds = len({record["seed"] for record in records})
    r = records[0]
    return [
        f"MNIST, the digits CNN, {r['samples']:,} samples in batches of {digits.BATCH} by `{r['kernel']}`, pixels "
        f"standardised, {seeds} seeds: {'; '.join(sentences)}."
    ]


def _convolutions(records: list[dict]) -> list[str]:
    """A row for each kernel of each pass, a column for each layer."""
    layers = list(dict.fromkeys(record["layer"] for record in records))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for r in records:
        share = f" ({_percent(r['of_pytorch'], 0)})" if r["of_pytorch"] and r["kernel"] != "PyTorch" else ""
        text = f"{_micro(r['seconds'])}; {_three_digits(r['tflops'])}{share}"
        cells.setdefault((r["pass"], r["kernel"]), {})[r["layer"]] = text
    rows = [[f"{each}, {kernel}", *(of.get(layer, "–") for layer in layers)] for (each, kernel), of in cells.items()]
    said = (
        "Convolutions of a ResNet-34 (3 × 3, batch 128) and of the digits CNN (2 × 2, batch 32), float32 without TF32: "
        "microseconds; TFLOP/s; in brackets the share of the speed of PyTorch, which calls cuDNN. "
        "In the digits CNN's layers most of the time of fast kernels is their launch from Python."
    )
    return [said, "", *_rows(["pass, kernel", *layers], rows)]


def _percent(share: float, decimals: int = 1) -> str:
    return f"{100 * share:.{decimals}f} %"


def with_tables(text: str, results: Path = RESULTS) -> str:
    """`text` with the tables between <!-- table NAME --> and <!-- end --> replaced by new ones."""

    def fill(match: re.Match) -> str:
        return f"<!-- table {match[1]} -->\n{table(match[1], results)}\n<!-- end -->"

    return re.sub(r"<!-- table (\w+) -->.*?<!-- end -->", fill, text, flags=re.DOTALL)


def main() -> int:
    behind = False
    for page in PAGES:
        old = page.read_text("utf-8")
        new = with_tables(old)
        behind = behind or old != new
        if "--check" not in sys.argv:
            page.write_text(new, "utf-8")
    return int(behind and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
