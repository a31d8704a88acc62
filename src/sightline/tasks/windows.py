"""How images are given to a model in evaluation: whole, in windows, mirrored, and at several sizes."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from sightline.data.batch import Batch, normalize
from sightline.errors import InputError
from sightline.io.config import Count, config_dataclass, require_effect
from sightline.models import Model, ViTConfig
from sightline.tasks.maps import MapReader, covered_size, enlarged, reader_for
from sightline.tokens.patchify import check_multiples

MOST_TIMES = 16
"""An image is enlarged to at most so many times its size."""
# Windows of a pass, and float32 scores of all of them (half a gigabyte): of 150 classes a window has 39 million.
_WINDOWS_AT_ONCE, _SCORES_AT_ONCE = 16, 2**27


@config_dataclass(kw_only=False)
class InferenceMode:
    """How an image is given to a model in evaluation.

    Attributes:
        kind: `whole` images; or windows of one size by `segmenter`'s rule, which enlarges an image whose shorter side
            is less than a window, or by `mmseg`'s, whose windows are then smaller.
        window, stride: side of a window, and how far apart they begin, in pixels.
        scales: factors by which the image is resized, one pass each.
        flip: also mirrored.
    """

    kind: Literal["whole", "segmenter", "mmseg"] = "whole"
    window: Count = 512
    stride: Count = 341
    scales: Annotated[tuple[Annotated[float, Field(gt=0, le=MOST_TIMES)], ...], Field(min_length=1)] = (1.0,)
    flip: bool = False

    def __post_init__(self) -> None:
        in_windows = ("kind", ("segmenter", "mmseg"))
        require_effect(self, {"window": in_windows, "stride": in_windows})
        if self.stride > self.window:
            said = f"stride {self.stride}: expected at most the window, {self.window}"
            raise InputError(said, field="stride", value=self.stride)

    @property
    def label(self) -> str:
        """In short; "" for one pass of the whole image."""
        parts = [] if self.kind == "whole" else [f"{self.kind} {self.window}/{self.stride}"]
        parts += [] if self.scales == (1.0,) else ["scales " + " ".join(f"{scale:g}" for scale in self.scales)]
        return ", ".join([*parts, *(["mirrored too"] if self.flip else [])])

    @property
    def plain(self) -> bool:
        """One pass of the whole image is all."""
        return self.kind == "whole" and self.scales == (1.0,) and not self.flip


def check_window(config: ViTConfig, how: InferenceMode) -> None:
    """Refuse a window that is no multiple of the patch, where nothing is fitted."""
    if how.kind != "whole" and config.fit == "exact":
        check_multiples("inference.window {}", (how.window,), config.patch_size)


def infer_batch(model: Model, batch: Batch, how: InferenceMode, precision: str = "float32") -> list[Tensor]:
    """Logarithms of the probabilities of each class for each image of a batch: of each segment float32 [rows, classes,
    height, width], in pixels of the images.

    Args:
        precision: as `predict_batch`.

    Raises:
        InputError: as `check_window`; or patches were dropped.
    """
    config = model.config
    check_window(config, how)
    with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        every = model.patch_embed.images(normalize(batch.inputs, config.mean, config.std), batch.layout)
        return [torch.stack([infer(model, image, how) for image in images]) for images in every]


@torch.no_grad()
def infer(model: Model, image: Tensor, how: InferenceMode, size: tuple[int, int] | None = None) -> Tensor:
    """Logarithms of the probabilities of each class: float32 [classes, height, width].

    Scores of windows are added and divided by how many there are at a pixel, then enlarged bilinearly to `size`,
    mirrored back, and made probabilities, whose mean over sizes and mirror images is taken (rstrudel/segmenter,
    `inference`; mmsegmentation, `slide_inference` and `SegTTAModel`).

    Args:
        image: normalised [channels, height, width].
        size: (height, width) of what is returned; None for those of the image.
    """
    size = (image.shape[-2], image.shape[-1]) if size is None else size
    total, count = None, 0
    for scale in how.scales:
        scaled = _scaled(model, image, scale)
        for mirrored in (False, True)[: 1 + how.flip]:
            shown = scaled.flip(-1) if mirrored else scaled
            scores, reader = scores_of(model, shown[None]) if how.kind == "whole" else _sliding(model, shown, how)
            scores = enlarged(scores, size)[0]
            probabilities = reader.probabilities(scores.flip(-1) if mirrored else scores)
            # In place from here on: of 150 classes at 512 x 1024 px each is a third of a gigabyte.
            total, count = probabilities if total is None else total.add_(probabilities), count + 1
    assert total is not None
    return total.div_(count).clamp_min_(torch.finfo(torch.float32).tiny).log_()


def scores_of(model: Model, images: Tensor) -> tuple[Tensor, MapReader]:
    """The scores of normalised images [images, channels, height, width] of one size, float32 [images, classes, height,
    width], and their reader; what an image is padded with is cut off."""
    outputs, size = model(images), (images.shape[-2], images.shape[-1])
    reader, covered = reader_for(outputs), covered_size(model.config, size)
    each = [reader.crop_to_image(one, size, covered) for one in reader.each(outputs)]
    return torch.stack([reader.scores(one, size) for one in each]), reader


def window_starts(side: int, window: int, stride: int) -> list[int]:
    """Where windows begin along a side, in pixels: every `stride`, and the last where it ends with the image."""
    last = max(side - window, 0)
    return [*range(0, last, stride), last]


def enlarged_to_window(image: Tensor, window: int) -> Tensor:
    """An image [channels, height, width] whose shorter side is less than a window as one whose shorter side is it
    (bilinear, downwards to whole pixels); others as they are."""
    height, width = image.shape[-2:]
    if min(height, width) >= window:
        return image
    size = (window, int(width / height * window)) if height < width else (int(height / width * window), window)
    return enlarged(image[None], size)[0]


def _sliding(model: Model, image: Tensor, how: InferenceMode) -> tuple[Tensor, MapReader]:
    """Means over windows of an image's scores: [1, classes, height, width] of the image, enlarged if need be."""
    if how.kind == "segmenter":
        image = enlarged_to_window(image, how.window)
    sides = image.shape[-2], image.shape[-1]
    height, width = (min(side, how.window) for side in sides)
    rows, cols = (window_starts(side, how.window, how.stride) for side in sides)
    places = [(y, x) for y in rows for x in cols]
    total, count, reader = image.new_zeros(()), image.new_zeros(sides), None
    step = max(1, min(_WINDOWS_AT_ONCE, _SCORES_AT_ONCE // (max(model.config.num_classes, 1) * height * width)))
    for first in range(0, len(places), step):
        some = places[first : first + step]
        scores, reader = scores_of(model, torch.stack([image[:, y : y + height, x : x + width] for y, x in some]))
        if not total.dim():
            total = scores.new_zeros(scores.shape[1], *sides)
        for one, (y, x) in zip(scores, some, strict=True):
            total[:, y : y + height, x : x + width] += one
            count[y : y + height, x : x + width] += 1
    assert reader is not None
    return total.div_(count)[None], reader


def _scaled(model: Model, image: Tensor, scale: float) -> Tensor:
    """An image `scale` times as large: sides of whole pixels, and of whole patches where nothing fits others."""
    if scale == 1:
        return image
    unit = model.config.patch_size if model.config.fit == "exact" else 1
    size = [max(round(side * scale / unit), 1) * unit for side in image.shape[-2:]]
    wide = image.float()[None]
    return F.interpolate(wide, size=size, mode="bilinear", align_corners=False, antialias=scale < 1)[0].to(image.dtype)
