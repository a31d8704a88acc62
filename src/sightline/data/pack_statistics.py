"""What packing does to a data set: how long its images are, how many share a sequence, and how much room is left."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sightline.data.packs import plan
from sightline.data.sampling import SizeSampler
from sightline.data.source import Source
from sightline.errors import InputError

# Each is kept in memory, and planned in its turn: some minutes.
_MOST_IMAGES = 10_000_000


@dataclass(frozen=True)
class PackStatistics:
    """What was counted.

    Attributes:
        images: that were given, and all of them packed.
        patches, tokens: before and after dropping.
        lengths: tokens of each image, as they were packed.
        sequences: tokens and images of each sequence.
        capacity: of a sequence.
    """

    images: int
    patches: int
    tokens: int
    lengths: tuple[int, ...]
    sequences: tuple[tuple[int, int], ...]
    capacity: int

    @property
    def unused(self) -> float:
        """The part of the room of all sequences but the last that no token fills; the last may end with the data."""
        whole = self.sequences[:-1] or self.sequences
        return 1 - sum(tokens for tokens, _ in whole) / (self.capacity * len(whole)) if whole else 0.0

    @property
    def images_a_sequence(self) -> float:
        return self.images / len(self.sequences) if self.sequences else 0.0

    @property
    def padding_factor(self) -> float:
        """How many times more tokens there would be if every image were padded to the longest."""
        return max(self.lengths) * self.images / self.tokens if self.lengths else 1.0


def pack_statistics(
    source: Source,
    split: str,
    sampler: SizeSampler,
    *,
    capacity: int,
    how: str = "first_fit",
    most_images: int | None = None,
    images: int | None = None,
    seed: int = 0,
    advance: Callable[[int, int], None] | None = None,
) -> PackStatistics:
    """Pack one pass over a split without reading a pixel.

    Args:
        capacity: tokens of a sequence; how, most_images: as `pack_stream`.
        images: how many of the split; None takes all, or 10,000 of an endless one.
        advance: called with (images done, images in all).

    Raises:
        InputError: an image is longer than a sequence, or the split is empty or not known.
        UnreadableDataError: the header of a file cannot be read.
    """
    source.check(split)
    there = source.length(split)
    if there is None and images is not None and images > _MOST_IMAGES:
        raise InputError(f"images {images}: expected at most {_MOST_IMAGES:,} of a split without an end")
    count = min(images or there or 10_000, there if there is not None else images or 10_000)
    if count < 1:
        raise InputError(f"split {split}: has no image to pack")
    lengths: list[int] = []
    sequences: list[tuple[int, int]] = []
    patches = 0
    planned = plan(source, split, sampler, capacity=capacity, how=how, most_images=most_images, images=count, seed=seed)
    for sequence in planned:
        fresh = [one.tokens for one in sequence]
        patches += sum(math.prod(one.image_size) // sampler.patch_size**2 for one in sequence)
        lengths += fresh
        sequences.append((sum(fresh), len(fresh)))
        if advance is not None:
            advance(len(lengths), count)
    return PackStatistics(count, patches, sum(lengths), tuple(lengths), tuple(sequences), capacity)


def histogram(values: Sequence[int], bins: int = 12) -> list[tuple[int, int, int]]:
    """(lowest, highest, how many) of equal ranges of whole numbers, from the smallest value to the largest."""
    if not values:
        return []
    low, high = min(values), max(values)
    width = max(math.ceil((high - low + 1) / bins), 1)
    counts = Counter((value - low) // width for value in values)
    return [
        (first, min(first + width - 1, high), counts[(first - low) // width]) for first in range(low, high + 1, width)
    ]
