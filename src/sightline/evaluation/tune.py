"""The search for an encoding's own extrapolation parameter at a resolution."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from sightline.data.source import Source
from sightline.data.views import View
from sightline.encodings.base import Knob
from sightline.evaluation.predict import predict_split
from sightline.models import Model
from sightline.tasks.base import Task


def halvings(candidates: int, images: int) -> list[tuple[int, slice]]:
    """How many candidates are asked about which of the images, one round after the other; no round is empty."""
    parts = {1: slice(0, None, 4), 2: slice(2, None, 4), 4: slice(1, None, 2)}
    return [(-(-candidates // share), part) for share, part in parts.items() if range(images)[part]]


def tuning_passes(knob: Knob, images: int) -> int:
    """How many images pass through the model while `tune_knob` searches with so many."""
    candidates = len(dict.fromkeys((knob.default, *knob.candidates)))
    return sum(count * len(range(images)[part]) for count, part in halvings(candidates, images))


@contextlib.contextmanager
def knob_at(model: Model, value: float | None) -> Iterator[None]:
    """Inside, the model's knob is at a value; None leaves it as it is. Afterwards it is as it was."""
    kept = None if value is None or model.knob is None else model.knob.value
    if value is not None:
        model.set_knob(value)  # raises, and says which encoding, where there is none
    try:
        yield
    finally:
        if kept is not None:
            model.set_knob(kept)


def tune_knob(
    model: Model,
    task: Task,
    source: Source,
    indices: Sequence[int],
    view: int | View,
    *,
    split: str = "minival",
    precision: str = "float32",
    advance: Callable[[int], None] | None = None,
) -> float:
    """The candidate with the lowest cross entropy on `split`, or what the task says instead; of equals, the one nearest
    to the default.

    LookHere (section 4) tunes its global slope so, on held-out training images, by their top-1, which takes many: of
    64 it cannot tell candidates apart that the cross entropy orders (docs/LOG.md). Successive halving (Jamieson and
    Talwalkar, 2016): all candidates are asked about a quarter of the images, the better half about another quarter,
    the better half of those about the rest. The model's knob is left as it was.

    Args:
        task: on the source.
        view: as `predict_split`.

    Raises:
        InputError: the encoding has no knob.
    """
    with knob_at(model, 0.0 if model.knob is None else model.knob.value):
        knob = model.knob
        assert knob is not None
        loss = dict.fromkeys((knob.default, *knob.candidates), 0.0)

        def order(candidate: float) -> tuple[float, float]:
            return loss[candidate], abs(candidate - knob.default)

        left = list(loss)
        for count, part in halvings(len(loss), len(indices)):
            left = sorted(left, key=order)[:count]
            for candidate in left:
                model.set_knob(candidate)
                for said in predict_split(
                    model, task, source, split, indices[part], view, precision=precision, advance=advance
                ):
                    total, _ = task.tuning_loss(said.outputs, said.batch.targets, said.batch.layout)
                    loss[candidate] += float(total)
        return min(left, key=order)
