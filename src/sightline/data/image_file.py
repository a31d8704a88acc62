"""Image files as they are found in the world, as RGB."""

from __future__ import annotations

import contextlib
import os
import stat
import warnings
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile

from sightline.data.encoded import EncodedImage, ImageRef, open_image_bytes
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
# The upright pixels as they are stored, by the EXIF orientation: views, so that what is written there is upright.
_AS_STORED: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda upright: upright[:, ::-1],
    3: lambda upright: upright[::-1, ::-1],
    4: lambda upright: upright[::-1],
    5: lambda upright: upright.swapaxes(0, 1),
    6: lambda upright: np.rot90(upright),
    7: lambda upright: upright.swapaxes(0, 1)[::-1, ::-1],
    8: lambda upright: np.rot90(upright, -1),
}
_STRIP_PIXELS = 1 << 20


def read_image(path: ImageRef, *, max_pixels: int = MAX_PIXELS, least: tuple[int, int] | None = None) -> np.ndarray:
    """An image file as RGB, upright, first frame only.

    The format is told by the content, not by the name. The EXIF orientation is applied. Transparency is laid over
    `BACKGROUND`. 16 bits are scaled to 8, not clipped; 1-bit, palette and CMYK images are converted.

    Args:
        path: the file, or where its bytes are.
        max_pixels: largest width x height, checked before anything is decoded.
        least: (height, width) that are enough: a JPEG is then decoded at 1/2, 1/4 or 1/8 where that leaves as much,
            which skips most of the work. None decodes it whole.

    Returns:
        uint8 [height, width, 3].

    Raises:
        UnreadableDataError: the file is missing, not a readable image in one of `FORMATS`, damaged, too large, or of
            a kind without a known range (floating point). One line: "PATH: reason".
    """
    with opened_image(path, max_pixels) as image:
        _draft(image, least)
        return rgb_pixels(image, path)


def read_picture(path: ImageRef, *, max_pixels: int = MAX_PIXELS, least: tuple[int, int] | None = None) -> Image.Image:
    """As `read_image`, of the same pixels as Pillow holds them: one that is RGB and upright in its file is not copied.

    Returns:
        An RGB image, which is loaded.
    """
    with opened_image(path, max_pixels) as image:
        _draft(image, least)
        samples = Samples(image, path)
        if _is_rgb(samples):
            return samples.image
        pixels = _upright(samples)
        # Not three at once.
        del samples
        image.close()
        return Image.fromarray(pixels)


def _is_rgb(samples: Samples) -> bool:
    """Whether an image is RGB and upright as it is."""
    image = samples.image
    return samples.plain and image.mode == "RGB" and not image.has_transparency_data and _orientation(image) == 1


def _draft(image: Image.Image, least: tuple[int, int] | None) -> None:
    """Let a JPEG be decoded at a part of its size, as `read_image` says; other formats do nothing here."""
    if least is not None and image.format in ("JPEG", "MPO"):
        # What lies on its side is asked for lying.
        height, width = least[::-1] if _orientation(image) >= 5 else least
        image.draft(None, (width, height))


def read_label_map(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """The stored numbers of a PNG, upright: the indices of a palette, or grey values of 1 to 16 bits, each as it is
    written. Colours whose three channels are equal are grey, and an alpha that is opaque everywhere is left out. The
    palette itself, and a colour that is said to be transparent, change nothing.

    Returns:
        uint8 or uint16 [height, width].

    Raises:
        UnreadableDataError: as `read_image`; or it is no PNG (a lossy format would change the numbers), has colours, or
            is transparent somewhere.
    """
    with opened_image(path, max_pixels) as image:
        if image.format != "PNG":
            raise UnreadableDataError(
                f"{path}: {image.format} with {image.mode} pixels (expected: a PNG with one number a pixel)"
            )
        orientation, widened = _orientation(image), WIDENED.get(raw_mode(image), 1)
        numbers = Samples(image, path).numbers(0, image.height)
        # A bilevel one is of truth values.
        numbers = numbers.astype(np.uint8) if numbers.dtype == bool else numbers // widened
        if numbers.ndim == 3:
            numbers = _grey(numbers, path)
        if orientation == 1:
            return numbers
        upright = np.empty_like(numbers.T if orientation >= 5 else numbers)
        _AS_STORED[orientation](upright)[:] = numbers
        return upright


def _grey(numbers: np.ndarray, path: str | os.PathLike[str]) -> np.ndarray:
    """The one number a pixel of [height, width, channels], the last of 2 and 4 channels being alpha."""
    colours = numbers[..., : -1 if numbers.shape[2] in (2, 4) else None]
    clear = (numbers[..., colours.shape[2] :] != np.iinfo(numbers.dtype).max).any(axis=2)
    for wrong, kind in (((colours != colours[..., :1]).any(axis=2), "a colour"), (clear, "transparent")):
        if wrong.any():
            row, col = np.argwhere(wrong)[0].tolist()
            said = f"{numbers[row, col].tolist()} at row {row}, column {col} is {kind}"
            raise UnreadableDataError(f"{path}: {said} (expected: one number a pixel, or equal channels)")
    return colours[..., 0]


def read_image_size(path: ImageRef, *, max_pixels: int | None = MAX_PIXELS) -> tuple[int, int]:
    """(height, width) in pixels of what `read_image` would give, from the file's header; no pixel is decoded.

    Args:
        max_pixels: as `read_image`; None takes any number.

    Raises:
        UnreadableDataError: as `read_image`, where the header shows it.
    """
    with opened_image(path, max_pixels) as image:
        width, height = image.size
        # From 5 on, the stored image lies on its side.
        return (width, height) if _orientation(image) >= 5 else (height, width)


@contextlib.contextmanager
def opened_image(path: ImageRef, max_pixels: int | None) -> Iterator[Image.Image]:
    """An image file whose header was checked; whatever goes wrong inside is one line."""
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
                yield image
    except UnreadableDataError:
        raise
    except UnidentifiedImageError:
        raise UnreadableDataError(f"{path}: not an image in a known format ({', '.join(FORMATS)})") from None
    # Pillow's decoders raise nearly anything on a damaged file.
    except Exception as error:
        # A number is of the system: the file itself may be whole.
        kind = InaccessibleDataError if isinstance(error, OSError) and error.errno else UnreadableDataError
        raise kind(f"{path}: {_one_line(error)}") from None


def _identified(path: ImageRef) -> Image.Image:
    """An image whose header was read, of any size: Pillow has a limit of its own for all of a process."""
    try:
        return Image.open(path.open() if isinstance(path, EncodedImage) else path, formats=_READERS)
    except Image.DecompressionBombError:
        pass
    with contextlib.ExitStack() as unless_found:
        file = unless_found.enter_context(open_image_bytes(path))
        prefix = file.read(16)
        for name in _READERS:
            factory, accepts = Image.OPEN[name]
            if accepts is None or accepts(prefix):
                file.seek(0)
                image = factory(file, str(path))
                image._exclusive_fp = True  # pyright: ignore[reportAttributeAccessIssue]  # closed with the image
                unless_found.pop_all()
                return image
    raise UnidentifiedImageError


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
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split()) or type(error).__name__


def too_large(height: int, width: int, max_pixels: int) -> str | None:
    """Why an image of this size is not decoded, or None."""
    if width * height <= max_pixels:
        return None
    return f"{width}x{height} = {width * height} pixels is too large (allowed: {max_pixels}; --max-pixels N takes more)"


def rgb_pixels(image: Image.Image, name: ImageRef = "image") -> np.ndarray:
    """An opened Pillow image as RGB by the rules of `read_image`: upright, over `BACKGROUND`, 16 bits scaled.

    Returns:
        uint8 [height, width, 3].

    Raises:
        UnreadableDataError: the pixels have no known range; `name` begins the line.
    """
    return _upright(Samples(image, name))


def _upright(samples: Samples) -> np.ndarray:
    image = samples.image
    orientation, (width, height) = _orientation(image), image.size
    if width * height <= _STRIP_PIXELS and _is_rgb(samples):
        return np.array(image)
    upright = np.empty((width, height, 3) if orientation >= 5 else (height, width, 3), dtype=np.uint8)
    pixels = _AS_STORED[orientation](upright) if orientation in _AS_STORED else upright
    # In strips of whole rows, each turned as it is written: a large image as RGBA, RGB and array at once, or as two
    # arrays, would take over a gigabyte.
    step = max(_STRIP_PIXELS // width, 1)
    for top in range(0, height, step):
        bottom = min(top + step, height)
        pixels[top:bottom] = np.asarray(_to_rgb(samples.picture(top, bottom)))
    return upright


def said_if_turned(path: ImageRef, size: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """What to add to a message where an image has the expected size but for its EXIF orientation; else nothing."""
    if size == expected or tuple(size) != tuple(expected)[::-1]:
        return ""
    with open_image_bytes(path) as file, Image.open(file) as image:
        turned = _orientation(image) >= 5
    return "; its EXIF orientation turns it on its side, which was left out of account there" if turned else ""


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 where there is none or the metadata is damaged, and of a TIFF, which Pillow turns
    itself."""
    if isinstance(image, TiffImageFile):
        return 1
    try:
        # A PNG's own decodes all of its pixels to see what may stand behind them.
        plain = isinstance(image, PngImageFile) and not _has_late_metadata(image)
        value = (Image.Image.getexif(image) if plain else image.getexif()).get(_ORIENTATION, 1)
    # Damaged metadata raises many things, and leaves a good image.
    except Exception:
        return 1
    return value if isinstance(value, int) and value in _AS_STORED else 1


def _has_late_metadata(image: PngImageFile) -> bool:
    """Whether a PNG that is not decoded yet has metadata behind its pixels."""
    file = image.fp
    if file is None:
        return False
    there = file.tell()
    try:
        file.seek(8)
        behind = False
        while len(head := file.read(8)) == 8 and head[4:] != b"IEND":
            behind = behind or head[4:] == b"IDAT"
            if behind and head[4:] in (b"eXIf", b"tEXt", b"zTXt", b"iTXt"):
                return True
            file.seek(int.from_bytes(head[:4], "big") + 4, 1)
        return False
    finally:
        file.seek(there)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        rgb = Image.new("RGB", layer.size, BACKGROUND)
        rgb.paste(layer, mask=layer.getchannel("A"))
        return rgb
    return image.convert("RGB")
