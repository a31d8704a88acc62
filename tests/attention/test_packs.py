"""Packs on a CPU as one step of the graph: what the loop over images gives, gradients too, whatever the neighbours."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from sightline.attention import Pattern, attend, packs, use_backend
from sightline.attention.costs import of_one_form, using
from sightline.encodings import create_encoding
from sightline.tokens.layout import TokenLayout

HEADS, HEAD_DIM = 12, 4
# Of the last image the weights are not kept: more than four patches a width of a head.
GRIDS = [(3, 5), (2, 2), (2, 2), (5, 3), (1, 1), (4, 7)]


def found(layout: TokenLayout, name: str | None, dtype: torch.dtype) -> list[Tensor]:
    """The output and the gradients of queries, keys and values, of the same numbers for the first images."""
    pattern = None if name is None else create_encoding(name, depth=1, heads=HEADS, dim=48).layer_pattern(0)
    values = torch.randn(layout.slots, 3, HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    qkv = [one.transpose(0, 1)[None].to(dtype).requires_grad_() for one in values.unbind(1)]
    with use_backend("dense"):
        out = attend(*qkv, pattern, layout)
    return [out.detach(), *torch.autograd.grad(out.float().square().sum(), qkv)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [None, "lookhere_90", "alibi_2d"])
@pytest.mark.parametrize("grids", [GRIDS, GRIDS[:-1]])
def test_a_pack_gives_what_its_images_give_one_by_one(name, dtype, grids, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, real = [], packs.attended
    monkeypatch.setattr(packs, "attended", lambda *given: calls.append(given) or real(*given))
    together = found(TokenLayout.packed(grids), name, dtype)
    assert len(calls) == 1
    monkeypatch.setattr(packs, "takes", lambda *_: False)
    by_image = found(TokenLayout.packed(grids), name, dtype)
    assert len(calls) == 1
    bound = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    for one, other in zip(together, by_image, strict=True):
        assert one.dtype == dtype
        assert (one - other).abs().max() <= bound * other.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neighbours_change_no_bit_of_an_image(dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    among = [found(TokenLayout.packed([(3, 5), *others]), "lookhere_90", dtype) for others in ([], [(3, 5)], GRIDS)]
    for other in among[1:]:
        for one, alone in zip(other, among[0], strict=True):
            assert torch.equal(one[:, :, :16], alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cheapest", ["explicit", "sdpa"])
@torch.no_grad()
def test_without_gradients_costs_say_who_computes_short_images(cheapest, dtype, monkeypatch) -> None:
    """The fused kernel takes those that are alike together, and no image knows of the others in any case."""
    shorts, real = [], packs.attended
    monkeypatch.setattr(
        packs, "attended", lambda *given: shorts.append([one.short for one in given[-1].parts]) or real(*given)
    )
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, HEADS, 5 * 16, HEAD_DIM, generator=generator).to(dtype).unbind(0)
    pattern = create_encoding("lookhere_90", depth=1, heads=HEADS, dim=48).layer_pattern(0)
    outs = []
    with using(of_one_form(cheapest)), use_backend("dense"):
        for grids in ([(3, 5)] * 5, [(3, 5), (1, 1), (5, 3)], [(3, 5)]):
            layout = TokenLayout.packed(grids)
            outs.append(attend(*(one[:, :, : layout.slots] for one in (q, k, v)), pattern, layout)[:, :, :16])
    short = cheapest == "explicit"
    assert shorts == [[short] * (5 if short else 1), [short] * 3, [short]]
    for one in outs[1:]:
        assert torch.equal(one, outs[0])
    exact = attend(*(one[:, :, :16].double() for one in (q, k, v)), pattern, TokenLayout.packed([(3, 5)]))
    torch.testing.assert_close(outs[0].double(), exact, rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)


def test_of_a_long_image_alone_no_pairs_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pack keeps them between layers; an image that is none would make them for nothing."""
    monkeypatch.setattr(Pattern, "spread", None)
    pattern = create_encoding("lookhere_90", depth=1, heads=HEADS, dim=48).layer_pattern(0)
    q = torch.randn(1, HEADS, 18 * 20 + 1, HEAD_DIM)
    with use_backend("dense"):
        assert attend(q, q, q, pattern, TokenLayout.uniform((18, 20), 1)).isfinite().all()


@torch.no_grad()
def test_whoever_counts_operators_sees_torchs() -> None:
    """Of products that are written into a bias torch's counter sees none, and of others all."""
    pattern = create_encoding("lookhere_90", depth=1, heads=HEADS, dim=48).layer_pattern(0)
    layout, counts = TokenLayout.packed(GRIDS), []
    q = torch.randn(1, HEADS, layout.slots, HEAD_DIM)
    for call in (
        lambda: attend(q, q, q, pattern, layout),
        lambda: [F.scaled_dot_product_attention(one, one, one) for one in q.split(layout.seqlens, 2)],
    ):
        with using(of_one_form("explicit")), FlopCounterMode(display=False) as counter:
            call()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1]


def test_with_gradients_short_images_are_products_whatever_costs_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would compute each again for its gradients; weights that are kept cost less."""
    shorts, real = [], packs.attended
    monkeypatch.setattr(
        packs, "attended", lambda *given: shorts.append([one.short for one in given[-1].parts]) or real(*given)
    )
    with using(of_one_form("sdpa")):
        found(TokenLayout.packed(GRIDS[:-1]), "lookhere_90", torch.float32)
    assert shorts == [[True] * 5]
