"""What several measurements of one split say of its classes, and what sets them apart, as rows. No torch here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np

from sightline.errors import InputError, require_known
from sightline.results.rows import Row

CLASSES, EFFECTS, CLASSES_PAGE = "classes.jsonl", "class_effects.jsonl", "classes.html"
Kind = Literal["extrapolation", "gap", "change", "spread_of_models", "spread_of_sizes", "confusion"]
Metric = Literal["top1", "predicted"]
METRICS: tuple[Metric, ...] = ("top1", "predicted")
MEAN = "mean"
"""What stands for all lines together."""


@dataclass(frozen=True, eq=False)
class ClassTable:
    """One measurement of the images that all have in common.

    Attributes:
        line: the run, and what tells its lines apart; shown: how images were shown ("64 px"); patches: of an image, in
            the mean; trained: how the images of its training were shown.
        classes: their names, each once.
        labels, answers: int64 [images], the true class and the one that was named, in one order for all tables.
        chances: float64 [classes, classes], the mean softmax of the images of each true class; 0 where there is none.
        measured: what the rows of its measurement say.
    """

    line: str
    shown: str
    patches: float
    trained: str
    classes: Sequence[str]
    labels: np.ndarray
    answers: np.ndarray
    chances: np.ndarray
    measured: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def right(self) -> np.ndarray:
        """bool [images]."""
        return self.labels == self.answers

    @cached_property
    def counts(self) -> np.ndarray:
        """Images of each true class: int64 [classes]."""
        return np.bincount(self.labels, minlength=len(self.classes))

    @cached_property
    def top1(self) -> np.ndarray:
        """Accuracy on the images of each class, nan where there is none: float64 [classes]."""
        right = np.bincount(self.labels[self.right], minlength=len(self.classes))
        return np.divide(right, self.counts, out=np.full(len(right), np.nan), where=self.counts > 0)

    @cached_property
    def predicted(self) -> np.ndarray:
        """The share of all images that were named as each class: float64 [classes]."""
        return np.bincount(self.answers, minlength=len(self.classes)) / max(len(self.labels), 1)


@dataclass(frozen=True)
class ClassEffect(Row):
    """A row of `class_effects.jsonl`, where `name` is called `class` and what is "" is left out.

    `kind` and what `value` is, always a difference of fractions:

    - `extrapolation`: top-1 of a line at `shown` less that at `since`, of all images (LookHere figure 28);
    - `gap`: top-1 of a line on a class at `shown`, less that of `against`, another line or the mean of all;
    - `change`: `metric` of a class at `shown` less that at `since`, of a line or the mean of all (figures 29 to 31);
    - `spread_of_models`: the highest less the lowest `metric` of any line on a class at `shown`;
    - `spread_of_sizes`: the same over all sizes, of the mean of all lines;
    - `confusion`: P(name) at `since` - P(name) at `shown` + P(other) at `shown` - P(other) at `since` of images of the
      class `name`, the mean of all lines; `other` is where that is highest (figures 32 to 35).

    `metric` is `top1`, `predicted` (the share of all images that were named so) or `probability` (softmax). `count` is
    how many images it is of; `stderr` that of the mean over them, paired by image; None where it is not known.
    """

    kind: Kind
    metric: str
    value: float
    count: int
    line: str = MEAN
    name: str = ""
    other: str = ""
    shown: str = ""
    since: str = ""
    against: str = ""
    stderr: float | None = None

    def record(self) -> dict[str, Any]:
        """The object of its line."""
        return {"class" if key == "name" else key: value for key, value in super().record().items() if value != ""}

    @classmethod
    def from_record(cls, **record: Any) -> Self:
        """The inverse of `record`."""
        return super().from_record(**{"name" if key == "class" else key: value for key, value in record.items()})


class ClassStudy:
    """Tables by line and size; all are of the same images.

    Attributes:
        lines: in the order of the tables; sizes: at which every line was measured, the smallest first.
        since, shown: the two sizes that are compared; one and the same where there is only one.
    """

    def __init__(self, tables: Sequence[ClassTable], between: tuple[str, str] | None = None) -> None:
        """Of the size of training and the largest, unless `between` names two; the smallest for that of training where
        lines were trained at several, or not measured there.

        Raises:
            InputError: there is no size at which all lines were measured, or no such one.
        """
        self.lines = list(dict.fromkeys(table.line for table in tables))
        self._tables = {(table.line, table.shown): table for table in tables}
        # A view may show other models other numbers of patches: its place is by the least.
        patches: dict[str, float] = {}
        for table in tables:
            patches[table.shown] = min(table.patches, patches.get(table.shown, math.inf))
        everywhere = [size for size in patches if all((line, size) in self._tables for line in self.lines)]
        self.sizes = sorted(everywhere, key=lambda size: (patches[size], size))
        if not self.sizes:
            raise InputError(f"classes: no size at which all of {', '.join(self.lines)} were measured")
        trained = {table.trained for table in tables}
        usual = trained.pop() if len(trained) == 1 else ""
        self.since, self.shown = usual if usual in self.sizes else self.sizes[0], self.sizes[-1]
        if between is not None:
            for size in between:
                require_known("--between: size", size, self.sizes)
            self.since, self.shown = between

    def at(self, size: str) -> list[ClassTable]:
        """Of each line, in their order."""
        return [self._tables[line, size] for line in self.lines]

    @property
    def one(self) -> ClassTable:
        """Any of them, for what all share."""
        return self._tables[self.lines[0], self.sizes[0]]

    @property
    def grows(self) -> bool:
        """Whether there are two sizes to compare."""
        return self.since != self.shown

    def frame(self, metric: str) -> Any:
        """A metric as a `pandas.DataFrame`: a line a class, a column for each of `sizes` and each line."""
        import pandas

        every = {(size, one.line): getattr(one, metric) for size in self.sizes for one in self.at(size)}
        return pandas.DataFrame(every)

    def curves(self, metric: Metric, name: str) -> dict[str, list[float]]:
        """A metric of one class at each of `sizes`, by line, as fractions."""
        number = list(self.one.classes).index(name)
        return {
            line: [float(getattr(self._tables[line, size], metric)[number]) for size in self.sizes]
            for line in self.lines
        }

    def crossing(self, name: str, other: str) -> dict[str, list[tuple[float, float]]]:
        """The mean probabilities of a true class and of another, of its images, at each of `sizes`, by line."""
        row, column = (list(self.one.classes).index(one) for one in (name, other))
        chances = {line: [self._tables[line, size].chances[row] for size in self.sizes] for line in self.lines}
        return {line: [(float(one[row]), float(one[column])) for one in some] for line, some in chances.items()}
