"""Streams of random numbers, finding a source by its name, and what every source promises."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sightline.data.open import open_source
from sightline.data.source import Source


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for split, name, number in itertools.product(("train", "test"), ("a", "b"), range(3)):
        (root / split / name).mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / split / name / f"{number}.png")
    return root


@pytest.fixture(
    params=["scenes", "scenes:pairs", "scenes in parts", "scenes, simple", "digits", "imagefolder", "moving"]
)
def source(request: pytest.FixtureRequest, folder: Path) -> Source:
    if request.param == "scenes in parts":
        return open_source("scenes").with_view(parts=0.35)
    if request.param == "scenes, simple":
        return open_source("scenes").with_view(parts="simple")
    spec = f"imagefolder:{folder}" if request.param == "imagefolder" else request.param
    return open_source(spec)


def test_scenes_are_shown_whole_unless_parts_are_asked_for() -> None:
    whole, parts = open_source("scenes"), open_source("scenes").with_view(parts=0.35)
    for split in ("minival", "test", "heldout_fonts"):
        one, other = (each.example(split, 3, (32, 48)) for each in (whole, parts))
        assert (one.image == other.image).all()
        assert one.slices == other.slices
    one, other = (each.example("train", 3, (32, 48)) for each in (whole, parts))
    assert (one.image != other.image).any()
    assert one.slices.keys() == {"group", "size"}
    # Where the object's box ends in a part is not known.
    assert other.slices == {"group": one.slices["group"]}
    assert (whole.with_view(parts=1.0).example("train", 3, (32, 48)).image == one.image).all()


def test_examples_are_a_pure_function(source: Source) -> None:
    for split in source.splits:
        first = {index: source.example(split, index, (24, 36), seed=3, epoch=2) for index in range(5)}
        for index in (4, 0, 3, 1, 4):
            one, again = first[index], source.example(split, index, (24, 36), seed=3, epoch=2)
            assert (again.image.dtype, again.image.shape) == (np.uint8, (24, 36, 3))
            assert (again.image == one.image).all()
            assert (again.target, again.slices, again.name) == (one.target, one.slices, one.name)


def test_seed_and_epoch_change_no_split_but_train(source: Source) -> None:
    for split in source.splits:
        images = [
            np.stack([source.example(split, index, (24, 24), seed=seed, epoch=epoch).image for index in range(5)])
            for seed, epoch in ((0, 0), (1, 0), (0, 1))
        ]
        assert (images[0] != images[1]).any() == (split == "train")
        # What is endless changes in the part alone that is shown.
        again = source.length("train") is not None or (source.transform and source.transform.shows_parts)
        assert (images[0] != images[2]).any() == bool(split == "train" and again)


def test_digits_splits_are_disjoint_stratified_and_complete() -> None:
    digits = open_source("digits")
    lengths = {split: digits.length(split) for split in digits.splits}
    assert lengths == {"train": 1297, "minival": 200, "test": 300}
    members = digits._members  # pyright: ignore[reportAttributeAccessIssue]
    assert sorted(np.concatenate(list(members.values()))) == list(range(1797))
    whole = np.bincount(digits._labels) / 1797  # pyright: ignore[reportAttributeAccessIssue]
    for split, length in lengths.items():
        labels = [digits.example(split, index, (8, 8)).target.label for index in range(length or 0)]
        assert np.abs(np.bincount(labels, minlength=10) - whole * len(labels)).max() <= 1
