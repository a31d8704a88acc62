"""The embedded scenes at every size, packed: NaViT's data path, all else as `vit_scenes`."""

from __future__ import annotations

import dataclasses

from sightline.data.packs import PackingConfig
from sightline.recipes.vit_scenes import recipe as vit_scenes
from sightline.training.config import TrainConfig


def recipe(data: str = "scenes") -> TrainConfig:
    """Sides from 16 to 48 px, half of the tokens dropped, as many tokens a step as `vit_scenes` has."""
    packing = PackingConfig(tokens=2048, resolutions=(16, 48), drop="beta", drop_options={"mean": 0.5, "most": 0.8})
    return dataclasses.replace(vit_scenes(data), packing=packing)
