"""Tensor cores beside float32: contenders, their errors, docs/speed.md's table. No test asserts a time."""

import json
import sys
import types

import numpy as np
import pytest

from benchmarks import tables, tensor_cores, workers
from nncourse.model.resnet import IMAGE, resnet


def test_products_with_factors_of_fewer_bits(monkeypatch):
    monkeypatch.setattr(tensor_cores, "ours", lambda arguments: {})  # those are in test_tensor_cores.py
    left_out: dict[str, str] = {}
    records = tensor_cores.products((40, 300, 20), 1, "cpu", left_out)
    if left_out:
        pytest.skip(left_out["PyTorch"])
    error = {record["factors"]: record["error"] for record in records}
    assert error["float32"] < 1e-5 < 3e-4 < error["fp16"] < error["bf16"] / 3
    with pytest.raises(workers.WrongResultError, match="PyTorch TF32.* expected at most 8e-03"):
        tensor_cores.refuse_wrong("PyTorch TF32", np.full((3, 3), 1.1), np.ones((3, 3)), "TF32")


def test_steps_of_resnet_with_factors_of_fewer_bits(monkeypatch):
    torch = pytest.importorskip("torch")
    import resnet_pytorch

    models = types.SimpleNamespace(resnet18=lambda num_classes: resnet_pytorch.resnet(torch, 18, num_classes, 1))
    monkeypatch.setitem(sys.modules, "torchvision", types.SimpleNamespace(models=models))
    records = tensor_cores.steps(2, 1, "cpu", 18, (33, 40))
    of = {record["factors"]: record["gradient"] for record in records}
    assert of["float32"] == 0 and 1e-3 < of["bf16"] < 1  # TF32 is float32 on a CPU
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_table_of_tensor_cores_is_there_for_each_machine(tmp_path):
    assert tables.table("tensor_cores", tmp_path) == ""
    sizes = [{"batch": 1024, "n_in": 1024, "n_out": 1024}, {"batch": 4480, "n_in": 4608, "n_out": 512}]
    one = {"contender": "PyTorch TF32", "factors": "TF32", "seconds": 1e-3, "error": 1e-3, "rounds": [1e-3]}
    steps = [
        {"batch": 128, "factors": name, "seconds_a_step": 1e-2, "rounds": [1e-2], "gradient": 0.02}
        for name in tensor_cores.FACTORS
    ]
    result = {
        "machine": "A GPU",
        "date": "2026-01-01",
        "versions": {"torch": "2"},
        "left_out": {"ResNet-34 / PyTorch": "none"},
        "products": [one | each | {"tflops": 123.4} for each in sizes],
        "steps": steps,
    }
    for name in ("a", "b"):
        (tmp_path / f"tensor_cores-{name}.json").write_text(json.dumps(result))
    text = tables.table("tensor_cores", tmp_path)
    assert text.count("A GPU; 2026-01-01; torch 2. Not measured: ResNet-34 / PyTorch (none).") == 2
    assert "| TFLOP/s (error) | 1,024³ | 4,480 × 4,608 × 512 |" in text and "| 123 (1e-03) | 123 (1e-03) |" in text
    assert "128 images: float32 10.0 ms, TF32 10.0 ms, bf16 10.0 ms" in text


def test_the_command_saves_a_dated_result_and_prints_its_table(tmp_path, monkeypatch, capsys):
    one = {"contender": "PyTorch TF32", "factors": "TF32", "seconds": 1e-3, "tflops": 2.0, "error": 1e-3}

    def products(sizes, rounds, left_out):
        return [one | dict(zip(("batch", "n_in", "n_out"), sizes, strict=True))]

    monkeypatch.setattr(tensor_cores.devices, "gpu_available", lambda: True)
    monkeypatch.setattr(tensor_cores, "about", lambda device: {"machine": "A GPU", "versions": {"torch": "2"}})
    monkeypatch.setattr(tensor_cores, "products", products)
    monkeypatch.setattr(tensor_cores, "steps", lambda batch, rounds, left_out: [])
    assert tensor_cores.main(["--out", str(tmp_path / "one.json")]) == 0
    assert len(json.loads((tmp_path / "one.json").read_text())["date"]) == len("2026-01-01")
    assert "| PyTorch TF32 |" in capsys.readouterr().out


def test_the_largest_product_is_one_of_resnet_34():
    network, height, width = resnet(34), *IMAGE
    for _ in range(5):  # each halves the image: the first convolution, the pool, and three stages
        height, width = (height + 1) // 2, (width + 1) // 2
    filters = max(network.parameters, key=lambda array: array.size)
    assert (128 * height * width, filters[0].size, len(filters)) == tensor_cores.LARGEST
