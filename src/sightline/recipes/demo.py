"""The demonstrations: three encodings trained at one resolution, tested at many."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sightline.errors import require_known
from sightline.evaluation import EvaluateConfig
from sightline.recipes.dense import segment_scenes
from sightline.recipes.embedded import scenes
from sightline.training.config import TrainConfig, ValidationConfig
from sightline.training.jobs import Job

ENCODINGS = ("lookhere_90", "rope_axial", "learned_1d")
RESOLUTIONS = (20, 24, 32, 44, 56, 64, 108, 148)
SPLITS = ("test", "heldout_fonts")
QUICK_IMAGES = 8_960


@dataclass(frozen=True)
class Demo:
    """What is trained with each encoding, and how it is tested on the data of its training and on others.

    Attributes:
        note: what a quick one can show and what it cannot, in a sentence; "" of a whole one.
    """

    title: str
    train: TrainConfig
    evaluate: EvaluateConfig
    also: Mapping[str, EvaluateConfig] = field(default_factory=dict)
    note: str = ""


def classification() -> Demo:
    """48,000 glyphs at 32 px, then 1,000 test scenes a size up to 64 px and 300 beyond.

    `sightline demo`: LookHere-90 reaches a top-1 of .89 to .92 at 32 px and of .89 to .91 at 148 px (four seeds).
    """
    tuned: dict[str, Any] = {"knobs": "tuned", "tune_images": 64, "tuned": ("knob",)}
    evaluate = EvaluateConfig(RESOLUTIONS, SPLITS, images=1000, images_beyond=(64, 300), **tuned)
    return Demo("Trained at 32 pixels, tested from 20 to 148", scenes(), evaluate)


def quick_classification() -> Demo:
    """8,960 whole glyphs at 32 px, under a fifth of the images, for two layers of the micro model's four, then 200 test
    scenes a size up to 64 px and 80 beyond, each with the knob as it stands.

    `sightline demo --quick`: a first curve in one to a few minutes. From so few images two layers
    and small batches learn more than four layers and those of a whole run, in two thirds of the time
    (docs/explanation/decisions/first-curve.md).
    """
    # Whole ones, as they are tested: parts take longer to learn than there is time for, as looking up often does.
    whole = scenes()
    train = dataclasses.replace(
        whole,
        model_options={**whole.model_options, "depth": 2},
        images=QUICK_IMAGES,
        batch_size=16,
        parts=None,
        optimizer=dataclasses.replace(whole.optimizer, lr=1.5e-3),
        checkpoint_every=QUICK_IMAGES // 4,
        validation=ValidationConfig(times=4, images=128),
    )
    evaluate = EvaluateConfig(RESOLUTIONS, SPLITS, images=200, images_beyond=(64, 80))
    return Demo(
        "Trained at 32 pixels on few scenes, tested from 20 to 148",
        train,
        evaluate,
        note="A quick run: less than a fifth of the images, half of the layers, no parameter tuned, few test scenes. "
        "It shows that models learn, and how each holds at other sizes; which is best may change in a whole run.",
    )


def segmentation() -> Demo:
    """12,800 pairs of shapes at 32 px, then 400 test scenes a size up to 64 px and 100 beyond; and `scenes:search`,
    whose objects stay as large in pixels as in training while the extent grows.

    `sightline demo --task segmentation`: about 5 minutes on two cores. The recipe itself shows 16,000.
    """
    evaluate = EvaluateConfig((32, 64, 108), images=400, images_beyond=(64, 100))
    search = dataclasses.replace(evaluate, resolutions=(32, 64, 96, 128))
    title = "A class for each pixel: trained at 32 pixels, tested on larger images"
    return Demo(title, dataclasses.replace(segment_scenes(), images=12_800), evaluate, {"scenes:search": search})


def quick_segmentation() -> Demo:
    """As `segmentation`, of 640 images, 60 test scenes a size and 6 beyond: to see that everything works."""
    whole, few = segmentation(), {"images": 60, "images_beyond": (64, 6)}
    return dataclasses.replace(
        whole,
        train=dataclasses.replace(whole.train, images=640),
        evaluate=dataclasses.replace(whole.evaluate, **few),
        also={data: dataclasses.replace(config, **few) for data, config in whole.also.items()},
        note="A quick run: to see that everything works; its curves say nothing, since a class for each pixel takes "
        "minutes to learn.",
    )


# Of each task the whole one and the quick one.
DEMOS: dict[str, tuple[Callable[[], Demo], Callable[[], Demo]]] = {
    "classification": (classification, quick_classification),
    "segmentation": (segmentation, quick_segmentation),
}


def demo_of(task: str, *, quick: bool = False) -> Demo:
    """The demonstration of a task; raises InputError where there is none."""
    require_known("demonstration of task", task, DEMOS)
    return DEMOS[task][quick]()


def demo_jobs(
    out: Path, *, seed: int, quick: bool, cores: int, device: str = "cpu", task: str = "classification"
) -> list[Job]:
    """One job an encoding."""
    demo = demo_of(task, quick=quick)
    train, threads = dataclasses.replace(demo.train, seed=seed), max(1, cores // len(ENCODINGS))
    return [
        Job(name, dataclasses.replace(train, encoding=name), demo.evaluate, out / name, threads, device, also=demo.also)
        for name in ENCODINGS
    ]
