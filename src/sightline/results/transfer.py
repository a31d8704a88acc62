"""What a model reaches on other data sets, as rows. No torch here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from sightline.results.rows import Row
from sightline.results.statistics import student_interval

VTAB = "vtab-1k"
WHOLE = "all tasks"


@dataclass(frozen=True, kw_only=True)
class TransferRow(Row):
    """A row of `transfer.jsonl`: a model fine-tuned to a data set, or a mean over tasks of VTAB-1k.

    `value` is the mean over `seeds` of `values`, `metric` on the `count` images of the test, with the 95 % `interval`
    of that mean (Student's t over seeds; None of one). `lr` was chosen by `held_out`: learning rate -> what it reached
    on images that were held out of train; nothing where there was one rate alone. `tasks` are the titles of the tasks
    that a mean is of, in the order of the paper; () of a data set's own row, whose `group` is that of VTAB-1k, or "".
    """

    model: str
    data: str
    title: str
    group: str = ""
    metric: str
    value: float
    interval: tuple[float, float] | None
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    count: int
    lr: float | None = None
    held_out: Mapping[str, float] = dataclasses.field(default_factory=dict)
    steps: int = 0
    batch_size: int = 0
    resolution: int
    train_images: int = 0
    encoding: str = ""
    tasks: tuple[str, ...] = ()
    commit: str = ""
    hardware: str = ""


def with_means(rows: Iterable[TransferRow], order: Mapping[str, str]) -> list[TransferRow]:
    """The rows of data sets, tasks of VTAB-1k in the order of the paper, and behind them the mean of each group and of
    all: seed by seed over tasks, then over seeds.

    Args:
        order: title of a task -> its group, in the order of the paper.
    """
    own = [row for row in rows if not row.tasks]
    tasks = sorted((row for row in own if row.group), key=lambda row: list(order).index(row.title))
    found = [row for row in own if not row.group] + tasks
    for name in dict.fromkeys((*order.values(), WHOLE)):
        some = [row for row in tasks if name in (row.group, WHOLE)]
        seeds = [seed for seed in some[0].seeds if all(seed in row.seeds for row in some)] if some else []
        if seeds:
            values = [fmean(row.values[row.seeds.index(seed)] for row in some) for seed in seeds]
            value, interval = student_interval(values)
            shared: dict[str, Any] = {"lr": None, "held_out": {}, "count": sum(row.count for row in some)}
            found.append(
                dataclasses.replace(
                    some[0], data=VTAB, title=name, group="" if name == WHOLE else name, value=value,
                    interval=interval, values=tuple(values), seeds=tuple(seeds),
                    tasks=tuple(row.title for row in some), **shared,
                )
            )  # fmt: skip
    return found
