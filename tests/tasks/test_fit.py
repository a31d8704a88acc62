"""Pictures whose sides the patch does not divide: what is learnt, scored and drawn lies over the picture itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline import create_model
from sightline.data.batch import collate_uniform
from sightline.data.loader import Collator, load_batches, uniform
from sightline.data.sources.scenes import Scenes
from sightline.data.targets import IGNORE
from sightline.evaluation.drawn import Drawing
from sightline.evaluation.predict import BatchOutputs
from sightline.metrics.base import metrics_of
from sightline.models import Model
from sightline.tasks.base import make_task

SIZE = (22, 37)


def model_of(fit: str, head: str = "pix", task: str = "segmentation") -> Model:
    names = Scenes("pairs").pixel_classes if task == "segmentation" else Scenes("pairs").object_classes
    own: dict[str, Any] = {"queries": 6, "blocks": 1} if head == "eomt" else {}
    made = {"depth": 1, "dim": 48, "heads": 4, "patch_size": 8, "image_size": 32, "fit": fit}
    return create_model(
        "vit_micro_patch4", task=task, head=head, head_options=own, num_classes=len(names), class_names=names, **made
    )


def batch_of(model: Model, size: tuple[int, int] = SIZE) -> Any:
    task = make_task(model.config.task, model.config)
    make = Collator(Scenes("pairs"), "test", model.image_rows, task.targets, collate_uniform, model.num_prefix_tokens)
    (batch,) = load_batches(make, uniform(range(3), size, model.config.grid_of(size).cells, 3))
    return task, batch


def right(model: Model, batch: Any) -> Tensor:
    """Logits of every pixel that the patches cover, which say what the picture shows there."""
    rows, cols = (8 * side for side in batch.layout.segments[0].grid)
    whole = torch.zeros(3, max(rows, SIZE[0]), max(cols, SIZE[1]), dtype=torch.int64)
    whole[:, : SIZE[0], : SIZE[1]] = torch.stack(batch.targets["pixels"])
    whole = whole[:, :rows, :cols]
    return 50 * torch.nn.functional.one_hot(whole, model.num_classes).permute(0, 3, 1, 2).float()


@pytest.mark.parametrize("fit", ["pad", "crop"])
def test_what_says_it_all_right_costs_nothing_and_scores_full(fit: str) -> None:
    model = model_of(fit)
    task, batch = batch_of(model)
    logits = right(model, batch)
    total, units = task.loss([logits], batch.targets, batch.layout)
    seen = logits.shape[-2:] if fit == "crop" else SIZE
    assert units == 3 * seen[0] * seen[1]
    assert float(total) < 1e-6
    if fit == "crop":
        # Of what was not looked at nothing is known.
        for one in batch.targets["pixels"]:
            one[seen[0] :], one[:, seen[1] :] = IGNORE, IGNORE
    (metric,) = [one for one in metrics_of(task) if one.name == "miou"]
    metric.update([logits], batch)
    assert next(row.value for row in metric.rows() if row.metric == "miou") == 1


def test_sets_of_masks_are_learnt_where_the_picture_is() -> None:
    """As of the whole grid where nothing is said of what was padded."""
    model = model_of("pad", "eomt").eval()
    task, batch = batch_of(model)
    with torch.no_grad():
        outputs = model(batch.inputs.float(), layout=batch.layout)
    found = task.loss(outputs, batch.targets, batch.layout)
    whole = [torch.nn.functional.pad(one, (0, 3, 0, 2), value=IGNORE) for one in batch.targets["pixels"]]
    exact = make_task("segmentation", model.config.replace(fit="exact"))
    wanted = exact.loss(outputs, {"pixels": whole, "seen": [(24, 40)] * 3}, batch.layout)
    torch.testing.assert_close(found[0], wanted[0])


@pytest.mark.parametrize("fit", ["pad", "crop", "resize"])
@pytest.mark.parametrize("task", ["segmentation", "detection"])
def test_what_is_drawn_is_the_picture(fit: str, task: str) -> None:
    model = model_of(fit, "pix" if task == "segmentation" else "fcos", task)
    task, batch = batch_of(model)
    whole = Scenes("pairs").example("test", 0, SIZE).image
    with torch.no_grad():
        outputs = model(batch.inputs.float() / 255, layout=batch.layout)
    drawing = Drawing(task, model.patch_embed.patchifier)
    drawing.add(BatchOutputs(batch, outputs, 0, 0.0, 0.0))
    picture = np.asarray(drawing._pictures[0][1].resize(SIZE[::-1], 0)).astype(float)
    rows, cols = (min(side, 8 * count) for side, count in zip(SIZE, batch.layout.segments[0].grid, strict=True))
    off = np.abs(picture - whole)[:rows, :cols].mean()
    assert off < (20 if fit == "resize" else 1), off
