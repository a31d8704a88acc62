"""Packed = single, for every encoding and pooling: whatever the order, the neighbours, the drops and the padding."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
import torch.nn.attention.flex_attention as flex_attention
from torch import Tensor

import sightline.attention.dispatch as dispatching
from sightline.attention import use_backend
from sightline.encodings import list_encodings
from sightline.models import VisionTransformer
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.patchify import patchify
from tests.contract.contract import (
    LOGITS,
    PATCH,
    TRAIN,
    assert_same_gradients,
    assert_spread,
    build,
    gradients,
    images,
    loss_of,
)

POOLS = ("cls", "mean", "attention")
# (grid, rate of token drop): no two alike, few of them square, one token among them from the start or after dropping.
GIVEN = [
    (Grid(3, 5), 0.0),
    (Grid(5, 3), 0.5),
    (Grid(1, 1), 0.0),
    (Grid(2, 9), 0.99),
    (TRAIN, 0.0),
    (Grid(7, 4), 1.0),
    (Grid(1, 8), 0.25),
    (Grid(11, 2), 0.7),
]


class Shown(NamedTuple):
    """An image, and which of its patches are kept: int64 [kept], row-major indices."""

    image: Tensor
    grid: Grid
    kept: Tensor

    @property
    def patches(self) -> Tensor:
        """[1, kept, values of a patch]."""
        return patchify(self.image, PATCH)[:, self.kept]


def shown(grid: Grid, rate: float, seed: int) -> Shown:
    generator = torch.Generator().manual_seed(seed)
    count = max(round(grid.cells * (1 - rate)), 1)
    kept = torch.randperm(grid.cells, generator=generator)[:count].sort().values
    return Shown(images(grid, 1, seed), grid, kept)


def given() -> list[Shown]:
    return [shown(grid, rate, seed) for seed, (grid, rate) in enumerate(GIVEN)]


def alone(model: VisionTransformer, one: Shown) -> Tensor:
    """The logits of one image, by the path of a batch: [1, classes]."""
    if len(one.kept) == one.grid.cells:
        return model(one.image)
    layout = TokenLayout.uniform(one.grid, 1, num_prefix_tokens=model.num_prefix_tokens)
    return model(one.patches, layout=layout.keep(one.kept.unsqueeze(0)))


def pack(model: VisionTransformer, several: list[Shown]) -> tuple[Tensor, TokenLayout]:
    layout = TokenLayout.packed([one.grid for one in several], num_prefix_tokens=model.num_prefix_tokens)
    patches = torch.cat([one.patches for one in several], dim=1)
    return patches, layout.keep([one.kept for one in several])


def together(model: VisionTransformer, several: list[Shown]) -> Tensor:
    patches, layout = pack(model, several)
    return model(patches, layout=layout)


def padded(patches: Tensor, layout: TokenLayout, junk: float, count: int = 37) -> tuple[Tensor, TokenLayout]:
    """A pack with `count` more slots, in which `junk` stands."""
    filled = torch.full((patches.shape[0], count, patches.shape[2]), junk)
    return torch.cat((patches, filled), dim=1), layout.pad_to(layout.slots + count)


def check_packed_is_single(model: VisionTransformer) -> None:
    several = given()
    singles = torch.cat([alone(model, one) for one in several])
    loss_of(singles).backward()
    expected = gradients(model)
    packed = together(model, several)
    loss_of(packed).backward()
    assert_spread(singles.detach())
    assert (packed - singles).abs().max() < LOGITS
    assert_same_gradients(gradients(model), expected)


@torch.no_grad()
def check_neighbours(model: VisionTransformer) -> None:
    several = given()
    before = together(model, several)
    for order in (torch.randperm(len(several)), torch.arange(len(several)).flip(0)):
        assert (together(model, [several[one] for one in order]) - before[order]).abs().max() < LOGITS
    for changed in (0, 1, 4, len(several) - 1):
        others = [one for one in range(len(several)) if one != changed]
        same_shape = list(several)
        same_shape[changed] = several[changed]._replace(image=1e3 * images(several[changed].grid, 1, 99))
        after = together(model, same_shape)
        assert torch.equal(after[others], before[others])
        assert (after[changed] - before[changed]).abs().max() > 1e-3, "what is said of the others would show nothing"
        other_shape = list(several)
        other_shape[changed] = shown(Grid(4, 6), 0.3, 99)
        assert (together(model, other_shape)[others] - before[others]).abs().max() < LOGITS


def check_padding(model: VisionTransformer) -> None:
    patches, layout = pack(model, given())
    packed = model(patches, layout=layout)
    loss_of(packed).backward()
    expected = gradients(model)
    found = {}
    for junk in (0.0, 1e4, math.inf, -math.inf, math.nan):
        junky, where = padded(patches, layout, junk)
        junky.requires_grad_()
        logits = model(junky, layout=where)
        loss_of(logits).backward()
        assert junky.grad is not None
        assert junky.grad.isfinite().all()
        assert not junky.grad[:, -where.padding :].any()
        found[junk] = logits.detach(), gradients(model)
    logits, of_zeros = found[0.0]
    assert logits.shape == packed.shape
    assert (logits - packed).abs().max() < LOGITS
    assert_same_gradients(of_zeros, expected)
    for other, of_junk in found.values():
        assert torch.equal(other, logits)
        assert all(torch.equal(of_junk[name], of_zeros[name]) for name in of_zeros)


CHECKS = [check_packed_is_single, check_neighbours, check_padding]


@pytest.mark.parametrize("name", list_encodings())
@pytest.mark.parametrize("check", CHECKS)
def test_every_encoding(check, name: str) -> None:
    """With one pooling each, in turn; the rest of the product is slow."""
    check(build(name, POOLS[list_encodings().index(name) % len(POOLS)], num_registers=1))


@pytest.fixture
def _not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention traces itself for each new layout; torch's switch for debugging leaves that out."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, raising=False)


@pytest.mark.usefixtures("_not_traced")
@pytest.mark.parametrize("name", ["none", "lookhere_90", "rope_axial+rpe_learned"])
@pytest.mark.parametrize("backend", list(dispatching.BACKENDS))
@torch.no_grad()
def test_padding_in_every_back_end(backend: str, name: str) -> None:
    """Whole images too, in rows and in tiles: back ends know more of them."""
    model = build(name, num_registers=1)
    grids = [Grid(3, 5), Grid(1, 1), Grid(9, 17)]
    singles = [images(grid, 1, seed) for seed, grid in enumerate(grids)]
    with use_backend(backend):
        expected = torch.cat([model(image) for image in singles])
        for tile in (None, Grid(8, 16)):
            layout = TokenLayout.packed(grids, num_prefix_tokens=model.num_prefix_tokens, tile=tile)
            patches = layout.to_layout_order(torch.cat([patchify(image, PATCH) for image in singles], dim=1))
            found = model(patches, layout=layout)
            of_zeros = model(*padded(patches, layout, 0.0))
            assert (found - expected).abs().max() < LOGITS
            assert (of_zeros - expected).abs().max() < LOGITS
            for junk in (1e4, math.inf, math.nan):
                assert torch.equal(model(*padded(patches, layout, junk)), of_zeros)


@pytest.mark.usefixtures("_not_traced")
@pytest.mark.parametrize("backend", list(dispatching.BACKENDS))
def test_attention_never_reads_padding(backend: str) -> None:
    """Bit for bit as without it, where q, k and v are NaN there; with queries of their own too."""
    layout = TokenLayout.packed([(3, 5), (2, 2)], num_prefix_tokens=2)
    pattern = build("lookhere_90").encoding.pattern(0, layout)
    q, k, v = torch.randn(3, 1, 12, layout.slots + 5, 8)
    probes = torch.randn(1, 12, 2, 8)
    for x in (q, k, v):
        x[:, :, -5:] = math.nan

    def attended(where: TokenLayout) -> tuple[Tensor, Tensor]:
        queries, keys, values = (x[:, :, : where.slots] for x in (q, k, v))
        own = dispatching.attend(queries, keys, values, pattern, where)
        return own, dispatching.attend(probes, keys, values, None, where, where.query_layout(1))

    with use_backend(backend), torch.no_grad():
        (expected, expected_pooled), (found, pooled) = attended(layout), attended(layout.pad_to(layout.slots + 5))
    assert torch.equal(found[:, :, :-5], expected)
    assert not found[:, :, -5:].any()
    assert torch.equal(pooled, expected_pooled)


@pytest.mark.parametrize("pool", POOLS)
def test_no_images(pool: str) -> None:
    """Nothing, or a row of nothing but padding: no logits, no NaN, and a backward pass that has nothing to do."""
    model = build("rope_mixed+learned_1d", pool).train()
    nothing = TokenLayout.packed([], num_prefix_tokens=model.num_prefix_tokens)
    for slots, junk in ((0, 0.0), (7, 1e4), (7, math.nan)):
        patches = torch.full((1, slots, 3 * PATCH**2), junk, requires_grad=True)
        logits = model(patches, layout=nothing.pad_to(slots))
        assert logits.shape == (0, 5)
        logits.sum().backward()
        assert all(not gradient.any() for gradient in gradients(model).values())
        assert patches.grad is None or not patches.grad.any()
        features = model.forward_features(patches, layout=nothing.pad_to(slots))
        assert isinstance(features, Tensor)
        assert features.shape == (1, slots, 96)
    assert model([]).shape == (0, 5)
    assert model(images((3, 5), 0)).shape == (0, 5)


@torch.no_grad()
def test_padded_rows_of_a_batch() -> None:
    model = build("lookhere_90", "attention", num_registers=2, pool_prefix=True)
    layout = TokenLayout.uniform((3, 5), 2, num_prefix_tokens=2)
    patches = torch.randn(2, 15, 3 * PATCH**2)
    expected = model(patches, layout=layout)
    for junk in (0.0, math.nan):
        assert (model(*padded(patches, layout, junk)) - expected).abs().max() < LOGITS


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_with_padding(checkpointing: bool) -> None:
    """Drop path draws for images alone, and what is computed again is the same."""
    model = build("rope_mixed", drop_path=0.4).train()
    model.set_grad_checkpointing(checkpointing)
    patches, layout = pack(model, given())
    results = []
    for junk in (None, 0.0, math.nan):
        torch.manual_seed(0)
        logits = model(patches, layout=layout) if junk is None else model(*padded(patches, layout, junk))
        loss_of(logits).backward()
        results.append((logits.detach(), gradients(model)))
    (expected, without), *others = results
    for logits, found in others:
        assert (logits - expected).abs().max() < LOGITS
        assert_same_gradients(found, without)
