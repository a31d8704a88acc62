"""CKA of each two of the models of an analysis, on the same images as each of them reads these."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from sightline.analysis.found import Analysis
from sightline.analysis.images import Size
from sightline.analysis.measures.cka import LEAST, Cka, cka
from sightline.errors import InputError
from sightline.runs.analysis_work import OpenedModel, PlannedWork, with_origin
from sightline.tokens.grid import Grid

MOST = 4
"""Models that are compared two by two: so many have six pairs, and each is two passes more."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two models, the `sizes` at which both are shown the images, and the options of CKA."""

    one: OpenedModel
    other: OpenedModel
    sizes: Sequence[Size]
    options: Mapping[str, Any]

    def patches(self) -> int:
        """That both passes go over."""
        return self.one.patches(self.sizes) + self.other.patches(self.sizes)

    def operations(self) -> int:
        """Of both passes."""
        return self.one.operations(self.sizes) + self.other.operations(self.sizes)


def pairs_of(opened: Sequence[OpenedModel], options: Mapping[str, Any], count: int) -> list[Pair]:
    """Each two of the first models of which CKA is taken, at each size that both take; what is left out is named on
    stderr.

    Args:
        options: of CKA. Of patches, models must make the same grid of each image at a size.
        count: of images.
    """
    taken = [one for one in opened if Cka.name in one.measures]
    if len(taken) < 2:
        return []
    of_patches = options.get("of") == "patches"
    if count < LEAST and not of_patches:
        _say(f"models with each other: {count} image{'s' if count > 1 else ''} (expected {LEAST} or more)")
        return []
    if len(taken) > MOST:
        _say(f"models with each other beyond the first {MOST} of {len(taken)}")
    pairs = []
    for one, other in combinations(taken[:MOST], 2):
        sizes = [size for size in one.sizes if size in other.sizes]
        alike = "size"
        if sizes and of_patches:
            sizes, alike = [size for size in sizes if _grids(one, size) == _grids(other, size)], "size of one grid"
        if sizes:
            pairs.append(Pair(one, other, sizes, options))
        else:
            _say(f"{one.identity.run} with {other.identity.run}: no {alike} that both take")
    return pairs


def compared(pairs: Sequence[Pair], origin: Mapping[str, Any], move: Callable[[int], None]) -> list[Analysis]:
    """What `cka` finds of each pair.

    Args:
        origin: what rows and files say of where they are from.
        move: moves the bar on by so many patches.
    """
    found = []
    for pair in pairs:
        ours, theirs = (
            {size: PlannedWork(one.images[size], move) for size in pair.sizes} for one in (pair.one, pair.other)
        )
        named: dict[str, str] = {"called": pair.one.identity.run, "other_called": pair.other.identity.run}
        try:
            one = cka(pair.one.model, pair.other.model, ours, others=theirs, **named, **pair.options)
        except InputError as error:
            # Of the images too few could be read: the rest of an analysis stands.
            _say(f"{' with '.join(named.values())}: {str(error).removeprefix(f'{Cka.name} ')}")
        else:
            found.append(with_origin(one, origin, pair.options))
    return found


def _grids(one: OpenedModel, size: Size) -> dict[int, Grid]:
    """Of each image by its number."""
    planned = one.images[size].planned
    return {image.index: one.model.config.grid_of(image.image_size) for batch in planned for image in batch}


def _say(what: str) -> None:
    print(f"left out: {Cka.name} of {what}", file=sys.stderr)
