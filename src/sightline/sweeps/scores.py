"""What runs reached, from the files in their folders; the best and the average of each encoding."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sightline.errors import InputError, require_known, unknown_name_error
from sightline.io.read import read_json
from sightline.io.run_files import MODEL, RESULTS, last_checkpoint
from sightline.results.rows import INFERENCE, MetricValue, read_rows
from sightline.sweeps.space import flat
from sightline.training.log import read_curve


@dataclass(frozen=True)
class Objective:
    """Which number of a run is compared.

    Attributes:
        metric: its name; None takes the first one, which is the task's primary.
        split: of the rows in `results.jsonl`; None takes the last point of the curve on `minival`.
        shown: how images were shown, as `32 px` or `native`; the mean over them counts. () takes all of the split.
    """

    metric: str | None = None
    split: str | None = None
    shown: tuple[str, ...] = ()


@dataclass(frozen=True)
class CellScore:
    """A run: its name, its settings by dotted names, and the number that is compared."""

    run: str
    settings: Mapping[str, Any]
    measured: MetricValue

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CellScore:
        """The inverse of `dataclasses.asdict`."""
        return cls(record["run"], record["settings"], MetricValue(**record["measured"]))


def score_of(folder: Path, wanted: Objective) -> CellScore:
    """What a run reached.

    Raises:
        InputError: it is no run, or that was not measured of it.
    """
    record = read_json(last_checkpoint(folder) / MODEL, "the checkpoint of a run")
    config = record.get("training", {}).get("config") if isinstance(record, dict) else None
    if not isinstance(config, dict):
        raise InputError(f"{folder}: is no run, or does not say what it was trained by")
    measured = _last_of_curve(folder, wanted) if wanted.split is None else _mean_of_rows(folder / RESULTS, wanted)
    return CellScore(folder.resolve().name, flat(config), measured)


def _last_of_curve(folder: Path, wanted: Objective) -> MetricValue:
    curve = read_curve(folder)
    if not curve:
        raise InputError(f"{folder}: was not validated while it trained (expected a split of its rows)")
    measured = curve[-1][1]
    require_known(f"{folder}: metric of its validation", wanted.metric or measured.metric, [measured.metric])
    return measured


def _mean_of_rows(path: Path, wanted: Objective) -> MetricValue:
    """The mean over how images were shown."""
    rows = [
        row
        for row in read_rows(path)
        if row.shrunk is None and not row.tuned and not row.preparation and not row.slices.keys() - {INFERENCE}
    ]
    if not (mine := [row for row in rows if row.split == wanted.split]):
        raise unknown_name_error(f"{path}: split", wanted.split, {row.split for row in rows})
    metric = wanted.metric or mine[0].metric
    require_known(f"{path}: metric", metric, {row.metric for row in mine})
    by_shown = {row.size_label: row for row in mine if row.metric == metric}
    for one in wanted.shown:
        require_known(f"{path}: {wanted.split} at", one, by_shown)
    some = [by_shown[one] for one in wanted.shown or by_shown]
    mean, first = math.fsum(row.value for row in some) / len(some), some[0]
    return MetricValue(metric, mean, first.unit, first.count, better=first.better, counted=first.counted)


@dataclass(frozen=True)
class SummaryRow:
    """What the runs of one encoding, or of another setting, reached.

    Attributes:
        by: that setting's value; runs: how many there are.
        best: of them; average: the mean of all.
        settings: of the best, those that differ among all runs.
    """

    by: Any
    runs: int
    best: CellScore
    average: float
    settings: Mapping[str, Any]

    def as_record(self, by: str) -> dict[str, Any]:
        """As JSON has it."""
        one = self.best.measured
        return {
            by: self.by, "runs": self.runs, "metric": one.metric, "unit": one.unit, "better": one.better,
            "best": one.value, "average": self.average, "best_run": self.best.run, "best_settings": dict(self.settings),
        }  # fmt: skip


def best_of(scores: Sequence[CellScore]) -> CellScore:
    """The best of some runs, the first of those that are alike."""
    sign = -1 if scores[0].measured.better == "lower" else 1
    return max(scores, key=lambda one: sign * one.measured.value)


def best_and_average(scores: Sequence[CellScore], by: str = "encoding") -> list[SummaryRow]:
    """A line for each value of a setting, in the order in which they first come.

    Raises:
        InputError: there is no run, the runs were measured by different numbers, or have no such setting.
    """
    if not scores:
        raise InputError("table: expected at least one finished run")
    kinds = {(one.measured.metric, one.measured.unit, one.measured.better): one.run for one in scores}
    if len(kinds) > 1:
        said = " and ".join(f"{run} by {metric}" for (metric, *_), run in kinds.items())
        raise InputError(f"table: measured were {said}; expected the same metric (--metric NAME --split SPLIT)")
    groups: dict[str, list[CellScore]] = {}
    for one in scores:
        require_known(f"{one.run}: setting", by, one.settings)
        groups.setdefault(json.dumps(one.settings[by]), []).append(one)
    varied = varied_settings(scores)
    lines = []
    for value, group in groups.items():
        best, average = best_of(group), math.fsum(one.measured.value for one in group) / len(group)
        settings = {name: best.settings[name] for name in varied if name != by and name in best.settings}
        lines.append(SummaryRow(json.loads(value), len(group), best, average, settings))
    return lines


def varied_settings(scores: Sequence[CellScore]) -> list[str]:
    """The settings that differ among runs."""
    names = dict.fromkeys(name for one in scores for name in one.settings)
    return [name for name in names if len({json.dumps(one.settings.get(name)) for one in scores}) > 1]


def unique_names(scores: Sequence[CellScore], folders: Sequence[Path]) -> list[CellScore]:
    """The runs, each under a name that no other has: its folder's path where two are called so."""
    names = [one.run for one in scores]
    return [
        one if names.count(one.run) == 1 else replace(one, run=str(folder))
        for one, folder in zip(scores, folders, strict=True)
    ]
