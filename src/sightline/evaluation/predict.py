"""What a model says of the images of a split."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from sightline.attention.products import few_shapes
from sightline.data.loader import batches
from sightline.data.source import Source
from sightline.data.views import View
from sightline.errors import NonFiniteError
from sightline.evaluation.budgets import predict_budget
from sightline.models import Model
from sightline.models.modes import evaluation_mode
from sightline.tasks.classification import Predictions, to_model_input

# Tokens of a batch: enough to fill the processor, little enough for the scores of the largest image.
_TOKENS_A_BATCH = 16384


def predict_split(
    model: Model,
    source: Source,
    split: str,
    resolution: int | View,
    indices: Sequence[int],
    *,
    precision: str = "float32",
    workers: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Predictions:
    """Logits of the images at `indices`, in that order, in evaluation mode whatever the model is in.

    Args:
        resolution: a square side in pixels, or how images are shown at their own aspect.
        precision: `float32`, or `bfloat16` for the matrix products.
        advance: called with the number of images of each batch.

    Raises:
        NonFiniteError: a logit is not finite.
    """
    if isinstance(resolution, View):
        return _predict_view(model, source, split, resolution, indices, precision, workers, advance)
    device = model.anchor.device
    source = source.prepared(model.config.interpolation, model.config.crop)
    logits, labels, groups, sizes, names, numbers = [], [], [], [], [], []
    started = time.perf_counter()
    for batch in batches(
        source,
        split,
        indices=indices,
        image_size=(resolution, resolution),
        batch_size=max(1, _TOKENS_A_BATCH // model.config.grid_of(resolution).cells),
        workers=workers,
    ):
        if not len(batch):
            continue
        images = to_model_input(batch.images, model.config.mean, model.config.std, device)
        autocast = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
        with evaluation_mode(model), torch.inference_mode(), few_shapes(), autocast:
            said = model(images).float().cpu()
        if not torch.isfinite(said).all():
            bad = batch.names[int((~torch.isfinite(said)).any(dim=1).nonzero()[0])]
            raise NonFiniteError(f"{bad} at {resolution} px: the logits are not finite")
        logits.append(said.numpy())
        labels.append(batch.labels.numpy())
        groups += batch.groups
        sizes.append(batch.sizes.numpy())
        names += batch.names
        numbers.append(batch.indices.numpy())
        if advance is not None:
            advance(len(batch))
    return Predictions(
        logits=np.concatenate(logits) if logits else np.zeros((0, model.num_classes), np.float32),
        labels=np.concatenate(labels) if labels else np.zeros(0, np.int64),
        groups=groups,
        sizes=np.concatenate(sizes) if sizes else np.zeros(0, np.float32),
        seconds=time.perf_counter() - started,
        names=names,
        indices=np.concatenate(numbers) if numbers else np.zeros(0, np.int64),
        patches=float(model.config.grid_of(resolution).cells),
    )


def _predict_view(
    model: Model,
    source: Source,
    split: str,
    view: View,
    indices: Sequence[int],
    precision: str,
    workers: int,
    advance: Callable[[int], None] | None,
) -> Predictions:
    started = time.perf_counter()
    said = predict_budget(model, source, split, indices, view, precision=precision, workers=workers, advance=advance)
    group_of = {label: name for name, members in source.groups.items() for label in members}
    return Predictions(
        logits=said.logits,
        labels=said.labels,
        groups=[group_of.get(label) for label in said.labels.tolist()],
        sizes=np.full(len(said.labels), np.nan, np.float32),
        seconds=time.perf_counter() - started,
        names=said.names,
        indices=said.indices,
        patches=float(said.tokens.mean()) if len(said.tokens) else float("nan"),
    )
