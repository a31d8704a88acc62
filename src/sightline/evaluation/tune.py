"""The search for an encoding's own extrapolation parameter at a resolution."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from sightline.data.source import Source
from sightline.data.views import View
from sightline.encodings.base import Knob
from sightline.evaluation.predict import predict_split
from sightline.models import Model
from sightline.tasks.classification import Predictions, classification_loss


def halvings(candidates: int, images: int) -> list[tuple[int, slice]]:
    """How many candidates are asked about which of the images, one round after the other; no round is empty."""
    rounds = [(candidates, slice(0, None, 4)), (-(-candidates // 2), slice(2, None, 4))]
    rounds.append((-(-candidates // 4), slice(1, None, 2)))
    return [(count, part) for count, part in rounds if range(images)[part]]


def tuning_passes(knob: Knob, images: int) -> int:
    """How many images pass through the model while `tune_knob` searches with so many."""
    candidates = len(dict.fromkeys((knob.default, *knob.candidates)))
    return sum(count * len(range(images)[part]) for count, part in halvings(candidates, images))


def cross_entropy(said: Predictions, labels: np.ndarray | None = None) -> float:
    """The mean over the images of what was said; labels as in `tune_knob`."""
    right = said.labels if labels is None else labels[said.labels]
    return float(classification_loss(torch.from_numpy(said.logits), torch.from_numpy(right), "ce", 0.0))


def tune_knob(
    model: Model,
    source: Source,
    resolution: int | View,
    indices: Sequence[int],
    *,
    labels: np.ndarray | None = None,
    split: str = "minival",
    precision: str = "float32",
    advance: Callable[[int], None] | None = None,
) -> float:
    """The candidate with the lowest cross entropy on `split`; of equals, the one nearest to the default.

    LookHere (section 4) tunes its global slope so, on held-out training images, by their top-1, which takes many: of
    64 it cannot tell candidates apart that the cross entropy orders (docs/LOG.md). Successive halving (Jamieson and
    Talwalkar, 2016): all candidates are asked about a quarter of the images, the better half about another quarter,
    the better half of those about the rest. The model's knob is left as it was.

    Args:
        labels: the model's label of each class of the data, int64 [classes]; None where they are numbered alike.

    Raises:
        InputError: the encoding has no knob.
    """
    knob = model.knob
    if knob is None:
        model.set_knob(0.0)  # raises, and says which encoding
        raise AssertionError("unreachable")
    loss = dict.fromkeys((knob.default, *knob.candidates), 0.0)

    def order(candidate: float) -> tuple[float, float]:
        return loss[candidate], abs(candidate - knob.default)

    left = list(loss)
    try:
        for count, part in halvings(len(loss), len(indices)):
            left = sorted(left, key=order)[:count]
            for candidate in left:
                model.set_knob(candidate)
                said = predict_split(
                    model, source, split, resolution, indices[part], precision=precision, advance=advance
                )
                # The mean over no image, where none of a part can be read, is no number.
                loss[candidate] += cross_entropy(said, labels) * len(said.labels) if len(said.labels) else 0.0
    finally:
        model.set_knob(knob.value)
    return min(left, key=order)
