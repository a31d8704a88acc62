"""How found boxes are judged: COCO's rules, and LVIS' where not everything is said, in numpy.

Equal to pycocotools 2.0 (tests/metrics/test_coco.py), which has neither size ranges of its user's own nor weights of
images, and both faster-coco-eval and hotcoco have its interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sightline.data.targets import Objects

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
# What equals a threshold but for rounding reaches it; 1 is never asked whole.
_REACHED = np.minimum(THRESHOLDS, 1 - 1e-10)
_SPACING = np.spacing(1)


@dataclass(frozen=True)
class Sizes:
    """Objects of some sizes, both limits among them.

    Attributes:
        low, high: of the area; relative: as a fraction of the image's, else in square pixels of the stored image.
    """

    low: float = 0.0
    high: float = 1e10
    relative: bool = False

    def has(self, areas: np.ndarray, image_size: tuple[int, int]) -> np.ndarray:
        """Which of these areas in square pixels are so large: bool [n]."""
        areas = areas / np.prod(image_size) if self.relative else areas
        return (areas >= self.low) & (areas <= self.high)


@dataclass(frozen=True, eq=False)
class ClassMatches:
    """All that was found of one class.

    Attributes:
        scores: float [n], falling; images: int [n], in which image each was found.
        right, counted: bool [sizes, thresholds, n]: meets an object of its own; is right or wrong at all.
        objects: int [sizes, images], how many there are to be found in each image.
    """

    scores: np.ndarray
    images: np.ndarray
    right: np.ndarray
    counted: np.ndarray
    objects: np.ndarray


@dataclass(frozen=True, eq=False)
class ImageDetections:
    """What was found in an image, and what is there: `boxes` [n, 4] (y0, x0, y1, x1) in pixels, `things` int [n] and
    `scores` [n] in any order; `objects` in the same pixels."""

    boxes: np.ndarray
    things: np.ndarray
    scores: np.ndarray
    objects: Objects


def match_detections(
    seen: Sequence[ImageDetections], classes: int, sizes: Sequence[Sizes], limit: int = 100
) -> list[ClassMatches]:
    """Match what was found with what is there (COCOeval.evaluateImg), for each class.

    From the surest on, each found box takes the object of its class that it overlaps most and nobody took, where the
    IoU reaches the threshold; one in a crowd, whose overlap is measured by the found box alone, or on an object that is
    not of these sizes, counts as neither right nor wrong, and so does one that meets nothing and is not of these sizes.
    Of classes of which an image does not say whether they are there nothing counts, and of those of which it does not
    say all only what is right (`Objects.negative_classes` and `unfinished`; Gupta et al. 2019, section 2.2).

    Args:
        limit: of an image and a class, so many of the surest are judged.
    """
    parts: list[list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]] = [[] for _ in range(classes)]
    counts = np.zeros((classes, len(sizes), len(seen)), np.int64)
    for image, one in enumerate(seen):
        objects = one.objects
        # What has no area, or is not on the picture any more, is not there.
        here = (objects.boxes[:, 2:] > objects.boxes[:, :2]).all(axis=1)
        present = objects.labels[here]
        asked = set(present.tolist()) | set(one.things.tolist())
        if objects.negative_classes is not None:
            asked &= set(present.tolist()) | set(objects.negative_classes)
        for thing in sorted(asked):
            mine = np.flatnonzero(one.things == thing)
            mine = mine[np.argsort(-one.scores[mine], kind="stable")][:limit]
            its = np.flatnonzero(here & (objects.labels == thing))
            crowd, area = objects.crowd[its], objects.areas[its]
            ignored = np.stack([crowd | ~size.has(area, objects.size) for size in sizes])
            counts[thing, :, image] = (~ignored).sum(axis=1)
            boxes = one.boxes[mine].astype(np.float64)
            right, counted = _matched(overlaps(boxes, objects.boxes[its], crowd), crowd, ignored)
            inside = np.stack([size.has(_areas(boxes), objects.size) for size in sizes])
            if thing in objects.non_exhaustive_classes:
                inside[:] = False
            parts[thing].append((image, one.scores[mine], right, counted & (right | inside[:, None])))
    return [_together(some, count) for some, count in zip(parts, counts, strict=True)]


def _together(parts: Sequence[tuple[int, np.ndarray, np.ndarray, np.ndarray]], objects: np.ndarray) -> ClassMatches:
    """The found boxes of one class in all images, the surest first, of equal scores those of the first image."""
    if not parts:
        none = np.zeros((len(objects), len(THRESHOLDS), 0), bool)
        return ClassMatches(np.zeros(0), np.zeros(0, np.int64), none, none, objects)
    scores = np.concatenate([one for _, one, _, _ in parts])
    images = np.concatenate([np.full(len(one), image) for image, one, _, _ in parts])
    right, counted = (np.concatenate([part[which] for part in parts], axis=2) for which in (2, 3))
    order = np.argsort(-scores, kind="stable")
    return ClassMatches(
        scores[order], images[order], right[..., order] & counted[..., order], counted[..., order], objects
    )


def overlaps(found: np.ndarray, there: np.ndarray, crowd: np.ndarray) -> np.ndarray:
    """IoU of boxes [n, 4] with each of [m, 4]; with a crowd, what of the found box lies in it: [n, m]."""
    low = np.maximum(found[:, None, :2], there[None, :, :2])
    high = np.minimum(found[:, None, 2:], there[None, :, 2:])
    both = (high - low).clip(0).prod(axis=2)
    mine = _areas(found)[:, None]
    either = np.where(crowd, mine, mine + _areas(there) - both)
    return np.divide(both, either, out=np.zeros_like(both), where=either > 0)


def _areas(boxes: np.ndarray) -> np.ndarray:
    return (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)


def _matched(ious: np.ndarray, crowd: np.ndarray, ignored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Whether each found box takes an object, and whether that counts: bool [sizes, thresholds, n] each.

    Args:
        ious: [n, m], the surest first; crowd: bool [m]; ignored: bool [sizes, m].
    """
    (found, objects), sizes = ious.shape, len(ignored)
    takes = np.zeros((sizes, len(THRESHOLDS), found), bool)
    counts = np.ones_like(takes)
    if not objects:
        return takes, counts
    taken = np.zeros((sizes, len(THRESHOLDS), objects), bool)
    for one in np.flatnonzero(ious.max(axis=1) >= _REACHED[0]):
        may = (ious[one] >= _REACHED[:, None]) & (~taken | crowd)
        # An object that counts goes before one that does not, however much less it overlaps.
        better = may & ~ignored[:, None]
        among = np.where(better.any(axis=2, keepdims=True), better, may)
        overlap = np.where(among, ious[one], -1)
        # Of equal overlaps the last.
        best = objects - 1 - overlap[..., ::-1].argmax(axis=2)
        takes[..., one] = has = among.any(axis=2)
        counts[..., one] = ~(has & np.take_along_axis(ignored, best, axis=1))
        size, threshold = np.nonzero(has)
        taken[size, threshold, best[size, threshold]] = True
    return takes, counts


def precisions(
    judged: ClassMatches, size: int = 0, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Average precision, and recall of all that was found, at each threshold (COCOeval.accumulate).

    Precision is the best at that recall or a higher one, averaged over 101 recalls.

    Args:
        size: which of the sizes; weights: int [images], how often each image counts; None for once.

    Returns:
        [thresholds] each; None where there is nothing to be found.
    """
    objects = judged.objects[size] if weights is None else judged.objects[size] * weights
    if not (count := int(objects.sum())):
        return None
    if not len(judged.scores):
        return np.zeros(len(THRESHOLDS)), np.zeros(len(THRESHOLDS))
    right, counted = judged.right[size], judged.counted[size]
    often = np.ones(len(judged.images), np.int64) if weights is None else weights[judged.images]
    # What counts nowhere changes no sum.
    there = counted.any(axis=0) & (often > 0)
    right, counted, often = right[:, there], counted[:, there], often[there]
    hits, said = ((kind * often).cumsum(axis=1) for kind in (right, counted))
    recall = hits / count
    precision = hits / (said + _SPACING)
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    average = np.zeros(len(THRESHOLDS))
    for number, (reached, best) in enumerate(zip(recall, envelope, strict=True)):
        places = np.searchsorted(reached, RECALLS, side="left")
        average[number] = best[places[places < len(best)]].sum() / len(RECALLS)
    return average, recall[:, -1] if recall.shape[1] else np.zeros(len(THRESHOLDS))


def mean_precision(
    every: Sequence[ClassMatches], size: int = 0, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """As `precisions`, a mean over the classes of which there is something to be found: [thresholds] each, nan where
    there is none."""
    there = [one for judged in every if (one := precisions(judged, size, weights)) is not None]
    if not there:
        nothing = np.full(len(THRESHOLDS), np.nan)
        return nothing, nothing
    average, recall = zip(*there, strict=True)
    return np.mean(average, axis=0), np.mean(recall, axis=0)
