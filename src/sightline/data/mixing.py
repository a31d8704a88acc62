"""Mixup and CutMix: each image is mixed with one that is shown at its own size, so that packs are no exception."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sightline.data.augmentations import Augmentation, apply_augmentations
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

    def read(index: int, source: Source = source) -> Example:
        example = source.example(split, index, image_size, seed=seed, epoch=epoch)
        image = apply_augmentations(example.image, augment, seed=seed, epoch=epoch, index=index)
        return replace(example, image=image)

    try:
        example = read(index)
    except UnreadableDataError as error:
        return None, _left_out(source, split, index, error)
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
    # A clip is mixed with as many frames of another one.
    if source.sampling is not None and source.is_video:
        frames = replace(source.sampling, count=len(example.image), exact=True)
        partner_source = source.with_view(frames=frames)
    else:
        partner_source = source
    try:
        other = read(partner, partner_source)
    except UnreadableDataError as error:
        return alone, _left_out(source, split, partner, error)
    if cutmix:
        image, share = _cutmix(example.image, other.image, share, centre)
    else:
        image = np.rint(share * example.image + (1.0 - share) * other.image).astype(np.uint8)
    return replace(example, image=image, target=example.target.mix(other.target, share)), None


def _left_out(source: Source, split: str, index: int, error: UnreadableDataError) -> Unreadable:
    if source.allowance is None:
        raise error
    path = source.example_name(split, index)
    return Unreadable(path, str(error).removeprefix(f"{path}: "))


def _cutmix(image: np.ndarray, other: np.ndarray, share: float, centre: np.ndarray) -> tuple[np.ndarray, float]:
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
