"""FlexAttention: what its kernel is told, held against the dense bias; the kernel itself runs only on a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from sightline.attention import AttentionSpec, DirectedBias, FieldOfView, Pattern, attend, flex, use_backend
from sightline.attention.block_mask import BLOCK
from sightline.attention.dispatch import choose_backend, supports
from sightline.attention.flex import compiled, flex_forward, plan_flex
from sightline.attention.pattern import BFLOAT16_MAX
from sightline.encodings import create_encoding
from sightline.models import create_model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.contract.randomise import randomise_parameters

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="the kernel runs on a GPU alone")

HEADS, HEAD_DIM, TILE = 12, 4, Grid(8, 16)
GRIDS = [(1, 1), (1, 7), (3, 5), (5, 3), (14, 14), (17, 9)]


def lookhere(name: str = "lookhere_45", depth: int = 1, layer: int = 0, **config: Any) -> Pattern:
    return create_encoding(name, depth=depth, heads=HEADS, dim=HEADS * HEAD_DIM, **config).layer_pattern(layer)


PATTERNS = {
    "lookhere_180": lookhere("lookhere_180"),
    "lookhere_90": lookhere("lookhere_90"),
    "lookhere_45": lookhere("lookhere_45"),
    "alibi_2d": lookhere("alibi_2d"),
    "exact": lookhere("lookhere_90", rounding="exact"),
    "sqrt": lookhere("lookhere_90", distance="sqrt"),
    "square": lookhere("lookhere_45", distance="square"),
    "no penalty": lookhere("lookhere_45", global_slope=0.0),
    "any directions": lookhere(
        "lookhere", views=((33.0, 50.0, 0.5), (200.0, 200.0, 0.2), (90.0, 360.0, 1.0), (0.1, 180.0, 0.0)) * 3
    ),
    "three half-planes": Pattern(
        (DirectedBias((FieldOfView(((1, 0), (0, 1), (1, -1))),) * HEADS, (1.0,) * HEADS, (False,) * HEADS),)
    ),
    "oblong cells": Pattern(
        (DirectedBias((FieldOfView(),) * HEADS, (0.3,) * HEADS, (False,) * HEADS, steps=(2.0, 0.5)),)
    ),
}
CENTRAL = DirectedBias((FieldOfView(),) * HEADS, (0.5,) * HEADS, (False, True) * 6)


def dropped(tile: Grid | None = None, grid: tuple[int, int] = (17, 19), kept: int = 150) -> TokenLayout:
    cells = grid[0] * grid[1]
    return TokenLayout.uniform(grid, 2, tile=tile).keep(torch.stack([torch.randperm(cells)[:kept] for _ in range(2)]))


def dense_bias(pattern: Pattern, layout: TokenLayout) -> Tensor:
    """[1 or rows, heads, slots, slots], -inf where masked or in different images."""
    rows = layout.coords.shape[0]
    bias = torch.full((rows, HEADS, layout.slots, layout.slots), -torch.inf)
    start = 0
    for segment, length in zip(layout.segments, layout.seqlens, strict=True):
        here = slice(start, start + length)
        bias[:, :, here, here] = pattern.bias(segment, segment, layout.num_prefix_tokens, layout.num_prefix_tokens)
        start += length
    return bias.masked_fill(bias <= -BFLOAT16_MAX, -torch.inf)


def kernel_bias(pattern: Pattern, layout: TokenLayout) -> Tensor:
    """What the mask and score functions say of every pair, as `dense_bias`."""
    rows = layout.coords.shape[0]
    captured, _, distance = plan_flex(pattern, layout)
    slots = torch.arange(layout.slots)
    index = (torch.arange(rows).view(-1, 1, 1, 1), torch.arange(HEADS).view(-1, 1, 1), slots.view(-1, 1), slots)
    score = torch.zeros(rows, HEADS, layout.slots, layout.slots)
    return captured.biased(score, *index, distance).masked_fill(~captured.visible(*index), -torch.inf)


def layouts() -> list[TokenLayout]:
    uniform = [
        TokenLayout.uniform(grid, 2, num_prefix_tokens=prefix, tile=tile)
        for grid in GRIDS
        for prefix in (0, 1, 5)
        for tile in (None, TILE)
    ]
    packs = [TokenLayout.packed([(3, 5), (14, 14), (1, 7), (9, 17)], tile=tile) for tile in (None, TILE)]
    packs.append(TokenLayout.packed([(3, 5), (5, 3), (1, 1)], num_prefix_tokens=0))
    packs.append(packs[0].keep([torch.randperm(cells)[: cells // 2 + 1] for cells in (15, 196, 7, 153)]))
    return [*uniform, *packs, dropped(), dropped(TILE)]


def exactly(pattern: Pattern) -> Pattern:
    """The pattern without rounding, as the kernel computes it."""
    return replace(pattern, terms=tuple(replace(term, rounding="exact") for term in pattern.terms))


@pytest.mark.parametrize("name", PATTERNS)
def test_mask_and_score_functions_equal_the_dense_bias(name: str) -> None:
    """The mask bit for bit, a penalty up to float32's rounding; an official one is rounded to bfloat16 besides."""
    torch.manual_seed(0)
    for layout in layouts():
        found, expected = kernel_bias(PATTERNS[name], layout), dense_bias(exactly(PATTERNS[name]), layout)
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6, msg=str(layout))
        torch.testing.assert_close(found, dense_bias(PATTERNS[name], layout), rtol=2**-8, atol=1e-6, msg=str(layout))


def block_pairs(pattern: Pattern, layout: TokenLayout) -> tuple[Tensor, Tensor]:
    """(partly, fully): bool [1 or rows, heads, blocks, blocks], read back from the lists that the kernel walks."""
    _, blocks, _ = plan_flex(pattern, layout)
    for four in (blocks[:4], blocks[4:]):
        assert all(one.dtype == torch.int32 and one.is_contiguous() for one in four)
    dense = [
        torch.zeros(indices.shape, dtype=torch.bool).scatter(
            -1, indices.long(), torch.arange(indices.shape[-1]) < number.unsqueeze(-1)
        )
        for number, indices in zip(blocks[::2], blocks[1::2], strict=True)
    ]
    assert torch.equal(dense[0], dense[2].transpose(-1, -2))
    assert torch.equal(dense[1], dense[3].transpose(-1, -2))
    assert not (dense[0] & dense[1]).any()
    return dense[0], dense[1]


def by_blocks(pairs: Tensor) -> Tensor:
    """bool [..., slots, slots] -> [..., blocks, blocks, BLOCK**2], False past the end."""
    slots = pairs.shape[-1]
    padded = torch.nn.functional.pad(pairs, (0, -slots % BLOCK, 0, -slots % BLOCK))
    return padded.unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, BLOCK)).transpose(-3, -2).flatten(-2)


LARGE = [
    TokenLayout.uniform((23, 31), 1, tile=TILE),
    TokenLayout.uniform((23, 31), 1, num_prefix_tokens=0),
    TokenLayout.uniform((16, 32), 1, num_prefix_tokens=130, tile=TILE),
    TokenLayout.packed([(9, 17), (14, 14), (3, 5), (1, 7), (20, 11)], tile=TILE),
    TokenLayout.packed([(16, 8), (8, 16), (4, 32)], num_prefix_tokens=0),
]


@pytest.mark.parametrize("name", PATTERNS)
def test_no_visible_pair_is_skipped_and_no_hidden_one_is_in_a_full_block(name: str) -> None:
    torch.manual_seed(0)
    for layout in [*LARGE, dropped()]:
        seen = by_blocks(dense_bias(PATTERNS[name], layout) > -torch.inf)
        partly, fully = block_pairs(PATTERNS[name], layout)
        assert not (seen.any(-1) & ~partly & ~fully).any(), layout
        assert not (fully & ~seen.all(-1)).any(), layout


@pytest.mark.parametrize("name", ["lookhere_90", "exact", "square"])
def test_pruning_skips_only_blocks_beyond_the_bound(name: str) -> None:
    torch.manual_seed(0)
    saved = 0
    for layout in [*LARGE[:2], LARGE[3], dropped()]:
        bias = dense_bias(PATTERNS[name], layout)
        bound = 3.0
        whole, pruned = (
            sum(block_pairs(Pattern(PATTERNS[name].terms, prune_below), layout)) for prune_below in (None, bound)
        )
        assert (pruned <= whole).all()
        # Half a step of bfloat16 may lie between a penalty and its rounding.
        needed = by_blocks(bias >= -bound * (1 - 2**-8)).any(-1)
        assert not (needed & ~pruned.bool()).any(), layout
        assert pruned.diagonal(dim1=-2, dim2=-1).all(), "each query keeps itself"
        saved += int((whole - pruned).sum())
    assert saved > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "sqrt", "three half-planes", "any directions"])
def test_forward_equals_dense(name: str) -> None:
    torch.manual_seed(0)
    cases = [TokenLayout.uniform((17, 9), 2, tile=TILE), TokenLayout.uniform((3, 5), 1, num_prefix_tokens=0), LARGE[3]]
    for layout in [*cases, dropped()]:
        q, k, v = torch.randn(3, layout.rows, HEADS, layout.slots, HEAD_DIM)
        found = []
        for backend in ("sdpa", "flex"):
            with torch.no_grad(), use_backend(backend):
                pattern = exactly(PATTERNS[name])
                assert choose_backend(pattern, layout, layout, AttentionSpec.of_values(q)) == backend
                found.append(attend(q, k, v, pattern, layout))
        assert (found[0] - found[1]).abs().max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exact", "three half-planes"])
def test_gradients_equal_dense(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch refuses gradients on a CPU, but has the reference that its kernels are compared with."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    for layout in (TokenLayout.packed([(3, 5), (10, 14)], tile=TILE), dropped(None, (7, 9), 20)):
        results = []
        for backend in ("sdpa", "flex"):
            torch.manual_seed(0)
            q, k, v = (torch.randn(layout.rows, HEADS, layout.slots, 16).requires_grad_() for _ in "qkv")
            if backend == "sdpa":
                with use_backend("sdpa"):
                    out = attend(q, k, v, PATTERNS[name], layout)
            else:
                out = flex_forward(q, k, v, *plan_flex(PATTERNS[name], layout))
            out.square().sum().backward()
            results.append((out, q.grad, k.grad, v.grad))
        for one, other in zip(*results, strict=True):
            assert (one - other).norm() < 1e-5 * one.norm()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lookhere_45", "alibi_2d"])
@pytest.mark.parametrize("pool", ["cls", "mean", "attention"])
def test_a_whole_model_in_tile_order(name: str, pool: str) -> None:
    exact = {"rounding": "exact"} if name == "lookhere_45" else {}
    model = create_model(
        "vit_micro_patch4", encoding=name, encoding_options=exact, pool=pool, num_classes=5, dim=48, heads=12, depth=2
    )
    randomise_parameters(model).eval()
    batch = torch.randn(2, 3, 44, 68)
    given = [batch, [batch[0], torch.randn(3, 20, 12), torch.randn(3, 36, 72)]]
    for images in given:
        found = []
        for backend in ("sdpa", "flex"):
            with torch.no_grad(), use_backend(backend):
                assert model.prepare(images)[1].segments[0].tile == (TILE if backend == "flex" else None)
                features = model.forward_features(images)
                final, maps = model.forward_intermediates(images)
                found.append([model(images), *flat(features), *flat(final), *flat(maps)])
        assert found[0][0].std() > 0.01
        for one, other in zip(*found, strict=True):
            assert one.shape == other.shape
            assert (one - other).abs().max() < 2e-5 * max(1.0, float(one.abs().max()))


def flat(nested: Any) -> list[Tensor]:
    return [nested] if isinstance(nested, Tensor) else [one for part in nested for one in flat(part)]


def test_what_is_supported() -> None:
    layout, other = TokenLayout.uniform((3, 5), 1), TokenLayout.uniform((3, 5), 1)
    spec = AttentionSpec.of_values(torch.zeros(1, HEADS, 16, HEAD_DIM))
    table = create_encoding("rpe_learned", depth=1, heads=HEADS, dim=HEADS * HEAD_DIM).layer_pattern(0)
    with torch.no_grad():
        assert supports("flex", lookhere(), layout, layout, spec)
        assert not supports("flex", None, layout, layout, spec)
        assert not supports("flex", table, layout, layout, spec)
        assert not supports("flex", lookhere() + table, layout, layout, spec)
        assert not supports("flex", lookhere() + lookhere("alibi_2d"), layout, layout, spec)
        assert not supports("flex", lookhere("lookhere_90", fill="max"), layout, layout, spec)
        assert not supports("flex", Pattern((CENTRAL,)), layout, layout, spec)
        assert not supports("flex", lookhere(), other, layout, spec)
    assert not supports("flex", lookhere(), layout, layout, spec), "no backward pass on a CPU"


def test_layouts_that_differ_in_rows_alone_share_no_tensor_of_rows() -> None:
    for rows in (2, 4):
        layout = TokenLayout.uniform((5, 3), rows)
        assert len(plan_flex(lookhere(), layout).tensors.start) == rows


def test_caches_filled_under_inference_mode_can_train() -> None:
    flex._BY_VALUE.clear()
    flex._capture_heads.cache_clear()
    layout = TokenLayout.uniform((5, 3), 1)
    with torch.inference_mode():
        plan_flex(PATTERNS["any directions"], layout)
    captured, blocks, _ = plan_flex(PATTERNS["any directions"], layout)
    assert not any(one.is_inference() for one in (*captured, *blocks))


SIZES = [(14, 14), (16, 16), (12, 12), (15, 18), (13, 17), (3, 5), (20, 15), (16, 18), (7, 40), (10, 30)]


def model_layouts(device: str = "cpu") -> list[TokenLayout]:
    return [TokenLayout.uniform(size, 2, tile=TILE, device=device) for size in SIZES]


def side_by_side(layout: TokenLayout, device: str = "cpu", **kind: Any) -> list[Tensor]:
    """q, k, v as a block makes them: views of one tensor."""
    qkv = torch.randn(layout.rows, layout.slots, 3 * HEADS * 16, device=device, **kind)
    return list(qkv.unflatten(-1, (3, HEADS, 16)).permute(2, 0, 3, 1, 4).unbind(0))


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True])
def test_ten_sizes_and_three_layers_are_one_program(train: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of the bound that needs no GPU: what torch traces. One block or several makes two."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager" if train else "eager")
    function = compiled(counter)
    with torch.set_grad_enabled(train):
        for layout in model_layouts():
            for layer in range(3):
                pattern = lookhere("lookhere_90", depth=3, layer=layer, rounding="exact")
                q, k, v = map(flex._free_of_others, side_by_side(layout, requires_grad=train))
                out = function(q, k, v, *plan_flex(pattern, layout))
                if train:
                    out.sum().backward()
                if layer == 2:
                    with use_backend("sdpa"), torch.no_grad():
                        assert (out - attend(q, k, v, pattern, layout)).abs().max() < 1e-5
    assert counter.frame_count <= 2


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("train", [False, True])
def test_ten_sizes_compile_few_kernels(train: bool) -> None:
    torch._dynamo.reset()
    compiled.cache_clear()
    torch._dynamo.utils.counters.clear()
    with torch.set_grad_enabled(train):
        for layout in model_layouts("cuda"):
            for layer in range(3):
                pattern = lookhere("lookhere_90", depth=3, layer=layer)
                q, k, v = side_by_side(layout, "cuda", dtype=torch.bfloat16, requires_grad=train)
                out = plan_flex(pattern, layout)(q, k, v)
                if train:
                    out.sum().backward()
    # Beyond one block or not, torch may tell 128 slots from more.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_kernel_equals_dense(name: str, dtype: torch.dtype) -> None:
    limit = 0.004 if dtype == torch.float16 else 0.03
    packed = TokenLayout.packed([(9, 17), (14, 14), (3, 5)], tile=TILE, device="cuda")
    kept = torch.stack([torch.randperm(323)[:200] for _ in range(2)]).cuda()
    uniform = TokenLayout.uniform((17, 19), 2, tile=TILE, device="cuda")
    for layout in (uniform, packed, uniform.keep(kept)):
        results = []
        for backend in ("sdpa", "flex"):
            torch.manual_seed(0)
            q, k, v = (
                torch.randn(layout.rows, HEADS, layout.slots, 64, device="cuda", dtype=dtype).requires_grad_()
                for _ in "qkv"
            )
            with use_backend(backend):
                assert choose_backend(PATTERNS[name], layout, layout, AttentionSpec.of_values(q)) == backend
                out = attend(q, k, v, PATTERNS[name], layout)
            out.float().square().sum().backward()
            results.append((out, q.grad, k.grad, v.grad))
        for one, other in zip(*results, strict=True):
            assert (one.float() - other.float()).norm() < limit * one.float().norm()
