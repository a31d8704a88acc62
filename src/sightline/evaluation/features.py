"""Frozen features: what a model makes of images before its head, and what is learned from them alone.

A feature is the pooled vector that the classifier reads (`Model.pool`, timm's `forward_head(..., pre_logits=True)`); of
a head of two layers (`mlp`) what enters the first one. Images of `train` are shown as those that are measured, each
once. What is learned chooses on `minival`, or on a part of `train` where there is none, before an image of the measured
split is read.
"""

from __future__ import annotations

import copy
import functools
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from torch import Tensor

from sightline.data.batch import Batch
from sightline.data.rng import generator
from sightline.data.sizes import View
from sightline.data.skip_policy import Unreadable
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.evaluation.measures.base import MeasureInput, ModelMeasure
from sightline.evaluation.parts import WorkFolder
from sightline.evaluation.predict import plan_split, predict_split
from sightline.models import Model
from sightline.results.rows import FRACTION, MetricValue
from sightline.tasks.base import Task

# What big_vision takes of ImageNet (`train[:65000]`): 25 images of each class are among them, and they are 200 MB of
# 768 values each.
TRAIN_IMAGES = 65_000
# Of a split that never ends, from an index on that no training reaches: no model has seen them, whatever its seed.
ENDLESS_TRAIN_IMAGES = 2_000
_UNSEEN = 2**40
HELD_OUT_IMAGES = 5_000
# Of each class of `train`, where there is no other split to choose on.
_HELD_OUT_SHARE = 5
_KIND = "features "


@dataclass(frozen=True, eq=False)
class Features:
    """Of some images: `values` float32 [images, dim], and `labels` int64 [images], the model's numbers of classes."""

    values: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: np.ndarray) -> Self:
        """Some of them, by their numbers or a mask."""
        return type(self)(self.values[chosen], self.labels[chosen])

    def held_out(self) -> tuple[Self, Self]:
        """Those to learn from, and of each class the last fifth, one at least where it has two, to choose on."""
        within = np.zeros(len(self), np.int64)
        last = np.zeros(len(self), bool)
        for label in np.unique(self.labels):
            members = np.flatnonzero(self.labels == label)
            within[members] = np.arange(len(members))
            count = max(len(members) // _HELD_OUT_SHARE, int(len(members) > 1))
            last[members] = within[members] >= len(members) - count
        return self.part(~last), self.part(last)


class FrozenFeatureMeasure(ModelMeasure):
    """What is learned from frozen features of `train` and measured on others; one in a file of `measures/`.

    The features of one size are made once for all measures that are asked for together.

    Attributes:
        chooses: it has something to choose, on images that are held out.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification",)
    chooses: ClassVar[bool] = True

    @abstractmethod
    def fit(self, train: Features, held_out: Features) -> Any:
        """What is learned, as `as_json` takes it; of one that does not choose, the features themselves.

        Args:
            train: in the order of a seeded permutation, the same for every model.
            held_out: to choose on; empty for one that does not choose.
        """

    @abstractmethod
    def score(self, learned: Any, images: Features) -> list[MetricValue]:
        """What that is worth on the images that are measured, at least one."""

    @classmethod
    def check(cls, model: Model, task: Task, source: Source, splits: Sequence[str]) -> None:
        super().check(model, task, source, splits)
        if "train" not in source.splits:
            there = f"data {source.name} has not (has: {', '.join(source.splits)})"
            raise InputError(f"measures: {cls.name} learns from split train, which {there}")
        for split in splits:
            if _same(source, split, "train"):
                raise InputError(f"measures: {cls.name} learns from split {split}, and cannot be measured on it")

    @classmethod
    def passes(cls, source: Source, split: str, count: int) -> int:
        return count + sum(len(_chosen(source, name)) for name in cls.reads(source, split))

    @classmethod
    def reads(cls, source: Source, split: str) -> tuple[str, ...]:
        apart = cls.chooses and "minival" in source.splits and not _same(source, split, "minival")
        return ("train", "minival") if apart else ("train",)

    def rows(
        self, subject: MeasureInput, parts: WorkFolder, work: str, advance: Callable[[int], None] | None = None
    ) -> list[MetricValue]:
        subject = replace(subject, source=subject.source.with_view(still=True))
        others = self.reads(subject.source, subject.split)
        indices = {name: _chosen(subject.source, name) for name in others} | {subject.split: subject.indices}
        size = _size_of(subject)
        works = {name: f"{size} {name}" for name in indices}
        parts.forget_others(_KIND, size)

        def made(name: str) -> None:
            _make(subject, parts, works[name], name, indices[name], advance)

        def read(name: str) -> Features:
            return _read(subject, parts, works[name], name, indices[name])

        def learned() -> Any:
            train = read("train")
            if not self.chooses:
                train, held_out = train, train.part(np.arange(0))
            elif len(others) > 1:
                held_out = read(others[1])
            else:
                train, held_out = train.held_out()
            if not len(train) or (self.chooses and not len(held_out)):
                wanted = "two images of a class, or a split minival" if self.chooses else "one"
                raise InputError(f"measures: {self.name}: too few images of train can be read (expected: {wanted})")
            return self.fit(train, held_out)

        for name in others:
            made(name)
        if self.chooses:
            # One part, which the first rank makes: what was learned is kept, and is not learned again.
            parts.each(work, [0], lambda numbers: (learned() for _ in numbers))
        made(subject.split)
        found: list[MetricValue] = []
        if parts.ranks.is_main:
            images = read(subject.split)
            if len(images):
                found = self.score(next(parts.values(work)) if self.chooses else learned(), images)
        parts.forget(work)
        return found


def accuracy(metric: str, right: np.ndarray, **slices: int) -> MetricValue:
    """A row of the share of answers that are right, bool [images]."""
    return MetricValue(metric, float(right.mean()), FRACTION, len(right), slices=slices, better="higher")


def _same(source: Source, split: str, other: str) -> bool:
    """Whether two names are of one split: that of files is also asked for by its folder's name."""
    if split == other or other not in source.splits:
        return split == other
    some = source.length(split) != 0 and source.length(other) != 0
    return some and source.example_name(split, 0) == source.example_name(other, 0)


def _chosen(source: Source, split: str) -> Sequence[int]:
    """Indices of the images to learn from or to choose on, by a permutation that is the same for every model."""
    length, most = source.length(split), TRAIN_IMAGES if split == "train" else HELD_OUT_IMAGES
    if length is None:
        return range(_UNSEEN, _UNSEEN + ENDLESS_TRAIN_IMAGES)
    return generator(f"frozen_features/{split}/1", 0).permutation(length)[:most].tolist()


def _size_of(subject: MeasureInput) -> str:
    """How the names of the features' parts begin, whichever measure asks for them, and however the knob and the
    rule were chosen."""
    encoding = subject.model.encoding
    chosen = [None if one is None else one.value for one in (encoding.knob, encoding.resize_rule)]
    view = subject.view.name if isinstance(subject.view, View) else subject.view
    return _KIND + json.dumps([view, *chosen])


def _make(
    subject: MeasureInput,
    parts: WorkFolder,
    work: str,
    split: str,
    indices: Sequence[int],
    advance: Callable[[int], None] | None,
) -> None:
    """Make the features of some images, by all ranks together: a batch of the plan is a part."""
    model, source, view = subject.model, subject.source, subject.view
    task: Any = copy.copy(subject.task)
    task.outputs = functools.partial(_pooled, subject.task)
    planned = plan_split(model, source, split, indices, view)

    def made(numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        for one in predict_split(
            model, task, source, split, indices, view, precision=subject.precision, workers=subject.workers,
            planned=[planned[number] for number in numbers],
        ):  # fmt: skip
            batch = one.batch
            part: dict[str, Any] = {"left out": [astuple(image) for image in batch.left_out]}
            if len(batch):
                part |= {
                    "values": one.outputs.numpy(), "labels": batch.targets["labels"].numpy(),
                    "indices": batch.indices.numpy(),
                }  # fmt: skip
            yield part

    parts.each(work, [len(one) for one in planned], made, advance)


def _pooled(task: Task, model: Model, batch: Batch, precision: str = "float32") -> Tensor:
    """What enters the head, [images, dim], of a pass as the task makes it."""
    seen: list[Tensor] = []
    with model.head.register_forward_pre_hook(lambda _, given: seen.append(given[0])):
        task.outputs(model, batch, precision)
    return seen[0]


def _read(subject: MeasureInput, parts: WorkFolder, work: str, split: str, indices: Sequence[int]) -> Features:
    """Features that were made, in the order of the indices; for the first rank."""
    found = list(parts.values(work))
    if subject.source.allowance is not None:
        # Those of other ranks and sessions count too.
        subject.source.allowance.add(split, (Unreadable(*image) for part in found for image in part["left out"]))
    found = [part for part in found if "values" in part]
    if not found:
        return Features(np.empty((0, subject.model.num_features), np.float32), np.empty(0, np.int64))
    values, labels, seen = (np.concatenate([part[name] for part in found]) for name in ("values", "labels", "indices"))
    places = {index: place for place, index in enumerate(indices)}
    order = np.argsort([places[index] for index in seen.tolist()], kind="stable")
    return Features(values[order], labels[order])
