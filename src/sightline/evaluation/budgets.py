"""What a model says of a split where each image keeps its aspect: at its own size, or with so many tokens (NaViT
appendix D)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from sightline.attention.products import ever_new_shapes
from sightline.data.packs import Planned, packed_batches, size_of
from sightline.data.sampling import Aspect, Shown
from sightline.data.source import Source
from sightline.data.views import View
from sightline.errors import InputError, NonFiniteError, UnreadableDataError
from sightline.evaluation.answer import TOKENS_A_PACK
from sightline.grid import Grid
from sightline.layout import TokenLayout
from sightline.models import Model
from sightline.models.modes import evaluation_mode
from sightline.tasks.classification import packed_model_input


@dataclass(frozen=True, eq=False)
class BudgetPredictions:
    """What a model said of some images at one token budget, in their order; without those that cannot be read.

    Attributes:
        budget: the most patches of an image.
        logits: float32 [images, classes], finite; labels: int64 [images], of the data set; names: of each image;
            indices: int64 [images], in the split.
        tokens: int64 [images], the patches that each had.
        seconds: float64 [images], each one's share by its tokens of its forward pass.
        reading: seconds an image to read or draw it and cut it into patches; with workers, to wait for that.
    """

    budget: int
    logits: np.ndarray
    labels: np.ndarray
    tokens: np.ndarray
    seconds: np.ndarray
    reading: float
    names: Sequence[str] = ()
    indices: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))


def is_drawn(source: Source, split: str) -> bool:
    """Whether the images of a split are made at any size that is asked for, and have none of their own."""
    try:
        # The first is enough: either all of a source are stored or none is.
        return source.length(split) != 0 and source.stored_size(split, 0) is None
    except UnreadableDataError:
        # Stored, and left out or refused where the split is read.
        return False


def check_view(source: Source, split: str, view: View) -> None:
    """Raise InputError where images are to keep their own size and have none."""
    if view.kind == "native" and is_drawn(source, split):
        raise InputError(
            f"resolution {view.name}: {source.name} has images of no size of their own (expected: sides in pixels, or "
            "tokens:PATCHES)"
        )


def plan_budget(
    source: Source,
    split: str,
    indices: Sequence[int],
    budget: int | View,
    patch_size: int,
    aspect: Aspect = "native",
    tokens_a_batch: int = TOKENS_A_PACK,
) -> list[list[Planned]]:
    """Every image once, in batches of one grid each: nothing is padded, and a batch is as uniform as one of squares.

    In a batch of many grids attention goes image by image: this took a sixth (16 tokens) to half (256) of its time
    (`vit_micro_patch4`, lookhere_90, bfloat16, one core).

    Args:
        budget: how the images are shown; a number is `View("tokens", number)`.
        tokens_a_batch: the most patches of a batch; a larger image goes alone.
    """
    view = budget if isinstance(budget, View) else View("tokens", budget)
    by_grid: defaultdict[Grid, list[int]] = defaultdict(list)
    for index in indices:
        # Always seed 0: no seed changes what a test split shows, so that runs are comparable.
        size = (1, 1) if aspect == "square" else size_of(source, split, index, 0)
        by_grid[view.grid(size, patch_size)].append(index)
    batches = []
    for grid, members in sorted(by_grid.items()):
        shown = Shown(grid, np.arange(grid.cells))
        most = max(tokens_a_batch // grid.cells, 1)
        for start in range(0, len(members), most):
            batches.append([Planned(index, 0, shown) for index in members[start : start + most]])
    return batches


def predict_budget(
    model: Model,
    source: Source,
    split: str,
    indices: Sequence[int],
    budget: int | View,
    *,
    aspect: Aspect = "native",
    precision: str = "float32",
    workers: int = 0,
    advance: Callable[[int], None] | None = None,
) -> BudgetPredictions:
    """Logits and times of the images at `indices`, each once, with at most `budget` patches, in evaluation mode.

    Args:
        budget: as `plan_budget`.
        precision: `float32`, or `bfloat16` for the matrix products.
        workers: processes that read ahead; with any, the times are of a busy machine.
        advance: called with the number of images of each batch.

    Raises:
        NonFiniteError: a logit is not finite.
    """
    device = model.anchor.device
    # As `predict` does, so that both say the same of a file.
    source = source.prepared(model.config.interpolation, model.config.crop, whole=aspect == "native")
    planned = plan_budget(source, split, indices, budget, model.config.patch_size, aspect)
    place = {index: number for number, index in enumerate(indices)}
    logits = np.zeros((len(place), model.num_classes), np.float32)
    labels, tokens = np.zeros(len(place), np.int64), np.zeros(len(place), np.int64)
    names = [""] * len(place)
    seconds, reading, warm = np.zeros(len(place)), 0.0, False
    asked = time.perf_counter()
    for batch in packed_batches(source, split, planned, patch_size=model.config.patch_size, workers=workers):
        reading += time.perf_counter() - asked
        if not len(batch):
            asked = time.perf_counter()
            continue
        patches, _ = packed_model_input(batch, model.config.mean, model.config.std, model.num_prefix_tokens, device)
        grid = batch.grids[0]
        patches = patches.view(len(batch), grid.cells, -1)
        layout = TokenLayout.uniform(grid, len(batch), num_prefix_tokens=model.num_prefix_tokens, device=patches.device)
        autocast = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
        with evaluation_mode(model), torch.inference_mode(), ever_new_shapes(), autocast:
            if not warm:
                # Kernels and tables of the first pass are made untimed.
                model(patches, layout=layout).float().cpu()
                warm = True
            _finish(device)
            started = time.perf_counter()
            said = model(patches, layout=layout).float().cpu()
            taken = time.perf_counter() - started
        if not torch.isfinite(said).all():
            bad = batch.names[int((~torch.isfinite(said)).any(dim=1).nonzero()[0])]
            raise NonFiniteError(f"{bad} with {grid.cells} tokens: the logits are not finite")
        at = [place[index] for index in batch.indices.tolist()]
        logits[at], labels[at] = said.numpy(), batch.labels.numpy()
        tokens[at], seconds[at] = grid.cells, taken / len(batch)
        for number, name in zip(at, batch.names, strict=True):
            names[number] = name
        if advance is not None:
            advance(len(batch))
        asked = time.perf_counter()
    most = budget.patches if isinstance(budget, View) else budget
    # One that could not be read was in no batch.
    here = tokens > 0
    return BudgetPredictions(
        most,
        logits[here],
        labels[here],
        tokens[here],
        seconds[here],
        reading / max(int(here.sum()), 1),
        [name for name, seen in zip(names, here, strict=True) if seen],
        np.asarray(indices, np.int64)[here],
    )


def _finish(device: torch.device) -> None:
    """Wait for what the device still does, so that it is not counted."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
