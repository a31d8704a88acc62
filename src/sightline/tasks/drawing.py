"""What is drawn of dense answers: colours of classes, overlays, and sheets of pictures with a legend."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.data.contact_sheet import fitted_text
from sightline.data.targets import IGNORE

ColorKey = Sequence[tuple[str, tuple[int, int, int]]]
"""Words, and their colour."""

_MARGIN, _LINE = 8, 16


def class_colours(count: int) -> np.ndarray:
    """Colours that are told apart, uint8 [count, 3]; the first is black, for what stands behind everything.

    The bits of a class's number are spread over the three channels, the lowest first, as Pascal VOC's are.
    """
    numbers = np.arange(count)
    colours = np.zeros((count, 3), np.uint8)
    for bit in range(8):
        for channel in range(3):
            colours[:, channel] |= (((numbers >> (3 * bit + channel)) & 1) << (7 - bit)).astype(np.uint8)
    return colours


def class_legend(names: Sequence[str], first: int = 0) -> ColorKey:
    """The names of classes with their colours; the first has that of number `first`."""
    colours = class_colours(first + len(names))[first:].tolist()
    return [(name, (red, green, blue)) for name, (red, green, blue) in zip(names, colours, strict=True)]


def overlay(image: np.ndarray, labels: np.ndarray, strength: float = 0.55) -> Image.Image:
    """An image under the colours of its pixels' classes; class 0 and what has no class stay as they are.

    Args:
        image: uint8 [height, width, 3]; labels: uint8 [height, width].
    """
    shown = (labels != 0) & (labels != IGNORE)
    mixed = image * (1 - strength) + class_colours(256)[labels] * strength
    return Image.fromarray(np.where(shown[..., None], np.rint(mixed), image).astype(np.uint8))


def sheet(pictures: Sequence[tuple[str, Image.Image]], legend: ColorKey, columns: int = 6) -> Image.Image:
    """Pictures side by side, each over its name, and what the colours mean below.

    Args:
        pictures: names and pictures, of any sizes.
    """
    font = ImageFont.load_default(size=11)
    width = max(picture.width for _, picture in pictures) + _MARGIN
    height = max(picture.height for _, picture in pictures) + _LINE + _MARGIN
    columns = min(columns, len(pictures))
    rows = -(-len(pictures) // columns)
    boxes = [_LINE + int(font.getlength(name)) + 2 * _MARGIN for name, _ in legend]
    across = max([columns * width, *boxes]) + _MARGIN
    places, left, line = [], _MARGIN, 0
    for box in boxes:
        if left + box > across and left > _MARGIN:
            left, line = _MARGIN, line + 1
        places.append((left, rows * height + _MARGIN + line * _LINE))
        left += box
    made = Image.new("RGB", (across, rows * height + 2 * _MARGIN + (line + 1) * _LINE * bool(boxes)), "white")
    pen = ImageDraw.Draw(made)
    for number, (name, picture) in enumerate(pictures):
        row, column = divmod(number, columns)
        x, y = _MARGIN + column * width, _MARGIN + row * height
        made.paste(picture, (x, y))
        pen.text((x, y + picture.height), fitted_text(name, font, width - _MARGIN), fill="black", font=font)
    for (name, colour), (x, y) in zip(legend, places, strict=True):
        pen.rectangle((x, y + 2, x + _LINE - 6, y + _LINE - 4), fill=colour, outline="grey")
        pen.text((x + _LINE, y), name, fill="black", font=font)
    return made


def as_png(picture: Image.Image) -> bytes:
    """The content of a PNG file."""
    content = io.BytesIO()
    picture.save(content, "PNG")
    return content.getvalue()
