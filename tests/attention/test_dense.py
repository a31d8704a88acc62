"""The dense back end: both forms, one image at a time, and nothing kept that grows with the square of the tokens."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import sightline.attention.dispatch as dispatching
from sightline.attention import DirectedBias, FieldOfView, Pattern, attend, forms, packs, use_backend
from sightline.attention.backends import dense
from sightline.attention.costs import Costs, Group, Point, using
from sightline.attention.forms import explicit, explicit_attention, sdpa, sdpa_in_float32
from sightline.encodings import create_encoding
from sightline.models import create_model
from sightline.tokens.layout import TokenLayout

HEADS, HEAD_DIM = 12, 4


@pytest.fixture(autouse=True)
def dense_computes() -> Iterator[None]:
    with use_backend("dense"):
        yield


def qkv(layout: TokenLayout, requires_grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3, layout.rows, HEADS, layout.slots, HEAD_DIM, generator=generator)
    q, k, v = (one.requires_grad_(requires_grad) for one in values.clone().unbind(0))
    return q, k, v


def pattern(name: str = "lookhere_45", **config):
    return create_encoding(name, depth=1, heads=HEADS, dim=HEADS * HEAD_DIM, **config).layer_pattern(0)


@pytest.mark.parametrize("rounding", ["official", "exact"])
@pytest.mark.parametrize("grid", [(1, 1), (1, 7), (3, 5), (14, 14)])
def test_all_forms_agree(grid: tuple[int, int], rounding: str) -> None:
    layout = TokenLayout.uniform(grid, 2)
    segment = layout.segments[0]
    bias = pattern(rounding=rounding).bias(segment, segment, 1, 1)
    results = []
    for form in (explicit_attention, explicit, sdpa):
        q, k, v = (one.detach().requires_grad_() for one in qkv(layout))
        out = form(q, k, v, bias)
        out.square().sum().backward()
        results.append((out, q.grad, k.grad, v.grad))
    *others, reference = results
    for one, other in ((a, b) for found in others for a, b in zip(found, reference, strict=True)):
        assert one.isfinite().all()
        assert (one - other).abs().max() < 1e-5 * max(1.0, float(other.abs().max()))


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


@pytest.mark.parametrize("form", [sdpa, sdpa_in_float32, explicit, explicit_attention])
def test_gradients_are_the_same_with_the_bias_made_again(form, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "form_of", lambda *_: "forced")
    monkeypatch.setitem(forms.FORMS, "forced", form)
    layout = TokenLayout.packed([(3, 5), (2, 2)])
    encoding = create_encoding("rpe_learned", depth=1, heads=HEADS, dim=HEADS * HEAD_DIM, train_grid=(4, 4))
    torch.nn.init.normal_(encoding.tables)
    q, k, v = qkv(layout, requires_grad=True)
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
    expected = sdpa(probes[:, :, 1:], k[:, :, 15:], v[:, :, 15:], None)
    assert (out[:, :, 1:] - expected).abs().max() < 1e-6


@pytest.mark.parametrize("name", ["lookhere_90", "alibi_2d", "rpe_learned", "rope_axial", "lookhere_90+rpe_learned"])
@pytest.mark.parametrize("as_list", [False, True])
def test_no_bias_is_kept_for_the_backward_pass(name: str, as_list: bool) -> None:
    """SDPA would keep its mask: a bias for every layer. Everything kept is linear in the tokens."""
    torch.manual_seed(0)
    model = create_model("vit_micro_patch4", encoding=name, num_classes=5, dim=48, depth=3).train()
    images = torch.randn(1, 3, 64, 64)
    tokens = 1 + 16 * 16
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = model(list(images) if as_list else images)
    assert kept
    widest = max(tensor.untyped_storage().nbytes() // tensor.element_size() for tensor in kept)
    # One row of tokens is multiplied with up to a thirtieth more of zeros.
    assert widest <= tokens * 4 * 48 * 33 // 32, "the hidden layer of an MLP is the largest that has to be kept"
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_measure_above_sees_a_kept_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "checkpoint", lambda function, *args, **_: function(*args))
    monkeypatch.setattr(dense, "fused_kernel", lambda: None)
    monkeypatch.setattr(packs, "takes", lambda *_: False)
    with pytest.raises(AssertionError, match="hidden layer"):
        test_no_bias_is_kept_for_the_backward_pass("lookhere_90", False)


def test_dispatch_ends_with_one_that_supports_everything() -> None:
    layout = TokenLayout.packed([(3, 5)])
    q, _, _ = qkv(layout)
    assert list(dispatching.BACKENDS)[-1] == "dense"
    for one in (None, pattern()):
        assert dispatching.dispatch(one, layout, layout, q).supports(one, layout, layout, q)


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
    """One call, and what each image gives alone, gradients too; but for short ones, whose products are their own."""
    monkeypatch.setattr(packs, "is_short", lambda *_: False)
    torch.manual_seed(0)
    layout = TokenLayout.packed(grids, num_prefix_tokens=2)
    if dropped:
        layout = layout.keep([torch.randperm(15)[:7].sort().values for _ in grids])
    inputs = [torch.randn(1, 2, layout.slots, 8, requires_grad=True) for _ in range(3)]
    calls, real = [], packs._fused
    monkeypatch.setattr(packs, "_fused", lambda *given: calls.append(given[0]) or real(*given))
    results = []
    for runs in (dense._runs, lambda _, queries, keys: [dense._Run(one, one, 1) for one in keys.segments]):
        monkeypatch.setattr(dense, "_runs", runs)
        layout = copy.copy(layout)
        out = dense.Dense()(*inputs, pattern, layout, layout)
        results.append((out, *torch.autograd.grad(out.square().sum(), inputs)))
    assert len(calls) == expected + len(grids)
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def _errors(form, inputs: tuple[Tensor, ...], bias: Tensor, weights: Tensor) -> list[float]:
    """Root mean squares of the differences to float64, of the output and each input's gradient."""
    expected = _with_gradients(explicit_attention, tuple(one.double() for one in inputs), bias.double(), weights)
    found = _with_gradients(form, inputs, bias, weights)
    return [float((one - other).square().mean().sqrt()) for one, other in zip(found, expected, strict=True)]


def _with_gradients(form, inputs: tuple[Tensor, ...], bias: Tensor, weights: Tensor) -> list[Tensor]:
    leaves = [one.detach().clone().requires_grad_() for one in inputs]
    out = form(*leaves, bias)
    return [one.double() for one in (out.detach(), *torch.autograd.grad(out, leaves, weights.to(out.dtype)))]


@pytest.mark.parametrize("form", [sdpa_in_float32, explicit])
@pytest.mark.parametrize(("tokens", "head_dim"), [(17, 16), (65, 16), (197, 64), (257, 16), (65, 64)])
def test_found_16_bfloat16_is_as_exact_as_sdpa_in_bfloat16(form, tokens: int, head_dim: int) -> None:
    """In answers and in training, whichever form is the fastest; under autocast too. Found 18: at most 1.2 times."""
    inputs = tuple(torch.randn(4, 3, tokens, head_dim).bfloat16() for _ in range(3))
    bias, weights = torch.randn(1, 3, tokens, tokens).bfloat16(), torch.randn(4, 3, tokens, head_dim).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        exact = _errors(lambda q, k, v, mask: form(q, k, v, mask.float()), inputs, bias, weights)
        with torch.no_grad():
            answer = form(*inputs, bias.float())
    reference = _errors(sdpa, inputs, bias, weights)
    assert exact[0] <= 1.05 * reference[0]
    assert all(one <= 1.2 * other for one, other in zip(exact[1:], reference[1:], strict=True))
    torch.testing.assert_close(answer, form(*inputs, bias.float()), rtol=0, atol=0)
    written = _errors(explicit_attention, inputs, bias, weights)
    assert written[0] > 1.5 * reference[0], "the plain form in bfloat16 is exact: it may be chosen"


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("biased", ["none", "shared", "learned", "of rows"])
def test_the_explicit_form_is_attention_in_chunks(rows: int, biased: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some images at a time, with queries of their own, and the gradient of a bias that is learned."""
    monkeypatch.setattr(forms, "_CHUNK_BYTES", 4 * 3 * 7 * 11 * 2)
    shapes = [(rows, 3, 7, 5), (rows, 3, 11, 5), (rows, 3, 11, 5)]
    inputs = [torch.randn(rows, one[2], 3, 5, dtype=torch.float64).transpose(1, 2) for one in shapes]
    bias = None if biased == "none" else torch.randn(rows if biased == "of rows" else 1, 3, 7, 11, dtype=torch.float64)
    weights, results = torch.randn(*shapes[0], dtype=torch.float64), []
    for form in (explicit_attention, explicit):
        leaves = [one.detach().requires_grad_() for one in inputs]
        learned = bias if bias is None or biased == "shared" else bias.clone().requires_grad_()
        out = form(*leaves, learned)
        wanted = [*leaves, *([learned] if learned is not None and learned.requires_grad else [])]
        results.append([out, *torch.autograd.grad(out, wanted, weights)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_found_43_the_form_is_chosen_by_numbers_that_stand() -> None:
    """By nothing that is timed in a call, so that every process of a run chooses alike."""
    group = Group("bfloat16", "training", 16)
    cheap = [Point(17, 5.0, 1.0), Point(65, 1.0, 1.0), Point(257, 1.0, 9.0)]
    dear = [Point(17, 2.0, 2.0), Point(257, 2.0, 2.0)]
    with using(Costs("any", "any", 1, points={group: {"explicit": cheap, "sdpa_in_float32": dear}})):
        for rows, tokens, expected in [
            (1, 17, "sdpa_in_float32"), (8, 17, "explicit"), (1, 65, "explicit"), (1, 257, "explicit"),
            (8, 257, "sdpa_in_float32"),
            # Long images keep no attention weights.
            (1, 321, "sdpa_in_float32"),
        ]:  # fmt: skip
            q = torch.empty(rows, 3, tokens, 16, dtype=torch.bfloat16)
            assert dense.form_of(q, q, rows) == expected
            assert dense.form_of(q.float(), q.float(), rows) == "sdpa"
            assert dense.form_of(q.half(), q.half(), rows) == "sdpa"
            with torch.no_grad():
                # Nothing was measured of a forward pass; an image alone has the precision that it has in a pack.
                assert dense.form_of(q, q, rows) == ("sdpa_in_float32" if rows == 1 else "sdpa")


@pytest.mark.parametrize("form", ["sdpa", "sdpa_in_float32", "by_head", "explicit"])
@pytest.mark.parametrize("training", [False, True])
def test_found_43_neighbours_in_a_bfloat16_pack_change_nothing(training: bool, form: str, monkeypatch) -> None:
    """A pack of images that are alike is one call, but of the form that each image would have among others."""
    monkeypatch.setattr(dense, "form_of", lambda *_: form)
    grids = [[(4, 8)] * 3, [(4, 8), (3, 5), (4, 8)], [(4, 8)]]
    # The same numbers for the first image whatever follows it.
    q, k, v = (one.bfloat16() for one in qkv(TokenLayout.packed(grids[0])))
    for grid in grids[1:]:
        layout = TokenLayout.packed(grid)
        with torch.set_grad_enabled(training):
            alike = attend(q, k, v, pattern(), TokenLayout.packed(grids[0]))[:, :, :33]
            other = attend(*(one[:, :, : layout.slots] for one in (q, k, v)), pattern(), layout)[:, :, :33]
        assert torch.equal(alike, other)
