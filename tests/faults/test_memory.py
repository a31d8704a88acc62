"""Sizes beyond this machine's memory are refused before any work, with what they need and what would fit."""

from __future__ import annotations

import pytest
from PIL import Image

from tests.tiny import tree

ABSURD = 4 * 10**6
SAYS = ["needs about", "available here", "at most about", "px fits"]


def test_evaluate(refused, run_copy):
    before = tree(run_copy)
    refused("evaluate", run_copy, "--resolutions", f"16,{ABSURD}", says=[f"at {ABSURD} px", str(run_copy), *SAYS])
    assert tree(run_copy) == before


def test_predict(refused, tiny_run, tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    refused("predict", tiny_run, tmp_path / "a.png", "--resolution", ABSURD, says=[f"at {ABSURD} px", *SAYS])


_WIDE = ["--set", "model_options.dim=16384", "--set", "model_options.heads=64"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--resolution", "800000"], ["at 800000 px with a batch of 32", *SAYS]),
        # No step has more images than the data.
        (["--resolution", "4096", "--set", "batch_size=1000000000"], ["at 4096 px with a batch of 1297", *SAYS]),
        (
            ["--model", "vit_giant_patch16", "--set", "model_options.depth=512", *_WIDE],
            ["vit_giant_patch16", "no size fits"],
        ),
    ],
)
def test_train(words, says, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    refused("train", "--data", "digits", "--out", out, *words, says=["train: a training step of", *says])
    assert tree(tmp_path) == {}


def test_what_fits_is_not_refused(cli, tiny_run, tmp_path):
    Image.new("RGB", (20, 20)).save(tmp_path / "a.png")
    assert cli("predict", tiny_run, tmp_path / "a.png", "--resolution", "512")[0] == 0
