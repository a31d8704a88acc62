"""What a comparison of many runs found, as rows: means over seeds, differences of two encodings, orders beside a
paper's. No torch here."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, TypeVar

from sightline.results.rows import Row, Slices

Interval = tuple[float, float]
R = TypeVar("R", bound="ComparisonRow")


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(Row):
    """A row of `comparison.jsonl`, which says its `kind`.

    `metric`, `unit`, `better`, `slices` are as in `MetricValue`. `count` test images of `split` were shown at
    `resolution` pixels to runs that were trained on `train_images` images at `train_resolution`; of `fine_tuned` ones
    that is the second training. `seeds` are those of the runs. `classes` says how many there are to choose from.
    """

    kind: ClassVar[str]
    metric: str
    unit: str
    better: str
    data: str
    split: str
    train_resolution: int
    resolution: int
    fine_tuned: bool
    count: int
    seeds: tuple[int, ...]
    train_images: int
    classes: int
    commit: str
    hardware: str
    slices: Slices = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The object of its line."""
        return {"kind": self.kind, **super().record()}

    @classmethod
    def from_record(cls, **record: Any) -> Self:
        """The inverse of `record`."""
        return super().from_record(**{key: value for key, value in record.items() if key != "kind"})

    @property
    def place(self) -> tuple[object, ...]:
        """What rows of one column share: of which metric, images and training."""
        part = json.dumps(dict(self.slices), sort_keys=True)
        return self.metric, self.data, self.split, self.resolution, self.fine_tuned, part


@dataclass(frozen=True, kw_only=True)
class MeanRow(ComparisonRow):
    """The trainings of one encoding: `values` of the seeds, their mean `value`, and the 95 % `interval` of that
    (Student's t over seeds; None of one). `knobs` are the values of the encoding's own parameter, `tuned` says whether
    they were searched on `minival`; None where it has none."""

    kind: ClassVar[str] = "mean"
    encoding: str
    value: float
    interval: Interval | None
    values: tuple[float, ...]
    knobs: tuple[float | None, ...]
    tuned: bool

    @property
    def best(self) -> float:
        """The best of the seeds."""
        return min(self.values) if self.better == "lower" else max(self.values)


@dataclass(frozen=True, kw_only=True)
class DifferenceRow(ComparisonRow):
    """Two encodings on the same images, seed by seed: how much more often `first` is right than `second`.

    `value` is the mean over seeds; `interval` that of other trainings (Student's t over the differences of seeds; None
    of one), `over_images` that of other images for these trainings (paired bootstrap of the mean over seeds). `alone`
    says of each seed how many images the first and the second alone named rightly, `ps` McNemar's exact p of that,
    `adjusted` the same for all pairs and seeds of this place together (Holm). `odds_ratio` is that of all seeds' images
    together, None where it has no finite value; `cohens_h` of the two means. `apart` says whether the intervals over
    seeds of the two means leave each other out; None of one seed.
    """

    kind: ClassVar[str] = "difference"
    first: str
    second: str
    value: float
    interval: Interval | None
    over_images: Interval
    alone: tuple[tuple[int, int], ...]
    ps: tuple[float, ...]
    adjusted: tuple[float, ...]
    odds_ratio: float | None
    cohens_h: float
    apart: bool | None


@dataclass(frozen=True, kw_only=True)
class RankRow(ComparisonRow):
    """How alike the order of encodings is to the one that a paper printed.

    `encodings` have the means `measured` here and the numbers `printed` in its `table`, at `shown` pixels. `value` is
    the `coefficient` (`spearman` or `kendall`, tau-b), None where nothing varies; `interval` its 95 % over encodings
    drawn again, `over_seeds` over the seeds of each drawn again (None of one seed), `p` of a permutation test,
    two-sided.
    """

    kind: ClassVar[str] = "rank"
    paper: str
    table: str
    shown: int
    coefficient: str
    encodings: tuple[str, ...]
    measured: tuple[float, ...]
    printed: tuple[float, ...]
    value: float | None
    interval: Interval | None
    over_seeds: Interval | None
    p: float | None


COMPARISON_ROWS = (MeanRow, DifferenceRow, RankRow)
"""The kinds of rows in a `comparison.jsonl`, for `read_rows`."""


def of_kind(rows: Iterable[ComparisonRow], kind: type[R]) -> list[R]:
    """Those that are of a kind, as `MeanRow`."""
    return [row for row in rows if isinstance(row, kind)]
