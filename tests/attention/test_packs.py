"""Packs on a CPU as one step of the graph: what the loop over images gives, gradients too, whatever the neighbours."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sightline.attention import attend, packs, use_backend
from sightline.encodings import create_encoding
from sightline.layout import TokenLayout

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
