"""Recorded results of GPUs and of several devices, as text with machine and date; one line if there are none.

training_on_cpu()     results/devices_cpu.json, by `python -m benchmarks.devices_cpu`
exchange_on_gpus()    results/data_parallel.json, by `python -m benchmarks.data_parallel`: the exchange's share
devices()             results/devices_gpu.json, by `python -m benchmarks.devices_gpu`: ResNet-34 on one GPU and several
small_networks()      results/cpu.json and gpu.json, by `python -m benchmarks.cpu` and `benchmarks.gpu`
networks("dense")     results/networks-*.json, by `python -m benchmarks.networks`: dense networks on a GPU, or "images"
floors()              results/gpu.json: what limits an epoch in one kernel
credit_card()         results/gpu.json: 300 epochs of the credit-card data
launching()           results/recorded.json, by `python -m benchmarks.recorded`: steps launched from Python and recorded
convolutions()        results/gpu.json: those of ResNet-34 by the course's kernels, by cuDNN and by PyTorch
step()                results/resnet.json: a training step of ResNet-34 beside PyTorch's, and where the time goes
gradient()            results/resnet.json: how far its gradient is from PyTorch's
experiment_page()     the same runs on a page, experiment.html, beside the thesis's figures
experiment()          results/experiment, by `python -m benchmarks.experiment`: accuracies of long runs of ResNet-34
tensor_cores()        results/tensor_cores-*.json, by `python -m benchmarks.tensor_cores`: products of fewer bits

Measured on this machine's GPU or, without one, recorded by `python -m benchmarks.overheads`:
sums()                the mean squared error of 16.8 million numbers
weight_gradients()    2,048 × 2,048 weights, few samples and many
orders()              a dense layer, its weights stored in rows and in columns; by `benchmarks.waits`
counting()            confusion_matrix with atomics, by the number of cells
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from nnclassroom.figures import overheads
from nnclassroom.figures.waits import SIDE
from nnclassroom.formats import duration, times_as_fast
from nnclassroom.recorded_words import in_words
from nnclassroom.timing import network_records as timing

LIBRARIES = "cudnn", "PyTorch", "cupy"
STEP_WORDS = {  # of benchmarks/recorded.py
    "launched": "launched",
    "recorded": "graph",
    "naive, launched": "naive, launched",
    "naive, recorded": "naive, graph",
}
DETAILED = 12  # operations of a step that have lines of their own


def training_on_cpu() -> str:
    """Weak scaling of a dense network over processes: a line for each number of rows per process."""
    if not (found := overheads.recorded("devices_cpu")):
        return _missing("processes on a CPU", "devices_cpu")
    count = found["processes"]
    heads = ["rows each", "alone", f"{count} processes", "efficiency", "smallest and largest"]
    lines = []
    for rows, seconds in found["seconds"].items():
        alone = seconds["one process"]
        together = next(each for name, each in seconds.items() if name.startswith(f"{count} "))
        each = sorted(one / many for one, many in zip(alone, together, strict=True))
        times = [duration(statistics.median(some)) for some in (alone, together)]
        range_ = f"{each[0]:.2f} to {each[-1]:.2f}"
        lines.append([f"{int(rows):9,}", *times, f"{statistics.median(each):.2f}", range_])
    sizes = "-".join(map(str, found["sizes"]))
    about = f"{sizes}, a batch for each process; an all-reduce takes {duration(statistics.median(found['exchange']))}"
    return "\n".join([table(heads, lines), about, overheads.recorded_where("devices_cpu")])


def shared_steps() -> dict[int, dict[int, float]]:
    """Seconds of a recorded step of 784-192-10: number of GPUs -> rows of each -> seconds. One GPU is one of graphs."""
    steps: dict[int, dict[int, float]] = {}
    for each in (overheads.recorded("data_parallel") or {"records": []})["records"]:
        if each["contender"] != "one_kernel":
            steps.setdefault(each["devices"], {})[each["batch"] // each["devices"]] = each["seconds_a_step"]
    return steps


def exchange_on_gpus() -> str:
    """What a step takes longer on the most GPUs than on one with the rows of each: the share of the exchange."""
    if not (steps := shared_steps()):
        return not_recorded("python -m benchmarks.data_parallel")
    count = max(steps)
    lines = []
    for rows, together in sorted(steps[count].items()):
        if alone := steps[1].get(rows):
            times = [duration(seconds) for seconds in (alone, together)]
            lines.append([f"{rows:9,}", *times, f"{1 - alone / together:.1%}"])
    heads = ["rows each", "1 GPU", f"{count} GPUs", "share of the exchange"]
    return f"784-192-10\n{table(heads, lines)}\n{overheads.recorded_where('data_parallel')}"


def small_networks() -> str:
    """Microseconds a step of small networks: NumPy on one core; on a GPU kernel by kernel, and in one kernel."""
    cpu, gpu = overheads.recorded("cpu"), overheads.table("epochs")
    if not (cpu and gpu):
        return _missing("steps of small networks", "cpu, then benchmarks.gpu,")
    heads = ["network", "batch", "CPU, NumPy", "GPU, step by step", "GPU, one kernel"]
    lines = []
    for network, batch in dict.fromkeys((record["network"], record["batch"]) for record in gpu):
        rounds = cpu["seconds"].get(f"step {network}, batch {batch}", {}).get("nncourse numpy")
        times = {each["contender"]: each["seconds_a_step"] for each in gpu if each["network"] == network}
        on_gpu = [times.get(f"nncourse {kernel}") for kernel in ("steps", "one_kernel")]
        found = [statistics.median(rounds) if rounds else None, *on_gpu]
        cells = [duration(seconds) if seconds else "–" for seconds in found]
        lines.append([in_words(network), str(batch), *cells])
    where = (f"{name.upper()}: {overheads.recorded_where(name)}" for name in ("cpu", "gpu"))
    return "\n".join([table(heads, lines), *where])


def networks(kind: str, only: Sequence[int] = ()) -> str:
    """Training steps of networks beside PyTorch and JAX: of the "dense" ones, or of those for "images"; or a few rows.

    On the GPU of gpu.json; on another one if they were not recorded there.
    """
    usual, images = (overheads.recorded("gpu") or {}).get("machine"), kind == "images"
    results = {path.stem: overheads.recorded(path.stem) for path in sorted(overheads.RESULTS.glob("networks-*.json"))}
    for name, found in sorted(results.items(), key=lambda item: item[1]["machine"] != usual):
        listed = [row for row in found["rows"] if "seed" not in row]
        rows = [row for row in listed if row["layers"].startswith("image") == images]
        rows = [row for row in rows if not only or row["row"] in only]
        if found["device"] == "gpu" and rows:
            names, over = timing.names_of(rows), timing.reference(rows, "gpu")
            about = f"training by train() ({overheads.recorded_where(name)})"
            return "\n".join([about, timing.head(names, over), *(timing.line(row, names, over) for row in rows)])
    return _missing("training steps of networks", "networks")


def launching() -> str:
    """Microseconds of a step on a GPU, launched from Python and recorded, beside PyTorch's: contenders by cases."""
    if not (found := overheads.recorded("recorded")):
        return _missing("training steps with and without launches", "recorded")
    seconds: dict[str, dict[tuple[str, str], float]] = {}
    for each in found["records"]:
        case = each["network"], f"{each['batch']}, {each['optimizer']}"
        seconds.setdefault(each["contender"], {})[case] = each["seconds_a_step"]
    cases = list(dict.fromkeys(case for times in seconds.values() for case in times))
    lines = [
        [STEP_WORDS.get(name, name), *(duration(times[case]) if case in times else "–" for case in cases)]
        for name, times in seconds.items()
    ]
    networks, others = zip(*cases, strict=True)
    heads = ["network", *networks]
    return "\n".join([table(heads, [["batch, optimizer", *others], *lines]), overheads.recorded_where("recorded")])


FLOOR_WORDS = {"arithmetic": "arithmetic", "shared_memory": "shared memory", "barriers": "barriers"}
LIMIT_WORDS = {**FLOOR_WORDS, "latency": "latency"}


def floors() -> str:
    """What a step of one_kernel takes at least, by each of its floors and by all together, and what it takes."""
    records = [each for each in overheads.table("floors") if each["seconds_a_step"]]
    if not records:
        return _missing("the floors of one_kernel", "gpu")
    rows = []
    for each in records:
        blocks = f"{each['blocks']} × {each['threads']}"
        least = [each[floor] for floor in FLOOR_WORDS]
        whole = each["seconds_a_step"]
        limit = LIMIT_WORDS[each["limit"].replace(" ", "_")]
        cells = [*map(duration, (*least, whole)), f"{sum(least) / whole:.0%}", limit]
        rows.append([f"{each['network']}, {each['batch']}", blocks, *cells])
    heads = ["network, batch", "blocks × threads", *FLOOR_WORDS.values(), "a step", "floors / step", "limited by"]
    return f"{table(heads, rows)}\none_kernel: {overheads.recorded_where('gpu')}"


def credit_card() -> str:
    """The seconds of a whole training on the credit-card data by the fastest kernels, the first one as 1×."""
    if not (found := overheads.table("credit_card")):
        return _missing("the credit-card data", "gpu")
    about = f"{found[0]['epochs']} epochs of {found[0]['samples']:,} samples ({found[0]['data']})"
    rows = []
    for each in found:
        name = each["backend"] if "kernel" in each["backend"] else f"{each['backend']}, fused"
        rows.append([name, duration(each["seconds"]), times_as_fast(found[0]["seconds"] / each["seconds"])])
    return f"{table([about, '', ''], rows)}\n{overheads.recorded_where('gpu')}"


def sums() -> str:
    """Milliseconds of the mean squared error by each kernel, the fastest first."""
    if not (found := overheads.known("sums")):
        return _missing("sums by a GPU", "overheads")
    numbers = overheads.SUM["batch"] * overheads.SUM["n"]
    words = {"numpy": "numpy, its CPU"}
    lines = [f"{words.get(name, name):16} {duration(found[name]):>9}" for name in sorted(found, key=found.get)]
    return "\n".join([f"mse, {numbers:,} numbers", *lines, overheads.where()])


def weight_gradients() -> str:
    """Microseconds of kernels of weight_gradient: a line for a kernel, a column for a number of samples."""
    if not (found := overheads.known("weight_gradients")):
        return _missing("weight gradients on a GPU", "overheads")
    kernels, columns = (list(dict.fromkeys(each[key] for each in found)) for key in ("kernel", "samples"))
    times = {(each["kernel"], each["samples"]): duration(each["seconds"]) for each in found}
    lines = [f"{name:10}" + "".join(f"{times[name, n]:>16}" for n in columns) for name in kernels]
    side = overheads.SIDE
    heads = "".join(f"{head:>16}" for head in (f"{n:,} samples" for n in columns))
    return "\n".join([f"weight_gradient, {side:,} × {side:,} weights", f"{'':10}{heads}", *lines, overheads.where()])


def orders() -> str:
    """Milliseconds of a large dense layer: with W as it is, and with its weights stored the other way."""
    if not (found := overheads.known("orders")):
        return _missing("the two orders on a GPU", "waits")
    lines = [f"{name:5}{duration(seconds):>8}" for name, seconds in found.items()]
    lines[-1] += f", {times_as_fast(found['W'] / found['W_t'])} as fast"
    return "\n".join([f"a dense layer, {SIDE:,}³, with W and with W_t", *lines, overheads.where("waits")])


def counting() -> str:
    """Milliseconds of confusion_matrix (atomic): a line for each number of cells."""
    if not (found := overheads.known("counting")):
        return _missing("counting on a GPU", "overheads")
    spreads = [f"{each['common']:.0%} of them in one" if each["common"] else "evenly" for each in found]
    width = max(map(len, spreads))
    lines = []
    for each, spread in zip(found, spreads, strict=True):
        cells = each["classes"] ** 2
        lines.append(f"{each['classes']:3} classes, {cells:6,} cells, {spread:{width}} {duration(each['seconds']):>8}")
    return "\n".join([f"{overheads.COUNTED:,} samples", *lines, overheads.where()])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns separated by two blanks: the first left-aligned, the others right-aligned."""
    lines = [heads, *rows]
    widths = [max(len(line[number]) for line in lines) for number in range(len(heads))]
    padded = ([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in lines)
    return "\n".join("  ".join(cells).rstrip() for cells in padded)


def _missing(what: str, name: str) -> str:
    return f"{what}: not recorded yet (python -m benchmarks.{name} records it)"


# ---- ResNet-34


def not_recorded(command: str) -> str:
    return f"not recorded yet: run {command} on a machine with an NVIDIA GPU"


def convolutions() -> str:
    """For layers of ResNet-34, each pass: `naive`, the course's fastest kernel, cuDNN's and PyTorch's."""
    records = [each for each in overheads.table("convolutions") if "channels" in each["layer"]]
    if not records:
        return not_recorded("python -m benchmarks.gpu")
    seconds: dict[tuple[str, str], dict[str, float]] = {}
    for each in records:
        seconds.setdefault((each["layer"], each["pass"]), {})[each["kernel"]] = each["seconds"]
    rows = []
    for (layer, which), times in seconds.items():
        own = min((name for name in times if name not in LIBRARIES), key=times.__getitem__)
        naive, ours, *others = (duration(times[k]) if k in times else "–" for k in ("naive", own, "cudnn", "PyTorch"))
        name = f"{overheads.LAYER_WORDS.get(layer, layer)}, {in_words(which)}"
        rows.append([name, naive, f"{own} {ours}", *others])
    heads = ["", "naive", "our fastest", "cuDNN", "PyTorch"]
    about = f"batch {records[0]['batch']}, 3 × 3, float32 ({overheads.recorded_where('gpu', 'convolutions')})"
    return f"{about}\n{table(heads, rows)}"


def step() -> str:
    """Milliseconds and memory of each contender's step, then the time of our step by operation, the longest first."""
    found = overheads.recorded("resnet")
    if not found:
        return not_recorded("python -m benchmarks.resnet")
    rows = []
    for each in found["steps"]:
        seconds, held = each["seconds_a_step"], found["memory"].get(each["contender"])
        rate = f"{found['batch'] / seconds:,.0f}"
        rows.append([in_words(each["contender"]), _ms(seconds), rate, f"{held / 1e9:.1f} GB" if held else ""])
    about = f"ResNet-34, batch {found['batch']}, float32 ({overheads.recorded_where('resnet')})"
    heads = ["", "a step", "images/s", "memory"]
    text = f"{about}\n{table(heads, rows)}"
    if not found["operations"]:
        return text
    first, others = found["operations"][:DETAILED], found["operations"][DETAILED:]
    parts = [(in_words(each["operation"]), each["calls"], each["seconds"]) for each in first]
    for name, some in ((f"{len(others)} others", others), ("together", found["operations"])):
        if some:
            parts.append((name, sum(each["calls"] or 0 for each in some), sum(each["seconds"] for each in some)))
    whole = parts[-1][2]
    lines = [[name, str(calls or ""), _ms(seconds), f"{seconds / whole:.1%}"] for name, calls, seconds in parts]
    heads = ["our step", "calls", "time", "share"]
    return f"{text}\n\n{table(heads, lines)}"


def gradient() -> str:
    """How far the gradient of ResNet-34 is from PyTorch's, for the same weights and images."""
    found = overheads.recorded("resnet")
    if not found or "difference" not in found:
        return not_recorded("python -m benchmarks.resnet")
    apart = f"with the same weights the two gradients differ by {found['difference']:.0e} of their norm"
    return f"float32, {found['batch']} images: {apart} ({overheads.recorded_where('resnet')})"


def tensor_cores() -> str:
    """TFLOP/s and errors of products with factors of fewer bits, by size, and ResNet-34's steps: for each GPU."""
    texts = []
    for path in sorted(overheads.RESULTS.glob("tensor_cores-*.json")):
        found = overheads.recorded(path.stem)
        columns: list[tuple[int, ...]] = []
        cells: dict[str, list[str]] = {}
        errors: dict[str, list[float]] = {}
        for each in found["products"]:
            sizes = each["batch"], each["n_in"], each["n_out"]
            columns += [sizes] if sizes not in columns else []
            cells.setdefault(each["contender"], []).append(f"{each['tflops']:.3g}")
            errors.setdefault(each["contender"], []).append(each["error"])
        names = list(map(of_sizes, columns))
        lines = [[in_words(name), *of, f"{max(errors[name]):.0e}"] for name, of in cells.items()]
        about = f"Z = A Wᵀ + b, TFLOP/s ({overheads.recorded_where(path.stem)})"
        heads = ["", *names, "largest error"]
        texts.append(f"{about}\n{table(heads, lines)}")
        if steps := found["steps"]:
            lines = [[each["factors"], _ms(each["seconds_a_step"]), f"{each['gradient']:.0e}"] for each in steps]
            heads = [f"ResNet-34 by PyTorch, batch {steps[0]['batch']}", "a step", "gradient off by"]
            texts[-1] += f"\n\n{table(heads, lines)}"
    return "\n\n".join(texts) or not_recorded("python -m benchmarks.tensor_cores")


def of_sizes(sizes: tuple[int, ...]) -> str:
    """The sizes of a product at the head of a column: 1,024³ or 4480×4608×512."""
    return f"{sizes[0]:,}³" if len(set(sizes)) == 1 else "×".join(map(str, sizes))


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def devices() -> str:
    """Images a second and joules of one GPU (the mean over single GPUs) and of several; ratios over the same GPUs.

    "alone" are the joules of the same GPUs one by one, their mean.
    """
    found = overheads.recorded("devices_gpu")
    if not found:
        return not_recorded("python -m benchmarks.devices_gpu")
    rows = []
    for library in dict.fromkeys(each["library"] for each in found["scaling"]):
        mine = [each for each in found["scaling"] if each["library"] == library]
        alone = [each for each in mine if len(each["devices"]) == 1]
        rows.append(_devices_row(library, 1, _mean(alone), _mean(alone)))
        for each in mine:
            if len(each["devices"]) > 1:
                same = [one for one in alone if one["devices"][0] in each["devices"]]
                rows.append(_devices_row(library, len(each["devices"]), each, _mean(same)))
    heads = ["", "images/s", "speedup", "efficiency", "J an epoch", "alone", "energy", "EDP"]
    about = f"ResNet-{found['setting']['depth']}, {found['setting']['batch']} images a GPU, float32"
    notes = [f"{what} was not run: {why}" for what, why in found["left_out"].items()]
    notes += [in_words(each) for each in found["not_measured"]]
    return "\n".join([f"{about} ({overheads.recorded_where('devices_gpu')})", table(heads, rows), *notes])


def _mean(records: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The mean of each number that all records have."""
    names = [name for name, value in records[0].items() if isinstance(value, int | float)]
    common = [name for name in names if all(name in each for each in records)]
    return {name: sum(each[name] for each in records) / len(records) for name in common}


def _devices_row(library: str, count: int, each: dict[str, Any], alone: dict[str, Any]) -> list[str]:
    joules = [f"{some['joules']:,.0f}" if "joules" in some else "–" for some in (each, alone)]
    ratios = [f"{each[key]:.2f}" if key in each else "–" for key in ("joules_over_alone", "edp_over_alone")]
    name = f"{library}, {count} GPU{'s' * (count > 1)}"
    speed = [f"{each['images_a_second']:,.0f}", f"{each['over_alone']:.2f}", f"{each['efficiency']:.3f}"]
    return [name, *speed, *joules, *ratios]


def _range(shares: Sequence[float]) -> str:
    """The smallest and the largest of some runs, or the only one."""
    low, high = min(shares), max(shares)
    return f"{low:.1%} to {high:.1%}" if len(shares) > 1 else f"{low:.1%}"


def experiment() -> str:
    """The recorded long runs of ResNet-34 by `nncourse experiment`: a line for each number of devices and batch."""
    runs = [json.loads(path.read_text("utf-8")) for path in sorted(overheads.RESULTS.glob("experiment/runs/*.json"))]
    kinds: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for run in runs:
        if run["kind"] == "gpu" and not run["partial"] and run["accuracies"]:
            kinds.setdefault((run["epochs"], run["count"], run["batch"]), []).append(run)
    if not kinds:
        return not_recorded("python -m benchmarks.experiment")
    lines = []
    for (epochs, count, batch), some in sorted(kinds.items()):
        early = [run["accuracies"][: epochs // 10][-1] for run in some]
        seconds = statistics.median(statistics.median(run["seconds"]["train"]) for run in some)
        means = [_range(each) for each in (early, [run["accuracy"] for run in some])]
        name = f"{count} GPU{'s' * (count > 1)}, {batch // count} images each"
        lines.append([name, str(batch), str(epochs), str(len(some)), f"{seconds:.2f} s", *means])
    machines = dict.fromkeys(run["machine"].split(",")[0] for some in kinds.values() for run in some)
    days = [run["date"][:10] for some in kinds.values() for run in some]
    heads = ["ResNet-34", "batch", "epochs", "runs", "an epoch", "right, after a tenth", "at the end"]
    return f"{table(heads, lines)}\nrecorded, {', '.join(machines)}, {max(days)}"


def experiment_page() -> Any:
    """Write experiment.html by `nncourse experiment recorded`; a link to it."""
    from IPython.display import HTML

    command = [sys.executable, "-m", "nnclassroom", "experiment", "recorded", "--out", "."]
    subprocess.run(command, check=True, capture_output=True)
    return HTML('<a href="experiment.html" target="_blank">experiment.html</a>')
