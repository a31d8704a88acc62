"""Image files as they are found in the world, as RGB; and encoded images that are no files of their own."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import struct
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from sightline.data.samples import READER_OF, WIDENED, Samples, raw_mode
from sightline.errors import InaccessibleDataError, UnreadableDataError

MAX_PIXELS = 89_478_485
"""The largest image that is decoded unless asked for more: from here on Pillow warns of a decompression bomb."""

BACKGROUND = (255, 255, 255)
"""What shows through where an image is transparent: white, as on the pages that such images were made for."""

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Pillow's names of the formats that are read; others run programs (EPS) or are not photographs."""

_READERS = tuple(READER_OF.get(one, one) for one in FORMATS)
_ORIENTATION = 0x0112
# EXIF orientation -> by which steps rows and columns of upright pixels are stored; from 5 on these are exchanged.
_STEPS = {1: (1, 1), 2: (1, -1), 3: (-1, -1), 4: (-1, 1), 5: (1, 1), 6: (-1, 1), 7: (-1, -1), 8: (1, -1)}
_STRIP_PIXELS = 1 << 20
_LIMIT = threading.Lock()


class EncodedImage:
    """The encoded bytes of one image, which messages call `name`; `stamp` tells it from other bytes of this name (size,
    times), where that is known."""

    stamp: tuple[int, ...] = ()

    def __init__(self, name: str, opener: Callable[[str], io.BufferedReader]) -> None:
        """An image that is opened by a function of its name."""
        self.name, self._opener = name, opener

    def __str__(self) -> str:
        return self.name

    def open(self) -> io.BufferedReader:
        """Its bytes, to read and to seek in; raises UnreadableDataError ("NAME: reason") where they are not all there,
        OSError where the system does not let them be read."""
        return self._opener(self.name)

    def header(self) -> tuple[int, int, int] | None:
        """(height, width) in pixels and the number of frames of a clip; None of an image, whose bytes say it; raises
        as `open`."""
        return None


ImageRef = str | os.PathLike[str] | EncodedImage
"""Where the encoded bytes of an image are: a file of its own, or a part of something."""
ImageAt = Callable[[int, str], EncodedImage]
"""From a row of a listing and what messages call it to the image, which is no file of its own; workers unpickle it."""


def open_image_bytes(stored: ImageRef) -> io.BufferedReader:
    """The bytes of an image, to read and to seek in; raises as `EncodedImage.open`."""
    return stored.open() if isinstance(stored, EncodedImage) else open(stored, "rb")


class ByteRange(io.RawIOBase):
    """Bytes that are read by their place: a file of which no more is fetched than is asked for."""

    def __init__(self, length: int, read_at: Callable[[int, int], Any]) -> None:
        """So many bytes, of which `read_at(place, count)` gives some, fewer or none where it fails to."""
        self._length, self._read_at, self._place = length, read_at, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._length}[whence]
        self._place = max(start + offset, 0)
        return self._place

    def readinto(self, buffer: Any) -> int:
        content = self._read_at(self._place, min(len(buffer), max(self._length - self._place, 0)))
        buffer[: len(content)] = content
        self._place += len(content)
        return len(content)


def read_image(path: ImageRef, *, max_pixels: int = MAX_PIXELS, least: tuple[int, int] | None = None) -> np.ndarray:
    """An image file as RGB, uint8 [height, width, 3], upright, first frame only.

    The format is told by the content. The EXIF orientation is applied, transparency laid over `BACKGROUND`, 16 bits are
    scaled to 8; 1-bit, palette and CMYK images are converted.

    Args:
        max_pixels: largest width x height, checked before anything is decoded.
        least: (height, width) that are enough: a JPEG is then decoded at 1/2, 1/4 or 1/8 where that leaves as much.

    Raises:
        UnreadableDataError: the file is missing, not a readable image in one of `FORMATS`, damaged, too large, or of
            a kind without a known range (floating point). One line: "PATH: reason".
    """
    with opened_image(path, max_pixels, least) as image:
        return rgb_pixels(image, path)


def read_picture(path: ImageRef, *, max_pixels: int = MAX_PIXELS, least: tuple[int, int] | None = None) -> Image.Image:
    """As `read_image`, as an RGB image of Pillow: one that is RGB and upright in its file is not copied."""
    with opened_image(path, max_pixels, least) as image:
        samples = Samples(image, path)
        if _is_rgb(samples):
            return samples.image
        pixels = _upright(samples)
        # Not three at once.
        del samples
        image.close()
        return Image.fromarray(pixels)


def rgb_pixels(image: Image.Image, name: ImageRef = "image") -> np.ndarray:
    """An opened Pillow image as RGB by the rules of `read_image`, uint8 [height, width, 3]; raises UnreadableDataError,
    a line that begins with `name`, where the pixels have no known range."""
    return _upright(Samples(image, name))


def _is_rgb(samples: Samples) -> bool:
    """Whether an image is RGB and upright as it is."""
    image = samples.image
    return samples.plain and image.mode == "RGB" and not image.has_transparency_data and _orientation(image) == 1


def _upright(samples: Samples) -> np.ndarray:
    image = samples.image
    orientation, (width, height) = _orientation(image), image.size
    if width * height <= _STRIP_PIXELS and _is_rgb(samples):
        return np.array(image)
    upright = np.empty((width, height, 3) if orientation >= 5 else (height, width, 3), np.uint8)
    stored = _as_stored(upright, orientation)
    # In strips of whole rows, each turned as it is written: a second copy of a large image would take a gigabyte.
    step = max(_STRIP_PIXELS // width, 1)
    for top in range(0, height, step):
        strip = samples.picture(top, min(top + step, height))
        if strip.has_transparency_data:
            layer = strip.convert("RGBA")
            strip = Image.new("RGB", layer.size, BACKGROUND)
            strip.paste(layer, mask=layer.getchannel("A"))
        stored[top : top + step] = np.asarray(strip.convert("RGB"))
    return upright


def _as_stored(upright: np.ndarray, orientation: int) -> np.ndarray:
    """A view of upright pixels in the order of their file: what is written there is upright."""
    rows, cols = _STEPS[orientation]
    return (upright.swapaxes(0, 1) if orientation >= 5 else upright)[::rows, ::cols]


def read_label_map(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """The stored numbers of a PNG, upright, uint8 or uint16 [height, width]: the indices of a palette, or grey values
    of 1 to 16 bits, each as it is written, whatever is said to be transparent. Colours whose three channels are equal
    are grey, and an alpha that is opaque everywhere is left out. Raises UnreadableDataError as `read_image`, or where
    it is no PNG (a lossy format would change the numbers), has colours, or is transparent somewhere."""
    with opened_image(path, max_pixels) as image:
        if image.format != "PNG":
            said = f"{image.format} with {image.mode} pixels (expected: a PNG with one number a pixel)"
            raise UnreadableDataError(f"{path}: {said}")
        orientation, widened = _orientation(image), WIDENED.get(raw_mode(image), 1)
        numbers = Samples(image, path).numbers(0, image.height)
    # A bilevel one is of truth values.
    numbers = numbers.astype(np.uint8) if numbers.dtype == bool else numbers // widened
    if numbers.ndim == 3:
        # The last of 2 and 4 channels is alpha.
        colours, alpha = np.split(numbers, [numbers.shape[2] - 1 + numbers.shape[2] % 2], axis=2)
        most = np.iinfo(numbers.dtype).max
        for kind, wrong in (("a colour", colours != colours[..., :1]), ("transparent", alpha != most)):
            for row, col in np.argwhere(wrong.any(axis=2))[:1].tolist():
                said = f"{numbers[row, col].tolist()} at row {row}, column {col} is {kind}"
                raise UnreadableDataError(f"{path}: {said} (expected: one number a pixel, or equal channels)")
        numbers = colours[..., 0]
    upright = np.empty_like(numbers.T if orientation >= 5 else numbers)
    _as_stored(upright, orientation)[:] = numbers
    return upright


def read_image_size(path: ImageRef, *, max_pixels: int | None = MAX_PIXELS) -> tuple[int, int]:
    """(height, width) in pixels of what `read_image` would give, from the file's header; no pixel is decoded. Raises as
    `read_image`; a `max_pixels` of None takes any number."""
    with opened_image(path, max_pixels) as image:
        width, height = image.size
        return (width, height) if _orientation(image) >= 5 else (height, width)


@contextlib.contextmanager
def opened_image(path: ImageRef, max_pixels: int | None, least: tuple[int, int] | None = None) -> Iterator[Image.Image]:
    """An image file whose header was checked; whatever goes wrong inside is one line. The arguments are those of
    `read_image`; a `max_pixels` of None takes any number."""
    if not isinstance(path, EncodedImage) and (reason := check_image_file(path)):
        raise UnreadableDataError(f"{path}: {reason}")
    try:
        # Pillow's warnings (a bomb below its own limit, damaged metadata) would add lines to ours.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _identified(path) as image:
                width, height = image.size
                if max_pixels is not None and (reason := too_large(height, width, max_pixels)):
                    raise UnreadableDataError(f"{path}: {reason}")
                if width * height == 0:
                    raise UnreadableDataError(f"{path}: {width}x{height} has no pixels")
                if least is not None and image.format in ("JPEG", "MPO"):
                    # What lies on its side is asked for lying.
                    rows, cols = least[::-1] if _orientation(image) >= 5 else least
                    image.draft(None, (cols, rows))
                yield image
    except UnreadableDataError:
        raise
    # Pillow's decoders raise nearly anything on a damaged file.
    except Exception as error:
        unknown = isinstance(error, UnidentifiedImageError)
        said = f"not an image in a known format ({', '.join(FORMATS)})" if unknown else _one_line(error)
        # A number is of the system: the file itself may be whole.
        kind = InaccessibleDataError if isinstance(error, OSError) and error.errno else UnreadableDataError
        raise kind(f"{path}: {said}") from None


def _identified(path: ImageRef) -> Image.Image:
    """An image whose header was read, of any size: Pillow has a limit of its own for all of a process."""
    place = path.open() if isinstance(path, EncodedImage) else path
    try:
        return Image.open(place, formats=_READERS)
    except Image.DecompressionBombError:
        with _LIMIT:
            limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
            try:
                return Image.open(place, formats=_READERS)
            finally:
                Image.MAX_IMAGE_PIXELS = limit


def check_image_file(path: str | os.PathLike[str]) -> str | None:
    """Why there is no file to read, or None. A pipe or a device is refused: opening it might never return."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "a link to a missing file" if os.path.islink(path) else "no such file"
    except (OSError, ValueError) as error:
        return _one_line(error)
    if stat.S_ISDIR(status.st_mode):
        return "a folder, not an image file"
    if not stat.S_ISREG(status.st_mode):
        return "not a regular file"
    return "the file is empty" if status.st_size == 0 else None


def _one_line(error: Exception) -> str:
    # Of a header that ends too early.
    if isinstance(error, struct.error):
        return "is truncated"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


def too_large(height: int, width: int, max_pixels: int) -> str | None:
    """Why an image of this size is not decoded, or None."""
    if width * height <= max_pixels:
        return None
    return f"{width}x{height} = {width * height} pixels is too large (allowed: {max_pixels}; --max-pixels N takes more)"


def orientation_note(path: ImageRef, size: Sequence[int], expected: Sequence[int]) -> str:
    """What to add to a message where an image has the expected size but for its EXIF orientation; else nothing."""
    if tuple(size) == tuple(expected) or tuple(size) != tuple(expected)[::-1]:
        return ""
    with opened_image(path, None) as image:
        turned = _orientation(image) >= 5
    return "; its EXIF orientation turns it on its side, which was left out of account there" if turned else ""


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 where there is none or the metadata is damaged, and of a TIFF, which Pillow turns
    itself."""
    if isinstance(image, TiffImageFile):
        return 1
    # Damaged metadata raises many things, and leaves a good image.
    with contextlib.suppress(Exception):
        # A PNG's own decodes all of its pixels to see what may stand behind them.
        plain = isinstance(image, PngImageFile) and not _has_late_metadata(image)
        value = (Image.Image.getexif(image) if plain else image.getexif()).get(_ORIENTATION, 1)
        return value if isinstance(value, int) and value in _STEPS else 1
    return 1


def _has_late_metadata(image: PngImageFile) -> bool:
    """Whether a PNG that is not decoded yet has metadata behind its pixels."""
    if (file := image.fp) is None:
        return False
    place, kinds = file.tell(), list[bytes]()
    file.seek(8)
    while len(head := file.read(8)) == 8:
        kinds.append(head[4:])
        file.seek(int.from_bytes(head[:4], "big") + 4, os.SEEK_CUR)
    file.seek(place)
    behind = b"".join(kinds).partition(b"IDAT")[2]
    return any(kind in behind for kind in (b"eXIf", b"tEXt", b"zTXt", b"iTXt"))
