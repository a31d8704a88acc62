"""One measured number is one row: what was run, on what, and what came out. No torch here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sightline.errors import InputError
from sightline.reading import read_json_lines

RESULTS = "results.jsonl"
# Of the normal distribution: 95 % lie within so many standard deviations.
DEVIATIONS = 1.959964
_METRIC = re.compile(r"top1|top5|top1_group_[^\s]+|top1_within_group|top1_size_q[1-5]")
SQUARE = "square"
_VIEW = re.compile(r"square|native|(max|tokens):[1-9][0-9]*")
# What rows lack that were written before images were shown at their own aspect: all were squares.
_NEWER = {"view": SQUARE, "patches": math.nan}


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One object a line of `results.jsonl`.

    `value` and `stderr` are fractions in [0, 1]; `view` says how images were shown: `square`, with `resolution` the
    side in pixels and `grid` [rows, cols], or at their own aspect (`native`, `max:N`, `tokens:N`; see
    `data.views.View`), where both are None; `patches` is the mean of patches an image (nan, for a square, takes those
    of the grid); `knob` is the encoding's extrapolation parameter (None where it has none) and `tuned` says whether it
    was searched on `minival`; `images` is how many were measured, `seconds` how long it took.
    """

    run: str
    encoding: str
    task: str
    data: str
    split: str
    metric: str
    value: float
    stderr: float
    resolution: int | None
    grid: tuple[int, int] | None
    train_resolution: int
    knob: float | None
    tuned: bool
    seed: int
    images: int
    seconds: float
    commit: str
    hardware: str
    view: str = SQUARE
    patches: float = math.nan

    def __post_init__(self) -> None:
        if self.view == SQUARE and self.grid is not None and self.patches != self.patches:
            object.__setattr__(self, "patches", float(math.prod(self.grid)))
        for field in fields(self):
            value = getattr(self, field.name)
            if not _is_of(field.type, value):
                raise InputError(f"{field.name} {value!r}: expected {field.type}")
        if not _METRIC.fullmatch(self.metric):
            raise InputError(
                f"metric {self.metric!r} is not known (allowed: top1, top5, top1_group_<name>, "
                "top1_within_group, top1_size_q1 .. top1_size_q5)"
            )
        if not _VIEW.fullmatch(self.view):
            raise InputError(f"view {self.view!r} is not known (allowed: square, native, max:N, tokens:N)")
        for name in ("resolution", "grid"):
            value = getattr(self, name)
            if (value is None) == (self.view == SQUARE):
                raise InputError(f"{name} {value!r} of view {self.view}: expected None unless the view is square")
        if not (math.isfinite(self.value) and 0 <= self.value <= 1):
            raise InputError(f"metric {self.metric}: value {self.value} is not a fraction in [0, 1]")


def _is_of(kind: object, value: object) -> bool:
    """Whether a value is what a field of `ResultRow` declares; a whole number does for a fraction."""
    if str(kind).endswith(" | None"):
        return value is None or _is_of(str(kind).removesuffix(" | None"), value)
    if kind == "tuple[int, int]":
        return isinstance(value, tuple) and len(value) == 2 and all(_is_of("int", side) for side in value)
    if kind == "float":
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"str": str, "bool": bool}[str(kind)])


def binomial_stderr(fraction: float, count: int) -> float:
    """Standard error of a proportion, sqrt(p (1 - p) / n); 0 for no images."""
    return math.sqrt(max(fraction * (1 - fraction), 0.0) / count) if count else 0.0


def wilson(fraction: float, count: int, deviations: float = DEVIATIONS) -> tuple[float, float]:
    """Where a proportion that was `fraction` of `count` images lies with 95 % (Wilson's interval).

    Args:
        deviations: of the normal distribution, for another certainty than 95 %.

    Raises:
        InputError: there is no image.
    """
    if count < 1:
        raise InputError(f"interval of {count} images: expected at least one")
    square = deviations**2 / count
    middle = (fraction + square / 2) / (1 + square)
    reach = math.sqrt(square * (fraction * (1 - fraction) + square / 4)) / (1 + square)
    return max(middle - reach, 0.0), min(middle + reach, 1.0)


def dump_rows(rows: Iterable[ResultRow]) -> str:
    """The text of a `results.jsonl`: one JSON object a line."""
    return "".join(json.dumps(asdict(row), allow_nan=False) + "\n" for row in rows)


def read_rows(path: str | Path) -> list[ResultRow]:
    """The rows of a `results.jsonl`.

    Raises:
        InputError: the file is missing, a line is not JSON, or a row has not exactly the fields of `ResultRow`
            (`view` and `patches` may lack).
    """
    names = {field.name for field in fields(ResultRow)}
    rows = []
    for number, record in read_json_lines(path, "a result row"):
        if isinstance(record, dict):
            record = _NEWER | record
        if not isinstance(record, dict) or set(record) != names:
            odd = sorted(set(record) ^ names) if isinstance(record, dict) else []
            raise InputError(f"{path}:{number}: not a result row (missing or unknown: {', '.join(odd)})")
        grid = tuple(record["grid"]) if isinstance(record["grid"], list) else record["grid"]
        try:
            rows.append(ResultRow(**{**record, "grid": grid}))
        except InputError as error:
            raise InputError(f"{path}:{number}: {error}") from None
    return rows


def merge_rows(before: Iterable[ResultRow], fresh: Iterable[ResultRow], *, fewer: bool = True) -> list[ResultRow]:
    """All rows, without those of `before` that were measured again.

    Args:
        fewer: also where that was on fewer images; else those of `fresh` go.
    """
    before, fresh = list(before), list(fresh)
    if not fewer:
        more = on_more(before, fresh)
        fresh = [row for row in fresh if _measured(row) not in more]
    again = {_measured(row) for row in fresh}
    return [*(row for row in before if _measured(row) not in again), *fresh]


def on_more(before: Iterable[ResultRow], fresh: Iterable[ResultRow]) -> dict[tuple[object, ...], str]:
    """In words, what of `fresh` was measured on more images in `before`."""
    there, here = _top1(before), _top1(fresh)
    return {
        what: f"{row.split} at {row.view if row.resolution is None else f'{row.resolution} px'} "
        f"({there[what].images:,} images, {row.images:,} now)"
        for what, row in here.items()
        if what in there and there[what].images > row.images
    }


def _top1(rows: Iterable[ResultRow]) -> dict[tuple[object, ...], ResultRow]:
    """The row of all images of each measurement."""
    return {_measured(row): row for row in rows if row.metric == "top1"}


def _measured(row: ResultRow) -> tuple[object, ...]:
    """What a row is about."""
    return row.data, row.split, row.view, row.resolution, row.tuned
