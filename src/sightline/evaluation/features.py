"""Frozen features: what a model makes of images before its head, and what is learned from them alone.

A feature is the pooled vector that the classifier reads (`Model.pool`, timm's `forward_head(..., pre_logits=True)`); of
a head of two layers (`mlp`) what enters the first one; of a model that pools nothing the mean of its tokens. Images of
`train` are shown as those that are measured, each once. What is learned chooses on `minival`, or on a part of `train`
where there is none, before an image of the measured split is read.
"""

from __future__ import annotations

import copy
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from sightline.data.batch import Batch
from sightline.data.rng import generator
from sightline.data.sizes import View
from sightline.data.source import Example, Source
from sightline.errors import InputError
from sightline.evaluation.measures.base import MeasureInput, ModelMeasure
from sightline.evaluation.parts import WorkFolder
from sightline.evaluation.predict import BatchOutputs, frames_of
from sightline.models import Model, ViTConfig
from sightline.results.rows import FRACTION, MetricValue
from sightline.tasks.base import Task, predict_batch

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
    """Of some images: `values` float32 [images, dim], `labels` int64 [images], the model's numbers of classes, -1 of
    none, and `attributes`, labels of those of `source`."""

    values: np.ndarray
    labels: np.ndarray
    attributes: Mapping[str, np.ndarray] = field(default_factory=dict)
    source: Source | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, chosen: np.ndarray) -> Self:
        """Some of them, by their numbers or a mask."""
        attributes = {name: labels[chosen] for name, labels in self.attributes.items()}
        return replace(self, values=self.values[chosen], labels=self.labels[chosen], attributes=attributes)

    def of(self, attribute: str) -> Self:
        """Those that have a label of an attribute, by that."""
        labels = self.attributes[attribute]
        return replace(self, labels=labels).part(labels >= 0)

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


class FrozenTrunk(Task):
    """The task of a model whose head says nothing that is known of the data: what is learned from its features is all
    that is measured. `reason`: why its own task cannot be."""

    name: ClassVar[str] = "features"
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: ViTConfig, reason: str = "") -> None:
        self.config, self.options, self.names, self.reason = config, None, [], reason

    def targets(self, examples: Sequence[Example]) -> Mapping[str, Any]:
        return {"labels": torch.tensor([getattr(one.target, "label", -1) for one in examples], dtype=torch.int64)}

    def outputs(self, model: Model, batch: Batch, precision: str = "float32") -> Tensor:
        """Nothing of each image."""
        return torch.empty(len(batch), 0)

    loss: Any = None
    split_outputs: Any = None
    to_json: Any = None


class FrozenFeatureMeasure(ModelMeasure):
    """What is learned from frozen features of `train` and measured on others; one in a file of `measures/`.

    The features of one size are made once for all measures that are asked for together.

    Attributes:
        chooses: it has something to choose, on images that are held out.
        by_attribute: it learns each attribute of data that has some.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification", "contrastive", FrozenTrunk.name)
    chooses: ClassVar[bool] = True
    by_attribute: ClassVar[bool] = False

    @abstractmethod
    def fit(self, train: Features, held_out: Features) -> Any:
        """What is learned, as `parts.dumped` takes it; of one that does not choose, the features themselves.

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
        if "label" not in source.provides and not (cls.by_attribute and source.attributes):
            raise InputError(f"measures: {cls.name} needs classes, data {source.name} has none")
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
        # In the order in which they are read: what is learned chooses before an image of the measured split is.
        others = [
            _features(replace(subject, split=name, indices=_chosen(subject.source, name)), parts, advance)
            for name in self.reads(subject.source, subject.split)
        ]

        def learned() -> Any:
            if not parts.ranks.is_main:
                return None
            train, *rest = (one for one in others if one is not None)
            held_out = train.part(np.arange(0))
            if self.chooses:
                train, held_out = (train, rest[0]) if rest else train.held_out()
            if not len(train) or (self.chooses and not len(held_out)):
                wanted = "two images of a class, or a split minival" if self.chooses else "one"
                raise InputError(f"measures: {self.name}: too few images of train can be read (expected: {wanted})")
            return self.fit(train, held_out)

        found = parts.once(work, learned) if self.chooses else learned()
        images = _features(subject, parts, advance)
        return [] if images is None or not len(images) else self.score(found, images)


def accuracy(metric: str, right: np.ndarray, **slices: int | str) -> MetricValue:
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


def _features(subject: MeasureInput, parts: WorkFolder, advance: Callable[[int], None] | None) -> Features | None:
    """Features of some images, in the order of their indices, made by all ranks together; on the first one. Those of
    one size are kept for other measures, whichever asks for them and however the knob and the rule were chosen."""
    encoding = subject.model.encoding
    chosen = [None if one is None else one.value for one in (encoding.knob, encoding.resize_rule)]
    view, frames = subject.view, frames_of(subject.source, subject.model)
    size = _KIND + json.dumps(
        [view.name if isinstance(view, View) else view, *chosen, *([] if frames is None else [frames])]
    )
    key = f"{size} {subject.split}"
    for other in [name for name in parts.shared if name.startswith(_KIND) and not name.startswith(size)]:
        del parts.shared[other]
    if key in parts.shared:
        if advance is not None:
            advance(len(subject.indices))
        return parts.shared[key]
    model, task = subject.model, subject.task
    if model.attn_pool is None:
        # Its head takes all tokens.
        model = copy.deepcopy(model)
        model.reset_head("linear", num_classes=0, pool="mean")
    task: Any = copy.copy(task) if task.name == "classification" else FrozenTrunk(model.config)
    task.outputs = _pooled

    def made(one: BatchOutputs) -> dict[str, Any]:
        if not len(one.batch):
            return {}
        labels, indices = one.batch.targets["labels"], one.batch.indices
        return {"values": one.outputs.numpy(), "labels": labels.numpy(), "indices": indices.numpy()}

    found = replace(subject, model=model, task=task).gather(parts, key, made, advance)
    parts.shared[key] = None if found is None else _together(subject, [part for part in found.values if part])
    return parts.shared[key]


def _pooled(model: Model, batch: Batch, precision: str = "float32") -> Tensor:
    """What enters the head, [images, dim]."""
    seen: list[Tensor] = []
    with model.head.register_forward_pre_hook(lambda _, given: seen.append(given[0])):
        predict_batch(model, batch, precision)
    return seen[0]


def _together(subject: MeasureInput, found: Sequence[dict[str, Any]]) -> Features:
    if not found:
        width = subject.model.last_stage(subject.model.config).pooled_dim
        return Features(np.empty((0, width), np.float32), np.empty(0, np.int64))
    values, labels, seen = (np.concatenate([part[name] for part in found]) for name in ("values", "labels", "indices"))
    places = {index: place for place, index in enumerate(subject.indices)}
    order = np.argsort([places[index] for index in seen.tolist()], kind="stable")
    source: Any = subject.source
    rows = np.array(source.rows_of(subject.split))[seen[order]] if source.attributes else []
    attributes = {name: labels[rows] for name, labels in source.attribute_labels.items()}
    return Features(values[order], labels[order], attributes, source)
