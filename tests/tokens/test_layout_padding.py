"""Padding slots of a TokenLayout: at the end of each row, of no image, and never in what is asked of the images."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import InputError
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

sides = st.tuples(st.integers(1, 6), st.integers(1, 6))


def test_what_each_slot_says() -> None:
    layout = TokenLayout.packed([(1, 2), (2, 1)], num_prefix_tokens=1).pad_to(9)
    assert (layout.rows, layout.slots, layout.images, layout.seqlens, layout.padding) == (1, 9, 2, [3, 3], 3)
    assert layout.coords.dtype == layout.grids.dtype == layout.image_ids.dtype == torch.int64
    assert layout.coords.tolist() == [[[0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [1, 0], *[[0, 0]] * 3]]
    assert layout.grids.tolist() == [[[1, 2]] * 3 + [[2, 1]] * 3 + [[1, 1]] * 3]
    assert layout.image_ids.tolist() == [[0, 0, 0, 1, 1, 1, -1, -1, -1]]
    assert layout.is_prefix.tolist() == [True, False, False] * 2 + [False] * 3


def test_pad_to() -> None:
    layout = TokenLayout.packed([(2, 3), (1, 1)])
    assert layout.pad_to(9) is layout
    assert layout.unpadded is layout
    padded = layout.pad_to(12)
    assert padded.pad_to(12) is padded
    assert padded.pad_to(20).padding == 11
    assert padded.pad_to(9).padding == 0
    assert padded.unpadded is padded.unpadded, "what is kept for a layout is kept for all layers"
    assert (padded.unpadded.slots, padded.unpadded.segments) == (9, layout.segments)
    for wrong in (8, 0, -1):
        with pytest.raises(InputError, match=f"pad_to {wrong}: the images take 9 slots"):
            padded.pad_to(wrong)
    empty = TokenLayout.packed([]).pad_to(5)
    assert (empty.slots, empty.images, empty.padding) == (5, 0, 5)


@settings(deadline=None, max_examples=30)
@given(shapes=st.lists(sides, min_size=1, max_size=4), prefix=st.integers(0, 2), padding=st.integers(1, 5))
def test_joined_with_zeros_and_split_without(shapes: list[tuple[int, int]], prefix: int, padding: int) -> None:
    plain = TokenLayout.packed(shapes, num_prefix_tokens=prefix)
    layout = plain.pad_to(plain.slots + padding)
    patches = torch.randn(1, sum(rows * cols for rows, cols in shapes), 2)
    tokens = torch.randn(prefix, 2)
    joined = layout.join(patches, tokens)
    assert joined.shape == (1, layout.slots, 2)
    assert torch.equal(joined[:, :-padding], plain.join(patches, tokens))
    assert not joined[:, -padding:].any()
    for one, other in zip(layout.split(joined), plain.split(plain.join(patches, tokens)), strict=True):
        assert torch.equal(one, other)


def test_tiled_and_back() -> None:
    shapes, tile = [(3, 5), (4, 3)], Grid(2, 2)
    plain = TokenLayout.packed(shapes, num_prefix_tokens=1)
    tiled = TokenLayout.packed(shapes, num_prefix_tokens=1, tile=tile).pad_to(plain.slots + 4)
    patches = torch.randn(1, 27 + 4, 2)
    laid = tiled.to_layout_order(patches)
    assert torch.equal(laid[:, :27], tiled.unpadded.to_layout_order(patches[:, :27]))
    assert torch.equal(laid[:, 27:], patches[:, 27:])
    tokens = tiled.join(laid[:, :27])
    assert torch.equal(tiled.to_row_major(tokens), plain.pad_to(tiled.slots).join(patches[:, :27]))
