"""Make the tables of the results of all_reduce, data_parallel, devices_gpu, experiment and resnet.

Used by benchmarks.tables; not a command.
"""

from pathlib import Path

from nnexperiment import numbers
from nnexperiment.plan import Plan
from nnexperiment.runs import experiments_in

Rows = list[list[str]]


def all_reduce(result: dict) -> tuple[str, Rows]:
    """Words, and a row for each way to add the vectors of so many GPUs: microseconds by size, then the fitted line."""
    records = {(r["devices"], r["contender"], r["n"]): r for r in result["records"]}
    fits = {(fit["devices"], fit["contender"]): fit for fit in result["fits"]}
    sizes = sorted({n for _, _, n in records})
    rows = [["time in µs for a float32 vector of length", *(f"{n:,}" for n in sizes), "α, µs", "4/β, GB/s"]]
    for count, contender in dict.fromkeys((count, contender) for count, contender, _ in records):
        cells = [records.get((count, contender, n)) for n in sizes]
        fit = fits.get((count, contender))
        line = [f"{fit['alpha'] * 1e6:.1f}", f"{4e-9 / fit['beta']:.0f}"] if fit else ["–", "–"]
        times = [f"{cell['seconds'] * 1e6:,.1f}" if cell else "–" for cell in cells]
        rows.append([f"{count} GPUs: {contender}", *times, *line])
    said = (
        "The sum of the vectors of several GPUs (all-reduce): inside running kernels through each other's memory "
        "(`fused_epochs/all_reduce.cu`; three ways), the same launched from Python and in a CUDA graph, and "
        "NCCL. Each sum was checked; those of the course are the same bits on all GPUs. α + β n is fitted to the times."
    )
    return said, rows


def base_seconds(result: dict) -> dict[int, float]:
    """Seconds an epoch on one GPU for each batch, by the kernel that all batches have."""
    alone = (r for r in result["records"] if r["devices"] == 1 and r["contender"] != "one_kernel")
    return {r["batch"]: r["seconds_an_epoch"] for r in alone}


def data_parallel(result: dict) -> tuple[str, Rows]:
    """Words, and a row for each batch and contender."""
    base = base_seconds(result)
    rows = [["batch", "GPUs", "kernel of an epoch", "ms an epoch", "µs a step", "speedup"]]
    for r in result["records"]:
        times = [f"{r['seconds_an_epoch'] * 1e3:.2f}", f"{r['seconds_a_step'] * 1e6:.1f}"]
        speedup = f"{base[r['batch']] / r['seconds_an_epoch']:.2f}"
        rows.append([f"{r['batch']:,}", str(r["devices"]), r["contender"], *times, speedup])
    said = (
        "784-192-10, SGD, an epoch of 50,000 samples stored on the GPUs. `shared batches`: each GPU computes its "
        "rows of each batch, and the gradients are added inside a kernel. The speedup is over one GPU with the "
        "same batch, not by `one_kernel`: here over `graph`, the same products in a CUDA graph, which the package no "
        "longer has. Small batches are faster on one GPU."
    )
    return said, rows


def devices_gpu(result: dict) -> tuple[str, Rows]:
    """Words, and a row for each library on one GPU alone and on several."""
    setting = result["setting"]
    heads = ["images a second", "ms a step", "over the mean alone", "J an epoch", "above idle", "EDP over one GPU's"]
    rows = [["", *heads]]
    for each in result["scaling"]:
        count = len(each["devices"])
        name = f"GPU {each['devices'][0]} alone" if count == 1 else f"{count} GPUs"
        cells = [f"{each['images_a_second']:,.0f}", f"{each['seconds_a_step'] * 1e3:.2f}", f"{each['over_alone']:.3f}"]
        cells += [f"{each[key]:,.0f}" if key in each else "–" for key in ("joules", "joules_above_idle")]
        cells.append(f"{each['edp_over_alone']:.3f}" if "edp_over_alone" in each else "–")
        rows.append([f"{each['library']}, {name}", *cells])
    said = (
        f"ResNet-{setting['depth']} with 9 classes, grey images of {setting['height']} × {setting['width']} pixels, "
        f"float32 without TF32, {setting['batch']} images a GPU, SGD; PyTorch with DistributedDataParallel on several. "
        "Energy by NVML's counters, of the GPUs in use, for an epoch of the Cantabria thesis, 7,650 images."
    )
    return said, rows


def resnet(result: dict) -> tuple[str, Rows]:
    """Words, and a row for each operation of a step: where the time goes."""
    times = {each["contender"]: each["seconds_a_step"] * 1e3 for each in result["steps"]}
    rows = [["operation", "ms", "calls"]]
    for each in result["operations"]:
        if each["seconds"] >= 1e-4:
            rows.append([f"`{each['operation']}`", f"{each['seconds'] * 1e3:.2f}", str(each["calls"] or "–")])
    beside = ", ".join(f"{name} {time:.1f} ms" for name, time in times.items())
    said = (
        f"Where a step of ResNet-34 spends its time on one GPU, with {result['batch']} images, in turn with PyTorch, "
        f"whose cuDNN kernels were chosen by timing: {beside}. Operations below 0.1 ms are left out."
    )
    return said, rows


def experiment(result: dict) -> tuple[str, Rows]:
    """Words, and a row for each choice of devices and batch, of whole runs first, then of short ones."""
    heads = ["training, s", "test, s", "speedup", "of the loop", "efficiency"]
    heads += ["J, used GPUs", "J, all", "EDP", "EDP, all", "accuracy"]
    table = [["devices, images each", "epochs", "runs", *heads]]
    for each in result["experiments"]:
        rows = each.rows
        base = numbers.base_of(rows)
        for row, (whole, loop) in zip(rows, numbers.speedups(rows, base), strict=True):
            cells = [row.label, str(each.plan.epochs), str(row.runs)]
            share = numbers.efficiency(row, base, whole)
            cells += [f"{row.loop:.2f}", f"{row.test:.3f}", f"{whole:.3g}", f"{loop:.3g}"]
            cells.append(f"{share:.3f}" if share else "–")
            if row.consumed and base.consumed:
                cells += [f"{row.consumed.used:,.0f}", f"{row.consumed.all:,.0f}"]
                cells.append(f"{row.consumed.edp_used / base.consumed.edp_used:.3f}")
                cells.append(f"{row.consumed.edp_all / base.consumed.edp_all:.3f}")
            else:
                cells += ["–"] * 4
            reached = f"{row.accuracy[1]:.1%}" if row.accuracy else "–"
            if row.accuracy and row.runs > 1:
                reached += f" ({row.accuracy[0]:.1%} to {row.accuracy[2]:.1%})"
            table.append([*cells, reached if each.plan.epochs == Plan().epochs else "–"])
    said = (
        "The Cantabria thesis's experiment, `nncourse experiment resnet34`, with generated images: medians over the "
        "runs, and the mean accuracy on the test images. Short runs are for times alone. Speedup and EDP are over one "
        "GPU in as many epochs; efficiency is speedup over devices. `all` counts idle GPUs, too."
    )
    return said, table


def read_experiment(folder: Path) -> dict:
    """What `nncourse experiment` left in a folder and its subfolders: those with the thesis's images."""
    plan = Plan()
    usual = (plan.network, plan.height, plan.width)
    found = [each for each in experiments_in(folder) if (each.plan.network, each.plan.height, each.plan.width) == usual]
    found.sort(key=lambda each: -each.plan.epochs)
    machines = dict.fromkeys(run["machine"] for each in found for run in each.results)
    days = sorted({run["date"][:10] for each in found for run in each.results})
    about = {"machine": "; ".join(machines), "date": " to ".join(dict.fromkeys((days[0], days[-1])))}
    return about | {"versions": found[0].results[0]["versions"], "experiments": found}


MAKERS = {
    "all_reduce": all_reduce,
    "data_parallel": data_parallel,
    "devices_gpu": devices_gpu,
    "resnet": resnet,
    "experiment": experiment,
}
