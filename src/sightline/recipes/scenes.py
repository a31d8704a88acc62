"""The embedded scenes."""

from __future__ import annotations

from sightline.training.config import OptimizerConfig, TrainConfig

DATA = "scenes"


def recipe(data: str = "scenes") -> TrainConfig:
    """A random part (.35 to 1 of the area) of each of 48,000 fresh scenes at 32 px, BCE, batch 32, lr 1e-3.

    `sightline train --data scenes --encoding lookhere_90 --out runs/glyphs`: about 6 minutes on one core with
    AVX512-BF16; top-1 on glyphs of .89 to .91 at 32 px (three seeds, the knob at its default).
    """
    # The mean and deviation of 3,000 training scenes; the same to two digits in each colour.
    return TrainConfig(
        data=data,
        model_options={"mean": (0.26,) * 3, "std": (0.23,) * 3},
        parts=0.35,
        optimizer=OptimizerConfig(lr=1e-3),
    )
