"""The search for what an encoding lets be chosen at a resolution: its knob, and how its tables are resized."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from sightline.data.sizes import View
from sightline.data.source import Source
from sightline.distributed.ranks import SINGLE_RANK, Ranks
from sightline.encodings.base import PositionEncoding
from sightline.encodings.create import components
from sightline.encodings.stages import StagedEncoding
from sightline.errors import InputError
from sightline.evaluation.measures.base import MeasureInput
from sightline.evaluation.parts import WorkFolder
from sightline.evaluation.predict import BatchOutputs
from sightline.models import Model
from sightline.published import paper
from sightline.tasks.base import Task

Kind = Literal["knob", "rule"]
KINDS: tuple[Kind, ...] = ("knob", "rule")


@dataclass(frozen=True)
class Search:
    """What is searched.

    Attributes:
        kind: `knob`, an encoding's own parameter, or `rule`, how its tables are made for another grid.
        name: the configuration key.
        default: as it was configured.
        candidates: all that are tried, the default first.
    """

    kind: Kind
    name: str
    default: float | str
    candidates: tuple[float | str, ...]

    def distance(self, value: float | str) -> float:
        """From the default: of equals the nearest is taken, and of names the first."""
        if isinstance(value, str) or isinstance(self.default, str):
            return self.candidates.index(value)
        return abs(value - self.default)

    def record(self, value: float | str, split: str, images: int, criterion: str) -> dict[str, Any]:
        """What a row says of the search that found `value`."""
        return {
            "what": self.kind, "name": self.name, "value": value, "default": self.default,
            "candidates": list(self.candidates), "split": split, "images": images, "criterion": criterion,
        }  # fmt: skip


def searches_of(encoding: PositionEncoding, kinds: Sequence[str], view: int | View, patch_size: int) -> list[Search]:
    """What is searched at a size or view, in this order: each at the best values of those before it.

    A knob's candidates are its encoding's and where LookHere's authors arrived at this ratio of test size to training
    size (table 9, between its sizes linear, times our default over theirs). Of rules there is one candidate on the
    training grid, on which all are alike.

    Args:
        kinds: some of `KINDS`.
    """
    found = []
    if "knob" in kinds and (knob := encoding.knob) is not None:
        begun = printed_start(encoding, view, patch_size)
        values = {knob.default: None, **({} if begun is None else {begun: None}), **dict.fromkeys(knob.candidates)}
        found.append(Search("knob", knob.name, knob.default, tuple(values)))
    trained = encoding.shape.train_grid
    same = isinstance(view, int) and all(side * patch_size == view for side in trained)
    if "rule" in kinds and (rule := encoding.resize_rule) is not None:
        names = (rule.default, *(() if same else rule.candidates))
        found.append(Search("rule", rule.name, rule.default, tuple(dict.fromkeys(names))))
    return found


def printed_start(encoding: PositionEncoding, view: int | View, patch_size: int) -> float | None:
    """The knob that LookHere's table 9 gives for a ratio of sizes; None where it gives none, or below its sizes.

    Args:
        view: of `native`, whose images are of any size, there is none.
    """
    part = next((one for one in components(encoding) if one.knob is not None), None)
    # Of heads that look over the whole image, which those of windows do not.
    if part is None or isinstance(encoding, StagedEncoding) or (isinstance(view, View) and view.kind == "native"):
        return None
    patches = view.patches if isinstance(view, View) else (view / patch_size) ** 2
    ratio, knob = math.sqrt(patches / part.shape.train_grid.cells), part.knob
    printed = sorted(
        (int(one.shown), one.number) for one in paper("lookhere").numbers
        if one.table == "9" and one.encoding == type(part).__module__.rpartition(".")[2]
    )  # fmt: skip
    if not printed or knob is None or ratio <= 1:
        return None
    sides, values = np.array(printed, np.float64).T
    factor = float(np.interp(ratio, sides / sides[0], values / values[0]))
    # Three digits, as such values are printed and read.
    return float(f"{min(max(knob.default * factor, knob.low), knob.high):.3g}")


def halvings(candidates: int, images: int) -> list[tuple[int, slice]]:
    """How many candidates are asked about which of the images, one round after the other; no round is empty, and one
    candidate is not asked."""
    if candidates < 2:
        return []
    parts = {1: slice(0, None, 4), 2: slice(2, None, 4), 4: slice(1, None, 2)}
    return [(-(-candidates // share), part) for share, part in parts.items() if range(images)[part]]


def tuning_passes(searches: Sequence[Search], images: int) -> int:
    """How many images pass through the model while `tune` searches all of these with so many."""
    rounds = itertools.chain(*(halvings(len(search.candidates), images) for search in searches))
    return sum(count * len(range(images)[part]) for count, part in rounds)


@contextlib.contextmanager
def tuned_at(model: Model, values: Mapping[str, float | str]) -> Iterator[None]:
    """Inside, what is named `knob` or `rule` is at a value; afterwards it is as it was.

    Raises:
        InputError: the encoding has none.
    """
    encoding = model.encoding
    knob, rule = encoding.knob, encoding.resize_rule
    try:
        for value in values.values():
            if isinstance(value, str):
                encoding.set_resize_rule(value)
            else:
                encoding.set_knob(value)
        yield
    finally:
        if knob is not None:
            encoding.set_knob(knob.value)
        if rule is not None:
            encoding.set_resize_rule(rule.value)


def tune_parameter(
    model: Model,
    task: Task,
    source: Source,
    indices: Sequence[int],
    view: int | View,
    *,
    split: str = "minival",
    precision: str = "float32",
    advance: Callable[[int], None] | None = None,
    ranks: Ranks = SINGLE_RANK,
) -> float:
    """The best value of an encoding's knob, as `tune` finds it.

    Args:
        task: on the source; indices: of images of the split.
        view: as `predict_split`.

    Raises:
        InputError: the encoding has no knob, or as `tune`.
    """
    if model.knob is None:
        raise InputError(f"encoding {model.encoding.name} has no knob")
    (search,) = searches_of(model.encoding, ("knob",), view, model.config.patch_size)
    found = tune(MeasureInput(model, task, source, split, indices, view, precision), search, advance, ranks)
    assert not isinstance(found, str)
    return found


def tune(
    given: MeasureInput, search: Search, advance: Callable[[int], None] | None = None, ranks: Ranks = SINGLE_RANK
) -> float | str:
    """The candidate with the lowest cross entropy on some images, or what the task says instead.

    Of those that are equal to five digits, the one nearest to the default: what enlarges an image is the same with and
    without antialiasing, and its last bits are the processor's.

    LookHere (section 4) tunes its global slope so, on held-out training images, by their top-1, which takes many: of
    64 it cannot tell candidates apart that the cross entropy orders (docs/explanation/decisions/parts-and-slope.md).
    Successive halving (Jamieson and Talwalkar, 2016): all candidates are asked about a
    quarter of the images, the better half about another quarter, the better half of those about the rest. The model is
    left as it was.

    Args:
        search: as `searches_of`; what it does not name stays as it is.
        ranks: that search together, each a part of the images; each must call it, and has the same answer.

    Raises:
        InputError: the encoding has none of that kind.
    """
    loss = dict.fromkeys(search.candidates, 0.0)

    def order(candidate: float | str) -> tuple[float, float]:
        return float(f"{loss[candidate]:.5g}"), search.distance(candidate)

    left = list(loss)
    for count, part in halvings(len(loss), len(given.indices)):
        left = sorted(left, key=order)[:count]
        some = replace(given, indices=given.indices[part])
        for candidate in left:
            with tuned_at(given.model, {search.kind: candidate}):
                loss[candidate] += _loss(some, advance, ranks)
    return min(left, key=order)


def _loss(given: MeasureInput, advance: Callable[[int], None] | None, ranks: Ranks) -> float:
    """The sum over batches, rounded once, so that it is the same for any number of ranks."""

    def made(one: BatchOutputs) -> float:
        known = one.outputs is not None
        return float(given.task.tuning_loss(one.outputs, one.batch.targets, one.batch.layout)[0]) if known else 0.0

    found = given.gather(WorkFolder(ranks), "", made, advance)
    return ranks.broadcast(None if found is None else math.fsum(found.values))
