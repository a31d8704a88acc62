"""Axial ViT: attention along rows, then along columns (ViT appendix D.6)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.encodings.base import Hooks
from sightline.errors import InputError
from sightline.io.config import build_config, config_dataclass
from sightline.models.block import Block, LayerInputs
from sightline.models.config import ViTConfig
from sightline.models.stage import AttentionCost, StageSpec
from sightline.models.timm_surface import TimmSurface
from sightline.models.trunk import Trunk
from sightline.models.windows import WindowedLayout, WindowSpec, windows_of
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment, Window

_ROWS, _COLUMNS = 0, 1


@config_dataclass
class AxialConfig:
    """Options of the architecture `axial`.

    Attributes:
        first: what the first layer attends along: `rows` as in the paper, `columns` as in scenic's xvit, whose 'row'
            block runs along axis 1, the height.
    """

    first: Literal["rows", "columns"] = "rows"


class Lines:
    """The rows or the columns of images of one size, as many rows of tokens as there are lines: sizes may be symbols.

    Attributes:
        layout: of the lines, each an image of one row; what is displaced in a line is displaced in its image.
    """

    def __init__(self, images: TokenLayout, axis: int) -> None:
        self._grid, self._rows_first = images.segments[0].grid, axis == _ROWS
        rows, cols = self._grid
        count, grid = (rows, Grid(1, cols)) if axis == _ROWS else (cols, Grid(rows, 1))
        line = Segment.from_grid(grid, images.device, window=Window(grid, (0, 0), 0, self._grid))
        self.layout = TokenLayout((line,), rows=images.rows * count, num_prefix_tokens=0)

    def partition(self, tokens: Tensor) -> Tensor:
        """[rows, cells, dim] -> [rows * lines, length, dim]."""
        x = tokens.unflatten(1, tuple(self._grid))
        return (x if self._rows_first else x.transpose(1, 2)).flatten(0, 1)

    def merge(self, tokens: Tensor) -> Tensor:
        """The inverse."""
        count = self._grid.rows if self._rows_first else self._grid.cols
        x = tokens.unflatten(0, (-1, count))
        return (x if self._rows_first else x.transpose(1, 2)).flatten(1, 2)


def lines_of(layout: TokenLayout, axis: int) -> Lines | WindowedLayout:
    """The rows (axis 0) or the columns (axis 1) of each image as images of their own, made once for a layout.

    Raises:
        InputError: patches were dropped.
    """
    if any(not segment.complete for segment in layout.segments):
        raise InputError("architecture axial: attends along whole rows and columns (expected no dropped patches)")
    if torch.compiler.is_compiling() and len(layout.segments) == 1:
        return Lines(layout, axis)
    grids = [one.grid for one in layout.segments]
    sizes = [Grid(1, grid.cols) if axis == _ROWS else Grid(grid.rows, 1) for grid in grids]
    return windows_of(layout, [WindowSpec(size, frame=grid) for size, grid in zip(sizes, grids, strict=True)])


class AxialTrunk(Trunk):
    """Blocks of which each attends along rows or along columns of images that are row-major.

    Attributes:
        first: the axis of the first layer.
    """

    takes_tiles = False

    def __init__(self, blocks: Iterable[Block], first: int) -> None:
        super().__init__(blocks)
        self.first = first

    def layer_inputs(self, layer: int, tokens: Tensor, layout: TokenLayout, encoding: Hooks) -> LayerInputs:
        lines = lines_of(layout, (self.first + layer) % 2)
        return self.inputs_of(layer, tokens, layout, lines.layout, encoding, windows=lines)

    def extra_repr(self) -> str:
        return f"first={'columns' if self.first else 'rows'!r}"


class AxialTransformer(TimmSurface):
    """Blocks that attend along rows and along columns in turn: "a row-self-attention plus an MLP followed by a
    column-self-attention plus an MLP" in place of each block of a ViT (appendix D.6).

    `depth` counts layers, as everywhere: an Axial-ViT-B, made of the 12 blocks of a ViT-B, has 24. A token of its own
    stands in no row and no column: there are no prefix tokens, and the head takes the mean of the patches, a probe's
    answer, or token (0, 0) in place of a class token (`pool="first"`, as scenic's xvit may).
    """

    name = "axial"
    supports_token_dropping: ClassVar[bool] = False

    def make_trunk(self, config: ViTConfig) -> Trunk:
        options = build_config(AxialConfig, config.architecture_options, "architecture_options")
        if config.takes_clips:
            said = f"rows and columns of images alone (expected none of embedder {config.embedder!r})"
            raise InputError(f"architecture axial: has {said}")
        if config.num_prefix_tokens:
            what = "a class token" if config.has_class_token else "a register"
            raise InputError(
                f"architecture axial: {what} stands in no row and no column (expected num_registers 0 and pool 'mean', "
                "'attention', 'query', or 'first' for token (0, 0))"
            )
        start = _COLUMNS if options.first == "columns" else _ROWS
        return AxialTrunk((Block(config, layer) for layer in range(config.depth)), start)

    @classmethod
    def stages(cls, config: ViTConfig) -> tuple[StageSpec, ...]:
        return (_LinesStage(config, config.train_grid),)


class _LinesStage(StageSpec):
    """Each token meets those of its row, or of its column."""

    def work(self, patches: int, grid: Grid | None = None) -> AttentionCost:
        side, depth = math.sqrt(patches), self.config.depth
        rows, cols = (side, side) if grid is None else grid
        start = build_config(AxialConfig, self.config.architecture_options, "architecture_options").first == "columns"
        along_rows = (depth + (not start)) // 2
        return AttentionCost(depth * patches, round(patches * (along_rows * cols + (depth - along_rows) * rows)))
