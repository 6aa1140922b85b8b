"""What notebook 14 shows: figures over layers, the plan of a network, and tables of what was recorded."""

import json

import numpy as np
import pytest

from nnclassroom.figures import nb14, recorded, sixteen_bits
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
    assert [axes.get_title() for axes in figure.figure.axes] == ["Forward", "Backward"]
    texts = [text.get_text() for text in figure.figure.axes[0].texts]
    assert texts.count("convolution") == 2 and "shortcut" in texts


ABOUT = {"machine": "A chip, 99 multiprocessors", "date": "2026-11-23"}


def test_what_is_not_recorded_is_said_in_one_line(results):
    gpus = recorded.tensor_cores, recorded.devices
    for shown in (recorded.convolutions, recorded.step, recorded.gradient, *gpus, recorded.experiment):
        assert shown().startswith("not recorded yet: run python -m benchmarks.") and "\n" not in shown()


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
    found = {"batch": 128, "steps": steps, "memory": {"nncourse": 5e9}, "operations": operations, "difference": 0.0082}
    results("resnet", ABOUT | found)
    text = recorded.step()
    assert "differ by 8e-03" in recorded.gradient()
    assert "recorded, A chip, 2026-11-23" in text
    lines = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    assert lines["nncourse"][1:] == ["64.0", "ms", "2,000", "5.0", "GB"]
    assert lines["PyTorch"][1:] == ["80.0", "ms", "1,600"]
    assert lines["op0"][1:] == ["20.0", "ms", "10.3%"]
    assert lines["3 others"][2:] == ["39", "21.0", "ms", "10.8%"]
    assert lines["together"][1:] == ["105", "195.0", "ms", "100.0%"]


def test_long_runs_of_a_kind_are_a_line_with_their_means(results, tmp_path):
    run = {"kind": "gpu", "count": 2, "batch": 256, "epochs": 10, "partial": False, "machine": "A chip, 2 cores"}
    run |= {"seconds": {"train": [2.0, 1.0, 1.0]}, "accuracies": [0.1], "date": "2026-11-26T10:00:00"}
    folder = tmp_path / "experiment" / "runs"
    folder.mkdir(parents=True)
    for number, accuracy in enumerate((0.7, 0.8)):
        more = {"accuracy": accuracy, "accuracies": [0.1 + 0.1 * number, 0.3, 0.8]}
        (folder / f"gpu2-run{number}.json").write_text(json.dumps(run | more))
    (folder / "cpu1-run1.json").write_text(json.dumps(run | {"kind": "cpu", "accuracy": 0.1}))
    _, line, where = recorded.experiment().splitlines()
    assert line.split()[:2] == ["2", "GPUs,"] and line.split()[-8:] == [
        "1.00",
        "s",
        "10.0%",
        "to",
        "20.0%",
        "70.0%",
        "to",
        "80.0%",
    ]
    assert where == "recorded, A chip, 2026-11-26"


def test_products_of_fewer_bits_are_shown_by_size_with_the_largest_error(results):
    squares = [{"batch": side, "n_in": side, "n_out": side, "error": side * 1e-6} for side in (1024, 2048)]
    one = {"contender": "PyTorch TF32", "tflops": 210.4}
    steps = [{"batch": 128, "factors": "bf16", "seconds_a_step": 0.015, "gradient": 0.02}]
    results("tensor_cores-a-chip", ABOUT | {"products": [one | sizes for sizes in squares], "steps": steps})
    about, head, row, _, _, step = recorded.tensor_cores().splitlines()
    assert "recorded, A chip, 2026-11-23" in about and head.split() == ["1,024³", "2,048³", "largest", "error"]
    assert row.split() == ["PyTorch", "TF32", "210", "210", "2e-03"]
    assert step.split() == ["bf16", "15.0", "ms", "2e-02"]


def test_numbers_are_rounded_to_the_nearest_of_each_format():
    values = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    for kind, bits in (("float16", 10), ("TF32", 10), ("bfloat16", 7), ("float32", 23)):
        kept = sixteen_bits.rounded(values, kind)
        large = np.abs(values) > 1e-3  # smaller ones have fewer bits in float16
        assert np.abs(kept / values - 1)[large].max() <= 2.0 ** -(bits + 1)
        assert (sixteen_bits.rounded(kept, kind) == kept).all() and kept.dtype == np.float32
        step = 2.0**-bits
        ties = np.float32([1 + step / 2, 1 + 1.5 * step]) if bits < 23 else np.float32([1, 1 + 2 * step])
        assert sixteen_bits.rounded(ties, kind).tolist() == [1, 1 + 2 * step]
        assert np.isnan(sixteen_bits.rounded(np.float32([np.nan]), kind)).all()
        assert sixteen_bits.rounded(np.float32([-np.inf, 0, -2]), kind).tolist() == [-np.inf, 0, -2]
    assert sixteen_bits.rounded(np.float32([70_000, 2e-8]), "float16").tolist() == [np.inf, 0]
    with pytest.raises(CourseError, match="expected a format"):
        sixteen_bits.rounded(values, "float8")


@pytest.mark.parametrize(("kind", "stops"), [("float16", 2048), ("bfloat16", 256), ("TF32", 2048), ("float32", 3000)])
def test_a_running_sum_of_ones_stands_still_where_a_step_is_two(kind, stops):
    assert sixteen_bits.running_sum(np.ones(3000, np.float32), kind) == stops


def test_the_sizes_of_a_gradient_say_what_float16_loses():
    gradient = np.float32([0, 1e-9, 1e-6, 1e-3, -1.0])
    figure = sixteen_bits.plot_gradient(gradient, (1, 1024, 1e6))
    assert "gradient: in float16 25.0% become 0, 25.0% keep only some of their bits; " in figure.words
    assert "× 1,024: in float16 0.0% become 0, 25.0%" in figure.words and "25.0% infinite" in figure.words
    labels = figure.figure.axes[0].get_legend_handles_labels()[1]
    assert {"gradient", "0 in float16", "infinite in float16"} <= set(labels)
    with pytest.raises(CourseError, match="expected a gradient"):
        sixteen_bits.plot_gradient(np.zeros(3))


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
    assert lines[2].split() == ["nncourse,", "1", "GPU", "1,050", "1.00", "1.000", "2,100", "2,100", "–", "–"]
    assert lines[3].split() == ["nncourse,", "2", "GPUs", "2,079", "1.98", "0.990", "2,150", "2,100", "1.03", "0.52"]
    assert lines[4:] == ["PyTorch was not run: no torch", "CPU: not measurable here"]
