"""Which images a step sees, and at what learning rate: functions of the step alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sightline.errors import InputError
from sightline.training.config import TrainConfig

DEFAULT_IMAGES = 48_000


def learning_rate(begins: float, ends: float, highest: float, warmup: float) -> float:
    """Linear warm-up over the first `warmup` of a run, then half a cosine that reaches 0 at its end.

    Args:
        begins, ends: how much of the run lies before a step and at its end, from 0 to 1.
    """
    if begins < warmup:
        return highest * min(ends / warmup, 1.0)
    return highest * 0.5 * (1 + math.cos(math.pi * (begins - warmup) / (1 - warmup)))


@dataclass(frozen=True)
class Plan:
    """The steps of a run over a data set of `length` images (None: endless).

    A pass over the data ends with a smaller batch where the length asks for it; a run ends in the middle of a pass
    where the number of images asks for it.
    """

    images: int
    batch_size: int
    length: int | None

    @classmethod
    def of(cls, config: TrainConfig, length: int | None) -> Plan:
        """The plan of a configuration; raises InputError for epochs of an endless data set."""
        if config.epochs is not None:
            if length is None:
                raise InputError(f"epochs {config.epochs}: data {config.data!r} is endless, expected 'images' instead")
            return cls(max(1, round(config.epochs * length)), config.batch_size, length)
        return cls(config.images or DEFAULT_IMAGES, config.batch_size, length)

    @property
    def pass_images(self) -> int:
        return self.images if self.length is None else self.length

    @property
    def steps(self) -> int:
        passes, rest = divmod(self.images, self.pass_images)
        return passes * math.ceil(self.pass_images / self.batch_size) + math.ceil(rest / self.batch_size)

    def locate(self, step: int) -> tuple[int, int]:
        """(epoch, step within the epoch) of a step."""
        return divmod(step, math.ceil(self.pass_images / self.batch_size))

    def epoch_images(self, epoch: int) -> int:
        """How many images of a pass are shown."""
        return min(self.pass_images, self.images - epoch * self.pass_images)

    def images_seen(self, step: int) -> int:
        """Images shown before a step."""
        epoch, inside = self.locate(step)
        return min(self.images, epoch * self.pass_images + inside * self.batch_size)
