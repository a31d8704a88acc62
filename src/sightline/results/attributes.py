"""Two models paired by attribute, from the rows of their linear probes. No torch here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sightline.errors import InputError
from sightline.io.run_files import RESULTS
from sightline.results.rows import MetricValue, ResultRow, Row, read_rows
from sightline.results.statistics import holm, mcnemar, signed_rank

TOP1, MEAN, WORST, GAP = "linear_probe_top1", "linear_probe_mean", "linear_probe_worst_group", "linear_probe_gap"
ATTRIBUTE, BY, VALUE = "attribute", "by", "group_value"


@dataclass(frozen=True)
class PairedValue(MetricValue):
    """With the answers themselves, as `ResultRow.right`."""

    right: str = ""


@dataclass(frozen=True, kw_only=True)
class AttributePair(Row):
    """One attribute of two models on the same `images`, that each was shown as `shown` says (`ResultRow.size_label`).

    `first` and `second` are accuracies, `alone` how many images the one, or the other, alone named rightly, `p` that of
    McNemar's exact test over images, `adjusted` for all attributes (Holm); `signed_rank` is the p of Wilcoxon's test of
    the accuracies of all attributes, the same for each.
    """

    attribute: str
    data: str
    split: str
    shown: tuple[str, str]
    first: float
    second: float
    alone: tuple[int, int]
    images: int
    p: float
    adjusted: float
    signed_rank: float


def compare_attributes(
    first: str | Path, second: str | Path, *, data: str | None = None, shown: Sequence[str] = ()
) -> list[AttributePair]:
    """Two models that `evaluate --measures linear_probe` measured on the same images, as `sightline report` pairs runs.

    Args:
        first, second: folders that hold `results.jsonl`: of runs, or what `--out` named.
        data: what they were measured on, where that is several.
        shown: of the first and of the second one size, as `("tokens:196", "224 px")`; by default all that both have.

    Raises:
        InputError: a folder has no such rows, images differ, or no size is common.
    """
    given = []
    for number, folder in enumerate(map(Path, (first, second))):
        rows = [row for row in read_rows(folder / RESULTS) if row.right and data in (None, row.data)]
        given.append([row for row in rows if not shown or row.size_label == shown[number]])
        if not given[-1]:
            raise InputError(f"{folder}: has no such rows (expected: evaluate --measures linear_probe --data csv:FILE)")
    if not (found := pair_attributes(*given)):
        raise InputError(f"{first}, {second}: were measured at no size in common (expected shown, a size of each)")
    return found


def pair_attributes(first: Iterable[ResultRow], second: Iterable[ResultRow]) -> list[AttributePair]:
    """Two models, by every measurement that rows of both are of; of one measurement each, these two.

    Raises:
        InputError: the images of a measurement are not the same.
    """
    one, other = (_by_measurement(rows) for rows in (first, second))
    if len(one) == len(other) == 1:
        other = dict(zip(one, other.values(), strict=True))
    found = []
    for what in (what for what in one if what in other):
        both, tests = [(row, other[what][name]) for name, row in one[what].items() if name in other[what]], []
        for rows in both:
            codes = [np.frombuffer(row.right.encode(), np.uint8) for row in rows]
            known = [some != ord("-") for some in codes]
            if not np.array_equal(*known) or rows[0].data != rows[1].data:
                said = " and ".join(f"{row.run} on {row.data}/{row.split} at {row.size_label}" for row in rows)
                raise InputError(f"{rows[0].slices[ATTRIBUTE]}: {said} are of other images (expected the same)")
            tests.append(mcnemar(*(some[known[0]] == ord("1") for some in codes)))
        over = signed_rank([row.value for row, _ in both], [row.value for _, row in both])
        adjusted = holm([test.p for test in tests])
        found += [
            AttributePair(
                attribute=str(row.slices[ATTRIBUTE]), data=row.data, split=row.split, images=row.count,
                shown=(row.size_label, second.size_label), first=row.value, second=second.value,
                alone=(test.first, test.second), p=test.p, adjusted=p, signed_rank=over,
            )
            for (row, second), test, p in zip(both, tests, adjusted, strict=True)
        ]  # fmt: skip
    return found


def _by_measurement(rows: Iterable[ResultRow]) -> dict[object, dict[object, ResultRow]]:
    found = dict[object, dict[object, ResultRow]]()
    for row in (row for row in rows if row.right):
        found.setdefault(row.measurement, {})[row.slices[ATTRIBUTE]] = row
    return found
