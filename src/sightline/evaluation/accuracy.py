"""Accuracy by resolution, as rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from sightline import runtime
from sightline.checks import require
from sightline.data.source import Source
from sightline.data.views import View
from sightline.encodings.base import Knob
from sightline.errors import InputError, choose
from sightline.evaluation.budgets import check_view
from sightline.evaluation.calibration import confidences
from sightline.evaluation.predict import predict_split
from sightline.evaluation.tune import tune_knob, tuning_passes
from sightline.models import Model
from sightline.patchify import check_multiples
from sightline.predictions import Prediction
from sightline.results import SQUARE, ResultRow
from sightline.tasks.classification import Predictions, accuracies


@dataclass(frozen=True)
class EvaluateConfig:
    """What to measure.

    Attributes:
        resolutions: square sides in pixels, multiples of the patch, and views of images at their own aspect.
        splits: of the data set; `heldout_fonts` is measured at the training resolution alone.
        images: at most this many of a split; images_beyond: (side, images) takes fewer above a side.
        knobs: `default` measures with the model's knob as it stands; `tuned` with the best on `minival` at each
            resolution, where the encoding has one; `both` with each of these. tune_images: how many of it.
        precision: of the matrix products; `auto` is bfloat16 where this machine is faster with it.
        workers: processes that make batches ahead.
    """

    resolutions: tuple[int | View, ...]
    splits: tuple[str, ...] = ("test",)
    images: int | None = None
    images_beyond: tuple[int, int] | None = None
    knobs: Literal["default", "tuned", "both"] = "default"
    tune_images: int = 500
    precision: str = "auto"
    workers: int = 0

    def __post_init__(self) -> None:
        if not self.resolutions:
            raise InputError("resolutions: expected at least one")
        runtime.check_workers(self.workers)
        for side in self.sides:
            if isinstance(side, bool) or not isinstance(side, int) or side < 1:
                raise InputError(f"resolutions: {side!r} is not a side in pixels (expected whole numbers of 1 or more)")
        for name in ("images", "tune_images"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} {value}: must be at least 1")
        require("knobs", self.knobs, ("default", "tuned", "both"))
        require("precision", self.precision, ("auto", "float32", "bfloat16"))

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


@dataclass(frozen=True)
class RunIdentity:
    """What the rows of a run say of where it came from."""

    run: str
    data: str
    train_resolution: int
    seed: int


def check_sizes(model: Model, config: EvaluateConfig) -> None:
    """Refuse resolutions of which the model makes no grid, before anything is measured."""
    if model.config.fit == "exact":
        check_multiples("resolution {}", config.sides, model.config.patch_size)
    for side in config.sides:
        model.config.grid_of(side)


def usual_images(source: Source) -> int | None:
    """How many images of a split are measured unless it is said: 2000 of a drawn one, all of one that was read."""
    return 2000 if source.name == "scenes" else None


def planned_images(source: Source, model: Model, config: EvaluateConfig, train_resolution: int) -> int:
    """How many images `evaluate` will pass through the model: the length of its progress bar."""
    asked = measurements(source, config, train_resolution)
    return sum(passes(source, model.knob, config, split, resolution) for split, resolution in asked)


def passes(source: Source, knob: Knob | None, config: EvaluateConfig, split: str, resolution: int | View) -> int:
    """How many images one measurement passes through a model, the search for its knob included."""
    count = config.count(source.length(split), resolution)
    if config.knobs == "default" or split != "test" or knob is None:
        return count
    searched = min(config.tune_images, source.length("minival") or config.tune_images)
    return tuning_passes(knob, searched) + (2 if config.knobs == "both" else 1) * count


def measurements(source: Source, config: EvaluateConfig, train_resolution: int) -> list[tuple[str, int | View]]:
    """(split, size or view) of each, in order; `heldout_fonts` at the training resolution alone.

    Raises:
        InputError: there is no such split, or no such view of it.
    """
    for split in config.splits:
        source.check(split)
        for view in config.views:
            check_view(source, split, view)
    if config.knobs != "default" and "minival" not in source.splits:
        raise InputError(f"tune: data {source.name!r} has no split 'minival' (has: {', '.join(source.splits)})")
    return [
        (split, resolution)
        for split in config.splits
        for resolution in (config.resolutions if split != "heldout_fonts" else (train_resolution,))
    ]


def evaluate(
    model: Model,
    source: Source,
    config: EvaluateConfig,
    identity: RunIdentity,
    *,
    advance: Callable[[int], None] | None = None,
    answers: list[Prediction] | None = None,
) -> list[ResultRow]:
    """Rows of top-1, top-5, by group and by size quintile, at each resolution, at the knob's default and tuned.

    Args:
        advance: called with the number of images of each batch.
        answers: what was said of each image is added to it, by the model as it stands where that is measured.

    Raises:
        InputError: a split, a class or a resolution does not fit the model.
    """
    check_sizes(model, config)
    labels = labels_of(model, source, identity.data)
    device = model.anchor.device
    precision = runtime.chosen_precision(config.precision, device)
    rows: list[ResultRow] = []
    for split, resolution in measurements(source, config, identity.train_resolution):
        indices = some_images(source, split, config.count(source.length(split), resolution))
        settings = [(None if model.knob is None else model.knob.value, False)]
        if config.knobs != "default" and split == "test" and model.knob is not None:
            length = source.length("minival")
            searched = some_images(source, "minival", min(config.tune_images, length or config.tune_images))
            best = tune_knob(model, source, resolution, searched, labels=labels, precision=precision, advance=advance)
            settings = [*settings, (best, True)] if config.knobs == "both" else [(best, True)]
        for knob, tuned in settings:
            said = _said(model, source, split, resolution, indices, knob, precision, config.workers, advance)
            said = dataclasses.replace(said, labels=labels[said.labels])
            rows += _rows(model, source, split, resolution, said, labels, knob, tuned, identity)
            if answers is not None and (knob, tuned) == settings[0]:
                answers += _answers(model, source, split, resolution, said, labels)
    return rows


def some_images(source: Source, split: str, count: int) -> Sequence[int]:
    """Indices of so many images of a split, spread over it where it has more: a folder's images are sorted by class."""
    length = source.length(split)
    if length is None or count >= length or source.name == "scenes":
        return range(count)
    return [number * length // count for number in range(count)]


def labels_of(model: Model, source: Source, data: str) -> np.ndarray:
    """The model's label of each class of the data, by name where the model knows its classes' names: int64 [classes].

    A folder that holds only some of the classes numbers them otherwise than the model does.

    Raises:
        InputError: more classes than the model's head has, or one that it does not know.
    """
    if len(source.classes) > model.num_classes:
        raise InputError(f"data {data!r}: has {len(source.classes)} classes, the model's head {model.num_classes}")
    names = model.config.class_names
    if names is None:
        return np.arange(len(source.classes))
    unknown = [name for name in source.classes if name not in names]
    if unknown:
        raise choose(f"data {data!r}: class of the model", unknown[0], names)
    return np.array([names.index(name) for name in source.classes])


def _said(
    model: Model,
    source: Source,
    split: str,
    resolution: int | View,
    indices: Sequence[int],
    knob: float | None,
    precision: str,
    workers: int,
    advance: Callable[[int], None] | None,
) -> Predictions:
    """What the model says with its knob at a value; afterwards it is as it was."""
    kept = model.knob.value if model.knob is not None else None
    if knob is not None:
        model.set_knob(knob)
    try:
        return predict_split(
            model, source, split, resolution, indices, precision=precision, workers=workers, advance=advance
        )
    finally:
        if kept is not None:
            model.set_knob(kept)


def _answers(
    model: Model,
    source: Source,
    split: str,
    resolution: int | View,
    said: Predictions,
    labels: np.ndarray,
) -> list[Prediction]:
    """A line an image; a class that the data does not have is named by the model."""
    count = max(model.num_classes, 1 + int(labels.max(initial=-1)))
    names = list(model.config.class_names or map(str, range(count)))
    for label, name in zip(labels.tolist(), source.classes, strict=True):
        names[label] = name
    view, side = (resolution.name, None) if isinstance(resolution, View) else (SQUARE, resolution)
    best = said.logits.argmax(axis=1)
    scores = confidences(said.logits, model.config.score_link)
    each = zip(said.indices.tolist(), said.names, said.labels.tolist(), best.tolist(), scores.tolist(), strict=True)
    return [
        Prediction(split, view, side, index, name, names[label], names[guess], score, label == guess)
        for index, name, label, guess, score in each
    ]


def _rows(
    model: Model,
    source: Source,
    split: str,
    resolution: int | View,
    said: Predictions,
    labels: np.ndarray,
    knob: float | None,
    tuned: bool,
    identity: RunIdentity,
) -> list[ResultRow]:
    if isinstance(resolution, View):
        shown: dict[str, Any] = {"view": resolution.name, "resolution": None, "grid": None, "patches": said.patches}
    else:
        shown = {"view": SQUARE, "resolution": resolution, "grid": model.config.grid_of(resolution)}
    groups = {name: [int(labels[one]) for one in members] for name, members in source.groups.items()}
    device = model.anchor.device
    return [
        ResultRow(
            run=identity.run,
            encoding=model.encoding.name,
            task=source.task,
            data=identity.data,
            split=split,
            **vars(measured),
            **shown,
            train_resolution=identity.train_resolution,
            knob=knob,
            tuned=tuned,
            seed=identity.seed,
            seconds=said.seconds,
            commit=runtime.commit(),
            hardware=runtime.hardware(device),
        )
        for measured in accuracies(said, groups)
    ]
