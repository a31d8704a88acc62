"""Average precision of boxes, as COCO and LVIS have it; matches are pycocotools', intervals need weights of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sightline.data.batch import Batch
from sightline.data.targets import Crop, Objects
from sightline.metrics.base import Metric, bootstrap_weights
from sightline.results.rows import MetricValue

_RECALLS = np.linspace(0, 1, 101)
# Resampled splits behind an interval; an average precision takes long, and 95 % need no more.
_DRAWS = 200


class Sizes(NamedTuple):
    """Objects of these areas, both limits among them: in square pixels of the stored image, or `relative` to it."""

    low: float = 0.0
    high: float = 1e10
    relative: bool = False


# By the slices that say it; a limit is in both of its ranges, as COCO has it.
_PARTS = [
    ({"size": "small"}, Sizes(0, 32**2)),
    ({"size": "medium"}, Sizes(32**2, 96**2)),
    ({"size": "large"}, Sizes(96**2)),
    ({"relative_size": "small"}, Sizes(0, 1 / 64, relative=True)),
    ({"relative_size": "medium"}, Sizes(1 / 64, 1 / 16, relative=True)),
    ({"relative_size": "large"}, Sizes(1 / 16, relative=True)),
]


@dataclass(frozen=True, eq=False)
class ImageDetections:
    """What was found in an image, and what is there: `boxes` [n, 4] (y0, x0, y1, x1) in pixels, `labels` int [n] and
    `scores` [n] in any order; `objects` in the same pixels."""

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    objects: Objects


class ClassMatches(NamedTuple):
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


class BoxAp(Metric):
    """`box_ap` (the mean over IoU thresholds .5, .55, ... .95), `box_ap50`, `box_ap75`, and `box_ar100`, the recall of
    at most 100 boxes an image (of as many as the task's `most`).

    A mean over the classes of which the split has an object; one without is left out. `box_ap` is also given of each
    class, by COCO's sizes (`size`: small up to 32 x 32 pixels of the stored image, large from 96 x 96 on), and, since
    pixels say nothing of small images, by the root of the area as a fraction of the image's (`relative_size`: small up
    to 1/8, large from 1/4 on). Intervals are those of resampled images (bootstrap, percentiles, 200 draws by a seed of
    their own). LVIS' AP of rare, common and frequent classes is not given, since no source says how frequent they are.
    """

    name: ClassVar[str] = "box_ap"
    tasks: ClassVar[tuple[str, ...]] = ("detection",)

    def update(self, outputs: Any, batch: Batch) -> None:
        targets = batch.targets
        each = zip(self.task.split_outputs(outputs, batch.layout), targets["objects"], targets["seen"], strict=True)
        for output, objects, size in each:
            found = self.task.decode(output, Crop((0, 0, *objects.size), tuple(size)))
            self._records.append(ImageDetections(found.boxes, found.labels, found.scores, objects))

    def state(self) -> Any:
        names = [field.name for field in fields(Objects)]
        return [{**vars(one), "objects": {name: getattr(one.objects, name) for name in names}} for one in self._records]

    def restore(self, state: Any) -> None:
        self._records = [ImageDetections(**{**one, "objects": Objects(**one["objects"])}) for one in state]

    def rows(self) -> list[MetricValue]:
        limit, images = self.task.options.most, len(self._records)
        sizes = [Sizes(), *(size for _, size in _PARTS)]
        every = match_detections(self._records, self.task.config.num_classes, sizes, limit)
        if not any(matches.objects[0].any() for matches in every):
            return []
        # The first draw is the split as it is.
        each = [mean_precision(every, weights=weights) for weights in bootstrap_weights(images, _DRAWS)]
        numbers = np.array([(average.mean(), average[0], average[5], recall.mean()) for average, recall in each])
        rows = []
        for metric, values in zip(("box_ap", "box_ap50", "box_ap75", f"box_ar{limit}"), numbers.T, strict=True):
            value, (low, high) = float(values[0]), np.nanpercentile(values[1:], (2.5, 97.5))
            interval = min(float(low), value), max(float(high), value)
            rows.append(MetricValue(metric, value, "AP", images, interval=interval, better="higher"))
        parts = [(every, number, part) for number, (part, _) in enumerate(_PARTS, start=1)]
        parts += [([matches], 0, {"class": name}) for name, matches in zip(self.task.names, every, strict=True)]
        for some, number, part in parts:
            if count := int(sum(matches.objects[number].sum() for matches in some)):
                value = float(mean_precision(some, number)[0].mean())
                rows.append(MetricValue("box_ap", value, "AP", count, slices=part, better="higher", counted="objects"))
        return rows


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
    none = np.zeros((len(sizes), len(coco.params.iouThrs), 0), bool)
    parts: list[list[tuple[np.ndarray, ...]]] = [
        [(np.zeros(0), np.zeros(0, np.int64), none, none)] for _ in range(classes)
    ]
    counts = np.zeros((classes, len(sizes), len(images)), np.int64)
    for number, one in enumerate(images):
        objects = one.objects
        areas = [math.prod(objects.size) if size.relative else 1 for size in sizes]
        # What has no area, or is not on the picture any more, does not count.
        has_area = (objects.boxes[:, 2:] > objects.boxes[:, :2]).all(axis=1)
        present = set(objects.labels[has_area].tolist())
        labels = present | set(one.labels.tolist())
        if objects.negative_classes is not None:
            labels &= present | set(objects.negative_classes)
        for label in sorted(labels):
            true, found = has_area & (objects.labels == label), one.labels == label
            crowd = objects.crowd[true].astype(int)
            # One image and class at a time, always under the same key.
            coco._gts[0, 0] = _boxes(objects.boxes[true], iscrowd=crowd, ignore=crowd, area=objects.areas[true])
            sides = (one.boxes[found][:, 2:] - one.boxes[found][:, :2]).astype(float)
            coco._dts[0, 0] = _boxes(one.boxes[found], score=one.scores[found], area=sides.prod(axis=1))
            coco.ious[0, 0] = coco.computeIoU(0, 0)
            results = [
                coco.evaluateImg(0, 0, [size.low * area, size.high * area], limit)
                for size, area in zip(sizes, areas, strict=True)
            ]
            counts[label, :, number] = [int(true.sum()) - int(result["gtIgnore"].sum()) for result in results]
            right = np.stack([result["dtMatches"] > 0 for result in results])
            counted = np.stack([~result["dtIgnore"].astype(bool) for result in results])
            if label in objects.non_exhaustive_classes:
                counted &= right
            scores = np.array(results[0]["dtScores"])
            parts[label].append((scores, np.full(len(scores), number), right & counted, counted))
    matches = []
    for some, count in zip(parts, counts, strict=True):
        scores, found, right, counted = (np.concatenate(column, axis=-1) for column in zip(*some, strict=True))
        # The surest first, of equal scores those of the first image.
        order = np.argsort(-scores, kind="stable")
        matches.append(ClassMatches(scores[order], found[order], right[..., order], counted[..., order], count))
    return matches


def _boxes(boxes: np.ndarray, **columns: np.ndarray) -> list[dict[str, Any]]:
    """Boxes (y0, x0, y1, x1) as pycocotools has them; numbers begin at 1, since 0 is no match."""
    sides = (boxes[:, 2:] - boxes[:, :2])[:, ::-1]
    every = zip(np.concatenate([boxes[:, 1::-1], sides], axis=1).astype(float).tolist(), *columns.values(), strict=True)
    return [dict(zip(("bbox", *columns, "id"), (*one, number), strict=True)) for number, one in enumerate(every, 1)]


def mean_precision(
    every: Sequence[ClassMatches], size: int = 0, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Average precision, and recall of all that was found, at each threshold: a mean over the classes of which there is
    something to be found.

    Args:
        size: which of the sizes; weights: int [images], how often each image counts; None for once.

    Returns:
        [thresholds] each, nan where there is nothing to be found.
    """
    classes = [one for matches in every if (one := _precision(matches, size, weights)) is not None]
    if not classes:
        nothing = np.full(every[0].right.shape[1], np.nan)
        return nothing, nothing
    average, recall = zip(*classes, strict=True)
    return np.mean(average, axis=0), np.mean(recall, axis=0)


def _precision(matches: ClassMatches, size: int, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray] | None:
    """The best precision at each recall or a higher one, averaged over 101 recalls (`COCOeval.accumulate`, which cannot
    count an image twice)."""
    weights = np.ones(matches.objects.shape[1], np.int64) if weights is None else weights
    if not (count := int((matches.objects[size] * weights).sum())):
        return None
    right, counted, often = matches.right[size], matches.counted[size], weights[matches.images]
    # What counts nowhere changes no sum.
    is_counted = counted.any(axis=0) & (often > 0)
    right, counted, often = right[:, is_counted], counted[:, is_counted], often[is_counted]
    hits, answers = ((kind * often).cumsum(axis=1) for kind in (right, counted))
    recall, precision = hits / count, hits / (answers + np.spacing(1))
    envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    average = np.zeros(len(right))
    for number, (reached, best) in enumerate(zip(recall, envelope, strict=True)):
        places = np.searchsorted(reached, _RECALLS, side="left")
        average[number] = best[places[places < len(best)]].sum() / len(_RECALLS)
    return average, recall[:, -1] if len(often) else average
