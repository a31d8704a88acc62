"""Training images shown as those that are measured: from which frozen features are learned."""

from __future__ import annotations

import numpy as np
from PIL import Image

from sightline.data.crops import apply_crop, eval_crop
from sightline.data.open import open_source


def shown(source, index=0, side=16, **options):
    return source.example("train", index, (side, side), **options).image


def test_files_are_cut_as_in_evaluation_and_decoded_whole(tmp_path):
    draws = np.random.default_rng(0)
    for split, name in (("train", "a"), ("train", "b"), ("test", "a")):
        folder = tmp_path / split / name
        folder.mkdir(parents=True)
        # So large that a training image is decoded at an eighth of its size.
        noise = draws.integers(0, 256, (30, 40, 3), np.uint8)
        Image.fromarray(noise).resize((400, 300)).save(folder / "one.jpg", quality=90)
    source = open_source(f"imagefolder:{tmp_path}").prepared("bilinear", 0.875)
    with Image.open(tmp_path / "train/a/one.jpg") as file:
        whole = np.asarray(file.convert("RGB"))
    expected = apply_crop(whole, eval_crop((300, 400), (16, 16), 0.875), "bilinear")
    for seed, epoch in ((0, 0), (3, 5)):
        assert np.array_equal(shown(source.with_view(still=True), seed=seed, epoch=epoch), expected)
    assert not np.array_equal(shown(source), expected)
    # Whatever order the two are asked in, and the source itself is as it was.
    assert np.array_equal(shown(source.with_view(still=True).prepared("bilinear", 0.875)), expected)
    assert not source.still
    assert source.with_view(still=True).still


def test_digits_are_neither_moved_nor_zoomed():
    source = open_source("digits")
    still = source.with_view(still=True)
    assert np.array_equal(shown(still, 3), shown(still, 3, seed=5, epoch=2))
    assert not np.array_equal(shown(source, 3), shown(source, 3, seed=5, epoch=2))
