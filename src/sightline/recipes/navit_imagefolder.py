"""A folder of one's own images at many sizes and their own aspect, packed; all else as `imagefolder`."""

from __future__ import annotations

import dataclasses

from sightline.data.packs import PackingConfig
from sightline.data.summary import Summary
from sightline.models import model_config
from sightline.recipes.imagefolder import recipe as imagefolder
from sightline.training.config import TrainConfig

DATA = "imagefolder"


def recipe(data: str = "imagefolder:.", seen: Summary | None = None) -> TrainConfig:
    """Sides from half of the fixed size of `imagefolder` to all of it, each image's aspect kept, about as many images a
    step.

    `sightline train --recipe navit_imagefolder --data imagefolder:DIR --out runs/mine`: in about 6 / 10 of the
    operations of `imagefolder`.

    Args:
        seen: as for `imagefolder`.
    """
    fixed = imagefolder(data, seen)
    assert fixed.model is not None
    assert fixed.resolution is not None
    model = model_config(fixed.model)
    # The mean of the squares of sides from 1/2 to 1 is 7/12; and one token for the class.
    tokens = fixed.batch_size * ((fixed.resolution // model.patch_size) ** 2 * 7 // 12 + 1)
    packing = PackingConfig(tokens=tokens, resolutions=(fixed.resolution // 2, fixed.resolution))
    return dataclasses.replace(fixed, packing=packing)
