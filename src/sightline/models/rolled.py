"""Shifted windows of an image that was rolled (Swin section 3.2, its cyclic shift): whole ones, of which the last hold
pieces that do not meet. In training on a CPU one call for all windows is faster than one for each shape of piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sightline.attention import Pattern, Table, asked_backend, is_recorded
from sightline.attention.forms import explicit_attention
from sightline.grid import Grid
from sightline.kept import transforming
from sightline.layout import TokenLayout
from sightline.models.windows import Cut

# Of more windows few are at an edge, and a bias for each of them is more than calls cost: beside timm's, a layer of
# Swin-T, forward and backward, takes 1.01 for 1.09 in pieces at 4 windows, as long at 16, .97 for .86 at 64 (4 images).
_MOST_WINDOWS = 16


class Rolled:
    """The whole windows of images of one size.

    Attributes:
        layout: each window is a row.
        mask: 0 between cells that meet and -inf between others: float32 [windows of an image, 1, cells, cells].
    """

    def __init__(self, images: TokenLayout, cut: Cut) -> None:
        self._grid, self._cut = images.segments[0].grid, cut
        self._across = Grid(*(side // width for side, width in zip(self._grid, cut.size, strict=True)))
        self.layout = TokenLayout.uniform(
            cut.size, images.rows * self._across.cells, num_prefix_tokens=0, device=images.device
        )
        piece = self._laid(_piece(self._grid, cut, images.device).unsqueeze(-1)).squeeze(-1)
        meet = piece.unsqueeze(1) == piece.unsqueeze(2)
        self.mask = torch.zeros(meet.shape, device=images.device).masked_fill_(~meet, -torch.inf).unsqueeze(1)

    def lay(self, tokens: Tensor) -> Tensor:
        """Tokens of the images [rows, cells, dim] -> [rows * windows of an image, cells of a window, dim]."""
        down, across = self._cut.shift
        return self._laid(tokens.unflatten(1, tuple(self._grid)).roll((-down, -across), (1, 2)))

    def _laid(self, rolled: Tensor) -> Tensor:
        (rows, cols), (high, wide) = self._across, self._cut.size
        return rolled.unflatten(2, (cols, wide)).unflatten(1, (rows, high)).transpose(2, 3).flatten(3, 4).flatten(0, 2)

    def back(self, tokens: Tensor) -> Tensor:
        """The inverse of `lay`."""
        laid = tokens.unflatten(1, tuple(self._cut.size)).unflatten(0, (-1, *self._across))
        return laid.transpose(2, 3).flatten(3, 4).flatten(1, 2).roll(self._cut.shift, (1, 2)).flatten(1, 2)

    def attended(self, q: Tensor, k: Tensor, v: Tensor, pattern: Pattern | None) -> Tensor:
        """Attention of each window's cells over those of their own piece; all [rows of `layout`, heads, cells,
        head_dim]."""
        window = self.layout.segments[0]
        bias = self.mask if pattern is None else pattern.bias(window, window, 0, 0) + self.mask
        # The windows of an image apart from the images: the bias of a window is that of all images.
        q, k, v = (one.unflatten(0, (-1, len(self.mask))) for one in (q, k, v))
        return explicit_attention(q, k, v, bias).flatten(0, 1)


def _piece(grid: Grid, cut: Cut, device: torch.device) -> Tensor:
    """Which piece of its window a cell of a rolled image is in: int64 [1, rows, cols]."""
    # What was rolled over the edge stands at the end, in the last window.
    y, x = (
        (torch.arange(side, device=device) >= side - shift).long() for side, shift in zip(grid, cut.shift, strict=True)
    )
    return (2 * y.unsqueeze(1) + x).unsqueeze(0)


def rolled_of(
    images: TokenLayout, cuts: Sequence[Cut], pattern_of: Callable[[TokenLayout], Pattern | None], tokens: Tensor
) -> Rolled | None:
    """The whole windows of images, where attention in them is faster than in their pieces; else None.

    That is in training in float32 on a CPU with a table that learns, for images of one size that few windows fill. A
    back end that was asked for, and whoever records, gets pieces.

    Args:
        images, cuts: as `windows_of` has them.
        pattern_of: that of a layout's images, or None.
        tokens: of the images, for their device and dtype.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or transforming():
        return None
    if tokens.device.type != "cpu" or tokens.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return None
    if len(cuts) != 1 or images.padding or not any(cuts[0].shift):
        return None
    cut, grid = cuts[0], images.segments[0].grid
    if any(side % width for side, width in zip(grid, cut.size, strict=True)):
        return None
    if grid.cells > _MOST_WINDOWS * cut.size.cells or asked_backend() != "auto" or is_recorded():
        return None
    # What hangs on displacements alone is in a piece as in its window.
    pattern = pattern_of(images)
    if pattern is None:
        return None
    tables = [term for term in pattern.terms if isinstance(term, Table)]
    plain = not pattern.has_centre and not pattern.of_images and not pattern.made_of("queries", "keys", "attention")
    if not plain or not any(table.relative(cut.size, tokens.device).requires_grad for table in tables):
        return None
    return images.once(("rolled", cut), lambda: Rolled(images, cut))
