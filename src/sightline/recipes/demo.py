"""The demonstration: three encodings trained at one resolution, tested at many."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from sightline.evaluation import EvaluateConfig
from sightline.recipes.embedded import scenes
from sightline.training.jobs import Job

ENCODINGS = ("lookhere_90", "rope_axial", "learned_1d")
RESOLUTIONS = (20, 24, 32, 44, 56, 64, 108, 148)


def demo_jobs(out: Path, *, seed: int, quick: bool, cores: int, device: str = "cpu") -> list[Job]:
    """One job an encoding: 48,000 glyphs at 32 px, then 1,000 test scenes a size up to 64 px and 300 beyond.

    `sightline demo`: LookHere-90 reaches a top-1 of .89 to .92 at 32 px and of .89 to .91 at 148 px (four seeds).
    `quick` shows 640 glyphs and tests on 60 and 6: enough to see that everything works, far too few to learn.
    """
    train = dataclasses.replace(scenes(), seed=seed)
    evaluate = EvaluateConfig(
        RESOLUTIONS, ("test", "heldout_fonts"), images=1000, images_beyond=(64, 300), knobs="tuned", tune_images=64
    )
    if quick:
        train = dataclasses.replace(train, images=640)
        evaluate = dataclasses.replace(evaluate, images=60, images_beyond=(64, 6), tune_images=4)
    threads = max(1, cores // len(ENCODINGS))
    return [
        Job(name, dataclasses.replace(train, encoding=name), evaluate, out / name, threads, device)
        for name in ENCODINGS
    ]
