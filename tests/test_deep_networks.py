"""What notebook 14 shows: figures over layers, the plan of a network, and tables of what was recorded."""

import json

import numpy as np
import pytest

from nnclassroom.figures import nb14, recorded
from nncourse.errors import CourseError
from nncourse.model.network import make_network
from nncourse.model.resnet import resnet


def test_the_plan_adds_up_and_counts_the_blocks_of_a_stage():
    network = resnet(18, classes=5, channels=2, height=40, width=56)
    parts = nb14.parts(network)
    assert sum(part.parameters for part in parts) == network.flat_parameters.size
    assert [(part.blocks, part.name) for part in parts if part.blocks] == [(2, "block of 2 layers")] * 4
    # The first convolution: 64 filters of 7 × 7 on two channels, at 20 × 28 places.
    assert parts[0].products == 64 * 2 * 49 * 20 * 28 and parts[0].shape == (64, 20, 28)
    # The second stage at 5 × 7: 64 to 128, three times 128 to 128, and 1 × 1 on the shortcut.
    second = (64 * 128 * 9 + 3 * 128 * 128 * 9 + 64 * 128) * 5 * 7
    assert parts[4].shape == (128, 5, 7) and parts[4].products == second
    assert nb14.plan(network).splitlines()[-1].split()[1] == f"{network.flat_parameters.size:,}"
    hidden, out = nb14.parts(make_network((7, 5, 2)))
    assert (hidden.parameters, hidden.products, out.products) == (40, 35, 10)


def test_a_figure_over_layers_says_its_ends_and_refuses_what_a_logarithm_cannot_show():
    figure = nb14.plot_by_layer({"a": [1e-9, 1e-3, 1.0], "b": np.ones(3)}, "gradient", "Chains")
    assert "a: 1e−09 at the bottom, 1 at the top" in figure.words
    axes = figure.figure.axes[0]
    assert axes.get_yscale() == "log" and axes.get_ylabel() == "gradient" and len(axes.lines) == 2
    for bad in ({}, {"a": [0.0, 1.0]}, {"a": [1.0, np.nan]}):
        with pytest.raises(CourseError, match="above 0"):
            nb14.plot_by_layer(bad, "gradient")


def test_the_figure_of_a_block_shows_both_ways():
    figure = nb14.plot_block()
    assert [axes.get_title() for axes in figure.figure.axes] == ["forward", "on the way back"]
    texts = [text.get_text() for text in figure.figure.axes[0].texts]
    assert texts.count("convolution") == 2 and "shortcut" in texts


ABOUT = {"machine": "A chip, 99 multiprocessors", "date": "2026-11-23"}


def test_what_is_not_recorded_is_said_in_one_line(results):
    for shown in (recorded.convolutions, recorded.step, recorded.devices, recorded.experiment):
        assert shown().startswith("not recorded yet: python -m benchmarks.") and "\n" not in shown()


def test_convolutions_show_the_fastest_kernel_of_the_course(results):
    layer = {"layer": "64 channels, 37 × 50", "batch": 128, "pass": "forward"}
    seconds = {"naive": 5e-3, "tiles": 4e-4, "implicit_gemm": 6e-4, "cupy": 1e-5, "cudnn": 2e-4}
    records = [layer | {"kernel": name, "seconds": time} for name, time in seconds.items()]
    results("gpu", ABOUT | {"tables": {"convolutions": records}})
    about, _, row = recorded.convolutions().splitlines()
    assert "recorded, A chip, 2026-11-23" in about
    assert row.split("  ")[0] == "64 channels, 37 × 50, forward"
    assert "5 ms" in row and "tiles 400 µs" in row and "200 µs" in row and row.endswith("–")


def test_a_step_is_shown_by_operation(results):
    operations = [{"operation": f"op{n}", "seconds": 0.001 * (20 - n), "calls": n} for n in range(15)]
    steps = [{"contender": "nncourse", "seconds_a_step": 0.064}, {"contender": "PyTorch", "seconds_a_step": 0.08}]
    found = {"batch": 128, "steps": steps, "memory": {"nncourse": 5e9}, "operations": operations}
    results("resnet", ABOUT | found)
    text = recorded.step()
    assert "recorded, A chip, 2026-11-23" in text
    lines = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert lines["nncourse"][1:] == ["64.0", "ms", "2,000", "5.0", "GB"]
    assert lines["PyTorch"][1:] == ["80.0", "ms", "1,600"]
    assert lines["op0"][1:] == ["20.0", "ms", "10.3%"]
    assert lines["3 others"][2:] == ["39", "21.0", "ms", "10.8%"]
    assert lines["together"][1:] == ["105", "195.0", "ms", "100.0%"]


def test_long_runs_of_a_kind_are_a_line_with_their_means(results, tmp_path):
    run = {"kind": "gpu", "count": 2, "batch": 256, "epochs": 10, "partial": False, "machine": "A chip, 2 cores"}
    run |= {"seconds": {"train": [2.0, 1.0, 1.0]}, "accuracies": [0.1, 0.3, 0.8], "date": "2026-11-26T10:00:00"}
    folder = tmp_path / "experiment" / "runs"
    folder.mkdir(parents=True)
    for number, accuracy in enumerate((0.7, 0.8)):
        (folder / f"gpu2-run{number}.json").write_text(json.dumps(run | {"accuracy": accuracy}))
    (folder / "cpu1-run1.json").write_text(json.dumps(run | {"kind": "cpu", "accuracy": 0.1}))
    _, line, where = recorded.experiment().splitlines()
    assert line.split()[:2] == ["2", "GPUs,"] and line.split()[-6:] == ["10", "2", "1.00", "s", "30.0%", "75.0%"]
    assert where == "recorded, A chip, 2026-11-26"


def test_devices_are_compared_with_the_mean_of_each_alone(results):
    def line(devices, rate, over, **more):
        about = {"library": "nncourse", "devices": devices, "images_a_second": rate}
        return about | {"over_alone": over, "efficiency": over / len(devices)} | more

    alone = [line([0], 1000.0, 1.0, joules=2000.0, edp_over_alone=1.1), line([1], 1100.0, 1.0, joules=2200.0)]
    both = line([0, 1], 2079.0, 1.98, joules=2150.0, joules_over_alone=1.03, edp_over_alone=0.52)
    setting = {"depth": 34, "batch": 128}
    more = {"left_out": {"PyTorch": "no torch"}, "not_measured": ["CPU: not measurable here"]}
    results("devices_gpu", ABOUT | {"scaling": [*alone, both], "setting": setting} | more)
    lines = recorded.devices().splitlines()
    assert lines[0] == "ResNet-34, 128 images a GPU, float32 (recorded, A chip, 2026-11-23)"
    assert lines[2].split() == ["nncourse,", "1", "GPU", "1,050", "1.00", "1.000", "2,100", "–", "–"]
    assert lines[3].split() == ["nncourse,", "2", "GPUs", "2,079", "1.98", "0.990", "2,150", "1.03", "0.52"]
    assert lines[4:] == ["PyTorch was not run: no torch", "CPU: not measurable here"]
