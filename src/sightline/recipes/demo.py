"""The demonstrations: three encodings trained at one resolution, tested at many."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sightline.errors import choose
from sightline.evaluation import EvaluateConfig
from sightline.recipes.dense import segment_scenes
from sightline.recipes.embedded import scenes
from sightline.training.config import TrainConfig
from sightline.training.jobs import Job

ENCODINGS = ("lookhere_90", "rope_axial", "learned_1d")
RESOLUTIONS = (20, 24, 32, 44, 56, 64, 108, 148)


@dataclass(frozen=True)
class Demo:
    """What is trained with each encoding, and how it is tested on the data of its training and on others."""

    title: str
    train: TrainConfig
    evaluate: EvaluateConfig
    also: Mapping[str, EvaluateConfig] = field(default_factory=dict)


def classification() -> Demo:
    """48,000 glyphs at 32 px, then 1,000 test scenes a size up to 64 px and 300 beyond.

    `sightline demo`: LookHere-90 reaches a top-1 of .89 to .92 at 32 px and of .89 to .91 at 148 px (four seeds).
    """
    evaluate = EvaluateConfig(
        RESOLUTIONS,
        ("test", "heldout_fonts"),
        images=1000,
        images_beyond=(64, 300),
        knobs="tuned",
        tune_images=64,
        tuned=("knob",),
    )
    return Demo("Trained at 32 pixels, tested from 20 to 148", scenes(), evaluate)


def segmentation() -> Demo:
    """12,800 pairs of shapes at 32 px, then 400 test scenes a size up to 64 px and 100 beyond; and `scenes:search`,
    whose objects stay as large in pixels as in training while the extent grows.

    `sightline demo --task segmentation`: about 5 minutes on two cores. The recipe itself shows 16,000.
    """
    evaluate = EvaluateConfig((32, 64, 108), images=400, images_beyond=(64, 100))
    search = dataclasses.replace(evaluate, resolutions=(32, 64, 96, 128))
    title = "A class for each pixel: trained at 32 pixels, tested on larger images"
    return Demo(title, dataclasses.replace(segment_scenes(), images=12_800), evaluate, {"scenes:search": search})


DEMOS: dict[str, Callable[[], Demo]] = {"classification": classification, "segmentation": segmentation}


def demo_of(task: str) -> Demo:
    """The demonstration of a task; raises InputError where there is none."""
    if task not in DEMOS:
        raise choose("demonstration of task", task, DEMOS)
    return DEMOS[task]()


def demo_jobs(
    out: Path, *, seed: int, quick: bool, cores: int, device: str = "cpu", task: str = "classification"
) -> list[Job]:
    """One job an encoding. `quick` shows 640 images and tests on 60 and 6: enough to see that everything works, far too
    few to learn."""
    demo = demo_of(task)
    train, measured = dataclasses.replace(demo.train, seed=seed), {demo.train.data: demo.evaluate, **demo.also}
    if quick:
        train = dataclasses.replace(train, images=640)
        few = {"images": 60, "images_beyond": (64, 6), "tune_images": 4}
        measured = {data: dataclasses.replace(config, **few) for data, config in measured.items()}
    evaluate = measured.pop(train.data)
    threads = max(1, cores // len(ENCODINGS))
    return [
        Job(name, dataclasses.replace(train, encoding=name), evaluate, out / name, threads, device, also=measured)
        for name in ENCODINGS
    ]
