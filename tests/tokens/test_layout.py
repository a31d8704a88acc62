"""TokenLayout: where each token stands, in a batch, a pack and a dropped batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import InputError
from sightline.tokens import segment
from sightline.tokens.cache import ByteLRUCache
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout, grid_coords

CPU = torch.device("cpu")
grids = st.tuples(st.integers(1, 6), st.integers(1, 6))


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> ByteLRUCache:
    cache = ByteLRUCache("a test's", 1 << 14)
    monkeypatch.setattr(segment, "_COORDS", cache)
    return cache


def cells(rows: int, cols: int) -> list[list[int]]:
    return [[y, x] for y in range(rows) for x in range(cols)]


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (1, 7), (7, 1), (3, 5), (5, 3)])
def test_coordinates_are_row_major_y_before_x(rows: int, cols: int) -> None:
    coords = grid_coords(Grid(rows, cols), CPU)
    assert coords.dtype == torch.int64
    assert coords.tolist() == cells(rows, cols)


def test_uniform() -> None:
    layout = TokenLayout.uniform((2, 3), 4, num_prefix_tokens=2)
    assert (layout.rows, layout.slots, layout.images, layout.seqlens) == (4, 8, 4, [8])
    assert layout.coords.dtype == torch.int64
    assert layout.coords.tolist() == [[[0, 0]] * 2 + cells(2, 3)]
    assert layout.grids.tolist() == [[[2, 3]] * 8]
    assert layout.image_ids.tolist() == [[row] * 8 for row in range(4)]
    assert layout.is_prefix.tolist() == [True] * 2 + [False] * 6


def test_packed() -> None:
    layout = TokenLayout.packed([(1, 2), (2, 1)], num_prefix_tokens=1)
    assert (layout.rows, layout.slots, layout.images, layout.seqlens) == (1, 6, 2, [3, 3])
    assert layout.coords.tolist() == [[[0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [1, 0]]]
    assert layout.grids.tolist() == [[[1, 2]] * 3 + [[2, 1]] * 3]
    assert layout.image_ids.tolist() == [[0, 0, 0, 1, 1, 1]]
    assert layout.is_prefix.tolist() == [True, False, False, True, False, False]


@settings(deadline=None, max_examples=30)
@given(st.lists(grids, min_size=1, max_size=4), st.integers(0, 2))
def test_join_and_split_are_inverse(shapes: list[tuple[int, int]], prefix: int) -> None:
    layout = TokenLayout.packed(shapes, num_prefix_tokens=prefix)
    patches = torch.randn(1, sum(rows * cols for rows, cols in shapes), 2)
    tokens = torch.randn(prefix, 2)
    joined = layout.join(patches, tokens)
    assert joined.shape == (1, layout.slots, 2)
    pieces = layout.split(joined)
    assert [piece.shape[1] for piece in pieces] == layout.seqlens
    assert torch.equal(torch.cat([piece[:, prefix:] for piece in pieces], dim=1), patches)
    for piece in pieces:
        assert torch.equal(piece[0, :prefix], tokens)
    assert torch.equal(joined[0, layout.is_prefix], tokens.repeat(len(shapes), 1))
    assert not layout.join(patches)[0, layout.is_prefix].any()


def test_keep_keeps_the_original_grid() -> None:
    layout = TokenLayout.uniform((3, 4), 2)
    kept = layout.keep(torch.tensor([[11, 0, 5], [1, 2, 3]]))
    assert kept.seqlens == [4]
    assert kept.segments[0].grid == Grid(3, 4)
    assert not kept.segments[0].complete
    assert kept.coords.tolist() == [[[0, 0], [2, 3], [0, 0], [1, 1]], [[0, 0], [0, 1], [0, 2], [0, 3]]]
    assert kept.segments[0].indices.tolist() == [[11, 0, 5], [1, 2, 3]]
    # Indices are of the original grid's patches that are still here, in the order kept.
    again = TokenLayout.packed([(3, 4), (2, 2)]).keep([torch.tensor([7]), torch.tensor([3, 0])])
    assert [segment.indices.tolist() for segment in again.segments] == [[[7]], [[3, 0]]]
    assert again.slots == 5
    with pytest.raises(InputError, match="1 index tensors for 2 images"):
        again.keep([torch.tensor([0])])


@pytest.mark.usefixtures("empty_cache")
def test_cache_filled_under_inference_mode_can_train() -> None:
    with torch.inference_mode():
        coords = grid_coords(Grid(3, 5), CPU)
    assert not coords.is_inference()
    assert not TokenLayout.uniform((3, 5), 1).coords.is_inference()
    frequency = torch.ones(2, requires_grad=True)
    (grid_coords(Grid(3, 5), CPU).float() * frequency).sum().backward()
    assert frequency.grad is not None
    assert frequency.grad.tolist() == [15.0, 30.0]


def test_keep_takes_lists() -> None:
    pack = TokenLayout.packed([(2, 3), (3, 5)])
    by_list, by_tensor = pack.keep([[0, 4], [14, 2, 7]]), pack.keep([torch.tensor([0, 4]), torch.tensor([14, 2, 7])])
    assert torch.equal(by_list.coords, by_tensor.coords)
    assert torch.equal(pack.keep([[], range(15)]).coords, pack.keep([torch.arange(0), torch.arange(15)]).coords)
    for wrong, words in (
        ([[0, 6], [1]], "6 for image 0: expected whole numbers from 0 to 5"),
        ([[0], [-1]], "-1 for image 1: expected whole numbers from 0 to 14"),
        ([[0], [1.0]], r"1\.0 for image 1"),
        ([[0], [True]], "True for image 1"),
        ([0, 1], "0 for image 0: expected a tensor or a list"),
        ([[0]], "1 index tensors for 2 images"),
    ):
        with pytest.raises(InputError, match=words):
            pack.keep(wrong)


def test_more_prefix_tokens_stand_before_those_that_are_there() -> None:
    for layout in (
        TokenLayout.packed([(2, 3), (3, 1)], num_prefix_tokens=1).pad_to(14),
        TokenLayout.uniform((2, 3), 2, num_prefix_tokens=2).keep(torch.tensor([[4, 1], [0, 2]])),
    ):
        more = layout.with_prefix(3)
        assert more.num_prefix_tokens == layout.num_prefix_tokens + 3
        assert (more.rows, more.padding, more.segments) == (layout.rows, layout.padding, layout.segments)
        assert more.slots == layout.slots + 3 * len(layout.segments)
        for before, after in zip(layout.split(layout.coords), more.split(more.coords), strict=True):
            assert torch.equal(after[:, 3:], before)
            assert (after[:, :3] == 0).all()
