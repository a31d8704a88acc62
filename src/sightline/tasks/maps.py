"""Outputs that are maps of logits, one for each class: their loss, and what they say of each pixel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention.wide import at_least_float32
from sightline.data.targets import IGNORE
from sightline.models import ViTConfig
from sightline.models.dense_head import patch_mask
from sightline.tokens.layout import TokenLayout


class MapReader:
    """How outputs of a `DenseHead` are read: for each segment float [rows, classes, height, width].

    The loss is the softmax cross entropy, over all pixels that have a class, whatever their image: maps are enlarged
    bilinearly (`align_corners` False) to the labels.
    """

    def loss(self, outputs: list[Any], labels: Sequence[Tensor], layout: TokenLayout) -> tuple[Tensor, int | Tensor]:
        """The sum over pixels; units are those that have a class, in patches that are there.

        Args:
            labels: uint8 [height, width] of each image, of any size.
        """
        total, first = at_least_float32(outputs[0]).new_zeros(()), 0
        units = total.new_zeros((), dtype=torch.int64)
        for maps, segment in zip(outputs, layout.segments, strict=True):
            own = labels[first : first + len(maps)]
            first += len(maps)
            # Where answers are measured, images of one grid may have labels of many sizes.
            together = (
                [(maps, torch.stack(list(own)))]
                if len({one.shape for one in own}) == 1
                else [(one.unsqueeze(0), label.unsqueeze(0)) for one, label in zip(maps, own, strict=True)]
            )
            for some, wanted in together:
                size, long = (wanted.shape[-2], wanted.shape[-1]), wanted.long()
                if segment.patches == segment.grid.cells:
                    logits = enlarged(at_least_float32(some), size)
                else:
                    # Between a patch that is there and one that is not, there is nothing to interpolate.
                    logits = F.interpolate(at_least_float32(some), size=size, mode="nearest-exact")
                    here = F.interpolate(patch_mask(segment)[None].float(), size=size, mode="nearest-exact")[0] > 0
                    long = long.where(here, IGNORE)
                total = total + F.cross_entropy(logits, long, ignore_index=IGNORE, reduction="sum")
                units += (long != IGNORE).sum()
        return total, units

    def each(self, outputs: list[Any]) -> list[Any]:
        """The output of each image by itself."""
        return [one for maps in outputs for one in maps]

    def crop_to_image(self, output: Any, shown: tuple[int, int], extent: tuple[int, int]) -> Any:
        """What lies over an image of `shown` (height, width) of an output over `extent`: that image padded at the
        bottom and right, or cut there, where what is next to the cut is said of the rest."""
        return _within(output, shown, extent)

    def scores(self, output: Any, size: tuple[int, int]) -> Tensor:
        """Of each class at each pixel, the higher the likelier: float32 [classes, height, width]."""
        return enlarged(output[None].float(), size)[0]

    def probabilities(self, scores: Tensor) -> Tensor:
        """Scores as probabilities, as images that are mirrored or scaled average them."""
        return scores.softmax(dim=0)

    def argmax_map(self, output: Any, size: tuple[int, int]) -> np.ndarray:
        """The class of each pixel: uint8 (height, width)."""
        return argmax_map(output, size)


def reader_for(outputs: Sequence[Any]) -> MapReader:
    """How these outputs, of segments or of images, are read."""
    # Loaded where it is needed, as it needs this file.
    from sightline.tasks.mask_sets import MaskSetReader

    return MaskSetReader() if len(outputs) and isinstance(outputs[0], Mapping) else MapReader()


def enlarged(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps [images, classes, height, width] at another size, bilinear."""
    if maps.shape[-2:] == size:
        return maps
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=False)


def argmax_map(logits: Tensor, size: tuple[int, int]) -> np.ndarray:
    """The class of the highest of logits [classes, height, width] at each of (height, width) pixels, the first of those
    that are alike: uint8."""
    best, which = torch.full(size, -torch.inf), torch.zeros(size, dtype=torch.uint8)
    # Class by class: a large image's enlarged logits are never all there, and one's stay in the processor's cache.
    for number, one in enumerate(logits.detach()):
        shown = enlarged(one[None, None].float(), size)[0, 0]
        which.masked_fill_(shown > best, number)
        torch.maximum(best, shown, out=best)
    return which.numpy()


def _within(output: Tensor, shown: tuple[int, int], extent: tuple[int, int]) -> Tensor:
    if shown == extent:
        return output
    over = enlarged(output[None], extent)[..., : shown[0], : shown[1]]
    missing = [max(whole - side, 0) for whole, side in zip(shown, extent, strict=True)]
    return F.pad(over, (0, missing[1], 0, missing[0]), mode="replicate")[0]


def fitted_labels(labels: Tensor, shown: tuple[int, int], extent: tuple[int, int]) -> Tensor:
    """Labels [height, width] of an image of `shown` (height, width) for outputs over `extent`, as
    `MapReader.crop_to_image`: padded with `IGNORE`, or cut."""
    if shown == extent:
        return labels
    if labels.shape != shown:
        labels = F.interpolate(labels[None, None].float(), size=shown, mode="nearest-exact")[0, 0].to(labels.dtype)
    return F.pad(labels, (0, extent[1] - shown[1], 0, extent[0] - shown[0]), value=IGNORE)


def covered_size(config: ViTConfig, shown: tuple[int, int]) -> tuple[int, int]:
    """(height, width) of what the patches of a picture of `shown` cover, in its own pixels: more than it where it is
    padded, less where what is left over is not looked at."""
    if config.fit not in ("pad", "crop"):
        return shown
    rows, cols = config.grid_of(shown)
    return rows * config.patch_size, cols * config.patch_size


def undo_fit(config: ViTConfig, image: np.ndarray, shown: tuple[int, int]) -> np.ndarray:
    """What was fitted to patches, uint8 [height, width, 3], as the picture of `shown` (height, width) that it was,
    black where it was not looked at; one that was resized as it is."""
    if covered_size(config, shown) == shown:
        return image
    whole = np.zeros((*shown, image.shape[2]), image.dtype)
    there = image[: shown[0], : shown[1]]
    whole[: there.shape[0], : there.shape[1]] = there
    return whole
