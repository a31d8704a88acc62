"""Mixed images: the share of the label is the share of the pixels, at any size, the same in a batch and in a pack."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from sightline.data.discovery import open_source
from sightline.data.loader import batches
from sightline.data.mixing import MixingConfig, mixed_example
from sightline.data.packs import packed_batches, plan
from sightline.data.sampling import ResolutionSampling, Showing
from sightline.errors import InputError
from sightline.patchify import patchify
from sightline.tasks.classification import classification_loss

SIZE = (16, 28)
SCENES = open_source("scenes")


def alone(index, size=SIZE):
    return SCENES.example("train", index, size, seed=2).image


def mixed(index, config, size=SIZE, source=SCENES):
    return mixed_example(source, "train", index, size, seed=2, epoch=0, mixing=config)


def partner_of(index):
    """Mixed wholly away, an image is its partner: what a share of 0 would give."""
    one = mixed(index, MixingConfig(mixup=1e-9))
    return one.example.image if one.share == 0 else None


def test_mixup_is_the_weighted_mean_of_two_images_of_one_size():
    found = 0
    for index in range(12):
        one, partner = mixed(index, MixingConfig(mixup=0.8)), partner_of(index)
        assert one.example.image.shape == (*SIZE, 3)
        if partner is not None:
            found += 1
            expected = one.share * alone(index).astype(float) + (1 - one.share) * partner
            assert np.abs(one.example.image - expected).max() <= 0.5 + 1e-9
    assert found >= 2


@pytest.mark.parametrize("index", range(8))
def test_cutmix_leaves_the_share_of_the_pixels_that_it_says(index):
    one, own = mixed(index, MixingConfig(cutmix=1.0)), alone(index)
    changed = (one.example.image != own).any(axis=-1)
    rows, cols = (np.flatnonzero(changed.any(axis=axis)) for axis in (1, 0))
    box = (rows[-1] - rows[0] + 1) * (cols[-1] - cols[0] + 1) if len(rows) else 0
    # Pixels that happen to be alike may lie at the edge of the box.
    assert box <= round((1 - one.share) * SIZE[0] * SIZE[1]) <= box + 2 * sum(SIZE)
    assert 0 <= one.share <= 1


def test_it_is_drawn_by_seed_index_and_epoch_alone():
    config = MixingConfig(mixup=0.2, cutmix=1.0, chance=0.5)
    shares = [mixed(index, config).share for index in range(200)]
    assert shares == [mixed(index, config).share for index in range(200)]
    assert 60 < shares.count(1.0) < 140
    assert all(np.array_equal(mixed(i, config).example.image, alone(i)) for i in range(20) if shares[i] == 1.0)


def test_nothing_is_mixed_unless_asked():
    for config in (None, MixingConfig(), MixingConfig(mixup=1.0, chance=0.0)):
        one = mixed(3, config)
        assert (one.share, one.other) == (1.0, one.example.label)
        assert np.array_equal(one.example.image, alone(3))


def test_a_pack_holds_the_images_that_a_batch_holds():
    config = MixingConfig(mixup=0.3, cutmix=0.3)
    (batch,) = batches(SCENES, "train", indices=[0, 1, 2, 3], image_size=(16, 16), batch_size=4, seed=2, mixing=config)
    planned = list(
        plan(SCENES, "train", Showing(4, ResolutionSampling(16, 16), aspect="square"), capacity=64, images=4)
    )
    for workers in (0, 2):
        (pack,) = packed_batches(SCENES, "train", planned, patch_size=4, seed=2, workers=workers, mixing=config)
        order = pack.indices.argsort()
        for name in ("labels", "others", "shares"):
            assert torch.equal(getattr(pack, name)[order], getattr(batch, name))
        pixels = torch.stack(pack.patches.split(16))[order]
        assert torch.equal(pixels, patchify(batch.images, 4))
    assert (batch.shares < 1).any()


@pytest.mark.parametrize("loss", ["bce", "ce"])
def test_the_loss_of_a_mixed_label(loss):
    torch.manual_seed(0)
    logits, labels, others = torch.randn(5, 7), torch.arange(5), torch.tensor([1, 1, 6, 0, 4])
    shares = torch.tensor([0.25, 1.0, 0.5, 0.0, 0.3])
    found = classification_loss(logits, labels, loss, 0.1, others, shares)
    parts = [
        torch.stack([classification_loss(logits[i : i + 1], side[i : i + 1], loss, 0.1) for i in range(5)])
        for side in (labels, others)
    ]
    # Both losses are linear in the target.
    torch.testing.assert_close(found, (shares * parts[0] + (1 - shares) * parts[1]).mean())
    unmixed = classification_loss(logits, labels, loss, 0.1, others, torch.ones(5))
    torch.testing.assert_close(unmixed, classification_loss(logits, labels, loss, 0.1))
    if loss == "ce":
        torch.testing.assert_close(unmixed, F.cross_entropy(logits, labels, label_smoothing=0.1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mixup": -0.1}, "mixing.mixup -0.1: expected 0 or more"),
        ({"cutmix": float("nan")}, "mixing.cutmix nan"),
        ({"chance": 1.5}, "mixing.chance 1.5: expected 0 to 1"),
    ],
)
def test_what_is_refused(change, words):
    with pytest.raises(InputError) as error:
        MixingConfig(**change)
    assert words in str(error.value)
