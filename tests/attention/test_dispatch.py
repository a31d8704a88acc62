"""Calls of attention whatever computes them."""

from __future__ import annotations

import pytest
import torch

from sightline.attention import AttentionSpec, attend, dispatch, preferred_tile, use_backend
from sightline.attention.dispatch import BACKENDS, choose_backend
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


def test_who_computes_directed_attention_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bias serves images that are alike; the others have FlexAttention, in half precision."""
    monkeypatch.setattr(dispatch, "has_triton", lambda: True)
    kept = torch.stack([torch.randperm(4096)[:2048] for _ in range(2)])
    layouts = {
        "alike": TokenLayout.uniform((64, 64), 2),
        "a pack of alike ones": TokenLayout.packed([(32, 32)] * 8),
        "a pack": TokenLayout.packed([(32, 32), (20, 30)]),
        "a small pack": TokenLayout.packed([(3, 2), (2, 3)]),
        "dropped": TokenLayout.uniform((64, 64), 2).keep(kept),
    }
    for dtype in (torch.bfloat16, torch.float32):
        spec = AttentionSpec(torch.device("cuda"), dtype, 12, 64)
        found = {name for name, one in layouts.items() if choose_backend(pattern(), one, one, spec) == "flex"}
        assert found == ({"a pack", "dropped"} if dtype == torch.bfloat16 else set())


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
