"""Tokens of each image to one vector."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from sightline.attention import attend
from sightline.models.block import Mlp
from sightline.models.config import Pool, ViTConfig
from sightline.models.norm import make_norm, make_qk_norms
from sightline.tokens.layout import TokenLayout


class Pooling(nn.Module):
    """One vector for each image of a layout, of its patches; of prefix tokens too where `prefix` says so."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.prefix = config.pool_prefix

    @abstractmethod
    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        """[rows, slots, dim] -> [images, dim]."""


class TokenPooling(Pooling):
    """One token of each image: the CLS token, its first slot (ViT equation 4); or the first patch, token (0, 0) in its
    place (scenic's axial xvit)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.slot = config.num_prefix_tokens if config.pool == "first" else 0

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        return torch.cat([image[:, self.slot] for image in layout.split(tokens)])


class SidePooling(Pooling):
    """Tokens side by side: the CLS token and the mean over the patches (DINOv2's classifier), or all prefix tokens."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.mean = config.pool == "cls_mean"

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        first, images = layout.num_prefix_tokens, layout.split(tokens)
        if self.mean:
            return torch.cat([torch.cat((image[:, 0], image[:, first:].mean(dim=1)), dim=-1) for image in images])
        return torch.cat([image[:, :first].flatten(1) for image in images])


class MeanPooling(Pooling):
    """The mean over the tokens."""

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        first = 0 if self.prefix else layout.num_prefix_tokens
        return torch.cat([image[:, first:].mean(dim=1) for image in layout.split(tokens)])


class ProbePooling(Pooling):
    """A learned probe attends to the patches of each image.

    Prefix tokens do not count, as in NaFlexViT, except where `prefix` says so (Perception Encoder).
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        dim, width, bias = config.dim, config.probe_width, config.block_bias is True
        self.num_heads = config.pool_heads or config.heads
        self.latent = nn.Parameter(torch.empty(1, 1, dim))
        self.q = nn.Linear(dim, width, bias=bias)
        self.kv = nn.Linear(dim, 2 * width, bias=bias)
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()
        self.proj = nn.Linear(width, dim, bias=bias)
        self.norm = make_norm(config, dim)

    def attended(self, probe: Tensor, tokens: Tensor, layout: TokenLayout) -> Tensor:
        """What the probe [1, 1, dim] reads in each image: [images, dim]."""
        images_a_row = len(layout.segments)
        keys = layout if self.prefix else layout.patches_only()
        if not self.prefix:
            first = layout.num_prefix_tokens
            tokens = torch.cat([image[:, first:] for image in layout.split(tokens)], dim=1)
        k, v = self.kv(tokens).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        probe = self.q(probe).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        q, k = self.q_norm(probe).to(v.dtype), self.k_norm(k).to(v.dtype)
        q = q.expand(tokens.shape[0], -1, images_a_row, -1)
        pooled = attend(q, k, v, None, keys, queries=layout.query_layout(1))
        return self.proj(pooled.transpose(1, 2).flatten(2)).flatten(0, 1)


class AttentionPooling(ProbePooling):
    """An MLP with a residual after the probe's attention (big_vision's MAP head)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.mlp = Mlp(config, config.pool_hidden)

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        pooled = self.attended(self.latent, tokens, layout)
        return pooled + self.mlp(self.norm(pooled))


class QueryPooling(ProbePooling):
    """The probe as a token of a block: a norm, its attention and a residual, without an MLP (vit-pytorch's NaViT)."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        self.q_norm, self.k_norm = make_qk_norms(config, self.num_heads, config.probe_width // self.num_heads)

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        return self.latent[0] + self.attended(self.norm(self.latent), tokens, layout)


_POOLINGS: dict[Pool, type[Pooling]] = {
    "cls": TokenPooling,
    "mean": MeanPooling,
    "attention": AttentionPooling,
    "query": QueryPooling,
    "first": TokenPooling,
    "cls_mean": SidePooling,
    "prefix": SidePooling,
}


def make_pooling(config: ViTConfig) -> Pooling:
    """The pooling that a configuration names."""
    return _POOLINGS[config.pool](config)
