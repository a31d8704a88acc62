"""Classification by words: a model of images and texts is measured as the classifier that names of classes make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar
from weakref import WeakKeyDictionary

from sightline.data.source import Source
from sightline.errors import InputError
from sightline.evaluation.counted import measure_split
from sightline.evaluation.measures.base import MeasureInput, ModelMeasure
from sightline.evaluation.parts import WorkFolder
from sightline.models import Model
from sightline.models.zero_shot import zero_shot_classifier
from sightline.results.rows import MetricValue
from sightline.tasks.base import Task, make_task
from sightline.tasks.words import class_words

_MADE: WeakKeyDictionary[Model, dict[tuple[tuple[str, ...], ...], Model]] = WeakKeyDictionary()


class ZeroShot(ModelMeasure):
    """`zero_shot_top1`, `zero_shot_top5` and every other metric of classification, of the classes of the data: names of
    classes in templates, as `task_options.names` and `task_options.templates` say (CLIP, section 3.1)."""

    name: ClassVar[str] = "zero_shot"
    tasks: ClassVar[tuple[str, ...]] = ("contrastive",)

    @classmethod
    def check(cls, model: Model, task: Task, source: Source, splits: Sequence[str]) -> None:
        super().check(model, task, source, splits)
        if "label" not in source.provides:
            raise InputError(f"measures: zero_shot needs classes, data {source.name} has none")
        class_words(source.classes, task.options.names, task.options.templates)

    @classmethod
    def passes(cls, source: Source, split: str, count: int) -> int:
        return count

    def rows(
        self, subject: MeasureInput, parts: WorkFolder, work: str, advance: Callable[[int], None] | None = None
    ) -> list[MetricValue]:
        options, source = subject.task.options, subject.source
        names, templates = class_words(source.classes, options.names, options.templates)
        # Texts are encoded once for all sizes.
        made = _MADE.setdefault(subject.model, {})
        if (names, templates) not in made:
            made[names, templates] = zero_shot_classifier(subject.model, names, templates)
        model = made[names, templates]
        if subject.model.knob is not None:
            model.set_knob(subject.model.knob.value)
        # In the order of the data, whatever its classes are called there.
        plain = model.config.replace(class_names=None)
        task = make_task("classification", plain).bind(source, source.name)
        found = measure_split(replace(subject, model=model, task=task), parts, work, advance=advance)
        rows = [] if found is None else [row for metric in found.metrics for row in metric.rows()]
        return [replace(row, metric=f"zero_shot_{row.metric}") for row in rows]
