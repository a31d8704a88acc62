"""What wrong boxes and classes cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.wide import at_least_float32
from sightline.models.box_head import BoxOutputs
from sightline.models.boxes import giou, iou
from sightline.tasks.matching import fcos_assign, hungarian_match, side_distance


@dataclass(frozen=True)
class DetectionTargets:
    """The objects of the images of one segment, padded to the most objects of one.

    Attributes:
        boxes: float32 [images, m, 4] in patch units; labels: int64 [images, m]; valid: bool [images, m].
        crowds: float32 [images, k, 4], boxes of many objects: no place in them is wrong; of no area where padded.
        known: bool [images, classes]: of which classes it is known where they are and are not.
    """

    boxes: Tensor
    labels: Tensor
    valid: Tensor
    crowds: Tensor
    known: Tensor


def focal(logits: Tensor, targets: Tensor, gamma: float = 2.0, alpha: float = 0.25) -> Tensor:
    """The focal loss of each logit (Lin et al. 2017, equation 5); `targets` 0 or 1."""
    logits = at_least_float32(logits)
    score = logits.sigmoid()
    miss = torch.where(targets > 0, 1 - score, score)
    weight = torch.where(targets > 0, alpha, 1 - alpha)
    return weight * miss.pow(gamma) * F.binary_cross_entropy_with_logits(logits, targets, reduction="none")


def dense_loss(
    outputs: BoxOutputs, targets: DetectionTargets, real: Tensor, *, radius: float, classes: float, overlap: float
) -> tuple[Tensor, int]:
    """Focal loss of the classes, GIoU loss of the boxes, and the binary cross entropy of `quality` with their IoU,
    which takes centre-ness' place (IoU-aware, Wu et al. 2020): the sum, and over how many places with an object.

    Args:
        real: bool [images, predictions], those that there are, before all others.
        radius: as `fcos_assign`; classes, overlap: weights of the focal loss and of the GIoU loss.
    """
    logits, places = outputs["logits"], outputs["places"]
    whose = fcos_assign(places, targets.boxes, targets.valid, radius)
    has = whose >= 0
    image, place = has.nonzero(as_tuple=True)
    number = whose[image, place]
    target = torch.zeros_like(at_least_float32(logits))
    target[image, place, targets.labels[image, number]] = 1
    middle = places[:, :, None, :2]
    inside = (middle > targets.crowds[:, None, :, :2]) & (middle < targets.crowds[:, None, :, 2:])
    counts = real & (has | ~inside.all(dim=-1).any(dim=-1))
    weight = (counts[..., None] & targets.known[:, None]) | (target > 0)
    total = classes * torch.where(weight, focal(logits, target), 0).sum()
    boxes, true = at_least_float32(outputs["boxes"][image, place]), targets.boxes[image, number]
    total = total + overlap * (1 - giou(boxes, true)).sum()
    quality = at_least_float32(outputs["quality"][image, place])
    total = total + F.binary_cross_entropy_with_logits(quality, iou(boxes, true).detach(), reduction="sum")
    # Of every output, so that each weight has a gradient where there is no object.
    return total + _zero(outputs["boxes"], outputs["quality"]), len(image)


def set_loss(
    outputs: BoxOutputs, targets: DetectionTargets, real: Tensor, *, classes: float, sides: float, overlap: float
) -> tuple[Tensor, int]:
    """Of the cheapest pairs (`hungarian_match`): focal loss of the classes, `side_distance` and GIoU loss of the boxes,
    with the weights by which they were paired: the sum, and over how many objects. Of earlier layers the same, each by
    its own pairs; `real` as `dense_loss`."""
    logits, boxes, layers = outputs["logits"], outputs["boxes"], 1
    if "earlier_logits" in outputs:
        layers += outputs["earlier_logits"].shape[1]
        # Each layer is one more batch of the same images.
        logits = torch.cat((logits, *outputs["earlier_logits"].unbind(1)))
        boxes = torch.cat((boxes, *outputs["earlier_boxes"].unbind(1)))
    each = (targets.labels, targets.boxes, targets.valid, targets.known, real)
    labels, truths, valid, known, real = (one.repeat(layers, *[1] * (one.dim() - 1)) for one in each)
    weights = {"classes": classes, "sides": sides, "overlap": overlap}
    image, query, number = hungarian_match(logits, boxes, real, labels, truths, valid, **weights)
    target = torch.zeros_like(at_least_float32(logits))
    target[image, query, labels[image, number]] = 1
    counts = (known[:, None] & real[..., None]) | (target > 0)
    total = _zero(boxes) + classes * torch.where(counts, focal(logits, target), 0).sum()
    boxes, true = at_least_float32(boxes[image, query]), truths[image, number]
    total = total + sides * side_distance(boxes, true).sum() + overlap * (1 - giou(boxes, true)).sum()
    return total, int(targets.valid.sum())


def _zero(*outputs: Tensor) -> Tensor:
    """0, with a gradient of 0 of all of them; not finite where one of them is not."""
    return torch.stack([(at_least_float32(one) * 0).sum() for one in outputs]).sum()


def concat_padded(outputs: Sequence[BoxOutputs]) -> tuple[BoxOutputs, Tensor]:
    """What is found in the images of all segments as one, padded to the most predictions of one, and which are
    predictions: bool [images, predictions]. Images go one after the other, segment by segment."""
    if len(outputs) == 1:
        return outputs[0], torch.ones_like(outputs[0]["boxes"][..., 0], dtype=torch.bool)
    whole, real = {}, torch.empty(0)
    for name in outputs[0]:
        # Predictions of earlier layers are no first axis of theirs.
        first = name.startswith("earlier")
        rows = [row.transpose(0, 1) if first else row for output in outputs for row in output[name]]
        whole[name], real = pad_stack(rows)
        whole[name] = whole[name].transpose(1, 2) if first else whole[name]
    if "places" in whole:
        # Far from everything, with a reach that there is.
        away = torch.stack((*[torch.tensor(-1e6)] * 2, whole["places"][0, 0, 2].cpu()))
        whole["places"] = torch.where(real[..., None], whole["places"], away.to(real.device))
    return whole, real


def pad_stack(parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Tensors [m, ...] of several images as one [images, most, ...], and what is no padding: bool [images, most]."""
    most = max((len(one) for one in parts), default=0)
    whole = torch.stack([F.pad(one, [0, 0] * (one.dim() - 1) + [0, most - len(one)]) for one in parts])
    valid = torch.stack([torch.arange(most, device=one.device) < len(one) for one in parts])
    return whole, valid
