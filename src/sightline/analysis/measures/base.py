"""What a measure of a model's inside is: it is shown a pass, part by part, and gives arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from sightline import registry
from sightline.analysis.attention_blocks import AttentionBlock
from sightline.data.batch import Batch
from sightline.errors import InputError, require_known
from sightline.models import Model
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment


@dataclass(frozen=True)
class MeasuredQuantity:
    """What one array says.

    Attributes:
        axes: a name for each axis of the array, of `image`, `layer`, `head`, `row`, `col` and a measure's own.
        unit: "cells", "nats", "fraction", "" for a plain number.
        words: what it is, to be read beside a figure: whether prefix tokens are in its rows and columns, and what it
            means under a mask.
        figure: how it is drawn: numbers by layer as in the papers (`layers`), maps (`maps`), "" where it is not.
    """

    axes: tuple[str, ...]
    unit: str
    words: str
    figure: str = ""


class Measure(ABC):
    """Something that is measured of a model at one size, in a file of its own; one object measures one size.

    A pass shows it, batch after batch: `begin`, then for each layer its attention by blocks (`attention`) and its
    output (`tokens`), then `end`. What is not overridden costs nothing: no attention is computed again where nobody
    looks at it.

    Attributes:
        name: as it is asked for.
        quantities: the arrays that it gives, by name.
        last_layer_first: the layers are shown from the last to the first, after the pass; queries and keys of all
            layers are kept for it.
        by_default: measured also where nothing is asked for by name; not what takes many passes, or very large arrays.
        supports_windows: it asks nothing of the rows of attention but sums, and is right where a layer attends inside
            windows of an image; others refuse such a layer.
        needs: what batches must say of their images (`analysis.labels`): `label`, `pixels`.
    """

    name: ClassVar[str]
    quantities: ClassVar[Mapping[str, MeasuredQuantity]]
    last_layer_first: ClassVar[bool] = False
    by_default: ClassVar[bool] = True
    supports_windows: ClassVar[bool] = False
    needs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Model) -> None:
        self.model = model

    @classmethod  # noqa: B027
    def check(cls, model: Model) -> None:
        """Refuse, before anything is measured, a model of which it cannot be.

        Raises:
            InputError: says what is missing.
        """

    def begin(self, batch: Batch) -> None:  # noqa: B027
        """A batch is coming: images of one layout, with what is said of them."""

    def queries(self, segment: Segment, prefix: int) -> Sequence[int] | None:
        """Which slots of an image it wants the attention of, prefix tokens first; None for all. It may be shown more,
        where another measure wants more."""
        return None

    def attention(self, block: AttentionBlock) -> None:  # noqa: B027
        """Some queries' attention; `block.layer` is None for attention pooling."""

    def tokens(self, layer: int, tokens: Tensor, layout: TokenLayout) -> None:  # noqa: B027
        """The output of a layer [rows, slots, dim], before the final norm; layer -1 is what enters the first."""

    def end(self, tokens: Tensor, layout: TokenLayout) -> None:  # noqa: B027
        """The batch is through: its tokens after the final norm [rows, slots, dim]."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """What was measured, one array for each of `quantities` that the model has; of no image, arrays of none."""

    @classmethod
    def sees_attention(cls) -> bool:
        """Whether it looks at attention."""
        return cls.attention is not Measure.attention

    @classmethod
    def sees_tokens(cls) -> bool:
        """Whether it looks at the layers' outputs."""
        return cls.tokens is not Measure.tokens


class PerImage:
    """Sums by image, layer and head over the blocks of a pass: the arrays [images, layers, heads] of a measure.

    An image has a row as soon as it is shown; the order is that of the batches.
    """

    def __init__(self, *shape: int) -> None:
        self._shape = shape
        self._batches: list[np.ndarray] = []

    def begin(self, images: int) -> None:
        """A batch of so many images is coming."""
        self._batches.append(np.zeros((images, *self._shape)))

    def add(self, images: Tensor, at: Any, values: Tensor) -> None:
        """Add to what some images of the batch have, at [`at`] (a layer, say): values [images, ...]."""
        index = images.cpu().numpy()
        np.add.at(self._batches[-1], (index, at), values.detach().double().cpu().numpy())

    @property
    def values(self) -> np.ndarray:
        """float64 [images, ...]."""
        return np.concatenate([np.zeros((0, *self._shape)), *self._batches])


def measure_classes() -> dict[str, type[Measure]]:
    """Every measure by its name, from the files of `analysis/measures/` and plug-ins."""
    return registry.classes(Measure, __package__ or "")


def measures_by_name(names: Sequence[str]) -> list[type[Measure]]:
    """The measures of these names, in this order.

    Raises:
        InputError: there is none of that name (names the nearest), or one is asked for twice.
    """
    found = measure_classes()
    for name in names:
        require_known("measure", name, found)
    if len(set(names)) < len(names):
        raise InputError(f"measures {', '.join(names)}: one is asked for twice")
    return [found[name] for name in names]
