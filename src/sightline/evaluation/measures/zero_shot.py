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
from sightline.tasks.words import names_and_templates

_MADE: WeakKeyDictionary[Model, tuple[object, Model]] = WeakKeyDictionary()


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
        names_and_templates(source, task.options.names, task.options.templates)

    @classmethod
    def passes(cls, source: Source, split: str, count: int) -> int:
        return count

    def rows(
        self, subject: MeasureInput, parts: WorkFolder, work: str, advance: Callable[[int], None] | None = None
    ) -> list[MetricValue]:
        options, source = subject.task.options, subject.source
        names, templates = names_and_templates(source, options.names, options.templates)
        # Texts are encoded once for all sizes.
        weights = tuple((one.data_ptr(), one._version) for one in subject.model.parameters())
        asked = names, templates, subject.model.config, weights
        before, model = _MADE.get(subject.model, (None, None))
        if model is None or before != asked:
            model = zero_shot_classifier(subject.model, names, templates)
            _MADE[subject.model] = asked, model
        if subject.model.knob is not None:
            model.set_knob(subject.model.knob.value)
        if (rule := subject.model.encoding.resize_rule) is not None:
            model.encoding.set_resize_rule(rule.value)
        # In the order of the data, whatever its classes are called there.
        plain = model.config.replace(class_names=None)
        task = make_task("classification", plain).bind(source, source.name)
        found = measure_split(replace(subject, model=model, task=task), parts, work, advance=advance)
        rows = [] if found is None else [row for metric in found.metrics for row in metric.rows()]
        return [replace(row, metric=f"zero_shot_{row.metric}") for row in rows]
