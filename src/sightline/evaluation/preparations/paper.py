"""LookHere's preparation (its code's `data_prep.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F

from sightline.data.crops import FrameStream, Picture, size_of, whole_crop
from sightline.data.targets import Crop
from sightline.errors import InputError
from sightline.evaluation.preparations.base import Preparation

# The size at which its models are trained and tested with a margin, and the shorter side there.
_TRAINED, _MARGIN = 224, 256


@dataclass(frozen=True)
class PaperPreparation(Preparation):
    """The shorter side becomes 256 pixels at 224, elsewhere as many as are shown; then the middle is cut out.

    Sides are `int(side * ratio)` of the ratio in floating point, as its code has it, and may so be a pixel short, which
    black fills at the end (of two, one at each end), as torchvision's `CenterCrop` does. Scaled bilinearly,
    antialiased, as float tensors: values are not rounded to 256 steps.
    """

    name: ClassVar[str] = "paper"

    @staticmethod
    def scaled(size: tuple[int, int], side: int) -> tuple[int, int]:
        """(height, width) in pixels of the whole image where a square of `side` is shown."""
        ratio = float(_MARGIN if side == _TRAINED else side) / min(size)
        return int(size[0] * ratio), int(size[1] * ratio)

    def measured(self, size: tuple[int, int], image_size: tuple[int, int]) -> Crop:
        if self.crop is None:
            return whole_crop(size, image_size)
        box: list[float] = []
        for whole, scaled, part in zip(size, self.scaled(size, min(image_size)), image_size, strict=True):
            low = max(round((scaled - part) / 2), 0)
            box += [low * whole / scaled, min(low + part, scaled) * whole / scaled]
        return Crop((box[0], box[2], box[1], box[3]), image_size)

    def cut(self, image: Picture, crop: Crop) -> np.ndarray:
        if isinstance(image, FrameStream):
            raise InputError("preparation paper: shows images, and no clips (expected the model's own)")
        # Of an image at its own aspect, all of it.
        height, width = crop.image_size
        size = size_of(image)
        scaled = (height, width) if self.crop is None else self.scaled(size, min(height, width))
        pixels = torch.from_numpy(np.array(image).transpose(2, 0, 1).copy()).unsqueeze(0).float().div_(255)
        if scaled != size:
            pixels = F.interpolate(pixels, scaled, mode="bilinear", align_corners=False, antialias=True)
        short = [max(part - whole, 0) for part, whole in zip((height, width), scaled, strict=True)]
        if any(short):
            rows, cols = short
            pixels = F.pad(pixels, (cols // 2, (cols + 1) // 2, rows // 2, (rows + 1) // 2))
        top, left = (round((whole - part) / 2) for whole, part in zip(pixels.shape[2:], (height, width), strict=True))
        shown = pixels[0, :, top : top + height, left : left + width]
        return shown.permute(1, 2, 0).mul(255).contiguous().numpy()
