"""Clips: moving scenes, and a folder of one's own."""

from __future__ import annotations

import dataclasses

from sightline.data.summary import Summary
from sightline.recipes import folders
from sightline.training.config import OptimizerConfig, TrainConfig

# ViViT section 3.2.2 takes tubelets of two frames by the patch.
_TUBELETS = {"embedder": "tubelets", "embedder_options": {"frames": 2}}


def moving(data: str = "moving") -> TrainConfig:
    """24,000 fresh clips of 4 frames of 32 px in which a glyph moves, in tubelets of two frames; the micro model, BCE,
    batch 32, lr 1e-3.

    `sightline train --data moving --out runs/moving`: `benchmarks/video.py` has the time and the accuracy of three
    encodings.
    """
    return TrainConfig(
        data=data,
        # Of the scenes whose glyphs move.
        model_options={**_TUBELETS, "mean": (0.26,) * 3, "std": (0.23,) * 3},
        resolution=32,
        frames=4,
        images=24_000,
        optimizer=OptimizerConfig(lr=1e-3),
    )


def clips(data: str = "clips:.", seen: Summary | None = None) -> TrainConfig:
    """30 passes over a folder of clips, 8 frames of each in tubelets of two; all else as `imagefolder` has it for
    images of the size of their frames.

    `sightline train --data clips:DIR --out runs/mine`: the time and the accuracy depend on the folder.

    Args:
        seen: as for `imagefolder`.
    """
    still = folders.imagefolder(data, seen)
    return dataclasses.replace(
        still, model_options={**_TUBELETS, **still.model_options}, frames=8, batch_size=folders.BATCH_SIZE // 4
    )
