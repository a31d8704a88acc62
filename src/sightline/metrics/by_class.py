"""What a classifier's answers come to class by class: of a thousand classes too many rows for every measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sightline.results.classes import ClassTable
from sightline.results.rows import FRACTION, MetricValue


def distinct(names: Sequence[str]) -> list[str]:
    """Names of classes, each once: with its number where several have it, as ImageNet's two cranes."""
    often = Counter(names)
    return [name if often[name] == 1 else f"{name} ({number})" for number, name in enumerate(names)]


def class_measures(table: ClassTable) -> list[MetricValue]:
    """Of each class (slice `class`) that an image has, or was named as: `top1` on its own images, where there are any,
    and `predicted`, the share of all images that were named so."""
    rows = []
    for name, count, right, share in zip(table.classes, table.counts, table.top1, table.predicted, strict=True):
        part = {"class": name}
        if count:
            rows.append(MetricValue("top1", float(right), FRACTION, int(count), slices=part, better="higher"))
        if count or share:
            rows.append(MetricValue("predicted", float(share), FRACTION, len(table.labels), slices=part))
    return rows
