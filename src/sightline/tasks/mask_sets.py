"""Outputs that are sets of masks, each with a class: matched with the classes of an image, and read as a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.wide import at_least_float32
from sightline.data.targets import IGNORE
from sightline.tasks.maps import MapReader, enlarged
from sightline.tasks.matching import cheapest_pairs
from sightline.tokens.layout import TokenLayout

# Mask2Former's weights of the class, of the cross entropy of masks and of their overlap, in the costs and in the loss.
CLASS, PIXELS, DICE = 2.0, 5.0, 5.0
# The weight of queries that answer for nothing.
NOTHING = 0.1
# The most pixels of an image that a loss is of (Mask2Former, section 4.2: 112 x 112 points).
POINTS = 12544


class MaskSetReader(MapReader):
    """How outputs of `EomtHead` are read: `QueryOutputs` for each segment.

    The loss is that of mask classification (Mask2Former, Cheng et al. 2022, section 4; EoMT's weights). Of each image
    every class that its labels show is one mask; masks and queries are paired at the least cost; a pair has the binary
    cross entropy of its pixels and the dice loss, a query the cross entropy of its class or of nothing, and so at each
    of the last blocks. Of all pixels that have a class, at the labels' size; beyond 12544 of an image of so many, drawn
    evenly in training (Mask2Former draws more where masks are unsure). It is a mean over images, each of
    which divides by its own masks: Mask2Former divides by those of the whole batch.
    """

    def loss(self, outputs: list[Any], labels: Sequence[Tensor], layout: TokenLayout) -> tuple[Tensor, int]:
        """The sum over images; units are those that have a pixel with a class."""
        total, units = at_least_float32(outputs[0]["classes"]).new_zeros(()), 0
        seeds = [None] * len(labels) if layout.seeds is None else layout.seeds.tolist()
        for output, label, seed in zip(self.each(outputs), labels, seeds, strict=True):
            pixels = (label.flatten() != IGNORE).nonzero()[:, 0]
            # Every output has a gradient.
            total = total + 0 * sum(one.sum() for one in output.values())
            if not len(pixels):
                continue
            units += 1
            if len(pixels) > POINTS:
                pixels = pixels[_sampled_points(len(pixels), seed).to(pixels.device)]
            target = label.flatten()[pixels].long()
            present = target.unique()
            true = (target == present[:, None]).float()
            blocks = [(output["masks"], output["classes"])]
            if "earlier_masks" in output:
                blocks += zip(output["earlier_masks"], output["earlier_classes"], strict=True)
            for masks, classes in blocks:
                logits = _at_pixels(masks, pixels, label.shape)
                total = total + _image_loss(logits, at_least_float32(classes), true, present)
        return total, units

    def each(self, outputs: list[Any]) -> list[Any]:
        rows = [len(one["classes"]) for one in outputs]
        return [
            {name: value[row] for name, value in one.items()}
            for one, count in zip(outputs, rows, strict=True)
            for row in range(count)
        ]

    def crop_to_image(self, output: Any, shown: tuple[int, int], extent: tuple[int, int]) -> Any:
        return {**output, "masks": super().crop_to_image(output["masks"], shown, extent)}

    def scores(self, output: Any, size: tuple[int, int]) -> Tensor:
        """Of all queries, the sum of how sure the mask is times how sure the class is (tue-mps/eomt,
        `to_per_pixel_logits_semantic`)."""
        classes = output["classes"].float().softmax(dim=-1)[:, :-1]
        return torch.einsum("qhw,qc->chw", enlarged(output["masks"][None].float(), size)[0].sigmoid(), classes)

    def probabilities(self, scores: Tensor) -> Tensor:
        return scores / scores.sum(dim=0, keepdim=True).clamp_min(1e-12)

    def argmax_map(self, output: Any, size: tuple[int, int]) -> np.ndarray:
        return self.scores(output, size).argmax(dim=0).to(torch.uint8).numpy()


def _sampled_points(count: int, seed: int | None) -> Tensor:
    """Numbers of `POINTS` of so many pixels: random in training, by the image's seed where it has one, and spread
    evenly where a loss is measured."""
    if not torch.is_grad_enabled():
        return torch.arange(POINTS) * count // POINTS
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=generator)[:POINTS]


def _at_pixels(masks: Tensor, pixels: Tensor, size: Sequence[int]) -> Tensor:
    """Masks [queries, height, width] at some pixels of an image of `size`, as bilinear enlargement gives them: float32
    [queries, pixels]."""
    y, x = (pixels // size[1] + 0.5) * (2 / size[0]) - 1, (pixels % size[1] + 0.5) * (2 / size[1]) - 1
    places = torch.stack((x, y), dim=-1)[None, None].to(at_least_float32(masks).dtype)
    return F.grid_sample(at_least_float32(masks)[None], places, padding_mode="border", align_corners=False)[0, :, 0]


def _image_loss(logits: Tensor, classes: Tensor, true: Tensor, present: Tensor) -> Tensor:
    """Of one image: mask logits [queries, n], class logits [queries, classes + 1], masks [m, n] of m classes."""
    query, mask = _matched(logits, classes, true, present)
    targets = torch.full((len(classes),), classes.shape[1] - 1, device=classes.device)
    targets[query] = present[mask]
    weights = torch.ones(classes.shape[1], dtype=classes.dtype, device=classes.device)
    weights[-1] = NOTHING
    loss = CLASS * F.cross_entropy(classes, targets, weights)
    logits, true = logits[query], true[mask].to(logits.dtype)
    pixels = F.binary_cross_entropy_with_logits(logits, true, reduction="none").mean(dim=1)
    scores = logits.sigmoid()
    dice = 1 - (2 * (scores * true).sum(dim=1) + 1) / (scores.sum(dim=1) + true.sum(dim=1) + 1)
    return loss + (PIXELS * pixels + DICE * dice).sum() / len(present)


def _matched(logits: Tensor, classes: Tensor, true: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs of queries and classes that cost the least together: int64 [pairs] of each."""
    with torch.no_grad():
        true = true.to(logits.dtype)
        # Where a pixel is in the mask its cross entropy is softplus(-x), elsewhere softplus(x) = softplus(-x) + x.
        pixels = (F.softplus(-logits).sum(dim=1, keepdim=True) + logits @ (1 - true).mT) / logits.shape[1]
        scores = logits.sigmoid()
        dice = 1 - (2 * scores @ true.mT + 1) / (scores.sum(dim=1)[:, None] + true.sum(dim=1) + 1)
        return cheapest_pairs(PIXELS * pixels + DICE * dice - CLASS * classes.softmax(dim=-1)[:, present])
