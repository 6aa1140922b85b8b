"""The runs of an experiment, one after the other, each in its own processes and with its own file.

The folder has plan.json, runs/NAME.json, and the images as long as runs are missing. A run whose file exists is not
repeated, so an interrupted experiment continues where it stopped, and runs or devices can be added.
"""

import json
import math
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path

from nnclassroom.arguments import PROGRAM
from nncourse import device as devices
from nncourse.errors import CourseError, reason_of, write_atomically
from nncourse.group import Group
from nncourse.parallel.energy import meters_here
from nncourse.parallel.launch import member, start
from nncourse.parallel.launch.guard import INTERRUPTED, die_with_parent
from nncourse.parallel.launch.heartbeat import Heartbeat
from nncourse.threads import usable_cores
from nnexperiment.numbers import Experiment, Result
from nnexperiment.one_run import run_job
from nnexperiment.plan import (
    WORDS,
    Devices,
    Job,
    Plan,
    image_counts,
    job_called,
    jobs,
    load_parts,
    make_parts,
    save_parts,
)

ADDED = ("runs", "batch_sizes", "pause", "cores")  # options that may differ when an experiment is continued
STARTING = 20.0  # seconds to start a run and to end it
Begin = Callable[[Path, Job], int]  # runs run_one() for a job in its processes; returns the exit status


def run_all(
    plan: Plan,
    wanted: Sequence[Devices],
    folder: Path,
    begin: Begin,
    say: Callable[[str], None],
    limit: float = math.inf,
) -> int:
    """Do the runs that are missing in the folder. Returns 0, or INTERRUPTED, which the run itself has reported.

    limit: seconds for all these runs. No run starts that, judging by earlier ones, would end later.

    Raises CourseError before anything starts if this machine cannot do the runs.
    """
    over = time.perf_counter() + limit
    todo = jobs(plan, wanted)
    missing = [job for job in todo if not file_of(folder, job).exists()]
    refuse_missing([job.devices for job in missing])
    refuse_other(plan, folder)
    if len(missing) < len(todo):
        say(f"{len(todo) - len(missing)} of {len(todo)} runs are in {folder} already")
    if not missing:
        return 0
    most = max((each.count for each in wanted if not each.gpus), default=1)
    settle(replace(plan, cores=max(1, usable_cores() // most)), folder)
    images = folder / "images.npz"
    if not images.exists():
        say(f"preparing {sum(image_counts(plan)):,} images")
        write_atomically(images, lambda new: save_parts(make_parts(plan), new))
    for number, job in enumerate(missing, 1):
        if number > 1 and plan.pause:
            time.sleep(plan.pause)
        if time.perf_counter() + expected(job, results_in(folder)) > over:
            say(f"{len(missing) - number + 1} runs are left: run the same command again to continue")
            return 0
        say(f"run {number} of {len(missing)}: {job.name}")
        began = time.perf_counter()
        status = begin(folder, job)
        if status == INTERRUPTED:
            return INTERRUPTED
        if status or not file_of(folder, job).exists():
            again = "run the same command again to do the missing runs"
            raise CourseError(f"{job.name} ended with status {status} and left no result; {again}")
        say(f"  {said_of(json.loads(file_of(folder, job).read_text('utf-8')))}; {time.perf_counter() - began:.1f} s")
    images.unlink()
    return 0


def expected(job: Job, done: Sequence[Result]) -> float:
    """The seconds of the longest run so far, if possible on the same devices; 0 before the first run."""
    alike = [each for each in done if (each["kind"], each["count"]) == (job.devices.kind, job.devices.count)]
    return max((sum(map(sum, each["seconds"].values())) + STARTING for each in alike or done), default=0.0)


def run_one(
    folder: Path, name: str, group: Group, progress: bool = True, on_rows: Callable[[int], None] | None = None
) -> None:
    """One run, called in each of its processes; the first one measures energy and writes the file."""
    plan = read_plan(folder)
    job = job_called(plan, name)
    if group.size != job.devices.count:
        raise CourseError(f"expected {job.devices.count} processes for {name}; got {group.size}")
    first = group.rank == 0
    meters, missing = meters_here() if first else ([], [])
    result = run_job(plan, job, load_parts(folder / "images.npz"), group, meters, progress and first, on_rows)
    if first:
        text = in_lines(result | {"not_measured": missing})
        write_atomically(file_of(folder, job), lambda new: new.write_text(text, "utf-8"))
    group.barrier()


def begin(network: str, folder: Path, job: Job, patience: float) -> int:
    """Do a run in its own process, or in several that MPI joins. Returns the exit status."""
    program = [*PROGRAM, "experiment", network, "--out", str(folder), "--only", job.name, "--patience", str(patience)]
    if job.devices.count == 1:  # a group of one is MPI's without mpiexec
        return _in_a_process(program)
    return start.run(program, job.devices.count, patience, _alone)


def _in_a_process(program: Sequence[str]) -> int:
    """Run the program. Returns its exit status. Ctrl-C is passed on to the process, which reports it."""
    process = subprocess.Popen(program, process_group=0)
    came = []

    def hand_on(number: int, frame: object) -> None:
        came.append(number)
        process.send_signal(number)

    before = signal.signal(signal.SIGINT, hand_on)
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return INTERRUPTED if came and status else status


def _alone(heart: Heartbeat | None) -> int:
    raise CourseError("this command starts several processes itself, but is one of several here: run it as one task")


def run_here(folder: Path, name: str, heart: Heartbeat | None) -> int:
    """Call run_one() in this process, together with those that were started with it."""
    if heart is None:
        die_with_parent(signal.SIGKILL)  # the parent starts all runs
    run_one(folder, name, joined(job_called(read_plan(folder), name), heart), on_rows=heart.works if heart else None)
    if heart:
        heart.rests()
    return 0


def joined(job: Job, heart: Heartbeat | None) -> Group:
    """The group of the processes of a run."""
    each = job.devices.each
    if job.devices.kind == "group":
        from nncourse.parallel.nccl import NCCLGroup

        return NCCLGroup()
    return member.join_unlike(each, heart) if heart and len(set(each)) > 1 else member.join(each[0], heart)


def in_lines(result: Result) -> str:
    """The result as JSON, with a line for each entry."""
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in result.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def results_in(folder: Path) -> list[Result]:
    """The results of the completed runs, sorted by devices, batch and number."""
    found = [json.loads(file.read_text("utf-8")) for file in (folder / "runs").glob("*.json")]
    kinds = list(WORDS)
    return sorted(
        found,
        key=lambda each: (kinds.index(each["kind"]), *(each[name] for name in ("count", "batch", "alike", "run"))),
    )


def experiments_in(folder: Path) -> list[Experiment]:
    """The experiment of a folder, if there is one, then those of its subfolders."""
    plans = [*folder.glob("plan.json"), *sorted(folder.glob("*/plan.json"))]
    return [Experiment(each.parent.name, read_plan(each.parent), results_in(each.parent)) for each in plans]


def file_of(folder: Path, job: Job) -> Path:
    return folder / "runs" / f"{job.name}.json"


def read_plan(folder: Path) -> Plan:
    try:
        about = json.loads((folder / "plan.json").read_text("utf-8"))
        return Plan(**about)
    except (OSError, ValueError, TypeError) as error:
        raise CourseError(f"{folder}: expected the folder of an experiment, with its plan.json; {error}") from None


def refuse_other(plan: Plan, folder: Path) -> None:
    """CourseError if the folder has an experiment with different options, or unrelated files."""
    if (folder / "plan.json").exists():
        there = read_plan(folder)
        for field in fields(Plan):
            if field.name not in ADDED and getattr(there, field.name) != getattr(plan, field.name):
                found, asked = getattr(there, field.name), getattr(plan, field.name)
                got = f"got {asked}: use the options from before, or a different folder"
                raise CourseError(f"{folder}: expected {field.name} {found}, as in the experiment there; {got}")
    elif folder.is_dir() and any(path.is_file() for path in folder.iterdir()):
        raise CourseError(
            f"{folder}: expected a new folder, an empty one, or that of an experiment; it has other files"
        )


def settle(plan: Plan, folder: Path) -> None:
    """Make the folder, or continue in it: its plan then has all batch sizes so far, and the largest number of runs."""
    if (folder / "plan.json").exists():
        there = read_plan(folder)
        sizes = tuple(dict.fromkeys((*there.batch_sizes, *plan.batch_sizes)))
        plan = replace(plan, batch_sizes=sizes, runs=max(there.runs, plan.runs))
    try:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(f"{folder}: expected a folder for the results; {reason_of(error)}") from None
    text = json.dumps(asdict(plan), indent=1) + "\n"
    write_atomically(folder / "plan.json", lambda new: new.write_text(text, "utf-8"))


def refuse_missing(wanted: Sequence[Devices]) -> None:
    """CourseError if there are fewer GPUs than wanted, or if several processes are wanted and there is no MPI."""
    if any(each.count > 1 or each.kind == "group" for each in wanted):
        start.refuse_number(max(each.count for each in wanted))
        start.refuse_without_mpi()
        start.find_mpiexec()
    most = max((each.gpus for each in wanted), default=0)
    if not most:
        return
    if reason := devices.why_no_gpu():
        raise CourseError(
            f"expected {most} {'GPU' if most == 1 else 'GPUs'}; {reason}; --devices cpu,cpu2 needs no GPU"
        )
    if (there := devices.gpu_count()) < most:
        raise CourseError(f"expected {most} GPUs, {there} can be used: ask for fewer, or use a machine with more")


def said_of(result: Result) -> str:
    """A line that sums up a run."""
    seconds = {name: sum(values) for name, values in result["seconds"].items()}
    steps = f"only {result['steps_an_epoch']} steps" if result["partial"] else f"{result['epochs']} epochs"
    said = [f"{steps} in {seconds['train']:.3g} s, test {seconds['test']:.3g} s"]
    if result["shares"]:
        shares = " + ".join(f"{share:.1%}" for share in result["shares"])
        said.append(f"shares {shares}")
    if result["accuracy"] is not None:
        said.append(f"accuracy {result['accuracy']:.1%}")
    if result["energies"]:
        said.append(f"{sum(each['joules'] for each in result['energies']):.4g} J on all devices")
    return ", ".join(said)
