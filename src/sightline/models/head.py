"""From a pooled vector to logits."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Head = Literal["linear", "mlp"]
HEADS: tuple[Head, ...] = ("linear", "mlp")
ScoreLink = Literal["softmax", "sigmoid"]
SCORE_LINKS: tuple[ScoreLink, ...] = ("softmax", "sigmoid")


class TanhMlpHead(nn.Module):
    """Linear, tanh, linear: ViT's head while pre-training (section 3.1), and LookHere's."""

    def __init__(self, dim: int, hidden: int, num_classes: int, *, bias: bool = True) -> None:
        super().__init__()
        # As a linear layer says it, which timm's checks read.
        self.in_features, self.out_features = dim, num_classes
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, num_classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.fc1(x).tanh())


def make_head(kind: Head, dim: int, hidden: int, num_classes: int, *, bias: bool = True) -> nn.Module:
    """The head of that kind, the layer that gives the logits with a bias or without; the identity for no classes."""
    if num_classes == 0:
        return nn.Identity()
    if kind == "mlp":
        return TanhMlpHead(dim, hidden, num_classes, bias=bias)
    return nn.Linear(dim, num_classes, bias=bias)


def last_layer(head: nn.Module) -> nn.Linear | None:
    """The layer that gives the logits, or None where there is none."""
    if isinstance(head, TanhMlpHead):
        return head.fc2
    return head if isinstance(head, nn.Linear) else None
