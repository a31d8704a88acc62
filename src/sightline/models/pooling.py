"""Tokens of each image to one vector."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from sightline.attention import attend
from sightline.layout import TokenLayout
from sightline.models.mlp import Mlp

Pool = Literal["cls", "mean", "attention"]
POOLS: tuple[Pool, ...] = ("cls", "mean", "attention")


class Pooling(nn.Module):
    """One vector for each image of a layout."""

    @abstractmethod
    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        """[rows, slots, dim] -> [images, dim]."""


class ClsPooling(Pooling):
    """The CLS token, the first slot of each image (ViT equation 4)."""

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        return torch.cat([image[:, 0] for image in layout.split(tokens)])


class MeanPooling(Pooling):
    """The mean over the patches; prefix tokens count only where `prefix` says so."""

    def __init__(self, *, prefix: bool = False) -> None:
        super().__init__()
        self.prefix = prefix

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        first = 0 if self.prefix else layout.num_prefix_tokens
        return torch.cat([image[:, first:].mean(dim=1) for image in layout.split(tokens)])


class AttentionPooling(Pooling):
    """A learned probe attends to the patches of each image, then an MLP with a residual (big_vision's MAP head).

    Prefix tokens do not count, as in NaFlexViT, except where `prefix` says so (Perception Encoder).
    """

    def __init__(self, dim: int, heads: int, *, norm: nn.Module, mlp: Mlp, prefix: bool = False) -> None:
        super().__init__()
        self.num_heads = heads
        self.prefix = prefix
        self.latent = nn.Parameter(torch.empty(1, 1, dim))
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm = norm
        self.mlp = mlp

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        images_a_row = len(layout.segments)
        keys = layout if self.prefix else layout.patches_only()
        if not self.prefix:
            first = layout.num_prefix_tokens
            tokens = torch.cat([image[:, first:] for image in layout.split(tokens)], dim=1)
        k, v = self.kv(tokens).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        probe = self.q(self.latent).expand(tokens.shape[0], images_a_row, -1)
        q = probe.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        pooled = attend(q, k, v, None, keys, queries=layout.queries(1))
        pooled = self.proj(pooled.transpose(1, 2).flatten(2)).flatten(0, 1)
        return pooled + self.mlp(self.norm(pooled))
