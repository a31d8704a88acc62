"""Encoded images that are no files of their own: parts of a larger file, or of a table in memory."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import Any


class EncodedImage:
    """The encoded bytes of one image; `str` of it is what messages call it.

    Attributes:
        name: of the image, as the path of one that is a file.
        stamp: tells it from other bytes of this name (size, times), where that is known.
    """

    stamp: tuple[int, ...] = ()

    def __init__(self, name: str, opener: Callable[[str], io.BufferedReader]) -> None:
        """An image that is opened by a function of its name."""
        self.name, self._opener = name, opener

    def __str__(self) -> str:
        return self.name

    def open(self) -> io.BufferedReader:
        """Its bytes, to read and to seek in.

        Raises:
            UnreadableDataError: they are not there, or not all of them; "NAME: reason".
            OSError: the system does not let them be read.
        """
        return self._opener(self.name)

    def header(self) -> tuple[int, int, int] | None:
        """(height, width) in pixels and the number of frames of a clip; None of an image, whose bytes say it.

        Raises:
            UnreadableDataError: it cannot be read.
        """
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
