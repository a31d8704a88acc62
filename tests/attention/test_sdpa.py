"""Eager attention, one image at a time, and nothing kept that grows with the square of the tokens."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from sightline.attention import DirectedBias, FieldOfView, Pattern, attend, sdpa, use_backend
from sightline.encodings import create_encoding
from sightline.tokens.layout import TokenLayout

HEADS, HEAD_DIM = 12, 4


@pytest.fixture(autouse=True)
def dense_computes() -> Iterator[None]:
    with use_backend("sdpa"):
        yield


def qkv(layout: TokenLayout, requires_grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, layout.rows, HEADS, layout.slots, HEAD_DIM, generator=generator)
    q, k, v = (one.requires_grad_(requires_grad) for one in values.clone().unbind(0))
    return q, k, v


def pattern(name: str = "lookhere_45", **config):
    return create_encoding(name, depth=1, heads=HEADS, dim=HEADS * HEAD_DIM, **config).layer_pattern(0)


def test_against_the_formula_in_float64() -> None:
    layout = TokenLayout.uniform((3, 5), 2)
    q, k, v = qkv(layout)
    segment = layout.segments[0]
    bias = pattern().bias(segment, segment, 1, 1).double()
    scores = torch.einsum("bhqd,bhkd->bhqk", q.double(), k.double()) / HEAD_DIM**0.5
    expected = (scores + bias).softmax(-1) @ v.double()
    assert (attend(q, k, v, pattern(), layout) - expected).abs().max() < 1e-5
    plain = scores.softmax(-1) @ v.double()
    assert (attend(q, k, v, None, layout) - plain).abs().max() < 1e-5


@pytest.mark.parametrize("form", ["sdpa", "products"])
def test_gradients_are_the_same_with_the_bias_made_again(form: str) -> None:
    layout = TokenLayout.packed([(3, 5), (2, 2)])
    encoding = create_encoding("rpe_learned", depth=1, heads=HEADS, dim=HEADS * HEAD_DIM, train_grid=(4, 4))
    torch.nn.init.normal_(encoding.tables)
    q, k, v = qkv(layout, requires_grad=True)
    with use_backend(form):
        attend(q, k, v, encoding.layer_pattern(0), layout).square().sum().backward()
    found = [q.grad, k.grad, v.grad, encoding.tables.grad]

    encoding.tables.grad = None
    rq, rk, rv = qkv(layout, requires_grad=True)
    outs = []
    for segment, qi, ki, vi in zip(
        layout.segments, *(layout.split(one.transpose(1, 2)) for one in (rq, rk, rv)), strict=True
    ):
        scores = qi.transpose(1, 2) @ ki.transpose(1, 2).transpose(-1, -2) / HEAD_DIM**0.5
        scores = scores + encoding.layer_pattern(0).bias(segment, segment, 1, 1)
        outs.append(scores.softmax(-1) @ vi.transpose(1, 2))
    torch.cat(outs, dim=2).square().sum().backward()
    for one, other in zip(found, [rq.grad, rk.grad, rv.grad, encoding.tables.grad], strict=True):
        assert one.norm() > 0
        assert (one - other).norm() < 1e-5 * other.norm() + 1e-6


def test_images_of_a_pack_do_not_meet() -> None:
    layout = TokenLayout.packed([(3, 5), (2, 2)])
    q, k, v = qkv(layout)
    together = attend(q, k, v, pattern(), layout)
    first = TokenLayout.uniform((3, 5), 1)
    alone = attend(q[:, :, :16], k[:, :, :16], v[:, :, :16], pattern(), first)
    assert torch.equal(together[:, :, :16], alone)


def test_queries_of_their_own() -> None:
    layout = TokenLayout.packed([(3, 5), (2, 2)], num_prefix_tokens=0)
    _, k, v = qkv(layout)
    probes = torch.randn(1, HEADS, 2, HEAD_DIM)
    out = attend(probes, k, v, None, layout, queries=layout.query_layout(1))
    assert out.shape == (1, HEADS, 2, HEAD_DIM)
    expected = torch.nn.functional.scaled_dot_product_attention(probes[:, :, 1:], k[:, :, 15:], v[:, :, 15:])
    assert (out[:, :, 1:] - expected).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masks_survive_16_bits(dtype: torch.dtype) -> None:
    """In float16 the mask becomes -inf: still finite outputs, as every query sees itself."""
    layout = TokenLayout.uniform((5, 7), 1)
    q, k, v = qkv(layout)
    expected = attend(q, k, v, pattern(), layout)
    found = attend(q.to(dtype), k.to(dtype), v.to(dtype), pattern(), layout)
    assert found.dtype == dtype
    assert found.isfinite().all()
    assert (found.float() - expected).abs().max() < 0.05


DIRECTED = Pattern((DirectedBias((FieldOfView(((1, 0),)), FieldOfView()), (0.5, 0.25), (False, False)),))


@pytest.mark.parametrize(
    ("grids", "dropped", "pattern", "expected"),
    [
        ([(3, 5)] * 4, False, None, 1),
        ([(3, 5)] * 4, False, DIRECTED, 1),
        # As many slots are enough where nothing looks at where they stand.
        ([(3, 5), (5, 3), (1, 15)], False, None, 1),
        ([(3, 5), (5, 3), (1, 15)], False, DIRECTED, 3),
        ([(3, 5)] * 3, True, None, 1),
        ([(3, 5)] * 3, True, DIRECTED, 3),
        ([(3, 5), (3, 5), (3, 4)], False, None, 2),
    ],
)
def test_a_pack_of_images_that_are_alike_is_a_batch(grids, dropped, pattern, expected, monkeypatch):
    """One call, and what each image gives alone, gradients too."""
    torch.manual_seed(0)
    layout = TokenLayout.packed(grids, num_prefix_tokens=2)
    if dropped:
        layout = layout.keep([torch.randperm(15)[:7].sort().values for _ in grids])
    inputs = [torch.randn(1, 2, layout.slots, 8, requires_grad=True) for _ in range(3)]
    calls, real = [], sdpa._sdpa
    monkeypatch.setattr(sdpa, "_sdpa", lambda *given: calls.append(1) or real(*given))
    results = []
    for runs in (sdpa._runs, lambda _, queries, keys: [sdpa.ImageRun(one, one, 1) for one in keys.segments]):
        monkeypatch.setattr(sdpa, "_runs", runs)
        layout = copy.copy(layout)
        out = sdpa.attend_eager(*inputs, pattern, layout, layout, "sdpa")
        results.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    assert len(calls) == expected + len(grids)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
