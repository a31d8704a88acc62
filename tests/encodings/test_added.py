"""What the added encodings give at each place, on the training grid and off it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from sightline.encodings import create_encoding
from sightline.encodings.interpolate import beit_resize_matrix, resize_table
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout

TRAIN = (3, 5)
SHAPE = {"depth": 2, "heads": 3, "dim": 12, "train_grid": TRAIN}


def filled(name: str, **config):
    encoding = create_encoding(name, **SHAPE, **config)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter)
    return encoding


def at(embedding: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
    return embedding.detach().view(*grid, -1)


def test_learned_1d_is_its_table_on_the_training_grid() -> None:
    encoding = filled("learned_1d")
    assert torch.equal(encoding.embedding(TRAIN), encoding.table)
    added = encoding.added(0, TokenLayout.uniform(TRAIN, 2))
    assert torch.equal(added[0], torch.cat((encoding.prefix, encoding.table)))
    # The transposed grid is another one, though it has as many cells.
    assert (encoding.embedding((5, 3)) - encoding.table).abs().max() > 0.1


@pytest.mark.parametrize("rule", ["bilinear", "bicubic", "bicubic_antialias", "corner_aligned"])
def test_resized_tables_do_not_swap_the_axes(rule: str) -> None:
    """A table that grows with x alone still does after a resize, on grids that are not square."""
    ramp = torch.arange(5.0).expand(3, 5).reshape(15, 1)
    for new in [Grid(4, 9), Grid(2, 3), Grid(7, 2), Grid(1, 1)]:
        resized = resize_table(ramp, Grid(3, 5), new, rule).view(new)
        assert (resized - resized[:1]).abs().max() < 1e-5
        assert (resized[0].diff() > 0).all()
    assert resize_table(ramp, Grid(3, 5), Grid(3, 5), rule) is ramp


@pytest.mark.parametrize(("old", "new"), [(1, 1), (1, 5), (5, 1), (7, 7), (7, 11), (11, 7), (3, 27), (27, 53)])
def test_beit_axis(old: int, new: int) -> None:
    """Rows sum to 1, the middle stays the middle, left mirrors right, and what is asked for lies in between."""
    matrix = beit_resize_matrix(old, new, torch.device("cpu"))
    assert matrix.shape == (new, old)
    assert matrix.dtype == torch.float32
    assert torch.allclose(matrix.sum(1), torch.ones(new), atol=1e-6)
    assert (matrix >= -1e-6).all()
    assert matrix[new // 2, old // 2] == 1
    assert torch.allclose(matrix, matrix.flip(0, 1), atol=1e-5)
    places = matrix @ torch.arange(old).float()
    assert (places.diff() > -1e-5).all()


@pytest.mark.parametrize("combine", ["sum", "product", "stack"])
@pytest.mark.parametrize("coordinates", ["absolute", "fractional"])
def test_factorized_on_the_training_grid(coordinates: str, combine: str) -> None:
    """Each place gets its row's and its column's own vector, also for fractional coordinates."""
    encoding = filled("factorized", coordinates=coordinates, combine=combine)
    found = at(encoding.embedding(TRAIN), TRAIN)
    for y in range(3):
        for x in range(5):
            row, col = encoding.rows[y], encoding.cols[x]
            expected = {"sum": row + col, "product": row * col, "stack": torch.cat((row, col))}[combine]
            assert torch.allclose(found[y, x], expected, atol=1e-5)


@pytest.mark.parametrize("mlp", [False, True])
@pytest.mark.parametrize("coordinates", ["absolute", "fractional"])
def test_fourier_is_its_formula(coordinates: str, mlp: bool) -> None:
    encoding = filled("fourier", coordinates=coordinates, mlp=mlp)
    grid = (4, 7)
    sides = torch.tensor(TRAIN if coordinates == "absolute" else grid).float()
    for y, x in [(0, 0), (3, 6), (1, 5)]:
        phase = encoding.frequencies.weight @ (torch.tensor([y, x]).float() / sides)
        features = torch.cat((phase.sin(), phase.cos()))
        if mlp:
            first, last = encoding.mlp[0], encoding.mlp[2]
            features = F.linear(F.gelu(F.linear(features, first.weight, first.bias)), last.weight, last.bias)
        assert torch.allclose(at(encoding.embedding(grid), grid)[y, x], features, atol=1e-5)


@pytest.mark.parametrize("rule", ["bilinear", "bicubic", "corner_aligned"])
def test_sincos_may_be_resized(rule: str) -> None:
    """LookHere's baseline resizes the training grid's table; the default evaluates at the new places."""
    extended, resized = (create_encoding("sincos_2d", **SHAPE, new_grid=how) for how in ("extend", rule))
    assert torch.equal(extended.embedding(TRAIN), resized.embedding(TRAIN))
    new = (6, 9)
    expected = resize_table(extended.embedding(TRAIN), Grid(*TRAIN), Grid(*new), rule)
    assert torch.equal(resized.embedding(new), expected)
    assert (resized.embedding(new) - extended.embedding(new)).abs().max() > 0.1


def test_dropped_tokens_get_the_embedding_of_where_they_stood() -> None:
    encoding = filled("learned_1d")
    layout = TokenLayout.uniform((4, 4), 2).keep(torch.tensor([[3, 0], [15, 7]]))
    added = encoding.added(0, layout)
    table = encoding.embedding((4, 4))
    assert added.shape == (2, 3, 12)
    assert torch.equal(added[0, 1:], table[[3, 0]])
    assert torch.equal(added[1, 1:], table[[15, 7]])
    assert torch.equal(added[:, 0], encoding.prefix.expand(2, -1))
