"""Segmentation: a class for each pixel, at any size, scored at the size of the labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.data.batch import Batch
from sightline.data.source import Example, Source
from sightline.data.targets import IGNORE, Crop
from sightline.errors import InputError
from sightline.io.config import Depends, config_dataclass
from sightline.models import Model, ViTConfig
from sightline.models.dense_head import Bias, BiasOptions
from sightline.models.head import head_classes
from sightline.tasks.base import Task, check_classes, check_head
from sightline.tasks.drawing import ColorKey, class_colours, class_legend, overlay
from sightline.tasks.maps import covered_size, fitted_labels, reader_for, undo_fit
from sightline.tasks.windows import InferenceMode, check_window, infer_batch
from sightline.tokens.layout import TokenLayout

BACKGROUND = "background"


@config_dataclass
class SegmentationOptions:
    """`head`: a head that gives maps; `head_options`: of its own; `background_bias`: of the logit of a class called
    background, before the first step, of heads that have it as an option; None leaves it at 0; `inference`: fields of
    `InferenceMode`, how images are given to the model in evaluation."""

    head: str = "pix"
    head_options: dict[str, Any] = field(default_factory=dict)
    background_bias: Bias | None = 2.0
    inference: InferenceMode = field(default_factory=InferenceMode)


@dataclass(frozen=True, eq=False)
class SegmentationMap:
    """What is said of the pixels of a stored image.

    Attributes:
        labels: uint8 [height, width] of the part that was shown; origin: (row, column) where that begins.
    """

    labels: np.ndarray
    origin: tuple[int, int] = (0, 0)

    def in_image(self, size: tuple[int, int]) -> np.ndarray:
        """Of the whole image, whose size is (height, width): uint8 [height, width], `IGNORE` beyond the part."""
        whole, (top, left) = np.full(size, IGNORE, np.uint8), self.origin
        whole[top : top + self.labels.shape[0], left : left + self.labels.shape[1]] = self.labels
        return whole


class Segmentation(Task):
    """The class of each pixel.

    Heads give maps of logits (`MapReader`) or sets of masks (`MaskSetReader`), which say what their loss is a mean of.
    """

    name: ClassVar[str] = "segmentation"
    needs: ClassVar[tuple[str, ...]] = ("pixels",)
    primary: ClassVar[str] = "miou"
    Options: ClassVar[type] = SegmentationOptions

    def __init__(self, config: ViTConfig, options: SegmentationOptions) -> None:
        super().__init__(config, options)
        check_head(config.head, boxes=False)
        check_window(config, options.inference)

    @property
    def inference_label(self) -> str:
        """`InferenceMode.label`, by which rows tell how images were given to the model; "" for whole, as they are."""
        return self.options.inference.label

    @classmethod
    def depends(cls) -> Depends:
        heads = [name for name, one in head_classes().items() if issubclass(one.Options, BiasOptions)]
        return {"background_bias": ("head", heads)}

    @classmethod
    def model_options(cls, source: Source, options: SegmentationOptions) -> dict[str, Any]:
        names, own = tuple(source.pixel_classes), dict(options.head_options)
        if len(names) > IGNORE:
            raise InputError(f"data {source.name}: {len(names)} classes of pixels (expected at most {IGNORE})")
        check_head(options.head, boxes=False)
        takes_bias = options.head in cls.depends()["background_bias"][1]
        if takes_bias and names[:1] == (BACKGROUND,) and options.background_bias is not None:
            own = {"background_bias": options.background_bias, **own}
        return {"head": options.head, "head_options": own, "num_classes": len(names), "class_names": names}

    def bind(self, source: Source, data: str) -> Segmentation:
        check_classes(self, "pixels", source.pixel_classes, data)
        return self

    def targets(self, examples: Sequence[Example]) -> Mapping[str, list[Any]]:
        """`pixels`: for each image uint8 [height, width]; `seen`: (height, width) in pixels of the picture before it
        was fitted to patches; `origins`: where the labels begin in the stored image, and its (height, width)."""
        targets: Any = [example.target for example in examples]
        pixels = [torch.from_numpy(np.ascontiguousarray(one.pixels)) for one in targets]
        whole = [getattr(one, "whole", None) or one.pixels.shape for one in targets]
        origins = [(*getattr(one, "origin", (0, 0)), *size) for one, size in zip(targets, whole, strict=True)]
        return {"pixels": pixels, "seen": [example.image.shape[:2] for example in examples], "origins": origins}

    def shown_sizes(self, targets: Mapping[str, Any]) -> list[tuple[int, int]]:
        """(height, width) in pixels of each picture before it was fitted to patches; those of the labels where targets
        do not say it."""
        return [(one[0], one[1]) for one in targets.get("seen") or [labels.shape for labels in targets["pixels"]]]

    def outputs(self, model: Model, batch: Batch, precision: str = "float32") -> list[Any]:
        how = self.options.inference
        return super().outputs(model, batch, precision) if how.plain else infer_batch(model, batch, how, precision)

    def loss(self, outputs: list[Any], targets: Mapping[str, Any], layout: TokenLayout) -> tuple[Tensor, int | Tensor]:
        labels = [
            fitted_labels(one, size, covered_size(self.config, size))
            for one, size in zip(targets["pixels"], self.shown_sizes(targets), strict=True)
        ]
        return reader_for(outputs).loss(outputs, labels, layout)

    def split_outputs(self, outputs: list[Any], layout: TokenLayout) -> list[Any]:
        """Logits [classes, height, width] of each image, or what queries say of it (`QueryOutputs`)."""
        return reader_for(outputs).each(outputs)

    def decode(self, output: Any, crop: Crop) -> SegmentationMap:
        """The likeliest class of each pixel of the stored image's part that was shown."""
        (rows, cols), reader, shown = crop.region, reader_for([output]), crop.image_size
        output = reader.crop_to_image(output, shown, covered_size(self.config, shown))
        size = rows.stop - rows.start, cols.stop - cols.start
        return SegmentationMap(reader.argmax_map(output, size), (rows.start, cols.start))

    def pictures(self, decoded: SegmentationMap, image: np.ndarray) -> Mapping[str, Image.Image]:
        """The index PNG, with a palette, and the image under its colours, both of the image's size."""
        labels = decoded.in_image(image.shape[:2])
        return {"labels": _index(labels), "overlay": overlay(image, labels)}

    def comparison_images(
        self, output: Tensor, targets: Mapping[str, Any], number: int, image: np.ndarray
    ) -> tuple[Image.Image, Image.Image, Image.Image]:
        true, size = targets["pixels"][number].numpy(), self.shown_sizes(targets)[number]
        predicted = self.decode(output, Crop((0, 0, *true.shape), size)).labels
        picture = Image.fromarray(undo_fit(self.config, image, size)).resize(true.shape[::-1])
        return picture, overlay(np.asarray(picture), true), overlay(np.asarray(picture), predicted)

    def results(self, outputs: Any, batch: Batch) -> list[Image.Image]:
        """Index PNGs of the size of the stored images."""
        pictures = []
        sizes, origins = self.shown_sizes(batch.targets), batch.targets["origins"]
        each = zip(self.split_outputs(outputs, batch.layout), batch.targets["pixels"], sizes, origins, strict=True)
        for output, true, shown, (top, left, *size) in each:
            labels = self.decode(output, Crop((0, 0, *true.shape), shown)).labels
            pictures.append(_index(SegmentationMap(labels, (top, left)).in_image((size[0], size[1]))))
        return pictures

    def color_key(self) -> ColorKey:
        return class_legend(self.names)

    def to_json(self, output: SegmentationMap, image_size: tuple[int, int], topk: int) -> dict[str, Any]:
        """The largest classes with their shares of the pixels."""
        counts = np.bincount(output.labels.ravel(), minlength=IGNORE + 1)[: len(self.names)]
        order = np.argsort(-counts, kind="stable")[:topk]
        shares = counts / max(counts.sum(), 1)
        return {"classes": [{"class": self.names[one], "share": float(shares[one])} for one in order if counts[one]]}

    def describe(self, answer: Mapping[str, Any]) -> str:
        return ", ".join(f"{one['class']} {100 * one['share']:.1f} %" for one in answer["classes"])


def _index(labels: np.ndarray) -> Image.Image:
    """Numbers of classes as a picture with a palette."""
    index = Image.fromarray(labels, "P")
    index.putpalette(class_colours(256).flatten().tolist())
    return index
