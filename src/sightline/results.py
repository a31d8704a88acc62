"""One measured number is one row: what was run, on what, and what came out. No torch here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from sightline.errors import InputError

_METRIC = re.compile(r"top1|top5|top1_group_[^\s]+|top1_within_group|top1_size_q[1-5]")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One object a line of `results.jsonl`.

    `value` and `stderr` are fractions in [0, 1]; `resolution` is a square side in pixels; `grid` is
    [rows, cols]; `knob` is the encoding's extrapolation parameter (None where it has none) and `tuned`
    says whether it was searched on `minival`; `images` is how many were measured, `seconds` how long it took.
    """

    run: str
    encoding: str
    task: str
    data: str
    split: str
    metric: str
    value: float
    stderr: float
    resolution: int
    grid: tuple[int, int]
    train_resolution: int
    knob: float | None
    tuned: bool
    seed: int
    images: int
    seconds: float
    commit: str
    hardware: str

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not _is_of(field.type, value):
                raise InputError(f"{field.name} {value!r}: expected {field.type}")
        if not _METRIC.fullmatch(self.metric):
            raise InputError(
                f"metric {self.metric!r} is not known (allowed: top1, top5, top1_group_<name>, "
                "top1_within_group, top1_size_q1 .. top1_size_q5)"
            )
        if not (math.isfinite(self.value) and 0 <= self.value <= 1):
            raise InputError(f"metric {self.metric}: value {self.value} is not a fraction in [0, 1]")


def _is_of(kind: object, value: object) -> bool:
    """Whether a value is what a field of `ResultRow` declares; a whole number does for a fraction."""
    if kind == "tuple[int, int]":
        return isinstance(value, tuple) and len(value) == 2 and all(_is_of("int", side) for side in value)
    if kind == "float | None":
        return value is None or _is_of("float", value)
    if kind == "float":
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, {"str": str, "bool": bool}[str(kind)])


def binomial_stderr(fraction: float, count: int) -> float:
    """Standard error of a proportion, sqrt(p (1 - p) / n); 0 for no images."""
    return math.sqrt(max(fraction * (1 - fraction), 0.0) / count) if count else 0.0


def dump_rows(rows: Iterable[ResultRow]) -> str:
    """The text of a `results.jsonl`: one JSON object a line."""
    return "".join(json.dumps(asdict(row), allow_nan=False) + "\n" for row in rows)


def read_rows(path: str | Path) -> list[ResultRow]:
    """The rows of a `results.jsonl`.

    Raises:
        InputError: the file is missing, a line is not JSON, or a row has not exactly the fields of `ResultRow`.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as rows ({error})") from None
    names = {field.name for field in fields(ResultRow)}
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{number}: not JSON ({error.msg})") from None
        if not isinstance(record, dict) or set(record) != names:
            odd = sorted(set(record) ^ names) if isinstance(record, dict) else []
            raise InputError(f"{path}:{number}: not a result row (missing or unknown: {', '.join(odd)})")
        grid = tuple(record["grid"]) if isinstance(record["grid"], list) else record["grid"]
        try:
            rows.append(ResultRow(**{**record, "grid": grid}))
        except InputError as error:
            raise InputError(f"{path}:{number}: {error}") from None
    return rows


def merge_rows(before: Iterable[ResultRow], fresh: Iterable[ResultRow]) -> list[ResultRow]:
    """All rows, without those of `before` that were measured again."""
    fresh = list(fresh)
    again = {(row.data, row.split, row.resolution, row.tuned) for row in fresh}
    return [*(row for row in before if (row.data, row.split, row.resolution, row.tuned) not in again), *fresh]
