"""Examples of a source side by side, to be looked at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.data.source import Source

_MARGIN = 6
_CAPTION = 14


def contact_sheet(
    source: Source,
    split: str,
    image_sizes: Sequence[tuple[int, int]] = ((32, 32), (64, 64), (148, 148), (96, 192), (192, 96)),
    *,
    columns: int = 8,
    rows: int = 1,
    seed: int = 0,
    indices: Sequence[int] | None = None,
) -> np.ndarray:
    """The first examples of a split, or those of `indices`, at several (height, width) in pixels, in `rows` x `columns`
    each, with its class name below: uint8 [height, width, 3], every image pixel for pixel."""
    count, length = columns * rows, source.length(split)
    chosen = (range(count if length is None else length) if indices is None else indices)[:count]
    font = ImageFont.load_default(size=11)
    cells = [(height + _CAPTION + _MARGIN, max(width, 72) + _MARGIN) for height, width in image_sizes]
    size = columns * max(wide for _, wide in cells) + _MARGIN, sum(rows * high + _CAPTION for high, _ in cells)
    sheet = Image.new("RGB", size, "white")
    pen, above = ImageDraw.Draw(sheet), 0
    for (height, width), (cell_height, cell_width) in zip(image_sizes, cells, strict=True):
        pen.text((_MARGIN, above), f"{source.name} {source.task} {split}, {height}x{width}", fill="black", font=font)
        above += _CAPTION
        for place, index in enumerate(chosen):
            example = source.example(split, index, (height, width), seed=seed)
            row, column = divmod(place, columns)
            left, top = _MARGIN + column * cell_width, above + _MARGIN // 2 + row * cell_height
            sheet.paste(Image.fromarray(example.middle_frame), (left, top))
            caption = fitted_text(example.target.describe(source.classes), font, cell_width - _MARGIN)
            pen.text((left, top + height), caption, fill="black", font=font)
        above += rows * cell_height
    return np.array(sheet)


def fitted_text(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: int) -> str:
    """As much of a text as there is room for in `width` pixels, with dots behind it where that is not all."""
    text = shown = "".join(char if char.isprintable() else "?" for char in text)
    while text and font.getlength(shown) > width:
        text = text[:-1]
        shown = f"{text}..."
    return shown
