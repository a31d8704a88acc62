"""Batches of timm's NaFlex loader give what their images give, and what timm's NaFlexVit makes of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sightline.distributed.machine import import_timm
from tests.contract.contract import PATCH, build
from tests.convert.originals import imported, original

SIZES = [(3, 5), (6, 4), (1, 7)]


def pictures(channels=3, patch=PATCH):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(channels, rows * patch, cols * patch, generator=generator) for rows, cols in SIZES]


def collated(pictures, length, patch=PATCH, **options):
    import_timm()
    from timm.data.naflex_dataset import NaFlexCollator
    from timm.data.naflex_transforms import Patchify

    cut = Patchify(patch, **options)
    batch, targets = NaFlexCollator(length)([(cut(one), 0) for one in pictures])
    assert len(targets) == len(pictures)
    return batch


@pytest.mark.parametrize("encoding", ["learned_1d", "lookhere_90", "rope_mixed"])
@pytest.mark.parametrize("pool", ["cls", "attention"])
@pytest.mark.parametrize("flat", [True, False])
def test_a_batch_gives_what_its_images_give(encoding, pool, flat):
    model: Any = build(encoding, pool)
    batch = collated(pictures(), 30, flatten_patches=flat)
    with torch.no_grad():
        expected = model(pictures())
        assert (model(batch) - expected).abs().max() < 1e-6
        assert (model.forward_head(model.forward_features(batch)) - expected).abs().max() < 1e-5


def test_patches_that_are_cut_off_are_not_there():
    """20 of 24 patches of the second image, whose grid stays what it is."""
    model = build("rope_axial")
    rows, layout = model.cut([pictures()[1]])
    kept = layout.keep([torch.arange(20)])
    with torch.no_grad():
        expected = model(rows[:, :20], kept)
        assert (model(collated(pictures(), 20))[1] - expected[0]).abs().max() < 1e-6


def test_it_is_what_timms_own_makes_of_it():
    theirs = original("naflexvit_base_patch16_gap", embed_dim=48, depth=2, num_heads=4, num_classes=5)
    config = {"model": "naflexvit_base_patch16_gap", "embed_dim": 48, "depth": 2, "num_heads": 4, "num_classes": 5}
    ours = imported(theirs, config)
    batch = collated(pictures(patch=16), 24, patch=16)
    with torch.no_grad():
        assert (ours(batch) - theirs(batch)).abs().max() < 2e-5
