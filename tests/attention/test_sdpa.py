"""Eager attention, one image at a time, and nothing kept that grows with the square of the tokens."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch

from sightline.attention import DirectedBias, FieldOfView, Pattern, attend, sdpa, use_backend
from sightline.encodings import create_encoding
from sightline.tokens.layout import TokenLayout
from tests.attention.given import pattern, random_qkv


@pytest.fixture(autouse=True)
def sdpa_computes() -> Iterator[None]:
    with use_backend("sdpa"):
        yield


@pytest.mark.parametrize("what", [pattern(), None], ids=["biased", "plain"])
def test_against_the_formula_in_float64(what: Pattern | None) -> None:
    layout = TokenLayout.uniform((3, 5), 2)
    q, k, v = random_qkv(layout)
    scores = torch.einsum("bhqd,bhkd->bhqk", q.double(), k.double()) / 8**0.5
    if what is not None:
        scores += what.bias(layout.segments[0], layout.segments[0], 1, 1)
    assert (attend(q, k, v, what, layout) - scores.softmax(-1) @ v.double()).abs().max() < 1e-5


@pytest.mark.parametrize("form", ["sdpa", "products"])
def test_gradients_are_the_same_with_the_bias_made_again(form: str) -> None:
    layout = TokenLayout.packed([(3, 5), (2, 2)])
    encoding = create_encoding("rpe_learned", depth=1, heads=12, dim=48, train_grid=(4, 4))
    torch.nn.init.normal_(encoding.tables)
    leaves = [*(one.requires_grad_() for one in random_qkv(layout)), encoding.tables]
    with use_backend(form):
        found = torch.autograd.grad(attend(*leaves[:3], encoding.layer_pattern(0), layout).square().sum(), leaves)
    outs = []
    for segment, q, k, v in zip(
        layout.segments, *(layout.split(one.transpose(1, 2)) for one in leaves[:3]), strict=True
    ):
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / 8**0.5
        scores = scores + encoding.layer_pattern(0).bias(segment, segment, 1, 1)
        outs.append(scores.softmax(-1) @ v.transpose(1, 2))
    expected = torch.autograd.grad(torch.cat(outs, dim=2).square().sum(), leaves)
    for one, other in zip(found, expected, strict=True):
        assert one.norm() > 0
        assert (one - other).norm() < 1e-5 * other.norm() + 1e-6


def test_queries_of_their_own() -> None:
    layout = TokenLayout.packed([(3, 5), (2, 2)], num_prefix_tokens=0)
    _, k, v = random_qkv(layout)
    probes = torch.randn(1, 12, 2, 8)
    out = attend(probes, k, v, None, layout, queries=layout.query_layout(1))
    assert out.shape == (1, 12, 2, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(probes[:, :, 1:], k[:, :, 15:], v[:, :, 15:])
    assert (out[:, :, 1:] - expected).abs().max() < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masks_survive_16_bits(dtype: torch.dtype) -> None:
    """In float16 the mask becomes -inf: still finite outputs, as every query sees itself."""
    layout = TokenLayout.uniform((5, 7), 1)
    qkv = random_qkv(layout)
    expected = attend(*qkv, pattern(), layout)
    found = attend(*(one.to(dtype) for one in qkv), pattern(), layout)
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
    inputs = [one.requires_grad_() for one in random_qkv(layout, heads=2)]
    calls, real = [], sdpa._sdpa
    monkeypatch.setattr(sdpa, "_sdpa", lambda *given: calls.append(1) or real(*given))
    results = []
    for runs in (sdpa._runs, lambda _, queries, keys: [sdpa.ImageRun(one, one, (2, 2)) for one in keys.segments]):
        monkeypatch.setattr(sdpa, "_runs", runs)
        layout = copy.copy(layout)
        out = attend(*inputs, pattern, layout)
        results.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    assert len(calls) == expected + len(grids)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
