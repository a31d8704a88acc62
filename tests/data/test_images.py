"""A folder of images of which nothing is said: its splits, what it is refused for, and a run on it."""

from __future__ import annotations

import numpy as np
from PIL import Image

from sightline.data.open import open_source


def draw(folder, count, seed=0):
    draws = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    for number in range(count):
        pixels = draws.integers(0, 256, (*draws.integers(12, 40, 2), 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def test_a_flat_folder_is_trained_on(tmp_path):
    draw(tmp_path / "all", 4)
    draw(tmp_path / "all" / "deep" / "er", 2, seed=1)
    (tmp_path / "all" / "notes.txt").write_text("no image")
    source = open_source(f"images:{tmp_path / 'all'}")
    assert (source.splits, source.length("train"), source.classes) == (("train",), 6, ())
    assert [one.reason for one in source.skipped] == ["unknown extension"]
    example = source.example("train", 5, (16, 24))
    assert example.image.shape == (16, 24, 3)
    assert example.name.endswith("deep/er/1.png")
    held = open_source(f"images:{tmp_path / 'all'},minival=0.34")
    assert (held.length("train"), held.length("minival")) == (4, 2)


def test_masked_patches_are_trained_on_it_and_measured(tmp_path, cli):
    draw(tmp_path / "all", 9)
    out, words = tmp_path / "run", ["--model_options.depth=1", "--model_options.dim=48"]
    words += ["--model_options.heads=4", "--images", "16", "--batch_size=8", "--threads", "1"]
    code, _, err = cli("train", "--data", f"images:{tmp_path / 'all'},minival=0.3", "--out", out, *words)
    assert code == 0, err
    assert "task: masked_patches" in (out / "config.yaml").read_text()
    code, said, err = cli("evaluate", out, "--split", "minival", "--resolutions", "native")
    assert code == 0, err
    assert "Patch loss" in said
