"""What packing does to a data set: how many images share a sequence, and what room is left."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sightline.data.pack_plan import PackPlan
from sightline.data.sizes import SizeSampler
from sightline.data.skip_policy import Progress
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
    advance: Progress | None = None,
) -> PackStatistics:
    """Pack one pass over a split without reading a pixel.

    Args:
        capacity: tokens of a sequence; how, most_images: as `pack_window`.
        images: how many of the split; None takes all, or 10,000 of an endless one.
        advance: called with (images done, images in all).

    Raises:
        InputError: an image is longer than a sequence, or the split is empty or not known.
        UnreadableDataError: the header of a file cannot be read.
    """
    source.check(split)
    if source.is_video:
        raise InputError(f"data {source.name}: is of clips; what is counted is of images (expected images)")
    length = source.length(split)
    if length is None and images is not None and images > _MOST_IMAGES:
        raise InputError(f"images {images}: expected at most {_MOST_IMAGES:,} of a split without an end")
    count = images or length or 10_000
    count = count if length is None else min(count, length)
    plan = PackPlan(source, split, sampler, capacity, how, most_images, images=count, seed=seed)
    lengths: list[int] = []
    sequences: list[tuple[int, int]] = []
    patches = 0
    for sequence in plan.batches():
        tokens = [sample.tokens for sample in sequence]
        patches += sum(math.prod(sample.image_size) // sampler.patch_size**2 for sample in sequence)
        lengths += tokens
        sequences.append((sum(tokens), len(tokens)))
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
