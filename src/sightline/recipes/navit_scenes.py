"""The embedded scenes at many sizes, with tokens dropped and packed: NaViT's data path, all else as `vit_scenes`."""

from __future__ import annotations

import dataclasses

from sightline.data.packs import PackingConfig
from sightline.recipes.vit_scenes import recipe as vit_scenes
from sightline.training.config import TrainConfig

DATA = "scenes"


def recipe(data: str = "scenes") -> TrainConfig:
    """Square scenes of 16 to 32 px, a fifth of the tokens dropped, about 32 images a step as in `vit_scenes`.

    `sightline train --recipe navit_scenes --out runs/navit_scenes`: about 6 minutes on one core with AMX; top-1 on
    glyphs of .85 to .87 at 32 px and .69 to .71 at 16 px (three seeds).
    """
    packing = PackingConfig(
        tokens=1088, resolutions=(16, 32), aspect="square", drop="constant", drop_options={"drop": 0.2}
    )
    return dataclasses.replace(vit_scenes(data), packing=packing)
