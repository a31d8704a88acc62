"""The pre-norm transformer block and its parts; it calls the three hooks of whatever encoding it is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention import attend, rotate
from sightline.attention.threads import LARGEST_BYTES
from sightline.encodings.hooks import Hooks
from sightline.models.config import Gelu, ViTConfig
from sightline.models.hooks import is_bare_inside
from sightline.models.linear import affine, linear
from sightline.models.norm import PLAIN_NORMS, make_norm, make_qk_norms
from sightline.tokens.cache import is_plain_cpu_tensor, is_traced
from sightline.tokens.layout import TokenLayout
from sightline.tokens.rng import uniform, uniform_per_channel

# Streams of chance, and how many places of a layer there are in each.
_DROP_PATH, _DROPOUT = 1, 2
_BRANCHES, _DENSE = 2, 4
# Hidden channels that would be beyond the heap go in parts of so many bytes.
_PART_BYTES = 16 << 20


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
        q, k, v = self._heads(x, layer, layout, encoding)
        return self._closed(attend(q, k, v, encoding.pattern(layer, layout), layout, layer=layer))

    def of_first(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """What `forward` gives the first token of each image, a prefix token, without computing the others': [rows,
        slots, dim] -> [rows, images of a row, dim]. `qkv` is a plain linear layer."""
        width = self.num_heads * self.head_dim
        bias = self.qkv.bias if self._bias() is None else self._bias()
        of_q, of_kv = (None, None) if bias is None else bias.split((width, 2 * width))
        to_q, to_kv = self.qkv.weight.split((width, 2 * width))
        # Of rows with gaps torch takes one product or another, by whether weights learn.
        q = affine(layout.first(x).contiguous(), to_q, of_q).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        k, v = affine(x, to_kv, of_kv).unflatten(-1, (2, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        rotation = encoding.rotation(layer, layout)
        if rotation is not None:
            q, k = rotate(q, rotation.of_first(layout)), rotate(k, rotation)
        pattern = encoding.pattern(layer, layout)
        asked = None if pattern is None else pattern.of_prefix
        return self._closed(attend(q, k, v, asked, layout, layout.of_first, layer))

    def _heads(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, turned where the encoding turns them, and values: [rows, heads, slots, head_dim]."""
        qkv = linear(self.qkv, x, self._bias())
        q, k, v = qkv.unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q).to(v.dtype), self.k_norm(k).to(v.dtype)
        rotation = encoding.rotation(layer, layout)
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        return q, k, v

    def _closed(self, out: Tensor) -> Tensor:
        """What the heads found, [rows, heads, slots, head_dim] -> [rows, slots, dim]."""
        return linear(self.proj, self.norm(out.transpose(1, 2).flatten(2)))

    def _bias(self) -> Tensor | None:
        """Of q, k and v side by side, of which k has none; None where `qkv` has its own, or there is none."""
        if self.q_bias is None or self.v_bias is None:
            return None
        return torch.cat((self.q_bias, torch.zeros_like(self.q_bias), self.v_bias))


def _unchanged(x: Tensor) -> Tensor:
    return x


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
        if between not in (None, _unchanged):
            return linear(self.fc2, self.norm(between(self._activated(linear(self.fc1, x)))))
        tokens = self._tokens_of_a_part(x)
        if tokens is None:
            return self._whole(x)
        parts = x.reshape(1, -1, x.shape[-1]).split(tokens, dim=1)
        return torch.cat([self._whole(part) for part in parts], dim=1).view(*x.shape[:-1], -1)

    def _whole(self, x: Tensor) -> Tensor:
        return linear(self.fc2, self.norm(self._activated(linear(self.fc1, x))))

    def _tokens_of_a_part(self, x: Tensor) -> int | None:
        """How many tokens to take at a time, on a CPU where their hidden channels would be beyond the heap and nobody
        asks for them later; None for all of them."""
        if (
            torch.compiler.is_compiling()
            or not is_plain_cpu_tensor(x)
            or is_traced()
            or type(self) not in (Mlp, SwiGlu)
        ):
            return None
        # Known to take each token by itself.
        if (type(self.fc1), type(self.fc2)) != (nn.Linear, nn.Linear) or type(self.norm) not in PLAIN_NORMS:
            return None
        bytes_each = 4 * self.fc1.out_features
        if x.numel() // x.shape[-1] * bytes_each <= LARGEST_BYTES:
            return None
        learns = torch.is_grad_enabled() and (x.requires_grad or any(one.requires_grad for one in self.parameters()))
        return None if learns or not is_bare_inside(self) else max(_PART_BYTES // bytes_each // 64, 1) * 64

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

    def at(self, layout: TokenLayout, place: int) -> Callable[[Tensor], Tensor]:
        """What is done with [rows, slots, channels]; `place` numbers it among all of a model."""
        return partial(self, layout=layout, place=place) if self.training and self.rate else _unchanged

    def forward(self, x: Tensor, layout: TokenLayout, place: int) -> Tensor:
        """[rows, slots, channels] -> the same shape."""
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
        x = self._placed(x, layer, layout, encoding)
        return self._added(x, self.attended(self.norm1(x), layer, layout, encoding), layer, layout)

    def of_first(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """What `forward` gives the first token of each image, where that is a prefix token: [rows, slots, dim] ->
        [rows, images of a row, dim]. Of the others keys and values alone are computed."""
        x = self._placed(x, layer, layout, encoding)
        attended = self.attn.of_first(self.norm1(x), layer, layout, encoding)
        return self._added(layout.first(x), attended, layer, layout.of_first)

    def _placed(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """The tokens with what says where they stand."""
        added = encoding.added(layer, layout)
        if added is not None:
            x = x + added.to(x.dtype)
        # After the positions, where a model has them: ViT appendix B.1.
        return self.norm_pre(self._dropout(layer, 0, layout)(x) if layer == 0 else x)

    def _added(self, x: Tensor, attended: Tensor, layer: int, layout: TokenLayout) -> Tensor:
        """x with both branches, of tokens that stand as `layout` says."""
        attended = self._dropout(layer, 1, layout)(attended)
        x = x + self.drop_path(self.ls1(attended), layout, _BRANCHES * layer)
        widened = self._dropout(layer, 3, layout)(self.mlp(self.norm2(x), self._dropout(layer, 2, layout)))
        return x + self.drop_path(self.ls2(widened), layout, _BRANCHES * layer + 1)

    def _dropout(self, layer: int, dense: int, layout: TokenLayout) -> Callable[[Tensor], Tensor]:
        """Of one of the places of a layer where there may be some."""
        return self.dropout.at(layout, _DENSE * layer + dense)

    def attended(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """What attention gives the normed tokens, of which each image's meet: [rows, slots, dim] -> the same shape."""
        return self.attn(x, layer, layout, encoding)
