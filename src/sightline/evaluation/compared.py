"""Runs of several encodings and seeds, measured alike, beside each other: the rows of a comparison."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.errors import InputError
from sightline.evaluation.logits import logits_name, read_logits
from sightline.io.run_files import LOGITS, RESULTS
from sightline.published import paper
from sightline.results.comparison import ComparisonRow, DifferenceRow, MeanRow, RankRow
from sightline.results.rows import ResultRow, read_rows
from sightline.results.statistics import (
    Coefficient,
    McNemar,
    bootstrap_intervals,
    cohens_h,
    holm,
    mcnemar,
    rank_correlation,
    student_interval,
)

TOP1, CHANGE = "top1", "top1_change"
# What a page says of all images, beside attacks.
_METRICS = (TOP1, "top5", "ece", "nll")
_ATTACK = "fgsm"
_QUINTILE, _FIFTHS = "size_quintile", 5
# Sizes of test over training are the same as the paper's where they differ by no more: 4.625 is its 4.571.
_ALIKE = 1.06
_COEFFICIENTS: tuple[Coefficient, ...] = ("spearman", "kendall")


@dataclass(frozen=True)
class TrainedRun:
    """A run that was trained and measured: its folder, on how many images it was trained, and whether it began with
    another run of the comparison."""

    folder: Path
    train_images: int
    fine_tuned: bool = False


@dataclass(frozen=True, eq=False)
class _Measured:
    """A row of a run; of top-1 of all images also, of each image, whether it was named rightly, its index and its
    object's size (nan where it has none), and of how many classes."""

    run: TrainedRun
    row: ResultRow
    right: Any = None
    images: Any = None
    sizes: Any = None
    classes: int = 0

    @property
    def place(self) -> tuple[object, ...]:
        """What rows of one column share."""
        row = self.row
        return row.metric, row.data, row.split, row.resolution, self.run.fine_tuned, *sorted(row.slices.items())


# By encoding and seed.
_Column = dict[str, dict[int, _Measured]]


def compare_runs(runs: Sequence[TrainedRun]) -> list[ComparisonRow]:
    """Means over seeds of metrics of all images, and of top-1 by fifths of object size; tests of each two encodings at
    each size, from stored logits; and the order of the encodings beside LookHere's (tables 1 and 6), where at least
    three of them are there.

    Raises:
        InputError: a run has no rows or logits, two runs have the same encoding and seed, or images differ.
    """
    columns: dict[tuple[object, ...], _Column] = {}
    classes: dict[TrainedRun, int] = {}
    for run in runs:
        for one in _rows_of(run):
            seeds = columns.setdefault(one.place, {}).setdefault(one.row.encoding, {})
            if one.row.seed in seeds:
                raise InputError(f"{run.folder}: seed {one.row.seed} of {one.row.encoding} is there twice")
            seeds[one.row.seed] = one
            classes[run] = max(classes.get(run, 0), one.classes)
    rows: list[ComparisonRow] = []
    for column in columns.values():
        every = [one for seeds in column.values() for one in seeds.values()]
        some, first = every[0], every[0].row
        shared = {
            "metric": first.metric, "unit": first.unit, "better": first.better, "data": first.data,
            "split": first.split, "train_resolution": first.train_resolution, "resolution": first.resolution,
            "fine_tuned": some.run.fine_tuned, "count": first.count, "train_images": some.run.train_images,
            "slices": dict(first.slices), "classes": classes[some.run],
            "commit": ", ".join(sorted({one.row.commit for one in every})),
            "hardware": "; ".join(sorted({one.row.hardware for one in every})),
        }  # fmt: skip
        means = [_mean(name, dict(sorted(seeds.items())), shared) for name, seeds in column.items()]
        rows += means
        if (first.metric, first.split) == (TOP1, "test") and not first.slices:
            rows += _differences(means, column, shared)
            if not some.run.fine_tuned:
                rows += _orders(means, shared)
                for name, seeds in column.items():
                    rows += _changes(name, seeds, columns, shared)
    return rows


def _rows_of(run: TrainedRun) -> list[_Measured]:
    """What is compared of a run: one row of each place, the tuned one where there are two."""
    path = run.folder / RESULTS
    if not path.exists():
        raise InputError(f"{run.folder}: holds no {RESULTS}, which the runs of a comparison have")
    chosen: dict[tuple[object, ...], _Measured] = {}
    for row in sorted(read_rows(path), key=lambda row: row.tuned):
        whole = row.metric in _METRICS and not row.slices
        smallest = (row.metric, dict(row.slices)) == (TOP1, {_QUINTILE: 1})
        if (
            row.shrunk is None
            and not row.preparation
            and row.resolution is not None
            and (whole or smallest or row.metric.startswith(_ATTACK))
        ):
            one = _Measured(run, row)
            chosen[one.place] = one
    return [_with_images(one) for one in chosen.values()]


def _with_images(one: _Measured) -> _Measured:
    """The same; of top-1 of all images with what stored logits say."""
    row, folder = one.row, one.run.folder
    if row.metric != TOP1 or row.slices:
        return one
    path = folder / LOGITS / logits_name(vars(row))
    stored = read_logits(path)
    # The first of equals, as `top1` has it.
    right = stored.logits.argmax(1) == stored.labels
    if len(right) != row.count or not math.isclose(right.mean(), row.value, abs_tol=1e-9):
        raise InputError(f"{path}: is of other weights or images than the rows of {folder}")
    sizes = np.array([slices.get("size", np.nan) for slices in stored.slices], np.float32)
    return replace(one, right=right, images=stored.indices, sizes=sizes, classes=stored.logits.shape[1])


def _mean(
    encoding: str, seeds: Mapping[int, _Measured], shared: Mapping[str, Any], values: Sequence[float] | None = None
) -> MeanRow:
    """The mean over seeds, of their rows' values unless others are given."""
    rows = [one.row for one in seeds.values()]
    values = tuple([row.value for row in rows] if values is None else values)
    value, interval = student_interval(values)
    return MeanRow(
        **shared, encoding=encoding, value=value, interval=interval, values=values, seeds=tuple(seeds),
        knobs=tuple(row.knob for row in rows), tuned=all(row.tuned for row in rows),
    )  # fmt: skip


def _differences(means: Sequence[MeanRow], column: _Column, shared: Mapping[str, Any]) -> list[DifferenceRow]:
    """Each two encodings of a column, by the images of the seeds that both have."""
    pairs: list[tuple[MeanRow, MeanRow, list[int], list[McNemar]]] = []
    gaps: list[NDArray[np.float64]] = []
    images = next(iter(column[means[0].encoding].values())).images
    for one, other in itertools.combinations(means, 2):
        seeds = [seed for seed in one.seeds if seed in other.seeds]
        both = [(column[one.encoding][seed], column[other.encoding][seed]) for seed in seeds]
        if not all(np.array_equal(images, some.images) for some in itertools.chain(*both)):
            where = f"{one.encoding} and {other.encoding} at {one.resolution} px"
            raise InputError(f"{where}: were measured on other images (expected the same for all runs)")
        if seeds:
            gaps.append(np.mean([first.right.astype(float) - second.right for first, second in both], axis=0))
            pairs.append((one, other, seeds, [mcnemar(first.right, second.right) for first, second in both]))
    if not pairs:
        return []
    adjusted = iter(holm([test.p for *_, tests in pairs for test in tests]))
    made = []
    for (one, other, seeds, tests), limits in zip(pairs, bootstrap_intervals(np.stack(gaps, axis=1)), strict=True):
        value, interval = student_interval([(test.first - test.second) / len(images) for test in tests])
        first, second = sum(test.first for test in tests), sum(test.second for test in tests)
        apart = None
        if one.interval is not None and other.interval is not None:
            apart = one.interval[0] > other.interval[1] or other.interval[0] > one.interval[1]
        made.append(
            DifferenceRow(
                **shared, first=one.encoding, second=other.encoding, value=value, interval=interval,
                over_images=limits, alone=tuple((test.first, test.second) for test in tests), seeds=tuple(seeds),
                ps=tuple(test.p for test in tests), adjusted=tuple(itertools.islice(adjusted, len(tests))),
                odds_ratio=first / second if second else None, cohens_h=cohens_h(one.value, other.value), apart=apart,
            )
        )  # fmt: skip
    return made


def _orders(means: Sequence[MeanRow], shared: Mapping[str, Any], name: str = "lookhere") -> list[RankRow]:
    """The order of the encodings beside that of a paper's curve, at the same size over that of its training."""
    one = paper(name)
    trained = one.curve.trained if one.curve is not None else 1
    times = means[0].resolution / means[0].train_resolution
    printed = {}
    for encoding, points in one.lines().values():
        near = min(points, key=lambda side: abs(math.log(side / trained / times)))
        if encoding and max(near / trained / times, times * trained / near) <= _ALIKE:
            printed[encoding] = near, points[near]
    both = [row for row in means if row.encoding in printed]
    if len(both) < 3:
        return []
    shown, line = printed[both[0].encoding]
    numbers = tuple(printed[row.encoding][1].number for row in both)
    made = []
    for kind in _COEFFICIENTS:
        found = rank_correlation([row.values for row in both], numbers, kind)
        value, p = (one if math.isfinite(one) else None for one in (found.value, found.p))
        made.append(
            RankRow(
                **shared, seeds=both[0].seeds, paper=name, table=line.table, shown=shown, coefficient=kind,
                encodings=tuple(row.encoding for row in both), measured=tuple(row.value for row in both),
                printed=numbers, value=value, interval=found.interval, over_seeds=found.over_seeds, p=p,
            )
        )  # fmt: skip
    return made


def _changes(
    encoding: str, seeds: Mapping[int, _Measured], columns: Mapping[Any, _Column], shared: Mapping[str, Any]
) -> list[MeanRow]:
    """What top-1 gains from the size of training to another one, by fifths of object size (LookHere, figure 7): on the
    same images at both, sorted by their objects as `top1` does."""
    gains: dict[int, list[float]] = {}
    counts: list[int] = []
    for seed, after in sorted(seeds.items()):
        trained = replace(after, row=replace(after.row, resolution=after.row.train_resolution))
        before = columns.get(trained.place, {}).get(encoding, {}).get(seed)
        if before is None or before.row.resolution == after.row.resolution:
            continue
        both, here, there = np.intersect1d(after.images, before.images, return_indices=True)
        if len(both) >= _FIFTHS and np.isfinite(after.sizes[here]).all():
            gain = after.right[here].astype(float) - before.right[there]
            parts = np.array_split(np.argsort(after.sizes[here], kind="stable"), _FIFTHS)
            gains[seed], counts = [float(gain[part].mean()) for part in parts], [len(part) for part in parts]
    said, chosen = {**shared, "metric": CHANGE}, {seed: seeds[seed] for seed in gains}
    return [
        _mean(encoding, chosen, {**said, "slices": {_QUINTILE: part}, "count": count}, values)
        for part, (count, *values) in enumerate(zip(counts, *gains.values(), strict=True), start=1)
    ]
