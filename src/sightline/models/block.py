"""The pre-norm transformer block and its parts, which know tensors alone: `Trunk.layer_inputs` asks the encoding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention import AttentionCall, RotationTensors, rotate
from sightline.attention.dispatch import OpaqueCall
from sightline.attention.onednn import linear
from sightline.models.config import Gelu, ViTConfig
from sightline.models.norm import make_norm, make_qk_norms
from sightline.models.stochastic import Dropout, DropPath, LayerNoise
from sightline.models.windows import WindowedLayout
from sightline.tokens.layout import TokenLayout


class LayerInputs(NamedTuple):
    """What a block is given beside its tokens: tensors alone, but for blocks that cut images themselves.

    Attributes:
        attention: how queries, keys and values meet (`plan_attention`).
        rotation: of queries and keys, or None.
        noise: what is drawn for the layer in training, or None.
        windows: of blocks that attend in windows: where tokens go before attention, and come from.
        layout: of what a block of a trunk that merges patches is given; None where nothing reads it.
    """

    attention: AttentionCall
    rotation: RotationTensors | None = None
    noise: LayerNoise | None = None
    windows: WindowedLayout | None = None
    layout: TokenLayout | None = None


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

    def forward(self, x: Tensor, inputs: LayerInputs) -> Tensor:
        """[rows, slots, dim] -> the same shape."""
        if inputs.windows is not None:
            x = inputs.windows.partition(x)
        x = self.project(inputs.attention(*self.qkv_of(x, inputs)))
        return x if inputs.windows is None else inputs.windows.merge(x)

    def qkv_of(self, x: Tensor, inputs: LayerInputs) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, normed and turned, and values: [rows, heads, slots, head_dim] each."""
        qkv = linear(self.qkv, x, self._bias())
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        if inputs.rotation is not None:
            q, k = rotate(q, inputs.rotation), rotate(k, inputs.rotation)
        return q, k, v

    def project(self, out: Tensor) -> Tensor:
        """What the heads gave, [rows, heads, slots, head_dim], to [rows, slots, dim]."""
        return linear(self.proj, self.norm(out.transpose(1, 2).flatten(2)))

    def _bias(self) -> Tensor | None:
        """Of q, k and v side by side, of which k has none; None where `qkv` has its own, or there is none."""
        if self.q_bias is None or self.v_bias is None:
            return None
        return torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))


_GELUS: dict[Gelu, Callable[[Tensor], Tensor]] = {
    "exact": F.gelu,
    "tanh": partial(F.gelu, approximate="tanh"),
    # With which OpenAI's CLIP was trained.
    "quick": lambda x: x * torch.sigmoid(1.702 * x),
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

    def forward(self, x: Tensor, inputs: LayerInputs) -> Tensor:
        """[rows, slots, dim] -> the same shape."""
        noise = inputs.noise
        x = self.norm_pre(x)
        if isinstance(inputs.attention, OpaqueCall) and inputs.windows is None:
            # A program breaks in the frame that calls: here, and not in two frames of which each would break.
            q, k, v = self.attn.qkv_of(self.norm1(x), inputs)
            attended = self.attn.project(inputs.attention(q, k, v))
        else:
            attended = self.attn(self.norm1(x), inputs)
        x = x + self.drop_path(self.ls1(self.dropout(attended, noise, 1)), noise, 0)
        widened = self.mlp(self.norm2(x), partial(self.dropout, noise=noise, place=2))
        return x + self.drop_path(self.ls2(self.dropout(widened, noise, 3)), noise, 1)
