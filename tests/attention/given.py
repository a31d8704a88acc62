"""Inputs of the tests of back ends, and attention with its gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sightline.attention import Pattern, attend, use_backend
from sightline.encodings import create_encoding
from sightline.tokens.layout import TokenLayout

# Directed ones, with what they are made with.
PATTERNS = {
    "lookhere_180": {},
    "lookhere_90": {"rounding": "exact"},
    "lookhere_45": {},
    "lookhere": {"directions": "halves-center", "rounding": "exact"},
    "alibi_2d": {},
}


def layouts_of(prefix: int) -> list[TokenLayout]:
    """Small grids that are not square: a line, one alone, two in a batch, and a pack."""
    return [
        *(TokenLayout.uniform(grid, 1, num_prefix_tokens=prefix) for grid in [(1, 7), (17, 9)]),
        TokenLayout.uniform((8, 5), 2, num_prefix_tokens=prefix),
        TokenLayout.packed([(3, 5), (1, 7), (5, 9)], num_prefix_tokens=prefix),
    ]


def pattern(name: str = "lookhere_45", heads: int = 12, **config) -> Pattern:
    return create_encoding(name, depth=1, heads=heads, dim=heads * 4, **config).layer_pattern(0)


def random_qkv(
    layout: TokenLayout, heads: int = 12, head_dim: int = 8, seed: int = 0, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return list(torch.randn(3, layout.rows, heads, layout.slots, head_dim, generator=generator).to(dtype).unbind(0))


def with_gradients(
    name: str, qkv: Sequence[Tensor], what: Pattern | None, layout: TokenLayout, seed: int = 1
) -> list[Tensor]:
    """The output of a back end and the gradients of q, k and v."""
    leaves = [one.detach().clone().requires_grad_() for one in qkv]
    with use_backend(name):
        out = attend(leaves[0], leaves[1], leaves[2], what, layout)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(seed))
        # Rounded to 16 bits first, so that all precisions get the same.
        out.backward(weights.bfloat16().to(out.dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def assert_close(found: Sequence[Tensor], expected: Sequence[Tensor], output: float, gradients: float) -> None:
    assert len(found) == len(expected) == 4
    for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert ours.isfinite().all()
        assert theirs.norm() > 0
        assert (ours - theirs).norm() <= (gradients if index else output) * theirs.norm(), "oqkv"[index]
