"""`nncourse test`: a saved network's results on data."""

from __future__ import annotations

import functools
from argparse import Namespace
from math import prod
from typing import TYPE_CHECKING

from nnclassroom.commands import networks

if TYPE_CHECKING:
    from nncourse.parallel.launch.heartbeat import Heartbeat

add_options = networks.add_options


def run(options: Namespace) -> int:
    return networks.together(options, test)


def test(options: Namespace, heart: Heartbeat | None) -> int:
    """Print cost and metrics; the exit status."""
    from nncourse import datasets
    from nncourse.model import files, metrics
    from nncourse.model.network import OF_TOKENS
    from nncourse.model.training import evaluate

    model = files.load(options.model)
    backend = networks.backend_for(options)
    part = "test" if datasets.has_test_part(options.dataset) else "train"
    widths = {"inputs": model.network.sizes[0], "outputs": prod(model.network.target_shape)}
    label, shape = networks.label_of(options, model), model.network.input_shape
    load = functools.partial(datasets.load, options.dataset, **widths, part=part, label=label, shape=shape)
    group, data = networks.joined(backend.device, heart, load)
    networks.say_notes(data, group)
    X = model.scaled(data.samples_for(model.network.input_shape))
    networks.say_backend(backend, options)
    there = model.network.on(backend)
    there_too = backend.to_device(X), backend.to_device(data.Y)
    cost = evaluate(there, *there_too, backend, group, heart.works if heart else None, options.threads)
    if heart:
        heart.rests()
    print(f"{data.name}: {len(X)} samples, network {model.network.in_words}, cost {cost:.6g}")
    if model.network.cost == OF_TOKENS:
        print(networks.tokens_in_words(model, data, backend, group, options))
        return 0
    M = metrics.confusion(model.network, X, data.Y, backend, group, options.threads)
    classes = model.classes if len(model.classes) == len(M) else data.classes
    if options.verbose:
        print("confusion matrix (rows: true class, columns: predicted class):")
        print("\n".join("  " + " ".join(f"{count:6d}" for count in row) for row in M))
    print(metrics.report(M, classes))
    if len(M) == 2:
        values = metrics.precision(M)[1], metrics.recall(M)[1], metrics.f1(M)[1]
        print(f"for {classes[1]}: precision {values[0]:.4f}, recall {values[1]:.4f}, F1 {values[2]:.4f}")
    return 0
