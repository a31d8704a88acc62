"""Mixup and CutMix: each image is mixed with one that is shown at its own size, so that packs are no exception."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sightline.data.augmenting import Augmentation, apply_augmentations
from sightline.data.config import MixingConfig
from sightline.data.rng import generator
from sightline.data.skip_policy import Unreadable
from sightline.data.source import Example, Source
from sightline.errors import UnreadableDataError

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
    """An example at a size, augmented, mixed with another at the same size: a function of its arguments and the files
    alone, so that any worker, and a run that goes on, leaves out the same.

    Args:
        image_size: (height, width) in pixels.
        mixing: None mixes nothing.
        augment: what is done to each of the two before they are mixed.

    Returns:
        The example, whose target has the share of the pixels, before a token is dropped; None where it cannot be read.
        And the image that cannot be: that one, or what it would have been mixed with.

    Raises:
        UnreadableDataError: one cannot be read, and the source has no allowance for that.
    """

    def one(at: int, source: Source = source) -> Example:
        found = source.example(split, at, image_size, seed=seed, epoch=epoch)
        return replace(found, image=apply_augmentations(found.image, augment, seed=seed, epoch=epoch, index=at))

    try:
        example = one(index)
    except UnreadableDataError as error:
        return None, _left_out(source, split, index, error)
    if mixing is None:
        return example, None
    draws = generator("mixing/1", seed, index, epoch=epoch)
    happens, kind, centre = draws.random() < mixing.chance, draws.random(), draws.random(2)
    partner = int(draws.integers(source.length(split) or _ANY_INDEX))
    cuts = mixing.cutmix > 0 and (mixing.mixup == 0 or kind < 0.5)
    alpha = mixing.cutmix if cuts else mixing.mixup
    share = float(draws.beta(alpha, alpha))
    # What is unmixed is said as what is, so that a batch is of one kind.
    alone = replace(example, target=example.target.mix(example.target, 1.0))
    if not happens:
        return alone, None
    try:
        other = one(partner, _of_as_many_frames(source, example.image))
    except UnreadableDataError as error:
        return alone, _left_out(source, split, partner, error)
    if cuts:
        image, share = _cut(example.image, other.image, share, centre)
    else:
        image = np.rint(share * example.image + (1.0 - share) * other.image).astype(np.uint8)
    # What slices say of the object is said of the first image.
    return replace(example, image=image, target=example.target.mix(other.target, share)), None


def _of_as_many_frames(source: Source, image: np.ndarray) -> Source:
    """A data set that shows what an image is mixed with, of a clip with as many frames, whatever it has itself."""
    if source.sampling is None or not source.is_video:
        return source
    return source.with_view(frames=replace(source.sampling, count=len(image), exact=True))


def _left_out(source: Source, split: str, index: int, error: UnreadableDataError) -> Unreadable:
    if source.allowance is None:
        raise error
    path = source.example_name(split, index)
    return Unreadable(path, str(error).removeprefix(f"{path}: "))


def _cut(image: np.ndarray, other: np.ndarray, share: float, centre: np.ndarray) -> tuple[np.ndarray, float]:
    """The image with a box of the other one, of about 1 - share of its area, and the share that is left; of a clip the
    same box of every frame."""
    height, width = image.shape[-3:-1]
    side = math.sqrt(1 - share)
    (top, bottom), (left, right) = (
        (round(max((at - side / 2), 0.0) * length), round(min((at + side / 2), 1.0) * length))
        for at, length in zip(centre.tolist(), (height, width), strict=True)
    )
    result = image.copy()
    result[..., top:bottom, left:right, :] = other[..., top:bottom, left:right, :]
    return result, 1 - (bottom - top) * (right - left) / (height * width)
