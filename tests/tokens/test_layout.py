"""TokenLayout: where each token stands, in a batch, a pack and a dropped batch."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

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


def test_grid() -> None:
    assert Grid(3, 5).cells == 15
    assert Grid.checked(4) == Grid.checked([4, 4]) == Grid.checked((4, 4)) == Grid(4, 4)
    for wrong in ((0, 3), (3, -1), 0, (1, 2, 3), (2.0, 2), "4x4", True, (True, 2), None):
        with pytest.raises(InputError, match="train_grid"):
            Grid.checked(wrong, "train_grid")


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


def test_several_images_in_each_of_several_rows() -> None:
    one, other = TokenLayout.packed([(1, 2), (2, 2)]).segments
    layout = TokenLayout((one, other), rows=3, num_prefix_tokens=1)
    assert (layout.images, layout.slots) == (6, 8)
    assert layout.image_ids.tolist() == [[2 * row] * 3 + [2 * row + 1] * 5 for row in range(3)]


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


def test_queries_and_patches_only() -> None:
    layout = TokenLayout.packed([(1, 2), (2, 2)], num_prefix_tokens=3)
    assert layout.query_layout(1).seqlens == [1, 1]
    assert layout.patches_only().seqlens == [2, 4]
    assert layout.patches_only().images == layout.query_layout(2).images == 2


def dropped() -> TokenLayout:
    return TokenLayout.uniform((3, 4), 2).keep(torch.tensor([[11, 0, 5], [1, 2, 3]]))


LAYOUTS = [
    lambda: TokenLayout.uniform((2, 3), 4, num_prefix_tokens=2),
    lambda: TokenLayout.packed([(1, 2), (5, 3)], num_prefix_tokens=0),
    dropped,
    lambda: TokenLayout.packed([(1, 2), (5, 3)]).keep([torch.tensor([1]), torch.tensor([14, 3, 2])]),
    lambda: TokenLayout.packed([]),
    lambda: TokenLayout.uniform((2, 3), 0),
    lambda: TokenLayout.packed([(1, 2), (5, 3)]).pad_to(30),
    lambda: TokenLayout.packed([]).pad_to(3),
]


@pytest.mark.parametrize("make", LAYOUTS)
@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies(make, clone) -> None:
    layout = make()
    other = clone(layout)
    assert repr(other) == repr(layout)
    assert (other.rows, other.seqlens, other.num_prefix_tokens) == (
        layout.rows,
        layout.seqlens,
        layout.num_prefix_tokens,
    )
    for one, two in zip(layout.segments, other.segments, strict=True):
        assert torch.equal(one.coords, two.coords)
        assert one.coords.dtype == two.coords.dtype
        assert (one.grid, one.complete) == (two.grid, two.complete)


def test_pickled_as_grids() -> None:
    """A layout of 64 x 64 patches goes to a worker in some bytes, not as its coordinates."""
    assert len(pickle.dumps(TokenLayout.uniform((64, 64), 32))) < 400


def test_cache_is_keyed_by_shape_and_not_by_count(empty_cache: ByteLRUCache) -> None:
    for rows, cols in [(4, 4), (2, 8), (8, 2), (1, 16), (4, 4)]:
        assert grid_coords(Grid(rows, cols), CPU).tolist() == cells(rows, cols)
    assert len(empty_cache) == 4
    assert grid_coords(Grid(4, 4), CPU) is grid_coords(Grid(4, 4), CPU)


def test_cache_is_bounded(empty_cache: ByteLRUCache) -> None:
    for side in range(1, 200):
        grid_coords(Grid(1, side), CPU)
        assert empty_cache.held_bytes <= empty_cache.most_bytes
    # Not emptied whole: the last ones are there.
    coords = grid_coords(Grid(1, 199), CPU)
    assert coords is grid_coords(Grid(1, 199), CPU)
    assert len(empty_cache) > 3
    assert grid_coords(Grid(1, 3), CPU).tolist() == cells(1, 3)


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


def test_cache_holds_no_fake_tensor_and_gives_none_away(empty_cache: ByteLRUCache) -> None:
    grid_coords(Grid(2, 2), CPU)
    with FakeTensorMode():
        fake = grid_coords(Grid(3, 5), CPU)
        known = grid_coords(Grid(2, 2), CPU)
        # A real tensor among fake ones would be refused here.
        assert (known + torch.zeros(1, dtype=torch.int64)).shape == (4, 2)
    assert fake.shape == (15, 2)
    assert len(empty_cache) == 1
    assert empty_cache.get((Grid(2, 2), None, CPU)) is not None
    assert grid_coords(Grid(3, 5), CPU).tolist() == cells(3, 5)


@pytest.mark.usefixtures("empty_cache")
def test_meta_device_beside_the_cpu() -> None:
    assert grid_coords(Grid(2, 3), torch.device("meta")).device.type == "meta"
    assert grid_coords(Grid(2, 3), CPU).tolist() == cells(2, 3)
    assert TokenLayout.uniform((2, 3), 1, device="meta").coords.device.type == "meta"
    with torch.device("meta"):
        assert grid_coords(Grid(4, 3), CPU).device.type == "cpu"


def test_found_33_keep_takes_lists() -> None:
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
