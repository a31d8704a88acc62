"""The course of a run: which images each of its steps sees, how they enter the model, and how far along it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sightline.analysis.flops import training_flops
from sightline.data.loader import Batch, batches, epoch_order
from sightline.data.packs import Mark, PackedBatch, PackingConfig, Planned, Planner, packed_batches
from sightline.data.source import Source
from sightline.models import Model, ViTConfig
from sightline.tasks.classification import packed_model_input, to_model_input
from sightline.training.config import TrainConfig
from sightline.training.schedule import Plan

# Batches of endless data that are planned at once.
_AHEAD = 4096


class Spent(NamedTuple):
    """What a run has cost: images shown, tokens through the trunk (prefix tokens too), operations of training."""

    images: int = 0
    tokens: int = 0
    flops: int = 0

    def and_also(self, config: ViTConfig, patches: Sequence[int]) -> Spent:
        """With a step on images of these lengths."""
        return Spent(
            self.images + len(patches),
            self.tokens + sum(patches) + len(patches) * config.num_prefix_tokens,
            self.flops + training_flops(config, patches),
        )


class Position(NamedTuple):
    """Where a packed run stood when it looked ahead last: kept with a checkpoint, so that a run of many passes goes on
    without planning them again.

    Attributes:
        mark: of the plan.
        number: of the first step after it.
        spent: before that step.
    """

    mark: Mark
    number: int
    spent: Spent

    def as_record(self) -> dict[str, Any]:
        """Plain values."""
        return {"seen": self.mark.seen, "waiting": [*self.mark.waiting], "step": self.number, **self.spent._asdict()}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Position:
        """The inverse of `as_record`."""
        mark = Mark(record["seen"], tuple(record["waiting"]))
        return cls(mark, record["step"], Spent(record["images"], record["tokens"], record["flops"]))


@dataclass(frozen=True, slots=True)
class Step:
    """One step, known before an image is read.

    Attributes:
        number: from 0.
        epoch: the pass over the data in which its first image is.
        before, after: what the run has cost.
        begins, ends: how much of the run lies before it and at its end, from 0 to 1.
        position: of a packed run, before this step.
    """

    number: int
    epoch: int
    before: Spent
    after: Spent
    begins: float
    ends: float
    position: Position | None = None

    @property
    def last(self) -> bool:
        return self.ends >= 1


class Course(ABC):
    """All steps of a run: functions of the configuration alone, so that a run goes on where it was killed."""

    @abstractmethod
    def from_step(
        self, first: int, *, position: Position | None = None, pin: bool = False
    ) -> Generator[tuple[Step, Batch | PackedBatch]]:
        """The steps `first` and later with their batches.

        Args:
            position: of a packed run, at or before that step; None plans from the beginning, with the same outcome.
            pin: for a GPU.
        """

    @abstractmethod
    def logits(self, model: Model, batch: Batch | PackedBatch, device: torch.device) -> Tensor:
        """[images, classes] of a batch."""


def course_of(config: TrainConfig, model: ViTConfig, source: Source) -> Course:
    """The course of a resolved configuration."""
    return _Packed(config, model, source, config.packing) if config.packing else _Uniform(config, model, source)


def shown(source: Source, config: TrainConfig) -> Source:
    """A data set as a run shows it: images up to its `max_pixels`, those of training in its `parts`.

    Raises:
        InputError: its training images are shown in another way.
    """
    allowed = source.up_to(config.max_pixels)
    return allowed if config.parts is None else allowed.showing_parts(config.parts)


def planned_length(config: TrainConfig, model: ViTConfig, length: int | None) -> Plan:
    """The images of a run whose images all have one size, from whichever budget it was given."""
    if config.tokens is None and config.flops is None:
        return Plan.of(config, length)
    one = Spent().and_also(model, [_patches(config, model)])
    if config.tokens is not None:
        images = config.tokens // one.tokens
    else:
        assert config.flops is not None
        images = int(config.flops // one.flops)
    return Plan(max(images, 1), config.batch_size, length)


def _patches(config: TrainConfig, model: ViTConfig) -> int:
    assert config.resolution is not None
    return model.grid_of(config.resolution).cells


class _Uniform(Course):
    """Batches of one size."""

    def __init__(self, config: TrainConfig, model: ViTConfig, source: Source) -> None:
        self.config, self.model, self.source = config, model, source
        self.plan = Plan.of(config, source.length("train"))
        self.one = Spent().and_also(model, [_patches(config, model)])

    def _spent(self, step: int) -> Spent:
        images = self.plan.images_seen(step)
        return Spent(images, images * self.one.tokens, images * self.one.flops)

    def from_step(
        self, first: int, *, position: Position | None = None, pin: bool = False
    ) -> Generator[tuple[Step, Batch]]:
        config, plan = self.config, self.plan
        side = (config.resolution, config.resolution)
        number = first
        while number < plan.steps:
            epoch, inside = plan.locate(number)
            count, start = plan.epoch_images(epoch), inside * config.batch_size
            if plan.length is None:
                order = np.arange(start, min(start + _AHEAD * config.batch_size, count))
            else:
                order = epoch_order(plan.length, config.seed, epoch)[start:count]
            for batch in batches(
                self.source,
                "train",
                indices=order,
                image_size=side,  # type: ignore[arg-type]
                batch_size=config.batch_size,
                seed=config.seed,
                epoch=epoch,
                workers=config.workers,
                mixing=config.mixing,
                pin=pin,
            ):
                begins, ends = number / plan.steps, (number + 1) / plan.steps
                yield Step(number, epoch, self._spent(number), self._spent(number + 1), begins, ends), batch
                number += 1

    def logits(self, model: Model, batch: Batch | PackedBatch, device: torch.device) -> Tensor:
        assert isinstance(batch, Batch)
        return model(to_model_input(batch.images, model.config.mean, model.config.std, device))


class _Packed(Course):
    """Images of drawn sizes, a pack a step, until the budget is spent."""

    def __init__(self, config: TrainConfig, model: ViTConfig, source: Source, packing: PackingConfig) -> None:
        self.config, self.model, self.packing = config, model, packing
        self.source = source.keeping_aspect() if packing.aspect == "native" else source

    def _steps(self, begin: Position) -> Iterator[tuple[Step, list[Planned]]]:
        """The steps from there on; planning reads sizes and no pixel."""
        config, packing = self.config, self.packing
        prefix = self.model.num_prefix_tokens
        planner = Planner(
            self.source,
            "train",
            packing.showing(self.model.patch_size, prefix),
            packing.tokens,
            how=packing.algorithm,
            most_images=packing.most_images,
            # With a budget of images the plan ends by itself, with what is left over in the last pack.
            images=config.images,
            num_prefix_tokens=prefix,
            seed=config.seed,
        )
        number, spent = begin.number, begin.spent
        for mark, packs in planner.windows(begin.mark):
            position = Position(mark, number, spent)
            for pack in packs:
                after = spent.and_also(self.model, [len(one.shown.kept) for one in pack])
                share = self._share(spent), self._share(after)
                step = Step(number, pack[0].epoch, spent, after, *share, position)
                yield step, pack
                if step.last:
                    return
                number, spent = number + 1, after

    def _share(self, spent: Spent) -> float:
        config = self.config
        for done, whole in ((spent.images, config.images), (spent.tokens, config.tokens), (spent.flops, config.flops)):
            if whole is not None:
                return min(done / whole, 1.0)
        raise AssertionError("a resolved configuration has a budget")

    def from_step(
        self, first: int, *, position: Position | None = None, pin: bool = False
    ) -> Generator[tuple[Step, PackedBatch]]:
        # Workers take packs ahead of the step that is done: their steps wait here.
        waiting: deque[Step] = deque()

        def to_come() -> Iterator[list[Planned]]:
            for step, pack in self._steps(position or Position(Mark(), 0, Spent())):
                if step.number >= first:
                    waiting.append(step)
                    yield pack

        made = packed_batches(
            self.source,
            "train",
            to_come(),
            patch_size=self.model.patch_size,
            seed=self.config.seed,
            workers=self.config.workers,
            mixing=self.config.mixing,
            pin=pin,
        )
        for batch in made:
            yield waiting.popleft(), batch

    def logits(self, model: Model, batch: Batch | PackedBatch, device: torch.device) -> Tensor:
        assert isinstance(batch, PackedBatch)
        config = model.config
        patches, layout = packed_model_input(
            batch, config.mean, config.std, config.num_prefix_tokens, device, self.packing.padded
        )
        return model(patches, layout=layout)
