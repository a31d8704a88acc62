"""Packed training batches: images of drawn sizes, their kept patches side by side; the same for any number of workers.

What is in which batch is planned from lengths alone, before a pixel is read: a run that was killed plans again and
passes over what it has done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import TYPE_CHECKING

from sightline.data.loader import epoch_order, made
from sightline.data.pack_statistics import size_of
from sightline.data.packing import pack_stream
from sightline.data.sampling import Showing, Shown
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.grid import Grid

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, eq=False)
class PackedBatch:
    """Images of any sizes in one row.

    Attributes:
        patches: torch.uint8 [tokens, 3 * patch_size**2], RGB, each flattened as (channel, y, x); only what was kept.
        grids: of each image, whole.
        kept: for each image int64 [tokens of it], the row-major numbers of its patches that are here.
        labels: torch.int64 [images].
        indices: torch.int64 [images], the index of each image in its split.
        names: for each image the name of its example, such as its file.
    """

    patches: torch.Tensor
    grids: list[Grid]
    kept: list[torch.Tensor]
    labels: torch.Tensor
    indices: torch.Tensor
    names: list[str]

    def __len__(self) -> int:
        """The number of images."""
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Planned:
    """One image of a batch that is to come: which it is, in which pass, and how it is shown."""

    index: int
    epoch: int
    shown: Shown


def plan(
    source: Source,
    split: str,
    showing: Showing,
    *,
    capacity: int,
    how: str = "best_fit",
    most_images: int | None = None,
    images: int | None = None,
    seed: int = 0,
) -> Iterator[list[Planned]]:
    """What will be in each batch, in order; endless where `images` is None.

    Every image of a pass comes once before the next pass begins; batches reach over the end of a pass.

    Args:
        capacity: tokens of a batch; how, most_images: as `pack_stream`.
        images: how many are shown in all.
        seed: of the order, the sizes and the drops.

    Raises:
        InputError: the split is empty or not known, or an image is longer than a batch.
    """
    source.check(split)
    length = source.length(split)
    if length == 0:
        raise InputError(f"split {split}: has no image")
    # Those that wait for their batch, by their number in the run.
    waiting: dict[int, Planned] = {}

    def lengths() -> Iterator[int]:
        for seen, (index, epoch) in enumerate(islice(_passes(length, seed), images)):
            size = size_of(source, split, index, seed)
            shown = showing.shown(size, seed=seed, index=index, epoch=epoch, seen=seen)
            waiting[seen] = Planned(index, epoch, shown)
            yield len(shown.kept)

    for chosen in pack_stream(lengths(), capacity, how=how, most_images=most_images):
        yield [waiting.pop(number) for number, _ in chosen]


def _passes(length: int | None, seed: int) -> Iterator[tuple[int, int]]:
    """(index, epoch) of each image of a run, in order."""
    if length is None:
        yield from ((index, 0) for index in count())
    else:
        for epoch in count():
            yield from ((int(index), epoch) for index in epoch_order(length, seed, epoch))


@dataclass(frozen=True, slots=True)
class _Packs:
    """What a worker needs to make a batch: it holds no state, so any worker makes the same one."""

    source: Source
    split: str
    patch_size: int
    seed: int

    def batch(self, planned: list[Planned]) -> PackedBatch:
        import torch

        from sightline.patchify import patchify

        pieces, labels, names = [], [], []
        for one in planned:
            size = (one.shown.grid.rows * self.patch_size, one.shown.grid.cols * self.patch_size)
            example = self.source.example(self.split, one.index, size, seed=self.seed, epoch=one.epoch)
            pixels = torch.from_numpy(example.image.transpose(2, 0, 1).copy()).unsqueeze(0)
            pieces.append(patchify(pixels, self.patch_size)[0][torch.from_numpy(one.shown.kept)])
            labels.append(example.label)
            names.append(example.name)
        return PackedBatch(
            patches=torch.cat(pieces),
            grids=[one.shown.grid for one in planned],
            kept=[torch.from_numpy(one.shown.kept) for one in planned],
            labels=torch.tensor(labels, dtype=torch.int64),
            indices=torch.tensor([one.index for one in planned], dtype=torch.int64),
            names=names,
        )


def packed_batches(
    source: Source,
    split: str,
    planned: Iterable[list[Planned]],
    *,
    patch_size: int,
    seed: int = 0,
    workers: int = 0,
) -> Iterator[PackedBatch]:
    """The batches that were planned; to go on in the middle of a run, leave out those that were done.

    Raises:
        UnreadableDataError: an image could not be read, when its batch is asked for.
    """
    packs = _Packs(source, split, patch_size, seed)
    return made(packs.batch, planned, workers)
