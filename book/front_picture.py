"""Make README.md's picture, with the same steps as notebook 00: python -m book.front_picture."""

import io
from types import ModuleType
from typing import TYPE_CHECKING

from book.editions import ENGLISH, ROOT, edition

if TYPE_CHECKING:
    from PIL import Image

PICTURE = "docs/start_here.png"
SIZES = (30, 60, 10, 1)
HEIGHT = 340  # pixels


def picture(words: ModuleType) -> bytes:
    """The network, its cost over the epochs and its confusion matrix in a row, as PNG, with an edition's words."""
    from PIL import Image

    images = [_image(figure) for figure in _figures(words)]
    row = Image.new("RGB", (sum(image.width for image in images), HEIGHT), "white")
    left = 0
    for image in images:
        row.paste(image, (left, 0))
        left += image.width
    buffer = io.BytesIO()
    row.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _figures(words: ModuleType) -> tuple:
    from nnclassroom.figures import nb00 as figures
    from nncourse import datasets
    from nncourse.backend import choose
    from nncourse.model import metrics
    from nncourse.model.network import make_network
    from nncourse.model.training import train

    training, test = datasets.split(datasets.load("breast_cancer"), 0.2, seed=1)
    scaling = datasets.fit_scaling(training.X, "standardization")
    X, X_test = scaling.apply(training.X), scaling.apply(test.X)
    backend, network = choose("numpy"), make_network(SIZES, seed=1)
    options = {"epochs": 100, "batch_size": 10, "learning_rate": 0.5, "seed": 1}
    history = train(network, X, training.Y, backend, validation=(X_test, test.Y), **options)
    M = metrics.confusion(network, X_test, test.Y, backend)
    return (
        figures.plot_network(SIZES, words.FRONT_NETWORK),
        figures.plot_history(history, words.FRONT_COST),
        figures.plot_confusion(M, test.classes, words.FRONT_TEST),
    )


def _image(figure) -> "Image.Image":
    """A figure as an image of the row's height."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    image = Image.open(buffer)
    return image.resize((round(image.width * HEIGHT / image.height), HEIGHT), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    (ROOT / PICTURE).write_bytes(picture(edition(ENGLISH).words()))
