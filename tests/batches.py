"""Batches of a source, as the loader makes them of a plan: for tests that need some, or what a model gives of them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sightline.data.batch import Batch, collate_packed, collate_uniform
from sightline.data.loader import Collator, SampleSpec, load_batches, uniform
from sightline.data.packing import pack_window
from sightline.data.sizes import View
from sightline.data.source import Source
from sightline.evaluation.predict import predict_split
from sightline.models import ViTConfig
from sightline.tasks.base import task_of
from sightline.tasks.classification import Classification, ClassificationOptions
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import ImagePatchifier, Patchifier, unpatchify


def labelling(classes: int, **options: Any) -> Classification:
    """Classification of so many classes without names; `options` are fields of its own."""
    return Classification(ViTConfig(num_classes=classes), ClassificationOptions(**options))


def uniform_batches(
    source: Source,
    split: str,
    *,
    indices: Iterable[int],
    image_size: tuple[int, int],
    batch_size: int,
    epoch: int = 0,
    patch_size: int = 4,
    **options: Any,
) -> Iterator[Batch]:
    """Batches of one size in that order, the last one smaller where it must be; `options` as `packed_batches`."""
    tokens = image_size[0] // patch_size * (image_size[1] // patch_size)
    planned = uniform(indices, image_size, tokens, batch_size, epoch)
    return packed_batches(source, split, planned, patch_size=patch_size, arrange=collate_uniform, **options)


def packed_batches(
    source: Source,
    split: str,
    planned: Iterable[Sequence[SampleSpec]],
    *,
    patch_size: int = 4,
    padded: Sequence[int] | None = None,
    workers: int = 0,
    pin: bool = False,
    **options: Any,
) -> Iterator[Batch]:
    """The batches of a plan, one row each; `options` are other fields of `Collator`, as `seed`."""
    options = {"arrange": functools.partial(collate_packed, padded=padded), **options}
    rows = ImagePatchifier(Patchifier(patch_size), mean=(0.5, 0.5, 0.5))
    make = Collator(source, split, rows, labelling(len(source.classes)).targets, **options)
    return load_batches(make, planned, workers=workers, pin=pin)


def pack_stream(lengths: Iterable[int], capacity: int, *, look_ahead: int = 1024, **options: Any) -> Iterator[Any]:
    """(number, tokens) of the images of each sequence of a stream, of which `look_ahead` images are known at a time;
    `options` are those of `pack_window`."""
    stream, known, seen, last = enumerate(lengths), {}, 0, False
    while not last:
        fresh = dict(islice(stream, look_ahead))
        known, last = known | fresh, not fresh
        for numbers in pack_window(known, capacity, seen=seen, last=last, **options):
            yield tuple((number, known.pop(number)) for number in numbers)
        seen += len(fresh)


def images_of(batch: Batch, patch_size: int = 4) -> Tensor:
    """The images of a batch of one size: [images, 3, height, width], uint8 as they were read."""
    (segment,) = batch.layout.segments
    return unpatchify(batch.inputs, segment.grid, patch_size)


def kept_of(batch: Batch) -> list[Tensor]:
    """For each image of a packed batch int64 the row-major numbers of the patches that are there."""
    return [segment.indices[0] for segment in batch.layout.segments]


def same(one: Batch, other: Batch) -> bool:
    """Whether two batches are equal in all but what is left out of them."""
    rows = [
        [(one.rows, one.num_prefix_tokens, one.padding), [segment.grid for segment in one.segments]]
        for one in (one.layout, other.layout)
    ]
    return (
        rows[0] == rows[1]
        and torch.equal(one.inputs, other.inputs)
        and one.inputs.dtype == other.inputs.dtype
        and all(torch.equal(a, b) for a, b in zip(kept_of(one), kept_of(other), strict=True))
        and one.targets.keys() == other.targets.keys()
        and all(torch.equal(one.targets[name], other.targets[name]) for name in one.targets)
        and torch.equal(one.indices, other.indices)
        and (one.names, one.slices) == (other.names, other.slices)
    )


def labelled(labels: Any, slices: Any = None) -> Batch:
    """A batch of which no more is known than what is said of its images."""
    count = len(labels)
    names, slices = [str(number) for number in range(count)], slices or [{}] * count
    targets = {"labels": torch.tensor(np.asarray(labels, np.int64))}
    return Batch(torch.zeros(1, 0, 0), TokenLayout.packed([]), targets, torch.arange(count), names, slices)


def said(model: Any, source: Source, split: str, indices: Sequence[int], view: int | View, **options: Any) -> Any:
    """What a model gives for a split in one piece, in the order of `indices`: `logits` and `labels` as the data numbers
    its classes, `names`, `slices`, `tokens`."""
    task, parts = task_of(model), []
    for one in predict_split(model, task, source, split, indices, view, **options):
        of = one.batch.indices.tolist(), one.outputs.numpy(), one.batch.targets["labels"].tolist()
        parts += zip(*of, one.batch.names, one.batch.slices, [one.tokens] * len(one.batch), strict=True)
    parts.sort(key=lambda part: list(indices).index(part[0]))
    numbers, logits, labels, names, slices, tokens = zip(*parts, strict=True)
    assert set(numbers) <= set(indices)
    return SimpleNamespace(
        logits=np.stack(logits), labels=np.array(labels), names=names, slices=slices, tokens=np.array(tokens)
    )
