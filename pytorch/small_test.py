"""The Cantabria thesis's small test (its table 3.1): MNIST, 784-192-10, eight epochs in batches of 50, SGD 0.5.

    python pytorch/small_test.py

Its PyTorch program (3.1) has the cost `MSELoss(reduction='mean')`; that of its TensorFlow program (3.2) is not printed,
its activations are sigmoid and softmax. Table 3.1 has 90 % for PyTorch, and 95 % for TensorFlow. Here PyTorch trains
with 3.1's cost and with cross-entropy: the difference is the cost, not the framework. A mean over ten outputs makes the
step a fifth of that of 1/2 the sum of squares, and a sigmoid that is wrong and sure has hardly a slope. nncourse trains
with the same two costs; Keras, where TensorFlow is installed, as in 3.2. PyTorch takes a GPU if there is one, too.
"""

import functools
import importlib.util
import time
from collections.abc import Callable

import numpy as np

from nncourse import choose, datasets, make_network, metrics
from nncourse import train as train_here

EPOCHS, BATCH, RATE = 8, 50, 0.5
MSE, CROSS = "MSE, mean", "cross-entropy"
Data = tuple[np.ndarray, np.ndarray]  # pixels from 0 to 1, and labels
Train = Callable[[Data, Data], tuple[float, float]]  # seconds of training, and the share of test digits that is right


def by_pytorch(cost: str, device: str, learn: Data, test: Data) -> tuple[float, float]:
    import torch
    from torch import nn

    torch.manual_seed(1)
    last = nn.Sigmoid() if cost == MSE else nn.Identity()  # CrossEntropyLoss has the softmax in it
    network = nn.Sequential(nn.Linear(784, 192), nn.Sigmoid(), nn.Linear(192, 10), last).to(device)
    cost_of = nn.MSELoss(reduction="mean") if cost == MSE else nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    X, targets = torch.tensor(learn[0]).to(device), torch.eye(10)[torch.tensor(learn[1]).long()].to(device)
    start = time.perf_counter()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(X)).to(device).split(BATCH):
            optimizer.zero_grad()
            cost_of(network(X[rows]), targets[rows]).backward()
            optimizer.step()
    said = network(torch.tensor(test[0]).to(device)).argmax(1).cpu().numpy()  # waits for a GPU
    return time.perf_counter() - start, float((said == test[1]).mean())


def by_keras(learn: Data, test: Data) -> tuple[float, float]:
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(192, "sigmoid"), keras.layers.Dense(10, "softmax")]
    network = keras.Sequential(layers)
    network.compile(keras.optimizers.SGD(RATE), "sparse_categorical_crossentropy")
    start = time.perf_counter()
    network.fit(*learn, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    seconds = time.perf_counter() - start
    return seconds, float((network.predict(test[0], verbose=0).argmax(1) == test[1]).mean())


def by_nncourse(cost: str, learn: Data, test: Data) -> tuple[float, float]:
    """Its "mse" is 1/2 the sum over the outputs, five times the mean of 3.1: a fifth of the rate is the same step."""
    name, rate = ("mse", RATE / 5) if cost == MSE else ("categorical_cross_entropy", RATE)
    network = make_network((784, 192, 10), "sigmoid", name, seed=1)
    eye, backend = np.eye(10, dtype=np.float32), choose("numba")
    options = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": rate, "seed": 1}
    history = train_here(network, learn[0], eye[learn[1]], backend, **options)
    return history.seconds, metrics.accuracy(metrics.confusion(network, test[0], eye[test[1]], backend))


def ways() -> dict[str, Train]:
    """What trains here, by the words for it."""
    found: dict[str, Train] = {}
    if importlib.util.find_spec("torch"):
        import torch

        for device in ["cpu", *["cuda"] * torch.cuda.is_available()]:
            for cost in (MSE, CROSS):
                found[f"PyTorch, {device}, {cost}"] = functools.partial(by_pytorch, cost, device)
    if importlib.util.find_spec("tensorflow"):
        found[f"Keras, {CROSS}"] = by_keras
    return found | {f"nncourse, {cost}": functools.partial(by_nncourse, cost) for cost in (MSE, CROSS)}


def main() -> None:
    parts = [datasets.load("mnist", part=part) for part in ("train", "test")]
    learn, test = ((part.X, part.labels) for part in parts)
    for name, train in ways().items():
        seconds, right = train(learn, test)
        print(f"{name:30} {seconds:5.1f} s  {right:.1%} right", flush=True)
    print("table 3.1: PyTorch 90 %, TensorFlow 95 % on the CPU and 96 % on the GPU")


if __name__ == "__main__":
    main()
