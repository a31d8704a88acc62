"""The parts of a suite as evaluation sets of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sightline.data.sizes import View
from sightline.errors import InputError
from sightline.evaluation.imagenet import numbers_of
from sightline.evaluation.measure import default_image_count
from sightline.evaluation.preparations.base import preparation_class
from sightline.evaluation.suites.base import EvalSet
from sightline.models import ViTConfig


def map_classes(model: ViTConfig, parts: Sequence[EvalSet], suite: str) -> list[EvalSet]:
    """The parts of a suite in the model's own numbers of classes, after it was made sure that its head is of these.

    A model that does not know the names of ImageNet's classes numbers them as ImageNet does.

    Raises:
        InputError: the head has other classes, or another number of them; says both.
    """
    made, known, count = [], model.class_names, model.num_classes
    for part in parts:
        classes = len(part.source.classes)
        numbers = numbers_of(known, count, suite) if part.imagenet else None
        if not part.imagenet and model.has_classifier and known is None and classes and count != classes:
            raise InputError(f"suite {suite}: has {classes:,} classes, the model's head {count:,}")
        scorings = part.scorings if numbers is None else tuple(one.renumbered(numbers) for one in part.scorings)
        # Words for the classes that `numbers_of` took for ImageNet's.
        by_place = part.imagenet and known is not None and set(known) != set(part.source.classes)
        made.append(replace(part, scorings=scorings, by_place=by_place))
    return made


def prepare_sets(
    model: ViTConfig,
    parts: Sequence[EvalSet],
    preparation: str,
    views: Sequence[int | View],
    images: int | None = None,
    max_pixels: int | None = None,
) -> list[EvalSet]:
    """Parts of a suite as they are measured.

    Args:
        preparation: its name.
        views: what is asked for; the preparation may show it in another way.
        images: at most so many of each, spread over classes; 2,000 of a drawn one unless given.
        max_pixels: of the largest image that is read.

    Raises:
        InputError: there is no such preparation, or it does not fit the model.
    """
    kind, made = preparation_class(preparation), []
    shown = tuple(dict.fromkeys(kind.view(view, model.patch_size) for view in views))
    for part in parts:
        part = part if images is None else part.limited(images)
        part = part.shown_by(kind.of(model, careful=part.careful))
        source = part.source if max_pixels is None else part.source.with_view(max_pixels=max_pixels)
        most = default_image_count(source) if images is None else images
        made.append(replace(part, source=source, preparation=preparation, views=shown, images=most))
    return made
