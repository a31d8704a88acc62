"""One pass over a split: what is counted of each batch, and what all batches make together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

from PIL import Image

from sightline.evaluation.drawn import Drawing
from sightline.evaluation.measures.base import MeasureInput
from sightline.evaluation.parts import WorkFolder
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
    task, kinds = given.task, [type(metric) for metric in metrics_of(given.task)]
    drawing = Drawing.of(given.model, task) if drawn else None

    def made(one: BatchOutputs) -> dict[str, Any]:
        return _part(one, task, [kind(task) for kind in kinds], drawing, answers=answers, scores=scores)

    found = given.gather(work, key, made, advance)
    if found is None:
        return None
    metrics, drawing = [kind(task) for kind in kinds], Drawing.of(given.model, task)
    said: dict[int, tuple[str, Any]] = {}
    for part in found.values:
        for whole, kind, state in zip(metrics, kinds, part.get("metrics", ()), strict=False):
            seen = kind(task)
            seen.restore(state)
            whole.merge(seen)
        for index, name, kept in part.get("said", ()):
            said[index] = (name, PredictionRecord(*kept) if isinstance(kept, tuple) else kept)
        if drawing is not None:
            drawing.put(part.get("drawn", ()))
    return SplitResult(
        metrics, said, None if drawing is None else drawing.sheet(),
        [part["scores"] for part in found.values if "scores" in part], sum(part["images"] for part in found.values),
        sum(part["images"] * part["patches"] for part in found.values), found.seconds, found.ranks,
    )  # fmt: skip


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
