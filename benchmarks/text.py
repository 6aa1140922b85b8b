"""Train a transformer on the course's prose, for notebook 15b: python -m benchmarks.text writes results/text.json.

In each language, over several seeds, it measures the cost on unseen windows after each epoch. It also records how the
network of the first seed continues a beginning after some epochs. First write the notebooks of the other languages with
tools/translate.py write es. No time is recorded; with an NVIDIA GPU the run takes a minute.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks import machines
from benchmarks.saved import RESULTS, refuse_out, save
from nncourse import datasets, device, language
from nncourse.backend import Backend, choose
from nncourse.datasets_sequences import CHARACTERS, decoded, encoded
from nncourse.model.generation import generate
from nncourse.model.network import make_network
from nncourse.model.optimizers import Adam, cosine_decay
from nncourse.model.training import History, train

LENGTH, WIDTH, BLOCKS, HEADS, BATCH, RATE, WARM = 128, 128, 4, 4, 32, 0.001, 2
KINDS = len(CHARACTERS)
WORDS = ",".join(
    [f"tokens{LENGTH}x{KINDS}", f"embed{WIDTH}", *[f"block{HEADS}x{4 * WIDTH}"] * BLOCKS, "layernorm", str(KINDS)]
)
BEGINNINGS = {"en": "A network ", "es": "Una red "}
CONTINUED, TEMPERATURE = 110, 0.7  # LENGTH at most with the beginning


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--shown", default="1,5,20", help="epochs after which a beginning is continued (default 1,5,20)"
    )
    parser.add_argument("--languages", default="en,es")
    parser.add_argument("--out", type=Path, default=RESULTS / "text.json")
    options = parser.parse_args(arguments)
    refuse_out(parser, options.out)
    on = "gpu" if device.gpu_available() else "cpu"
    backend = choose("cuda" if on == "gpu" else "numpy")
    shown = {int(epoch) for epoch in options.shown.split(",")}
    records = []
    for name in options.languages.split(","):
        os.environ[language.VARIABLE] = name
        for seed in range(1, options.seeds + 1):
            records.append(record(name, seed, options.epochs, shown if seed == 1 else set(), backend))
            print(f"{name}, seed {seed}: cost {records[-1]['costs'][-1]:.3f}", *records[-1]["texts"].values(), sep="\n")
    about = {"words": WORDS, "batch": BATCH, "rate": RATE, "warm": WARM, "temperature": TEMPERATURE}
    save(machines.about(on) | about | {"records": records}, options.out)
    return 0


def record(name: str, seed: int, epochs: int, shown: set[int], backend: Backend) -> dict[str, Any]:
    """Train a network on the prose of a language: the costs on unseen windows, and texts after the epochs `shown`."""
    learn, unseen = (datasets.text(LENGTH, part) for part in ("train", "test"))
    network, history, optimizer = make_network(WORDS, cost="token_cross_entropy", seed=seed), History(), Adam()
    costs, texts, begin = [], {}, encoded(BEGINNINGS[name], CHARACTERS)
    for epoch in range(1, epochs + 1):
        history = train(
            network, learn.X, learn.Y, backend, epochs=1, batch_size=BATCH, optimizer=optimizer, seed=seed,
            learning_rate=cosine_decay(RATE, epochs, min(WARM, epochs)), after=history, validation=(unseen.X, unseen.Y),
        )  # fmt: skip
        costs.append(history.validation_costs[-1])
        if epoch in shown:
            texts[str(epoch)] = decoded(generate(network, begin, backend, CONTINUED, TEMPERATURE, seed), CHARACTERS)
    windows = {"learnt": len(learn.X), "unseen": len(unseen.X)}
    return {"language": name, "seed": seed, "windows": windows, "costs": costs, "texts": texts}


if __name__ == "__main__":
    sys.exit(main())
