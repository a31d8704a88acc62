"""Tokens of images laid into windows, and put back: views and copies of rectangles, never a mask over an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.models.stage import AttentionCost
from sightline.tokens.cache import ByteLRUCache, is_cacheable, make_detached
from sightline.tokens.grid import Grid
from sightline.tokens.layout import TokenLayout
from sightline.tokens.segment import Segment, Window


class WindowSpec(NamedTuple):
    """How an image is cut.

    Attributes:
        size: of a whole window.
        shift: where the second window begins.
        padded: zeros are put at the bottom and right until whole windows fill the image, after it was rolled by the
            shift (timm); else what is left over at an edge, or cut off before the first border, is a smaller window.
        frame: the grid by which displacements are read, where it is not that of a whole window.
    """

    size: Grid
    shift: tuple[int, int] = (0, 0)
    padded: bool = False
    frame: Grid | None = None


class _Band(NamedTuple):
    """So many windows side by side, each so wide, from here on."""

    first: int
    width: int
    windows: int

    @property
    def cells(self) -> int:
        return self.width * self.windows

    @property
    def firsts(self) -> range:
        return range(self.first, self.first + self.cells, self.width)


class _Image(NamedTuple):
    """An image of a row, and its bands along both axes of what is cut: itself, or itself rolled and padded."""

    grid: Grid
    cut: WindowSpec
    filled: Grid
    bands: tuple[tuple[_Band, ...], tuple[_Band, ...]]

    @classmethod
    def of(cls, grid: Grid, cut: WindowSpec) -> _Image:
        filled = [-(-side // width) * width for side, width in zip(grid, cut.size, strict=True)]
        if not cut.padded or tuple(filled) == grid:
            # Rolled, an image that whole windows fill is cut at the same borders, but for those of the wrap.
            cut, filled = cut._replace(padded=False), list(grid)
            bands = [_bands(*one) for one in zip(grid, cut.size, cut.shift, strict=True)]
        else:
            bands = [_rolled_bands(*one) for one in zip(filled, cut.size, cut.shift, strict=True)]
        return cls(grid, cut, Grid(*filled), (bands[0], bands[1]))

    def split(self, tokens: Tensor) -> list[Tensor]:
        """[rows, cells, dim] -> for each pair of bands the tokens of its windows: [rows, cells of those, dim]."""
        x = tokens.unflatten(1, tuple(self.grid))
        if self.cut.padded:
            down, across = self.cut.shift
            if down or across:
                x = x.roll((-down, -across), (1, 2))
            x = F.pad(x, (0, 0, 0, self.filled.cols - self.grid.cols, 0, self.filled.rows - self.grid.rows))
        found = []
        for high, strip in zip(self.bands[0], _parts(x, self.bands[0], 1), strict=True):
            for wide, part in zip(self.bands[1], _parts(strip, self.bands[1], 2), strict=True):
                inner = part.unflatten(2, (wide.windows, wide.width)).unflatten(1, (high.windows, high.width))
                found.append(inner.transpose(2, 3).flatten(1, 4))
        return found

    def join(self, parts: Iterator[Tensor]) -> Tensor:
        """The inverse of `split`; what was padded is left out. The next parts are this image's."""
        strips = []
        for high in self.bands[0]:
            row = []
            for wide in self.bands[1]:
                inner = next(parts).unflatten(1, (high.windows, wide.windows, high.width, wide.width))
                row.append(inner.transpose(2, 3).flatten(3, 4).flatten(1, 2))
            strips.append(_joined(row, 2))
        x = _joined(strips, 1)
        if self.cut.padded:
            x = x[:, : self.grid.rows, : self.grid.cols]
            if any(self.cut.shift):
                x = x.roll(self.cut.shift, (1, 2))
        return x.flatten(1, 2)

    def windows(self, start: int, device: torch.device) -> list[list[Segment]]:
        """For each pair of bands its windows, row-major; the image's first slot is `start`."""
        frame = self.cut.frame or self.cut.size
        return [
            [
                Segment.from_grid(
                    Grid(high.width, wide.width), device, window=Window(self.filled, (down, across), start, frame)
                )
                for down in high.firsts
                for across in wide.firsts
            ]
            for high in self.bands[0]
            for wide in self.bands[1]
        ]


def _bands(side: int, width: int, shift: int) -> tuple[_Band, ...]:
    """A side cut at `shift` and from there on."""
    count, left = divmod(side - shift, width)
    bands = (_Band(0, shift, 1), _Band(shift, width, count), _Band(side - left, left, 1))
    return tuple(one for one in bands if one.cells)


def _rolled_bands(side: int, width: int, shift: int) -> tuple[_Band, ...]:
    """A side that was rolled and filled: whole windows, of which the last is two where there is a shift."""
    last = side - width
    bands = (_Band(0, width, last // width), _Band(last, width - shift, 1), _Band(side - shift, shift, 1))
    return tuple(one for one in bands if one.cells) if shift else (_Band(0, width, side // width),)


def _parts(x: Tensor, bands: Sequence[_Band], axis: int) -> Sequence[Tensor]:
    return [x] if len(bands) == 1 else x.split([band.cells for band in bands], dim=axis)


def _joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=axis)


def window_work(grid: Grid, cut: WindowSpec) -> AttentionCost:
    """What attention computes of an image in a layer that cuts it so."""
    image = _Image.of(grid, cut)
    high, wide = (sum(band.windows * band.width**2 for band in bands) for bands in image.bands)
    return AttentionCost(image.filled.cells, high * wide)


class WindowedLayout:
    """The windows of the images of a layout: where their tokens come from and go to.

    Attributes:
        layout: a layout whose images are the windows; those that stand alike follow each other.
    """

    def __init__(self, images: TokenLayout, cuts: Sequence[WindowSpec]) -> None:
        """`cuts` has one for each image of a row."""
        self._padding, self._lengths = images.padding, images.seqlens
        self._images = [_Image.of(one.grid, cut) for one, cut in zip(images.segments, cuts, strict=True)]
        starts = [sum(self._lengths[:number]) for number in range(len(self._lengths))]
        parts = [
            part
            for image, start in zip(self._images, starts, strict=True)
            for part in image.windows(start, images.device)
        ]
        by_kind: dict[object, list[int]] = {}
        for number, part in enumerate(parts):
            by_kind.setdefault(part[0].cache_key, []).append(number)
        # The parts of all images in the order of `layout`, and the way back.
        self._order = [number for alike in by_kind.values() for number in alike]
        self._back = sorted(range(len(parts)), key=self._order.__getitem__)
        self._sizes = [len(parts[number]) * parts[number][0].patches for number in self._order]
        self.layout = TokenLayout(
            [one for number in self._order for one in parts[number]], rows=images.rows, num_prefix_tokens=0
        )

    def partition(self, tokens: Tensor) -> Tensor:
        """Tokens of the images [rows, slots, dim] -> of the windows [rows, slots of `layout`, dim]."""
        if self._padding:
            tokens = tokens[:, : -self._padding]
        images = [tokens] if len(self._images) == 1 else tokens.split(self._lengths, dim=1)
        parts = [part for image, own in zip(self._images, images, strict=True) for part in image.split(own)]
        return _joined([parts[number] for number in self._order], 1)

    def merge(self, tokens: Tensor) -> Tensor:
        """The inverse: zeros in the images' padding slots."""
        laid = [tokens] if len(self._sizes) == 1 else tokens.split(self._sizes, dim=1)
        parts = iter([laid[number] for number in self._back])
        found = _joined([image.join(parts) for image in self._images], 1)
        return F.pad(found, (0, 0, 0, self._padding)) if self._padding else found


# Of batches of one size alone, which come again. What is made once a layout is counted by its slots, about.
_KEPT = ByteLRUCache("windows", 32 << 20)
_SEGMENT_BYTES, _SLOT_BYTES = 1024, 256


def windows_of(images: TokenLayout, cuts: Sequence[WindowSpec]) -> WindowedLayout:
    """The windows of a layout's images, cut once for all layers that cut them alike; those of a batch of one size are
    kept for the next batch."""
    cuts = tuple(cuts)

    def make() -> WindowedLayout:
        return WindowedLayout(images, cuts)

    if len(images.segments) != 1 or images.padding or not is_cacheable(images.device):
        return images.cached(("windows", cuts), make)
    key = images.segments[0].grid, images.rows, images.device, cuts
    found = _KEPT.get(key)
    if found is None:
        found = make_detached(make)
        layout = found.layout
        _KEPT.put(key, found, _SEGMENT_BYTES * len(layout.segments) + _SLOT_BYTES * layout.slots)
    return found
