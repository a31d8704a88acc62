"""The images of a data set as an analysis is shown them: batches at each size, with what is said of the images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sightline.analysis.flops import forward_flops
from sightline.analysis.images import NATIVE, TOKENS_A_BATCH, Size
from sightline.data.batch import Batch, stacked
from sightline.data.loader import Maker, Planned, load, uniform
from sightline.data.source import Example, Source
from sightline.data.views import View
from sightline.errors import InputError
from sightline.evaluation.measure import some_images
from sightline.evaluation.predict import is_drawn, plan_split
from sightline.models import Model
from sightline.patchify import check_multiples
from sightline.tasks.base import Task, check_provided, task_of

# Operations of the forward passes of an analysis unless images are counted: a minute of one core at 6e10 a second,
# where looking at all that can be measured takes eight times the pass.
_OPERATIONS = 60 * 6e10 / 8
MOST, LEAST = 32, 4
"""Images that are looked at, at most and at least, unless they are counted."""


@dataclass(frozen=True, eq=False)
class SplitAt:
    """Images of a split at one size, read anew each time that they are gone through, all of a batch alike.

    Attributes:
        targets: what a task makes of the targets of some examples.
    """

    model: Model
    source: Source
    split: str
    size: Size
    planned: Sequence[Sequence[Planned]]
    targets: Any
    workers: int = 0

    def __iter__(self) -> Iterator[Batch]:
        config, native = self.model.config, self.size == NATIVE
        source = self.source.prepared(config.interpolation, None if native else config.crop)
        prefix = self.model.num_prefix_tokens
        make = Maker(source, self.split, self.model.image_rows, self.targets, stacked, prefix, seeded=False)
        return load(make, self.planned, workers=self.workers)


def images_at(
    model: Model, source: Source, split: str, sizes: Sequence[Size], images: int, task: Task | None, workers: int = 0
) -> dict[Size, SplitAt]:
    """So many images of a split, spread over it, at each size.

    Args:
        sizes: (height, width) in pixels; `NATIVE` shows each at its own, with at most 1024 patches.
        task: on the source, which makes targets; None makes none.

    Raises:
        InputError: there is no such split, or as `check_sizes`.
    """
    source.check(split)
    check_sizes(model, source, split, sizes)
    chosen = some_images(source, split, images)
    found = {}
    for size in sizes:
        if size == NATIVE:
            planned = plan_split(model, source, split, chosen, View("native"))
        else:
            planned = uniform(chosen, size, model.config.grid_of(size).cells, len(chosen) or 1)
        # Queries and keys of all layers may be kept for a batch: it is smaller than where nothing is.
        planned = [part for batch in planned for part in _parts(batch)]
        found[size] = SplitAt(model, source, split, size, planned, _targets(task), workers)
    return found


def _parts(batch: Sequence[Planned]) -> Iterator[Sequence[Planned]]:
    step = max(1, TOKENS_A_BATCH // max(1, batch[0].tokens)) if batch else 1
    return (batch[start : start + step] for start in range(0, len(batch), step))


def _targets(task: Task | None) -> Any:
    return _nothing if task is None else task.targets


def _nothing(_: Sequence[Example]) -> Mapping[str, Any]:
    return {}


def check_sizes(model: Model, source: Source, split: str, sizes: Sequence[Size]) -> None:
    """Refuse sizes of which the model makes no grid, before anything is read.

    Raises:
        InputError: the patch does not divide one (says the nearest), or images of no size of their own are asked for
            at it.
    """
    for size in sizes:
        if size == NATIVE:
            if is_drawn(source, split):
                raise InputError(
                    f"resolution native: {source.name} has images of no size of their own (expected: sizes)"
                )
            continue
        if model.config.fit == "exact":
            check_multiples("resolution {}", size, model.config.patch_size)
        model.config.grid_of(size)


def targets_of(model: Model, source: Source, data: str) -> tuple[Task | None, str]:
    """The task of a model on a data set whose images it is shown, or None and why their targets say nothing to it."""
    try:
        task = task_of(model)
        check_provided(type(task), source)
        return task.on(source, data), ""
    except InputError as error:
        return None, str(error)


def usual_images(models: Sequence[tuple[Model, Sequence[Size]]], length: int | None) -> int:
    """How many images are looked at unless they are counted: what takes about a minute of one core for all models at
    all of their sizes, at least 4 and at most 32, and no more than there are."""
    each = 0
    for model, sizes in models:
        cells = [1024 if size == NATIVE else model.config.grid_of(size).cells for size in sizes]
        each += forward_flops(model.config, cells)
    count = max(LEAST, min(MOST, int(_OPERATIONS / max(each, 1))))
    return count if length is None else min(count, length)
