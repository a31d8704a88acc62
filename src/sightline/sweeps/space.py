"""The cells of a sweep: what its file says, and the fields of a training that each cell sets."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from sightline.data.sizes import View
from sightline.errors import InputError, did_you_mean
from sightline.io.config import Count, Number, build_config, config_dataclass, dump_config

# More cells are a mistake in the file: nobody waits for so many runs.
_MOST_CELLS = 10_000
_LONGEST_NAME = 60


@config_dataclass(kw_only=False)
class SearchRange:
    """Numbers from `low` to `high`, both included; `log` draws their logarithm, `int` whole ones."""

    low: Number
    high: Number
    log: bool = False
    int: bool = False

    def __post_init__(self) -> None:
        expected = None
        if self.low >= self.high:
            expected = f"less than high {self.high:g}"
        elif self.log and self.low <= 0:
            expected = "more than 0 where log is true"
        elif self.int and (self.low != round(self.low) or self.high != round(self.high)):
            expected = f"whole numbers, as high {self.high:g} too, where int is true"
        if expected is not None:
            raise InputError(f"low {self.low:g}: expected {expected}", field="low", value=self.low)

    @property
    def ends(self) -> tuple[Any, Any]:
        """Its lowest and its highest number."""
        return (round(self.low), round(self.high)) if self.int else (float(self.low), float(self.high))


@config_dataclass(kw_only=False)
class SweepEvaluation:
    """How each cell is measured after its training, in place of the curve on `minival`.

    Attributes:
        resolutions: square sides in pixels, or views, as `native`; the cell's value is the mean over them.
        split: of the data; images: at most so many of it.
    """

    resolutions: Annotated[tuple[Count | str, ...], Field(min_length=1)]
    split: str = "minival"
    images: Count | None = None

    def __post_init__(self) -> None:
        for one in self.resolutions:
            if isinstance(one, str) and View.parse(one) is None:
                nearest = did_you_mean(one, ["native", "max:4096", "tokens:256"])
                said = f"resolutions {one}: expected sides in pixels, native, max:PATCHES or tokens:PATCHES{nearest}"
                raise InputError(said, field="resolutions", value=one)

    @property
    def shown(self) -> tuple[int | View, ...]:
        """How images are shown: sides in pixels in rising order, then views, each once."""
        views = {view for one in self.resolutions if isinstance(one, str) and (view := View.parse(one))}
        return (*sorted({one for one in self.resolutions if isinstance(one, int)}), *sorted(views))


@config_dataclass
class SweepConfig:
    """What a SWEEP.yaml says.

    Attributes:
        base: fields of `TrainConfig`, and `recipe`, the name of what they change: what all cells share.
        grid: field of `TrainConfig`, as `optimizer.lr` -> its values; every combination is a cell.
        search: field -> its values, or a `SearchRange`; cells are drawn one after the other by what was measured (TPE).
        trials: how many a search draws; seed: of what it draws.
        metric: what is compared of `evaluate`; the task's primary one unless given.
        evaluate: how each cell is measured; None takes the last point of its curve on `minival`.
        out: folder of the sweep; storage: a database URL, None is Optuna's journal in `out`; name: of the study in it,
            the folder's unless given.
    """

    base: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, Any] | None = None
    search: dict[str, Any] | None = None
    trials: Annotated[int, Field(ge=1, le=_MOST_CELLS)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    metric: str | None = None
    evaluate: SweepEvaluation | None = None
    out: str | None = None
    storage: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if (self.grid is None) == (self.search is None):
            raise InputError("expected one of grid and search" + (", not both" if self.grid is not None else ""))
        group, said = "search" if self.grid is None else "grid", None
        if self.metric is not None and self.evaluate is None:
            said = "metric", "goes with evaluate; minival has the task's own curve"
        elif (self.trials is None) == (self.grid is None):
            said = "trials", "expected the number of cells to draw with a search, and none with a grid"
        elif not self.varied:
            said = group, "expected at least one field, as optimizer.lr"
        for name in self.varied if said is None else ():
            if (fault := self._fault_of(name)) is not None:
                said = f"{group}.{name}", fault
                break
        if said is None and self.count > _MOST_CELLS:
            said = "grid", f"has {self.count:,} cells, expected at most {_MOST_CELLS:,}"
        if said is not None:
            raise InputError(f"{said[0]}: {said[1]}", field=said[0], value=getattr(self, said[0], None))

    def _fault_of(self, name: object) -> str | None:
        if not isinstance(name, str) or not all(re.fullmatch(r"\w+", part) for part in name.split(".")):
            return "expected a field of the training, as optimizer.lr"
        if name == "recipe":
            return "what a recipe decides is the same in all cells; expected it in base"
        if inner := [other for other in self.varied if other.startswith(f"{name}.")]:
            return f"{inner[0]} is given as well, and one contains the other"
        values = self.span(name)
        if isinstance(values, SearchRange):
            return None
        if not isinstance(values, list) or not values:
            return "expected a list of values" + ("" if self.search is None else ", or low and high")
        words = [json.dumps(value) for value in values]
        twice = [word for word in words if words.count(word) > 1]
        return f"{twice[0]} stands twice" if twice else None

    @property
    def varied(self) -> dict[str, Any]:
        """What cells set: field -> its values."""
        return (self.grid if self.grid is not None else self.search) or {}

    @property
    def count(self) -> int:
        """How many cells there are."""
        return self.trials or math.prod(map(len, self.varied.values()))

    def span(self, name: str) -> Any:
        """What a cell's field is drawn from: a list of values, or a `SearchRange`."""
        found = self.varied[name]
        if self.search is None or not isinstance(found, Mapping):
            return found
        return build_config(SearchRange, found, f"search.{name}")


@dataclass(frozen=True)
class SweepCell:
    """One run of a sweep: its number from 0, and the fields that it sets."""

    number: int
    fields: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of its folder: its number, and what it sets as far as there is room."""
        words = []
        for key, value in self.fields.items():
            start = key.rpartition(".")[2] if isinstance(value, int | float) else ""
            words.append(start + re.sub(r"[^A-Za-z0-9_.+-]+", "_", _words(value)).strip("_"))
        said = "-".join(word for word in words if word)[:_LONGEST_NAME].rstrip("-.")
        return f"{self.number:03}-{said}" if said else f"{self.number:03}"


def format_settings(settings: Mapping[str, Any]) -> str:
    """Some fields and their values in a line."""
    return ", ".join(f"{key} {_words(value)}" for key, value in settings.items())


def _words(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def grid_cells(config: SweepConfig) -> list[SweepCell]:
    """Every cell of a grid, the last field fastest, as they stand in the file."""
    combinations = enumerate(itertools.product(*config.varied.values()))
    return [SweepCell(number, dict(zip(config.varied, values, strict=True))) for number, values in combinations]


def sample_cells(config: SweepConfig) -> Iterator[SweepCell]:
    """Cells that show whether a training takes what a file says: all of a grid; of a search, each value of a list and
    each end of a range once."""
    if config.search is None:
        yield from grid_cells(config)
        return
    found = {name: config.span(name) for name in config.search}
    values = {name: one.ends if isinstance(one, SearchRange) else one for name, one in found.items()}
    for number in range(max(map(len, values.values()))):
        yield SweepCell(number, {name: some[min(number, len(some) - 1)] for name, some in values.items()})


def training_fields(config: SweepConfig, cell: SweepCell) -> dict[str, Any]:
    """What a cell's training is asked for, `recipe` among it where the file names one: nested, as YAML has it.

    Raises:
        InputError: a field is inside what is no group.
    """
    merged = copy.deepcopy(config.base)
    for name, value in cell.fields.items():
        *groups, key = name.split(".")
        inside = merged
        for group in groups:
            if inside.get(group) is None:
                inside[group] = {}
            inside = inside[group]
            if not isinstance(inside, dict):
                raise InputError(f"base: {group} {inside!r} is no group of keys, as {name} expects", field=group)
        inside[key] = copy.deepcopy(value)
    return merged


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested configuration by dotted names."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) and value else {f"{prefix}{key}": value}
    return found


def record_of(config: SweepConfig) -> dict[str, Any]:
    """What a sweep is, for its storage, by dotted names: all but where it is kept."""
    plain = {name: value for name, value in dump_config(config).items() if name not in ("out", "storage", "name")}
    # The order of a grid's fields numbers its cells.
    return {**flat(plain), "fields": list(config.varied)}


def refuse_other(before: Mapping[str, Any], config: SweepConfig, where: str) -> None:
    """Refuse a file that says something else than the one that the sweep was begun with; names the first field that
    differs.

    Args:
        before: as `record_of` gave it; where: what an error begins with.
    """
    now = record_of(config)
    for name in dict.fromkeys((*now, *before)):
        if json.dumps(before.get(name)) != json.dumps(now.get(name)):
            raise InputError(
                f"{where}: {name} is {json.dumps(now.get(name))}, and {json.dumps(before.get(name))} where the sweep "
                "was begun (expected the same file; another out, or name, begins another sweep)",
                field=name,
                value=now.get(name),
            )
