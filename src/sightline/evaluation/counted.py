"""One pass over a split: what is counted of each batch, and what all batches make together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

from PIL import Image

from sightline.evaluation.drawn import Drawing
from sightline.evaluation.measures.base import MeasureInput
from sightline.evaluation.parts import Gathered, WorkFolder
from sightline.evaluation.predict import BatchOutputs
from sightline.metrics.base import Metric, metrics_of
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
    given: MeasureInput,
    work: WorkFolder,
    key: str,
    *,
    advance: Callable[[int], None] | None = None,
    answers: Answers | None = None,
    scores: bool = False,
    drawn: bool = False,
) -> SplitResult | None:
    """Every image once, by all ranks together: each batch of the plan is counted by itself, the same for any number of
    ranks, and so are all numbers. None on every rank but the first; each must call it.

    Args:
        work: where the finished pass is kept; key: as what.
        answers: keep what is said of each image, as that method of the task has it; scores: keep its logits, of a
            classifier; drawn: draw the first ones, where the task draws anything.

    Raises:
        SightlineError: as `predict_split`.
    """
    planned, kinds = given.planned(), [type(metric) for metric in metrics_of(given.task)]

    def made(numbers: Sequence[int]) -> Iterator[dict[str, Any]]:
        drawing = Drawing.of(given.model, given.task) if drawn else None
        for one in given.outputs([planned[number] for number in numbers]):
            metrics = [kind(given.task) for kind in kinds]
            yield _part(one, given.task, metrics, drawing, answers=answers, scores=scores)

    found = work.gather(key, [len(one) for one in planned], made, advance)
    return None if found is None else _together(given, kinds, found)


def _part(
    one: BatchOutputs,
    task: Task,
    metrics: Sequence[Metric],
    drawing: Drawing | None,
    *,
    answers: Answers | None,
    scores: bool,
) -> dict[str, Any]:
    """What a batch counts, as `parts.dumped` takes it."""
    batch = one.batch
    part: dict[str, Any] = {"images": len(batch), "patches": one.tokens}
    if batch.left_out:
        part["left out"] = [astuple(image) for image in batch.left_out]
    if len(batch):
        for metric in metrics:
            metric.update(one.outputs, batch)
        part["metrics"] = [metric.state() for metric in metrics]
        if answers is not None:
            said = getattr(task, answers)(one.outputs, batch)
            said = [astuple(each) if isinstance(each, PredictionRecord) else each for each in said]
            part["said"] = list(zip(batch.indices.tolist(), batch.names, said, strict=False))
        if scores:
            part["scores"] = {
                "logits": one.outputs.numpy(), "labels": batch.targets["labels"].numpy(),
                "indices": batch.indices.numpy(), "names": batch.names,
                "slices": [dict(slices) for slices in batch.slices],
            }  # fmt: skip
        if drawing is not None:
            part["drawn"] = drawing.add(one)
    return part


def _together(given: MeasureInput, kinds: Sequence[type[Metric]], found: Gathered) -> SplitResult:
    task, drawing = given.task, Drawing.of(given.model, given.task)
    metrics = [kind(task) for kind in kinds]
    said: dict[int, tuple[str, Any]] = {}
    images = tokens = 0
    given.count_left_out(part.get("left out", ()) for part in found.values)
    for part in found.values:
        for whole, kind, state in zip(metrics, kinds, part.get("metrics", ()), strict=False):
            seen = kind(task)
            seen.restore(state)
            whole.merge(seen)
        for index, name, kept in part.get("said", ()):
            said[index] = (name, PredictionRecord(*kept) if isinstance(kept, tuple) else kept)
        if drawing is not None:
            drawing.put(part.get("drawn", ()))
        images, tokens = images + part["images"], tokens + part["images"] * part["patches"]
    sheet = None if drawing is None else drawing.sheet()
    scores = [part["scores"] for part in found.values if "scores" in part]
    return SplitResult(metrics, said, sheet, scores, images, tokens, found.seconds, found.ranks)
