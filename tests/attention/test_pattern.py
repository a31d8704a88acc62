"""A pattern as a matrix, against the same thing written out pair by pair."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from sightline.attention import DirectedBias, FieldOfView, Pattern, TableBias, attend, spreading, use_backend
from sightline.attention import spreading as module
from sightline.attention.dispatch import BACKENDS
from sightline.attention.pattern import BFLOAT16_MAX
from sightline.attention.spreading import (
    spread_beside_prefix,
    spread_by_index,
    spread_by_rows,
    spread_over_tokens,
    with_prefix,
)
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from tests.attention.given import pattern

CPU = torch.device("cpu")
normals = st.tuples(st.integers(-2, 2), st.integers(-2, 2))
views = st.builds(FieldOfView, st.lists(normals, max_size=2).map(tuple), st.sampled_from(["all", "any"]))
directed = st.builds(
    lambda heads, scale, distance, outside, rounding: DirectedBias(
        tuple(view for view, _, _ in heads),
        tuple(slope for _, slope, _ in heads),
        tuple(central for _, _, central in heads),
        scale,
        distance,
        outside,
        rounding,
    ),
    st.lists(st.tuples(views, st.sampled_from([0.0, 0.25, 0.5]), st.booleans()), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.3, 1.5]),
    st.sampled_from(["linear", "sqrt", "square"]),
    st.sampled_from(["inf", "max", "zero"]),
    st.sampled_from(["official", "exact"]),
)


def by_hand(term: DirectedBias, grid: Grid) -> Tensor:
    """The definition, one number at a time."""
    f = {"linear": lambda d: d, "sqrt": math.sqrt, "square": lambda d: d * d}[term.distance]
    farthest = math.hypot(grid.rows - 1, grid.cols - 1)
    cells = [(y, x) for y in range(grid.rows) for x in range(grid.cols)]
    bias = torch.zeros(len(term.views), grid.cells, grid.cells)
    for head, (view, slope, central) in enumerate(zip(term.views, term.slopes, term.from_centre, strict=True)):
        for i, (qy, qx) in enumerate(cells):
            for j, (ky, kx) in enumerate(cells):
                dy, dx = ky - qy, kx - qx
                inside = [a * dy + b * dx >= 0 for a, b in view.planes]
                seen = not inside or (all(inside) if view.join == "all" else any(inside))
                if central:
                    away = math.hypot(ky - (grid.rows - 1) / 2, kx - (grid.cols - 1) / 2)
                    penalty = term.scale * slope * away if seen or term.outside != "inf" else math.inf
                elif seen:
                    penalty = term.scale * slope * f(math.hypot(dy, dx))
                else:
                    penalty = {"inf": math.inf, "zero": 0.0, "max": term.scale * slope * f(farthest)}[term.outside]
                bias[head, i, j] = -penalty
    return bias


@settings(deadline=None, max_examples=60)
@given(directed, st.integers(1, 4), st.integers(1, 5))
def test_directed_equals_its_definition(term: DirectedBias, rows: int, cols: int) -> None:
    grid = Grid(rows, cols)
    segment = TokenLayout.uniform(grid, 1).segments[0]
    found = Pattern((term,)).bias(segment, segment, 0, 0)[0]
    expected = by_hand(term, grid)
    assert found.dtype == torch.float32
    masked = expected.isinf()
    assert torch.equal(found == (-BFLOAT16_MAX if term.rounding == "official" else -math.inf), masked)
    tolerance = 4e-3 * expected[~masked].abs() + 1e-6 if term.rounding == "official" else 1e-5
    assert ((found - expected)[~masked].abs() <= tolerance).all()


@settings(deadline=None, max_examples=40)
@given(directed, st.integers(1, 4), st.integers(1, 5), st.integers(0, 2), st.integers(0, 2), st.randoms())
def test_kept_patches_are_rows_and_columns_of_the_whole(
    term, rows: int, cols: int, queries: int, keys: int, random
) -> None:
    layout = TokenLayout.uniform((rows, cols), 1)
    whole = layout.segments[0]
    chosen = [sorted(random.sample(range(rows * cols), random.randint(1, rows * cols))) for _ in range(2)]
    random.shuffle(chosen[0])
    some, others = (layout.keep(torch.tensor([indices])).segments[0] for indices in chosen)
    pattern = Pattern((term,))
    expected = pattern.bias(whole, whole, queries, keys)[0]
    row = [*range(queries), *(queries + index for index in chosen[0])]
    column = [*range(keys), *(keys + index for index in chosen[1])]
    assert torch.equal(pattern.bias(some, others, queries, keys)[0], expected[:, row][:, :, column])


@pytest.mark.parametrize("rounding", ["official", "exact"])
def test_shifted_coordinates(rounding: str) -> None:
    """A relative pattern does not know where the patches stand; one from the centre does."""
    layout = TokenLayout.uniform((8, 9), 1).keep(torch.tensor([[0, 1, 10, 12]]))
    segment = layout.segments[0]
    moved = replace(segment, coords=segment.coords + torch.tensor([3, 2]))
    relative = Pattern((DirectedBias((FieldOfView(((1, 1),)),), (0.3,), (False,), rounding=rounding),))
    central = Pattern((DirectedBias((FieldOfView(),), (0.3,), (True,), rounding=rounding),))
    assert torch.equal(relative.bias(segment, segment, 1, 1), relative.bias(moved, moved, 1, 1))
    assert not torch.equal(central.bias(segment, segment, 1, 1), central.bias(moved, moved, 1, 1))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 6))
def test_tables_are_spread_over_pairs_in_one_way(rows: int, cols: int) -> None:
    """By rows where it is fast, by index where sizes may be symbolic, by coordinates where tokens were dropped."""
    grid = Grid(rows, cols)
    table = torch.randn(2, 2 * rows - 1, 2 * cols - 1)
    coords = TokenLayout.uniform(grid, 1).segments[0].coords
    expected = torch.zeros(1, 2, grid.cells, grid.cells)
    for query in range(grid.cells):
        for key in range(grid.cells):
            dy, dx = key // cols - query // cols, key % cols - query % cols
            expected[0, :, query, key] = table[:, dy + rows - 1, dx + cols - 1]
    for spread in (spread_by_rows(table, grid), spread_by_index(table, grid)):
        assert torch.equal(spread, expected)
    # As on a GPU.
    assert torch.equal(spreading._windows(spreading._by_column(table, grid), grid).reshape(expected.shape), expected)
    assert torch.equal(spread_over_tokens(table, coords, coords, grid), expected)
    for prefix, threads in itertools.product(((0, 0), (1, 1), (0, 3), (2, 1)), (1, 2)):
        with mock.patch.object(torch, "get_num_threads", return_value=threads):
            whole = spread_beside_prefix(table, grid, *prefix)
        assert torch.equal(whole, with_prefix(expected, None, *prefix))


@pytest.mark.parametrize("threads", [1, 2])
def test_a_bias_is_the_same_in_one_pass_over_the_pairs(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing of it is learned and nobody follows what is done, it is written where it stands at once."""
    for what, prefix in ((pattern(), (1, 1)), (pattern(), (0, 0)), (pattern("alibi_2d"), (2, 2))):
        segment = TokenLayout.uniform((5, 7), 1).segments[0]
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        with torch.no_grad():
            fast = [what.bias(segment, segment, *prefix, dtype) for dtype in (torch.float32, torch.bfloat16)]
            monkeypatch.setattr(module, "may_be_traced", lambda _: True)
            slow = [what.bias(segment, segment, *prefix, dtype) for dtype in (torch.float32, torch.bfloat16)]
            monkeypatch.undo()
        for one, other in zip(fast, slow, strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=3), st.booleans())
def test_rounded_once(kinds: list[int], kept: bool) -> None:
    """In 16 bits a bias is the float32 bias rounded, also where several terms are added."""
    choices = [
        DirectedBias((FieldOfView(((1, 0),)), FieldOfView()), (0.3, 0.07), (False, False)),
        DirectedBias((FieldOfView(), FieldOfView()), (0.3, 0.07), (True, False)),
        TableBias(
            lambda _: torch.linspace(-3, 3, 2 * 5 * 7).view(2, 5, 7), torch.tensor([[0.1, 1.1], [2.3, 3.7], [0.9, 7.7]])
        ),
    ]
    layout = TokenLayout.uniform((3, 4), 1)
    segment = (layout.keep(torch.tensor([[7, 0, 5]])) if kept else layout).segments[0]
    pattern = Pattern(tuple(choices[kind] for kind in kinds))
    wide = pattern.bias(segment, segment, 1, 1)
    for dtype in (torch.bfloat16, torch.float16):
        narrow = pattern.bias(segment, segment, 1, 1, dtype)
        assert narrow.dtype == dtype
        assert torch.equal(narrow, wide.to(dtype))


def test_tables_are_kept_and_stay_what_they_were():
    """Small ones by term, grid and device; every back end reads them and none writes."""
    term = DirectedBias((FieldOfView(((1, 0),)), FieldOfView()), (0.5, 0.25), (False, False))
    grid = Grid(3, 5)
    fresh = term._relative(grid, CPU)
    assert term.relative(grid, CPU).data_ptr() == replace(term).relative(grid, CPU).data_ptr()
    assert replace(term, scale=2.0).relative(grid, CPU).data_ptr() != term.relative(grid, CPU).data_ptr()
    assert term.relative(Grid(5, 3), CPU).shape != term.relative(grid, CPU).shape
    for layout in (TokenLayout.uniform(grid, 2), TokenLayout.packed([grid]).keep([torch.tensor([0, 7])])):
        for name in BACKENDS:
            with use_backend(name):
                q = torch.randn(layout.rows, 2, layout.slots, 4, requires_grad=True)
                attend(q, q, q, Pattern((term,)), layout).sum().backward()
    assert torch.equal(term.relative(grid, CPU), fresh)
    large = Grid(300, 200)
    first, second = term.relative(large, CPU), term.relative(large, CPU)
    assert first.data_ptr() != second.data_ptr()


def test_a_table_first_made_under_inference_mode_can_train():
    term = DirectedBias((FieldOfView(),), (0.123,), (False,))
    layout = TokenLayout.uniform((4, 2), 1)
    with torch.inference_mode():
        attend(*[torch.randn(1, 1, 9, 4)] * 3, Pattern((term,)), layout)
    q = torch.randn(1, 1, 9, 4, requires_grad=True)
    attend(q, q, q, Pattern((term,)), layout).sum().backward()
    assert q.grad is not None
