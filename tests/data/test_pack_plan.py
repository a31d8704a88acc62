"""Packed batches: planned before they are made, the same for any number of workers, and each image as it is alone."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.open import open_source
from sightline.data.pack_plan import PackPlan
from sightline.data.sizes import BetaDrop, ResolutionSampling, SizeSampler
from sightline.errors import InputError
from sightline.tokens.patchify import patchify
from tests.batches import packed_batches

SAMPLER = SizeSampler(4, ResolutionSampling(8, 40), BetaDrop(), max_tokens=64)


def planned(source, count=None, **options):
    options = {"capacity": 256, "seed": 3, **options}
    return list(islice(PackPlan(source, "train", SAMPLER, **options).batches(), count))


def ids(batches):
    return [
        [(one.index, one.epoch, one.image_size, one.tokens, tuple(one.patch_indices)) for one in batch]
        for batch in batches
    ]


def test_each_image_of_a_pass_comes_once_before_the_next():
    source = open_source("digits")
    found = [one for batch in planned(source, images=2 * 1297) for one in batch]
    assert len(found) == 2 * 1297
    for epoch in (0, 1):
        assert sorted(one.index for one in found if one.epoch == epoch) == list(range(1297))
    # Look-ahead reaches into the next pass, and no further.
    last_of_first = max(place for place, one in enumerate(found) if one.epoch == 0)
    assert sum(one.epoch for one in found[:last_of_first]) < 1024
    # In another order, and shown in another way.
    first, second = ([one for one in found if one.epoch == epoch] for epoch in (0, 1))
    assert [one.index for one in first] != [one.index for one in second]
    by_index = {one.index: one for one in second}
    assert sum(one.image_size != by_index[one.index].image_size for one in first) > 600


def test_a_batch_holds_the_kept_patches_of_its_images():
    source = open_source("scenes")
    (wanted,) = planned(source, 1)
    (batch,) = packed_batches(source, "train", [wanted], seed=3)
    start = 0
    for number, (one, segment) in enumerate(zip(wanted, batch.layout.segments, strict=True)):
        example = source.example("train", one.index, one.image_size, seed=3)
        whole = patchify(torch.from_numpy(example.image.transpose(2, 0, 1).copy())[None], 4)[0]
        end, kept = start + one.tokens, torch.from_numpy(one.patch_indices)
        assert torch.equal(batch.inputs[0, start:end], whole[kept])
        assert (segment.grid.rows * 4, segment.grid.cols * 4) == one.image_size
        assert torch.equal(segment.indices[0], kept)
        assert (batch.targets["labels"][number], batch.names[number]) == (example.target.label, example.name)
        start = end
    assert (start, batch.inputs.dtype) == (batch.inputs.shape[1], torch.uint8)
    assert len(batch) == len(wanted) > 3


def test_a_window_goes_on_from_its_position():
    """What is planned from any position is what is planned from the beginning."""
    source = open_source("digits")
    run, other = (PackPlan(source, "train", SAMPLER, 256, images=4000, seed=seed) for seed in (3, 4))
    windows = list(run.windows())
    assert ids(run.batches()) != ids(other.batches())
    assert len(windows) == 4
    for number, (position, _) in enumerate(windows):
        again = [(one, ids(packs)) for one, packs in run.windows(position)]
        assert again == [(one, ids(packs)) for one, packs in windows[number:]]
    assert any(position.waiting for position, _ in windows)


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """Images of 4, 6, 8, 5, 1 and 4 patches of 4 x 4 pixels."""
    folder = tmp_path_factory.mktemp("data")
    for number, (rows, cols) in enumerate([(1, 4), (2, 3), (4, 2), (5, 1), (1, 1), (2, 2)]):
        label = folder / "train" / "ab"[number % 2]
        label.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (4 * rows, 4 * cols, 3), np.uint8)
        Image.fromarray(pixels).save(label / f"{number}.png")
    return open_source(f"imagefolder:{folder}")


def packed(source, sampler=None, images=6, **options):
    options = {"capacity": 8, "images": images, **options}
    return list(PackPlan(source, "train", sampler or SizeSampler(4), **options).batches())


def test_longer_than_a_pack(edges):
    """Refused by its lengths; or shown smaller, where that is asked for."""
    with pytest.raises(InputError, match="image"):
        packed(edges, capacity=7)
    batches = packed(edges, SizeSampler(4, max_tokens=7), capacity=7)
    assert sorted(one.index for batch in batches for one in batch) == list(range(6))
    assert max(math.prod(one.image_size) // 16 for batch in batches for one in batch) <= 7
