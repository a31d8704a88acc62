"""Packed batches: planned before they are made, the same for any number of workers, and each image as it is alone."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sightline.data.open import open_source
from sightline.data.pack_plan import PackPlan, histogram, pack_statistics
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


def test_no_images(edges):
    assert packed(edges, images=0) == []
    assert list(packed_batches(edges, "train", [])) == []
    assert len(list(islice(PackPlan(edges, "train", SizeSampler(4), capacity=8).batches(), 50))) == 50, (
        "without an end otherwise"
    )


PAPER = ResolutionSampling(64, 256)


@pytest.mark.parametrize("how", ["best_fit", "first_fit"])
def test_the_papers_sampling_leaves_little_room(how):
    """Less than a hundredth of a budget unspent, and less than two of a fixed length padded."""
    found = pack_statistics(open_source("scenes"), "train", SizeSampler(16, PAPER), capacity=1024, how=how, images=8000)
    assert found.images == 8000 == sum(images for _, images in found.sequences)
    assert found.tokens == sum(found.lengths) == sum(tokens for tokens, _ in found.sequences)
    assert found.unused < (0.01 if how == "best_fit" else 0.02)
    assert found.padding_factor == pytest.approx(max(found.lengths) / np.mean(found.lengths))


@given(values=st.lists(st.integers(1, 500), min_size=1), bins=st.integers(1, 20))
def test_a_histogram_counts_each_value_once(values, bins):
    found = histogram(values, bins)
    assert len(found) <= bins
    assert (found[0][0], found[-1][1]) == (min(values), max(values))
    for (low, high, count), following in zip(found, [*found[1:], None], strict=True):
        assert count == sum(low <= value <= high for value in values)
        assert following is None or following[0] == high + 1
