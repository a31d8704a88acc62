"""Batches as they were planned, the same for any number of workers; Mixup and CutMix, each image with one that is shown
at its own size, so that packs are no exception."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from sightline.data.augmentations import Augmentation, Augmentations, apply_augmentations
from sightline.data.batch import Batch, CollatedTokens, collate_packed
from sightline.data.config import MixingConfig
from sightline.data.rng import generator
from sightline.data.skip_policy import Unreadable
from sightline.data.source import Example, Source
from sightline.distributed.machine import check_workers
from sightline.distributed.processes import exit_with_parent
from sightline.distributed.signals import setup_worker_signals
from sightline.errors import SightlineError, UnreadableDataError
from sightline.io.config import Count, check_value
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import ImagePatchifier
from sightline.tokens.rng import image_seed

# An endless split has an example at any of them.
_ANY_INDEX = 2**62


def read_example(
    source: Source,
    split: str,
    index: int,
    image_size: tuple[int, int],
    *,
    seed: int,
    epoch: int,
    mixing: MixingConfig | None = None,
    augment: Sequence[Augmentation] = (),
) -> tuple[Example | None, Unreadable | None]:
    """An example of (height, width) pixels, augmented, then mixed with another one: a function of its arguments and the
    files alone, so that any worker, and a run that goes on, leaves out the same.

    Returns:
        The example, whose target has the share of the pixels, before a token is dropped, or None; and the image that
        cannot be read: that one, or what it was to be mixed with. Raises UnreadableDataError without an allowance.
    """

    def read(source: Source, index: int) -> Example | Unreadable:
        try:
            example = source.example(split, index, image_size, seed=seed, epoch=epoch)
        except UnreadableDataError as error:
            if source.allowance is None:
                raise
            path = source.example_name(split, index)
            return Unreadable(path, str(error).removeprefix(f"{path}: "))
        image = apply_augmentations(example.image, augment, seed=seed, epoch=epoch, index=index)
        return replace(example, image=image)

    example = read(source, index)
    if isinstance(example, Unreadable):
        return None, example
    if mixing is None:
        return example, None
    rng = generator("mixing/1", seed, index, epoch=epoch)
    mixes, kind, centre = rng.random() < mixing.chance, rng.random(), rng.random(2)
    partner = int(rng.integers(source.length(split) or _ANY_INDEX))
    cutmix = mixing.cutmix > 0 and (mixing.mixup == 0 or kind < 0.5)
    alpha = mixing.cutmix if cutmix else mixing.mixup
    share = float(rng.beta(alpha, alpha))
    # An unmixed target has the fields of a mixed one, so that a batch is of one kind.
    alone = replace(example, target=example.target.mix(example.target, 1.0))
    if not mixes:
        return alone, None
    if source.sampling is not None and source.is_video:
        # A clip is mixed with as many frames of another one.
        source = source.with_view(frames=replace(source.sampling, count=len(example.image), exact=True))
    other = read(source, partner)
    if isinstance(other, Unreadable):
        return alone, other
    if cutmix:
        # A box of about 1 - share of the area; of a clip the same of every frame.
        image, side, (height, width) = example.image.copy(), math.sqrt(1 - share), example.image.shape[-3:-1]
        (top, bottom), (left, right) = (
            (round(max((at - side / 2), 0.0) * length), round(min((at + side / 2), 1.0) * length))
            for at, length in zip(centre.tolist(), (height, width), strict=True)
        )
        image[..., top:bottom, left:right, :] = other.image[..., top:bottom, left:right, :]
        share = 1 - (bottom - top) * (right - left) / (height * width)
    else:
        image = np.rint(share * example.image + (1.0 - share) * other.image).astype(np.uint8)
    return replace(example, image=image, target=example.target.mix(other.target, share)), None


@dataclass(frozen=True, slots=True)
class SampleSpec:
    """One image of a batch that is to come: which it is, in which pass, and how it is shown.

    Attributes:
        image_size: (height, width) in pixels.
        tokens: how many of its patches stay.
        patch_indices: int64, the row-major numbers of its patches that stay, rising; None for all.
        patch_size: side of its patches in pixels, the same for all of a batch; None for the model's own.
    """

    index: int
    epoch: int
    image_size: tuple[int, int]
    tokens: int
    patch_indices: np.ndarray | None = None
    patch_size: int | None = None


@dataclass(frozen=True)
class Collator:
    """Makes a batch of what was planned: it holds no state, so any worker makes the same one.

    Attributes:
        rows: an image to flat rows, the embedder's half.
        targets: what a task makes of some examples.
        arrange: `collate_uniform`, or `collate_packed` for images of any sizes in one row.
        num_prefix_tokens: of each image, in the layout.
        seed, mixing, augment: as `read_example`.
    """

    source: Source
    split: str
    rows: ImagePatchifier
    targets: Callable[[Sequence[Example]], Mapping[str, Any]]
    arrange: Callable[..., CollatedTokens] = collate_packed
    num_prefix_tokens: int = 0
    seed: int = 0
    mixing: MixingConfig | None = None
    augment: Augmentations = ()

    def __call__(self, specs: Sequence[SampleSpec]) -> Batch:
        """The batch, without the images that cannot be read; raises UnreadableDataError where there is one, and the
        source has no allowance for it."""
        samples, examples, left_out = [], [], []
        how: dict[str, Any] = {"seed": self.seed, "mixing": self.mixing, "augment": self.augment}
        for spec in specs:
            example, fault = read_example(self.source, self.split, spec.index, spec.image_size, epoch=spec.epoch, **how)
            left_out += [] if fault is None else [fault]
            if example is not None:
                samples.append(spec)
                examples.append(example)
        if examples:
            cut = self.rows.of_patches(samples[0].patch_size)
            rows, grids = zip(*(cut(example.image) for example in examples), strict=True)
            pixels = [cut.patchifier.valid_size(*example.image.shape[-3:-1]) for example in examples]
            patch_indices = [spec.patch_indices for spec in samples]
            inputs, layout = self.arrange(rows, grids, patch_indices, self.num_prefix_tokens, pixels)
            layout = layout.with_seeds([image_seed(self.seed, spec.epoch, spec.index) for spec in samples])
        else:
            inputs = torch.empty((1, 0, self.rows.patchifier.patch_dim), dtype=torch.uint8)
            layout = TokenLayout.packed([])
        return Batch(
            inputs,
            layout,
            targets=self.targets(examples),
            indices=torch.tensor([spec.index for spec in samples], dtype=torch.int64),
            names=[example.name for example in examples],
            slices=[example.slices for example in examples],
            left_out=tuple(left_out),
        )


def uniform(
    indices: Iterable[int], image_size: tuple[int, int], tokens: int, batch_size: int, epoch: int = 0
) -> list[list[SampleSpec]]:
    """A plan of images of one (height, width) in pixels, with so many patches each, in their order, the last batch
    smaller where it must be; raises InputError where the batch size is out of range."""
    check_value("batch_size", batch_size, Count)
    specs = [SampleSpec(int(index), epoch, image_size, tokens) for index in indices]
    return [specs[start : start + batch_size] for start in range(0, len(specs), batch_size)]


def load_batches(
    collator: Collator, plan: Iterable[Sequence[SampleSpec]], *, workers: int = 0, pin: bool = False
) -> Iterator[Batch]:
    """The batches of a plan, in its order, the same bit for bit for any number of workers; no global random state is
    read or changed. What is left out of each is counted when its turn comes.

    Args:
        workers: processes that make batches ahead; 0 makes each when it is asked for.
        pin: put the tensors into pinned memory.

    Raises:
        InputError: the number of workers is out of range, or there is no such split; before the first batch.
        UnreadableDataError: an image of the batch could not be read, beyond the source's allowance.
    """
    from torch.utils.data import DataLoader

    check_workers(workers)
    collator.source.check(collator.split)
    loader = DataLoader(
        _Batches(collator),  # pyright: ignore[reportArgumentType]  # anything with __getitem__ is a data set of the loader
        batch_size=None,
        sampler=plan,  # pyright: ignore[reportArgumentType]  # keys of any kind
        num_workers=workers,
        pin_memory=pin,
        # Its own generator: without one the loader takes a number from torch's global state.
        generator=torch.Generator(),
        worker_init_fn=_begin_worker,
    )

    def checked() -> Iterator[Batch]:
        for batch in loader:
            if isinstance(batch, SightlineError):
                raise batch
            if batch.left_out and collator.source.allowance is not None:
                collator.source.allowance.add(collator.split, batch.left_out)
            yield batch

    return checked()


@dataclass(frozen=True, slots=True)
class _Batches:
    """What torch's loader takes for a data set."""

    collator: Collator

    def __getitem__(self, specs: Sequence[SampleSpec]) -> Batch | SightlineError:
        # Returned, not raised: a worker's exception comes back with its traceback as its message.
        try:
            return self.collator(specs)
        except SightlineError as error:
            return error


def _begin_worker(_: int) -> None:
    setup_worker_signals()
    exit_with_parent()
