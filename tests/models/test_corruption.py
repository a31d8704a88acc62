"""Which patches are corrupted, and what stands in their place: the paper's shares, one draw for every layout."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sightline.models.corruption import MASKED, Corruption, CorruptionDraw, apply_corruption
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.rng import image_seed

GRIDS = [Grid(3, 5), Grid(7, 2), Grid(1, 1), Grid(5, 3)]
SEEDS = [image_seed(3, 1, index) for index in range(len(GRIDS))]


def alone(number: int, **corruption: float) -> CorruptionDraw:
    layout = TokenLayout.uniform(GRIDS[number], 1, num_prefix_tokens=2).with_seeds([SEEDS[number]])
    return Corruption(**corruption).draw(layout, training=True)[0]


def test_the_shares_of_the_paper():
    grid, images = Grid(7, 9), 600
    layout = TokenLayout.uniform(grid, images).with_seeds([image_seed(0, 0, index) for index in range(images)])
    ((chosen, sources),) = Corruption().draw(layout, training=True)
    assert chosen.shape == (images, math.ceil(0.5 * 63))
    assert (chosen.diff(dim=1) > 0).all()
    count = chosen.numel()
    hidden, kept = sources == MASKED, sources == chosen
    for part, share in ((hidden, 0.8), (kept, 0.1), (~hidden & ~kept, 0.1)):
        assert abs(part.float().mean() - share) < 4 * math.sqrt(share * (1 - share) / count)
    # Each place as often as any other, and each as likely to be hidden.
    often = chosen.flatten().bincount(minlength=63) / images
    assert (often - 32 / 63).abs().max() < 4.5 * math.sqrt(0.25 / images)
    # Another patch is any of the others, not those that are near.
    jumps = (sources - chosen)[~hidden & ~kept] % 63
    assert jumps.unique().numel() == 62
    assert jumps.min() > 0


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
@pytest.mark.parametrize("padding", [0, 5])
def test_one_draw_for_every_layout(order, padding):
    layout = TokenLayout.packed([GRIDS[number] for number in order], num_prefix_tokens=1)
    layout = layout.with_seeds([SEEDS[number] for number in order])
    layout = layout.pad_to(layout.slots + padding) if padding else layout
    for number, found in zip(order, Corruption().draw(layout, training=True), strict=True):
        for one, other in zip(found, alone(number), strict=True):
            assert torch.equal(one, other)


def test_without_seeds_it_is_fixed_in_evaluation_and_drawn_in_training():
    layout, corruption = TokenLayout.uniform(Grid(6, 7), 2), Corruption()
    first, again = (corruption.draw(layout, training=False)[0] for _ in range(2))
    assert torch.equal(first.chosen, again.chosen)
    assert torch.equal(first.chosen[0], first.chosen[1])
    first, again = (corruption.draw(layout, training=True)[0] for _ in range(2))
    assert not torch.equal(first.chosen, again.chosen)


def by_hand(values: Tensor, mask: Tensor, image: list[tuple[int, int]], first: int) -> Tensor:
    """One image, whose patches begin at slot `first`: pairs of a place and what stands there."""
    found = values.clone()
    for place, source in image:
        found[first + place] = mask if source == MASKED else values[first + source]
    return found


def layouts() -> dict[str, TokenLayout]:
    uniform = TokenLayout.uniform(Grid(3, 5), 2, num_prefix_tokens=3).with_seeds(SEEDS[:2])
    packed = TokenLayout.packed(GRIDS, num_prefix_tokens=3).with_seeds(SEEDS)
    kept = [torch.randperm(grid.cells)[: grid.cells // 2 + 1] for grid in GRIDS]
    return {
        "uniform": uniform, "packed": packed, "padded": packed.pad_to(packed.slots + 4), "dropped": packed.keep(kept),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["uniform", "packed", "padded", "dropped"])
def test_what_is_drawn_is_replaced_and_nothing_else(name):
    layout = layouts()[name]
    drawn = Corruption(share=0.6, masked=0.4, random=0.4).draw(layout, training=True)
    values, mask = torch.randn(layout.rows, layout.slots, 4), torch.randn(4)
    found = apply_corruption(values, mask, drawn, layout)
    assert not torch.equal(found, values)
    expected, start = values.clone(), 0
    for one, length in zip(drawn, layout.seqlens, strict=True):
        for row in range(layout.rows):
            pairs = list(zip(one.chosen[row].tolist(), one.sources[row].tolist(), strict=True))
            part = values[row, start : start + length]
            expected[row, start : start + length] = by_hand(part, mask, pairs, layout.num_prefix_tokens)
        start += length
    assert torch.equal(found, expected)
