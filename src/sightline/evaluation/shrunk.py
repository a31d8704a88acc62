"""The baseline of every test above the training size: the same images shrunk to it."""

from __future__ import annotations

import copy
from dataclasses import replace

from sightline.data.crops import apply_crop, size_of, whole_crop
from sightline.data.source import Example, Source


def shrunk(source: Source, side: int) -> Source:
    """The same data set, whose images are shrunk to a square of `side` pixels after they were made at the size that is
    asked for; what is said of them stays at that size, so that answers are scored there."""

    def example(split: str, index: int, image_size: tuple[int, int], *, seed: int = 0, epoch: int = 0) -> Example:
        made = source.example(split, index, image_size, seed=seed, epoch=epoch)
        return replace(made, image=apply_crop(made.image, whole_crop(size_of(made.image), (side, side)), "bicubic"))

    small = copy.copy(source)
    small.example = example
    return small
