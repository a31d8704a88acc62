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


Key = tuple[object, ...]


@dataclass(frozen=True)
class _Found:
    """A row of a run."""

    run: TrainedRun
    row: ResultRow

    @property
    def place(self) -> Key:
        row, part = self.row, json.dumps(dict(self.row.slices), sort_keys=True)
        return row.metric, row.data, row.split, row.resolution, self.run.fine_tuned, part


def compare_runs(runs: Sequence[TrainedRun]) -> list[ComparisonRow]:
    """Means over seeds of metrics of all images, and of top-1 by fifths of object size; tests of each two encodings at
    each size, from stored logits; and the order of the encodings beside LookHere's (tables 1 and 6), where at least
    three of them are there.

    Raises:
        InputError: a run has no rows or logits, two runs have the same encoding and seed, or images differ.
    """
    places: dict[Key, dict[str, dict[int, _Found]]] = {}
    for run in runs:
        for row in _kept(run):
            found = _Found(run, row)
            seeds = places.setdefault(found.place, {}).setdefault(row.encoding, {})
            if row.seed in seeds:
                raise InputError(f"{run.folder}: seed {row.seed} of {row.encoding} is there twice")
            seeds[row.seed] = found
    rights = {run.folder: _rights(run) for run in runs}
    classes = {run.folder: max((one.classes for one in rights[run.folder].values()), default=0) for run in runs}
    rows: list[ComparisonRow] = []
    for encodings in places.values():
        some = next(iter(next(iter(encodings.values())).values()))
        shared = {"classes": classes[some.run.folder], **_shared(some, encodings)}
        mine = [_mean(name, dict(sorted(seeds.items())), shared) for name, seeds in encodings.items()]
        rows += mine
        if (some.row.metric, some.row.split) == (TOP1, "test") and not some.row.slices:
            rows += _differences(mine, encodings, rights, shared)
            if not some.run.fine_tuned:
                rows += _orders(mine, shared) + _changes(encodings, places, rights, shared)
    return rows


def _kept(run: TrainedRun) -> list[ResultRow]:
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
    return list({_Found(run, row).place: row for row in sorted(rows, key=lambda row: row.tuned)}.values())


def _shared(some: _Found, encodings: Mapping[str, Mapping[int, _Found]]) -> dict[str, Any]:
    """What all rows of a place say."""
    row, run = some.row, some.run
    every = [one.row for seeds in encodings.values() for one in seeds.values()]
    return {
        "metric": row.metric, "unit": row.unit, "better": row.better, "data": row.data, "split": row.split,
        "train_resolution": row.train_resolution, "resolution": row.resolution, "fine_tuned": run.fine_tuned,
        "count": row.count, "train_images": run.train_images, "slices": dict(row.slices),
        "commit": ", ".join(sorted({one.commit for one in every})),
        "hardware": "; ".join(sorted({one.hardware for one in every})),
    }  # fmt: skip


def _mean(encoding: str, seeds: Mapping[int, _Found], shared: Mapping[str, Any]) -> MeanRow:
    values = [found.row.value for found in seeds.values()]
    value, interval = mean_over_seeds(values)
    return MeanRow(
        **shared, encoding=encoding, value=value, interval=interval, values=tuple(values), seeds=tuple(seeds),
        knobs=tuple(found.row.knob for found in seeds.values()),
        tuned=all(found.row.tuned for found in seeds.values()),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Right:
    """Whether each image was named rightly, which images these are, their objects' sizes (nan where they have none),
    and of how many classes."""

    right: NDArray[np.bool_]
    images: NDArray[np.int64]
    sizes: NDArray[np.float32]
    classes: int


Rights = Mapping[Path, Mapping[Key, _Right]]


def _rights(run: TrainedRun) -> dict[Key, _Right]:
    """By place, from stored logits."""
    found: dict[Key, _Right] = {}
    for row in _kept(run):
        if row.metric != TOP1 or row.slices:
            continue
        path = run.folder / LOGITS / logits_name_of(row)
        stored = read_logits(path)
        # The first of equals, as `top1` has it.
        right = stored.logits.argmax(1) == stored.labels
        if len(right) != row.count or not math.isclose(right.mean(), row.value, abs_tol=1e-9):
            raise InputError(f"{path}: is of other weights or images than the rows of {run.folder}")
        sizes = np.array([slices.get("size", np.nan) for slices in stored.slices], np.float32)
        found[_Found(run, row).place] = _Right(right, stored.indices, sizes, stored.logits.shape[1])
    return found


def _differences(
    means: Sequence[MeanRow],
    encodings: Mapping[str, Mapping[int, _Found]],
    rights: Rights,
    shared: Mapping[str, Any],
) -> list[DifferenceRow]:
    """Each two encodings of a place, by the images of the seeds that both have."""
    pairs, gaps, tests, images = [], [], [], None
    for one, other in itertools.combinations(means, 2):
        seeds = [seed for seed in one.seeds if seed in other.seeds]
        if not seeds:
            continue
        found = [[_right(encodings[row.encoding][seed], rights) for row in (one, other)] for seed in seeds]
        for some in itertools.chain(*found):
            images = some.images if images is None else images
            if not np.array_equal(images, some.images):
                where = f"{one.encoding} and {other.encoding} at {one.resolution} px"
                raise InputError(f"{where}: were measured on other images (expected the same for all runs)")
        rows = [(first.right, second.right) for first, second in found]
        gaps.append(np.mean([first.astype(float) - second for first, second in rows], axis=0))
        tests.append([mcnemar(first, second) for first, second in rows])
        pairs.append((one, other, seeds))
    if not pairs:
        return []
    over_images = bootstrap_intervals(np.stack(gaps, axis=1))
    adjusted = iter(holm([test.p for some in tests for test in some]))
    made = []
    for (one, other, seeds), gap, some, limits in zip(pairs, gaps, tests, over_images, strict=True):
        by_seed = [(test.first - test.second) / len(gap) for test in some]
        value, interval = mean_over_seeds(by_seed)
        alone = sum(test.first for test in some), sum(test.second for test in some)
        apart = None if one.interval is None or other.interval is None else not _overlap(one.interval, other.interval)
        made.append(
            DifferenceRow(
                **shared,
                first=one.encoding,
                second=other.encoding,
                value=value,
                interval=interval,
                over_images=limits,
                alone=tuple((test.first, test.second) for test in some),
                seeds=tuple(seeds),
                ps=tuple(test.p for test in some),
                adjusted=tuple(itertools.islice(adjusted, len(some))),
                odds_ratio=alone[0] / alone[1] if alone[1] else None,
                cohens_h=cohens_h(one.value, other.value),
                apart=apart,
            )
        )
    return made


def _right(found: _Found, rights: Rights) -> _Right:
    return rights[found.run.folder][found.place]


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


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
    numbers = [printed[row.encoding][1].number for row in both]
    made = []
    for kind in _COEFFICIENTS:
        found = rank_correlation([row.values for row in both], numbers, kind)
        made.append(
            RankRow(
                **shared,
                seeds=both[0].seeds,
                paper=name,
                table=line.table,
                shown=shown,
                coefficient=kind,
                encodings=tuple(row.encoding for row in both),
                measured=tuple(row.value for row in both),
                printed=tuple(numbers),
                value=_finite(found.value),
                interval=found.interval,
                over_seeds=found.over_seeds,
                p=_finite(found.p),
            )
        )
    return made


def _changes(
    encodings: Mapping[str, Mapping[int, _Found]],
    places: Mapping[Key, Mapping[str, Mapping[int, _Found]]],
    rights: Rights,
    shared: Mapping[str, Any],
) -> list[MeanRow]:
    """What top-1 gains from the size of training to another one, by fifths of object size (LookHere, figure 7): on the
    same images at both, sorted by their objects as `top1` does."""
    rows: list[MeanRow] = []
    for name, seeds in encodings.items():
        gains: dict[int, NDArray[np.float64]] = {}
        counts: Sequence[int] = ()
        for seed, found in sorted(seeds.items()):
            place = _Found(found.run, replace(found.row, resolution=found.row.train_resolution)).place
            trained = places.get(place, {}).get(name, {}).get(seed)
            if trained is not None and trained.row.resolution != found.row.resolution:
                gain, counts = _gain(_right(trained, rights), _right(found, rights))
                gains |= {} if gain is None else {seed: gain}
        said = {**shared, "metric": CHANGE, "seeds": tuple(gains)}
        for part in range(_FIFTHS if gains else 0):
            values = tuple(float(gain[part]) for gain in gains.values())
            value, interval = mean_over_seeds(values)
            knobs = tuple(seeds[seed].row.knob for seed in gains)
            tuned = all(seeds[seed].row.tuned for seed in gains)
            said |= {"slices": {_QUINTILE: part + 1}, "count": counts[part]}
            rows.append(
                MeanRow(**said, encoding=name, value=value, interval=interval, values=values, knobs=knobs, tuned=tuned)
            )
    return rows


def _gain(before: _Right, after: _Right) -> tuple[NDArray[np.float64] | None, Sequence[int]]:
    """What is gained in each fifth of the images that both have, and how many are in each; None of too few."""
    both, here, old = np.intersect1d(after.images, before.images, return_indices=True)
    if len(both) < _FIFTHS or not np.isfinite(after.sizes[here]).all():
        return None, ()
    gain = after.right[here].astype(float) - before.right[old]
    parts = np.array_split(np.argsort(after.sizes[here], kind="stable"), _FIFTHS)
    return np.array([gain[part].mean() for part in parts]), [len(part) for part in parts]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
