"""The command line: one function a command. A mistake is one line on stderr, and status 2.

The handout's C program took --train and --test; its two command lines work here as they stand.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from nnclassroom.arguments import in_our_words
from nncourse import __version__, language
from nncourse.errors import CourseError, nearest, refuse_unknown, refuse_unwritable

DEFAULTS = {"activation": "sigmoid", "cost": "mse", "initialiser": "xavier", "scaling": "standardization"}
PATIENCE = 6.0  # seconds without a step
OPTION_WORDS = {
    "activation": "activation",
    "cost": "cost",
    "initialiser": "initialiser",
    "scaling": "scaling",
    "dropout": "dropout",
}
COUNT_WORDS = {"right": "right", "wrong": "wrong", "not checked": "not checked"}
SCHEDULES = "constant, step,EPOCHS,FACTOR, exponential,FACTOR, cosine,EPOCHS or warmup,EPOCHS"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    if hasattr(sys.stdout, "reconfigure"):  # a terminal without ✓ shows ? instead of a traceback
        sys.stdout.reconfigure(errors="replace")
    try:
        options = _parsed(list(sys.argv[1:] if argv is None else argv))
        return options.run(options)
    except (CourseError, MemoryError) as error:
        print(f"nncourse: {str(error) or 'wanted more memory than this machine has'}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nncourse: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has closed it, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parsed(arguments: list[str]) -> argparse.Namespace:
    """The parsed options. The C program's `--train`, at any place, is the same as the command `train`."""
    for command in ("train", "test"):
        if f"--{command}" in arguments and arguments[0].startswith("-"):
            arguments.remove(f"--{command}")
            arguments.insert(0, command)
    with in_our_words():
        options, unknown = _parser().parse_known_args(arguments)
    options.arguments = arguments
    if unknown:
        guess = nearest(unknown[0], options.spellings)
        raise CourseError(f"{unknown[0]!r} is not understood{guess} (see nncourse {arguments[0]} --help)")
    return options


class _Parser(argparse.ArgumentParser):
    """A parser that raises its errors as a CourseError of one line, without the usage."""

    def error(self, message: str):
        raise CourseError(f"{message} (see {self.prog} --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="nncourse", description="Train and test neural networks; check and time their kernels.")
    parser.add_argument(
        "--version",
        action="version",
        version=f"nncourse {__version__}",
        help="show program's version number and exit",
    )
    commands = parser.add_subparsers(required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], words: str, **options) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=words, **options)
        added.set_defaults(run=run, spellings=added._option_string_actions)
        return added

    both = _Parser(add_help=False)  # what train and test have in common
    both.add_argument("--dataset", required=True, help="a CSV file, or a name such as breast_cancer or mnist")
    both.add_argument("--model", required=True, help="the model: .npz, or the C program's text by any other ending")
    both.add_argument("--backend", default="numpy", help="loops, numpy, numba, cupy or cuda (default numpy)")
    both.add_argument("--use", action="append", default=[], metavar="OPERATION=KERNEL", help="dense_forward=tiled, …")
    both.add_argument("--mine", action="store_true", help="take your own kept kernels where there are some")
    both.add_argument("-v", "--verbose", action="store_true", help="show progress and the kernels that are used")
    both.add_argument(
        "--processes", type=_whole, metavar="K", help="so many share each batch, by MPI (default 1, or srun's number)"
    )
    both.add_argument(
        "--patience",
        type=_number,
        default=PATIENCE,
        metavar="SECONDS",
        help=f"a process that takes longer for a step, and longer than ever, has hung (default {PATIENCE:g})",
    )
    train = command("train", _train, "train a network and save it", allow_abbrev=False, parents=[both])
    train.add_argument(
        "--layers", help="inputs and neurons a layer: 30,60,10,1; for images image1x28x28,conv4x2same,pool4,128,10"
    )
    train.add_argument("--dropout", type=_number, help="behind each hidden dense layer, the share that is left out")
    train.add_argument("--epochs", type=_whole, default=100, help="default 100")
    train.add_argument(
        "--batch-size", "--batch_number", "--batch_size", type=_whole, help="of all processes together (default 10)"
    )
    train.add_argument(
        "--learning-rate", "--learning_rate", type=_number, help="default 0.1, with momentum 0.01, with adam 0.001"
    )
    train.add_argument("--update", help="how a step moves the parameters: sgd (default) or adam")
    train.add_argument("--momentum", type=_number, help="of sgd, from 0 (default) up to 1: 0.9, for instance")
    train.add_argument("--l2", type=_number, help="weight decay λ, which is added to the gradient as λ W (default 0)")
    train.add_argument("--schedule", help=f"of the learning rate: {SCHEDULES} (default constant)")
    train.add_argument(
        "--activation", help="of the hidden layers (default sigmoid), or one for each with weights: tanh,sigmoid"
    )
    train.add_argument("--cost", help="mse (default), mae, binary_cross_entropy or categorical_cross_entropy")
    train.add_argument("--initialiser", help="xavier (default), he, normal or uniform")
    train.add_argument("--scaling", help="none, normalization or standardization (default)")
    train.add_argument("--validation", type=_number, default=0.0, help="share of the samples kept out of training")
    train.add_argument(
        "--resume",
        metavar="MODEL",
        help="go on training this model with its own layers, scaling, update and rates",
    )
    train.add_argument("-s", "--seed", type=int, help="for the weights, the split and the order of samples (default 0)")
    command("test", _test, "test a saved network", allow_abbrev=False, parents=[both])

    some = _Parser(add_help=False)  # what check and time have in common
    some.add_argument("operation", nargs="?")
    some.add_argument("--kernel", action="append", default=[], help="only this kernel")
    check = command("check", _check, "check kernels against the truth", parents=[some])
    check.add_argument("--emulate", action="store_true", help="CUDA kernels on the CPU emulator, even with a GPU")
    timing = command("time", _time, "time kernels beside this machine's limits", parents=[some])
    timing.add_argument("--size", action="append", default=[], metavar="NAME=N", help="batch=64, n_in=784, …")

    command("progress", _progress, "which exercises of the notebooks are done")

    report = command("report", _report, "one HTML page to hand in: progress, kernels, speedup, results")
    report.add_argument("--out", default="report.html", help="the page's file (default report.html)")
    report.add_argument("--name", default="", help="who hands it in")
    report.add_argument("--dataset", help="a CSV file or a name (default: the CC data, else their stand-in)")
    report.add_argument("--epochs", type=int, default=100, help="of the training whose results are shown (default 100)")

    experiment = command("experiment", _experiment, "the thesis's experiment: on a CPU, on one GPU and on several")
    experiment.add_argument("network", help="resnet34, resnet18, or small: one for trying, of two convolutions")
    experiment.add_argument(
        "--devices",
        default="cpu,1,2",
        help="cpu, cpu2 (two processes on the CPU), or numbers of GPUs (default cpu,1,2); on a laptop cpu,cpu2",
    )
    experiment.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="of the results; the same command again goes on where it was cut off",
    )
    experiment.add_argument("--runs", type=_whole, default=3, help="of each kind (default 3)")
    experiment.add_argument("--epochs", type=_whole, default=100, help="default 100")
    experiment.add_argument(
        "--batch-size",
        type=_whole,
        default=128,
        help="several devices train twice: so many images for each, and so many together (default 128)",
    )
    experiment.add_argument("--learning-rate", type=_number, default=0.05, help="of plain SGD (default 0.05)")
    experiment.add_argument("--images", type=_whole, default=1000, help="of each class (default 1000)")
    experiment.add_argument("--size", default="148x197", metavar="HEIGHTxWIDTH", help="of the images (default 148x197)")
    experiment.add_argument(
        "-s", "--seed", type=_whole, default=0, help="for the images, the weights and the order (default 0)"
    )
    experiment.add_argument(
        "--cpu-steps", type=_whole, default=3, help="the CPU trains only so many steps, once; 0: all (default 3)"
    )
    experiment.add_argument(
        "--send",
        default="all",
        metavar="WAY",
        help="images to the device: all, before (default), or batch by batch: batch",
    )
    experiment.add_argument(
        "--pause", type=_number, default=0.0, metavar="SECONDS", help="between two runs (default 0)"
    )
    experiment.add_argument(
        "--patience",
        type=_number,
        default=120.0,
        metavar="SECONDS",
        help="a process that takes longer for a step, and longer than ever, has hung (default 120)",
    )
    experiment.add_argument("--only", help=argparse.SUPPRESS)  # one of the runs, in a process of its own

    submit = command("submit", _submit, "pack your kept kernels in one file to hand in")
    submit.add_argument("--out", type=Path, required=True, metavar="ADA.ZIP", help="the file to hand in")
    submit.add_argument("--name", default="", help="who hands it in")

    update = command("update", _update_course, "bring a new hand-out into your copy; your own work stays")
    update.add_argument("handout", type=Path, help="the new .zip")
    update.add_argument("--folder", type=Path, default=Path(), help="your copy (default: this folder)")

    handout = command("handout", _handout, "for instructors: one .zip for students")
    handout.add_argument("--out", type=Path, required=True, metavar="COURSE.ZIP")
    handout.add_argument(
        "--language", default=language.current(), help="of the notebooks, such as en (default %(default)s)"
    )
    handout.add_argument("--notebooks-only", action="store_true", help="for a shared installation of the course")
    handout.add_argument("--exam", type=Path, metavar="EXAM.TOML", help="an examination: its questions alone")

    grade = command("grade", _grade, "for instructors: mark what a class handed in")
    grade.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="my_kernels/, a .zip, or a class of them"
    )
    grade.add_argument("--out", type=Path, required=True, metavar="MARKS.CSV")
    grade.add_argument("--weights", type=Path, metavar="WEIGHTS.TOML", help="points by notebook and by exercise")
    grade.add_argument("--seed", type=_whole, help="of what is tried (default: at random, and written into the marks)")
    grade.add_argument("--jobs", type=_whole, default=2, help="texts judged at a time (default 2)")
    grade.add_argument("--exercises", type=Path, metavar="EXAM.TOML", help="mark this examination, not the course")
    grade.add_argument("--overrides", type=Path, metavar="CSV", help="student, exercise, points, reason")
    grade.add_argument("--no-sandbox", action="store_true", help="run the texts with your own rights")

    command("info", _info, "devices, measured limits, versions")
    return parser


def _number(text: str) -> float:
    """A number of the command line, as float."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"wanted a number such as 0.01, with a point; got {text!r}") from None


def _whole(text: str) -> int:
    """A whole number of the command line, from 0."""
    if not (text.isdecimal() and len(text) < 10):
        raise argparse.ArgumentTypeError(f"wanted a whole number from 0 to 999999999; got {text!r}")
    return int(text)


def _train(options: argparse.Namespace) -> int:
    return _together(options, _train_here)


def _test(options: argparse.Namespace) -> int:
    return _together(options, _test_here)


def _together(options: argparse.Namespace, work: Callable) -> int:
    """work(options, heart) in this process, or in several that this one starts, or that srun or mpiexec has started."""
    from nncourse.parallel.launch import start

    return start.run(options.arguments, options.processes, options.patience, lambda heart: work(options, heart))


def _train_here(options: argparse.Namespace, heart) -> int:
    from nncourse import datasets, device
    from nncourse.model import files, metrics, words
    from nncourse.model.network import make_network, refuse_other_layers
    from nncourse.model.training import train
    from nncourse.model.updates import make_schedule, usual_rate
    from nncourse.parallel.launch import member

    given = {name: getattr(options, name) for name in DEFAULTS if getattr(options, name) is not None}
    chosen = DEFAULTS | given
    resumed = files.load(options.resume) if options.resume else None
    seed = options.seed if options.seed is not None else _count_of("seed", resumed)
    if seed < 0:
        raise CourseError(f"wanted a seed of at least 0, got {seed}")
    if resumed:
        network = resumed.network
        for name in (*given, *["dropout"] * (options.dropout is not None)):
            raise CourseError(f"--resume goes on with the model's own {OPTION_WORDS[name]}: leave --{name} out")
        if options.layers is not None:
            refuse_other_layers(network, options.layers, f"--layers as in {options.resume}")
    elif options.layers is not None:
        names = chosen["activation"].split(",")
        activation = names if len(names) > 1 else names[0]
        layers = words.parsed(options.layers)
        layers = layers if options.dropout is None else words.with_dropout(layers, options.dropout)
        network = make_network(layers, activation, chosen["cost"], chosen["initialiser"], seed)
    else:
        raise CourseError(f"wanted --layers, such as --layers {words.EXAMPLE} (inputs first), or --resume MODEL")
    update = _update(options, resumed)
    refuse_unwritable(Path(options.model), "the model")
    files.refuse_text_form(network, update, Path(options.model))
    steps = {
        "batch_size": _from(options, "batch_size", resumed, 10),
        "learning_rate": _from(options, "learning_rate", resumed, usual_rate(update)),
        "schedule": _from(options, "schedule", resumed, "constant"),
        "seed": seed,
    }
    schedule = make_schedule(steps["schedule"], steps["learning_rate"])
    backend = _backend(options)
    group = member.join(backend.device, heart)
    data = member.first_one(
        group, lambda: datasets.load(options.dataset, inputs=network.sizes[0], outputs=network.sizes[-1])
    )
    data, held_out = datasets.split(data, options.validation, seed) if options.validation else (data, None)
    X = data.samples_for(network.input_shape)
    scaling = resumed.scaling if resumed else datasets.fit_scaling(X, chosen["scaling"])
    model = files.Model(network, scaling, data.classes, update=update)
    _say_backend(backend, options)
    print(f"scaling: {scaling.kind if scaling else 'none'}, saved with the model")
    print(f"update: {_in_words(update)}, learning rate {steps['learning_rate']:g}, schedule {steps['schedule']}")
    if group.size > 1:
        print(member.in_words(group, steps["batch_size"]))
    X, before = model.scaled(X), _count_of("epochs", resumed)
    held = (model.scaled(held_out.samples_for(network.input_shape)), held_out.Y) if held_out else None
    more = {"validation": held, "epochs_done": before, "progress": options.verbose, "group": group}
    more["synchronise"] = bool(network.statistics)
    more |= {"on_rows": heart.works} if heart else {}
    history = train(
        network, X, data.Y, backend, epochs=options.epochs, **(steps | {"schedule": schedule, "update": update}), **more
    )
    if heart:
        heart.rests()
    if history.epochs and not any(map(math.isfinite, history.costs)):
        raise CourseError(f"nothing was learnt, nothing is saved: {history.stopped}")
    model.provenance = {
        "dataset": data.name,
        "samples": len(data.X),
        "epochs": before + len(history.epochs),
        **steps,
        "backend": backend.name,
        "processes": group.size,
        "machine": device.describe(backend.device),
        "versions": device.versions(),
    }
    if group.rank == 0:
        note = "" if options.verbose or group.size > 1 else history.note  # several: said already
        for line in filter(None, (note, history.stopped)):
            print(f"nncourse: {line}", file=sys.stderr)
        files.save(model, options.model)
    if history.epochs:
        last = history.epochs[-1]
        on_held_out = f", on {len(held_out.X)} held-out samples {last.validation_cost:.6g}" if held_out else ""
        print(f"cost {last.cost:.6g} after epoch {last.number}{on_held_out}; {history.seconds:.2f} s of training")
    if group.size == 1 or not history.interrupted:  # else the others are waiting elsewhere
        M = metrics.confusion(network, X, data.Y, backend, group)
        print(f"accuracy on the training data {metrics.accuracy(M):.4f}")
    print(f"model: {options.model}")
    return 130 if history.interrupted else 1 if history.stopped else 0


def _test_here(options: argparse.Namespace, heart) -> int:
    from nncourse import datasets
    from nncourse.model import files, metrics
    from nncourse.model.training import evaluate
    from nncourse.parallel.launch import member

    model = files.load(options.model)
    backend = _backend(options)
    sizes = model.network.sizes
    part = "test" if options.dataset in datasets.MNIST_SETS else "train"  # all else comes in one part
    group = member.join(backend.device, heart)
    data = member.first_one(
        group, lambda: datasets.load(options.dataset, inputs=sizes[0], outputs=sizes[-1], part=part)
    )
    X = model.scaled(data.samples_for(model.network.input_shape))
    M = metrics.confusion(model.network, X, data.Y, backend, group)
    _say_backend(backend, options)
    there = model.network.on(backend)
    cost = evaluate(
        there, backend.to_device(X), backend.to_device(data.Y), backend, group, heart.works if heart else None
    )
    if heart:
        heart.rests()
    print(f"{data.name}: {len(X)} samples, network {model.network.in_words}, cost {cost:.6g}")
    classes = model.classes if len(model.classes) == len(M) else data.classes
    if options.verbose:
        print("confusion matrix (a row a class, a column a prediction):")
        print("\n".join("  " + " ".join(f"{count:6d}" for count in row) for row in M))
    print(metrics.report(M, classes))
    if len(M) == 2:
        values = metrics.precision(M)[1], metrics.recall(M)[1], metrics.f1(M)[1]
        print(f"for {classes[1]}: precision {values[0]:.4f}, recall {values[1]:.4f}, F1 {values[2]:.4f}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from nnclassroom.exercises.catalogue import find
    from nnclassroom.judge.check import check
    from nncourse.catalogue import epochs, operations

    chosen = [find(options.operation)] if options.operation else (operations() | epochs()).values()
    known = dict.fromkeys(name for operation in chosen for name in operation.kernels)
    for name in options.kernel:
        refuse_unknown("a kernel", name, known)
    count = {"right": 0, "wrong": 0, "not checked": 0}
    for operation in chosen:
        for name in [name for name in operation.kernels if name in options.kernel or not options.kernel]:
            kernel = operation[name]
            if reason := _why_not(kernel, options.emulate):
                print(f"– {operation.name} ({name}): not checked, {reason}")
                count["not checked"] += 1
                continue
            verdict = check(operation, name, device="emulator" if options.emulate and kernel.cuda else None)
            print(verdict, flush=True)
            count["right" if verdict else "wrong"] += 1
    print(", ".join(f"{number} {COUNT_WORDS[kind]}" for kind, number in count.items()))
    return 1 if count["wrong"] else 0


def _why_not(kernel, emulate: bool) -> str:
    """Why a kernel cannot be checked on this machine, or "" if it can. CUDA C runs on a GPU or on the emulator."""
    from cuda_on_cpu import emulate as emulator
    from nncourse import device

    if kernel.device == "cpu" or (device.gpu_available() and not emulate):
        return kernel.missing()
    return (emulator.why_not() or "") if kernel.cuda else "it needs a GPU"


def _time(options: argparse.Namespace) -> int:
    from nnclassroom import timing
    from nnclassroom.exercises.catalogue import find
    from nncourse.catalogue import epochs, operations

    sizes = {}
    for text in options.size:
        name, _, number = text.partition("=")
        if not number.isdecimal() or len(number) > 9:
            raise CourseError(f"wanted --size NAME=N with N from 0 to 999999999, such as batch=64; got {text!r}")
        sizes[name] = int(number)
    for operation in [find(options.operation)] if options.operation else (operations() | epochs()).values():
        rows = timing.time_kernels(operation, sizes, options.kernel)
        print(timing.table(operation, rows, timing.default_sizes(operation) | sizes), end="\n\n", flush=True)
    return 0


def _progress(options: argparse.Namespace) -> int:
    from nnclassroom.exercises.hints import progress_lines

    print("\n".join(progress_lines()))
    return 0


def _report(options: argparse.Namespace) -> int:
    from nnclassroom.notebook import report

    refuse_unwritable(Path(options.out), "the report")
    report.write(Path(options.out), options.name, options.dataset, options.epochs)
    print(f"report: {options.out}")
    return 0


def _experiment(options: argparse.Namespace) -> int:
    import functools

    from nnclassroom.experiment import page as experiment_page
    from nnclassroom.experiment import plan as experiment
    from nnclassroom.experiment import runs
    from nncourse.parallel.launch import start

    if options.only:
        work = functools.partial(runs.run_here, options.out, options.only)
        return start.run(options.arguments, None, options.patience, work)
    start.refuse_patience(options.patience)
    height, _, width = options.size.partition("x")
    if not (height.isdecimal() and width.isdecimal() and len(options.size) < 12):
        raise CourseError(f"wanted --size HEIGHTxWIDTH, such as 148x197; got {options.size!r}")
    names = "network", "runs", "epochs", "batch_size", "learning_rate", "images", "seed", "cpu_steps", "send", "pause"
    sides = {"height": int(height), "width": int(width)}
    plan = experiment.Plan(**{name: getattr(options, name) for name in names}, **sides)
    wanted = experiment.parsed_devices(options.devices)
    begin = functools.partial(runs.begin, plan.network, patience=options.patience)
    status = runs.run_all(plan, wanted, options.out, begin, functools.partial(print, flush=True))
    if status:
        return status
    page = options.out / "experiment.html"
    experiment_page.write(page, plan, runs.results_in(options.out, plan, wanted))
    print(f"experiment: {page}")
    return 0


def _submit(options: argparse.Namespace) -> int:
    from nnclassroom.marking import submission

    count = submission.pack(options.out, options.name)
    print(f"{options.out}: {count} {'kernel' if count == 1 else 'kernels'} to hand in")
    return 0


def _handout(options: argparse.Namespace) -> int:
    from nnclassroom.handing_out import handout

    print(handout.write(options.out, options.language, options.notebooks_only, options.exam))
    return 0


def _update_course(options: argparse.Namespace) -> int:
    from nnclassroom.handing_out import update

    print("\n".join(update.update(options.handout, options.folder)))
    return 0


def _grade(options: argparse.Namespace) -> int:
    from nnclassroom.marking import grade

    if options.no_sandbox:
        print("--no-sandbox: every text runs with your rights, and could write its own marks")
    grade.grade(
        options.folders,
        options.out,
        options.weights,
        options.seed,
        options.jobs,
        options.exercises,
        options.overrides,
        not options.no_sandbox,
        say=lambda line: print(line, flush=True),
    )
    print(f"marks: {options.out}")
    return 0


def _info(options: argparse.Namespace) -> int:
    from cuda_on_cpu import emulate
    from nnclassroom.timing import limits_in_words
    from nncourse import device

    for name in ("cpu", "gpu") if device.gpu_available() else ("cpu",):
        print(f"{name.upper()}: {device.describe(name)}")
        print(f"     {limits_in_words(name)}")
    if not device.gpu_available():
        print(f"GPU: none. {device.why_no_gpu()}")
    print(f"CUDA emulator: {emulate.why_not() or 'ready'}")
    print("versions: " + ", ".join(f"{name} {version}" for name, version in device.versions().items()))
    return 0


def _update(options: argparse.Namespace, resumed):
    """The update that the options ask for, or the resumed model's own update with its state."""
    from nncourse.model.updates import make_update

    given = {name: value for name in ("update", "momentum", "l2") if (value := getattr(options, name)) is not None}
    if resumed:
        for name in given:
            raise CourseError(f"--resume goes on with the model's own update: leave --{name} out")
        return resumed.update
    return make_update(given.pop("update", "sgd"), **given)


def _in_words(update) -> str:
    """The update and its options that are not 0: "sgd with momentum 0.9 and l2 0.0001"."""
    about = update.describe()
    options = [f"{name} {value:g}" for name, value in about.items() if name != "kind" and value]
    return " with ".join(filter(None, (about["kind"], " and ".join(options))))


def _from(options: argparse.Namespace, name: str, resumed, default):
    """An option of training: as given, else from the resumed model, else the default."""
    if (given := getattr(options, name)) is not None:
        return given
    known = resumed.provenance.get(name, default) if resumed else default
    if type(known) is not type(default) and not (isinstance(known, int) and isinstance(default, float)):
        raise CourseError(f"the model to resume says {name}: {known!r}; wanted a value such as {default!r}")
    return known


def _count_of(name: str, model) -> int:
    """A whole number from the provenance of the resumed model, or 0."""
    number = model.provenance.get(name, 0) if model else 0
    if not isinstance(number, int) or number < 0:
        raise CourseError(f"the model to resume says {name}: {number!r}; wanted a whole number of at least 0")
    return number


def _backend(options: argparse.Namespace):
    """The backend that the options ask for."""
    from nnclassroom.exercises.catalogue import find
    from nnclassroom.exercises.own_backend import choose

    pairs = [pair.partition("=") for text in options.use for pair in text.split(",")]
    overrides = {find(operation).name: kernel for operation, _, kernel in pairs}
    return choose(options.backend, mine=options.mine, **overrides)


def _say_backend(backend, options: argparse.Namespace) -> None:
    """Print all kernels with --verbose; otherwise the backend's name and the kernels that have a note."""
    if options.verbose:
        print(backend)
        return
    print(f"backend: {backend.name}")
    for operation, note in backend.notes.items():
        kernel = backend.kernels.get(operation) or backend.epochs.get(operation)
        print(f"  {operation}: {kernel.name if kernel else 'steps'}, {note}")
    if options.mine and not backend.yours:
        print(f"  none of your own kernels is for the {backend.device.upper()}: the course's are used")
