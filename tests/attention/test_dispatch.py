"""Calls of attention whatever computes them."""

from __future__ import annotations

import pytest
import torch

from sightline.attention import AttentionSpec, attend, preferred_tile, use_backend
from sightline.attention.dispatch import BACKENDS
from sightline.attention.flex import TILE
from sightline.tokens.layout import TokenLayout
from tests.attention.given import pattern, random_qkv


def test_the_order_of_tokens() -> None:
    """A CPU keeps row-major order; whoever asks for a back end gets the order that it wants."""
    layout = TokenLayout.uniform((64, 64), 1)
    spec = AttentionSpec(torch.device("cpu"), torch.float32, 4, 16)
    assert preferred_tile(pattern(), layout, spec) is None
    for name in BACKENDS:
        with use_backend(name), torch.no_grad():
            assert preferred_tile(pattern(), layout, spec) == (TILE if name == "flex" else None)


@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize(
    "layout",
    [
        TokenLayout.uniform((3, 5), 0),
        TokenLayout.packed([]),
        TokenLayout.uniform((3, 4), 2, num_prefix_tokens=0).keep(torch.zeros(2, 0, dtype=torch.int64)),
    ],
    ids=["rows", "images", "tokens"],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_gives_no_outputs(backend: str, layout: TokenLayout, learns: bool) -> None:
    for what in (None, pattern(), pattern("rpe_learned")):
        q, k, v = (one.requires_grad_(learns) for one in random_qkv(layout))
        with use_backend(backend), torch.set_grad_enabled(learns):
            out = attend(q, k, v, what, layout)
        assert out.shape == (layout.rows, 12, layout.slots, 8)
        assert out.numel() == 0
        if learns:
            out.sum().backward()
            assert all(one.grad is None or one.grad.shape == one.shape for one in (q, k, v))
