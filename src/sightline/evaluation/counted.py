"""One pass over a split: what is counted of each batch is a part of it, and what all parts make together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

from PIL import Image

from sightline.data.sizes import View
from sightline.data.skip_policy import Unreadable
from sightline.data.source import Source
from sightline.evaluation.drawn import Drawing
from sightline.evaluation.parts import WorkFolder
from sightline.evaluation.predict import BatchOutputs, plan_split, predict_split
from sightline.metrics.base import Metric, metrics_of
from sightline.models import Model
from sightline.tasks.base import PredictionRecord, Task

Answers = Literal["prediction_records", "results"]


@dataclass(frozen=True, eq=False)
class SplitResult:
    """What a pass gave.

    Attributes:
        metrics: that saw every image, in the order of the plan.
        said: by the index of an image its name, and what was said of it: `ClassMatches`, or as `Task.results` has it.
        sheet: some answers drawn, None where none are.
        scores: what is kept of each batch for `StoredLogits`, its arrays and texts by name.
        images: that could be read; tokens: the patches of all of them.
        seconds: that it took; ranks: by how many.
    """

    metrics: list[Metric]
    said: dict[int, tuple[str, Any]]
    sheet: Image.Image | None
    scores: list[dict[str, Any]]
    images: int
    tokens: int
    seconds: float
    ranks: int


def measure_split(
    model: Model,
    task: Task,
    source: Source,
    split: str,
    indices: Sequence[int],
    view: int | View,
    *,
    parts: WorkFolder,
    work: str,
    precision: str,
    workers: int = 0,
    advance: Callable[[int], None] | None = None,
    answers: Answers | None = None,
    scores: bool = False,
    drawn: bool = False,
) -> SplitResult | None:
    """Every image once, by all ranks together: a batch of the plan is a part, the same for any number of ranks, and so
    are all numbers. None on every rank but the first; each must call it.

    Args:
        parts: the finished ones; work: their name.
        answers: keep what is said of each image, as that method of the task has it; scores: keep its logits, of a
            classifier; drawn: draw the first ones, where the task draws anything.

    Raises:
        SightlineError: as `predict_split`.
    """
    planned = plan_split(model, source, split, indices, view)
    kinds = [type(metric) for metric in metrics_of(task)]

    def made(numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        drawing = Drawing.of(model, task) if drawn else None
        mine = [planned[number] for number in numbers]
        for one in predict_split(
            model, task, source, split, indices, view, precision=precision, workers=workers, planned=mine
        ):
            yield _part(one, task, [kind(task) for kind in kinds], drawing, answers=answers, scores=scores)

    parts.each(work, [len(one) for one in planned], made, advance)
    found: SplitResult | None = None
    if parts.ranks.is_main:
        found = _together(model, task, source, split, kinds, parts, work)
    return found


def _part(
    one: BatchOutputs,
    task: Task,
    metrics: Sequence[Metric],
    drawing: Drawing | None,
    *,
    answers: Answers | None,
    scores: bool,
) -> Any:
    """What a batch counts, as `as_json` takes it."""
    part: dict[str, Any] = {"images": len(one.batch), "patches": one.tokens}
    if one.batch.left_out:
        part["left out"] = [astuple(image) for image in one.batch.left_out]
    if len(one.batch):
        for metric in metrics:
            metric.update(one.outputs, one.batch)
        part["metrics"] = [metric.state() for metric in metrics]
        if answers is not None:
            said = getattr(task, answers)(one.outputs, one.batch)
            said = [astuple(each) if isinstance(each, PredictionRecord) else each for each in said]
            part["said"] = list(zip(one.batch.indices.tolist(), one.batch.names, said, strict=False))
        if scores:
            part["scores"] = {
                "logits": one.outputs.numpy(), "labels": one.batch.targets["labels"].numpy(),
                "indices": one.batch.indices.numpy(), "names": one.batch.names,
                "slices": [dict(slices) for slices in one.batch.slices],
            }  # fmt: skip
        if drawing is not None:
            part["drawn"] = drawing.add(one)
    return part


def _together(
    model: Model, task: Task, source: Source, split: str, kinds: Sequence[type[Metric]], parts: WorkFolder, work: str
) -> SplitResult:
    metrics = [kind(task) for kind in kinds]
    drawing = Drawing.of(model, task)
    said: dict[int, tuple[str, Any]] = {}
    scores: list[dict[str, Any]] = []
    images = tokens = 0
    for part in parts.values(work):
        if source.allowance is not None:
            # Those of other ranks and sessions count too.
            source.allowance.add(split, (Unreadable(*image) for image in part.get("left out", ())))
        for whole, kind, state in zip(metrics, kinds, part.get("metrics", ()), strict=False):
            seen = kind(task)
            seen.restore(state)
            whole.merge(seen)
        for index, name, kept in part.get("said", ()):
            said[index] = (name, PredictionRecord(*kept) if isinstance(kept, tuple) else kept)
        if "scores" in part:
            scores.append(part["scores"])
        if drawing is not None:
            drawing.put(part.get("drawn", ()))
        images, tokens = images + part["images"], tokens + part["images"] * part["patches"]
    sheet = None if drawing is None else drawing.sheet()
    seconds, ranks = parts.took(work)
    parts.forget(work)
    return SplitResult(metrics, said, sheet, scores, images, tokens, seconds, ranks)
