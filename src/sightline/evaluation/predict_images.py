"""What a model gives for image files of any sizes: packed side by side, each pack as soon as it is full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from sightline.data.batch import Batch, collate_packed, is_finite
from sightline.data.clip_file import Clip, clip_at, too_long
from sightline.data.crops import FrameStream, apply_crop, size_of
from sightline.data.image_file import MAX_PIXELS, EncodedImage, read_picture, too_large
from sightline.data.preprocessing import Resolution, preprocessing
from sightline.data.sizes import FrameSampling
from sightline.data.skip_policy import Unreadable
from sightline.data.targets import Crop
from sightline.errors import NonFiniteError, UnreadableDataError
from sightline.evaluation.predict import TOKENS_A_PACK, to_cpu_float32
from sightline.models import Model
from sightline.models.model import eval_mode
from sightline.tasks.base import Task
from sightline.tokens.grid import Grid


@dataclass(frozen=True)
class Predicted:
    """What a model gives for one image.

    Attributes:
        image: the path as given.
        size: (height, width) in pixels of the upright image.
        crop: what the model saw of it.
        grid: of the patches that the model saw.
        frames: how many of a clip the model saw; None of a model of images.
        output: that of the task's head, float32, as of `Task.split_outputs`; on the way the patches that enter.
    """

    image: str
    size: tuple[int, int]
    crop: Crop
    grid: Grid
    frames: int | None
    output: Any

    @property
    def seen_size(self) -> tuple[int, int]:
        """(height, width) in pixels of what the model saw."""
        return self.crop.image_size


@dataclass(frozen=True)
class Unpredicted:
    """An image without an answer: why, in one line, and the exit code that such a fault has on the command line."""

    image: str
    reason: str
    exit_code: int


def predict_images(
    model: Model,
    task: Task,
    images: Iterable[str | EncodedImage | Unreadable],
    resolution: Resolution | None = "native",
    max_tokens: int | None = None,
    *,
    tokens_a_pack: int = TOKENS_A_PACK,
    precision: str = "float32",
    max_pixels: int = MAX_PIXELS,
    frames: int | None = None,
) -> Iterator[list[Predicted | Unpredicted]]:
    """One outcome for each image, in their order, in lists that come as soon as a pack is done.

    An image is answered as it would be alone, in evaluation mode whatever the model is in. No more is read ahead than
    fills a pack, and one image.

    Args:
        images: paths, or where their bytes are, and what is known to be unreadable.
        resolution, max_tokens: what the model sees, as `Preprocessing.crop_of`.
        precision: `float32`, or `bfloat16` for the matrix products.
        tokens_a_pack: the most patches and prefix tokens of a pass; a larger image goes alone.
        max_pixels: of an image that is read.
        frames: how many of a clip a model of clips sees at most, spread over it; None takes those that it was trained
            on. It sees an image as a clip of one frame.
    """
    prepare = preprocessing(model)
    length = frames or model.config.clip_frames or 1
    # Images that are shown as they are have sizes of their own.
    sampling = FrameSampling(length, exact=False) if model.config.takes_clips else None

    def prepared(image: str | EncodedImage | Unreadable) -> Predicted | Unpredicted:
        if isinstance(image, Unreadable):
            return Unpredicted(image.path, image.reason, UnreadableDataError.exit_code)
        try:
            clip = None if sampling is None else _clip(image, sampling, max_pixels)
            pixels = read_picture(image, max_pixels=max_pixels) if clip is None else clip
            size = size_of(pixels)
            crop = prepare.crop_of(size, resolution, max_tokens)
            # Of a clip each frame is read here, one after the other.
            shown = apply_crop(pixels, crop, prepare.interpolation)
        except UnreadableDataError as error:
            return Unpredicted(str(image), str(error).removeprefix(f"{image}: "), UnreadableDataError.exit_code)
        rows, grid = model.image_rows(shown)
        return Predicted(str(image), size, crop, grid, None if sampling is None else len(shown), rows)

    pack: list[Predicted | Unpredicted] = []
    tokens = 0
    for image in images:
        one = prepared(image)
        more = one.grid.cells + model.num_prefix_tokens if isinstance(one, Predicted) else 0
        if tokens and tokens + more > tokens_a_pack:
            yield _answered(model, task, pack, precision)
            pack, tokens = [], 0
        pack.append(one)
        tokens += more
        # What has nothing to wait for does not wait: a full pack, or a bad file with no good one before it.
        if not tokens or tokens >= tokens_a_pack:
            yield _answered(model, task, pack, precision)
            pack, tokens = [], 0
    if pack:
        yield _answered(model, task, pack, precision)


def _clip(image: str | EncodedImage, sampling: FrameSampling, max_pixels: int) -> FrameStream:
    """The frames of a clip that are shown."""
    # What is a part of a larger file is an image, and read as one.
    if isinstance(image, EncodedImage) and not isinstance(image, Clip):
        return FrameStream(iter([read_picture(image, max_pixels=max_pixels)]))
    clip = image if isinstance(image, Clip) else clip_at(image)
    header = clip.header()
    if reason := too_large(header.height, header.width, max_pixels) or too_long(header, max_pixels):
        raise UnreadableDataError(f"{image}: {reason}")
    return FrameStream(clip.frames(sampling.positions(header.frames).tolist(), max_pixels=max_pixels))


def _answered(
    model: Model, task: Task, pack: Sequence[Predicted | Unpredicted], precision: str
) -> list[Predicted | Unpredicted]:
    here = [one for one in pack if isinstance(one, Predicted)]
    if not here:
        return list(pack)
    pixels = [model.patch_embed.patchifier.valid_size(*one.seen_size) for one in here]
    rows, grids = [one.output for one in here], [one.grid for one in here]
    arranged = collate_packed(rows, grids, [None] * len(here), model.num_prefix_tokens, pixels)
    batch = Batch(*arranged, {}, torch.arange(len(here)), [one.image for one in here], [{}] * len(here))
    with eval_mode(model), torch.inference_mode():
        outputs = to_cpu_float32(task.outputs(model, batch.to(model.anchor.device), precision))
    each = iter(task.split_outputs(outputs, batch.layout))
    answers: list[Predicted | Unpredicted] = []
    for one in pack:
        if isinstance(one, Predicted):
            one = replace(one, output=next(each))
            if not is_finite(one.output):
                one = Unpredicted(one.image, "the logits are not finite", NonFiniteError.exit_code)
        answers.append(one)
    return answers
