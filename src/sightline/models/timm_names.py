"""What timm calls the things that our models have."""

from __future__ import annotations

from typing import Any

from sightline.grid import Grid
from sightline.models.config import ViTConfig
from sightline.models.pooling import Pool

TIMM_POOLS: dict[str, Pool] = {"token": "cls", "avg": "mean", "map": "attention"}
"""timm's names of our poolings; timm's "" is no pooling."""


def timm_cfg(config: ViTConfig) -> dict[str, Any]:
    """How images are prepared, and where the first layer and the head are, with the keys of timm's `pretrained_cfg`."""
    height, width = Grid.checked(config.image_size)
    return {
        "input_size": (config.channels, height, width),
        "fixed_input_size": False,
        "pool_size": None,
        "num_classes": config.num_classes,
        "mean": config.mean,
        "std": config.std,
        "interpolation": config.interpolation,
        "crop_pct": config.crop,
        "first_conv": "patch_embed.proj",
        "classifier": "head.fc2" if config.head == "mlp" else "head",
    }
