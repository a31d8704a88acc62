"""The search for an encoding's own extrapolation parameter at a resolution."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from sightline.data.source import Source
from sightline.data.views import View
from sightline.encodings.base import Knob
from sightline.evaluation.predict import plan_split, predict_split
from sightline.models import Model
from sightline.ranks import ALONE, Ranks
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
    ranks: Ranks = ALONE,
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
        ranks: that search together, each a part of the images; each must call it, and has the same answer.

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
                with ranks.agreeing():
                    totals = list(_losses(model, task, source, split, indices[part], view, precision, advance, ranks))
                # Rounded once, so that the sum is the same for any number of ranks.
                loss[candidate] += math.fsum(itertools.chain(*ranks.gathered(totals)))
        return min(left, key=order)


def _losses(
    model: Model,
    task: Task,
    source: Source,
    split: str,
    indices: Sequence[int],
    view: int | View,
    precision: str,
    advance: Callable[[int], None] | None,
    ranks: Ranks,
) -> Iterator[float]:
    """The loss of each batch that is this rank's."""
    mine = None
    if ranks.size > 1:
        planned = plan_split(model, source, split, indices, view)
        mine = planned[ranks.rank :: ranks.size]
    asked = advance if mine is None else None
    for said in predict_split(
        model, task, source, split, indices, view, precision=precision, advance=asked, planned=mine
    ):
        if said.outputs is not None:
            yield float(task.tuning_loss(said.outputs, said.batch.targets, said.batch.layout)[0])
    if mine is not None and advance is not None:
        advance(len(indices))
