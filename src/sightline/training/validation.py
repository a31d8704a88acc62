"""A curve of accuracy while a run trains, on images that it does not train on, and the best model by that curve."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sightline.data.preprocessing import preprocessing
from sightline.data.sizes import View
from sightline.data.source import Source
from sightline.errors import UnreadableDataError, require_known
from sightline.evaluation.measure import spread_indices
from sightline.evaluation.predict import predict_split, training_views
from sightline.io.config import is_finite_number
from sightline.metrics.base import first_metric, metrics_of
from sightline.models import Model
from sightline.tasks.base import Task, task_class
from sightline.training.config import TrainConfig
from sightline.training.log import format_validation, parse_validation, unheard
from sightline.training.plan import StepSpec, completed_parts

LOSS = "loss"
# Of the tokens trained on so far, the most that go into validation: a forward pass is a third of a step, so that this
# bounds its time by a fifteenth in short runs. The default recipe takes a fourth of it.
_MOST_SHARE = 0.2


def suggested_share(images: int | None) -> float:
    """The share of so many training images that a message suggests to hold out: at least 100 of many."""
    return 0.01 if images is None or images >= 10_000 else 0.1 if images >= 20 else 0.5


class Validation:
    """What a run is validated on: at its checkpoints, once in each part of it, if it is not too short for that.

    Attributes:
        view: how the images are shown, as in training: a square side in pixels, or at their own aspect.
    """

    def __init__(
        self, config: TrainConfig, model: Model, task: Task, source: Source, warn: Callable[[str], None] = unheard
    ) -> None:
        """For a resolved configuration; without images where it asks for none, or the data has none to spare."""
        assert config.resolution is not None
        self._config, self._task, self._warn = config, task, warn
        self._indices: list[int] = []
        self.view: int | View = config.resolution
        if config.validation is None:
            return
        if source.validation_split is None:
            share = suggested_share(source.length("train"))
            warn(f"no split minival or val: no validation while training (--data {config.data},minival={share:g})")
            return
        self._split = split = source.validation_split
        length, most = source.length(split), config.validation.images
        self._indices = list(spread_indices(source, split, most if length is None else min(most, length)))
        patch = model.config.patch_size
        own = training_views(config.packing, config.resolution, patch, source, split)
        self.view = (*own, config.resolution)[0]
        whole = isinstance(self.view, View)
        cells = self.view.patches if isinstance(self.view, View) else model.config.grid_of(self.view).cells
        self._tokens = len(self._indices) * (cells + model.config.num_prefix_tokens)
        self._source = preprocessing(model).prepared(source, whole=whole)

    def is_due(self, step: StepSpec, done: int, last: float) -> bool:
        """Whether a step after which a checkpoint is saved is one to validate after.

        Args:
            done: how many times that was; last: how much of the run lay behind then.
        """
        if not self._indices or self._config.validation is None:
            return False
        times = self._config.validation.times
        begins_a_part = completed_parts(times, step.ends) > completed_parts(times, last)
        return step.last or (begins_a_part and (done + 1) * self._tokens <= _MOST_SHARE * step.after.tokens)

    def measure(self, model: Model, step: int, images: int) -> str | None:
        """The line of the curve after a step; None where an image cannot be read, which is warned of once.

        The model, its mode and the random generators are as they were.
        """
        config, task, metric = self._config, self._task, metrics_of(self._task)[0]
        total, units = 0.0, 0
        shown = self._source, self._split, self._indices, self.view
        try:
            for one in predict_split(model, task, *shown, precision=config.precision):
                lost, count = task.loss(one.outputs, one.batch.targets, one.batch.layout)
                total, units = total + float(lost), units + int(count)
                metric.update(one.outputs, one.batch)
        except UnreadableDataError as error:
            self._indices = []
            self._warn(f"no validation while training: {error}")
            return None
        if not (rows := metric.rows()):
            return None
        place = {"step": step, "images": images, "split": self._split}
        return json.dumps({**place, **format_validation(rows[0]), LOSS: total / max(units, 1)})


def check_best(config: TrainConfig) -> None:
    """Refuse a metric to choose the best model by that the curve of a task does not hold; names the nearest."""
    asked = config.validation
    if asked is not None and asked.best is not None:
        require_known("validation.best", asked.best, (first_metric(task_class(config.task)), LOSS))


def best_line(lines: Sequence[str], by: str | None = None) -> dict[str, Any] | None:
    """The best line, the first of those that are alike; None of none.

    Args:
        by: a metric that the lines hold; None takes the task's primary one. A line without it counts as the worst.
    """

    def worth(line: Mapping[str, Any]) -> float:
        if by == LOSS:
            return -line[LOSS] if is_finite_number(line.get(LOSS)) else -math.inf
        one = parse_validation(line)
        if by not in (None, one.metric):
            return -math.inf
        return -one.value if one.better == "lower" else one.value

    return max(map(json.loads, lines), key=worth, default=None)
