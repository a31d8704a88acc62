"""The pre-norm transformer block and its parts; it calls the three hooks of whatever encoding it is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention import attend, rotate
from sightline.attention.onednn import linear
from sightline.encodings.hooks import Hooks
from sightline.models.config import Gelu, ViTConfig
from sightline.models.norm import make_norm, make_qk_norms
from sightline.tokens.layout import TokenLayout
from sightline.tokens.rng import uniform, uniform_per_channel

# Streams of chance, and how many places of a layer there are in each.
_DROP_PATH, _DROPOUT = 1, 2
_BRANCHES, _DENSE = 2, 4


class Attention(nn.Module):
    """Multi-head self-attention of each image over its own tokens (ViT appendix A).

    Attributes:
        q_bias, v_bias: where `qkv_bias` is "qv"; keys then have none (BEiT, EVA).
        norm: of the heads' outputs together, or the identity.
    """

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        dim, width = config.dim, config.attention_width
        self.num_heads = config.heads
        self.head_dim = width // config.heads
        self.qkv = nn.Linear(dim, 3 * width, bias=config.qkv_bias is True)
        self.q_bias = self.v_bias = None
        if config.qkv_bias == "qv":
            self.q_bias, self.v_bias = nn.Parameter(torch.zeros(width)), nn.Parameter(torch.zeros(width))
        self.q_norm, self.k_norm = make_qk_norms(config, self.num_heads, self.head_dim)
        self.norm = make_norm(config, width, there=config.attn_norm)
        self.proj = nn.Linear(width, dim, bias=config.block_bias is True)

    def forward(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """[rows, slots, dim] -> the same shape."""
        qkv = linear(self.qkv, x, self._bias())
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        rotation = encoding.rotation(layer, layout)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        out = attend(q, k, v, encoding.pattern(layer, layout), layout, layer=layer)
        return linear(self.proj, self.norm(out.transpose(1, 2).flatten(2)))

    def _bias(self) -> Tensor | None:
        """Of q, k and v side by side, of which k has none; None where `qkv` has its own, or there is none."""
        if self.q_bias is None or self.v_bias is None:
            return None
        return torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))


def _quick_gelu(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x), with which OpenAI's CLIP was trained."""
    return x * torch.sigmoid(1.702 * x)


_GELUS: dict[Gelu, Callable[[Tensor], Tensor]] = {
    "exact": F.gelu,
    "tanh": partial(F.gelu, approximate="tanh"),
    "quick": _quick_gelu,
}


class Mlp(nn.Module):
    """Two linear layers with a GELU between them (ViT equation 3).

    Attributes:
        norm: of the hidden channels (EVA-02, BEiT-3), or the identity.
    """

    # Outputs of the first layer for each hidden channel.
    _inputs: ClassVar[int] = 1

    def __init__(self, config: ViTConfig, hidden: int, *, normed: bool = False) -> None:
        super().__init__()
        bias = config.block_bias is not False
        self.fc1 = nn.Linear(config.dim, self._inputs * hidden, bias=bias)
        self.norm = make_norm(config, hidden, there=normed)
        self.fc2 = nn.Linear(hidden, config.dim, bias=bias)
        self.gelu: Gelu = config.gelu

    def forward(self, x: Tensor, between: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """[..., dim] -> the same shape; `between` is called with the hidden channels."""
        hidden = self._activated(linear(self.fc1, x))
        return linear(self.fc2, self.norm(hidden if between is None else between(hidden)))

    def _activated(self, x: Tensor) -> Tensor:
        return _GELUS[self.gelu](x)

    def extra_repr(self) -> str:
        return f"gelu={self.gelu!r}"


class SwiGlu(Mlp):
    """fc2(norm(silu(gate) * value)), gate and value both from `fc1`, the gate first (Shazeer 2020, equation 6)."""

    _inputs = 2

    def _activated(self, x: Tensor) -> Tensor:
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate) * value

    def extra_repr(self) -> str:
        return ""


class LayerScale(nn.Module):
    """A learned factor for each channel of a residual branch (CaiT; DeiT III; LookHere)."""

    def __init__(self, dim: int, initial: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), float(initial)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class DropPath(nn.Module):
    """Skips a residual branch for some images in training; each image is drawn apart, packed or not, by its seed where
    the layout has them (`TokenLayout.with_seeds`), else by torch's generator."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, layout: TokenLayout, place: int) -> Tensor:
        """[rows, slots, dim] -> the same shape; `place` numbers the branch among all of a model."""
        if not self.training or self.rate == 0:
            return x
        if layout.seeds is None:
            draws = torch.rand(layout.images, device=x.device)
        else:
            draws = uniform(layout.seeds, _DROP_PATH, place)
        kept = (draws >= self.rate).to(x.dtype) / (1 - self.rate)
        return x * kept[layout.image_ids].unsqueeze(-1)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class Dropout(nn.Module):
    """Sets channels of tokens to zero in training (Srivastava et al. 2014), drawn as `DropPath` draws."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, layout: TokenLayout, place: int) -> Tensor:
        """[rows, slots, channels] -> the same shape; `place` numbers it among all of a model."""
        if not self.training or self.rate == 0:
            return x
        if layout.seeds is None:
            return F.dropout(x, self.rate)
        seeds = layout.seeds[layout.image_ids]
        kept = uniform_per_channel(seeds, x.shape[-1], _DROPOUT, place, layout.slot_positions) >= self.rate
        return x * kept.to(x.dtype) / (1 - self.rate)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)) (ViT equations 2 and 3), with LayerScale and drop path.

    Attributes:
        norm_pre: of the embedded tokens, in the first block of CLIP's models; else the identity.
    """

    def __init__(self, config: ViTConfig, layer: int) -> None:
        super().__init__()
        dim, scale = config.dim, config.layer_scale
        self.norm_pre = make_norm(config, dim, there=config.norm_pre and layer == 0)
        self.norm1 = make_norm(config, dim)
        self.attn = Attention(config)
        self.ls1 = nn.Identity() if scale is None else LayerScale(dim, scale)
        self.norm2 = make_norm(config, dim)
        self.mlp = (SwiGlu if config.mlp == "swiglu" else Mlp)(config, config.mlp_hidden, normed=config.mlp_norm)
        self.ls2 = nn.Identity() if scale is None else LayerScale(dim, scale)
        self.drop_path = DropPath(config.drop_path_of(layer))
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """[rows, slots, dim] -> the same shape."""
        added = encoding.added(layer, layout)
        if added is not None:
            x = x + added.to(x.dtype)
        if layer == 0:
            # After the positions, where a model has them: ViT appendix B.1.
            x = self.dropout(x, layout, 0)
        x = self.norm_pre(x)
        attended = self.attended(self.norm1(x), layer, layout, encoding)
        attended = self.dropout(attended, layout, _DENSE * layer + 1)
        x = x + self.drop_path(self.ls1(attended), layout, _BRANCHES * layer)
        widened = self.mlp(self.norm2(x), partial(self.dropout, layout=layout, place=_DENSE * layer + 2))
        widened = self.dropout(widened, layout, _DENSE * layer + 3)
        return x + self.drop_path(self.ls2(widened), layout, _BRANCHES * layer + 1)

    def attended(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """What attention gives the normed tokens, of which each image's meet: [rows, slots, dim] -> the same shape."""
        return self.attn(x, layer, layout, encoding)
