"""Train ResNet-34 on one GPU and on several: python -m benchmarks.devices_gpu [--counts 2,4] [--out FILE] [--quick].

Synchronous data-parallel training in float32 (no TF32) with 128 images per GPU, by nncourse and by PyTorch's
DistributedDataParallel. It measures the images per second of K GPUs, divided by the mean of each of them alone; energy;
and EDP. It takes about three minutes, prints a table and, without --quick, writes results/devices_gpu.json.

Each library has one process per GPU. The same processes make all measurements: first each GPU alone while the others
wait, then the first K together, round after round. The images are on the GPUs already. NVLink multicast is off.
"""

import argparse
import copy
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.saved import RESULTS, refuse_out, save
from benchmarks.workers import FailedError, since
from nncourse import device as devices
from nncourse.errors import CourseError
from nncourse.parallel.energy import Energy, Meter, edp, idle_power, measured, meters_here

LIBRARIES = "nncourse", "PyTorch"
IMAGES = 7_650  # for which energy and EDP are told: an epoch of the Cantabria thesis
BATCHES = 4  # of a GPU, that take turns
CLASSES, RATE = 9, 0.01
LIMIT = 280.0  # seconds for one library
ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Setting:
    """What all processes are told."""

    device: str = "gpu"
    processes: int = 2
    counts: tuple[int, ...] = (2,)
    batch: int = 128  # a process
    depth: int = 34
    height: int = 148
    width: int = 197
    rounds: int = 3
    seconds: float = 2.5  # of a measurement, of which a counter is renewed some 25 times


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", type=lambda text: tuple(map(int, text.split(","))), help="GPUs (default 2,4,… all)")
    parser.add_argument("--rounds", type=int, default=Setting.rounds)
    parser.add_argument("--seconds", type=float, default=Setting.seconds, help="seconds of a measurement")
    parser.add_argument("--batch", type=int, default=Setting.batch, help="images per GPU in a batch")
    parser.add_argument("--only", choices=LIBRARIES, help="library to measure (default: both)")
    parser.add_argument("--quick", action="store_true", help="train ResNet-18 on tiny images, even without a GPU")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--member", choices=LIBRARIES, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.member:
        return member(options.member)
    out = options.out or (None if options.quick else RESULTS / "devices_gpu.json")
    if out:
        refuse_out(parser, out)
    there = devices.gpu_count()
    if not there and not options.quick:
        print(f"benchmarks.devices_gpu: {devices.why_no_gpu()}", file=sys.stderr)
        return 2
    processes = max(options.counts or (there or 2,))
    if there and processes > there:
        print(f"benchmarks.devices_gpu: expected {processes} GPUs, there are {there}", file=sys.stderr)
        return 2
    counts = options.counts or tuple(dict.fromkeys([*(k for k in (2, 4, 8) if k < processes), processes]))
    small = {"batch": 2, "depth": 18, "height": 17, "width": 20, "rounds": 1, "seconds": 0.01} if options.quick else {}
    asked = {"batch": options.batch, "rounds": options.rounds, "seconds": options.seconds}
    setting = Setting("gpu" if there else "cpu", processes, tuple(k for k in counts if k > 1), **(asked | small))
    try:
        result = run(setting, [options.only] if options.only else LIBRARIES)
    except FailedError as error:
        print(f"benchmarks.devices_gpu: {error}", file=sys.stderr)
        return 1
    if out:
        save(result, out)
    print(table(result))
    return 0


def run(setting: Setting, libraries: Sequence[str]) -> dict[str, Any]:
    """What all libraries say, one after the other; the contents of the results file."""
    begin, found, left_out = time.perf_counter(), [], {}
    missing: dict[str, None] = {}
    versions = devices.versions()
    for library in libraries:
        try:
            answer = started(library, setting)
        except FailedError as error:
            left_out[library] = str(error)
            continue
        found += answer["records"]
        versions |= answer["versions"]
        missing |= dict.fromkeys(answer["not_measured"])
        print(f"{since(begin)}  {library}", file=sys.stderr, flush=True)
    if not found:
        raise FailedError("; ".join(f"{name}: {why}" for name, why in left_out.items()))
    about = {"machine": devices.describe(setting.device), "cpu": devices.describe("cpu"), "setting": asdict(setting)}
    about |= {"versions": versions, "not_measured": list(missing), "left_out": left_out}
    return about | {"records": found, "scaling": scaling(found)}


def started(library: str, setting: Setting) -> dict[str, Any]:
    """Start the processes of one library, under mpiexec, and wait for what the first of them writes."""
    from nncourse.parallel.launch.start import find_mpiexec, mpiexec_command

    try:
        command = mpiexec_command(find_mpiexec(), setting.processes)
    except CourseError as error:
        raise FailedError(str(error)) from None
    with tempfile.TemporaryDirectory(prefix="nncourse-") as folder:
        told = {"folder": folder, "port": free_port(), "setting": asdict(setting)}
        (Path(folder) / "asked.json").write_text(json.dumps(told), "utf-8")
        more = {"NNCOURSE_BENCHMARK": folder, "NCCL_NVLS_ENABLE": "0", "OMP_NUM_THREADS": "1"}
        command += [sys.executable, "-m", "benchmarks.devices_gpu", "--member", library]
        process = subprocess.Popen(command, cwd=ROOT, env=os.environ | more, start_new_session=True)
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            status = f"not within {LIMIT:g} s"
        finally:
            from cuda_on_cpu.processes import kill_group

            kill_group(process)
        answer = Path(folder) / "answer.json"
        if status != 0 or not answer.exists():
            raise FailedError(f"its processes ended with status {status}, see above")
        return json.loads(answer.read_text("utf-8"))


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


# ---- one of the processes


def member(library: str) -> int:
    """Measure together with the other processes of the library; the first writes what was found."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    folder = Path(os.environ["NNCOURSE_BENCHMARK"])
    asked = json.loads((folder / "asked.json").read_text("utf-8"))
    setting = Setting(**{key: tuple(value) if key == "counts" else value for key, value in asked["setting"].items()})
    make = {"nncourse": of_nncourse, "PyTorch": of_pytorch}[library]
    steps, versions = make(setting, world, asked["port"])
    first = world.Get_rank() == 0
    meters, missing = meters_here() if first else ([], [])
    world.Barrier()
    idle = idle_power(meters) if meters else []
    records = []
    for turn in range(setting.rounds):
        for chosen, step in steps:
            record = measure(step, chosen, world, setting, meters, idle)
            if first:
                label = "alone" if len(chosen) == 1 else "together"
                records.append({"library": library, "round": turn + 1, "devices": chosen, "label": label} | record)
    if first:
        answer = {"records": records, "versions": versions, "not_measured": missing}
        (folder / "answer.json").write_text(json.dumps(answer), "utf-8")
    world.Barrier()
    return 0


Step = Callable[[int], None]  # so many training steps, and waiting for the GPU


def measure(
    step: Step, chosen: list[int], world: Any, setting: Setting, meters: Sequence[Meter], idle: Sequence[float]
) -> dict[str, Any]:
    """Steps of the chosen processes while the others wait: seconds a step, and the energy of all devices."""
    mine = world.Get_rank() in chosen
    if mine:
        step(2)
        start = time.perf_counter()
        step(2)
        one = (time.perf_counter() - start) / 2
    slowest = max(world.allgather(one if mine else 0.0))
    steps = max(2, int(np.ceil(setting.seconds / slowest)))
    world.Barrier()
    with measured(meters, idle) as found:
        start = time.perf_counter()
        if mine:
            step(steps)
        world.Barrier()
        seconds = time.perf_counter() - start
    used = [asdict(each) for each in found.energies] if meters else []
    images = steps * setting.batch * len(chosen)
    about = {"steps": steps, "seconds_a_step": seconds / steps, "images_a_second": images / seconds}
    return about | {"images": images, "energies": used}


def of_nncourse(setting: Setting, world: Any, port: int) -> tuple[list[tuple[list[int], Step]], dict[str, str]]:
    """Steps alone and together, with the same network, by the data-parallel epoch of nncourse."""
    from nncourse.group import Alone
    from nncourse.model.data_parallel import Together, data_parallel_epoch
    from nncourse.model.layers import StepPosition
    from nncourse.model.optimizers import SGD
    from nncourse.model.resnet import resnet
    from nncourse.parallel.mpi import MPIGroup
    from nnexperiment.plan import make_backend

    if setting.device == "gpu":
        from nncourse.parallel.nccl import NCCLGroup as Group

        Group(world)  # takes this process's GPU, before anything is made on it
    else:
        Group = lambda communicator: MPIGroup("cpu", communicator)  # noqa: E731
    backend, optimizer = make_backend(setting.device), SGD()
    network = resnet(setting.depth, CLASSES, 1, 0, setting.height, setting.width).on(backend)
    X, labels = images_for(setting, world.Get_rank())
    X_there, Y_there = backend.to_device(X), backend.to_device(np.eye(CLASSES, dtype=np.float32)[labels])

    def steps_of(group: Any) -> Step:
        size = setting.batch * group.size

        def step(count: int) -> None:
            # As if all held the same images: a member takes its shard, and never looks at the others' rows.
            order = backend.to_device(np.resize(np.arange(len(X)), count * size))
            data_parallel_epoch(
                network, X_there, Y_there, order, size, RATE, backend, optimizer, StepPosition(), Together(group)
            )
            devices.synchronise(backend.device)

        return step

    found: list[tuple[list[int], Step]] = []
    alone = steps_of(Alone(setting.device))
    alone(2)
    found += [([rank], alone) for rank in range(setting.processes)]
    for count in setting.counts:
        part = world.Split(0 if world.Get_rank() < count else 1)
        found.append((list(range(count)), steps_of(Group(part)) if world.Get_rank() < count else alone))
    return found, devices.versions()


def of_pytorch(setting: Setting, world: Any, port: int) -> tuple[list[tuple[list[int], Step]], dict[str, str]]:
    """The same in PyTorch: eager, and with DistributedDataParallel around the network."""
    import torch
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel

    from tests.resnet_pytorch import resnet

    rank, on_gpu = world.Get_rank(), setting.device == "gpu"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=setting.processes
    )
    X, labels = images_for(setting, rank)
    batches = [
        (torch.tensor(X[start : start + setting.batch], device=device), torch.tensor(labels[start:][: setting.batch]))
        for start in range(0, len(X), setting.batch)
    ]
    batches = [(images, classes.long().to(device)) for images, classes in batches]
    network = resnet(torch, setting.depth, CLASSES, 1).to(device)

    def steps_of(network: Any) -> Step:
        optimiser = torch.optim.SGD(network.parameters(), lr=RATE)

        def step(count: int) -> None:
            for number in range(count):
                images, classes = batches[number % len(batches)]
                optimiser.zero_grad(set_to_none=True)
                torch.nn.functional.cross_entropy(network(images), classes).backward()
                optimiser.step()
            if on_gpu:
                torch.cuda.synchronize()

        return step

    alone = steps_of(network)
    alone(2)
    found: list[tuple[list[int], Step]] = [([each], alone) for each in range(setting.processes)]
    for count in setting.counts:
        part = distributed.new_group(list(range(count)))  # every process has to take part
        step = alone
        if rank < count:
            more = {"device_ids": [rank]} if on_gpu else {}
            own = copy.deepcopy(network)  # its hooks would exchange gradients of the network alone, too
            step = steps_of(DistributedDataParallel(own, process_group=part, **more))
        found.append((list(range(count)), step))
    return found, {"torch": torch.__version__}


def images_for(setting: Setting, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """Random images and classes, BATCHES times a batch of one process: what is in them takes no other time."""
    rng = np.random.default_rng(rank)
    count = BATCHES * setting.batch
    X = rng.random((count, 1, setting.height, setting.width), np.float32)
    return X, rng.integers(0, CLASSES, count)


# ---- what comes out


def scaling(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each library and each choice of devices: medians over the rounds, and what K devices gain over one.

    `over_alone` is images a second over the mean of each of these devices alone. Energy and EDP are for IMAGES images,
    by the counters of the GPUs that are used, above what they take when idle, and of all devices.
    """
    found = []
    for library, chosen in dict.fromkeys((each["library"], tuple(each["devices"])) for each in records):
        mine = [each for each in records if (each["library"], tuple(each["devices"])) == (library, chosen)]
        rate = statistics.median(each["images_a_second"] for each in mine)
        line = {
            "library": library,
            "devices": list(chosen),
            "images_a_second": rate,
            "seconds_a_step": statistics.median(each["seconds_a_step"] for each in mine),
            "rounds": [each["images_a_second"] for each in mine],
        }
        consumed = [numbers for each in mine if (numbers := consumption(each))]
        if consumed:
            line |= {key: statistics.median(each[key] for each in consumed) for key in consumed[0]}
        found.append(line)
    alone = {(each["library"], each["devices"][0]): each for each in found if len(each["devices"]) == 1}
    for line in found:
        singles = [alone[line["library"], number] for number in line["devices"]]
        mean = statistics.mean(each["images_a_second"] for each in singles)
        line["over_alone"] = line["images_a_second"] / mean
        line["efficiency"] = line["over_alone"] / len(line["devices"])
        for key in ("joules", "joules_above_idle", "joules_of_all", "edp", "edp_of_all"):
            if key in line:
                line[f"{key}_over_alone"] = line[key] / statistics.mean(each[key] for each in singles)
    return found


def consumption(record: dict[str, Any]) -> dict[str, float]:
    """Of IMAGES images at this rate, from the energy of those computed; nothing without a counter of each GPU."""
    energies = [Energy(**each) for each in record["energies"]]
    used = [each for each in energies if each.kind == "gpu" and each.number in record["devices"]]
    if len(used) < len(record["devices"]):
        return {}
    times = IMAGES / record["images"]
    return {
        "joules": times * sum(each.joules for each in used),
        "joules_above_idle": times * sum(math.nan if each.above_idle is None else each.above_idle for each in used),
        "joules_of_all": times * sum(each.joules for each in energies),
        "edp": times**2 * edp(used),
        "edp_of_all": times**2 * edp(energies),
        "watts": sum(each.watts for each in used),
    }


def table(result: dict[str, Any]) -> str:
    """A line for each library and each choice of devices."""
    setting, lines = result["setting"], []
    about = f"ResNet-{setting['depth']}, {setting['batch']} a device, {setting['height']} x {setting['width']}"
    lines.append(f"{about}; {result['machine']}")
    heads = "images/s", "ms a step", "over alone", "J an epoch", "above idle", "EDP"
    lines.append(f"{'':<28}" + "".join(f"{head:>12}" for head in heads))
    for each in result["scaling"]:
        numbers = ", ".join(map(str, each["devices"]))
        cells = [f"{each['images_a_second']:,.1f}", f"{each['seconds_a_step'] * 1e3:.2f}", f"{each['over_alone']:.3f}"]
        cells += [f"{each[key]:,.0f}" if key in each else "–" for key in ("joules", "joules_above_idle")]
        cells.append(f"{each['edp_over_alone']:.3f}" if "edp_over_alone" in each else "–")
        lines.append(f"{each['library'] + ' on ' + numbers:<28}" + "".join(f"{cell:>12}" for cell in cells))
    lines += [*result["not_measured"], *(f"left out: {what}: {why}" for what, why in result["left_out"].items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
