"""A model that an analysis looks into with the images that it is shown, and what that takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sightline.analysis.found import Analysis
from sightline.analysis.images import Size
from sightline.analysis.labels import SplitBatches
from sightline.analysis.measures.base import Measure
from sightline.data.batch import Batch
from sightline.evaluation.measure import RunInfo
from sightline.models import Model
from sightline.models.flops import forward_flops

Make = Callable[[Model], Measure]


@dataclass(frozen=True, eq=False)
class OpenedModel:
    """A model that is looked into: `sizes` at which, `images` by size, `measures` by name."""

    model: Model
    identity: RunInfo
    sizes: Sequence[Size]
    images: Mapping[Size, SplitBatches]
    measures: Mapping[str, Make]

    def patches(self, sizes: Sequence[Size] | None = None) -> int:
        """Of all images at some sizes; at all of its own unless given."""
        return sum(self._tokens(sizes))

    def operations(self, sizes: Sequence[Size] | None = None) -> int:
        """Of one forward pass of these."""
        return forward_flops(self.model.config, self._tokens(sizes))

    def _tokens(self, sizes: Sequence[Size] | None) -> Iterator[int]:
        for size in self.sizes if sizes is None else sizes:
            for batch in self.images[size].planned:
                yield from (image.tokens for image in batch)


@dataclass(frozen=True, eq=False)
class PlannedWork:
    """Batches, of which the bar is told when the next one is asked for."""

    batches: SplitBatches
    move: Callable[[int], None]

    def __iter__(self) -> Iterator[Batch]:
        for batch, planned in zip(self.batches, self.batches.planned, strict=True):
            yield batch
            self.move(sum(one.tokens for one in planned))


def with_origin(found: Analysis, origin: Mapping[str, Any], options: Mapping[str, Any]) -> Analysis:
    """The same with what its file says of where it is from: data, split, commit and the options of the measure."""
    told = {name: origin[name] for name in ("data", "split", "commit")}
    return replace(found, about={**found.about, **told, "options": dict(options)})
