"""`nncourse experiment`: repeat the thesis's experiment, run by run."""

import argparse
import functools
import math
from argparse import ArgumentParser, Namespace
from pathlib import Path

from nnclassroom.arguments import PROGRAM, THREADS, number, whole
from nncourse.errors import CourseError
from nncourse.language import COURSE


def add_options(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "network",
        help="network to train: resnet34, resnet18, small (two convolutions, to try the command) or mnist (784-192-10 "
        "on MNIST); or recorded, to write the page of the course's own runs",
    )
    add(
        "--devices",
        default="cpu,1,2",
        help="devices to compare, separated by commas: cpu, cpu2 (two processes on the CPU), 1, 2 or more (number of "
        "GPUs), group1 (one GPU in the training loop of several), cpu+1 (the CPU and one GPU), cpu+cpu (two unequal "
        "processes), pytorch2 (two GPUs with PyTorch); on a laptop use cpu,cpu2 (default cpu,1,2)",
    )
    add(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="folder for the results; run the same command again to resume",
    )
    add("--runs", type=whole, default=3, help="number of runs of each configuration (default 3)")
    add("--epochs", type=whole, default=100, help="number of epochs (default 100)")
    add(
        "--batch-size",
        type=wholes,
        default=(128,),
        dest="batch_sizes",
        metavar="NUMBERS",
        help="batch size, or several separated by commas (72,96,128); with several devices each size runs twice, as "
        "images per device and as images in total (default 128)",
    )
    add("--learning-rate", type=number, default=0.05, help="learning rate of plain SGD (default 0.05)")
    add("--images", type=whole, default=1000, help="number of images in each class (default 1000)")
    add(
        "--folder",
        default="",
        help="folder of photographs, one subfolder per class, in place of generated images; they are turned grey",
    )
    add("--size", default="148x197", metavar="HEIGHTxWIDTH", help="size of the images (default 148x197)")
    add(
        "-s",
        "--seed",
        type=whole,
        default=0,
        help="seed for the images, the weights and the order of images (default 0)",
    )
    add(
        "--validation",
        type=number,
        default=0.02,
        metavar="SHARE",
        help="share of the images for validation (default 0.02)",
    )
    add("--validate-every", type=whole, default=1, metavar="EPOCHS", help="epochs between validations (default 1)")
    add(
        "--validation-batch",
        type=whole,
        default=0,
        help="images per batch of a validation; 0: as in training (default 0)",
    )
    add(
        "--cpu-share",
        type=share_or_auto,
        default=0.0,
        metavar="SHARE",
        help="share of a batch for the CPU or the slower process; auto: by measured speed (default auto)",
    )
    add(
        "--slow",
        type=number,
        default=3.0,
        help="factor by which the first process of cpu+cpu is slowed down (default 3)",
    )
    add(
        "--cpu-steps",
        type=whole,
        default=3,
        help="number of steps to train on the CPU, in a single run; 0: all steps, in every run (default 3)",
    )
    add(
        "--send",
        default="all",
        metavar="WAY",
        help="when to send images to the device: all (before training, default) or batch (batch by batch)",
    )
    add("--threads", type=whole, default=0, help=THREADS)
    add("--pause", type=number, default=0.0, metavar="SECONDS", help="pause between two runs (default 0)")
    add(
        "--limit",
        type=number,
        default=math.inf,
        metavar="SECONDS",
        help="stop before a run that, judging by earlier ones, would not finish within SECONDS (default: no limit)",
    )
    add(
        "--patience",
        type=number,
        default=120.0,
        metavar="SECONDS",
        help="treat a process as hung when a step takes longer than SECONDS and longer than any step before it "
        "(default 120)",
    )
    add("--only", help=argparse.SUPPRESS)  # one of the runs, in its own process


def wholes(text: str) -> tuple[int, ...]:
    return tuple(whole(word) for word in text.split(","))


def share_or_auto(text: str) -> float:
    return 0.0 if text == "auto" else number(text)


def run(options: Namespace) -> int:
    from nncourse.parallel.launch import start
    from nnexperiment import page as experiment_page
    from nnexperiment import plan as experiment
    from nnexperiment import runs

    if options.only:
        work = functools.partial(runs.run_here, options.out, options.only)
        return start.run([*PROGRAM, *options.arguments], None, options.patience, work)
    if options.network == "recorded":
        found = runs.experiments_in(COURSE / "benchmarks" / "results" / "experiment")
        print(experiment_page.written(options.out / "experiment.html", *found))
        return 0
    start.refuse_patience(options.patience)
    height, _, width = options.size.partition("x")
    if not (height.isdecimal() and width.isdecimal() and len(options.size) < 12):
        raise CourseError(f"expected --size HEIGHTxWIDTH, such as 148x197; got {options.size!r}")
    names: tuple[str, ...] = (
        "network",
        "runs",
        "epochs",
        "batch_sizes",
        "learning_rate",
        "images",
        "folder",
        "seed",
        "cpu_steps",
    )
    names += "validation", "validate_every", "validation_batch", "cpu_share", "slow", "send", "pause", "threads"
    given = {name: getattr(options, name) for name in names}
    plan = experiment.Plan(**given, height=int(height), width=int(width))
    if plan.folder:
        plan, notes = experiment.of_folder(plan)
        print(*notes, sep="\n", end="\n" if notes else "")
    wanted = experiment.parsed_devices(options.devices)
    begin = functools.partial(runs.begin, plan.network, patience=options.patience)
    status = runs.run_all(plan, wanted, options.out, begin, functools.partial(print, flush=True), options.limit)
    if status:
        return status
    print(experiment_page.written(options.out / "experiment.html", *runs.experiments_in(options.out)))
    return 0
