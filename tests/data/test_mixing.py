"""Mixed images: the share of the label is the share of the pixels, at any size, the same in a batch and in a pack."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sightline.data.config import MixingConfig
from sightline.data.loader import read_example
from sightline.data.open import open_source
from sightline.data.pack_plan import PackPlan
from sightline.data.sizes import ResolutionSampling, SizeSampler
from sightline.tokens.layout import TokenLayout
from tests.batches import labelling, packed_batches, uniform_batches

SIZE = (16, 28)
SCENES = open_source("scenes")


def alone(index, size=SIZE):
    return SCENES.example("train", index, size, seed=2).image


def mixed(index, config, size=SIZE, source=SCENES):
    example, lost = read_example(source, "train", index, size, seed=2, epoch=0, mixing=config)
    assert lost is None
    return example


def partner_of(index):
    """Mixed wholly away, an image is its partner: what a share of 0 would give."""
    one = mixed(index, MixingConfig(mixup=1e-9))
    return one.image if one.target.share == 0 else None


def test_mixup_is_the_weighted_mean_of_two_images_of_one_size():
    found = 0
    for index in range(12):
        one, partner = mixed(index, MixingConfig(mixup=0.8)), partner_of(index)
        assert one.image.shape == (*SIZE, 3)
        if partner is not None:
            found += 1
            share = one.target.share
            expected = share * alone(index).astype(float) + (1 - share) * partner
            assert np.abs(one.image - expected).max() <= 0.5 + 1e-9
    assert found >= 2


@pytest.mark.parametrize("index", range(8))
def test_cutmix_leaves_the_share_of_the_pixels_that_it_says(index):
    one, own = mixed(index, MixingConfig(cutmix=1.0)), alone(index)
    changed, share = (one.image != own).any(axis=-1), one.target.share
    rows, cols = (np.flatnonzero(changed.any(axis=axis)) for axis in (1, 0))
    box = (rows[-1] - rows[0] + 1) * (cols[-1] - cols[0] + 1) if len(rows) else 0
    # Pixels that happen to be alike may lie at the edge of the box.
    assert box <= round((1 - share) * SIZE[0] * SIZE[1]) <= box + 2 * sum(SIZE)
    assert 0 <= share <= 1


def test_a_pack_holds_the_images_that_a_batch_holds():
    config = MixingConfig(mixup=0.3, cutmix=0.3)
    options = {"seed": 2, "mixing": config}
    (batch,) = uniform_batches(SCENES, "train", indices=[0, 1, 2, 3], image_size=(16, 16), batch_size=4, **options)
    sampler = SizeSampler(4, ResolutionSampling(16, 16), aspect="square")
    planned = list(PackPlan(SCENES, "train", sampler, capacity=64, images=4).batches())
    for workers in (0, 2):
        (pack,) = packed_batches(SCENES, "train", planned, workers=workers, **options)
        order = pack.indices.argsort()
        assert pack.targets.keys() == batch.targets.keys() == {"labels", "others", "shares"}
        for name in batch.targets:
            assert torch.equal(pack.targets[name][order], batch.targets[name])
        assert torch.equal(torch.stack(pack.inputs[0].split(16))[order], batch.inputs)
    assert (batch.targets["shares"] < 1).any()


@pytest.mark.parametrize("loss", ["bce", "ce"])
def test_the_loss_of_a_mixed_label(loss):
    torch.manual_seed(0)
    logits, labels, others = torch.randn(5, 7), torch.arange(5), torch.tensor([1, 1, 6, 0, 4])
    shares = torch.tensor([0.25, 1.0, 0.5, 0.0, 0.3])
    task, layout = labelling(7, loss=loss, label_smoothing=0.1), TokenLayout.uniform((1, 1), 5)

    def of(logits, **targets):
        total, units = task.loss(logits, targets, layout)
        assert units == len(logits)
        return total / units

    found = of(logits, labels=labels, others=others, shares=shares)
    parts = [
        torch.stack([of(logits[i : i + 1], labels=side[i : i + 1]) for i in range(5)]) for side in (labels, others)
    ]
    # Both losses are linear in the target.
    torch.testing.assert_close(found, (shares * parts[0] + (1 - shares) * parts[1]).mean())
    unmixed = of(logits, labels=labels, others=others, shares=torch.ones(5))
    torch.testing.assert_close(unmixed, of(logits, labels=labels))
    if loss == "ce":
        torch.testing.assert_close(unmixed, F.cross_entropy(logits, labels, label_smoothing=0.1))
