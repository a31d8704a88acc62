"""Training without labels, to fine-tune from."""

from __future__ import annotations

import dataclasses

from sightline.data.summary import Summary
from sightline.recipes.embedded import scenes
from sightline.recipes.folders import imagefolder
from sightline.training.config import OptimizerConfig, TrainConfig


def masked_patches(data: str = "scenes") -> TrainConfig:
    """Masked patch prediction on 32,000 scenes at 32 px: the mean 3-bit colour of each corrupted patch (ViT appendix
    B.1.2), half of an image's, all else as `scenes`.

    `sightline train --recipe masked_patches --data scenes --out runs/masked`: about 6 minutes on one core with
    AVX512-BF16 (at the 90 images a second of its undisturbed stretches); the loss falls from 6.24 nats, that of chance,
    to 1.48 on `minival` (one seed), where one answer for all patches has 4.04. Then
    `sightline train --data scenes --init-from runs/masked --out runs/tuned`.
    """
    return dataclasses.replace(scenes(data), task="masked_patches", images=32_000, optimizer=OptimizerConfig(lr=1e-3))


def images(data: str = "images:.", seen: Summary | None = None) -> TrainConfig:
    """Masked patch prediction on a folder of images without labels: the mean 3-bit colour of each corrupted patch, all
    else as `imagefolder`.

    `sightline train --data images:DIR --out runs/masked`: the time and the loss depend on the folder.

    Args:
        seen: as for `imagefolder`.
    """
    return dataclasses.replace(imagefolder(data, seen), task="masked_patches", loss=None, label_smoothing=None)
