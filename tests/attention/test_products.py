"""Matmul, softmax, matmul by chunks, beside the plain formula."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.attention import attend, products, use_backend
from sightline.attention.products import attend_products
from sightline.distributed import machine
from sightline.tokens.layout import TokenLayout
from tests.attention.given import assert_close, pattern, random_qkv, with_gradients


def formula(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    return (scores if bias is None else scores + bias).softmax(-1) @ v


def inputs(rows: int, queries: int, keys: int, dtype: torch.dtype = torch.float32, head_dim: int = 8) -> list[Tensor]:
    """Heads side by side in each token, as projections give them."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(rows, tokens, 3, head_dim, generator=generator).to(dtype).transpose(1, 2)
        for tokens in (queries, keys, keys)
    ]


def gradients(form, given: list[Tensor], bias: Tensor | None, weights: Tensor) -> list[Tensor]:
    leaves = [one.detach().clone().requires_grad_() for one in given]
    learned = bias is not None and bias.requires_grad
    added = bias.detach().clone().requires_grad_() if bias is not None and learned else bias
    out = form(*leaves, added)
    wanted = [*leaves, *([added] if learned else [])]
    return [out.detach(), *torch.autograd.grad(out, wanted, weights.to(out.dtype))]


@pytest.fixture(params=["intel", "amd"])
def vendor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the two libraries of float32 products."""
    monkeypatch.setattr(machine, "cpu_vendor", lambda: request.param)
    return request.param


@pytest.mark.usefixtures("vendor")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("tokens", [(7, 11), (50, 50), (47, 61)])
@pytest.mark.parametrize("chunk", ["all", "a head", "some queries"])
@pytest.mark.parametrize("biased", ["none", "shared", "learned", "of rows", "of one head"])
def test_as_the_formula(biased: str, chunk: str, tokens, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With weights that are kept and with such that are made again, and the gradient of a bias that is learned."""
    queries, keys = tokens
    if chunk != "all":
        monkeypatch.setattr(products, "_CHUNK_BYTES", 4 * queries * keys)
    if chunk == "some queries":
        monkeypatch.setattr(products, "_QUERY_BYTES", 4 * 5 * keys)
    heads = {"of rows": (2, 3), "of one head": (1, 1)}.get(biased, (1, 3))
    bias = None if biased == "none" else torch.randn(*heads, *tokens, generator=torch.Generator().manual_seed(1))
    if bias is not None and biased != "shared":
        bias.requires_grad_()
    weights, before = torch.randn(2, 3, queries, 8), torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        found = gradients(attend_products, inputs(2, *tokens), bias, weights)
    finally:
        torch.set_num_threads(before)
    for one, other in zip(found, gradients(formula, inputs(2, *tokens), bias, weights), strict=True):
        assert other.norm() > 0
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("tokens", [9, 40])
def test_a_bias_may_be_made_for_each_pass(tokens: int) -> None:
    given = [one.requires_grad_() for one in inputs(1, tokens, tokens)]
    bias, made = torch.randn(1, 3, tokens, tokens), []

    def make() -> Tensor:
        made.append(1)
        return bias

    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda one: kept.append(one) or one, lambda one: one):
        out = attend_products(*given, make)
    keeps_weights = tokens <= 32
    assert any(one.numel() == bias.numel() for one in kept) == keeps_weights
    found = torch.autograd.grad(out.square().sum(), given)
    assert len(made) == (1 if keeps_weights else 2)
    expected = torch.autograd.grad(attend_products(*given, bias).square().sum(), given)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def errors(form, given: list[Tensor], bias: Tensor, weights: Tensor) -> list[float]:
    """Root mean squares of the differences to float64, of the output and each input's gradient."""
    exact = gradients(formula, [one.double() for one in given], bias.double(), weights)
    found = gradients(form, given, bias, weights)
    return [float((one.double() - other).square().mean().sqrt()) for one, other in zip(found, exact, strict=True)]


@pytest.mark.parametrize(("tokens", "head_dim"), [(17, 16), (65, 16), (197, 64), (257, 16), (65, 64)])
def test_bfloat16_is_as_exact_as_sdpa_in_bfloat16(tokens: int, head_dim: int) -> None:
    """In answers and in training; under autocast too. Found 18: at most 1.2 times."""
    given = inputs(4, tokens, tokens, torch.bfloat16, head_dim)
    bias, weights = torch.randn(1, 3, tokens, tokens).bfloat16(), torch.randn(4, 3, tokens, head_dim).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        ours = errors(lambda q, k, v, mask: attend_products(q, k, v, mask.float()), given, bias, weights)
        with torch.no_grad():
            answer = attend_products(*given, bias.float())
    reference = errors(lambda *qkv: F.scaled_dot_product_attention(*qkv[:3], attn_mask=qkv[3]), given, bias, weights)
    assert ours[0] <= 1.05 * reference[0]
    assert all(one <= 1.2 * other for one, other in zip(ours[1:], reference[1:], strict=True))
    torch.testing.assert_close(answer, attend_products(*given, bias.float()), rtol=0, atol=0)
    assert errors(formula, given, bias, weights)[0] > 1.5 * reference[0], "the plain form in bfloat16 is exact"


@pytest.mark.parametrize("form", ["sdpa", "products"])
@pytest.mark.parametrize("training", [False, True])
def test_neighbours_in_a_bfloat16_pack_change_nothing(training: bool, form: str) -> None:
    """Nor those that are alike."""
    grids = [[(4, 8)] * 3, [(4, 8), (3, 5), (4, 8)], [(4, 8)]]
    # The same numbers for the first image whatever follows it.
    q, k, v = random_qkv(TokenLayout.packed(grids[0]), dtype=torch.bfloat16)
    for grid in grids[1:]:
        layout = TokenLayout.packed(grid)
        with torch.set_grad_enabled(training), use_backend(form):
            alike = attend(q, k, v, pattern(), TokenLayout.packed(grids[0]))[:, :, :33]
            other = attend(*(one[:, :, : layout.slots] for one in (q, k, v)), pattern(), layout)[:, :, :33]
        assert torch.equal(alike, other)


@pytest.mark.usefixtures("vendor")
@pytest.mark.parametrize("grid", [(19, 31), (14, 15)])
@pytest.mark.parametrize("name", [None, "lookhere_90", "alibi_2d"])
def test_a_layer_by_products(name: str | None, grid: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    layout = TokenLayout.uniform(grid, 2)
    what, qkv = None if name is None else pattern(name), random_qkv(layout)
    expected = with_gradients("sdpa", qkv, what, layout)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", None)
    assert_close(with_gradients("products", qkv, what, layout), expected, 1e-5, 1e-4)
    with torch.no_grad(), use_backend("products"):
        assert attend(*qkv, what, layout).isfinite().all()
