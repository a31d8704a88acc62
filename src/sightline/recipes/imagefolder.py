"""A folder of one's own images."""

from __future__ import annotations

from sightline.training.config import OptimizerConfig, TrainConfig


def recipe(data: str = "imagefolder:.") -> TrainConfig:
    """30 passes with ViT-Ti/16 at 224 px, softmax cross entropy with label smoothing, and a running mean of weights.

    `sightline train --data imagefolder:DIR --out runs/mine`: the time and the accuracy depend on the folder.
    """
    return TrainConfig(
        data=data,
        model="vit_tiny_patch16",
        epochs=30.0,
        batch_size=64,
        loss="ce",
        label_smoothing=0.1,
        optimizer=OptimizerConfig(lr=5e-4, betas=(0.9, 0.999)),
    )
