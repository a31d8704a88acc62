"""Masked patch prediction: what corrupted patches show (ViT appendix B.1.2). Nothing is said of the images."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from sightline.attention.wide import at_least_float32
from sightline.data.crops import apply_crop
from sightline.data.source import Example, Source
from sightline.data.targets import Crop
from sightline.errors import InputError
from sightline.io.config import Depends, build_config
from sightline.models import ViTConfig
from sightline.models.corruption import MASKED
from sightline.models.create import architecture_class
from sightline.models.embedder import embedder_class
from sightline.models.heads.masked_patches import MaskedPatchesHead, MaskedPatchesOptions, MaskedPatchOutputs
from sightline.tasks.base import Task
from sightline.tasks.patch_targets import class_colours, colour_classes, from_cells, in_cells
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import ImagePatchifier

_GREY = 128


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """A model's prediction of the corrupted patches of a stored image.

    Attributes:
        crop: what was shown of the image; grid: in how many patches.
        patches: int64 [patches], which were corrupted; sources: what stood there, `MASKED` for the [mask].
        rows: float32 [patches, channels * side**2], the predicted pixels of each, from 0 to 255.
        scores: float32 [patches], the mean probability of the predicted classes; None of pixels.
    """

    crop: Crop
    grid: Grid
    patches: np.ndarray
    sources: np.ndarray
    rows: Tensor
    scores: np.ndarray | None


class MaskedPatches(Task):
    """Colours, or pixels, of patches that are corrupted before the trunk.

    The loss is a mean over all corrupted patches, those too that were kept as they are: of a patch the softmax cross
    entropy of its class, the mean of those of its cells, or the mean square of the differences of its pixels, which are
    from 0 to 1 (the paper says "L2", and no scale). Targets are of the pixels before they are normalised, and of what
    an image was padded with too.
    """

    name: ClassVar[str] = "masked_patches"
    needs: ClassVar[tuple[str, ...]] = ()
    primary: ClassVar[str] = "masked_patches"
    tuned_by: ClassVar[str] = "loss of corrupted patches"
    Options: ClassVar[type] = MaskedPatchesOptions

    def __init__(self, config: ViTConfig, options: MaskedPatchesOptions) -> None:
        super().__init__(config, options)
        if config.head != MaskedPatchesHead.name:
            raise InputError(f"task masked_patches: head {config.head} (expected head masked_patches)")
        if any(one.merged for one in architecture_class(config.architecture).stages(config)):
            said = f"architecture {config.architecture} merges patches (expected one that does not)"
            raise InputError(f"task masked_patches: {said}")
        # What the model was trained on stands beside it.
        self.options = build_config(MaskedPatchesOptions, config.head_options, "head_options")
        patchifier = embedder_class(config.embedder).patchifier_of(config)
        self._side, self._channels = patchifier.patch_size, config.channels
        if patchifier.patch_dim != self._channels * self._side**2:
            raise InputError(f"task masked_patches: embedder {config.embedder}: its rows are no patches of pixels")
        self._rows = ImagePatchifier(patchifier, config.mean)

    @classmethod
    def depends(cls) -> Depends:
        return {"cells": ("target", ("cells",)), "bits": ("target", ("mean", "cells"))}

    @classmethod
    def model_options(cls, source: Source, options: MaskedPatchesOptions) -> dict[str, Any]:
        own = dataclasses.asdict(options)
        return {"head": MaskedPatchesHead.name, "head_options": own, "num_classes": 0, "class_names": None}

    def targets(self, examples: Sequence[Example]) -> Mapping[str, Tensor]:
        """`patches`, of all patches of all images one after the other: classes int32 [patches] or [patches, cells], or
        pixels [patches, channels * side**2], uint8, or float32 where an image had to be fitted."""
        found = [self.targets_of(self._rows(example.image)[0]) for example in examples]
        return {"patches": torch.cat(found) if found else torch.zeros(0)}

    def targets_of(self, rows: Tensor) -> Tensor:
        """What is asked of flat patches [patches, channels * side**2] of values from 0 to 255."""
        bits = self.options.bits
        match self.options.target:
            case "mean":
                return colour_classes(rows.unflatten(-1, (self._channels, -1)), bits).int()
            case "cells":
                return colour_classes(in_cells(rows, self._channels, self.options.cells), bits).int()
            case _:
                return rows

    def loss(
        self, outputs: list[MaskedPatchOutputs], targets: Mapping[str, Any], layout: TokenLayout
    ) -> tuple[Tensor, int]:
        """Units are the patches that were corrupted."""
        losses, _ = self.each_patch(outputs, targets, layout)
        return losses.sum(), len(losses)

    def each_patch(
        self, outputs: list[MaskedPatchOutputs], targets: Mapping[str, Any], layout: TokenLayout
    ) -> tuple[Tensor, Tensor | None]:
        """The loss of each corrupted patch, float32 [patches], image after image; and how much of it is rightly said:
        the share of its classes, float32 [patches], None of pixels."""
        values = at_least_float32(torch.cat([one["values"].flatten(0, 1) for one in outputs]))
        first, places = 0, []
        for one, segment in zip(outputs, layout.segments, strict=True):
            # An image has one row of a batch, or one segment of a pack.
            starts = first + segment.grid.cells * torch.arange(layout.rows, device=values.device).unsqueeze(1)
            places.append((one["patches"].long() + starts).flatten())
            first += segment.grid.cells * layout.rows
        true = targets["patches"].index_select(0, torch.cat(places))
        if self.options.target == "pixels":
            return (values - true.to(values.dtype) / 255).square().mean(dim=-1), None
        losses = F.cross_entropy(values.flatten(0, -2), true.long().flatten(), reduction="none").view(true.shape)
        right = (values.argmax(dim=-1) == true).to(values.dtype)
        if true.dim() == 2:
            losses, right = losses.mean(dim=1), right.mean(dim=1)
        return losses, right

    def split_outputs(self, outputs: list[MaskedPatchOutputs], layout: TokenLayout) -> list[MaskedPatchOutputs]:
        return [{name: values[row] for name, values in one.items()} for one in outputs for row in range(layout.rows)]

    def decode(self, output: MaskedPatchOutputs, crop: Crop) -> Reconstruction:
        rows, scores = self.render_patches(output["values"])
        patches, sources = (output[name].round().long().numpy() for name in ("patches", "sources"))
        return Reconstruction(crop, self.config.grid_of(crop.image_size), patches, sources, rows, scores)

    def render_patches(self, values: Tensor) -> tuple[Tensor, np.ndarray | None]:
        """`Reconstruction.rows`, the middle of the likeliest class or the pixels, and `.scores`.

        Args:
            values: [patches, ...], as in `MaskedPatchOutputs`.
        """
        if self.options.target == "pixels":
            return (255 * values.float()).clamp(0, 255), None
        best = values.float().softmax(dim=-1).max(dim=-1)
        colours = class_colours(best.indices, self.options.bits, self._channels)
        if self.options.target == "mean":
            return from_cells(colours.unsqueeze(1), 1, self._side), best.values.numpy()
        return from_cells(colours, self.options.cells, self._side), best.values.mean(dim=1).numpy()

    def pictures(self, decoded: Reconstruction, image: np.ndarray) -> Mapping[str, Image.Image]:
        """The corrupted image, the prediction, and the image, side by side."""
        shown = apply_crop(image, decoded.crop, self.config.interpolation)
        return {"reconstruction": _side_by_side(self._pictures(shown, decoded))}

    def comparison_images(
        self, output: MaskedPatchOutputs, targets: Mapping[str, Any], number: int, image: np.ndarray
    ) -> tuple[Image.Image, Image.Image, Image.Image]:
        """The corrupted image, the image, and the prediction."""
        size = (image.shape[0], image.shape[1])
        corrupted, predicted, true = self._pictures(image, self.decode(output, Crop((0, 0, *size), size)))
        return corrupted, true, predicted

    def _pictures(self, image: np.ndarray, found: Reconstruction) -> list[Image.Image]:
        """uint8 [height, width, 3] as it was corrupted, as it is predicted, and as its patches show it."""
        rows, grid = self._rows(image)
        rows = rows.float()
        corrupted, predicted = rows.clone(), rows.clone()
        patches, masked = torch.from_numpy(found.patches), torch.from_numpy(found.sources == MASKED)
        sources = rows[torch.from_numpy(found.sources).clamp(min=0)]
        corrupted[patches] = torch.where(masked[:, None], float(_GREY), sources)
        predicted[patches] = found.rows
        every = torch.stack([corrupted, predicted, rows])
        each = self._rows.patchifier.unpatchify(every, grid).round().clamp(0, 255).byte()
        return [Image.fromarray(one.permute(1, 2, 0).contiguous().numpy()) for one in each]

    def to_json(self, output: Reconstruction, image_size: tuple[int, int], topk: int) -> dict[str, Any]:
        """How many patches were corrupted, and how; of the first, or the surest where classes are said, where they are
        and of which mean colour they are said to be."""
        sources, patches, scores = output.sources, output.patches, output.scores
        masked, kept = int((sources == MASKED).sum()), int((sources == patches).sum())
        counts = {"corrupted": len(patches), "masked": masked, "kept": kept, "random": len(patches) - masked - kept}
        order = np.arange(len(patches)) if scores is None else np.argsort(-scores, kind="stable")
        colours = output.rows.unflatten(-1, (self._channels, -1)).mean(dim=-1).round().int()
        first: list[dict[str, Any]] = []
        for one in order[:topk].tolist():
            place = divmod(int(patches[one]), output.grid.cols)
            score = {} if scores is None else {"score": float(scores[one])}
            first.append({"patch": list(place), "colour": colours[one].tolist(), **score})
        mean = {} if scores is None else {"mean_score": float(scores.mean())}
        return {"target": self.options.target, **counts, **mean, "patches": first}

    def describe(self, answer: Mapping[str, Any]) -> str:
        score = f", mean score {answer['mean_score']:.2f}" if "mean_score" in answer else ""
        counts = ", ".join(f"{answer[name]} {name}" for name in ("masked", "random", "kept"))
        return f"{answer['corrupted']} patches corrupted ({counts}){score}"


def _side_by_side(pictures: Sequence[Image.Image]) -> Image.Image:
    """With a gap of a few pixels."""
    width, height = pictures[0].size
    gap = max(2, width // 32)
    whole = Image.new("RGB", (len(pictures) * (width + gap) - gap, height), "white")
    for number, picture in enumerate(pictures):
        whole.paste(picture, (number * (width + gap), 0))
    return whole
