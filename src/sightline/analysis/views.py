"""What a patch may attend to and at what penalty, as far as the position encoding says it; and where a query stands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from sightline.attention.pattern import BFLOAT16_MAX, Pattern
from sightline.encodings.stages import StagedEncoding
from sightline.errors import InputError
from sightline.models import Model
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment

Place = tuple[float, float]
"""(y, x) from 0 to 1 of the image."""
CENTRE: Place = (0.5, 0.5)


def check_place(what: str, place: object) -> Place:
    """A place as it was given.

    Raises:
        InputError: it is none.
    """
    sides = list(place) if isinstance(place, Sequence) and not isinstance(place, str) else []
    if len(sides) != 2 or not all(isinstance(one, int | float) and 0 <= one <= 1 for one in sides):
        raise InputError(f"{what} {place!r}: expected (y, x) from 0 to 1, as (0.5, 0.5)")
    return float(sides[0]), float(sides[1])


def cell_of(grid: Grid, place: Place) -> int:
    """The row-major index of the patch at a place; at the centre stands (rows // 2, cols // 2)."""
    rows, cols = grid.planar("a place in an image")
    row, col = (min(int(at * side), side - 1) for at, side in zip(place, (rows, cols), strict=True))
    return row * cols + col


def check_cell(grid: Grid, cell: Sequence[int] | None) -> tuple[int, int]:
    """A cell (row, col) of a grid; for None that in the middle, the lower and right one of two.

    Raises:
        InputError: it is none.
    """
    if cell is None:
        return grid.rows // 2, grid.cols // 2
    two = isinstance(cell, list | tuple) and len(cell) == 2
    if not two or not all(type(at) is int and 0 <= at < side for at, side in zip(cell, grid, strict=True)):
        expected = f"from (0, 0) to ({grid.rows - 1}, {grid.cols - 1}) of a grid of {grid.rows}x{grid.cols}"
        raise InputError(f"cell {cell!r}: expected (row, col), {expected}")
    return cell[0], cell[1]


def pattern_of(model: Model, layer: int, grid: Grid) -> Pattern | None:
    """What the encoding says of the patches of a grid, or None where it does not bias the scores."""
    layout = TokenLayout.uniform(grid, 1, num_prefix_tokens=0, device=model.anchor.device)
    return model.encoding.hooks.pattern(layer, layout)


def attends_in_parts(model: Model) -> bool:
    """Whether layers attend inside parts of an image (windows, lines), of which the encoding is then asked."""
    config, grid = model.config, model.config.train_grid
    parts = any(one.merged or one.keys(grid.cells, grid) < one.tokens(grid.cells, grid) for one in model.stages(config))
    return parts or isinstance(model.encoding, StagedEncoding)


def require_bias(what: str, model: Model) -> None:
    """Refuse a model whose encoding does not bias the scores of any layer, or whose layers attend inside parts of an
    image, of which the encoding is then asked instead of the image.

    Raises:
        InputError: names the encoding, or the architecture.
    """
    grid = model.config.train_grid
    if attends_in_parts(model):
        raise InputError(
            f"{what}: architecture {model.name} attends inside parts of an image (expected attention over all of it)"
        )
    patterns = [pattern_of(model, layer, grid) for layer in range(model.config.depth)]
    there = [one for one in patterns if one is not None]
    if there and not any(one.terms_of("places") for one in there):
        raise InputError(
            f"{what}: what encoding {model.config.encoding} adds is made of queries, keys or attention and has no bias "
            "of its own (expected one that has, as irpe_bias or lookhere_90)"
        )
    if not there:
        raise InputError(
            f"{what}: encoding {model.config.encoding} neither masks nor biases scores "
            "(expected one that does, as lookhere_90 or alibi_2d)"
        )


def visible_from(model: Model, grid: Sequence[int], cell: Sequence[int] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """What every head of every layer may see of a grid from one of its patches (LookHere figures 2 and 9 to 11).

    Prefix tokens are left out. An encoding that does not bias the scores lets all be seen, at a bias of 0. It costs
    a slice of one small table a layer, at any grid.

    Args:
        grid: (rows, cols) in patches.
        cell: (row, col) of the patch that asks, the centre (rows // 2, cols // 2) for None.

    Returns:
        visible: bool [layers, heads, rows, cols], whether a patch may be attended to.
        bias: float32 [layers, heads, rows, cols], what is added to the score; -inf where it is masked.

    Raises:
        InputError: the grid is none of two axes, or the cell is not in it.
    """
    grid = Grid.checked(grid)
    cell = check_cell(grid, cell)
    bias = np.stack([_bias_from(model, layer, grid, cell) for layer in range(model.config.depth)])
    return bias > -np.inf, bias


def field_of_view(model: Model, layer: int, grid: Grid) -> np.ndarray | None:
    """exp(bias) of the patch at (rows // 2, cols // 2) on every patch: float32 [heads, rows, cols] in [0, 1].

    0 where the key is masked. A learned bias above 0 counts as 1. None where the encoding does not bias the scores, or
    by what tokens hold alone.
    """
    pattern = pattern_of(model, layer, grid)
    if pattern is None or not pattern.terms_of("places"):
        return None
    return torch.from_numpy(_bias_from(model, layer, grid, check_cell(grid, None))).exp().clamp(max=1).numpy()


def _bias_from(model: Model, layer: int, grid: Grid, cell: tuple[int, int]) -> np.ndarray:
    """The bias of one patch on all of its grid: float32 [heads, rows, cols], -inf where masked."""
    pattern = pattern_of(model, layer, grid)
    if pattern is None:
        return np.zeros((model.config.heads, *grid), dtype=np.float32)
    with torch.inference_mode():
        relative, by_key = pattern.tables(grid, model.anchor.device)
        # A table of displacements, from the one of the first patch to that of the last.
        top, left = (side - 1 - at for side, at in zip(grid, cell, strict=True))
        bias = relative[:, top : top + grid.rows, left : left + grid.cols]
        bias = _unfilled(bias if by_key is None else bias + by_key)
        return bias.expand(model.config.heads, *grid).float().cpu().numpy()


def bias_matrix(model: Model, layer: int, grid: Grid) -> np.ndarray:
    """The bias of a layer on all pairs of patches, row-major: float32 [heads, N, N], -inf where masked."""
    pattern = pattern_of(model, layer, grid)
    if pattern is None:
        return np.zeros((model.config.heads, grid.cells, grid.cells), dtype=np.float32)
    with torch.inference_mode():
        whole = Segment.from_grid(grid, model.anchor.device)
        bias = _unfilled(pattern.bias(whole, whole, 0, 0)[0])
        return bias.expand(model.config.heads, -1, -1).cpu().numpy()


def _unfilled(bias: Tensor) -> Tensor:
    """A bias whose masked entries are -inf, also those that a pattern fills with the smallest bfloat16."""
    return bias.masked_fill(bias <= -BFLOAT16_MAX, -torch.inf)
