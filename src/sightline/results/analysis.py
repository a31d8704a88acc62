"""What was measured of a model's inside, as rows: a number for each layer and size, with its interval over images. No
torch here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sightline.errors import InputError
from sightline.io.config import Count
from sightline.results.rows import FRACTION, Z95, MetricValue, Origin, check_fields, read_records

ANALYSIS, ANALYSIS_PAGE = "analysis.jsonl", "analysis.html"
LAYERS = "layers"
"""The `figure` of what is drawn as curves by layer."""
# Over these a number is averaged; what has other axes is a picture, and no number a layer.
_AVERAGED = {"image", "layer", "head"}
ALL = -2
"""In place of a layer: the mean over all that a model has, without what enters the first."""
# What a measure adds to the name of a quantity of all images together: where its 95 % begin and end.
_ENDS = ("_low", "_high")
_UNKNOWN = {"task": "", "data": "", "split": "", "train_resolution": 0, "seed": 0, "commit": "", "hardware": ""}
_OF_MODEL = ("depth", "heads", "patch_size")
Size = tuple[int, int]


class AnalysisLike(Protocol):
    """What an `analysis.found.Analysis` is for those who draw it, who never import torch."""

    @property
    def measure(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def encoding(self) -> str: ...
    @property
    def sizes(self) -> tuple[Size, ...]: ...
    @property
    def names(self) -> Mapping[Size, tuple[str, ...]]: ...
    @property
    def arrays(self) -> Mapping[Size, Mapping[str, np.ndarray]]: ...
    @property
    def about(self) -> Mapping[str, Any]: ...
    @property
    def quantities(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, kw_only=True)
class AnalysisRow(Origin, MetricValue):
    """One object a line of `analysis.jsonl`.

    `run` is what the model is called, `metric` names a quantity of `measure`; `value` is its mean over images (and over
    heads) in `unit`, `interval` the 95 % of that over other images (Student's t, cut at 0 and 1 of fractions that all
    lie between; None of one image, and of what is of no image). `slices` says which {"layer": l}, from 0, or -1 of what
    enters the first; none of what has no layers.
    `size` is (height, width) in pixels, None where each image had its own. `depth`, `heads` and `patch_size` are the
    model's, `words` and `figure` the quantity's. Of what has images and layers there is also the mean over layers,
    without a slice and `of_all_layers`.
    """

    measure: str
    size: tuple[Count, Count] | None
    depth: int
    heads: int
    patch_size: int
    of_all_layers: bool = False
    words: str = ""
    figure: str = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.slices.get("layer", 0), int):
            raise InputError(f"slices {self.slices!r}: expected a whole number for layer")

    @property
    def layer(self) -> int | None:
        """Which layer, None of what has none."""
        layer = self.slices.get("layer")
        return None if layer is None else int(layer)

    def limits(self, deviations: float = Z95) -> tuple[float, float] | None:
        """As of any number, but of a share only where it has its own interval: it is no share of `count` things."""
        return None if self.interval is None else super().limits(deviations)

    @property
    def shown(self) -> str:
        """How images were shown, in words: "64 px", "32 x 64 px", or "own size"."""
        return size_words(self.size)


def other_of(found: AnalysisLike) -> str:
    """With whose layers those of the model were compared; "" of what is of one model."""
    return str(found.about.get("other", ""))


def size_words(size: Size | None) -> str:
    """ "64 px", "32 x 64 px" (height first), or "own size"; (0, 0) is none, too."""
    if not size or size == (0, 0):
        return "own size"
    height, width = size
    return f"{height} px" if height == width else f"{height} \N{MULTIPLICATION SIGN} {width} px"


def rows_of(found: AnalysisLike, **origin: Any) -> list[AnalysisRow]:
    """The rows of what one measure found in one model: of every quantity that has images, layers and heads alone.

    Args:
        **origin: the fields of `Origin` but for `run` and `encoding`; what is left out is not known.
    """
    told: dict[str, Any] = {**_UNKNOWN, **origin, "run": found.model, "encoding": found.encoding}
    told |= {"measure": found.measure, **{name: int(found.about.get(name, 0)) for name in _OF_MODEL}}
    rows = []
    for size in found.sizes:
        for name, quantity in found.quantities.items():
            array = found.arrays[size].get(name)
            # Where the interval of another quantity ends is none.
            ends_another = any(name.removesuffix(end) in found.quantities for end in _ENDS if name.endswith(end))
            if array is None or not set(quantity.axes) <= _AVERAGED or ends_another:
                continue
            images, ends = len(found.names[size]), _ends(found, name, size)
            layers = list(by_layer(np.asarray(array, dtype=np.float64), quantity.axes, found.about.get("depth")))
            if {"image", "layer"} <= set(quantity.axes):
                layers.append((ALL, _mean(np.stack([values for layer, values in layers if layer != -1]), 0)))
            for layer, values in layers:
                value, interval, count = mean_over_images(values, fractions=quantity.unit == FRACTION)
                if not math.isfinite(value):
                    continue
                if "image" not in quantity.axes:
                    interval, count = ends.get(layer), images
                rows.append(
                    AnalysisRow(
                        **told,
                        metric=name,
                        value=value,
                        unit=quantity.unit,
                        count=count,
                        interval=interval,
                        slices={} if layer is None or layer == ALL else {"layer": layer},
                        size=None if size == (0, 0) else size,
                        of_all_layers=layer == ALL,
                        words=quantity.words,
                        figure=quantity.figure,
                    )
                )
    return rows


def _ends(found: AnalysisLike, name: str, size: Size) -> dict[int | None, tuple[float, float]]:
    """By layer the interval that a measure gives of its own, of what is of all images together: NAME_low, NAME_high."""
    arrays, depth = found.arrays[size], found.about.get("depth")
    if any(f"{name}{ending}" not in arrays for ending in _ENDS):
        return {}
    axes = found.quantities[name].axes
    low, high = (by_layer(np.asarray(arrays[f"{name}{ending}"]), axes, depth) for ending in _ENDS)
    ends = {layer: (float(one[0]), float(other[0])) for (layer, one), (_, other) in zip(low, high, strict=True)}
    return {layer: pair for layer, pair in ends.items() if all(map(math.isfinite, pair))}


def by_layer(
    array: np.ndarray, axes: Sequence[str], depth: int | None, *, heads: bool = False
) -> Iterator[tuple[int | None, np.ndarray]]:
    """The values of each layer, [images] (one where the array has none), averaged over heads.

    Args:
        array: its `axes` are some of image, layer and head, each once.
        depth: of the model; an array with one layer more begins with what enters the first, layer -1.
        heads: keep them: [images, heads].
    """
    order = [name for name in ("layer", "image", "head") if name in axes]
    array = np.transpose(array, [list(axes).index(name) for name in order])
    if "image" not in axes:
        array = np.expand_dims(array, 1 if "layer" in axes else 0)
    if "head" in axes and not heads:
        array = _mean(array, -1)
    if "layer" not in axes:
        yield None, array
        return
    first = -1 if depth is not None and len(array) == depth + 1 else 0
    for place, values in enumerate(array):
        yield place + first, values


def mean_over_images(values: np.ndarray, *, fractions: bool = False) -> tuple[float, tuple[float, float] | None, int]:
    """The mean of [images], where it lies with 95 % for other images (Student's t; None of fewer than two), and of how
    many images it is: those without a value (NaN) count nowhere. Of `fractions` that all lie from 0 to 1 so does it."""
    values = values[np.isfinite(values)]
    count = len(values)
    if not count:
        return math.nan, None, 0
    value = float(values.mean())
    if count < 2:
        return value, None, count
    from scipy.stats import t

    reach = float(t.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count))
    low, high = value - reach, value + reach
    if fractions and values.min() >= 0 and values.max() <= 1:
        low, high = max(low, 0.0), min(high, 1.0)
    return value, (low, high), count


def _mean(array: np.ndarray, axis: int) -> np.ndarray:
    """The mean of what is finite, NaN where nothing is."""
    there = np.isfinite(array)
    count = there.sum(axis)
    return np.divide(np.where(there, array, 0).sum(axis), count, out=np.full(count.shape, np.nan), where=count > 0)


def read_analysis(path: str | Path) -> list[AnalysisRow]:
    """The rows of an `analysis.jsonl`, which `dump_rows` wrote.

    Raises:
        InputError: the file is missing, or a line is no such row; names it.
    """
    return read_records(path, "a row of an analysis", AnalysisRow)
