"""Folders of photographs as a data set: sizes, formats, turned and damaged ones, and networks that learn from them."""

import shutil

import numpy as np
import pytest
from PIL import Image
from refusals import refused

from nnclassroom import commands
from nncourse import datasets
from nncourse.backend import choose
from nncourse.model.resnet import resnet
from nncourse.model.training import train
from nnexperiment import plan as experiment

SIZES = (20, 30), (64, 48), (33, 33)
CLASSES = "bream", "mullet", "trout"


@pytest.fixture
def folder(tmp_path):
    """27 photographs of three classes in three sizes and two formats; the class is the brightness, one is damaged."""
    for number, name in enumerate(CLASSES):
        place = tmp_path / "fish" / name / "more"
        place.mkdir(parents=True)
        for k in range(9):
            pixels = np.full((*SIZES[k % 3], 3), 40 + 90 * number + k, np.uint8)
            Image.fromarray(pixels).save(place / f"{k}.{'png' if k % 2 else 'JPG'}", format="PNG" if k % 2 else "JPEG")
    (place / "3.png").write_bytes((place / "3.png").read_bytes()[:40])
    (tmp_path / "fish" / "notes.txt").write_text("no class")
    (tmp_path / "fish" / ".cache").mkdir()
    return tmp_path / "fish"


def test_all_become_grey_images_of_one_size_and_the_damaged_one_is_named(folder):
    data = datasets.photos(folder, 24, 32)
    assert data.classes == CLASSES and data.image_shape == (1, 24, 32) and data.X.shape == (26, 24 * 32)
    assert np.bincount(data.labels).tolist() == [9, 9, 8]
    expected = np.array([40 + 90 * number + k for number in range(3) for k in range(9) if (number, k) != (2, 3)]) / 255
    np.testing.assert_allclose(data.X, np.repeat(expected[:, None], 24 * 32, axis=1), atol=0.01)
    (note,) = data.notes
    assert "3.png" in note and "trout" in note
    whole = datasets.photos(folder, 24, 32, most=4, dtype=np.uint8)
    assert whole.X.dtype == np.uint8 and len(whole.X) == 12
    np.testing.assert_array_equal(whole.X[:4], np.rint(255 * data.X[:4]))


def test_colours_turned_ones_and_16_bits_are_kept(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    Image.fromarray(np.tile(np.uint8([255, 0, 51]), (4, 4, 1))).save(tmp_path / "a" / "red.png")
    Image.fromarray(np.full((4, 4), 32768, np.uint16)).save(tmp_path / "a" / "deep.png")
    tall = Image.fromarray(np.repeat(np.uint8([[0], [255]]), [2, 2], axis=0).repeat(2, axis=1))
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned to the right
    tall.save(tmp_path / "b" / "turned.png", exif=turned)
    data = datasets.photos(tmp_path, 2, 4, channels=3)
    deep, red, right = data.images
    np.testing.assert_allclose(red[:, 0, 0], [1, 0, 0.2], atol=0.01)
    np.testing.assert_allclose(deep, 0.5, atol=0.01)
    np.testing.assert_allclose(right[0, :, [0, -1]], [[1, 1], [0, 0]], atol=0.01)


def test_a_folder_without_classes_is_refused_in_a_line(folder, tmp_path):
    alone = tmp_path / "alone"
    shutil.copytree(folder / "trout", alone / "trout")
    assert "two classes or more; got trout" in refused(datasets.photos, alone)
    assert "channels" in refused(datasets.photos, folder, channels=2)
    for file in (folder / "bream" / "more").iterdir():
        file.write_bytes(b"nothing")
    assert "no photograph of bream can be read" in refused(datasets.photos, folder)
    assert "leave label out" in refused(datasets.load, folder, label="class")


def test_resnet_34_trains_on_them(folder):
    data = datasets.photos(folder, 24, 24)
    network = resnet(34, 3, 1, 0, 24, 24)
    before = network.flat_parameters.copy()
    history = train(network, data.images, data.Y, choose("numpy"), epochs=1, batch_size=13, learning_rate=0.01)
    assert np.isfinite(history.costs).all() and not np.array_equal(before, network.flat_parameters)


def test_the_experiment_takes_as_many_of_each_class_as_the_smallest_has(folder):
    plan, notes = experiment.of_folder(experiment.Plan("small", folder=str(folder), height=16, width=20))
    assert (plan.classes, plan.images, len(notes)) == (3, 8, 1)
    parts = experiment.make_parts(plan)
    assert [part[0].shape for part in vars(parts).values()] == [(18, 1, 16, 20), (3, 1, 16, 20), (3, 1, 16, 20)]
    assert parts.train[1].shape == (18, 3) and sum(experiment.image_counts(plan)) == 24


def test_a_folder_on_the_command_line(folder, tmp_path, capsys):
    model = str(tmp_path / "model.npz")
    words = f"train --layers image1x16x16,conv4x3,pool2,3 --epochs 3 --backend numpy --model {model}"
    assert commands.main([*words.split(), "--dataset", str(folder)]) == 0
    said = capsys.readouterr()
    assert "3.png cannot be read" in said.out + said.err
    assert commands.main(["test", "--model", model, "--dataset", str(folder)]) == 0
    out = str(tmp_path / "runs")
    words = "experiment small --devices cpu --runs 1 --epochs 1 --batch-size 6 --cpu-steps 1 --size 16x16"
    assert commands.main([*words.split(), "--folder", str(folder), "--out", out]) == 0
    assert "24 photographs of 16 × 16 pixels in 3 classes" in (tmp_path / "runs" / "experiment.html").read_text("utf-8")
