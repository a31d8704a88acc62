"""Tokens of each image to one vector."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from sightline.attention import attend
from sightline.layout import TokenLayout
from sightline.models.mlp import Mlp
from sightline.models.norm import make_norm, make_qk_norms

if TYPE_CHECKING:
    from sightline.models.config import ViTConfig

Pool = Literal["cls", "mean", "attention", "query"]
POOLS: tuple[Pool, ...] = ("cls", "mean", "attention", "query")


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


class ProbePooling(Pooling):
    """A learned probe attends to the patches of each image.

    Prefix tokens do not count, as in NaFlexViT, except where `prefix` says so (Perception Encoder).

    Args:
        dim, heads, head_dim: of the tokens, and of the attention.
        bias: of the four projections.
        norm: of the subclass.
        qk_norms: of queries and keys in each head, or none.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        head_dim: int,
        *,
        norm: nn.Module,
        bias: bool = True,
        prefix: bool = False,
        qk_norms: tuple[nn.Module, nn.Module] | None = None,
    ) -> None:
        super().__init__()
        width = heads * head_dim
        self.num_heads = heads
        self.prefix = prefix
        self.latent = nn.Parameter(torch.empty(1, 1, dim))
        self.q = nn.Linear(dim, width, bias=bias)
        self.kv = nn.Linear(dim, 2 * width, bias=bias)
        self.q_norm, self.k_norm = qk_norms or (nn.Identity(), nn.Identity())
        self.proj = nn.Linear(width, dim, bias=bias)
        self.norm = norm

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
        pooled = attend(q, k, v, None, keys, queries=layout.queries(1))
        return self.proj(pooled.transpose(1, 2).flatten(2)).flatten(0, 1)


class AttentionPooling(ProbePooling):
    """An MLP with a residual after the probe's attention (big_vision's MAP head)."""

    def __init__(self, dim: int, heads: int, head_dim: int, *, mlp: Mlp, **probe: Any) -> None:
        super().__init__(dim, heads, head_dim, **probe)
        self.mlp = mlp

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        pooled = self.attended(self.latent, tokens, layout)
        return pooled + self.mlp(self.norm(pooled))


class QueryPooling(ProbePooling):
    """The probe as a token of a block: a norm, its attention and a residual, without an MLP (vit-pytorch's NaViT)."""

    def forward(self, tokens: Tensor, layout: TokenLayout) -> Tensor:
        return self.latent[0] + self.attended(self.norm(self.latent), tokens, layout)


def make_pooling(config: ViTConfig) -> Pooling:
    """The pooling that a configuration names."""
    if not config.has_probe:
        return ClsPooling() if config.pool == "cls" else MeanPooling(prefix=config.pool_prefix)
    dim, heads = config.dim, config.pool_heads or config.heads
    head_dim = config.probe_width // heads
    probe: dict[str, Any] = {
        "bias": config.block_bias is True,
        "prefix": config.pool_prefix,
        "norm": make_norm(config.norm, dim, config.norm_eps),
    }
    if config.pool == "attention":
        mlp = Mlp(dim, config.pool_hidden, gelu=config.gelu, bias=config.block_bias is not False)
        return AttentionPooling(dim, heads, head_dim, mlp=mlp, **probe)
    norms = make_qk_norms(config.qk_norm, config.norm, heads, head_dim, config.norm_eps)
    return QueryPooling(dim, heads, head_dim, qk_norms=norms, **probe)
