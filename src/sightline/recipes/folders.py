"""A folder of one's own images."""

from __future__ import annotations

import dataclasses

from sightline.data.config import PackingConfig
from sightline.data.summary import Summary
from sightline.models import model_config
from sightline.training.config import OptimizerConfig, TrainConfig

# Median side in pixels below which -> model, side of the training images: about 64 to 200 patches each.
_SIZES = ((40, "vit_tiny_patch4", 32), (96, "vit_tiny_patch8", 64), (192, "vit_tiny_patch16", 128))
BATCH_SIZE = 64
_LARGE = ("vit_tiny_patch16", 224)


def imagefolder(data: str = "imagefolder:.", seen: Summary | None = None) -> TrainConfig:
    """30 passes with a tiny ViT, softmax cross entropy with label smoothing; size and patch by the folder's images.

    `sightline train --data imagefolder:DIR --out runs/mine`: the time and the accuracy depend on the folder.

    Args:
        seen: of the folder: its mean and deviation are the model's, and where its images are small the model is one of
            patch 16 at 128 px, of patch 8 at 64 px, or of patch 4 at 32 px. None: patch 16 at 224 px.
    """
    small = [(model, side) for most, model, side in _SIZES if seen is not None and seen.side < most]
    model, side = small[0] if small else _LARGE
    return TrainConfig(
        data=data,
        model=model,
        model_options={} if seen is None else {"mean": seen.mean, "std": seen.std},
        resolution=side,
        epochs=30.0,
        batch_size=BATCH_SIZE,
        loss="ce",
        label_smoothing=0.1,
        optimizer=OptimizerConfig(lr=5e-4, betas=(0.9, 0.999)),
    )


def navit_imagefolder(data: str = "imagefolder:.", seen: Summary | None = None) -> TrainConfig:
    """Images at many sizes and their own aspect, packed: sides from half of the fixed size of `imagefolder` to all of
    it, about as many images a step; all else as `imagefolder`.

    `sightline train --recipe navit_imagefolder --data imagefolder:DIR --out runs/mine`: in about 6 / 10 of the
    operations of `imagefolder`; the time and the accuracy depend on the folder.

    Args:
        seen: as for `imagefolder`.
    """
    fixed = imagefolder(data, seen)
    assert fixed.model is not None
    assert fixed.resolution is not None
    # The mean of the squares of sides from 1/2 to 1 is 7/12; and one token for the class.
    patches = (fixed.resolution // model_config(fixed.model).patch_size) ** 2
    packing = PackingConfig(
        tokens=BATCH_SIZE * (patches * 7 // 12 + 1), resolutions=(fixed.resolution // 2, fixed.resolution)
    )
    return dataclasses.replace(fixed, packing=packing)


def csv(data: str = "csv:captions.csv", seen: Summary | None = None) -> TrainConfig:
    """Images and captions: size and patch by the images, as `imagefolder`, a small text tower, batch 64, 30 passes.
    Images and labels, without captions or with `,label=COLUMN`: as `imagefolder`.

    `sightline train csv:FILE --out runs/mine`: the time and the accuracy depend on the images.

    Args:
        seen: as for `imagefolder`.
    """
    found = imagefolder(data, seen)
    if seen is not None and seen.provides and "captions" not in seen.provides[:1]:
        return found
    return dataclasses.replace(
        found, task="contrastive", task_options={"embed_dim": 192}, loss=None, label_smoothing=None
    )
