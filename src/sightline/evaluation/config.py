"""What to measure, and what rows say of where they come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, InstanceOf

from sightline.data.sizes import View
from sightline.distributed import machine
from sightline.encodings.base import PositionEncoding
from sightline.errors import InputError
from sightline.evaluation.measures.base import measure_class
from sightline.evaluation.temperature import SPLIT
from sightline.evaluation.tune import KINDS, Kind
from sightline.io.config import Count, Precision, config_dataclass

# What is searched on, what was trained on, and what is measured at the training size alone.
UNTUNED = ("train", "minival", "heldout_fonts")


@config_dataclass(kw_only=False)
class EvaluateConfig:
    """What to measure.

    Attributes:
        resolutions: square sides in pixels, multiples of the patch, and views of images at their own aspect.
        splits: of the data set; `heldout_fonts` is measured at the training resolution alone.
        images: at most this many of a split; images_beyond: (side, images) takes fewer above a side.
        knobs: `default` measures with the model's encoding as it stands; `tuned` with what is best on `minival` at each
            resolution, where the encoding has anything to choose; `both` with each of these. tune_images: how many of
            it; tuned: what is chosen, the `knob`, the `rule` by which tables are resized, or both.
        temperature: measure `minival` in each of these ways too, before any other split, and fit on it the temperature
            of what is measured in the same way (`temperature.fit_temperature`); of a classifier. temperature_images:
            how many of it, unless it is one of `splits`.
        task_options: of the task, as how it looks at an image; those of its class unless given.
        shrink: measure at each square above the training size also the same images shrunk to that size.
        measures: names of what is measured of the model beside its answers (`evaluation/measures/`).
        precision: of the matrix products; `auto` is bfloat16 where it is faster; workers: processes that load batches.
    """

    resolutions: Annotated[tuple[Count | InstanceOf[View], ...], Field(min_length=1)]
    splits: tuple[str, ...] = ("test",)
    images: Count | None = None
    images_beyond: tuple[int, int] | None = None
    knobs: Literal["default", "tuned", "both"] = "default"
    tune_images: Count = 500
    tuned: tuple[Kind, ...] = KINDS
    temperature: bool = False
    temperature_images: Count = 1000
    task_options: dict[str, Any] = field(default_factory=dict)
    shrink: bool = True
    precision: Precision = "auto"
    workers: int = 0
    measures: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        machine.check_workers(self.workers)
        for name in self.measures:
            measure_class(name)

    @property
    def sides(self) -> tuple[int, ...]:
        """Those of `resolutions` that are square sides."""
        return tuple(one for one in self.resolutions if not isinstance(one, View))

    @property
    def views(self) -> tuple[View, ...]:
        """The others."""
        return tuple(one for one in self.resolutions if isinstance(one, View))

    def count(self, length: int | None, resolution: int | View) -> int:
        """How many images of a split of `length` are measured at a resolution."""
        most = self.images
        if self.images_beyond is not None and isinstance(resolution, int) and resolution > self.images_beyond[0]:
            most = self.images_beyond[1]
        if length is None:
            if most is None:
                raise InputError("images: expected a number for an endless split")
            return most
        return length if most is None else min(most, length)

    def tunes(self, split: str, encoding: PositionEncoding) -> bool:
        """Whether anything is searched for before a split is measured: never for what is searched on itself, but where
        its temperature is for splits that are tuned."""
        there = {"knob": encoding.knob, "rule": encoding.resize_rule}
        measured = split not in UNTUNED or (
            split == SPLIT and self.temperature and any(one not in UNTUNED for one in self.splits)
        )
        return self.knobs != "default" and measured and any(there[kind] is not None for kind in self.tuned)


@dataclass(frozen=True)
class RunInfo:
    """What the rows of a run say of where it came from; `patch_size` where its model has others than its own, `weights`
    where they stand outside its folder."""

    run: str
    data: str
    train_resolution: int
    seed: int
    patch_size: int | None = None
    weights: str = ""
