"""Results of GPUs and of several devices, as lines to print: machine and date with them; one line where there are none.

training_on_cpu()     results/devices_cpu.json, by `python -m benchmarks.devices_cpu`
training_on_gpus()    results/devices_gpu.json, by `python -m benchmarks.devices_gpu`
small_networks()      results/cpu.json and gpu.json, by `python -m benchmarks.cpu` and `benchmarks.gpu`
order_of_threads()    results/gpu.json

These are measured on this machine's GPU, and without one as `python -m benchmarks.overheads` recorded them:
sums()                the mean squared error of 16.8 million numbers
weight_gradients()    2,048 × 2,048 weights, few samples and many
counting()            confusion_matrix with atomics, by the number of cells
"""

import statistics

from nnclassroom.figures import overheads, recorded_seconds
from nnclassroom.figures.nb14_recorded import table
from nnclassroom.formats import duration
from nnclassroom.recorded_words import in_words


def training_on_cpu() -> list[str]:
    """Weak scaling of a dense network over processes: a line for each number of rows a process has in a batch."""
    if not (found := overheads.recorded("devices_cpu")):
        return [_missing("processes on a CPU", "devices_cpu")]
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
    return [*table(heads, lines).splitlines(), about, _where(found)]


def training_on_gpus() -> list[str]:
    """ResNet on one GPU and on several: a line for each library and choice of devices."""
    if not (found := overheads.recorded("devices_gpu")):
        return [_missing("ResNet-34 on several GPUs", "devices_gpu")]
    setting = found["setting"]
    heads = ["", "images/s", "speedup", "efficiency", "energy", "above idle", "of all", "EDP", "of all"]
    lines = []
    keys = [f"{name}_over_alone" for name in ("joules", "joules_above_idle", "joules_of_all", "edp", "edp_of_all")]
    for each in found["scaling"]:
        name = f"{each['library']} on {', '.join(map(str, each['devices']))}"
        cells = [f"{each['images_a_second']:,.0f}", f"{each['over_alone']:.3f}", f"{each['efficiency']:.3f}"]
        cells += [f"{each[key]:.3f}" if key in each else "–" for key in keys]
        lines.append([name, *cells])
    about = f"ResNet-{setting['depth']}, {setting['batch']} images a GPU; speedup, energy and EDP over one GPU alone"
    missing = [in_words(each) for each in found.get("not_measured", [])]
    return [*table(heads, lines).splitlines(), about, *missing, _where(found)]


def small_networks() -> list[str]:
    """Microseconds a step of small networks: NumPy on one core; on a GPU kernel by kernel, and in one kernel."""
    cpu, gpu = overheads.recorded("cpu"), overheads.table("epochs")
    if not (cpu and gpu):
        return [_missing("steps of small networks", "cpu, then benchmarks.gpu,")]
    heads = ["network", "batch", "CPU, NumPy", "GPU, step by step", "GPU, one kernel"]
    lines = []
    for network, batch in dict.fromkeys((record["network"], record["batch"]) for record in gpu):
        rounds = cpu["seconds"].get(f"step {network}, batch {batch}", {}).get("nncourse numpy")
        times = {each["contender"]: each["seconds_a_step"] for each in gpu if each["network"] == network}
        on_gpu = [times.get(f"nncourse {kernel}") for kernel in ("steps", "one_kernel")]
        found = [statistics.median(rounds) if rounds else None, *on_gpu]
        cells = [duration(seconds) if seconds else "–" for seconds in found]
        lines.append([in_words(network), str(batch), *cells])
    return [*table(heads, lines).splitlines(), f"CPU: {_where(cpu)}", f"GPU: {_where(overheads.recorded('gpu'))}"]


def order_of_threads() -> list[str]:
    """Times of dense_forward where neighbouring threads read different rows of W, side by side, and in tiles."""
    ideas = {
        "naive": "neighbours in different rows of W",
        "coalesced": "neighbours side by side",
        "tiled": "tiles in shared memory",
    }
    times = {(each["kernel"], each["side"]): each["seconds"] for each in overheads.table("dense")}
    side = max((side for _, side in times), default=0)
    width = max(map(len, ideas.values()))
    lines = [
        f"{name:10} {words:{width}} {duration(times[name, side]):>8}"
        for name, words in ideas.items()
        if (name, side) in times
    ]
    if not lines:
        return [_missing("dense_forward by its order of threads", "gpu")]
    return [f"dense_forward, {side:,} × {side:,}", *lines, _where(overheads.recorded("gpu"))]


def sums() -> list[str]:
    """Milliseconds of the mean squared error by each kernel, the fastest first."""
    if not (found := overheads.known("sums")):
        return [_missing("sums by a GPU", "overheads")]
    numbers = recorded_seconds.SUM["batch"] * recorded_seconds.SUM["n"]
    where = {"numpy": "numpy, its CPU"}
    names = sorted(found, key=found.__getitem__)
    lines = [f"{where.get(name, name):16} {duration(found[name]):>9}" for name in names]
    return [f"mse, {numbers:,} numbers", *lines, overheads.where()]


def weight_gradients() -> list[str]:
    """Microseconds of kernels of weight_gradient: a line for a kernel, a column for a number of samples."""
    if not (found := overheads.known("weight_gradients")):
        return [_missing("weight gradients on a GPU", "overheads")]
    kernels, columns = (list(dict.fromkeys(each[key] for each in found)) for key in ("kernel", "samples"))
    times = {(each["kernel"], each["samples"]): duration(each["seconds"]) for each in found}
    lines = [f"{name:10}" + "".join(f"{times[name, n]:>16}" for n in columns) for name in kernels]
    side = recorded_seconds.SIDE
    heads = "".join(f"{head:>16}" for head in (f"{n:,} samples" for n in columns))
    return [f"weight_gradient, {side:,} × {side:,} weights", f"{'':10}{heads}", *lines, overheads.where()]


def counting() -> list[str]:
    """Milliseconds of confusion_matrix (atomic): a line for each number of cells."""
    if not (found := overheads.known("counting")):
        return [_missing("counting on a GPU", "overheads")]
    spreads = [f"{each['common']:.0%} of them in one" if each["common"] else "evenly" for each in found]
    width = max(map(len, spreads))
    lines = []
    for each, spread in zip(found, spreads, strict=True):
        cells = each["classes"] ** 2
        lines.append(f"{each['classes']:3} classes, {cells:6,} cells, {spread:{width}} {duration(each['seconds']):>8}")
    return [f"{recorded_seconds.COUNTED:,} samples", *lines, overheads.where()]


def _missing(what: str, name: str) -> str:
    return f"{what}: not recorded yet (python -m benchmarks.{name} does)"


def _where(found: dict) -> str:
    return f"recorded, {found['machine'].split(',')[0]}, {found['date']}"
