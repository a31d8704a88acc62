"""Which images of which sizes are in each batch of a run, packed; and what packing does to a data set.

What is in which batch is planned from lengths alone, before a pixel is read: a run that was killed plans again and
passes over what it has done.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sightline.data.config import PatchSizes
from sightline.data.loader import SampleSpec
from sightline.data.packing import pack_window
from sightline.data.rng import generator
from sightline.data.sizes import Aspect, SizeSampler, View
from sightline.data.skip_policy import Progress
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.tokens.grid import Grid

# Images whose lengths are known when the next batches are planned.
LOOK_AHEAD = 1024
# Of an endless split that is counted: each is kept in memory, and planned in its turn, some minutes.
_MOST_IMAGES = 10_000_000


@dataclass(frozen=True, slots=True)
class PlanPosition:
    """Where a plan stands between two windows: enough to go on from there.

    Attributes:
        seen: images of the run that were planned.
        waiting: the numbers of those that are in no batch yet.
    """

    seen: int = 0
    waiting: tuple[int, ...] = ()


@dataclass(frozen=True)
class PackPlan:
    """What will be in each batch, from lengths alone. Every image of a pass comes once before the next pass begins;
    batches reach over the end of a pass.

    Attributes:
        capacity: tokens of a batch; how, most_images: as `pack_window`.
        images: how many are shown in all; None: endless.
        num_prefix_tokens: of each image, which take room too.
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

    def batches(self) -> Iterator[list[SampleSpec]]:
        """All batches, in order; raises as `windows`."""
        for _, batches in self.windows():
            yield from batches

    def windows(self, begin: PlanPosition | None = None) -> Iterator[tuple[PlanPosition, list[list[SampleSpec]]]]:
        """The batches of each window of look-ahead, with the position at its beginning; raises InputError where the
        split is empty or not known, or an image is longer than a batch."""
        self.source.check(self.split)
        if self.source.length(self.split) == 0:
            raise InputError(f"split {self.split}: has no image")
        position = begin or PlanPosition()
        samples = {number: self._sample(number) for number in position.waiting}
        while True:
            end = position.seen + LOOK_AHEAD if self.images is None else min(position.seen + LOOK_AHEAD, self.images)
            samples |= {number: self._sample(number) for number in range(position.seen, end)}
            # Those of one patch size among themselves; then as if they had been packed together.
            lengths: dict[int | None, dict[int, int]] = {}
            for number, sample in samples.items():
                lengths.setdefault(sample.patch_size, {})[number] = sample.tokens + self.num_prefix_tokens
            options = {"how": self.how, "most_images": self.most_images, "last": end == self.images}
            sequences: list[list[int]] = []
            for group in lengths.values():
                sequences += pack_window(group, self.capacity, seen=position.seen, **options)
            yield position, [[samples.pop(number) for number in numbers] for numbers in sorted(sequences, key=min)]
            if end == self.images:
                return
            position = PlanPosition(end, tuple(samples))

    def _sample(self, number: int) -> SampleSpec:
        """An image of the run by its number."""
        length, epoch, index = self.source.length(self.split), 0, number
        if length is not None:
            epoch, place = divmod(number, length)
            index = int(epoch_order(length, self.seed, epoch)[place])
        size, sampler, patch_size = displayed_size(self.source, self.split, index, self.seed), self.sampler, None
        if self.patch_sizes is not None:
            patch_size = self.patch_sizes.sizes[self.patch_sizes.of_image(self.seed, epoch, index)]
            sampler = replace(sampler, patch_size=patch_size)
        frames = self.source.frames_shown(self.split, index)
        grid, patches = sampler.sample(size, seed=self.seed, index=index, epoch=epoch, seen=number, frames=frames)
        sides = grid.rows * sampler.patch_size, grid.cols * sampler.patch_size
        return SampleSpec(index, epoch, sides, grid.cells if patches is None else len(patches), patches, patch_size)


@functools.lru_cache(maxsize=2)
def epoch_order(length: int, seed: int, epoch: int) -> np.ndarray:
    """The order of one epoch: int64 [length], each index from 0 to length - 1 once, by seed and epoch alone."""
    return generator("epoch_order/1", seed, epoch=epoch).permutation(length)


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
    """The images of a split by the grid that each is shown as (`square`: as squares of as many patches), smaller grids
    first, in their order within one; raises UnreadableDataError where the header of an image cannot be read.

    Args:
        tubelet: frames of a patch, of a model of clips, whose view is that of each frame; None for images.
    """
    groups: dict[Grid, list[int]] = {}
    for index in indices:
        # Always seed 0: no seed changes what a test split shows, so that runs are comparable.
        size = (1, 1) if aspect == "square" else displayed_size(source, split, index, 0)
        grid = view.grid(size, patch_size)
        if tubelet is not None:
            grid = Grid(-(-source.frames_shown(split, index) // tubelet), *grid)
        groups.setdefault(grid, []).append(index)
    return dict(sorted(groups.items()))


def group_by_frames(source: Source, split: str, indices: Sequence[int]) -> dict[int, Sequence[int]]:
    """The examples of a split by the number of frames that is shown of each, fewer first, in their order within one;
    all together where all are alike, as images are."""
    sampling = source.sampling
    if not source.is_video or sampling is None or sampling.exact:
        return {sampling.count if sampling is not None and source.is_video else 1: indices}
    groups: dict[int, list[int]] = {}
    for index in indices:
        groups.setdefault(source.frames_shown(split, index), []).append(index)
    return dict(sorted(groups.items()))


@dataclass(frozen=True)
class PackStatistics:
    """What was counted.

    Attributes:
        images: that were packed.
        patches, tokens: before and after dropping.
        lengths: tokens of each image.
        sequences: tokens and images of each sequence.
        capacity: of one.
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
    def images_per_sequence(self) -> float:
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
    """Pack `images` of a split (None: all, or 10,000 of an endless one) without reading a pixel; other arguments and
    errors as `PackPlan`, `advance` is called with (images done, images in all)."""
    if source.is_video:
        raise InputError(f"data {source.name}: is of clips; what is counted is of images (expected images)")
    length = source.length(split)
    if length is None and images is not None and images > _MOST_IMAGES:
        raise InputError(f"images {images}: expected at most {_MOST_IMAGES:,} of a split without an end")
    count = min(images or length or 10_000, length or _MOST_IMAGES)
    plan = PackPlan(source, split, sampler, capacity, how, most_images, images=count, seed=seed)
    lengths, sequences, pixels = list[int](), list[tuple[int, int]](), 0
    for sequence in plan.batches():
        tokens = [sample.tokens for sample in sequence]
        pixels += sum(math.prod(sample.image_size) for sample in sequence)
        lengths += tokens
        sequences.append((sum(tokens), len(tokens)))
        if advance is not None:
            advance(len(lengths), count)
    patches = pixels // sampler.patch_size**2
    return PackStatistics(count, patches, sum(lengths), tuple(lengths), tuple(sequences), capacity)


def histogram(values: Sequence[int], bins: int = 12) -> list[tuple[int, int, int]]:
    """(lowest, highest, how many) of equal ranges of whole numbers, from the smallest value to the largest."""
    if not values:
        return []
    low, high = min(values), max(values)
    width = math.ceil((high - low + 1) / bins)
    starts = range(low, high + 1, width)
    counts = np.bincount((np.array(values) - low) // width, minlength=len(starts)).tolist()
    return [(first, min(first + width - 1, high), count) for first, count in zip(starts, counts, strict=True)]
