"""The MLP of a block: two layers with a GELU between them, or a gated one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.models.config import Gelu, ViTConfig
from sightline.models.norm import make_norm


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

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.norm(self._activated(self.fc1(x))))

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
