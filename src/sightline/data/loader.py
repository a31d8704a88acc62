"""Batches of a source in a given order, the same for any number of workers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import numpy as np

from sightline.data.allowance import Unreadable
from sightline.data.mixing import Asked, MixingConfig, mixed_examples
from sightline.data.randomness import generator
from sightline.data.source import Source
from sightline.errors import InputError, SightlineError
from sightline.runtime import check_workers
from sightline.signals import leave_to_parent

if TYPE_CHECKING:
    import torch

Key = TypeVar("Key")
Made = TypeVar("Made", bound="Pinnable")


class Pinnable:
    """A batch, whose tensors a GPU can fetch while it computes once they are pinned."""

    names: list[str]
    left_out: tuple[Unreadable, ...]

    def __len__(self) -> int:
        """The number of images."""
        return len(self.names)

    def pin_memory(self) -> Self:
        """The same with its tensors in pinned memory: what torch's loader calls; needs CUDA."""
        import torch

        changes = {}
        for one in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]  # both batches are dataclasses
            value = getattr(self, one.name)
            if isinstance(value, torch.Tensor):
                changes[one.name] = value.pin_memory()
        return dataclasses.replace(self, **changes)  # pyright: ignore[reportArgumentType, reportReturnType]


@dataclass(frozen=True, eq=False)
class Batch(Pinnable):
    """Some examples of one image size.

    Attributes:
        images: torch.uint8 [b, 3, height, width], RGB.
        labels: torch.int64 [b].
        groups: for each image the name of its confusable group, or None.
        sizes: torch.float32 [b], the object's longest side over the image's shorter side; nan where unknown.
        indices: torch.int64 [b], the index of each image in its split.
        names: for each image the name of its example, such as its file.
        others, shares: torch.int64 [b], the label of what an image was mixed with, and torch.float32 [b], the part of
            `labels`; None where nothing is mixed.
        left_out: images that belong here and cannot be read; none of the others takes their place.
    """

    images: torch.Tensor
    labels: torch.Tensor
    groups: list[str | None]
    sizes: torch.Tensor
    indices: torch.Tensor
    names: list[str]
    others: torch.Tensor | None = None
    shares: torch.Tensor | None = None
    left_out: tuple[Unreadable, ...] = ()


def epoch_order(length: int, seed: int, epoch: int) -> np.ndarray:
    """The order of one epoch: int64 [length], each index from 0 to length - 1 once, by seed and epoch alone."""
    return generator("epoch_order/1", seed, epoch=epoch).permutation(length)


@dataclass(frozen=True, slots=True)
class _Examples:
    """What a worker needs to make a batch: it holds no state, so any worker makes the same one."""

    source: Source
    split: str
    image_size: tuple[int, int]
    seed: int
    epoch: int
    mixing: MixingConfig | None

    def batch(self, indices: Sequence[int]) -> Batch:
        import torch

        height, width = self.image_size
        asked = [Asked(index, self.image_size, self.epoch) for index in indices]
        found, left_out = mixed_examples(self.source, self.split, asked, seed=self.seed, mixing=self.mixing)
        indices = [index for index, one in zip(indices, found, strict=True) if one is not None]
        mixed = [one for one in found if one is not None]
        examples = [one.example for one in mixed]
        images = torch.empty((len(examples), 3, height, width), dtype=torch.uint8)
        for image, example in zip(images.numpy(), examples, strict=True):
            image[...] = example.image.transpose(2, 0, 1)
        sizes = [float("nan") if example.size is None else example.size for example in examples]
        return Batch(
            images=images,
            labels=torch.tensor([example.label for example in examples], dtype=torch.int64),
            groups=[example.group for example in examples],
            sizes=torch.tensor(sizes, dtype=torch.float32),
            indices=torch.tensor(indices, dtype=torch.int64),
            names=[example.name for example in examples],
            others=torch.tensor([one.other for one in mixed], dtype=torch.int64) if self.mixing else None,
            shares=torch.tensor([one.share for one in mixed], dtype=torch.float32) if self.mixing else None,
            left_out=left_out,
        )


def batches(
    source: Source,
    split: str,
    *,
    indices: Sequence[int] | np.ndarray,
    image_size: tuple[int, int],
    batch_size: int,
    seed: int = 0,
    epoch: int = 0,
    workers: int = 0,
    mixing: MixingConfig | None = None,
    pin: bool = False,
) -> Iterator[Batch]:
    """The examples at `indices`, in that order, in batches of `batch_size`, the last one smaller where it must be.

    The batches are the same, bit for bit, for any number of workers, and no global random state is read or changed.

    Args:
        source: the data set.
        split: one of its splits.
        indices: which examples; none gives no batch.
        image_size: (height, width) in pixels.
        batch_size: images in a batch, at least 1.
        seed: the run's seed.
        epoch: the pass over the data.
        workers: processes that make batches ahead; 0 makes each when it is asked for.
        mixing: of images with one another.
        pin: put the tensors into pinned memory, from which a GPU fetches them while it computes.

    Raises:
        InputError: the batch size or the number of workers is out of range, or the source refuses an argument; what
            can be checked without reading an image is checked before the first batch.
        UnreadableDataError: an image could not be read, when its batch is asked for, beyond the source's allowance.
    """
    if batch_size < 1:
        raise InputError(f"batch_size {batch_size} is out of range (expected: at least 1)")
    check_workers(workers)
    order = [int(index) for index in indices]
    for index in {min(order), max(order)} if order else ():
        source.check(split, index, image_size)
    parts = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    examples = _Examples(source, split, (int(image_size[0]), int(image_size[1])), seed, epoch, mixing)
    return counted(source, split, made(examples.batch, parts, min(workers, len(parts)), pin))


def counted(source: Source, split: str, made: Iterable[Made]) -> Iterator[Made]:
    """The batches, each one's left-out images counted when its turn comes: the same for any number of workers.

    Raises:
        UnreadableDataError: more are left out than the source's allowance.
    """
    for batch in made:
        if batch.left_out and source.allowance is not None:
            source.allowance.note(split, batch.left_out)
        yield batch


def made(make: Callable[[Key], Made], keys: Iterable[Key], workers: int, pin: bool) -> Iterator[Made]:
    """`make` of each key, in their order, ahead in `workers` processes; 0 makes each when it is asked for.

    Args:
        make: a function of its key alone, so that any process makes the same.
        pin: in pinned memory, one ahead at least where there are workers.

    Raises:
        SightlineError: what `make` raises, when its turn comes.
    """
    if workers:
        return _from_workers(make, keys, workers, pin)
    return (make(key).pin_memory() for key in keys) if pin else map(make, keys)


@dataclass(frozen=True, slots=True)
class _InWorker(Generic[Key, Made]):
    """What torch's loader takes for a data set."""

    make: Callable[[Key], Made]

    def __getitem__(self, key: Key) -> Made | SightlineError:
        # Returned, not raised: a worker's exception comes back with its traceback as its message.
        try:
            return self.make(key)
        except SightlineError as error:
            return error


def _begin_worker(_: int) -> None:
    leave_to_parent()


def _from_workers(make: Callable[[Key], Made], keys: Iterable[Key], workers: int, pin: bool) -> Iterator[Made]:
    import torch
    from torch.utils.data import DataLoader

    loader = DataLoader(
        _InWorker(make),  # pyright: ignore[reportArgumentType]  # anything with __getitem__ is a data set of the loader
        batch_size=None,
        sampler=keys,  # pyright: ignore[reportArgumentType]  # keys of any kind
        num_workers=workers,
        pin_memory=pin,
        # Its own generator: without one the loader takes a number from torch's global state.
        generator=torch.Generator(),
        worker_init_fn=_begin_worker,
    )
    for batch in loader:
        if isinstance(batch, SightlineError):
            raise batch
        yield batch
