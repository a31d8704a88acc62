"""The MLP of a block: two layers with a GELU between them, or a gated one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Gelu = Literal["exact", "tanh", "quick"]
GELUS: tuple[Gelu, ...] = ("exact", "tanh", "quick")
MlpKind = Literal["gelu", "swiglu"]
MLPS: tuple[MlpKind, ...] = ("gelu", "swiglu")


def _quick_gelu(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x), with which OpenAI's CLIP was trained."""
    return x * torch.sigmoid(1.702 * x)


def _exact_gelu(x: Tensor) -> Tensor:
    return F.gelu(x)


def _tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


_GELUS: dict[Gelu, Callable[[Tensor], Tensor]] = {"exact": _exact_gelu, "tanh": _tanh_gelu, "quick": _quick_gelu}


class Mlp(nn.Module):
    """Two linear layers with a GELU between them (ViT equation 3).

    Attributes:
        norm: of the hidden channels (EVA-02, BEiT-3), or the identity.
    """

    def __init__(self, dim: int, hidden: int, *, gelu: Gelu, norm: nn.Module | None = None, bias: bool = True) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden, bias=bias)
        self.norm = nn.Identity() if norm is None else norm
        self.fc2 = nn.Linear(hidden, dim, bias=bias)
        self.gelu: Gelu = gelu

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.norm(_GELUS[self.gelu](self.fc1(x))))

    def extra_repr(self) -> str:
        return f"gelu={self.gelu!r}"


class SwiGlu(nn.Module):
    """fc2(norm(silu(gate) * value)), gate and value both from `fc1`, the gate first (Shazeer 2020, equation 6).

    Attributes:
        norm: of the hidden channels (EVA-02), or the identity.
    """

    def __init__(self, dim: int, hidden: int, *, norm: nn.Module | None = None, bias: bool = True) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, 2 * hidden, bias=bias)
        self.norm = nn.Identity() if norm is None else norm
        self.fc2 = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.fc1(x).chunk(2, dim=-1)
        return self.fc2(self.norm(F.silu(gate) * value))
