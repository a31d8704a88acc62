"""`--patch-size` of predict, evaluate, analyse and export: another patch embedding for a model that is there."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

import sightline
from sightline.evaluation.class_tables import stored_tables
from sightline.evaluation.logits import find_logits
from sightline.hub.fine_tune import create_model
from sightline.hub.load import load_model, save_model
from sightline.results.rows import read_rows


@pytest.fixture
def photo(tmp_path):
    file = tmp_path / "photo.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 40, 3), dtype=np.uint8)).save(file)
    return file


@pytest.fixture(params=[False, True], ids=["plain", "flexible"])
def model(request, tiny_run, tmp_path):
    """A trained model of 4 px patches at 16 px; and a flexible one of it."""
    if not request.param:
        return tiny_run
    save_model(create_model(init_from=tiny_run, embedder="flexible"), tmp_path / "flexible")
    return tmp_path / "flexible"


@torch.no_grad()
def test_predict(model, photo, cli):
    """The answer is that of the model which is loaded with such patches."""
    best = {}
    for side in (8, 2):
        words = ("--json", "--topk", "1", "--precision", "float32")
        code, out, err = cli("predict", model, photo, "--patch-size", side, *words)
        assert code == 0, err
        (record,) = map(json.loads, out.splitlines())
        assert record["grid"] == [24 // side, 40 // side]
        loaded = load_model(model, patch_size=side)
        (logits,) = loaded([sightline.preprocessing(loaded)(str(photo), "native")])
        best[side] = record["top"][0]
        assert best[side]["class"] == loaded.config.class_names[int(logits.argmax())]
        assert best[side]["score"] == pytest.approx(float(logits.max().sigmoid()), abs=1e-4)
    assert best[8] != best[2]


def test_rows_say_their_patch_size(model, cli, tmp_path):
    """Of two patch sizes at two resolutions none is in place of another."""
    words = ("--data", "digits", "--resolutions", "16,32", "--no-shrink", "--images", "8", "--split", "test")
    found = []
    for side in (8, 2, 4):
        code, _, err = cli("evaluate", model, *words, "--patch-size", side, "--out", tmp_path / f"{side}")
        assert code == 0, err
        found.append(read_rows(tmp_path / f"{side}" / "results.jsonl"))
    for side, rows in zip((8, 2, None), found, strict=True):
        assert {row.patch_size for row in rows} == {side}
        grid = 16 // (side or 4)
        assert {row.grid for row in rows if row.resolution == 16} == {(grid, grid)}
    assert not {row.measurement for row in found[0]} & {row.measurement for row in found[1]}
    shown = {row.size_label for row in found[0]}
    assert shown == {"16 px in patches of 8 px", "32 px in patches of 8 px"}
    # What is said of a model as it is says nothing of it.
    assert "patch_size" not in (tmp_path / "4" / "results.jsonl").read_text()


def test_what_is_asked_again_at_other_patches_is_another_work(model, photo, cli, tmp_path):
    """Answers that were kept are of one patch size, though the weights of a flexible model are the same."""
    files = []
    for side in ("8", "2"):
        files.append(tmp_path / f"{side}.jsonl")
        code, _, err = cli("predict", model, photo, "--patch-size", side, "--predictions", files[-1])
        assert code == 0, err
    grids = [json.loads(file.read_text())["grid"] for file in files]
    assert grids == [[3, 5], [12, 20]]


def test_train_with_patch_sizes_and_predict(cli, photo, tmp_path):
    words = [
        "train", "--data", "digits", "--out", tmp_path / "run", "--images", "96", "--threads", "1",
        "--precision=float32", "--model_options.depth=1", "--model_options.dim=48",
        "--model_options.heads=4", "--model_options.embedder=flexible",
        "--model_options.embedder_options={base: 8}", "--patch_sizes={sizes: [8, 4, 2]}",
    ]  # fmt: skip
    code, _, err = cli(*words)
    assert code == 0, err
    assert load_model(tmp_path / "run").patch_embed.proj.weight.shape == (48, 3 * 64)
    for side in ("2", "8", "16"):
        code, _, err = cli("predict", tmp_path / "run", photo, "--patch-size", side)
        assert code == 0, err


def test_logits_of_other_patches_have_files_of_their_own(tiny_run, cli, tmp_path):
    words = ("--suite", "digits", "--resolutions", "16", "--images", "8", "--logits", "--out", tmp_path / "out")
    for side in (8, 2):
        code, _, err = cli("evaluate", tiny_run, *words, "--patch-size", side)
        assert code == 0, err
    shown = {row.size_label for row in read_rows(tmp_path / "out" / "results.jsonl")}
    assert len(list((tmp_path / "out" / "logits").iterdir())) == len(shown) == 2
    tables = stored_tables(find_logits(tmp_path / "out" / "logits"))
    assert [one.shown for one in tables] == ["16 px in patches of 8 px", "16 px in patches of 2 px"]
