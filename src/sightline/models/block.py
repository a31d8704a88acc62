"""The pre-norm transformer block, which calls the three hooks of whatever encoding it is given."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention import attend, rotate
from sightline.encodings.base import PositionEncoding
from sightline.layout import TokenLayout

Gelu = Literal["exact", "tanh"]


class Attention(nn.Module):
    """Multi-head self-attention of each image over its own tokens (ViT appendix A)."""

    def __init__(self, dim: int, heads: int, *, qkv_bias: bool, qk_norm: bool, norm_eps: float) -> None:
        super().__init__()
        self.num_heads = heads
        self.head_dim = dim // heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.q_norm = nn.LayerNorm(self.head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(self.head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor, layer: int, layout: TokenLayout, encoding: PositionEncoding) -> Tensor:
        """[rows, slots, dim] -> the same shape."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        rotation = encoding.rotation(layer, layout)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        out = attend(q, k, v, encoding.pattern(layer, layout), layout)
        return self.proj(out.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    """Two linear layers with a GELU between them (ViT equation 3)."""

    def __init__(self, dim: int, hidden: int, *, gelu: Gelu) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)
        self.approximate = "tanh" if gelu == "tanh" else "none"

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.gelu(self.fc1(x), approximate=self.approximate))


class LayerScale(nn.Module):
    """A learned factor for each channel of a residual branch (CaiT; DeiT III; LookHere)."""

    def __init__(self, dim: int, initial: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), initial))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class DropPath(nn.Module):
    """Skips a residual branch for some images in training; each image is drawn apart, packed or not."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, layout: TokenLayout) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        kept = (torch.rand(layout.images, device=x.device) >= self.rate).to(x.dtype) / (1 - self.rate)
        return x * kept[layout.image_ids].unsqueeze(-1)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)) (ViT equations 2 and 3), with LayerScale and drop path."""

    def __init__(
        self,
        dim: int,
        heads: int,
        hidden: int,
        *,
        qkv_bias: bool,
        qk_norm: bool,
        norm_eps: float,
        gelu: Gelu,
        layer_scale: float | None,
        drop_path: float,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = Attention(dim, heads, qkv_bias=qkv_bias, qk_norm=qk_norm, norm_eps=norm_eps)
        self.ls1 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = Mlp(dim, hidden, gelu=gelu)
        self.ls2 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, layer: int, layout: TokenLayout, encoding: PositionEncoding) -> Tensor:
        """[rows, slots, dim] -> the same shape."""
        added = encoding.added(layer, layout)
        if added is not None:
            x = x + added.to(x.dtype)
        x = x + self.drop_path(self.ls1(self.attn(self.norm1(x), layer, layout, encoding)), layout)
        return x + self.drop_path(self.ls2(self.mlp(self.norm2(x))), layout)
