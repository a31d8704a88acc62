"""The controlled experiment: many encodings and seeds, trained alike, tested at many sizes, and trained on at a larger
one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sightline.errors import InputError
from sightline.evaluation import EvaluateConfig
from sightline.evaluation.compared import TrainedRun
from sightline.io.config import Count, check_value
from sightline.recipes.embedded import scenes
from sightline.training.config import OptimizerConfig, TrainConfig
from sightline.training.jobs import Job

# All that LookHere compares (section 4.1), in the order of its tables.
ENCODINGS = (
    "learned_1d", "sincos_2d", "factorized", "fourier", "rpe_learned", "alibi_2d", "rope_axial", "lookhere_180",
    "lookhere_90", "lookhere_45",
)  # fmt: skip
# Of 32 px: LookHere's 320, 384, 512, 768 and 1024 px of 224 as nearly as patches of 4 px allow, and smaller ones.
RESOLUTIONS = (16, 20, 24, 28, 32, 44, 56, 72, 108, 148)
TRAINED = 32
SEEDS, IMAGES = 3, 9_600
# 384 of 224 px.
LARGER = 56


@dataclass(frozen=True)
class Compare:
    """What is compared: `encodings` x `seeds`, trained on `images` each; `resolutions` at which they are tested.

    Attributes:
        fine_tune: side in pixels at which each is trained on for a fifteenth of its images; None leaves that out.
        quick: 320 images, and 60 or 12 to test on: to see that everything works.
    """

    encodings: tuple[str, ...] = ENCODINGS
    seeds: tuple[int, ...] = tuple(range(SEEDS))
    resolutions: tuple[int, ...] = RESOLUTIONS
    images: int | None = None
    fine_tune: int | None = LARGER
    quick: bool = False

    def __post_init__(self) -> None:
        check_value("--images", 1 if self.images is None else self.images, Count)
        for option, values in (("--encodings", self.encodings), ("--sizes", self.resolutions)):
            if not values:
                raise InputError(f"{option}: expected at least one")
            twice = sorted({str(one) for one in values if values.count(one) > 1})
            if twice:
                raise InputError(f"{option}: {twice[0]} is there twice")

    @property
    def trained(self) -> tuple[int, int]:
        """Images of each training, and of each second one."""
        images = self.images if self.images is not None else 320 if self.quick else IMAGES
        return images, max(images // 15, 1)

    @property
    def train(self) -> TrainConfig:
        """The training of all, but for encoding and seed: whole scenes at 32 px, which reach more in few images than
        random parts of them (docs/how-to/compare.md)."""
        images, optimizer = self.trained[0], OptimizerConfig(lr=1.5e-3)
        return dataclasses.replace(scenes(), resolution=TRAINED, parts=None, images=images, optimizer=optimizer)

    @property
    def evaluate(self) -> EvaluateConfig:
        """400 test scenes up to 44 px, 120 beyond; parameters tuned on 24 of minival at each size."""
        few: dict[str, Any] = {"images": 400, "images_beyond": (44, 120), "tune_images": 24}
        if self.quick:
            few = {"images": 60, "images_beyond": (44, 12), "tune_images": 4}
        splits = ("test", "heldout_fonts")
        return EvaluateConfig(self.resolutions, splits, knobs="tuned", tuned=("knob",), shrink=False, **few)

    @property
    def attack(self) -> EvaluateConfig:
        """The fast gradient sign method at the size of training (section 4.1)."""
        few = {"splits": ("test",), "resolutions": (TRAINED,), "measures": ("fgsm",)}
        return dataclasses.replace(self.evaluate, knobs="default", **few)


def compare_jobs(compare: Compare, out: Path, *, threads: int = 1, device: str = "cpu") -> list[Job]:
    """A job for each encoding and seed, those of the first seed first; then those that train on at a larger size.

    The second training follows LookHere's appendix A.4.3 (after DeiT III): decay .1, and one rate all through after a
    tenth of the steps in which it rises. That is a tenth of the rate of training (the paper has 1e-5 of 3e-3, for 5
    epochs of 150; in 20 steps that would change nothing), and there is no drop path, as in the training. The knob stays
    at its default.
    """
    jobs, later = [], []
    optimizer = OptimizerConfig(lr=1.5e-4, weight_decay=0.1, schedule="constant", warmup=0.1)
    changes = {"resolution": compare.fine_tune, "model_options": {}, "images": compare.trained[1]}
    for seed in compare.seeds:
        for encoding in compare.encodings:
            train = dataclasses.replace(compare.train, encoding=encoding, seed=seed)
            name, more = f"{encoding}_{seed}", (compare.attack,)
            one = Job(name, train, compare.evaluate, out / name, threads, device, more=more, logits=True)
            jobs.append(one)
            if (side := compare.fine_tune) is not None:
                train = dataclasses.replace(train, init_from=str(one.out), optimizer=optimizer, **changes)
                evaluate = dataclasses.replace(one.evaluate, resolutions=(side,), knobs="default")
                name = f"{name}_at_{side}"
                later.append(Job(name, train, evaluate, out / name, threads, device, logits=True, after=one.name))
    return [*jobs, *later]


def compared_runs(jobs: Sequence[Job]) -> list[TrainedRun]:
    """What `compared` is to read of them."""
    return [TrainedRun(job.out, job.train.images or 0, fine_tuned=job.after is not None) for job in jobs]
