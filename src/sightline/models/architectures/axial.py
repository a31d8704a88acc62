"""Axial ViT: attention along rows, then along columns (ViT appendix D.6)."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.encodings.hooks import Hooks
from sightline.errors import InputError
from sightline.io.config import build_config, config_dataclass
from sightline.models.block import Block
from sightline.models.config import ViTConfig
from sightline.models.stage import AttentionCost, StageSpec
from sightline.models.timm_surface import TimmSurface
from sightline.models.trunk import Trunk
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


def lines(layout: TokenLayout, axis: int) -> TokenLayout:
    """The rows (axis 0) or the columns (axis 1) of each image as images of their own.

    A row is an image of one row: its grid is (1, cols), its coordinates are (0, x), and what knows displacements alone
    (rotations, tables, fields of view) is in it what it is between two tokens of one row of the image.

    Raises:
        InputError: there are prefix tokens, dropped patches, tiles or windows.
    """

    def make() -> TokenLayout:
        return layout.windows((1, None) if axis == _ROWS else (None, 1))

    return layout.cached(("lines", axis), make)


class AxialBlock(Block):
    """A block whose attention stays in each row (axis 0) or in each column (axis 1); all else is as in any block."""

    def __init__(self, config: ViTConfig, layer: int, axis: int) -> None:
        super().__init__(config, layer)
        self.axis = axis

    def attended(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> Tensor:
        if any(not segment.complete for segment in layout.segments):
            raise InputError("architecture axial: attends along whole rows and columns (expected no dropped patches)")
        if torch.compiler.is_compiling() and len(layout.segments) == 1:
            return self._of_one_grid(x, layer, layout, encoding)
        along = lines(layout, self.axis)
        return along.to_row_major(self.attn(along.to_layout_order(x), layer, along, encoding))

    def _of_one_grid(self, x: Tensor, layer: int, layout: TokenLayout, encoding: Hooks) -> Tensor:
        """The same for one program of all sizes: as many rows of tokens as there are lines, however many they are."""
        rows, cols = layout.segments[0].grid
        of_rows = self.axis == _ROWS
        x = x.unflatten(1, (rows, cols))
        x = x if of_rows else x.transpose(1, 2)
        shape, grid = x.shape[:2], Grid(1, cols) if of_rows else Grid(rows, 1)
        # As in `lines`, what is displaced in a line is displaced in its image.
        line = Segment.from_grid(grid, layout.device, window=Window(grid, (0, 0), 0, layout.segments[0].grid))
        along = TokenLayout((line,), rows=shape[0] * shape[1], num_prefix_tokens=0)
        x = self.attn(x.flatten(0, 1), layer, along, encoding).unflatten(0, shape)
        return (x if of_rows else x.transpose(1, 2)).flatten(1, 2)

    def extra_repr(self) -> str:
        return f"along={'columns' if self.axis else 'rows'!r}"


class Lines(Trunk):
    """Blocks that cut lines of images that are row-major."""

    takes_tiles = False


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
        return Lines(AxialBlock(config, layer, (start + layer) % 2) for layer in range(config.depth))

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
