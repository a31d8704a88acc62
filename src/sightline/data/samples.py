"""The numbers that an image file stores, and the one way from them to 8 bits a sample.

Pillow gives colours of 16 bits by their upper bytes, and passes over what a header says of the range of its numbers.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.ImageFile import ImageFile
from PIL.PngImagePlugin import PngImageFile, PngStream
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile

from sightline.errors import UnreadableDataError

# What Pillow multiplies grey values of two and four bits by, which it shows in eight.
WIDENED = {"L;2": 0x55, "L;4": 0x11}
# Tags of TIFF; of the range there are two each, in whole numbers and in numbers of the format of the samples.
_BITS, _COMPRESSION, _PHOTOMETRIC, _EXTRA, _FORMAT = 258, 259, 262, 338, 339
_SMALLEST, _LARGEST = (280, 340), (281, 341)
_SIGNED = 2
# The largest red, green and blue in a BMP of 16 bits a pixel, which Pillow shows in eight, rounded down.
_LEVELS = {"BGR;15": (31, 31, 31), "BGR;16": (31, 63, 31)}
# Pillow's names of 16 bits a sample, and of the same with the bytes exchanged.
_EXCHANGED = {";16B": ";16L", ";16L": ";16B", ";16N": ";16B" if sys.byteorder == "little" else ";16L"}
# Chunks of a PNG that are pixels, though readers may pass them over.
_NEEDED = (b"tRNS", b"acTL", b"fcTL", b"fdAT")


class _PngStream(PngStream):
    """Chunks of a PNG; metadata that is damaged or too large is passed over."""

    def call(self, cid: bytes, pos: int, length: int) -> bytes:
        try:
            return super().call(cid, pos, length)
        except (ValueError, SyntaxError, IndexError):
            if cid[:1].isupper() or cid in _NEEDED or self.fp is None:
                raise
            self.fp.seek(pos)
            return self.fp.read(length)

    def crc(self, cid: bytes, data: bytes) -> None:
        if cid[:1].isupper() or cid in _NEEDED:
            super().crc(cid, data)
        else:
            self.crc_skip(cid, data)


class PngFile(PngImageFile):
    """A PNG that metadata does not make unreadable, with all bits of its numbers; `paired` where a pixel of four bytes
    is two numbers of 16 bits, grey and alpha."""

    paired = False

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, PngStream):
            value.__class__ = _PngStream
        super().__setattr__(name, value)

    def _open(self) -> None:
        super()._open()
        raw = raw_mode(self)
        clear = self.info.get("transparency")
        if raw == "LA;16B":
            self.paired = True
            self.tile = [self.tile[0]._replace(args="RGBA")]
        elif self.mode == "L" and clear is not None:
            # In the bits of the file, of which the lowest count.
            widened = WIDENED.get(raw, 1)
            self.info["transparency"] = clear % (0xFF // widened + 1) * widened
        elif raw == "RGB" and clear is not None:
            self.info["transparency"] = tuple(value & 0xFF for value in clear)


class TiffFile(TiffImageFile):
    """A TIFF that says of which kind it is where that is not read; `white_is_zero` where its numbers of more than 8
    bits are to be inverted, as Pillow does those of up to 8."""

    white_is_zero = False

    def _setup(self) -> None:
        tags = self.tag_v2
        bits, photometric = tags.get(_BITS, (1,)), tags.get(_PHOTOMETRIC, 0)
        if photometric == 0 and max(bits) > 8:
            # Pillow knows fewer kinds of these, and inverts none.
            self.white_is_zero, tags[_PHOTOMETRIC] = True, 1
        if bits == (12,):
            # They are packed alike in either order of bytes, of which Pillow knows one.
            tags._prefix = b"II"
        try:
            super()._setup()
        except (SyntaxError, KeyError):
            kind = f"{bits} bits, photometric {photometric}, compression {tags.get(_COMPRESSION, 1)}"
            raise ValueError(f"a TIFF of a kind that is not read ({kind}, format {tags.get(_FORMAT, (1,))})") from None
        if max(bits) == 16 and self.mode in ("RGB", "RGBA", "CMYK"):
            order = ";16L" if tags.prefix == b"II" else ";16B"
            # Of one plane after the other Pillow forgets how many bits they have.
            _set_raw_modes(self, lambda raw: raw + order if len(raw) == 1 else raw.replace("RGBa", "RGBA"))


class _HalvesUp(int):
    """The largest number of plain colours of 16 bits, which Pillow divides by and rounds, halves to even numbers."""

    def __rtruediv__(self, value: int) -> float:
        return value / int(self) * (1 + 2**-40)


class PpmFile(PpmImageFile):
    """A PPM or PGM whose numbers are given as they are written; `maxval` is white, None where Pillow scaled them."""

    maxval: int | None = None

    def _open(self) -> None:
        super()._open()
        codec, extents, offset, args = self.tile[0]
        if not codec.startswith("ppm") or not isinstance(args, tuple):
            return
        wide = args[1] > 0xFF
        if codec == "ppm":
            self.maxval = args[1]
            codec, args = "raw", "I;16B" if self.mode == "I" else f"{self.mode};16B" if wide else self.mode
        elif self.mode == "I" or not wide:
            self.maxval = args[1]
            args = (args[0], 0xFFFF if wide else 0xFF)
        else:
            args = (args[0], _HalvesUp(args[1]))
        self.tile = [type(self.tile[0])(codec, extents, offset, args)]


_READERS = {"PNG": PngFile, "TIFF": TiffFile, "PPM": PpmFile}
READER_OF = {kind: f"SIGHTLINE {kind}" for kind in _READERS}
"""Pillow's name of a format -> that of our reader of it, which Pillow finds where it is asked for it alone."""
Image.OPEN.update((name, (_READERS[kind], Image.OPEN[kind][1])) for kind, name in READER_OF.items())


def _raw(tile: Any) -> str:
    return tile.args if isinstance(tile.args, str) else str(tile.args[0]) if tile.args else ""


def raw_mode(image: Image.Image) -> str:
    """How Pillow unpacks what is stored; nothing is known of an image that is decoded."""
    tiles = getattr(image, "tile", ())
    return _raw(tiles[0]) if tiles else ""


def _reopen(image: ImageFile) -> ImageFile:
    """The same frame of an image that is not decoded yet, by our reader of its format."""
    file = image.fp
    assert file is not None
    position = file.tell()
    file.seek(0)
    content = io.BytesIO(file.read())
    file.seek(position)
    reopened = _READERS[str(image.format)](content)
    reopened.seek(image.tell())
    return reopened


def _set_raw_modes(image: ImageFile, change: Callable[[str], str]) -> None:
    """Change how Pillow unpacks each tile."""
    changed: list[Any] = []
    for tile in image.tile:
        raw, args = change(_raw(tile)), tile.args
        changed.append(tile._replace(args=raw if isinstance(args, str) or args is None else (raw, *args[1:])))
    image.tile = changed


class Samples:
    """The numbers of a decoded `image` as they are stored; `plain` where Pillow's pixels are what the file means."""

    def __init__(self, image: Image.Image, name: object = "image") -> None:
        """Decode an image; one that was decoded before is taken as Pillow has it. Raises UnreadableDataError, a line
        that begins with `name`, where it is not known which numbers are black and white."""
        if getattr(image, "tile", ()) and image.format in _READERS and not isinstance(image, tuple(_READERS.values())):
            image = _reopen(image)  # pyright: ignore[reportArgumentType]  # what has tiles is a file
        raw = raw_mode(image)
        self.image, self._low, self._paired = image, None, getattr(image, "paired", False)
        if isinstance(image, ImageFile) and image.mode in ("RGB", "RGBA", "CMYK") and raw[-4:] in _EXCHANGED:
            self._low = _reopen(image)
            _set_raw_modes(self._low, lambda raw: raw[:-4] + _EXCHANGED[raw[-4:]])
            self._low.load()
        image.load()
        self._tags = image.tag_v2 if isinstance(image, TiffImageFile) else {}
        self._levels = _LEVELS.get(raw) if isinstance(image, BmpImageFile) else None
        wide = self._low is not None or self._paired or image.mode.startswith("I;16")
        self._clear = image.info.get("transparency") if wide else None
        self._inverted = (self._tags.get(_PHOTOMETRIC) == 0 and wide) or getattr(image, "white_is_zero", False)
        try:
            self._black, self._white = self._range(0xFFFF if wide else 0xFF)
        except ValueError as error:
            raise UnreadableDataError(f"{name}: {error}") from None
        as_shown = (self._black, self._white) == (0, 0xFF) and self._levels is None
        self.plain = image.mode in ("1", "P", "PA") or as_shown

    def _range(self, whole: int) -> tuple[float, float]:
        """The numbers that are black and white, of at most `whole`; raises ValueError where they are not known."""
        image, tags = self.image, self._tags
        bits, signed = max(tags.get(_BITS, (8,))), tags.get(_FORMAT, (1,))[0] == _SIGNED
        maxval = getattr(image, "maxval", None)
        unknown = image.mode == "F" or (image.mode == "I" and maxval is None and bits != 16)
        whole = (maxval or ((1 << bits) - 1 if bits > 8 else whole)) >> signed
        black, white = _stated(tags, _SMALLEST), _stated(tags, _LARGEST)
        if unknown or signed:
            low, high = np.asarray(image).min(), np.asarray(image).max()
            if image.mode == "F" and (white is None or not np.isfinite(low + high)):
                raise ValueError("floating-point pixels have no known range (expected: 8 or 16 bits)")
            # What programs write that know no 16 bits.
            whole = 0xFFFF if unknown and white is None else max(whole, white or 0)
            if low < 0 or high > whole:
                kind = f"{'signed ' if signed else ''}{bits if tags else 32}-bit"
                raise ValueError(f"{kind} pixels from {low} to {high} (expected: 0 to {whole})")
        if white is None or not 0 < white <= whole:
            black, white = None, whole
        elif bits < 8:
            # Pillow has widened it.
            black, white = (one and one * 0xFF // ((1 << bits) - 1) for one in (black, white))
        if black is None or not 0 < black < white:
            black = 0
        if bits <= 8 and tags.get(_PHOTOMETRIC) == 0:
            # Pillow has inverted it.
            return 0xFF - white, 0xFF - black
        return black, white

    def numbers(self, top: int, bottom: int) -> np.ndarray:
        """Some rows, [rows, width] or [rows, width, channels], as they are written but for 2 and 4 bits (`WIDENED`)."""
        box = (0, top, self.image.width, bottom)
        values = np.asarray(self.image.crop(box))
        if self._paired:
            return values.view(">u2")
        return values if self._low is None else values.astype(np.uint16) << 8 | np.asarray(self._low.crop(box))

    def picture(self, top: int, bottom: int) -> Image.Image:
        """Some rows in 8 bits a sample, of a mode that Pillow brings to RGB; `(v * 255 + max // 2) // max`."""
        if self.plain:
            return self.image.crop((0, top, self.image.width, bottom))
        numbers = self.numbers(top, bottom)
        numbers = numbers[..., None] if numbers.ndim == 2 else numbers
        mode = {1: "L", 2: "LA", 3: "RGB"}.get(numbers.shape[2], self.image.mode)
        black, white = np.full((2, numbers.shape[2]), [[self._black], [self._white]])
        if self._levels is not None:
            white = np.array(self._levels)
            numbers = -(-numbers.astype(np.int64) * white // 0xFF)
        elif mode in ("LA", "RGBA"):
            # Of alpha no range is stated.
            black[-1], white[-1] = 0, 0xFFFF if numbers.itemsize > 1 else 0xFF
        range_ = white - black
        within = numbers.astype(range_.dtype).clip(black, white)
        above = white - within if self._inverted else within - black
        eight = ((2 * 0xFF * above + range_) // (2 * range_)).astype(np.uint8)
        if self._clear is not None:
            alpha = (numbers != np.array(self._clear)).any(axis=2, keepdims=True) * np.uint8(0xFF)
            eight, mode = np.concatenate([eight, alpha], axis=2), f"{mode}A"
        if self._low is not None and self._tags.get(_EXTRA) == (1,):
            # Colours that are multiplied by alpha, over white.
            eight, mode = np.minimum(eight[..., :3] + (0xFF - eight[..., 3:].astype(int)), 0xFF).astype(np.uint8), "RGB"
        return Image.fromarray(eight[..., 0] if mode == "L" else eight, mode)


def _stated(tags: Any, names: tuple[int, int]) -> Any:
    """What a TIFF says of the range of its numbers; of several channels one for all."""
    values = [np.asarray(tags[name]) for name in names if name in tags]
    known = [value.max() for value in values if value.size and value.dtype.kind in "iuf"]
    return known[-1] if known else None
