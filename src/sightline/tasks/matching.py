"""Which prediction answers for which object."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.attention.wide import at_least_float32
from sightline.models.boxes import areas, giou


def fcos_assign(places: Tensor, boxes: Tensor, valid: Tensor, radius: float) -> Tensor:
    """The object that each place answers for: centre sampling, and of several the smallest (FCOS, Tian et al. 2019,
    sections 3.1 and 3.2; the sampling is of its later version).

    A place takes an object in whose box it lies within `radius` reaches of the middle, and whose farthest side is as
    far away as its map is meant for (up to 8 reaches, from 4 on where there is a finer map, without end on the
    coarsest). An object that gets no place so takes the one that is nearest to its middle, of the map that is meant
    for its size, whatever else that could take; none where patches were dropped and no place is within its reach.

    Args:
        places: float [images, n, 3], the middle (y, x) and the reach of each, in patch units.
        boxes: float [images, m, 4] in patch units; valid: bool [images, m], which of them are objects.

    Returns:
        int64 [images, n], the number of the object, -1 for none.
    """
    if not boxes.shape[1] or not places.shape[1]:
        return torch.full(places.shape[:2], -1, dtype=torch.int64, device=places.device)
    middle, reach = places[:, :, None, :2], places[:, :, None, 2]
    box = boxes[:, None]
    far = torch.cat((middle - box[..., :2], box[..., 2:] - middle), dim=-1)
    off = (middle - (box[..., :2] + box[..., 2:]) / 2).abs().amax(dim=-1)
    longest = far.amax(dim=-1)
    finest, coarsest = reach == places[..., 2].amin(), reach == places[..., 2].amax()
    meant = ((longest > 4 * reach) | finest) & ((longest <= 8 * reach) | coarsest)
    takes = (far.amin(dim=-1) > 0) & (off < radius * reach) & meant & valid[:, None]
    # An object without a place: the nearest of the map for half its longer side.
    half = (box[..., 2:] - box[..., :2]).amax(dim=-1) / 2
    for_size = ((half > 4 * reach) | finest) & ((half <= 8 * reach) | coarsest)
    nearest = torch.where(for_size, off, torch.inf).argmin(dim=1)
    close = (torch.where(for_size, off, torch.inf) <= reach).any(dim=1)
    alone = valid & close & ~takes.any(dim=1)
    only = torch.zeros_like(takes).scatter_(1, nearest[:, None], alone[:, None])
    size = areas(boxes)[:, None]
    cost = torch.where(takes, size, torch.inf)
    # Before all others, since it has this place alone.
    cost = torch.where(only, size - areas(boxes).amax() - 1, cost)
    least, which = cost.min(dim=-1)
    return torch.where(least < torch.inf, which, -1)


def hungarian_match(
    logits: Tensor,
    boxes: Tensor,
    real: Tensor,
    labels: Tensor,
    targets: Tensor,
    valid: Tensor,
    *,
    classes: float,
    sides: float,
    overlap: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """The pairs of predictions and objects of each image that cost the least together (DETR, Carion et al. 2020,
    equation 1, with the focal cost of classes of Zhu et al. 2021).

    Args:
        logits: [images, n, classes]; boxes: [images, n, 4] in patch units; real: bool [images, n], the predictions
            that there are, before all others.
        labels: int64 [images, m]; targets: [images, m, 4]; valid: bool [images, m], the objects that there are, before
            all others.
        classes, sides, overlap: weights of the focal loss, of `side_distance` and of 1 - GIoU.

    Returns:
        int64 [pairs] of images, predictions and objects, of each image as many pairs as it has of the fewer.
    """
    with torch.no_grad():
        score = at_least_float32(logits).sigmoid().gather(2, labels[:, None].expand(-1, logits.shape[1], -1))
        found = 0.25 * (1 - score).square() * -(score + 1e-8).log()
        missed = 0.75 * score.square() * -(1 - score + 1e-8).log()
        each, box = at_least_float32(boxes)[:, :, None], at_least_float32(targets)[:, None]
        cost = classes * (found - missed) + sides * side_distance(each, box) - overlap * giou(each, box)
    counts = zip(cost.cpu(), real.sum(dim=1).tolist(), valid.sum(dim=1).tolist(), strict=True)
    pairs = [cheapest_pairs(one[:predictions, :objects]) for one, predictions, objects in counts]
    images = [torch.full((len(rows),), number) for number, (rows, _) in enumerate(pairs)]
    image, prediction, number = (torch.cat(part).to(logits.device) for part in (images, *zip(*pairs, strict=True)))
    return image, prediction, number


def cheapest_pairs(cost: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs of rows and columns that cost the least together: int64 [pairs] of each.

    A cost that is not finite is a large one: whatever a model gives, there is an answer, and its loss is not finite.
    """
    # Slow to load, and nothing else needs it.
    from scipy.optimize import linear_sum_assignment

    rows, cols = linear_sum_assignment(cost.nan_to_num(1e6, 1e6, -1e6).cpu().numpy())
    return torch.from_numpy(rows).to(cost.device), torch.from_numpy(cols).to(cost.device)


def side_distance(boxes: Tensor, targets: Tensor) -> Tensor:
    """How far the four sides are off in the mean, in sides of the target box, of at least one patch: [...] of boxes
    [..., 4] in patch units that broadcast.

    DETR measures in sides of the image: what is as large in patches would weigh less in a larger one.
    """
    side = areas(targets).sqrt().clamp_min(1)
    return (boxes - targets).abs().mean(dim=-1) / side
