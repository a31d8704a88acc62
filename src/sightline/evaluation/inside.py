"""Which images an analysis is shown unless it is said, and at which sizes they can be."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.analysis.images import NATIVE, Size
from sightline.data.sizes import NATIVE_TOKENS
from sightline.data.source import Source
from sightline.errors import InputError
from sightline.evaluation.predict import is_rendered
from sightline.models import Model
from sightline.models.flops import forward_flops
from sightline.tokens.patchify import check_multiples

# Operations of the forward passes of an analysis unless images are counted: a minute of one core at 6e10 a second,
# where looking at all that can be measured takes ten times the pass.
_OPERATIONS = 60 * 6e10 / 10
MOST, LEAST = 32, 4
"""Images that are looked at, at most and at least, unless they are counted."""


def check_sizes(model: Model, source: Source, split: str, sizes: Sequence[Size]) -> None:
    """Refuse sizes of which the model makes no grid, before anything is read.

    Raises:
        InputError: the patch does not divide one (says the nearest), or images of no size of their own are asked for
            at it.
    """
    for size in sizes:
        if size == NATIVE:
            if is_rendered(source, split):
                raise InputError(
                    f"resolution native: {source.name} has images of no size of their own (expected: sizes)"
                )
            continue
        if model.config.fit == "exact":
            check_multiples("resolution {}", size, model.config.patch_size)
        model.config.grid_of(size)


def usual_images(models: Sequence[tuple[Model, Sequence[Size]]], length: int | None) -> int:
    """How many images are looked at unless they are counted: what takes about a minute of one core for all models at
    all of their sizes, at least 4 and at most 32, and no more than there are."""
    each = 0
    for model, sizes in models:
        cells = [NATIVE_TOKENS if size == NATIVE else model.config.grid_of(size).cells for size in sizes]
        each += forward_flops(model.config, cells)
    count = max(LEAST, min(MOST, int(_OPERATIONS / max(each, 1))))
    return count if length is None else min(count, length)
