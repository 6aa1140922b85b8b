"""Find the data sets that benchmarks train on, in $NNCOURSE_DATA. Nothing is downloaded. Not a command."""

import os
from pathlib import Path

import numpy as np

from benchmarks.workers import FailedError
from nncourse import datasets

MNIST_SAMPLES = 50_000  # the book uses the other 10,000 of the training set for validation


def data_folder(name: str) -> Path:
    """$NNCOURSE_DATA/name. Raises FailedError if it does not exist, because benchmarks download nothing."""
    root = os.environ.get("NNCOURSE_DATA")
    folder = Path(root or "") / name
    if not root or not folder.is_dir():
        raise FailedError(f"expected NNCOURSE_DATA to name a folder with {name}/; got {root or 'nothing'}")
    return folder


def standardised_mnist() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images and targets of the first MNIST_SAMPLES, images and labels of the test set; one mean and one deviation."""
    folder = data_folder("mnist")
    training, test = (datasets.mnist(part, folder) for part in ("train", "test"))
    X = training.images[:MNIST_SAMPLES]
    scaling = datasets.fit_scaling(X, "standardization")
    return scaling.apply(X), training.Y[:MNIST_SAMPLES], scaling.apply(test.images), test.labels
