"""The numbers of an analysis as rows, a value for each layer and size. No torch here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sightline.results.analysis import AnalysisRow, Size
from sightline.results.rows import FRACTION

# Over these a number is averaged; what has other axes is a picture, and no number a layer.
_AVERAGED = {"image", "layer", "head"}
# In place of a layer: the mean over all that a model has, without what enters the first.
_ALL = -2
# What a measure adds to the name of a quantity of all images together: where its 95 % begin and end.
_ENDS = ("_low", "_high")
_UNKNOWN = {"task": "", "data": "", "split": "", "train_resolution": 0, "seed": 0, "commit": "", "hardware": ""}
_OF_MODEL = ("depth", "heads", "patch_size")


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


def other_of(found: AnalysisLike) -> str:
    """With whose layers those of the model were compared; "" of what is of one model."""
    return str(found.about.get("other", ""))


def rows_of(found: AnalysisLike, **origin: Any) -> list[AnalysisRow]:
    """The rows of what one measure found in one model: of every quantity that has images, layers and heads alone.

    Args:
        **origin: the fields of `ModelRow` but for `run` and `encoding`; what is left out is not known.
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
                layers.append((_ALL, _mean(np.stack([values for layer, values in layers if layer != -1]), 0)))
            said = told | {"metric": name, "unit": quantity.unit, "words": quantity.words, "figure": quantity.figure}
            said["size"] = None if size == (0, 0) else size
            for layer, values in layers:
                value, interval, count = mean_over_images(values, fractions=quantity.unit == FRACTION)
                if not math.isfinite(value):
                    continue
                if "image" not in quantity.axes:
                    interval, count = ends.get(layer), images
                said |= {"value": value, "count": count, "interval": interval, "of_all_layers": layer == _ALL}
                said["slices"] = {} if layer is None or layer == _ALL else {"layer": layer}
                rows.append(AnalysisRow(**said))
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
