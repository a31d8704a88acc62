"""A head at a time by either library, beside the plain formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from sightline.attention import attend, use_backend
from sightline.attention import by_head as module
from sightline.attention.by_head import by_head
from sightline.attention.costs import of_one_form, using
from sightline.attention.forms import explicit_attention
from sightline.attention.products import expected_shapes
from sightline.tokens.layout import TokenLayout
from tests.attention.given import assert_close, pattern, random_qkv, with_gradients


def inputs(rows: int, queries: int, keys: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Heads side by side in each token, as projections give them."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(rows, tokens, 3, 8, generator=generator).to(dtype).transpose(1, 2)
        for tokens in (queries, keys, keys)
    ]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("ever_new", [True, False])
@pytest.mark.parametrize("biased", ["none", "shared", "learned", "of rows", "of one head"])
def test_as_the_formula(biased: str, ever_new: bool, threads: int) -> None:
    """With queries of their own, and the gradient of a bias that is learned."""
    shape = {"of rows": (2, 3, 7, 11), "of one head": (1, 1, 7, 11)}.get(biased, (1, 3, 7, 11))
    bias = None if biased == "none" else torch.randn(shape, generator=torch.Generator().manual_seed(1))
    weights, results, before = torch.randn(2, 3, 7, 8), [], torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for form in (by_head, explicit_attention):
            leaves = [one.detach().requires_grad_() for one in inputs(2, 7, 11)]
            added = bias if bias is None or biased == "shared" else bias.clone().requires_grad_()
            with using(replace(of_one_form("by_head"), onednn=2.0)), expected_shapes(ever_new=ever_new):
                out = form(*leaves, added)
                wanted = [*leaves, *([added] if added is not None and added.requires_grad else [])]
                results.append([out, *torch.autograd.grad(out, wanted, weights)])
    finally:
        torch.set_num_threads(before)
    for one, other in zip(*results, strict=True):
        assert other.norm() > 0
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_bfloat16_is_computed_in_float32() -> None:
    q, k, v = inputs(1, 40, 40, torch.bfloat16)
    bias = torch.randn(1, 3, 40, 40)
    out = by_head(q, k, v, bias)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, by_head(q.float(), k.float(), v.float(), bias).bfloat16())


def test_a_bias_may_be_made_for_each_pass() -> None:
    q, k, v = (one.requires_grad_() for one in inputs(1, 9, 9))
    bias, made = torch.randn(1, 3, 9, 9), []

    def make() -> Tensor:
        made.append(1)
        return bias

    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        out = by_head(q, k, v, make)
    assert len(made) == 1
    assert all(one.numel() <= q.numel() for one in kept), "neither bias nor scores are kept"
    found = torch.autograd.grad(out.square().sum(), (q, k, v))
    assert len(made) == 2
    for one, other in zip(found, torch.autograd.grad(by_head(q, k, v, bias).square().sum(), (q, k, v)), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("grid", [(19, 31), (14, 15)])
@pytest.mark.parametrize("name", [None, "lookhere_90", "alibi_2d"])
def test_a_layer_takes_it_where_it_costs_least(name: str | None, grid: tuple[int, int], monkeypatch) -> None:
    layout = TokenLayout.uniform(grid, 2)
    what, qkv = None if name is None else pattern(name), random_qkv(layout)
    with use_backend("dense"), using(of_one_form("sdpa")):
        expected = with_gradients("dense", qkv, what, layout)
    with using(of_one_form("by_head")), monkeypatch.context() as patched:
        # Whoever else would compute it is not there.
        patched.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
        patched.setattr("sightline.attention.backends.dense.attend_with_remade", None)
        assert_close(with_gradients("dense", qkv, what, layout), expected, 1e-5, 1e-4)
        with torch.no_grad(), use_backend("dense"):
            assert attend(*qkv, what, layout).isfinite().all()


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("tokens", [(50, 50), (47, 31), (1, 40)])
def test_some_queries_at_a_time_give_what_all_do(
    tokens: tuple[int, int], learned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def product(shapes: set[tuple[int, int, int]]):
        made.append(max(m * n for m, n, k in shapes if n == tokens[1]))
        return lambda a, b: a @ b.t()

    monkeypatch.setattr(module, "product_of", product)
    bias = torch.randn(1, 3, *tokens, generator=torch.Generator().manual_seed(1)).requires_grad_(learned)
    weights, results = torch.randn(2, 3, tokens[0], 8), []
    for most in (1 << 30, 16 * 4 * tokens[1]):
        monkeypatch.setattr(module, "_SCORES_BYTES", most)
        leaves = [one.detach().requires_grad_() for one in inputs(2, *tokens)]
        out = by_head(*leaves, bias)
        results.append([out, *torch.autograd.grad(out, [*leaves, *([bias] if learned else [])], weights)])
        assert 4 * max(made[-2:]) <= most
    assert max(made[-2:]) < max(made[:2]) or tokens[0] < 16
    for one, other in zip(*results, strict=True):
        assert other.norm() > 0
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
