"""What corrupted patches show, from their own tokens: masked patch prediction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.io.config import Count, config_dataclass
from sightline.models.config import ViTConfig
from sightline.models.corruption import MASKED, Corruption, CorruptionDraw, apply_corruption
from sightline.models.head import TokenHead, patch_tokens
from sightline.tokens.layout import TokenLayout

MaskedPatchOutputs = dict[str, Tensor]
"""What is said of the corrupted patches of one segment, by the row-major numbers of patches in their image's grid:

`values` [rows, patches, ...]: logits of the mean colour [classes], of each cell's [cells, classes], or all pixels
[channels * patch**2];
`patches` int64 [rows, patches]: which they are;
`sources` int64 [rows, patches]: which patch stood there, `MASKED` for none.
"""


@config_dataclass
class MaskedPatchesOptions(Corruption):
    """What is asked of a model, and how much of an image it does not see.

    Attributes:
        target: `mean` colour of a patch; those of its `cells` x `cells` parts; or all its `pixels`.
        bits: of a colour's channel.
        mask_in: the [mask] is an `embedding`, or `pixels`.
    """

    target: Literal["mean", "cells", "pixels"] = "mean"
    bits: Annotated[int, Field(ge=1, le=5)] = 3
    cells: Count = 4
    mask_in: Literal["embedding", "pixels"] = "embedding"


class MaskedPatchesHead(TokenHead):
    """Part of the patches is corrupted between embedding and trunk, and a linear layer says of each of them, from its
    normed token, what it showed (ViT appendix B.1.2).

    A [mask] that is learned stands for a hidden patch: a token, to which positions are added as to any other, or, as in
    vit-pytorch, pixels before the embedding. Which patches that are, the images' seeds say (`Corruption.draw`), in
    evaluation too. Of an image of which patches were dropped, those that are there are corrupted.

    Attributes:
        corruption: how much, and how.
        mask_token: the [mask], [dim], or [values of a flat row].
        fc: the linear layer.
    """

    name: ClassVar[str] = "masked_patches"
    Options: ClassVar[type] = MaskedPatchesOptions
    export_refusal: ClassVar[str] = "hides patches from the model at random (expected a model fine-tuned from this one)"

    def __init__(self, config: ViTConfig) -> None:
        """Raises InputError where a value is refused, or `cells` do not divide the patch."""
        super().__init__(config)
        options: MaskedPatchesOptions = self.options
        self.corruption: Corruption = options
        side, cells = config.patch_size, options.cells
        if options.target == "cells" and side % cells:
            allowed = ", ".join(str(count) for count in range(1, side + 1) if side % count == 0)
            said = f"head_options.cells {cells}: must divide patch_size {side} (allowed: {allowed})"
            raise InputError(said, field="cells", value=cells)
        classes, pixels = 2 ** (options.bits * config.channels), config.channels * side**2
        shapes: dict[str, tuple[int, ...]] = {"mean": (classes,), "cells": (cells**2, classes), "pixels": (pixels,)}
        self.shape = shapes[options.target]
        self.mask_token = nn.Parameter(torch.empty(config.dim if options.mask_in == "embedding" else pixels))
        self.fc = nn.Linear(config.dim, torch.Size(self.shape).numel())
        self.values = self.fc.out_features
        nn.init.normal_(self.mask_token, std=0.02)
        nn.init.trunc_normal_(self.fc.weight, std=0.02)
        nn.init.zeros_(self.fc.bias)

    def predict(self, model: Any, rows: Tensor, layout: TokenLayout) -> list[MaskedPatchOutputs]:
        drawn = self.corruption.draw(layout, self.training)
        if self.options.mask_in == "embedding":
            tokens = self(model.embed(rows, layout), layout, drawn, hides=True)
        else:
            bare = layout.patches_only()
            there = self(rows[:, : bare.slots], bare, drawn, hides=True)
            tokens = model.embed(torch.cat([there, rows[:, bare.slots :]], dim=1), layout)
        return self(model.through(tokens, layout), layout, drawn)

    def forward(
        self, tokens: Tensor, layout: TokenLayout, drawn: Sequence[CorruptionDraw] | None = None, *, hides: bool = False
    ) -> Any:
        """Normed tokens [rows, slots, dim] to what they say of the patches that were corrupted (`MaskedPatchOutputs`).

        Args:
            drawn: of each segment; None draws again, which is the same where the images have seeds.
            hides: give embedded tokens, or flat rows, with these patches corrupted instead.
        """
        drawn = self.corruption.draw(layout, self.training) if drawn is None else drawn
        if hides:
            return apply_corruption(tokens, self.mask_token, drawn, layout)
        found: list[MaskedPatchOutputs] = []
        for patches, one, segment in zip(patch_tokens(tokens, layout), drawn, layout.segments, strict=True):
            places = one.chosen.unsqueeze(-1).expand(-1, -1, patches.shape[-1])
            values = self.fc(patches.gather(1, places)).unflatten(-1, self.shape)
            chosen, sources = one
            if not segment.complete:
                numbers = segment.indices.expand(layout.rows, -1)
                sources = numbers.gather(1, sources.clamp(min=0)).where(sources != MASKED, MASKED)
                chosen = numbers.gather(1, chosen)
            found.append({"values": values, "patches": chosen, "sources": sources})
        return found
