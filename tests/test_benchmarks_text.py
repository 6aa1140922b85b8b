"""The benchmark of a network that learns the course's prose."""

import json

from benchmarks import text
from nncourse import datasets, language
from nncourse.datasets_sequences import CHARACTERS


def test_costs_fall_and_the_first_seed_writes(tmp_path, monkeypatch):
    monkeypatch.setenv(language.VARIABLE, "en")  # which the benchmark changes
    whole = datasets.text
    monkeypatch.setattr(datasets, "text", lambda length, part: few(whole(length, part)))
    monkeypatch.setattr(text, "WORDS", f"tokens{text.LENGTH}x{text.KINDS},embed16,block2x16,layernorm,{text.KINDS}")
    monkeypatch.setattr(text, "CONTINUED", 12)
    out = tmp_path / "text.json"
    given = ["--seeds", "2", "--epochs", "2", "--shown", "2", "--languages", "en", "--out", str(out)]
    assert text.main(given) == 0
    first, second = json.loads(out.read_text("utf-8"))["records"]
    for each in (first, second):
        assert each["language"] == "en" and each["windows"] == {"learnt": 64, "unseen": 64}
        assert 2 < each["costs"][1] < each["costs"][0] < 6
    assert second["texts"] == {} and list(first["texts"]) == ["2"]
    written = first["texts"]["2"]
    assert written.startswith("A network ") and len(written) == 22 and set(written) <= set(CHARACTERS)


def few(data):
    return datasets.replace(data, X=data.X[:64], Y=data.Y[:64])
