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
            # In evaluation images of one grid may have labels of many sizes.
            if len({label.shape for label in own}) == 1:
                groups = [(maps, torch.stack(list(own)))]
            else:
                groups = [(one.unsqueeze(0), label.unsqueeze(0)) for one, label in zip(maps, own, strict=True)]
            for logits, label in groups:
                size, target = (label.shape[-2], label.shape[-1]), label.long()
                if segment.patches == segment.grid.cells:
                    logits = enlarged(at_least_float32(logits), size)
                else:
                    # Between a patch that is there and one that was dropped, there is nothing to interpolate.
                    logits = F.interpolate(at_least_float32(logits), size=size, mode="nearest-exact")
                    mask = F.interpolate(patch_mask(segment)[None].float(), size=size, mode="nearest-exact")[0] > 0
                    target = target.where(mask, IGNORE)
                total = total + F.cross_entropy(logits, target, ignore_index=IGNORE, reduction="sum")
                units += (target != IGNORE).sum()
        return total, units

    def each(self, outputs: list[Any]) -> list[Any]:
        """The output of each image by itself."""
        return [one for maps in outputs for one in maps]

    def crop_to_image(self, output: Any, shown: tuple[int, int], extent: tuple[int, int]) -> Any:
        """What lies over an image of `shown` (height, width) of an output over `extent`: that image padded at the
        bottom and right, or cut there, where the border is repeated."""
        if shown == extent:
            return output
        over = enlarged(output[None], extent)[..., : shown[0], : shown[1]]
        missing = [max(whole - side, 0) for whole, side in zip(shown, extent, strict=True)]
        return F.pad(over, (0, missing[1], 0, missing[0]), mode="replicate")[0]

    def scores(self, output: Any, size: tuple[int, int]) -> Tensor:
        """Of each class at each pixel, the higher the likelier: float32 [classes, height, width]."""
        return enlarged(output[None].float(), size)[0]

    def probabilities(self, scores: Tensor) -> Tensor:
        """Scores as probabilities, as images that are mirrored or scaled average them."""
        return scores.softmax(dim=0)

    def argmax_map(self, output: Any, size: tuple[int, int]) -> np.ndarray:
        """The class of the highest score at each of (height, width) pixels, the first of equal ones: uint8."""
        best, labels = torch.full(size, -torch.inf), torch.zeros(size, dtype=torch.uint8)
        # Class by class: a large image's enlarged logits are never all there, and one's stay in the processor's cache.
        for number, logits in enumerate(output.detach()):
            shown = enlarged(logits[None, None].float(), size)[0, 0]
            labels.masked_fill_(shown > best, number)
            torch.maximum(best, shown, out=best)
        return labels.numpy()


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
    padded, less where what is left over is cut."""
    if config.fit not in ("pad", "crop"):
        return shown
    rows, cols = config.grid_of(shown)
    return rows * config.patch_size, cols * config.patch_size


def undo_fit(config: ViTConfig, image: np.ndarray, shown: tuple[int, int]) -> np.ndarray:
    """What was fitted to patches, uint8 [height, width, 3], as the picture of `shown` (height, width) that it was,
    black where it was cut; one that was resized as it is."""
    if covered_size(config, shown) == shown:
        return image
    whole = np.zeros((*shown, image.shape[2]), image.dtype)
    part = image[: shown[0], : shown[1]]
    whole[: part.shape[0], : part.shape[1]] = part
    return whole
