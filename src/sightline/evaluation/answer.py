"""What a model says of image files of any sizes: packed side by side, each pack answered as soon as it is full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from sightline.attention.products import ever_new_shapes
from sightline.data.allowance import Unreadable
from sightline.data.image_file import MAX_PIXELS, read_image
from sightline.data.preprocessing import Preprocessing, Resolution, preprocessing
from sightline.errors import NonFiniteError, UnreadableDataError
from sightline.grid import Grid
from sightline.models import Model
from sightline.models.modes import evaluation_mode

TOKENS_A_PACK = 4096


@dataclass(frozen=True)
class Answer:
    """What a model says of one image.

    Attributes:
        image: the path as given.
        size: (height, width) in pixels of the upright image; `seen_size` of what the model saw of it.
        grid: of the patches that the model saw.
        logits: float32 [num_classes], finite.
    """

    image: str
    size: tuple[int, int]
    seen_size: tuple[int, int]
    grid: Grid
    logits: Tensor


@dataclass(frozen=True)
class Unanswered:
    """An image without an answer: why, in one line, and the exit code that such a fault has on the command line."""

    image: str
    reason: str
    exit_code: int


@dataclass(frozen=True)
class _Prepared:
    """An image on its way; of its own pixels nothing is kept."""

    image: str
    size: tuple[int, int]
    grid: Grid
    tensor: Tensor


def answer_images(
    model: Model,
    images: Iterable[str | Unreadable],
    resolution: Resolution | None = "native",
    max_tokens: int | None = None,
    *,
    tokens_a_pack: int = TOKENS_A_PACK,
    precision: str = "float32",
    max_pixels: int = MAX_PIXELS,
) -> Iterator[list[Answer | Unanswered]]:
    """One outcome for each image, in their order, in lists that come as soon as a pack is answered.

    An image is answered as it would be alone, in evaluation mode whatever the model is in. No more is read ahead than
    fills a pack, and one image.

    Args:
        images: paths, and what is known to be unreadable.
        resolution, max_tokens: what the model sees, as `Preprocessing.view`.
        precision: `float32`, or `bfloat16` for the matrix products.
        tokens_a_pack: the most patches and prefix tokens of a pass; a larger image goes alone.
        max_pixels: of an image that is read.
    """
    prepare = preprocessing(model)
    pack: list[_Prepared | Unanswered] = []
    tokens = 0
    for image in images:
        one = _prepared(model, prepare, image, resolution, max_tokens, max_pixels)
        more = one.grid.cells + model.num_prefix_tokens if isinstance(one, _Prepared) else 0
        if tokens and tokens + more > tokens_a_pack:
            yield _answered(model, pack, precision)
            pack, tokens = [], 0
        pack.append(one)
        tokens += more
        # What has nothing to wait for does not wait: a full pack, or a bad file with no good one before it.
        if not tokens or tokens >= tokens_a_pack:
            yield _answered(model, pack, precision)
            pack, tokens = [], 0
    if pack:
        yield _answered(model, pack, precision)


def _prepared(
    model: Model,
    prepare: Preprocessing,
    image: str | Unreadable,
    resolution: Resolution | None,
    max_tokens: int | None,
    max_pixels: int,
) -> _Prepared | Unanswered:
    if isinstance(image, Unreadable):
        return Unanswered(image.path, image.reason, UnreadableDataError.exit_code)
    try:
        pixels = read_image(image, max_pixels=max_pixels)
    except UnreadableDataError as error:
        return Unanswered(image, str(error).removeprefix(f"{image}: "), UnreadableDataError.exit_code)
    tensor = prepare(pixels, resolution, max_tokens)
    grid = model.config.grid_of((tensor.shape[1], tensor.shape[2]))
    return _Prepared(image, (pixels.shape[0], pixels.shape[1]), grid, tensor)


def _answered(model: Model, pack: list[_Prepared | Unanswered], precision: str) -> list[Answer | Unanswered]:
    device = model.anchor.device
    tensors = [one.tensor.to(device) for one in pack if isinstance(one, _Prepared)]
    low = torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")
    with evaluation_mode(model), torch.inference_mode(), ever_new_shapes(), low:
        logits = iter(model(tensors).float().cpu())
    return [one if isinstance(one, Unanswered) else _answer(one, next(logits)) for one in pack]


def _answer(one: _Prepared, logits: Tensor) -> Answer | Unanswered:
    if not torch.isfinite(logits).all():
        return Unanswered(one.image, "the logits are not finite", NonFiniteError.exit_code)
    return Answer(one.image, one.size, (one.tensor.shape[1], one.tensor.shape[2]), one.grid, logits)
