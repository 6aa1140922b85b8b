"""The generated silhouettes: nine classes that can be told apart by their shape, and by nothing else."""

import math

import numpy as np
import pytest
from refusals import refused

from nncourse import datasets, datasets_silhouettes


def test_a_data_set_of_nine_classes_by_the_same_seed_the_same():
    data = datasets.silhouettes(7, seed=3, height=24, width=32)
    assert data.images.shape == (63, 1, 24, 32) and data.X.dtype == np.float32
    assert np.bincount(data.labels).tolist() == [7] * 9 and len(set(data.classes)) == 9
    assert data.X.min() >= 0 and data.X.max() <= 1 and data.X.std() > 0.1
    again, other = (datasets.silhouettes(7, seed=seed, height=24, width=32) for seed in (3, 4))
    assert (again.X == data.X).all() and (again.Y == data.Y).all()
    assert (other.X != data.X).any() and (other.labels != data.labels).any()
    assert len(data.features) == 24 * 32 and "silhouettes" in repr(data)


def test_bytes_are_the_same_images_in_a_quarter_of_the_memory():
    floats, whole = (datasets.silhouettes(3, height=20, width=30, dtype=dtype) for dtype in (np.float32, np.uint8))
    assert whole.X.dtype == np.uint8 and 4 * whole.X.nbytes == floats.X.nbytes
    assert (whole.X.astype(np.float32) / np.float32(255) == floats.X).all()


def test_no_two_images_are_the_same_and_a_class_is_not_told_by_how_light_it_is():
    data = datasets.silhouettes(60, height=30, width=40)
    assert len(np.unique(data.X, axis=0)) == len(data.X)
    light = [data.X[data.labels == label].mean(axis=1) for label in range(9)]
    means, spread = np.array([some.mean() for some in light]), np.mean([some.std() for some in light])
    assert np.ptp(means) < spread


def test_outlines_differ_by_class_and_are_what_their_names_say():
    rng = np.random.default_rng(0)
    behind, between = 512, round((math.pi - 0.26) / (2 * math.pi) * datasets_silhouettes.ANGLES)
    front, rear = (round(angle / (2 * math.pi) * datasets_silhouettes.ANGLES) for angle in (1.25, 1.85))
    found = {}
    for label, name in enumerate(datasets_silhouettes.CLASSES):
        found[name] = datasets_silhouettes.outlines(np.full(200, label), rng).mean(axis=0)
        assert found[name].min() > 0.2
    for name, outline in found.items():
        assert (outline[between] > outline[behind] + 0.2) == name.startswith("forked")
        in_front, at_rear = (found[f"{name.split(',')[0]}, fin {where}"] for where in ("in front", "behind"))
        assert in_front[front] > at_rear[front] + 0.04 and at_rear[rear] > in_front[rear] + 0.04
        assert outline[front] > at_rear[front] + 0.04 or "behind" in name
        assert outline[rear] > in_front[rear] + 0.04 or "in front" in name
    assert found["pointed tail, two fins"][behind] > found["round tail, two fins"][behind]


def test_the_size_of_the_thesis_is_the_default_and_is_drawn_in_parts():
    labels = np.arange(9)
    one = datasets_silhouettes.drawn(labels, 148, 197, seed=1)
    assert one.shape == (9, 148, 197)
    more = datasets_silhouettes.drawn(np.resize(labels, 120), 37, 49, seed=1)
    first = datasets_silhouettes.drawn(np.resize(labels, 100), 37, 49, seed=1)
    assert (more[:100] == first).all()


@pytest.mark.parametrize(
    "options", [{"n_per_class": 0}, {"height": 0}, {"n_per_class": 10**6}, {"dtype": np.float64, "n_per_class": 1}]
)
def test_what_cannot_be_made_is_refused(options):
    assert "expected" in refused(datasets.silhouettes, **options)


def test_it_is_loaded_by_its_name(monkeypatch):
    few = datasets.silhouettes(2, height=9, width=11)
    monkeypatch.setattr(datasets, "silhouettes", lambda: few)
    assert datasets.load("silhouettes", inputs=99, outputs=9) is few
    assert "silhouettes" in refused(datasets.load, "silhouette")
    assert "has 99, images of 1x9x11" in refused(datasets.load, "silhouettes", inputs=100)
