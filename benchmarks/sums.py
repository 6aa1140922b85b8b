"""Train three networks to add, for notebook 15: python -m benchmarks.sums writes results/sums.json.

A transformer, the same transformer without positions, and a dense network with as many parameters. Each epoch ends with
the share of unseen sums that are right in all digits. No time is recorded: OMP_NUM_THREADS=1 disturbs others least.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.compare import versions
from benchmarks.saved import RESULTS, refuse_out, save
from nncourse import datasets, device
from nncourse.backend import choose
from nncourse.model.network import Network, make_network
from nncourse.model.optimizers import Adam, cosine_decay
from nncourse.model.training import History, train

DIGITS, SUMS, EPOCHS, BATCH, RATE, WARM = 3, 12_800, 12, 128, 0.001, 2
LONG = 12  # times as many epochs: a transformer uses a weight at 12 positions, a dense network once for each sample
BLOCKS = "block4x256,block4x256,layernorm,12"
WORDS = {
    "transformer": f"tokens12x12,embed64,{BLOCKS}",
    "without positions": f"tokens12x12,embed64unordered,{BLOCKS}",
    "dense": "60,273,273,40",
    "dense, longer": "60,273,273,40",
}
Samples = tuple[np.ndarray, np.ndarray]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="number of epochs; a few test that it runs")
    parser.add_argument("--out", type=Path, default=RESULTS / "sums.json")
    options = parser.parse_args(arguments)
    refuse_out(parser, options.out)
    records = []
    for name in WORDS:
        for seed in range(1, options.seeds + 1):
            records.append(record(name, seed, options.epochs * (LONG if "longer" in name else 1)))
            print(f"{name}, seed {seed}: {records[-1]['right'][-1]:.1%} right", flush=True)
    found = {"machine": device.describe("cpu"), "versions": versions(), "batch": BATCH, "rate": RATE, "warm": WARM}
    save(found | {"records": records}, options.out)
    return 0


def record(name: str, seed: int, epochs: int) -> dict:
    """Train a network; the shares of unseen sums that are right after each epoch, and of each digit at the end."""
    learn, unseen = (datasets.sums(DIGITS, part, SUMS) for part in ("train", "test"))
    backend, history, optimizer = choose("numpy"), History(), Adam()
    dense = name.startswith("dense")
    samples: Callable[[datasets.Dataset], Samples] = one_hot if dense else lambda data: (data.X, data.Y)
    network = new_network(name, seed)
    right = []
    for _ in range(epochs):
        history = train(
            network, *samples(learn), backend, epochs=1, batch_size=BATCH, optimizer=optimizer, seed=seed,
            learning_rate=cosine_decay(RATE, epochs, min(WARM, epochs)), after=history,
        )  # fmt: skip
        there = digits_right(network, samples(unseen)[0], unseen)
        right.append(float(there.all(axis=1).mean()))
    about = {"network": name, "words": WORDS[name], "parameters": network.flat_parameters.size, "seed": seed}
    shares = there.mean(axis=0).tolist()  # the last digit of the sum first
    return about | {"right": right, "digits": shares}


def new_network(name: str, seed: int) -> Network:
    if name.startswith("dense"):
        return make_network(WORDS[name], "relu", "binary_cross_entropy", "he", seed)
    return make_network(WORDS[name], cost="token_cross_entropy", seed=seed)


def one_hot(data: datasets.Dataset) -> Samples:
    """The digits of the two numbers, ten inputs for each, and those of the sum, ten outputs for each."""
    tokens = data.X.astype(int)
    numbers = np.concatenate([tokens[:, :DIGITS], tokens[:, DIGITS + 1 : 2 * DIGITS + 1]], axis=1)
    X, Y = (np.eye(10, dtype=np.float32)[each] for each in (numbers, tokens[:, 2 * DIGITS + 2 :]))
    return X.reshape(len(X), -1), Y.reshape(len(Y), -1)


def digits_right(network: Network, X: np.ndarray, data: datasets.Dataset) -> np.ndarray:
    """Which digits of the sums are right; a transformer sees the right ones before each."""
    outputs, first = network.predict(X, choose("numpy")), 2 * DIGITS + 1
    said = outputs.reshape(len(X), DIGITS + 1, 10) if outputs.ndim == 2 else outputs[:, first:-1]
    return said.argmax(axis=2) == data.X[:, first + 1 :]


if __name__ == "__main__":
    sys.exit(main())
