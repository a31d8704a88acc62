"""Dense tasks on the embedded scenes."""

from __future__ import annotations

import dataclasses

from sightline.recipes.embedded import scenes
from sightline.training.config import OptimizerConfig, TrainConfig

_OPTIMIZER = OptimizerConfig(lr=1.5e-3)


def segment_scenes(data: str = "scenes:pairs") -> TrainConfig:
    """A class for each pixel of 16,000 scenes at 32 px by the head `pix`, lr 1.5e-3, all else as `scenes`.

    `sightline train --recipe segment_scenes --encoding lookhere_90 --out runs/segment`: about 3 minutes on one core
    with AVX512-BF16; mean IoU of .90 at 32 px (2,000 scenes), .95 at 64 and .84 at 108 (300 scenes; one seed).
    """
    return dataclasses.replace(scenes(data), task="segmentation", images=16_000, optimizer=_OPTIMIZER)


def detect_scenes(data: str = "scenes:pairs") -> TrainConfig:
    """Boxes of the objects of 16,000 scenes at 32 px by the head `fcos`, classes weighed 4 times, all else as
    `segment_scenes`.

    `sightline train --recipe detect_scenes --encoding lookhere_90 --out runs/detect`: about 5 minutes on one core;
    AP of .65 and AP50 of .94 at 32 px (2,000 scenes), AP50 of .94 at 64 px (600 scenes; one seed).
    """
    return dataclasses.replace(segment_scenes(data), task="detection", task_options={"class_weight": 4.0})
