"""What a model gives for a split, one way for all that measures it: at one size, or each image at its own aspect."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch

from sightline.data.batch import Batch, collate_uniform, is_finite, map_tensors
from sightline.data.config import PackingConfig
from sightline.data.loader import Collator, SampleSpec, load_batches, uniform
from sightline.data.pack_plan import group_by_frames, group_by_grid
from sightline.data.preprocessing import preprocessing
from sightline.data.sizes import Aspect, View
from sightline.data.source import Source
from sightline.errors import NonFiniteError, UnreadableDataError
from sightline.models import Model
from sightline.models.model import eval_mode
from sightline.tasks.base import Task

# Tokens of a batch on a CPU: enough to fill it, and little enough that what a layer gives stays in its cache (16,384
# took 1.1 times as long up to 64 px, vit_micro_patch4 on one core); and those of other devices.
_TOKENS_A_BATCH, _TOKENS_ELSEWHERE = 4096, 16384
# The same of images of many sizes, for which a batch of one is soon small.
TOKENS_A_PACK = 4096
# Float32 values of its outputs, half a gigabyte: 3 images of 512 px with 150 classes for each pixel.
_VALUES_A_BATCH = 2**27


@dataclass(frozen=True, eq=False)
class BatchOutputs:
    """What a model gave for some images.

    Attributes:
        outputs: of the model's head, tensors or a tree of them, float32 and finite; it and `batch` are on the CPU.
        tokens: the patches of each image.
        seconds: of the forward pass.
        reading: to read or draw the images and cut them into patches; with workers, to wait for that.
    """

    batch: Batch
    outputs: Any
    tokens: int
    seconds: float
    reading: float


def is_rendered(source: Source, split: str) -> bool:
    """Whether the images of a split are made at any size that is asked for, and have none of their own."""
    try:
        # The first is enough: either all of a source are stored or none is.
        return source.length(split) != 0 and source.stored_size(split, 0) is None
    except UnreadableDataError:
        # Stored, and left out or refused where the split is read.
        return False


def training_views(
    packing: PackingConfig | dict[str, Any] | None, resolution: int, patch_size: int, source: Source, split: str
) -> tuple[View, ...]:
    """How a packed run at native aspect saw its images, the most usual view first: it is tested so, and not on squares
    alone. None for every other run.

    Images that were shown at their own size are tested so, up to the most patches of the training; those of drawn
    sizes with the patches of the training's `resolution` (the middle of the range where it lies outside), of its
    lowest and of its highest side.

    Args:
        packing: of the run; as its saved record too.
        resolution: of the run, in pixels.
    """
    if isinstance(packing, dict):
        known = {field.name for field in fields(PackingConfig)}
        packing = PackingConfig(**{name: value for name, value in packing.items() if name in known})
    if packing is None or packing.aspect != "native":
        return ()
    most = packing.most_tokens or packing.tokens
    if packing.resolutions is None:
        # What is drawn at any size has none of its own: the training scaled it to the most patches.
        return (View("tokens" if is_rendered(source, split) else "native", most),)
    low, high = packing.resolutions
    usual = resolution if low <= resolution <= high else (low + high) // 2
    counts = (max(min(round((side / patch_size) ** 2), most), 1) for side in (usual, low, high))
    return tuple(dict.fromkeys(View("tokens", count) for count in counts))


def frames_of(source: Source, model: Model) -> int | None:
    """How many frames of each clip are shown, as rows say it; None of a model of images."""
    if not model.config.takes_clips:
        return None
    return source.sampling.count if source.sampling is not None and source.is_video else 1


def plan_split(
    model: Model, source: Source, split: str, indices: Sequence[int], view: int | View, aspect: Aspect = "native"
) -> list[list[SampleSpec]]:
    """Every image, or clip, once, in batches of one grid each: nothing is padded, and a batch is as uniform as one of
    squares.

    In a batch of many grids attention goes image by image: this took a sixth (16 tokens) to half (256) of its time
    (`vit_micro_patch4`, lookhere_90, bfloat16, one core).

    Args:
        view: a square side in pixels, or how images are shown at their own aspect.
        aspect: `square` shows them as squares of as many patches.
    """
    patch, config = model.config.patch_size, model.config
    batches = []
    if not isinstance(view, View):
        for frames, members in group_by_frames(source, split, indices).items():
            cells = config.grid_of(view, frames).cells
            batches += uniform(members, (view, view), cells, images_a_batch(model, cells, view))
        return batches
    for grid, members in group_by_grid(source, split, indices, view, patch, aspect, config.tubelet).items():
        images = images_a_batch(model, grid.cells, view)
        batches += uniform(members, (grid.rows * patch, grid.cols * patch), grid.cells, images)
    return batches


def images_a_batch(model: Model, cells: int, view: int | View) -> int:
    """How many images of so many patches are measured at once: at least one, by their tokens and by their outputs."""
    of_squares = _TOKENS_A_BATCH if model.anchor.device.type == "cpu" else _TOKENS_ELSEWHERE
    values, tokens = getattr(model.head, "values", 0), TOKENS_A_PACK if isinstance(view, View) else of_squares
    return max(1, min(tokens // cells, _VALUES_A_BATCH // max(values * cells, 1)))


def predict_split(
    model: Model,
    task: Task,
    source: Source,
    split: str,
    indices: Sequence[int],
    view: int | View,
    *,
    aspect: Aspect = "native",
    precision: str = "float32",
    workers: int = 0,
    advance: Callable[[int], None] | None = None,
    warm: bool = False,
    planned: Sequence[Sequence[SampleSpec]] | None = None,
) -> Iterator[BatchOutputs]:
    """What a model gives for the images at `indices`, each once, in evaluation mode whatever the model is in; in their
    order at one size, else by their grids.

    Args:
        task: on the source.
        view: as `plan_split`.
        aspect: as `plan_split`.
        precision: `float32`, or `bfloat16` for the matrix products.
        workers: processes that read ahead; with any, the times are of a busy machine.
        advance: called with the number of images of each batch.
        warm: see the first batch once before, so that kernels and tables of the first pass are made untimed.
        planned: batches of `plan_split` to show, instead of all images; each is then given, also one of which no image
            can be read, whose outputs are None.

    Raises:
        NonFiniteError: an output is not finite.
    """
    device = model.anchor.device
    chosen = plan_split(model, source, split, indices, view, aspect) if planned is None else planned
    asked = time.perf_counter()
    for batch in read_split(model, task, source, split, chosen, view, aspect=aspect, workers=workers):
        reading = time.perf_counter() - asked
        if len(batch):
            there = batch.to(device)
            with eval_mode(model), torch.inference_mode():
                if warm:
                    to_cpu_float32(task.outputs(model, there, precision))
                    warm = False
                if device.type == "cuda":
                    # What the device still does is not counted.
                    torch.cuda.synchronize(device)
                started = time.perf_counter()
                outputs = to_cpu_float32(task.outputs(model, there, precision))
                seconds = time.perf_counter() - started
            tokens = batch.layout.segments[0].patches
            if not is_finite(outputs):
                each = zip(batch.names, task.split_outputs(outputs, batch.layout), strict=True)
                bad = next(name for name, one in each if not is_finite(one))
                how = f"at {view} px" if isinstance(view, int) else f"with {tokens} tokens"
                raise NonFiniteError(f"{bad} {how}: the logits are not finite")
            if advance is not None:
                advance(len(batch))
            yield BatchOutputs(batch, outputs, tokens, seconds, reading)
        elif planned is not None:
            yield BatchOutputs(batch, None, 0, 0.0, reading)
        asked = time.perf_counter()


def read_split(
    model: Model,
    task: Task,
    source: Source,
    split: str,
    planned: Sequence[Sequence[SampleSpec]],
    view: int | View,
    *,
    aspect: Aspect = "native",
    workers: int = 0,
) -> Iterator[Batch]:
    """Batches of `plan_split` as a model is shown them, on the CPU; those too of which no image can be read.

    Args:
        task, view, aspect, workers: as `predict_split`.
    """
    # As `predict` does, so that both say the same of a file.
    source = preprocessing(model).prepared(source, whole=isinstance(view, View) and aspect == "native")
    make = Collator(source, split, model.image_rows, task.targets, collate_uniform, model.num_prefix_tokens)
    return load_batches(make, planned, workers=workers)


def to_cpu_float32(outputs: Any) -> Any:
    """What a model gave, in float32 on the CPU."""
    return map_tensors(outputs, lambda tensor: tensor.float().cpu())
