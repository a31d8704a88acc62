"""Batches of a data set's split that say what is on their images, in a model's own numbers of classes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from sightline.analysis.images import NATIVE, TOKENS_A_BATCH, Size
from sightline.data.batch import Batch, collate_uniform
from sightline.data.loader import Collator, SampleSpec, load_batches, uniform
from sightline.data.pack_plan import group_by_grid
from sightline.data.preprocessing import preprocessing
from sightline.data.sizes import View
from sightline.data.source import Example, Source
from sightline.errors import InputError
from sightline.models import Model, ViTConfig
from sightline.tasks.maps import covered_size

OTHER = -1
"""A pixel of something that is no class: the background."""
UNSAID = -2
"""A pixel of which nothing is said."""


@dataclass(frozen=True, eq=False)
class LabelMap:
    """What examples of a data set say, in a model's numbers: a targets maker (`Collator(targets=)`).

    Attributes:
        labels: the model's number of each of the source's classes, int64; None where they are not the model's.
        pixels: the model's number of each of the source's classes of pixels, `OTHER` for the background; None where
            they are not the model's.
        missing: by `label` and `pixels`, why there is none: a line for the user.
    """

    labels: np.ndarray | None
    pixels: np.ndarray | None
    missing: Mapping[str, str]

    def __call__(self, examples: Sequence[Example]) -> Mapping[str, Any]:
        """`label`: int64 [images]; `pixels`: of each image int32 [height, width], the number of a class, `OTHER` or
        `UNSAID`, at the labels' own size; `pixel_classes`: int64, rising, the model's numbers of the classes that
        pixels may have; `seen`: (height, width) in pixels of each picture before it was fitted to patches; `missing`:
        as above. What is not known of this data set is not there."""
        said: Any = [example.target for example in examples]
        found: dict[str, Any] = {"seen": [example.image.shape[-3:-1] for example in examples], "missing": self.missing}
        if self.labels is not None:
            found["label"] = torch.from_numpy(self.labels[[one.label for one in said]].reshape(-1))
        if self.pixels is not None:
            # Any number beyond the classes says nothing, as `IGNORE` does and ImageNet-S's 1000.
            numbers = np.append(self.pixels, UNSAID).astype(np.int32)
            last = len(self.pixels)
            found["pixels"] = [torch.from_numpy(numbers[np.minimum(one.pixels, last)]) for one in said]
            found["pixel_classes"] = torch.from_numpy(np.unique(self.pixels[self.pixels >= 0]))
        return found


def label_map(model: Model, source: Source, data: str = "") -> LabelMap:
    """How a model numbers what a data set says.

    Classes are the same by their names; where the model has no names for its own, by their places, if it has as many.
    Pixels of a first class called background are of none; each other must be a class of the model.

    Args:
        data: what the data set is called, for messages.
    """
    data, known, missing = data or f"{source.name}:{source.task}", model.config.class_names, {}
    numbers: dict[str, int] = {} if known is None else {name: number for number, name in enumerate(known)}
    labels = pixels = None
    if "label" not in source.provides:
        missing["label"] = f"data {data}: says no class of its images"
    elif known is None and len(source.classes) != model.num_classes:
        missing["label"] = f"data {data}: has {len(source.classes)} classes, the model's head {model.num_classes}"
    elif known is not None and (strange := [name for name in source.classes if name not in numbers]):
        missing["label"] = (
            f"data {data}: its class {strange[0]!r} is none of the model's {len(known)} ({known[0]!r}, ...)"
        )
    else:
        labels = np.array([numbers.get(name, place) for place, name in enumerate(source.classes)], np.int64)
    if labels is not None:
        numbers |= dict(zip(source.classes, labels.tolist(), strict=True))
    things = source.pixel_classes[1:] if source.pixel_classes[:1] == ("background",) else source.pixel_classes
    if "pixels" not in source.provides or not things:
        missing["pixels"] = f"data {data}: has no masks (the class of each pixel)"
    elif strange := [name for name in things if name not in numbers]:
        missing["pixels"] = f"data {data}: its masks show {strange[0]!r}, which is no class of the model"
    else:
        first = [OTHER] * (len(source.pixel_classes) - len(things))
        pixels = np.array([*first, *(numbers[name] for name in things)], np.int64)
    return LabelMap(labels, pixels, missing)


def split_batches(
    model: Model,
    source: Source,
    split: str,
    indices: Sequence[int],
    size: Size | View,
    *,
    data: str = "",
    workers: int = 0,
) -> SplitBatches:
    """The images of a split at one size, each once, with what is said of them as `LabelMap`; read anew each time that
    they are gone through, prepared as `evaluate` prepares them.

    Args:
        indices: of the images, in their order; those of several sizes come by their grids.
        size: (height, width) in pixels, `NATIVE`, or a view of images at their own aspect.
        data: what the data set is called, for messages.
        workers: processes that read ahead.

    Raises:
        InputError: no such split, or a size that the model does not take; before an image is read.
    """
    source.check(split)
    config = model.config
    if size == NATIVE:
        size = View("native")
    patch, planned = config.patch_size, list[list[SampleSpec]]()
    if isinstance(size, View):
        source = preprocessing(model).prepared(source, whole=True)
        by_size = {
            (grid.rows * patch, grid.cols * patch): members
            for grid, members in group_by_grid(source, split, indices, size, patch).items()
        }
    else:
        source, by_size = preprocessing(model).prepared(source), {size: indices}
    for image_size, members in by_size.items():
        cells = config.grid_of(image_size).cells
        planned += uniform(members, image_size, cells, max(1, TOKENS_A_BATCH // cells))
    targets = label_map(model, source, data)
    make = Collator(source, split, model.image_rows, targets, collate_uniform, model.num_prefix_tokens)
    return SplitBatches(make, planned, workers)


@dataclass(frozen=True, eq=False)
class SplitBatches:
    """Batches as they were planned, read anew each time that they are gone through."""

    make: Collator
    planned: Sequence[Sequence[SampleSpec]]
    workers: int

    def __iter__(self) -> Iterator[Batch]:
        return load_batches(self.make, self.planned, workers=self.workers)

    def ends(self) -> list[Batch]:
        """An image of the smallest grid, and one of the largest where there are several: the first ones that can be
        read, each a batch. What cannot be done with all images is seen with these."""
        found = []
        for size in dict.fromkeys(batch[0].image_size for batch in (*self.planned[:1], *self.planned[-1:])):
            alone = (self.make([one]) for batch in self.planned for one in batch if one.image_size == size)
            found += itertools.islice((batch for batch in alone if len(batch)), 1)
        return found


def required(batch: Batch, what: str, measure: str) -> Any:
    """What a batch says of its images.

    Args:
        what: `label` or `pixels`.

    Raises:
        InputError: it does not; says why, and of which data set.
    """
    if what in batch.targets:
        return batch.targets[what]
    words = {"label": "the class of each image", "pixels": "masks"}[what]
    why = batch.targets.get("missing", {}).get(what, f"the images come without {words} (expected a data set that has)")
    raise InputError(f"{measure}: {why}")


class InPatches(NamedTuple):
    """How many pixels of which class lie in each patch of an image: int64 [entries] each.

    `patches`: the place of a patch among those of the image that are there; `classes`: the model's number, or `OTHER`;
    `counts`: of pixels. Pixels of which nothing is said, or that the model does not look at, are in no entry.
    """

    patches: np.ndarray
    classes: np.ndarray
    counts: np.ndarray


def in_patches(batch: Batch, config: ViTConfig) -> list[InPatches]:
    """Of each image of a batch: a pixel belongs to the patch in which its centre lies, as if each patch were enlarged
    to its pixels (nearest).

    Args:
        batch: with `pixels`; config: of the model.
    """
    layout, targets = batch.layout, batch.targets
    images = [(segment, row) for row in range(layout.rows) for segment in layout.segments]
    sizes = targets.get("seen") or [tuple(one.shape) for one in targets["pixels"]]
    found = []
    for labels, (segment, row), (height, width) in zip(targets["pixels"], images, sizes, strict=True):
        grid, all_rows = segment.grid.planar("masks"), segment.indices.cpu().numpy()
        # Of each cell the place among the patches that are there; -1 of what is not.
        kept, place = all_rows[min(row, len(all_rows) - 1)], np.full(grid.cells + 1, -1)
        place[kept] = np.arange(len(kept))
        pixels, seen = labels.cpu().numpy().astype(np.int64), (height, width)
        covered = covered_size(config, seen)
        rows, cols = (_cells(*sides) for sides in zip(pixels.shape, seen, covered, grid, strict=True))
        inside = (rows[:, None] < grid.rows) & (cols < grid.cols)
        patches = place[np.where(inside, rows[:, None] * grid.cols + cols, grid.cells)]
        there = (patches >= 0) & (pixels != UNSAID)
        # Classes from -1 on, as one number with their patch.
        kinds = int(pixels.max(initial=0)) + 2
        both, counts = np.unique(patches[there] * kinds + pixels[there] + 1, return_counts=True)
        found.append(InPatches(both // kinds, both % kinds - 1, counts))
    return found


def _cells(count: int, seen: int, over: int, cells: int) -> np.ndarray:
    """In which of `cells`, which cover `over` pixels, each of `count` lines lies that show `seen` pixels: int64
    [count], `cells` and more beyond them. In whole numbers: centres on a border lie in the next cell."""
    return (2 * np.arange(count) + 1) * seen * cells // (2 * count * over)
