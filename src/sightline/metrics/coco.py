"""How found boxes are matched with objects: COCO's rules by pycocotools, LVIS' where not every object is labelled, and
weights of images, which intervals need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from sightline.data.targets import Objects

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
_SPACING = np.spacing(1)


class Sizes(NamedTuple):
    """Objects of these areas, both limits among them: in square pixels of the stored image, or `relative` to it."""

    low: float = 0.0
    high: float = 1e10
    relative: bool = False


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
    """What was found in an image, and what is there: `boxes` [n, 4] (y0, x0, y1, x1) in pixels, `labels` int [n] and
    `scores` [n] in any order; `objects` in the same pixels."""

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    objects: Objects


def match_detections(
    images: Sequence[ImageDetections], classes: int, sizes: Sequence[Sizes], limit: int = 100
) -> list[ClassMatches]:
    """Match what was found with what is there by pycocotools (`COCOeval.evaluateImg`), for each class.

    Of classes of which an image does not say whether they are there nothing counts (`Objects.negative_classes`), and of
    those of which it does not say all (`non_exhaustive_classes`) only what is right (Gupta et al. 2019, section 2.2).

    Args:
        limit: of an image and a class, so many of the surest count.
    """
    from pycocotools.cocoeval import COCOeval

    coco: Any = COCOeval(iouType="bbox")
    coco.params.maxDets = [limit]
    parts: list[list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]] = [[] for _ in range(classes)]
    counts = np.zeros((classes, len(sizes), len(images)), np.int64)
    for number, one in enumerate(images):
        objects = one.objects
        areas = [math.prod(objects.size) if size.relative else 1 for size in sizes]
        area_ranges = [[size.low * area, size.high * area] for size, area in zip(sizes, areas, strict=True)]
        # What has no area, or is not on the picture any more, does not count.
        has_area = (objects.boxes[:, 2:] > objects.boxes[:, :2]).all(axis=1)
        present = set(objects.labels[has_area].tolist())
        labels = present | set(one.labels.tolist())
        if objects.negative_classes is not None:
            labels &= present | set(objects.negative_classes)
        for label in sorted(labels):
            true, found = np.flatnonzero(has_area & (objects.labels == label)), np.flatnonzero(one.labels == label)
            # One image and class at a time, always under the same key.
            coco._gts[0, 0], coco._dts[0, 0] = _boxes(objects.boxes[true]), _boxes(one.boxes[found])
            for box, crowd, area in zip(coco._gts[0, 0], objects.crowd[true], objects.areas[true], strict=True):
                box |= {"iscrowd": int(crowd), "ignore": int(crowd), "area": area}
            for box, score in zip(coco._dts[0, 0], one.scores[found], strict=True):
                box["score"] = score
            coco.ious[0, 0] = coco.computeIoU(0, 0)
            results = [coco.evaluateImg(0, 0, area_range, limit) for area_range in area_ranges]
            counts[label, :, number] = [len(true) - int(result["gtIgnore"].sum()) for result in results]
            right = np.stack([result["dtMatches"] > 0 for result in results])
            counted = np.stack([~result["dtIgnore"].astype(bool) for result in results])
            if label in objects.non_exhaustive_classes:
                counted &= right
            parts[label].append((number, np.array(results[0]["dtScores"]), right, counted))
    return [_class_matches(some, count) for some, count in zip(parts, counts, strict=True)]


def _boxes(boxes: np.ndarray) -> list[dict[str, Any]]:
    """Boxes (y0, x0, y1, x1) as pycocotools has them; numbers begin at 1, since 0 is no match."""
    low, sides = boxes[:, 1::-1].astype(float), (boxes[:, 2:] - boxes[:, :2])[:, ::-1].astype(float)
    found = np.concatenate([low, sides], axis=1)
    return [{"id": number, "bbox": box, "area": box[2] * box[3]} for number, box in enumerate(found.tolist(), start=1)]


def _class_matches(
    parts: Sequence[tuple[int, np.ndarray, np.ndarray, np.ndarray]], objects: np.ndarray
) -> ClassMatches:
    """The found boxes of one class in all images, the surest first, of equal scores those of the first image."""
    if not parts:
        none = np.zeros((len(objects), len(THRESHOLDS), 0), bool)
        return ClassMatches(np.zeros(0), np.zeros(0, np.int64), none, none, objects)
    scores = np.concatenate([one for _, one, _, _ in parts])
    images = np.concatenate([np.full(len(one), image) for image, one, _, _ in parts])
    right, counted = (np.concatenate([part[which] for part in parts], axis=2) for which in (2, 3))
    order = np.argsort(-scores, kind="stable")
    right, counted = right[..., order], counted[..., order]
    return ClassMatches(scores[order], images[order], right & counted, counted, objects)


def precisions(
    matches: ClassMatches, size: int = 0, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray] | None:
    """Average precision, and recall of all that was found, at each threshold (COCOeval.accumulate).

    Precision is the best at that recall or a higher one, averaged over 101 recalls.

    Args:
        size: which of the sizes; weights: int [images], how often each image counts; None for once.

    Returns:
        [thresholds] each; None where there is nothing to be found.
    """
    objects = matches.objects[size] if weights is None else matches.objects[size] * weights
    if not (count := int(objects.sum())):
        return None
    if not len(matches.scores):
        return np.zeros(len(THRESHOLDS)), np.zeros(len(THRESHOLDS))
    right, counted = matches.right[size], matches.counted[size]
    often = np.ones(len(matches.images), np.int64) if weights is None else weights[matches.images]
    # What counts nowhere changes no sum.
    is_counted = counted.any(axis=0) & (often > 0)
    right, counted, often = right[:, is_counted], counted[:, is_counted], often[is_counted]
    hits, answers = ((kind * often).cumsum(axis=1) for kind in (right, counted))
    recall = hits / count
    precision = hits / (answers + _SPACING)
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
    classes = [one for matches in every if (one := precisions(matches, size, weights)) is not None]
    if not classes:
        nothing = np.full(len(THRESHOLDS), np.nan)
        return nothing, nothing
    average, recall = zip(*classes, strict=True)
    return np.mean(average, axis=0), np.mean(recall, axis=0)
