"""Packs at their limits, from a data set to logits: full, one token, too many images, all dropped, none."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.data.open import open_source
from sightline.data.packs import plan
from sightline.data.sampling import ConstantDrop, ResolutionSampling, SizeSampler
from sightline.errors import InputError
from sightline.models import create_model
from sightline.tasks.base import predict_batch
from tests.batches import kept_of, packed_batches
from tests.contract.randomise import randomise_parameters


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Images of 4, 6, 8, 5, 1 and 4 patches of 4 x 4 pixels."""
    folder = tmp_path_factory.mktemp("data")
    for number, (rows, cols) in enumerate([(1, 4), (2, 3), (4, 2), (5, 1), (1, 1), (2, 2)]):
        label = folder / "train" / "ab"[number % 2]
        label.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (4 * rows, 4 * cols, 3), np.uint8)
        Image.fromarray(pixels).save(label / f"{number}.png")
    return open_source(f"imagefolder:{folder}")


def planned(source, sampler=None, images=6, **options):
    return list(plan(source, "train", sampler or SizeSampler(4), **{"capacity": 8, "images": images, **options}))


def sums(batches):
    return [sum(one.tokens for one in batch) for batch in batches]


def logits(source, batches):
    """Of each image by its index, packed and alone."""
    model = randomise_parameters(create_model("vit_micro_patch4", encoding="rope_mixed", depth=2, num_classes=5)).eval()
    found = {}
    for several in (batches, [[one] for batch in batches for one in batch]):
        by_index = {}
        for batch in packed_batches(source, "train", several, num_prefix_tokens=model.num_prefix_tokens):
            with torch.no_grad():
                by_index |= dict(zip(batch.indices.tolist(), predict_batch(model, batch), strict=True))
        found[len(several)] = by_index
    return found[len(batches)], found[sum(map(len, batches))]


def test_full_to_the_token(source):
    """28 tokens in packs of 8: an image that is as long as a pack has its own, the others are put together."""
    for how in ("first_fit", "best_fit"):
        batches = planned(source, how=how)
        assert sum(sums(batches)) == 28
        assert max(sums(batches)) == 8
        lone = [batch for batch in batches if any(one.tokens == 8 for one in batch)]
        assert [len(batch) for batch in lone] == [1]
    assert [len(batch) for batch in planned(source, capacity=28)] == [6]


def test_longer_than_a_pack(source):
    """Refused by its lengths; or shown smaller, where that is asked for."""
    with pytest.raises(InputError, match=r"image \d+: has 8 tokens, and a sequence 7; lower the resolution"):
        planned(source, capacity=7)
    batches = planned(source, SizeSampler(4, most_tokens=7), capacity=7)
    assert sorted(one.index for batch in batches for one in batch) == list(range(6))
    assert max(math.prod(one.image_size) // 16 for batch in batches for one in batch) <= 7


def test_more_images_than_a_pack_takes(source):
    batches = planned(source, capacity=100, most_images=2)
    assert [len(batch) for batch in batches] == [2, 2, 2]
    assert sorted(one.index for batch in batches for one in batch) == list(range(6))


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.99, 1.0])
def test_an_image_keeps_what_is_not_dropped_and_at_least_one_token(source, rate):
    given = planned(source, SizeSampler(4, drop=ConstantDrop(rate)), capacity=28)
    for batch, made in zip(given, packed_batches(source, "train", given), strict=True):
        used, grids = [one.tokens for one in batch], [segment.grid for segment in made.layout.segments]
        assert used == [max(round(grid.cells * (1 - rate)), 1) for grid in grids]
        assert made.inputs.shape[:2] == (1, sum(used))
        assert [len(kept) for kept in kept_of(made)] == used
        assert all(one.kept is not None and len(one.kept) == one.tokens for one in batch)
        assert sum(grid.cells for grid in grids) == 28
    assert sum(map(len, given)) == 6
    packed, alone = logits(source, given)
    assert packed.keys() == alone.keys() == set(range(6))
    assert torch.stack(list(alone.values())).std() > 0.02
    assert all((packed[index] - alone[index]).abs().max() < 2e-5 for index in packed)


def test_images_of_one_token(source):
    batches = planned(source, SizeSampler(4, ResolutionSampling(8, 40), most_tokens=1), capacity=4)
    assert sums(batches) == [4, 2]
    assert {(one.image_size, one.tokens) for batch in batches for one in batch} == {((4, 4), 1)}
    packed, alone = logits(source, batches)
    assert len(packed) == 6
    assert all((packed[index] - alone[index]).abs().max() < 2e-5 for index in packed)


def test_no_images(source):
    assert planned(source, images=0) == []
    assert list(packed_batches(source, "train", [])) == []
    assert len(list(islice(plan(source, "train", SizeSampler(4), capacity=8), 50))) == 50, "without an end otherwise"
