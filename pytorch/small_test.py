"""The Cantabria thesis's small test (its table 3.1): MNIST, 784-192-10, eight epochs in batches of 50, SGD 0.5.

`python pytorch/small_test.py` trains it by PyTorch, by Keras where TensorFlow is installed, and by nncourse, on the
CPU. The hidden layer's activation is not stated there: sigmoid here.
"""

import importlib.util
import time

import numpy as np

from nncourse import choose, datasets, make_network, metrics
from nncourse import train as train_here

EPOCHS, BATCH, RATE = 8, 50, 0.5
Data = tuple[np.ndarray, np.ndarray]  # pixels from 0 to 1, and labels


def by_pytorch(learn: Data, test: Data) -> tuple[float, float]:
    """Seconds of training, and the share of test digits that is right."""
    import torch
    from torch import nn

    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(784, 192), nn.Sigmoid(), nn.Linear(192, 10))
    optimizer = torch.optim.SGD(network.parameters(), RATE)
    X, labels = torch.tensor(learn[0]), torch.tensor(learn[1]).long()
    start = time.perf_counter()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(X)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(X[rows]), labels[rows]).backward()
            optimizer.step()
    seconds = time.perf_counter() - start
    said = network(torch.tensor(test[0])).argmax(1).numpy()
    return seconds, float((said == test[1]).mean())


def by_keras(learn: Data, test: Data) -> tuple[float, float]:
    """The same by Keras."""
    import keras

    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(192, "sigmoid"), keras.layers.Dense(10, "softmax")]
    network = keras.Sequential(layers)
    network.compile(keras.optimizers.SGD(RATE), "sparse_categorical_crossentropy")
    start = time.perf_counter()
    network.fit(*learn, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    seconds = time.perf_counter() - start
    return seconds, float((network.predict(test[0], verbose=0).argmax(1) == test[1]).mean())


def by_nncourse(learn: Data, test: Data) -> tuple[float, float]:
    """The same by the course's kernels."""
    network = make_network((784, 192, 10), "sigmoid", "categorical_cross_entropy", seed=1)
    eye, backend = np.eye(10, dtype=np.float32), choose("numpy")
    options = {"epochs": EPOCHS, "batch_size": BATCH, "learning_rate": RATE, "seed": 1}
    history = train_here(network, learn[0], eye[learn[1]], backend, **options)
    return history.seconds, metrics.accuracy(metrics.confusion(network, test[0], eye[test[1]], backend))


def main() -> None:
    parts = [datasets.load("mnist", part=part) for part in ("train", "test")]
    learn, test = ((part.X, part.labels) for part in parts)
    ways = {"torch": by_pytorch, "tensorflow": by_keras, "nncourse": by_nncourse}
    for name, train in ways.items():
        if importlib.util.find_spec(name) is None:
            print(f"{name:10} not installed")
            continue
        seconds, right = train(learn, test)
        print(f"{name:10} {seconds:6.1f} s, {right:.1%} of the test digits are right")


if __name__ == "__main__":
    main()
