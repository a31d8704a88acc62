"""The script that fine-tunes from masked patch prediction: what it compares, and its rows."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

_FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(_FOLDER))
    return runpy.run_path(str(_FOLDER / "masked_patches.py"))


def test_both_ways_see_the_same_images(script, tmp_path):
    options = type("Options", (), {"seeds": [3], "pretrained": 64, "tuned": 32, "test": 8, "model": {}})
    first, nothing, tuned = script["jobs_of"](tmp_path, options)
    assert (first.train.task, first.train.images, first.train.seed) == ("masked_patches", 64, 3)
    assert (tuned.after, tuned.train.init_from) == ("masked 3", str(first.out / "checkpoint"))
    assert nothing.train.init_from is None
    for name in ("data", "images", "seed", "batch_size", "parts", "optimizer", "loss", "encoding", "resolution"):
        assert getattr(nothing.train, name) == getattr(tuned.train, name), name


@pytest.mark.slow
def test_its_rows(script, tmp_path, monkeypatch, capsys):
    out = tmp_path / "rows.jsonl"
    words = ["--small", "--pretrained", "64", "--tuned", "64", "--test", "20", "--seeds", "0", "--at-once", "1"]
    monkeypatch.setattr(sys, "argv", ["masked_patches.py", *words, "--out", str(out), "--work", str(tmp_path / "w")])
    script["main"]()
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    found = {row["what"]: row for row in rows}
    assert found["difference"]["value"] == pytest.approx(
        found["fine-tuned"]["value"] - found["from nothing"]["value"], abs=2e-4
    )
    assert found["difference, mean"]["value"] == found["difference"]["value"]
    assert found["difference, mean"]["interval"] is None
    assert found["masked patches, first steps"]["value"] == pytest.approx(6.24, abs=0.1)
    assert 2 < found["one answer for all patches"]["value"] < 6.24
    assert all(row["hardware"] and row["benchmark"] == "masked_patches" for row in rows)
    assert "difference, mean" in capsys.readouterr().out
