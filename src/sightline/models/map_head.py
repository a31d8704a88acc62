"""Heads that give a map of logits for each image: what segmentation asks of a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sightline.errors import InputError
from sightline.layout import TokenLayout
from sightline.models.head import TokenHead, patches_of


class MapHead(TokenHead):
    """Logits of each class on a grid over each image: of its pixels, or coarser.

    `forward` gives for each segment of the layout float [rows, num_classes, height, width]: over the image and over
    what it was padded with.
    """

    def forward(self, tokens: Tensor, layout: TokenLayout) -> list[Tensor]:
        check_whole(self.name, layout)
        return self.maps(patches_of(tokens, layout), layout)

    @abstractmethod
    def maps(self, patches: list[Tensor], layout: TokenLayout) -> list[Tensor]:
        """Normed patches [rows, patches, dim] of each segment, row-major, to their maps."""


def check_whole(head: str, layout: TokenLayout) -> None:
    """Refuse images of which patches were dropped.

    Raises:
        InputError: there is one.
    """
    if not all(segment.complete for segment in layout.segments):
        raise InputError(f"head {head}: takes whole images (expected no token dropping: packing.drop 0)")


def on_grids(patches: Sequence[Tensor], layout: TokenLayout) -> list[Tensor]:
    """Patches [rows, patches, dim] of each segment to maps [rows, dim, rows of its grid, columns]."""
    return [
        one.transpose(1, 2).unflatten(2, tuple(segment.grid))
        for one, segment in zip(patches, layout.segments, strict=True)
    ]


def linear(dim: int, biases: Sequence[float], each: int = 1) -> nn.Linear:
    """The last layer of a head: weights of std 0.02, and a bias for each class, `each` times in a row."""
    layer = nn.Linear(dim, len(biases) * each)
    nn.init.trunc_normal_(layer.weight, std=0.02)
    with torch.no_grad():
        layer.bias.copy_(torch.tensor(biases).repeat_interleave(each))
    return layer
