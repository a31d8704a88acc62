"""Heads that give boxes: in a pack as alone, in patch units, of dropped patches, with gradients of everything."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from sightline import registry
from sightline.models.box_head import BoxHead, BoxOutputs
from sightline.models.config import ViTConfig
from sightline.models.head import make_head
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

GRIDS = [(3, 5), (5, 3), (1, 4), (6, 4)]
HEADS = sorted(registry.classes(BoxHead, "sightline.models.heads"))
OF_ANY_PATCHES = [name for name in HEADS if name != "simple_pyramid"]


def made(name: str, **options) -> BoxHead:
    """A head whose every weight is random, so that nothing is ignored unseen."""
    config = ViTConfig(
        dim=16, heads=2, depth=1, num_classes=3, patch_size=4, image_size=32, num_registers=2, head=name,
        head_options=options,
    )  # fmt: skip
    torch.manual_seed(0)
    head = make_head(config)
    assert isinstance(head, BoxHead)
    with torch.no_grad():
        for weight in head.parameters():
            weight.add_(torch.randn_like(weight) * 0.2)
    return head.eval()


def tokens_of(grids: list[tuple[int, int]]) -> list[Tensor]:
    draws = torch.Generator().manual_seed(1)
    return [torch.randn(1, 3 + rows * cols, 16, generator=draws) for rows, cols in grids]


def assert_same(one: BoxOutputs, other: BoxOutputs) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].shape == other[name].shape
        assert torch.allclose(one[name], other[name], rtol=1e-4, atol=2e-5), name


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("tile", [None, Grid(2, 2)])
def test_an_image_is_the_same_in_a_pack(name: str, tile: Grid | None) -> None:
    head, images = made(name), tokens_of(GRIDS)
    packed = TokenLayout.packed(GRIDS, num_prefix_tokens=3, tile=tile)
    layouts = [TokenLayout.uniform(grid, 1, num_prefix_tokens=3) for grid in GRIDS]
    if tile is None:
        row = torch.cat(images, dim=1)
    else:
        row = packed.join(packed.to_layout_order(torch.cat([one[:, 3:] for one in images], dim=1)))
        for (start, stop), one in zip(bounds(packed), images, strict=True):
            row[:, start : start + 3] = one[:, :3]
            assert stop - start == one.shape[1]
    with torch.no_grad():
        together = head(row, packed)
        padded = packed.pad_to(packed.slots + 7)
        with_padding = head(torch.nn.functional.pad(row, (0, 0, 0, 7)), padded)
        assert len(together) == len(GRIDS)
        for found, again, tokens, layout in zip(together, with_padding, images, layouts, strict=True):
            (alone,) = head(tokens, layout)
            assert_same(alone, found)
            assert_same(alone, again)
            assert alone["logits"].std() > 0.01
            assert alone["boxes"].std() > 0.01


def bounds(layout: TokenLayout) -> list[tuple[int, int]]:
    ends = torch.tensor([0, *layout.seqlens]).cumsum(0).tolist()
    return list(itertools.pairwise(ends))


@pytest.mark.parametrize("name", OF_ANY_PATCHES)
def test_dropped_patches_leave_the_others_at_their_places(name: str) -> None:
    head, (tokens,) = made(name), tokens_of([(4, 6)])
    layout = TokenLayout.uniform((4, 6), 1, num_prefix_tokens=3)
    kept = [23, 2, 9, 14]
    part = torch.cat((tokens[:, :3], tokens[:, 3:][:, kept]), dim=1)
    with torch.no_grad():
        (whole,), (some,) = head(tokens, layout), head(part, layout.keep([kept]))
    if name == "detr_queries":
        assert some["boxes"].shape == whole["boxes"].shape
        assert (some["boxes"] - whole["boxes"]).abs().max() > 1e-3
    else:
        assert_same({key: value[:, kept] for key, value in whole.items()}, some)


def test_a_token_says_the_same_box_in_patches_wherever_it_stands() -> None:
    """In an image of any size: what is as large in patches is as large in the answer, beside the token's place."""
    head = made("fcos")
    token = torch.randn(16, generator=torch.Generator().manual_seed(3))
    said = []
    for grid in ((3, 5), (12, 7)):
        layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=0)
        with torch.no_grad():
            (found,) = head(token.expand(1, layout.slots, -1), layout)
        beside = found["boxes"] - (layout.coords + 0.5).repeat(1, 1, 2)
        assert (beside - beside[:, :1]).abs().max() < 1e-5
        said.append(beside[0, 0])
    assert (said[0] - said[1]).abs().max() < 1e-5


@pytest.mark.parametrize("name", HEADS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    """In float64, of tokens and of every weight."""
    # From one layer of queries to the next, anchors are cut from the graph, as DAB-DETR's are.
    head, grid = made(name, **({"layers": 1} if name == "detr_queries" else {})).double(), (2, 3)
    layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=1)
    tokens = torch.randn(1, 7, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    parts = dict(head.named_parameters())

    def said() -> Tensor:
        (found,) = head(tokens, layout)
        values = [one.flatten() for key, one in found.items() if key != "places"]
        whole = torch.cat(values)
        return (whole * torch.linspace(-1, 1, len(whole), dtype=whole.dtype)).sum()

    tokens.requires_grad_()
    names, weights = ["tokens", *parts], [tokens, *parts.values()]
    gradients = torch.autograd.grad(said(), weights)
    step = 1e-6
    for key, weight, gradient in zip(names, weights, gradients, strict=True):
        direction = torch.randn(weight.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
        with torch.no_grad():
            weight += step * direction
            above = said()
            weight -= 2 * step * direction
            below = said()
            weight += step * direction
        expected = float(above - below) / (2 * step)
        assert float((gradient * direction).sum()) == pytest.approx(expected, rel=2e-5, abs=2e-6), key
