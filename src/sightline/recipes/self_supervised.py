"""Training without labels, to fine-tune from."""

from __future__ import annotations

import dataclasses

from sightline.recipes.embedded import scenes
from sightline.training.config import OptimizerConfig, TrainConfig


def masked_patches(data: str = "scenes") -> TrainConfig:
    """Masked patch prediction on 32,000 scenes at 32 px: the mean 3-bit colour of each corrupted patch (ViT appendix
    B.1.2), half of an image's, all else as `scenes`.

    `sightline train --recipe masked_patches --data scenes --out runs/masked`, then
    `sightline train --data scenes --init-from runs/masked --out runs/tuned`.
    """
    return dataclasses.replace(scenes(data), task="masked_patches", images=32_000, optimizer=OptimizerConfig(lr=1e-3))
