"""Segmentation: a class for each pixel, at any size, scored at the size of the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from sightline.checks import require_number
from sightline.data.source import Example, Source
from sightline.errors import InputError
from sightline.layout import TokenLayout
from sightline.models.map_head import is_there
from sightline.targets import IGNORE, Crop
from sightline.tasks.base import Task
from sightline.tasks.drawn import Legend, class_colours, class_legend, overlay

BACKGROUND = "background"
# Of a logit map that is enlarged: so many classes at a time, so that a large image's are never all there.
_CLASSES_AT_ONCE = 16


@dataclass(frozen=True)
class SegmentationOptions:
    """`head`: a head that gives maps; `head_options`: of its own; `background_bias`: of the logit of a class called
    background, before the first step; None leaves it at 0."""

    head: str = "pix"
    head_options: dict[str, Any] = field(default_factory=dict)
    background_bias: float | None = 2.0

    def __post_init__(self) -> None:
        if self.background_bias is not None:
            require_number("background_bias", self.background_bias, low=-1e6)


@dataclass(frozen=True, eq=False)
class Labelled:
    """What is said of the pixels of a stored image: `labels` uint8 [height, width], `IGNORE` where nothing is said."""

    labels: np.ndarray


class Segmentation(Task):
    """The class of each pixel.

    The loss is the softmax cross entropy, a mean over all pixels of a batch that have a class, whatever their image:
    maps are enlarged bilinearly (`align_corners` False) to the labels.
    """

    name: ClassVar[str] = "segmentation"
    needs: ClassVar[tuple[str, ...]] = ("pixels",)
    primary: ClassVar[str] = "miou"
    Options: ClassVar[type] = SegmentationOptions

    @property
    def names(self) -> list[str]:
        """Of the classes."""
        return list(self.config.class_names or map(str, range(self.config.num_classes)))

    @classmethod
    def model_options(cls, source: Source, options: SegmentationOptions) -> dict[str, Any]:
        names, own = tuple(source.pixel_classes), dict(options.head_options)
        if names[:1] == (BACKGROUND,) and options.background_bias is not None:
            own = {"background_bias": options.background_bias, **own}
        return {"head": options.head, "head_options": own, "num_classes": len(names), "class_names": names}

    def on(self, source: Source, data: str) -> Segmentation:
        """As `Task.on`.

        Raises:
            InputError: the data's classes are not the model's.
        """
        if list(source.pixel_classes) != self.names:
            here, there = len(source.pixel_classes), len(self.names)
            raise InputError(f"data {data!r}: its {here} classes of pixels are not the model's {there}")
        return self

    def targets(self, examples: Sequence[Example]) -> Mapping[str, list[Tensor]]:
        """`pixels`: for each image uint8 [height, width]."""
        said: Any = [example.target for example in examples]
        return {"pixels": [torch.from_numpy(np.ascontiguousarray(one.pixels)) for one in said]}

    def loss(self, outputs: list[Tensor], targets: Mapping[str, Any], layout: TokenLayout) -> tuple[Tensor, int]:
        """The sum over pixels; units are those that have a class, in patches that are there."""
        total, units, first = outputs[0].new_zeros((), dtype=torch.float32), 0, 0
        for maps, segment in zip(outputs, layout.segments, strict=True):
            labels = targets["pixels"][first : first + len(maps)]
            first += len(maps)
            # Where answers are measured, images of one grid may have labels of many sizes.
            together = (
                [(maps, torch.stack(labels))]
                if len({one.shape for one in labels}) == 1
                else [(one.unsqueeze(0), label.unsqueeze(0)) for one, label in zip(maps, labels, strict=True)]
            )
            for some, wanted in together:
                size, long = (wanted.shape[-2], wanted.shape[-1]), wanted.long()
                if segment.patches == segment.grid.cells:
                    logits = enlarged(some.float(), size)
                else:
                    # Between a patch that is there and one that is not, there is nothing to interpolate.
                    logits = F.interpolate(some.float(), size=size, mode="nearest-exact")
                    here = F.interpolate(is_there(segment)[None].float(), size=size, mode="nearest-exact")[0] > 0
                    long = long.where(here, IGNORE)
                total = total + F.cross_entropy(logits, long, ignore_index=IGNORE, reduction="sum")
                units += int((long != IGNORE).sum())
        return total, max(units, 1)

    def each(self, outputs: list[Tensor], layout: TokenLayout) -> list[Tensor]:
        """Logits [classes, height, width] of each image."""
        return [one for maps in outputs for one in maps]

    def decode(self, output: Tensor, crop: Crop) -> Labelled:
        """The likeliest class of each pixel of the stored image's part that was shown."""
        rows, cols = crop.region
        if self.config.fit == "pad":
            # What it was padded with is no part of the image.
            patch, shown = self.config.patch_size, crop.image_size
            output = _within(output, shown, [-(-side // patch) * patch for side in shown])
        return Labelled(likeliest(output, (rows.stop - rows.start, cols.stop - cols.start)))

    def pictures(self, decoded: Labelled, image: np.ndarray) -> Mapping[str, Image.Image]:
        """The index PNG, with a palette, and the image under its colours."""
        index = Image.fromarray(decoded.labels, "P")
        index.putpalette(class_colours(256).flatten().tolist())
        return {"labels": index, "overlay": overlay(image, decoded.labels)}

    def compared(
        self, output: Tensor, targets: Mapping[str, Any], number: int, image: np.ndarray
    ) -> tuple[Image.Image, Image.Image, Image.Image]:
        true = targets["pixels"][number].numpy()
        said = self.decode(output, Crop((0, 0, *true.shape), (image.shape[0], image.shape[1]))).labels
        seen = Image.fromarray(image).resize(true.shape[::-1])
        return seen, overlay(np.asarray(seen), true), overlay(np.asarray(seen), said)

    def legend(self) -> Legend:
        return class_legend(self.names)

    def answer(self, output: Labelled, image_size: tuple[int, int], topk: int) -> dict[str, Any]:
        """The largest classes with their shares of the pixels."""
        counts = np.bincount(output.labels.ravel(), minlength=IGNORE + 1)[: len(self.names)]
        order = np.argsort(-counts, kind="stable")[:topk]
        shares = counts / max(counts.sum(), 1)
        return {"classes": [{"class": self.names[one], "share": float(shares[one])} for one in order if counts[one]]}

    def words(self, answer: Mapping[str, Any]) -> str:
        return ", ".join(f"{one['class']} {100 * one['share']:.1f} %" for one in answer["classes"])


def enlarged(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps [images, classes, height, width] at another size, bilinear."""
    if maps.shape[-2:] == size:
        return maps
    return F.interpolate(maps, size=size, mode="bilinear", align_corners=False)


def likeliest(logits: Tensor, size: tuple[int, int]) -> np.ndarray:
    """The class of the highest of logits [classes, height, width] at each of (height, width) pixels, the first of those
    that are alike: uint8."""
    best, which = torch.full(size, -torch.inf), torch.zeros(size, dtype=torch.uint8)
    for first in range(0, len(logits), _CLASSES_AT_ONCE):
        some = enlarged(logits[None, first : first + _CLASSES_AT_ONCE].float(), size)[0]
        highest, index = some.max(dim=0)
        better = highest > best
        best, which = torch.where(better, highest, best), torch.where(better, (index + first).to(torch.uint8), which)
    return which.numpy()


def _within(output: Tensor, shown: tuple[int, int], padded: Sequence[int]) -> Tensor:
    """The part of a map that lies over the image, which was padded at the bottom and right."""
    if list(shown) == list(padded):
        return output
    return enlarged(output[None], (padded[0], padded[1]))[0, :, : shown[0], : shown[1]]
