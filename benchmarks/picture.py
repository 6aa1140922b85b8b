"""Make README.md's picture, with the same steps as notebook 00: python -m benchmarks.picture."""

import io
from pathlib import Path

from PIL import Image

from nncourse import datasets
from nncourse.classroom import plots
from nncourse.kernels.backend import choose
from nncourse.model import metrics
from nncourse.model.network import make_network
from nncourse.model.training import train

SIZES = (30, 60, 10, 1)


def main() -> None:
    training, test = datasets.split(datasets.load("breast_cancer"), 0.2, seed=1)
    scaling = datasets.fit_scaling(training.X, "standardization")
    X, X_test = scaling.apply(training.X), scaling.apply(test.X)
    backend, network = choose("numpy"), make_network(SIZES, seed=1)
    options = {"epochs": 100, "batch_size": 10, "learning_rate": 0.5, "seed": 1}
    history = train(network, X, training.Y, backend, validation=(X_test, test.Y), **options)
    M = metrics.confusion(network, X_test, test.Y, backend)
    figures = (
        plots.plot_network(SIZES, "30 inputs, two hidden layers, one output"),
        plots.plot_history(history, "cost on breast_cancer"),
        plots.plot_confusion(M, test.classes, "test data"),
    )
    images = [_image(figure) for figure in figures]
    row = Image.new("RGB", (sum(image.width for image in images), images[0].height), "white")
    left = 0
    for image in images:
        row.paste(image, (left, 0))
        left += image.width
    row.save(Path(__file__).parents[1] / "docs" / "start_here.png", optimize=True)


def _image(figure) -> Image.Image:
    """A figure as an image, 340 pixels high."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    image = Image.open(buffer)
    return image.resize((round(image.width * 340 / image.height), 340), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    main()
