"""The embedded scenes."""

from __future__ import annotations

from sightline.training.config import TrainConfig

DATA = "scenes"


def recipe(data: str = "scenes") -> TrainConfig:
    """48,000 fresh scenes once at 32 px, BCE, batch 32, lr 1.5e-3: the recipe of docs/DESIGN.md's data set.

    `sightline train --data scenes --encoding lookhere_90 --out runs/glyphs`: about 4 minutes on one core with
    AVX512-BF16 or AMX; top-1 on glyphs of .90 or more at 32 px.
    """
    # The mean and deviation of 3,000 training scenes; the same to two digits in each colour.
    return TrainConfig(data=data, model_options={"mean": (0.26,) * 3, "std": (0.23,) * 3})
