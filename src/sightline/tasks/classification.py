"""Losses of classification, and top-k accuracy, whole and in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.data.buckets import padded_length
from sightline.data.packs import PackedBatch
from sightline.layout import TokenLayout
from sightline.models.head import ScoreLink
from sightline.results import FRACTION, Measured, Slices

Loss = Literal["bce", "ce"]
LOSSES: tuple[Loss, ...] = ("bce", "ce")
LINK_OF: dict[str, ScoreLink] = {"bce": "sigmoid", "ce": "softmax"}
"""Loss -> how the logits that it trained are read."""


def classification_loss(
    logits: Tensor,
    labels: Tensor,
    loss: Loss,
    label_smoothing: float = 0.0,
    others: Tensor | None = None,
    shares: Tensor | None = None,
) -> Tensor:
    """The mean loss over images, in float32: each image counts alike, whatever its size and its neighbours.

    Args:
        logits: [images, classes]; labels: int64 [images].
        loss: `bce` is the sigmoid cross entropy summed over classes (DeiT III; LookHere), `ce` the softmax cross
            entropy (ViT).
        label_smoothing: share of the target that is spread over all classes.
        others, shares: int64 and float32 [images], the second label of mixed images and the part of the first.
    """
    classes = logits.shape[-1]
    target = F.one_hot(labels, classes).float()
    if others is not None and shares is not None:
        target = torch.lerp(F.one_hot(others, classes).float(), target, shares.unsqueeze(1))
    elif loss == "ce":
        return F.cross_entropy(logits.float(), labels, label_smoothing=label_smoothing)
    if loss == "ce":
        return F.cross_entropy(logits.float(), target, label_smoothing=label_smoothing)
    target = target * (1 - label_smoothing) + label_smoothing / classes
    return F.binary_cross_entropy_with_logits(logits.float(), target, reduction="none").sum(-1).mean()


def scores_of(logits: Tensor, link: ScoreLink) -> Tensor:
    """Logits [..., classes] as scores from 0 to 1, by `ViTConfig.score_link`."""
    return logits.sigmoid() if link == "sigmoid" else logits.softmax(-1)


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model said of a split, in the split's order.

    Attributes:
        logits: float32 [images, classes]; labels: int64 [images].
        groups: the confusable group of each image, or None; sizes: float32 [images], nan where unknown.
        seconds: of the forward passes and the rendering or reading of images.
        names: of the images; indices: int64 [images], in the split; patches: the mean of patches an image.
    """

    logits: np.ndarray
    labels: np.ndarray
    groups: Sequence[str | None]
    sizes: np.ndarray
    seconds: float
    names: Sequence[str] = ()
    indices: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    patches: float = float("nan")


def accuracies(predictions: Predictions, groups: Mapping[str, Sequence[int]]) -> list[Measured]:
    """Shares of images that are named rightly.

    `top1` and `top5` of all; where the images have groups `top1` of each `group`, and `top1_within_group` (the best of
    the classes of the true group alone); where they have sizes `top1` of each `size_quintile`, 1 (smallest) to 5, of
    equal count.
    """
    labels, logits = predictions.labels, predictions.logits
    count = len(labels)
    if count == 0:
        return []
    # Ranks rather than a sort: how many classes score higher than the true one.
    own = np.take_along_axis(logits, labels[:, None], axis=1)
    above = (logits > own).sum(axis=1) + ((logits == own).cumsum(axis=1)[np.arange(count), labels] - 1)
    right = above == 0
    measured = [_share("top1", right), _share("top5", above < 5)]
    named = np.array([group or "" for group in predictions.groups])
    for group in groups:
        inside = named == group
        if inside.any():
            measured.append(_share("top1", right[inside], {"group": group}))
    if groups and (named != "").any():
        masked = np.full_like(logits, -np.inf)
        for group, classes in groups.items():
            rows = np.flatnonzero(named == group)
            own_classes = np.ix_(rows, np.asarray(classes))
            masked[own_classes] = logits[own_classes]
        known = named != ""
        within = masked.argmax(axis=1) == labels
        measured.append(_share("top1_within_group", within[known]))
    if np.isfinite(predictions.sizes).all() and count >= 5:
        order = np.argsort(predictions.sizes, kind="stable")
        for number, part in enumerate(np.array_split(order, 5), start=1):
            measured.append(_share("top1", right[part], {"size_quintile": number}))
    return measured


def _share(metric: str, right: np.ndarray, slices: Slices = MappingProxyType({})) -> Measured:
    """The share of images, bool [images], for which something holds."""
    return Measured(metric, float(right.mean()), FRACTION, len(right), slices=dict(slices), better="higher")


def to_model_input(images: Tensor, mean: Sequence[float], std: Sequence[float], device: torch.device) -> Tensor:
    """uint8 [batch, 3, height, width] to normalised float32 on a device."""
    shift = torch.tensor(mean, device=device).view(1, 3, 1, 1)
    scale = torch.tensor(std, device=device).view(1, 3, 1, 1)
    return (images.to(device, non_blocking=True).float() / 255 - shift) / scale


def packed_model_input(
    batch: PackedBatch,
    mean: Sequence[float],
    std: Sequence[float],
    num_prefix_tokens: int,
    device: torch.device,
    padded: Sequence[int] | None = None,
) -> tuple[Tensor, TokenLayout]:
    """Packed patches as `Model.forward` takes them.

    Args:
        padded: rising lengths of slots, to the least of which that holds it the pack is padded.

    Returns:
        Normalised float32 [1, tokens, 3 * patch_size**2] on the device, and where each stands.
    """
    shift, scale = (torch.tensor(values, device=device).view(3, 1) for values in (mean, std))
    channels = batch.patches.to(device, non_blocking=True).float().unflatten(1, (3, -1))
    layout = TokenLayout.packed(batch.grids, num_prefix_tokens=num_prefix_tokens, device=device)
    # Whole images stay whole: back ends know more of them than of what is left of others.
    if any(len(kept) < grid.cells for kept, grid in zip(batch.kept, batch.grids, strict=True)):
        # In one transfer, not one an image.
        kept = torch.cat(batch.kept).to(device, non_blocking=True)
        layout = layout.keep(kept.split([len(one) for one in batch.kept]))
    patches = ((channels / 255 - shift) / scale).flatten(1).unsqueeze(0)
    if padded is None:
        return patches, layout
    layout = layout.pad_to(padded_length(layout.slots, padded))
    return F.pad(patches, (0, 0, 0, layout.padding)), layout
