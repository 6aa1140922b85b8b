"""`nncourse train`: train a network and save it."""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnclassroom.arguments import number, whole
from nnclassroom.commands import networks
from nncourse.errors import CourseError, refuse_unwritable

if TYPE_CHECKING:
    from nncourse.model.files import Model
    from nncourse.model.network import Network
    from nncourse.model.optimizers import Optimizer
    from nncourse.parallel.launch.heartbeat import Heartbeat

DEFAULTS = networks.DEFAULTS | {"initialiser": "xavier", "scaling": "standardization"}
SCHEDULES = "constant, step,EPOCHS,FACTOR, exponential,FACTOR, cosine,EPOCHS[,WARM] or warmup,EPOCHS"


def add_options(parser: ArgumentParser) -> None:
    networks.add_options(parser)
    add = parser.add_argument
    add(
        "--layers",
        help="inputs and neurons per layer: 30,60,10,1; for images image1x28x28,conv4x2same,pool4,128,10; for "
        "sequences tokens12x12,embed64,block4x256,12 (default for the data sets sums and text: layers that fit them)",
    )
    add("--dropout", type=number, help="dropout rate after each hidden dense layer: the share of activations set to 0")
    add("--epochs", type=whole, help="number of epochs (default 100)")
    add(
        "--batch-size",
        "--batch_number",
        "--batch_size",
        type=whole,
        help="number of samples per step, of all processes together (default 10)",
    )
    add(
        "--learning-rate",
        "--learning_rate",
        type=number,
        help="learning rate (default: the optimizer's usual one, 0.1 for sgd)",
    )
    networks.add_steps(parser)
    add("--schedule", help=f"schedule of the learning rate: {SCHEDULES} (default constant)")
    add("--initialiser", help="distribution of the first weights: xavier (default), he, normal or uniform")
    add("--scaling", help="scaling of the inputs: none, normalization or standardization (default)")
    add("--validation", type=number, default=0.0, help="share of the samples kept out of training (default 0)")
    add(
        "--plan",
        help="how to compute an epoch: operations (one by one), recorded, … (default: the first that fits)",
    )
    add(
        "--resume",
        metavar="MODEL",
        help="model file from which to resume training, with its layers, scaling, optimizer and rates",
    )
    add("-s", "--seed", type=int, help="seed for the weights, the split and the order of samples (default 0)")


def run(options: Namespace) -> int:
    return networks.together(options, train)


def train(options: Namespace, heart: Heartbeat | None) -> int:
    """Train and save; the exit status."""
    from nncourse import datasets, device, threads
    from nncourse.model import files, metrics, training
    from nncourse.model.data_parallel import Together
    from nncourse.model.network import OF_TOKENS, threads_for
    from nncourse.model.optimizers import make_schedule

    _take_usual(options)
    resumed = files.load(options.resume) if options.resume else None
    seed = options.seed if options.seed is not None else _count_of("seed", resumed)
    if seed < 0:
        raise CourseError(f"expected a seed of at least 0, got {seed}")
    network = _network(options, resumed, seed)
    optimizer = _optimizer(options, resumed)
    refuse_unwritable(Path(options.model), "the model")
    files.refuse_text_form(network, optimizer, Path(options.model))
    steps = {
        "batch_size": _from(options, "batch_size", resumed, 10),
        "learning_rate": _from(options, "learning_rate", resumed, optimizer.usual_rate),
        "schedule": _from(options, "schedule", resumed, "constant"),
        "seed": seed,
    }
    backend = networks.backend_for(options)
    sizes = math.prod(network.target_shape), network.sizes[0]
    load = partial(datasets.load, options.dataset, *sizes, shape=network.input_shape)
    label = networks.label_of(options, resumed)
    group, data = networks.joined(backend.device, heart, lambda: load(label=label))
    datasets.refuse_single_class(data)
    networks.say_notes(data, group)
    data, held_out = datasets.split(data, options.validation, seed) if options.validation else (data, None)
    X = data.samples_for(network.input_shape)
    scaling = resumed.scaling if resumed else datasets.fit_scaling(X, _chosen(options, "scaling"))
    model = files.Model(network, scaling, data.classes, optimizer=optimizer)
    networks.say_backend(backend, options)
    print(f"scaling: {scaling.kind if scaling else 'none'}, saved with the model")
    said = f"optimizer: {networks.optimizer_in_words(optimizer)}, learning rate {steps['learning_rate']:g}"
    print(f"{said}, schedule {steps['schedule']}")
    if group.size > 1:
        from nncourse.parallel.launch import member

        print(member.in_words(group, steps["batch_size"]))
    taken = threads_for(network, steps["batch_size"] / group.size, backend, options.threads)
    if backend.device == "cpu":
        print(f"threads: {taken}")
    X, before = model.scaled(X), _count_of("epochs", resumed)
    held = (model.scaled(held_out.samples_for(network.input_shape)), held_out.Y) if held_out else None
    rate = make_schedule(steps["schedule"], steps["learning_rate"])
    on_rows = heart.works if heart else None
    how = {"batch_size": steps["batch_size"], "learning_rate": rate, "optimizer": optimizer, "seed": seed}
    how |= {"validation": held, "plan": options.plan, "after": training.History(before=before)}
    how |= {"together": Together(group, synchronise=bool(network.statistics), on_rows=on_rows)}
    shown = options.verbose and group.rank == 0
    with threads.asked(options.threads), training.ProgressBar(options.epochs, shown) as bar:
        history = training.train(network, X, data.Y, backend, epochs=options.epochs, on_epoch=bar, **how)
    if heart:
        heart.rests()
    if history.epochs and not any(map(math.isfinite, history.costs)):
        raise CourseError(f"the network learned nothing, so nothing is saved: {history.stopped}")
    model.provenance = {
        "dataset": data.name,
        "samples": len(data.X),
        **({"label": label} if label else {}),
        "epochs": before + len(history.epochs),
        **steps,
        "backend": backend.name,
        "processes": group.size,
        "threads": history.threads,
        "machine": device.describe(backend.device),
        "versions": device.versions(),
    }
    if group.rank == 0:
        note = history.note if group.size == 1 or options.verbose else ""  # several: said already
        for line in filter(None, (note, history.stopped)):
            print(f"nncourse: {line}", file=sys.stderr)
        files.save(model, options.model)
    if history.epochs:
        last = history.epochs[-1]
        by = f" with {history.threads} threads" if history.threads > 1 else ""
        on_held_out = f", on {len(held_out.X)} held-out samples {last.validation_cost:.6g}" if held_out else ""
        print(f"cost {last.cost:.6g} after epoch {last.number}{on_held_out}; {history.seconds:.2f} s of training{by}")
    if group.size == 1 or not history.interrupted:  # else the others are waiting elsewhere
        if network.cost != OF_TOKENS:
            M = metrics.confusion(network, X, data.Y, backend, group, options.threads)
            print(f"accuracy on the training data {metrics.accuracy(M):.4f}")
        elif datasets.has_test_part(options.dataset):
            unseen = load(part="test")
            right = networks.tokens_in_words(model, unseen, backend, group, options)
            print(f"on {len(unseen.X)} unseen samples {right}")
        else:
            print(f"on the training data {networks.tokens_in_words(model, data, backend, group, options)}")
    print(f"model: {options.model}")
    return 130 if history.interrupted else 1 if history.stopped else 0


def _take_usual(options: Namespace) -> None:
    """Fill in what is not given: for a set of sequences what fits it, unless a model is resumed; and the epochs."""
    from nncourse import datasets

    if datasets.is_sequences(options.dataset) and not options.resume:
        for name, value in datasets.sequences.usual_options(options.dataset).items():
            if getattr(options, name) is None:
                setattr(options, name, value)
    if options.epochs is None:
        options.epochs = 100


def _network(options: Namespace, resumed: Model | None, seed: int) -> Network:
    """The resumed model's network, or a new one that the options describe."""
    from nncourse.model import words
    from nncourse.model.network import make_network, refuse_other_layers

    if resumed:
        for name in (*DEFAULTS, "dropout"):
            if getattr(options, name) is not None:
                raise CourseError(f"--resume continues with the model as it is: leave --{name} out")
        if options.layers is not None:
            refuse_other_layers(resumed.network, options.layers, f"--layers as in {options.resume}")
        return resumed.network
    if options.layers is None:
        raise CourseError(f"expected --layers, such as --layers {words.EXAMPLE} (inputs first), or --resume MODEL")
    activation, cost, initialiser = (_chosen(options, name) for name in ("activation", "cost", "initialiser"))
    layers = words.parsed(options.layers)
    layers = layers if options.dropout is None else words.with_dropout(layers, options.dropout)
    return make_network(layers, networks.one_or_more(activation), cost, initialiser, seed)


def _chosen(options: Namespace, name: str) -> str:
    """An option of the network as given, or its default."""
    given = getattr(options, name)
    return DEFAULTS[name] if given is None else given


def _optimizer(options: Namespace, resumed: Model | None) -> Optimizer:
    """The optimizer that the options ask for, or the resumed model's own one with its state."""
    if not resumed:
        return networks.optimizer_of(options)
    for name in networks.OPTIMIZER_OPTIONS:
        if getattr(options, name) is not None:
            raise CourseError(f"--resume continues with the model as it is: leave --{name} out")
    return resumed.optimizer


def _from(options: Namespace, name: str, resumed: Model | None, default: Any) -> Any:
    """An option of training: as given, else from the resumed model, else the default."""
    if (given := getattr(options, name)) is not None:
        return given
    known = resumed.provenance.get(name, default) if resumed else default
    if type(known) is not type(default) and not (isinstance(known, int) and isinstance(default, float)):
        raise CourseError(f"the model to resume says {name}: {known!r}; expected a value such as {default!r}")
    return known


def _count_of(name: str, model: Model | None) -> int:
    """A whole number from the provenance of the resumed model, or 0."""
    count = model.provenance.get(name, 0) if model else 0
    if not isinstance(count, int) or count < 0:
        raise CourseError(f"the model to resume says {name}: {count!r}; expected a whole number of at least 0")
    return count
