"""Average precision of boxes, as COCO and LVIS have it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar

import numpy as np

from sightline.data.batch import Batch
from sightline.data.targets import Crop, Objects
from sightline.metrics.base import Metric
from sightline.metrics.coco import ImageDetections, Sizes, match_detections, mean_precision
from sightline.results.rows import MetricValue

# Resampled splits behind an interval; an average precision takes long, and 95 % need no more.
_DRAWS = 200
# By the slice that says it; a limit is in both of its ranges, as COCO has it.
_SIZES = {
    "size": {"small": Sizes(0, 32**2), "medium": Sizes(32**2, 96**2), "large": Sizes(96**2)},
    "relative_size": {
        "small": Sizes(0, 1 / 64, relative=True),
        "medium": Sizes(1 / 64, 1 / 16, relative=True),
        "large": Sizes(1 / 16, relative=True),
    },
}
_UNIT = "AP"


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
        each = self.task.split_outputs(outputs, batch.layout)
        targets = batch.targets
        for output, objects, size in zip(each, targets["objects"], targets["seen"], strict=True):
            found = self.task.decode(output, Crop((0, 0, *objects.size), tuple(size)))
            self._records.append(ImageDetections(found.boxes, found.labels, found.scores, objects))

    def state(self) -> Any:
        # Objects without their masks, which boxes do not need.
        names = [field.name for field in fields(Objects) if field.name != "masks"]
        return [{**vars(one), "objects": {name: getattr(one.objects, name) for name in names}} for one in self._records]

    def restore(self, state: Any) -> None:
        self._records = [ImageDetections(**{**one, "objects": Objects(**one["objects"])}) for one in state]

    def rows(self) -> list[MetricValue]:
        if not self._records:
            return []
        limit, images = self.task.options.most, len(self._records)
        parts = [({by: name}, size) for by, named in _SIZES.items() for name, size in named.items()]
        sizes = [Sizes(), *(size for _, size in parts)]
        every = match_detections(self._records, self.task.config.num_classes, sizes, limit)
        average, recall = mean_precision(every)
        if np.isnan(average[0]):
            return []
        draws = np.random.default_rng(0).multinomial(images, np.full(images, 1 / images), size=_DRAWS)
        drawn = [mean_precision(every, weights=weights) for weights in draws]
        values = {
            "box_ap": (average.mean(), [one.mean() for one, _ in drawn]),
            "box_ap50": (average[0], [one[0] for one, _ in drawn]),
            "box_ap75": (average[5], [one[5] for one, _ in drawn]),
            f"box_ar{limit}": (recall.mean(), [one.mean() for _, one in drawn]),
        }
        rows = []
        for metric, (value, others) in values.items():
            low, high = np.nanpercentile(others, (2.5, 97.5))
            interval = (min(float(low), float(value)), max(float(high), float(value)))
            rows.append(MetricValue(metric, float(value), _UNIT, images, interval=interval, better="higher"))
        for number, (part, _) in enumerate(parts, start=1):
            rows += self._part(every, number, part)
        for name, matches in zip(self.task.names, every, strict=True):
            rows += self._part([matches], 0, {"class": name})
        return rows

    def _part(self, every: Any, size: int, part: dict[str, Any]) -> list[MetricValue]:
        """`box_ap` of some sizes or classes; nothing where no object is of them."""
        count = int(sum(one.objects[size].sum() for one in every))
        if not count:
            return []
        value = float(mean_precision(every, size)[0].mean())
        return [MetricValue("box_ap", value, _UNIT, count, slices=part, better="higher", counted="objects")]
