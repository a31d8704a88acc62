"""Runs of several encodings and seeds, measured alike, beside each other: the rows of a comparison."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.errors import InputError
from sightline.evaluation.logits import read_logits
from sightline.evaluation.measure import logits_name_of
from sightline.evaluation.paired import (
    Coefficient,
    McNemar,
    bootstrap_intervals,
    cohens_h,
    holm,
    mcnemar,
    mean_over_seeds,
    rank_correlation,
)
from sightline.io.run_files import LOGITS, RESULTS
from sightline.published import paper
from sightline.results.comparison import ComparisonRow, DifferenceRow, MeanRow, RankRow
from sightline.results.rows import ResultRow, read_rows

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
class _Found:
    """A row of a run; of top-1 of all images also, of each image, whether it was named rightly, its index and its
    object's size (nan where it has none), and of how many classes."""

    run: TrainedRun
    row: ResultRow
    right: NDArray[np.bool_] | None = None
    images: NDArray[np.int64] | None = None
    sizes: NDArray[np.float32] | None = None
    classes: int = 0

    @property
    def place(self) -> tuple[object, ...]:
        row, part = self.row, json.dumps(dict(self.row.slices), sort_keys=True)
        return row.metric, row.data, row.split, row.resolution, self.run.fine_tuned, part


# By encoding and seed.
_Place = dict[str, dict[int, _Found]]


def compare_runs(runs: Sequence[TrainedRun]) -> list[ComparisonRow]:
    """Means over seeds of metrics of all images, and of top-1 by fifths of object size; tests of each two encodings at
    each size, from stored logits; and the order of the encodings beside LookHere's (tables 1 and 6), where at least
    three of them are there.

    Raises:
        InputError: a run has no rows or logits, two runs have the same encoding and seed, or images differ.
    """
    places: dict[tuple[object, ...], _Place] = {}
    classes: dict[TrainedRun, int] = {}
    for run in runs:
        for found in _kept(run):
            seeds = places.setdefault(found.place, {}).setdefault(found.row.encoding, {})
            if found.row.seed in seeds:
                raise InputError(f"{run.folder}: seed {found.row.seed} of {found.row.encoding} is there twice")
            seeds[found.row.seed] = found
            classes[run] = max(classes.get(run, 0), found.classes)
    rows: list[ComparisonRow] = []
    for (metric, *_), encodings in places.items():
        some = next(iter(next(iter(encodings.values())).values()))
        shared = _shared(some, encodings, classes[some.run])
        mine = [_mean(name, dict(sorted(seeds.items())), shared) for name, seeds in encodings.items()]
        rows += mine
        if (metric, some.row.split) == (TOP1, "test") and not some.row.slices:
            rows += _differences(mine, encodings, shared)
            if not some.run.fine_tuned:
                rows += _orders(mine, shared)
                for name, seeds in encodings.items():
                    rows += _changes(name, seeds, places, shared)
    return rows


def _kept(run: TrainedRun) -> list[_Found]:
    """What is compared of a run: one row of each place, the tuned one where there are two."""
    path = run.folder / RESULTS
    if not path.exists():
        raise InputError(f"{run.folder}: holds no {RESULTS}, which the runs of a comparison have")
    rows = [row for row in read_rows(path) if row.shrunk is None and row.resolution is not None]
    rows = [
        row for row in rows
        if row.metric.startswith(_ATTACK) or (row.metric in _METRICS and not row.slices)
        or (row.metric, dict(row.slices)) == (TOP1, {_QUINTILE: 1})
    ]  # fmt: skip
    chosen = {_Found(run, row).place: row for row in sorted(rows, key=lambda row: row.tuned)}
    return [_with_images(run, row) for row in chosen.values()]


def _with_images(run: TrainedRun, row: ResultRow) -> _Found:
    """What is known of a row, from stored logits too."""
    if row.metric != TOP1 or row.slices:
        return _Found(run, row)
    path = run.folder / LOGITS / logits_name_of(row)
    stored = read_logits(path)
    # The first of equals, as `top1` has it.
    right = stored.logits.argmax(1) == stored.labels
    if len(right) != row.count or not math.isclose(right.mean(), row.value, abs_tol=1e-9):
        raise InputError(f"{path}: is of other weights or images than the rows of {run.folder}")
    sizes = np.array([slices.get("size", np.nan) for slices in stored.slices], np.float32)
    return _Found(run, row, right, stored.indices, sizes, stored.logits.shape[1])


def _shared(some: _Found, encodings: _Place, classes: int) -> dict[str, Any]:
    """What all rows of a place say."""
    row, run = some.row, some.run
    every = [one.row for seeds in encodings.values() for one in seeds.values()]
    return {
        "metric": row.metric, "unit": row.unit, "better": row.better, "data": row.data, "split": row.split,
        "train_resolution": row.train_resolution, "resolution": row.resolution, "fine_tuned": run.fine_tuned,
        "count": row.count, "train_images": run.train_images, "slices": dict(row.slices), "classes": classes,
        "commit": ", ".join(sorted({one.commit for one in every})),
        "hardware": "; ".join(sorted({one.hardware for one in every})),
    }  # fmt: skip


def _mean(
    encoding: str, seeds: Mapping[int, _Found], shared: Mapping[str, Any], values: Sequence[float] | None = None
) -> MeanRow:
    """The mean over seeds, of their rows' values unless others are given."""
    rows = [found.row for found in seeds.values()]
    values = tuple(row.value for row in rows) if values is None else tuple(values)
    value, interval = mean_over_seeds(values)
    return MeanRow(
        **shared, encoding=encoding, value=value, interval=interval, values=values, seeds=tuple(seeds),
        knobs=tuple(row.knob for row in rows), tuned=all(row.tuned for row in rows),
    )  # fmt: skip


def _differences(means: Sequence[MeanRow], encodings: _Place, shared: Mapping[str, Any]) -> list[DifferenceRow]:
    """Each two encodings of a place, by the images of the seeds that both have."""
    pairs: list[tuple[MeanRow, MeanRow, list[int]]] = []
    gaps: list[NDArray[np.float64]] = []
    tests: list[list[McNemar]] = []
    images: Any = next(iter(encodings[means[0].encoding].values())).images
    for one, other in itertools.combinations(means, 2):
        seeds = [seed for seed in one.seeds if seed in other.seeds]
        if not seeds:
            continue
        found: list[list[Any]] = [[encodings[row.encoding][seed] for row in (one, other)] for seed in seeds]
        if not all(np.array_equal(images, some.images) for some in itertools.chain(*found)):
            where = f"{one.encoding} and {other.encoding} at {one.resolution} px"
            raise InputError(f"{where}: were measured on other images (expected the same for all runs)")
        rights = [[some.right for some in both] for both in found]
        gaps.append(np.mean([first.astype(float) - second for first, second in rights], axis=0))
        tests.append([mcnemar(first, second) for first, second in rights])
        pairs.append((one, other, seeds))
    if not pairs:
        return []
    over_images = bootstrap_intervals(np.stack(gaps, axis=1))
    adjusted = iter(holm([test.p for some in tests for test in some]))
    made = []
    for (one, other, seeds), gap, some, limits in zip(pairs, gaps, tests, over_images, strict=True):
        value, interval = mean_over_seeds([(test.first - test.second) / len(gap) for test in some])
        first, second = sum(test.first for test in some), sum(test.second for test in some)
        apart = None
        if one.interval is not None and other.interval is not None:
            apart = one.interval[0] > other.interval[1] or other.interval[0] > one.interval[1]
        made.append(
            DifferenceRow(
                **shared, first=one.encoding, second=other.encoding, value=value, interval=interval,
                over_images=limits, alone=tuple((test.first, test.second) for test in some), seeds=tuple(seeds),
                ps=tuple(test.p for test in some), adjusted=tuple(itertools.islice(adjusted, len(some))),
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
    encoding: str,
    seeds: Mapping[int, _Found],
    places: Mapping[tuple[object, ...], _Place],
    shared: Mapping[str, Any],
) -> list[MeanRow]:
    """What top-1 gains from the size of training to another one, by fifths of object size (LookHere, figure 7): on the
    same images at both, sorted by their objects as `top1` does."""
    gains: dict[int, NDArray[np.float64]] = {}
    counts: Sequence[int] = ()
    for seed, found in sorted(seeds.items()):
        place = replace(found, row=replace(found.row, resolution=found.row.train_resolution)).place
        trained = places.get(place, {}).get(encoding, {}).get(seed)
        if trained is not None and trained.row.resolution != found.row.resolution:
            gain, counts = _gain(trained, found)
            gains |= {} if gain is None else {seed: gain}
    if not gains:
        return []
    chosen, said = {seed: seeds[seed] for seed in gains}, {**shared, "metric": CHANGE}
    return [
        _mean(
            encoding, chosen, said | {"slices": {_QUINTILE: part + 1}, "count": counts[part]},
            [float(gain[part]) for gain in gains.values()],
        )
        for part in range(_FIFTHS)
    ]  # fmt: skip


def _gain(before: Any, after: Any) -> tuple[NDArray[np.float64] | None, Sequence[int]]:
    """What is gained in each fifth of the images that both have, and how many are in each; None of too few."""
    both, here, old = np.intersect1d(after.images, before.images, return_indices=True)
    if len(both) < _FIFTHS or not np.isfinite(after.sizes[here]).all():
        return None, ()
    gain = after.right[here].astype(float) - before.right[old]
    parts = np.array_split(np.argsort(after.sizes[here], kind="stable"), _FIFTHS)
    return np.array([gain[part].mean() for part in parts]), [len(part) for part in parts]
