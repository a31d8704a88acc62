"""Which images of which sizes are in each batch of a run, packed.

What is in which batch is planned from lengths alone, before a pixel is read: a run that was killed plans again and
passes over what it has done. And what packing does to a data set: how many images share a batch, what room is left.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sightline.data.config import PatchSizes
from sightline.data.loader import SampleSpec
from sightline.data.packing import pack_window
from sightline.data.rng import generator
from sightline.data.sampling import Aspect, SizeSampler
from sightline.data.skip_policy import Progress
from sightline.data.source import Source
from sightline.data.views import View
from sightline.errors import InputError
from sightline.tokens.grid import Grid

# Images whose lengths are known when the next batches are planned.
LOOK_AHEAD = 1024
# Each is kept in memory, and planned in its turn: some minutes.
_MOST_IMAGES = 10_000_000


@dataclass(frozen=True, slots=True)
class PlanPosition:
    """Where a plan stands between two windows: enough to go on from there.

    Attributes:
        seen: how many images of the run were looked at.
        waiting: the numbers in the run of those that are in no batch yet.
    """

    seen: int = 0
    waiting: tuple[int, ...] = ()


@dataclass(frozen=True)
class PackPlan:
    """What will be in each batch, from lengths alone.

    Every image of a pass comes once before the next pass begins; batches reach over the end of a pass.

    Attributes:
        capacity: tokens of a batch; how, most_images: as `pack_window`.
        images: how many are shown in all; None: endless.
        num_prefix_tokens: of each image, which take room too.
        seed: of the order, the sizes and the drops.
        patch_sizes: of which one is drawn for each image; a batch holds images of one. None: all have the sampler's.
    """

    source: Source
    split: str
    sampler: SizeSampler
    capacity: int
    how: str = "first_fit"
    most_images: int | None = None
    images: int | None = None
    num_prefix_tokens: int = 0
    seed: int = 0
    patch_sizes: PatchSizes | None = None

    def windows(self, begin: PlanPosition | None = None) -> Iterator[tuple[PlanPosition, list[list[SampleSpec]]]]:
        """The batches of each window of look-ahead, with the position at its beginning.

        Raises:
            InputError: the split is empty or not known, or an image is longer than a batch.
        """
        self.source.check(self.split)
        if self.source.length(self.split) == 0:
            raise InputError(f"split {self.split}: has no image")
        position = begin or PlanPosition()
        known = {number: self._planned(number) for number in position.waiting}
        while True:
            end = position.seen + LOOK_AHEAD if self.images is None else min(position.seen + LOOK_AHEAD, self.images)
            known |= {number: self._planned(number) for number in range(position.seen, end)}
            packing = {"how": self.how, "most_images": self.most_images, "last": end == self.images}
            # Those of one patch size among themselves; then as if they had been packed together.
            lengths: dict[int | None, dict[int, int]] = {}
            for number, one in known.items():
                lengths.setdefault(one.patch_size, {})[number] = one.tokens + self.num_prefix_tokens
            each = [pack_window(some, self.capacity, seen=position.seen, **packing) for some in lengths.values()]
            sequences = sorted(itertools.chain.from_iterable(each), key=min)
            yield position, [[known.pop(number) for number in numbers] for numbers in sequences]
            if end == self.images:
                return
            position = PlanPosition(end, tuple(known))

    def _planned(self, number: int) -> SampleSpec:
        """An image of the run by its number."""
        length = self.source.length(self.split)
        if length is None:
            epoch, index = 0, number
        else:
            epoch, place = divmod(number, length)
            index = int(epoch_order(length, self.seed, epoch)[place])
        size, sampler, patch = displayed_size(self.source, self.split, index, self.seed), self.sampler, None
        if self.patch_sizes is not None:
            patch = self.patch_sizes.sizes[self.patch_sizes.of_image(self.seed, epoch, index)]
            sampler = replace(sampler, patch_size=patch)
        frames = self.source.frames_shown(self.split, index)
        grid, kept = sampler.sample(size, seed=self.seed, index=index, epoch=epoch, seen=number, frames=frames)
        sides = grid.rows * sampler.patch_size, grid.cols * sampler.patch_size
        return SampleSpec(index, epoch, sides, grid.cells if kept is None else len(kept), kept, patch)


@functools.lru_cache(maxsize=2)
def epoch_order(length: int, seed: int, epoch: int) -> np.ndarray:
    """The order of one epoch: int64 [length], each index from 0 to length - 1 once, by seed and epoch alone."""
    return generator("epoch_order/1", seed, epoch=epoch).permutation(length)


def plan(
    source: Source, split: str, sampler: SizeSampler, *, capacity: int, **options: Any
) -> Iterator[list[SampleSpec]]:
    """What will be in each batch, in order; `options` are the other fields of `PackPlan`.

    Raises:
        InputError: as `PackPlan.windows`.
    """
    for _, batches in PackPlan(source, split, sampler, capacity, **options).windows():
        yield from batches


def displayed_size(source: Source, split: str, index: int, seed: int) -> tuple[int, int]:
    """(height, width) of an example: the stored one, or where it is drawn at any size an aspect from 1/2 to 2."""
    stored = source.stored_size(split, index)
    if stored is not None:
        return stored
    stretch = 2.0 ** generator("aspect/1", seed, index).uniform(-0.5, 0.5)
    return round(1000 * stretch), round(1000 / stretch)


def group_by_grid(
    source: Source,
    split: str,
    indices: Sequence[int],
    view: View,
    patch_size: int,
    aspect: Aspect = "native",
    tubelet: int | None = None,
) -> dict[Grid, list[int]]:
    """The images of a split by the grid that each is shown as, smaller grids first, in their order within one.

    Args:
        aspect: `square` shows them as squares of as many patches.
        tubelet: frames of a patch, of a model of clips, whose grids have three sides: of each frame the view says how
            it is shown; None for images.

    Raises:
        UnreadableDataError: the header of an image cannot be read.
    """
    found: dict[Grid, list[int]] = {}
    for index in indices:
        # Always seed 0: no seed changes what a test split shows, so that runs are comparable.
        size = (1, 1) if aspect == "square" else displayed_size(source, split, index, 0)
        grid = view.grid(size, patch_size)
        if tubelet is not None:
            grid = Grid(-(-source.frames_shown(split, index) // tubelet), *grid)
        found.setdefault(grid, []).append(index)
    return dict(sorted(found.items()))


def group_by_frames(source: Source, split: str, indices: Sequence[int]) -> dict[int, Sequence[int]]:
    """The examples of a split by the number of frames that is shown of each, fewer first, in their order within one;
    all together where all are alike, as images are."""
    sampling = source.sampling
    if not source.is_video or sampling is None or sampling.exact:
        return {sampling.count if sampling is not None and source.is_video else 1: indices}
    found: dict[int, list[int]] = {}
    for index in indices:
        found.setdefault(source.frames_shown(split, index), []).append(index)
    return dict(sorted(found.items()))


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
