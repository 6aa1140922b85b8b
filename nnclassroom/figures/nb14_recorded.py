"""What was recorded of ResNet-34 on GPUs, as tables with machine and date: each is text for a notebook.

convolutions()   its layers' convolutions by the course's kernels, by cuDNN and by PyTorch
step()           a training step beside PyTorch's, and where the time goes
devices()        one GPU, and several
thesis()         the Cantabria thesis's own table
"""

from collections.abc import Sequence

from nnclassroom.experiment.numbers import THESIS, THESIS_COLUMNS
from nnclassroom.figures import overheads
from nnclassroom.formats import duration
from nnclassroom.recorded_words import in_words

LIBRARIES = "cudnn", "PyTorch", "cupy"
DETAILED = 12  # operations of a step, in lines of their own


def not_recorded(command: str) -> str:
    return f"not recorded yet: {command} does it, on a machine with an NVIDIA GPU"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns with two blanks between them: the first to the left, the others to the right."""
    lines = [heads, *rows]
    widths = [max(len(line[number]) for line in lines) for number in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) if not number else cell.rjust(width)
                  for number, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    )  # fmt: skip


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
        cells = [duration(times[name]) if name in times else "–" for name in ("naive", own, "cudnn", "PyTorch")]
        rows.append(
            [f"{overheads.LAYER_WORDS.get(layer, layer)}, {in_words(which)}", cells[0], f"{own} {cells[1]}", *cells[2:]]
        )
    heads = ["", "naive", "our fastest", "cuDNN", "PyTorch"]
    about = f"batch {records[0]['batch']}, 3 × 3, float32 ({overheads.recorded_where('gpu', 'convolutions')})"
    return f"{about}\n{table(heads, rows)}"


def step() -> str:
    """Milliseconds and memory of each contender's step, then those of ours by operation, the longest first."""
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
    whole = sum(each["seconds"] for each in found["operations"])
    first, others = found["operations"][:DETAILED], found["operations"][DETAILED:]
    lines = [
        [in_words(each["operation"]), str(each["calls"] or ""), _ms(each["seconds"]), _share(each, whole)]
        for each in first
    ]
    if others:
        rest = {"seconds": sum(each["seconds"] for each in others)}
        calls = sum(each["calls"] for each in others)
        lines.append([f"{len(others)} others", str(calls), _ms(rest["seconds"]), _share(rest, whole)])
    lines.append(["together", str(sum(each["calls"] or 0 for each in found["operations"])), _ms(whole), "100.0%"])
    heads = ["our step", "calls", "time", "share"]
    return f"{text}\n\n{table(heads, lines)}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def _share(each: dict, whole: float) -> str:
    return f"{each['seconds'] / whole:.1%}"


def devices() -> str:
    """Images a second and joules of one GPU (the mean of each alone) and of several; ratios over the same GPUs."""
    found = overheads.recorded("devices_gpu")
    if not found:
        return not_recorded("python -m benchmarks.devices_gpu")
    rows = []
    for library in dict.fromkeys(each["library"] for each in found["scaling"]):
        mine = [each for each in found["scaling"] if each["library"] == library]
        alone = [each for each in mine if len(each["devices"]) == 1]
        rows.append(_devices_row(library, 1, _mean(alone)))
        rows += [_devices_row(library, len(each["devices"]), each) for each in mine if len(each["devices"]) > 1]
    heads = ["", "images/s", "speedup", "efficiency", "J an epoch", "energy", "EDP"]
    about = f"ResNet-{found['setting']['depth']}, {found['setting']['batch']} images a GPU, float32"
    notes = [f"{what} was not run: {why}" for what, why in found["left_out"].items()]
    notes += [in_words(each) for each in found["not_measured"]]
    return "\n".join([f"{about} ({overheads.recorded_where('devices_gpu')})", table(heads, rows), *notes])


def _mean(records: Sequence[dict]) -> dict:
    """The mean of what all of these have in common, number by number."""
    names = [name for name, value in records[0].items() if isinstance(value, int | float)]
    common = [name for name in names if all(name in each for each in records)]
    return {name: sum(each[name] for each in records) / len(records) for name in common}


def _devices_row(library: str, count: int, each: dict) -> list[str]:
    joules = f"{each['joules']:,.0f}" if "joules" in each else "–"
    ratios = [f"{each[key]:.2f}" if key in each else "–" for key in ("joules_over_alone", "edp_over_alone")]
    name = f"{library}, {count} GPU{'s' * (count > 1)}"
    return [
        name,
        f"{each['images_a_second']:,.0f}",
        f"{each['over_alone']:.2f}",
        f"{each['efficiency']:.3f}",
        joules,
        *ratios,
    ]


def thesis() -> str:
    """The thesis's table of speedup, efficiency, energy, EDP and accuracy."""
    return f"two Tesla K20m (the Cantabria thesis)\n{table(THESIS_COLUMNS, THESIS)}"
