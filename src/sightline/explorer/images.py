"""The images that can be looked at: those of a folder or some drawn scenes, and those that were sent."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sightline.data.image_file import EncodedImage, read_image, read_image_size
from sightline.data.image_list import list_images
from sightline.data.scenes.draw import draw
from sightline.data.scenes.render import render
from sightline.errors import InputError, SightlineError, UnreadableDataError
from sightline.explorer.errors import HttpError, expired
from sightline.explorer.limits import IMAGES_BYTES, LISTED_IMAGES, MAX_PIXELS, SENT_IMAGES, THUMBNAIL

# (task, index of its test split, height, width) of what is drawn where no folder is given.
_SCENES = (
    ("glyphs", 0, 512, 512),
    ("glyphs", 3, 512, 512),
    ("pairs", 0, 512, 512),
    ("pairs", 5, 384, 640),
    ("many", 1, 512, 512),
    ("many", 2, 640, 384),
)
# The pixels of the image that was read last are kept, so that another size of it is not decoded anew.
_KEPT_PIXELS = 64 << 20
_LONGEST_NAME = 200


@dataclass(frozen=True, eq=False)
class StoredImage:
    """An image that can be looked at; `read` gives uint8 [height, width, 3]."""

    id: str
    name: str
    height: int
    width: int
    read: Callable[[], np.ndarray]
    bytes: int = 0

    def said(self) -> dict[str, Any]:
        """As the page reads it."""
        return {"id": self.id, "name": self.name, "height": self.height, "width": self.width}


class ImageStore:
    """All images by their id; safe among threads. Those that were sent never touch the disk.

    Attributes:
        left_out: why some of the folder are not there, a line each.
    """

    def __init__(self, folder: Path | None = None, sent_bytes: int = IMAGES_BYTES) -> None:
        """Raises InputError for a folder without an image that can be read."""
        self.left_out: list[str] = []
        self._lock = threading.Lock()
        self._sent: OrderedDict[str, StoredImage] = OrderedDict()
        self._sent_bytes, self._count = sent_bytes, 0
        self._last: tuple[str, np.ndarray] | None = None
        self._fixed = {one.id: one for one in (_scenes() if folder is None else self._of_folder(folder))}

    def _of_folder(self, folder: Path) -> list[StoredImage]:
        if not folder.is_dir():
            raise InputError(f"--images {folder}: is no folder (expected: a folder with images)")
        found: list[StoredImage] = []
        paths = list_images([str(folder)])
        for number, path in enumerate(paths):
            if len(found) == LISTED_IMAGES:
                self.left_out.append(f"{folder}: the first {LISTED_IMAGES} of {len(paths)} images are listed")
                break
            try:
                if not isinstance(path, str):
                    raise UnreadableDataError(str(path))
                height, width = read_image_size(path)
            except UnreadableDataError as error:
                self.left_out.append(str(error))
                continue
            name = str(Path(path).relative_to(folder))
            found.append(StoredImage(f"f{number}", name, height, width, partial(read_image, path)))
        if not found:
            raise InputError(f"--images {folder}: none of its images can be read ({self.left_out[0]})")
        return found

    def listed(self) -> list[dict[str, Any]]:
        """What can be picked, those that were sent last."""
        with self._lock:
            return [one.said() for one in (*self._fixed.values(), *self._sent.values())]

    def add(self, content: bytes, name: str) -> StoredImage:
        """Take an image file that was sent; it is decoded once, to see that it is whole.

        Raises:
            HttpError: 400, it is no image that `read_image` reads.
        """
        # In memory and nowhere else.
        sent = EncodedImage(_plain(name), lambda _: io.BufferedReader(io.BytesIO(content)))
        try:
            height, width = read_image_size(sent, max_pixels=None)
            if height * width > MAX_PIXELS:
                raise UnreadableDataError(f"{sent}: {width}x{height} pixels are too many (allowed: {MAX_PIXELS})")
            pixels = read_image(sent)
        except SightlineError as error:
            raise HttpError(400, str(error)) from None
        with self._lock:
            self._count += 1
            picture = StoredImage(
                f"u{self._count}", sent.name, *pixels.shape[:2], read=partial(read_image, sent), bytes=len(content)
            )
            self._sent[picture.id] = picture
            held = sum(one.bytes for one in self._sent.values())
            while (held > self._sent_bytes and len(self._sent) > 1) or len(self._sent) > SENT_IMAGES:
                held -= self._sent.popitem(last=False)[1].bytes
        self._keep(picture.id, pixels)
        return picture

    def __getitem__(self, image: str) -> StoredImage:
        """The image of that id.

        Raises:
            HttpError: 404 where there was none, 410 where it was given up.
        """
        with self._lock:
            if image in self._sent:
                self._sent.move_to_end(image)
                return self._sent[image]
            if image in self._fixed:
                return self._fixed[image]
            number = image.removeprefix("u")
            was_here = image != number and number.isascii() and number.isdecimal() and len(number) < 10
            if was_here and 1 <= int(number) <= self._count:
                raise expired("image")
        raise HttpError(404, "there is no such image")

    def pixels(self, image: str) -> np.ndarray:
        """uint8 [height, width, 3], to be read and not written.

        Raises:
            HttpError: as `[]`, or 400 where its file has changed or gone.
        """
        picture, last = self[image], self._last
        if last is not None and last[0] == image:
            return last[1]
        try:
            pixels = picture.read()
        except SightlineError as error:
            raise HttpError(400, str(error)) from None
        self._keep(image, pixels)
        return pixels

    def _keep(self, image: str, pixels: np.ndarray) -> None:
        self._last = (image, pixels) if pixels.nbytes <= _KEPT_PIXELS else None

    def thumbnail(self, image: str) -> bytes:
        """A PNG of at most `THUMBNAIL` pixels a side; raises as `pixels`."""
        picture = Image.fromarray(self.pixels(image))
        picture.thumbnail((THUMBNAIL, THUMBNAIL))
        return as_png(picture)


def as_png(pixels: np.ndarray | Image.Image) -> bytes:
    """uint8 [height, width, 3] as a file, made quickly rather than small."""
    file = io.BytesIO()
    picture = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels
    picture.save(file, "PNG", compress_level=1)
    return file.getvalue()


def _scenes() -> list[StoredImage]:
    found = []
    for number, (task, index, height, width) in enumerate(_SCENES):
        pixels = render(draw(task, "test", index), (height, width)).image
        found.append(StoredImage(f"s{number}", f"{task} {index}", height, width, partial(np.asarray, pixels)))
    return found


def _plain(name: str) -> str:
    """The last part of a path, without what no page would show."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    return "".join(letter for letter in last if letter.isprintable())[:_LONGEST_NAME].strip() or "image"
