"""iRPE of every option against its definition, pair by pair: whole and dropped, packed, in blocks, by either form."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from sightline.analysis.attention_blocks import attention_blocks
from sightline.analysis.memory import estimate_memory
from sightline.analysis.one_query import attention_of
from sightline.attention import AttentionRecord, attend, record_attention
from sightline.attention.content_bias import (
    ContentBias,
    TokenPairs,
    content_of_scores,
    gather_by_bucket,
    looked_up_by_axis,
    scatter_by_bucket,
    summed_by_axis,
)
from sightline.encodings import create_encoding
from sightline.encodings.pattern.irpe import Irpe, IrpeBuckets
from sightline.models.flops import forward_flops
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment
from tests.attention.irpe_by_hand import attention_by_hand
from tests.contract.contract import build, images
from tests.contract.randomise import randomise_parameters

HEADS, HEAD_DIM = 2, 4
METHODS = ("product", "cross", "euclidean", "quantised")
ON = ("q", "k", "v", "qk", "qv", "kv", "qkv")
# Every method and mode on q, k and v in any combination; sharing, ratio and prefix tokens turn.
OPTIONS: list[dict[str, Any]] = [
    {"method": method, "mode": mode, "on": on, "shared_heads": bool(number % 2), "ratio": (1.9, 1.2, 3.0)[number % 3]}
    for number, (method, mode, on) in enumerate(itertools.product(METHODS, ("contextual", "bias"), ON))
    if mode == "contextual" or "v" not in on
]


def encoding_of(options: dict[str, Any], prefix: int) -> Irpe:
    made = create_encoding(
        "irpe", depth=2, heads=HEADS, dim=HEADS * HEAD_DIM, train_grid=(4, 4), num_prefix_tokens=prefix, **options
    )
    assert isinstance(made, Irpe)
    return randomise_parameters(made)


def qkv_of(layout: TokenLayout) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = (layout.rows, HEADS, layout.slots, HEAD_DIM)
    return [torch.randn(shape, generator=generator).requires_grad_() for _ in "qkv"]


def by_hand(encoding: Irpe, q: Tensor, k: Tensor, v: Tensor, layout: TokenLayout) -> Tensor:
    """In float64, image by image, in layer 1."""
    prefix, rows = layout.num_prefix_tokens, []
    for row in range(layout.rows):
        outs, start = [], 0
        for segment, length in zip(layout.segments, layout.seqlens, strict=True):
            where = segment.coords[row if len(segment.coords) > 1 else 0]
            at = [tuple(one) for one in where.tolist()]
            parts = (x[row, :, start : start + length].double() for x in (q, k, v))
            outs.append(attention_by_hand(encoding, *parts, at, at, prefix, prefix, layer=1))
            start += length
        rows.append(torch.cat(outs, dim=1))
    return torch.stack(rows)


def assert_equal_to_the_definition(encoding: Irpe, layout: TokenLayout) -> None:
    """Outputs, and gradients of q, k, v and every table."""
    q, k, v = qkv_of(layout)
    leaves = {**dict(zip("qkv", (q, k, v), strict=True)), **dict(encoding.named_parameters())}
    found = attend(q, k, v, encoding.pattern(1, layout), layout)
    expected = by_hand(encoding, q, k, v, layout)
    assert expected.std() > 0.1
    assert (found - expected).abs().max() < 1e-5
    weight = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    ours = torch.autograd.grad((found * weight).sum(), list(leaves.values()))
    theirs = torch.autograd.grad((expected * weight).sum(), list(leaves.values()))
    for name, one, other in zip(leaves, ours, theirs, strict=True):
        assert (one - other).norm() <= 1e-4 * other.norm() + 1e-6, name


@pytest.mark.parametrize("options", OPTIONS, ids=lambda one: " ".join(map(str, one.values())))
def test_the_definition(options: dict[str, Any]) -> None:
    prefix = (OPTIONS.index(options) // 2) % 3
    encoding = encoding_of(options, prefix)
    assert_equal_to_the_definition(encoding, TokenLayout.uniform((2, 5), 2, num_prefix_tokens=prefix))


LAYOUTS = {
    "pack": lambda prefix: TokenLayout.packed([(2, 3), (3, 2), (3, 2), (1, 5)], num_prefix_tokens=prefix),
    "dropped": lambda prefix: TokenLayout.uniform((3, 4), 2, num_prefix_tokens=prefix).keep(
        torch.tensor([[0, 11, 5], [7, 2, 3]])
    ),
    "pack dropped": lambda prefix: TokenLayout.packed([(2, 3), (5, 2)], num_prefix_tokens=prefix).keep(
        [[5, 0], [9, 3, 4]]
    ),
    "tiles": lambda prefix: TokenLayout.uniform((3, 5), 2, num_prefix_tokens=prefix, tile=Grid(2, 2)),
}


@pytest.mark.parametrize("where", LAYOUTS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("prefix", [0, 2])
def test_wherever_tokens_stand(where: str, method: str, prefix: int) -> None:
    encoding = encoding_of({"method": method, "on": "qkv", "shared_heads": prefix == 0}, prefix)
    assert_equal_to_the_definition(encoding, LAYOUTS[where](prefix))


@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("has_bucket", [True, False])
@pytest.mark.parametrize(("method", "part"), [("product", "table"), ("cross", "rows"), ("cross", "cols")])
@pytest.mark.parametrize("grid", [(3, 5), (1, 7), (9, 2)])
def test_the_form_without_look_ups(grid, method: str, part: str, has_bucket: bool, prefix: int) -> None:
    """Products by axis give what look-ups give, backward too: pairs to buckets is the transpose of buckets to pairs."""
    buckets = IrpeBuckets(method, 1.9, part)
    segment = Segment.from_grid(Grid(*grid), torch.device("cpu"))
    pairs, slots = TokenPairs(segment, segment, prefix, prefix), prefix + segment.patches
    count = buckets.count + has_bucket
    term = ContentBias(torch.zeros(1, HEAD_DIM, count), buckets, has_bucket, HEADS)
    products = torch.randn(2, HEADS, slots, count, requires_grad=True)
    attention = torch.randn(2, HEADS, slots, slots, requires_grad=True)
    for leaf, forms in (
        (products, (gather_by_bucket, looked_up_by_axis)),
        (attention, (scatter_by_bucket, summed_by_axis)),
    ):
        one, other = (form(leaf, term, pairs) for form in forms)
        assert one.std() > 0.1
        torch.testing.assert_close(one, other)
        weight = torch.randn_like(one)
        grads = [torch.autograd.grad((out * weight).sum(), leaf)[0] for out in (one, other)]
        torch.testing.assert_close(*grads)


def test_an_oblong_grid_is_not_a_square_of_as_many_tokens() -> None:
    """The public code takes the square root of the number of tokens for both sides."""
    encoding = encoding_of({}, 1)
    answers = []
    for grid in ((2, 8), (4, 4), (8, 2)):
        layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=1)
        answers.append(attend(*qkv_of(layout), encoding.pattern(0, layout), layout))
    assert (answers[0] - answers[1]).abs().max() > 1e-3
    assert (answers[0] - answers[2]).abs().max() > 1e-3


def calls_of(name: str, **options: Any) -> list[AttentionRecord]:
    model = build(name, num_registers=2, **options)
    calls: list[AttentionRecord] = []
    with record_attention(calls.append), torch.no_grad():
        model(images((3, 5), count=2))
    return calls


@pytest.mark.parametrize("name", ["irpe_qk", "irpe_qkv", "irpe_bias", "rope_axial+irpe_qk", "lookhere_90+irpe"])
@pytest.mark.parametrize("block_bytes", [1, 3_000, 1 << 20])
@torch.no_grad()
def test_what_is_looked_at_is_what_is_computed(name: str, block_bytes: int) -> None:
    """Blocks of attention, and one query's: softmax of the scores with what is made of queries and keys."""
    for call in calls_of(name):
        segment, before = call.keys.segments[0], call.keys.num_prefix_tokens
        scores = call.q @ call.k.transpose(-1, -2) * call.q.shape[-1] ** -0.5
        content = content_of_scores(call.pattern, call.q, call.k, TokenPairs(segment, segment, before, before))
        scores = scores + call.pattern.bias(segment, segment, before, before) + (0 if content is None else content)
        whole = scores.softmax(-1)
        blocks = list(attention_blocks(call, block_bytes))
        for image in range(2):
            rows = [one.attention[one.images.tolist().index(image)] for one in blocks if image in one.images]
            torch.testing.assert_close(torch.cat(rows, dim=1), whole[image], atol=1e-6, rtol=1e-5)
        alone = TokenLayout.uniform((3, 5), 1, num_prefix_tokens=before)
        first = AttentionRecord(call.layer, call.q[:1], call.k[:1], call.v[:1], call.pattern, alone, alone)
        for slot in range(whole.shape[2]):
            torch.testing.assert_close(attention_of(first, slot), whole[0, :, slot], atol=1e-6, rtol=1e-5)


def test_products_and_memory_are_counted() -> None:
    plain, contextual, values = (build(name).config for name in ("none", "irpe", "irpe_qkv"))
    slots, width = 16, plain.attention_width
    of_k = 2 * plain.depth * slots * width * 50
    assert forward_flops(contextual, [15]) - forward_flops(plain, [15]) == of_k
    assert forward_flops(values, [15]) - forward_flops(plain, [15]) == 3 * of_k
    assert forward_flops(build("irpe_bias").config, [15]) == forward_flops(plain, [15])
    # What it adds is one bias an image, not one for all.
    for training in (False, True):
        learned, added = (
            [estimate_memory(build(name).config, 80, batch=batch, training=training).attention for batch in (1, 4)]
            for name in ("irpe_bias", "irpe")
        )
        assert added[1] > 2 * added[0]
        assert training or learned[0] == learned[1]
