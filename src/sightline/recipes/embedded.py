"""The embedded data sets: scikit-learn's handwritten digits, and scenes."""

from __future__ import annotations

import dataclasses

from sightline.data.config import PackingConfig
from sightline.training.config import OptimizerConfig, TrainConfig

# Operations of 24,000 scenes at 32 px: the accuracy of the fixed size is then still rising steeply.
_FLOPS = 1.76e13


def digits(data: str = "digits") -> TrainConfig:
    """10 passes over 1,297 digits at 16 px with the micro model.

    `sightline train --data digits --out runs/digits`: half a minute on two cores; top-1 of .98 at 16 px (two seeds;
    6 passes reach .96, 4 reach .92).
    """
    return TrainConfig(
        data=data,
        model_options={"mean": (0.29,) * 3, "std": (0.34,) * 3},
        resolution=16,
        epochs=10.0,
        optimizer=OptimizerConfig(lr=1e-3),
    )


def scenes(data: str = "scenes") -> TrainConfig:
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


def vit_scenes(data: str = "scenes") -> TrainConfig:
    """Whole scenes at 32 px within a budget of operations, lr 1.5e-3, all else as `scenes`: what `navit_scenes` is
    compared with.

    `sightline train --recipe vit_scenes --out runs/vit_scenes`: about 3 minutes on one core with AMX; top-1 on glyphs
    of .73 to .81 at 32 px and .38 to .49 at 16 px (three seeds).
    """
    return dataclasses.replace(scenes(data), flops=_FLOPS, parts=None, optimizer=OptimizerConfig(lr=1.5e-3))


def navit_scenes(data: str = "scenes") -> TrainConfig:
    """Square scenes of 16 to 32 px, a fifth of the tokens dropped, packed, about 32 images a step: NaViT's data path,
    all else as `vit_scenes`.

    `sightline train --recipe navit_scenes --out runs/navit_scenes`: about 6 minutes on one core with AMX; top-1 on
    glyphs of .85 to .87 at 32 px and .69 to .71 at 16 px (three seeds).
    """
    packing = PackingConfig(
        tokens=1088, resolutions=(16, 32), aspect="square", drop="constant", drop_options={"drop": 0.2}
    )
    return dataclasses.replace(vit_scenes(data), packing=packing)


def contrastive_scenes(data: str = "scenes:pairs") -> TrainConfig:
    """Captions of 96,000 whole scenes of two shapes at 32 px, batch 64, lr 1e-3; a text tower of 2 layers of width 96.

    `sightline train --recipe contrastive_scenes --encoding lookhere_90 --out runs/words`: 7.4e13 operations, 28 minutes
    on one core with AVX2 alone; zero-shot top-1 of .98 at 32 px, .85 at 64 px, .64 at 96 px (1,000 scenes; three
    seeds). Knowing the two shapes without their relation gives .25.
    """
    # With a learned table, order in a caption is still not read after 96,000 pairs.
    text = {"depth": 2, "dim": 96, "heads": 3, "length": 24, "encoding": "rope_axial"}
    return dataclasses.replace(
        scenes(data),
        images=96_000,
        batch_size=64,
        parts=None,
        task="contrastive",
        task_options={"embed_dim": 96, "text": text},
    )
