"""One measured number is one row: what was run, on what, and what came out; how rows of any kind are read, written and
merged. No torch here."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, get_type_hints, overload

from sightline.errors import InputError, require_known
from sightline.io.atomic import make_parent, storage_errors, write_file
from sightline.io.read import read_jsonl
from sightline.io.run_lock import locked

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# Of the normal distribution: 95 % lie within so many standard deviations.
Z95 = 1.959964
FRACTION = "fraction"
IMAGES = "images"
SQUARE = "square"
INFERENCE = "inference"
"""The slice that says how images were looked at, where that was not once and whole: a measurement of its own."""
FITTED = "fitted_on"
"""The slice that names the split on which something that a measure needs was fitted: all images, none of that split."""
_VIEW = re.compile(r"square|native|(max|tokens):[1-9][0-9]*")
# Fields that a file leaves out where they are as usual.
_OPTIONAL = (
    "shrunk", "picture", "ranks", "tuning", "preparation", "classes", "patch_size", "frames", "weights", "right",
)  # fmt: skip

Slices = Mapping[str, str | int | float]
T = TypeVar("T")
R = TypeVar("R", bound="Row")


@dataclass(frozen=True)
class MetricValue:
    """One number that a metric gives.

    `metric` is any name on one line; `value` is in `unit` ("px", "nats", ..., "" for a plain number). The unit
    `fraction` is kept for a share in [0, 1] of `count` things, with a binomial error; a mean of fractions has another.
    `count` is how many of `counted` ("images", "patches") it is of, `slices` of which part of them, as in
    {"group": "round letters"} or {"size_quintile": 1} (empty: all). `stderr`, or an `interval` of 95 % where it is not
    symmetric, is in the same unit; None where it is not known. `better` says which values are, where that is so.
    """

    metric: str
    value: float
    unit: str
    count: int
    stderr: float | None = None
    slices: Slices = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    better: Literal["higher", "lower", ""] = ""
    counted: str = IMAGES

    def limits(self, deviations: float = Z95) -> tuple[float, float] | None:
        """Where the value lies with 95 %, or with another certainty (of a fraction by Wilson); None if not known."""
        if self.interval is not None:
            low, high = ((limit - self.value) * deviations / Z95 for limit in self.interval)
        elif self.unit == FRACTION:
            return wilson_interval(self.value, self.count, deviations)
        elif self.stderr is None:
            return None
        else:
            low, high = -deviations * self.stderr, deviations * self.stderr
        return self.value + low, self.value + high


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of any kind: one JSON object a line of a file."""

    def record(self) -> dict[str, Any]:
        """The object of its line."""
        return asdict(self)

    @classmethod
    def from_record(cls, **record: Any) -> Self:
        """The inverse of `record`, lists as tuples."""
        return cls(**record)


@dataclass(frozen=True, kw_only=True)
class ModelRow(Row):
    """A row of one model, which says where it came from."""

    run: str
    encoding: str
    task: str
    data: str
    split: str
    train_resolution: int
    seed: int
    commit: str
    hardware: str


@dataclass(frozen=True, kw_only=True)
class ResultRow(ModelRow, MetricValue):
    """A row of `results.jsonl`: what was measured, and of what.

    `view` says how images were shown: `square`, with `resolution` the side in pixels and `grid` [rows, cols], or at
    their own aspect (`native`, `max:N`, `tokens:N`; see `data.sizes.View`), where both are None; `patches` is the mean
    of patches an image (nan, for a square, takes those of the grid); `frames` is how many of each clip were shown.
    `shrunk` is the side in pixels of a square to which the images of that resolution were shrunk before the model saw
    them, while what is said of them stayed at their own size (None: it saw them as they are). `patch_size` is the side
    of the patches in pixels where the model was measured with others than its own (`--patch-size`). `preparation`
    names how a suite's images were prepared, "" as the model does; `classes` is among how many the answers were, where
    a suite says it. `weights` tells the checkpoint from others of the run, in rows that stand outside its folder.
    `right` says of each image, in their order, whether the answer was right, where rows of two models are paired: 1,
    0, or - of none. `knob` is the encoding's extrapolation parameter (None where it has none) and `tuned` says whether
    it was searched on `minival`; `tuning` says of each search that a tuned row rests on what was searched, by which
    criterion, on how many images of which split, among which candidates, and the value found. `seconds` is how long
    the measurement took, on `ranks` processes. `picture` is the name of a PNG beside the rows' file that shows some of
    the answers.
    A fraction without `stderr` takes the binomial one. The file has `images` for a `count` of images, and leaves out
    what is as usual.
    """

    resolution: int | None
    grid: tuple[int, ...] | None
    knob: float | None
    tuned: bool
    seconds: float
    view: str = SQUARE
    patches: float = math.nan
    shrunk: int | None = None
    picture: str = ""
    tuning: tuple[Mapping[str, Any], ...] = ()
    ranks: int = 1
    preparation: str = ""
    classes: int | None = None
    patch_size: int | None = None
    frames: int | None = None
    weights: str = ""
    right: str = ""

    def __post_init__(self) -> None:
        if self.view == SQUARE and self.grid is not None and self.patches != self.patches:
            object.__setattr__(self, "patches", float(math.prod(self.grid)))
        require_known("better", self.better, ("", "higher", "lower"))
        check_fields(self)
        for name in ("metric", "counted"):
            if not getattr(self, name).isprintable() or not getattr(self, name).strip():
                raise InputError(f"{name} {getattr(self, name)!r}: expected a name")
        if not _VIEW.fullmatch(self.view):
            raise InputError(f"view {self.view!r} is not known (allowed: square, native, max:N, tokens:N)")
        for name in ("resolution", "grid"):
            value = getattr(self, name)
            if (value is None) == (self.view == SQUARE):
                raise InputError(f"{name} {value!r} of view {self.view}: expected None unless the view is square")
        if self.stderr is not None and self.stderr < 0:
            raise InputError(f"stderr {self.stderr}: expected 0 or more")
        if self.unit == FRACTION:
            if not 0 <= self.value <= 1:
                raise InputError(f"metric {self.metric}: value {self.value} is not a fraction in [0, 1]")
            if self.stderr is None:
                object.__setattr__(self, "stderr", binomial_stderr(self.value, self.count))

    def record(self) -> dict[str, Any]:
        """The object of its line; see above."""
        record = {
            name: value for name, value in asdict(self).items()
            if name not in _OPTIONAL or value != getattr(ResultRow, name)
        }  # fmt: skip
        if self.counted == IMAGES:
            del record["counted"]
            record[IMAGES] = record.pop("count")
        return record

    @classmethod
    def from_record(cls, **record: Any) -> Self:
        """The inverse of `record`, lists as tuples."""
        if IMAGES in record:
            record |= {"count": record.pop(IMAGES), "counted": IMAGES}
        return cls(**record)

    @property
    def images(self) -> int:
        """`count`, by the name that it has in the file where it is of images."""
        return self.count

    @property
    def size_label(self) -> str:
        """How images were shown, in words: "64 px", or the view where that is no square; of clips how many frames."""
        return size_label(vars(self))

    @property
    def tuned_label(self) -> str:
        """What a tuned row was measured with, in words; "" of every other."""
        if not self.tuned:
            return ""
        values = [one["value"] for one in self.tuning] or [self.knob]
        return ", ".join(one if isinstance(one, str) else f"{one:g}" for one in values if one is not None)

    @property
    def measurement(self) -> tuple[object, ...]:
        """What tells its measurement from others: rows of one pass over the same images share it."""
        looked = self.slices.get(INFERENCE), self.preparation, self.frames
        return self.data, self.split, self.view, self.resolution, self.tuned, self.shrunk, self.patch_size, *looked


def size_label(measured: Mapping[str, Any]) -> str:
    """`ResultRow.size_label` of a row with these fields."""
    side, frames, small, patch = (measured.get(name) for name in ("resolution", "frames", "shrunk", "patch_size"))
    size = measured["view"] if side is None else f"{side} px"
    if frames is not None:
        size = f"{frames} frames of {size}"
    size = size if small is None else f"{size} shrunk to {small} px"
    return size if patch is None else f"{size} in patches of {patch} px"


def check_fields(row: Row) -> None:
    """Raise InputError where a field holds what its annotation does not allow; a whole number does for a fraction."""
    for name, (kind, words) in _kinds(type(row)).items():
        value = getattr(row, name)
        try:
            kind.validate_python(value)
            # A tensor passes for a number, and cannot be written.
            json.dumps(value)
        except (TypeError, ValueError):
            named = f"count of {row.counted}" if name == "count" and isinstance(row, MetricValue) else name
            raise InputError(f"{named} {value!r}: expected {words}", field=name, value=value) from None


@functools.cache
def _kinds(cls: type[Row]) -> dict[str, tuple[TypeAdapter[Any], str]]:
    from pydantic import ConfigDict, TypeAdapter

    strict = ConfigDict(strict=True, allow_inf_nan=False)
    kinds = get_type_hints(cls, include_extras=True)
    return {one.name: (TypeAdapter(kinds[one.name], config=strict), str(one.type)) for one in fields(cls)}


def binomial_stderr(fraction: float, count: int) -> float:
    """Standard error of a proportion, sqrt(p (1 - p) / n); 0 for no images."""
    return math.sqrt(max(fraction * (1 - fraction), 0.0) / count) if count else 0.0


def wilson_interval(fraction: float, count: int, deviations: float = Z95) -> tuple[float, float]:
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
    # Rounded, either may pass the fraction itself by a last digit.
    return max(min(middle - reach, fraction), 0.0), min(max(middle + reach, fraction), 1.0)


def to_frame(rows: Iterable[Any]) -> Any:
    """Rows of any kind as a `pandas.DataFrame`, a line each; what a row's `slices` say are columns of their own."""
    import pandas

    records = ({**asdict(row), **getattr(row, "slices", {})} for row in rows)
    return pandas.DataFrame.from_records([{name: one[name] for name in one if name != "right"} for one in records])


def dump_rows(rows: Iterable[Row]) -> str:
    """The text of a file of rows of any kind: one JSON object a line."""
    return "".join(json.dumps(row.record(), allow_nan=False) + "\n" for row in rows)


@overload
def read_rows(path: str | Path) -> list[ResultRow]: ...
@overload
def read_rows(path: str | Path, *kinds: type[R]) -> list[R]: ...
def read_rows(path: str | Path, *kinds: type[Any]) -> list[Any]:
    """The rows of a file that `dump_rows` wrote.

    Args:
        kinds: of rows; of several, each line says its `kind`. `ResultRow` unless given.

    Raises:
        InputError: the file is missing, a line is not JSON, or a row has not the fields of its kind; names the line.
    """
    first, *others = kinds or (ResultRow,)
    by_name = {one.kind: one for one in kinds} if others else {}
    rows = []
    for number, record in read_jsonl(path, "a result row"):
        try:
            if not isinstance(record, dict):
                raise TypeError(f"a {type(record).__name__}")
            cls = first
            if by_name:
                require_known("kind", record.get("kind"), by_name)
                cls = by_name[record.pop("kind")]
            rows.append(cls.from_record(**{key: _tuples(value) for key, value in record.items()}))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{number}: not a result row ({error})") from None
    return rows


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def update_rows(path: Path, fresh: Sequence[ResultRow], *, anew: bool = False, fewer: bool = True) -> None:
    """Put rows into a file of rows; one that was measured again is replaced. Two processes at once lose none.

    Args:
        anew: leave out all that was there.
        fewer: replace also what was measured on more images.

    Raises:
        InputError: what is there are no rows.
        StorageError: it cannot be written.
    """
    update_file(path, read_rows, lambda before: dump_rows(merge_rows(before, fresh, fewer=fewer)), anew=anew)


def update_file(path: Path, read: Callable[[Path], list[T]], text: Callable[[list[T]], str], *, anew: bool) -> None:
    """Write a file from what is read of it (nothing where it is written anew); nobody else does so meanwhile."""
    make_parent(path)
    with storage_errors(f"{path}: cannot be written"), locked(path.with_name(f".{path.name}.writing-lock")):
        write_file(path, text(read(path) if path.exists() and not anew else []))


def merge_rows(before: Iterable[ResultRow], fresh: Iterable[ResultRow], *, fewer: bool = True) -> list[ResultRow]:
    """All rows, without those of `before` that were measured again. What was measured of a model beside its answers,
    and now was not asked for, stays where the answers alone, measured again, gave the same to the last bit: so it is of
    the same weights, images and setting.

    Args:
        fewer: also where that was on fewer images; else those of `fresh` go, but for metrics that are not there.
    """
    before, fresh = list(before), list(fresh)
    more = {} if fewer else measured_on_more_images(before, fresh)
    rows, known = (
        merged(before, fresh, lambda row: row.measurement, more),
        {(row.measurement, row.metric) for row in before},
    )
    rows += [row for row in fresh if row.measurement in more and (row.measurement, row.metric) not in known]
    metrics = {(row.measurement, row.metric) for row in fresh}
    there, here = _values(before), _values(fresh)
    alike = {what for what, values in here.items() if values.items() <= there.get(what, {}).items()}
    left = (row for row in before if row.measurement in alike and (row.measurement, row.metric) not in metrics)
    return [*rows, *(row for row in left if row not in rows)]


def _values(rows: Iterable[ResultRow]) -> dict[tuple[object, ...], dict[str, object]]:
    """Of each measurement what every metric came to on all of its images, and with which setting."""
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for row in rows:
        if not row.slices:
            said = row.value, row.count, row.knob, json.dumps(row.tuning), row.encoding, row.seed, row.train_resolution
            found.setdefault(row.measurement, {})[row.metric] = said
    return found


def merged(before: Iterable[T], fresh: Sequence[T], what: Callable[[T], object], kept: Container[object]) -> list[T]:
    """`before` without what is in `fresh` too, and `fresh`; of what is in `kept`, only that of `before`."""
    again = {what(row) for row in fresh if what(row) not in kept}
    return [*(row for row in before if what(row) not in again), *(row for row in fresh if what(row) in again)]


def measured_on_more_images(before: Iterable[ResultRow], fresh: Iterable[ResultRow]) -> dict[tuple[object, ...], str]:
    """In words, what of `fresh` was measured on more images in `before`."""
    # The first row of all images of each measurement.
    there, here = ({row.measurement: row for row in list(rows)[::-1] if not row.slices} for rows in (before, fresh))
    return {
        what: f"{row.split} at {row.size_label} ({there[what].count:,} {row.counted}, {row.count:,} now)"
        for what, row in here.items()
        if what in there and there[what].count > row.count
    }
