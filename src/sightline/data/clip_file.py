"""Clips as they are found in the world: folders of frames, animated GIF and WebP files, and images, of one frame.

A header says how many frames there are, and of what size, before any is decoded; what is decoded, is one at a time.
"""

from __future__ import annotations

import io
import itertools
import os
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

from PIL import Image

from sightline.data.folders import entries_of
from sightline.data.image_file import (
    MAX_PIXELS,
    ByteRange,
    EncodedImage,
    check_image_file,
    opened_image,
    read_image_size,
    read_picture,
    rgb_pixels,
)
from sightline.data.image_index import NOT_A_FILE, stamp_of
from sightline.data.image_list import ANIMATIONS, IMAGE_SUFFIXES, list_images, natural_key
from sightline.data.sizes import MOST_FRAMES
from sightline.data.skip_policy import Unreadable
from sightline.errors import UnreadableDataError

MOST_TIMES = 16
"""All frames of a clip together have at most so many times the pixels that an image may have."""


class ClipHeader(NamedTuple):
    """(height, width) of each frame in pixels, upright, and how many frames there are."""

    height: int
    width: int
    frames: int


def too_long(header: ClipHeader, max_pixels: int) -> str | None:
    """Why a clip is not decoded, whose frames alone would be, or None."""
    height, width, frames = header
    if frames > MOST_FRAMES:
        return f"{frames} frames are too many (allowed: {MOST_FRAMES})"
    if height * width * frames > MOST_TIMES * max_pixels:
        said = f"{frames} frames of {width}x{height} = {frames * height * width} pixels are too large"
        return f"{said} (allowed: {MOST_TIMES * max_pixels}, {MOST_TIMES} times an image; --max-pixels N takes more)"
    return None


class Clip(EncodedImage, ABC):
    """One clip; its bytes are those of all of its frames' files, one after the other."""

    def __init__(self, path: str) -> None:
        self.name = path

    @abstractmethod
    def header(self) -> ClipHeader:
        """What it holds, without decoding a pixel; raises UnreadableDataError ("PATH: reason") where a file is missing
        or damaged, or frames are of different sizes."""

    @abstractmethod
    def decode(self, places: Sequence[int], max_pixels: int, least: tuple[int, int] | None) -> Iterator[Image.Image]:
        """As `frames`, of different places, whatever the sizes."""

    def frames(
        self, places: Sequence[int], *, max_pixels: int = MAX_PIXELS, least: tuple[int, int] | None = None
    ) -> Iterator[Image.Image]:
        """Some of its frames, from 0, rising, as RGB by the rules of `read_image`, one decoded at a time and once;
        raises as `header`, or where a frame cannot be decoded or is of another size than the first."""
        counts, size = Counter(places), None
        for place, picture in zip(counts, self.decode(list(counts), max_pixels, least), strict=True):
            size = size or picture.size
            if picture.size != size:
                said = f"frame {place} is {picture.size}, not {size} pixels (width, height)"
                raise UnreadableDataError(f"{self.name}: {said} (expected: frames of one size)")
            yield from itertools.repeat(picture, counts[place])


def clip_at(path: str) -> Clip:
    """The clip at a path: a folder of frames, or a file."""
    return FrameFolder(path) if os.path.isdir(path) else AnimationFile(path)


class AnimationFile(Clip):
    """An animated GIF or WebP file, or an image, which is a clip of one frame (other formats have one: their first).

    Of a GIF that is cut off the frames before the cut are counted.
    """

    def open(self) -> io.BufferedReader:
        if reason := check_image_file(self.name):
            raise UnreadableDataError(f"{self.name}: {reason}")
        return open(self.name, "rb")

    def header(self) -> ClipHeader:
        with opened_image(self.name, None) as image:
            frames = getattr(image, "n_frames", 1) if image.format in ("GIF", "WEBP") else 1
        return ClipHeader(*read_image_size(self.name, max_pixels=None), frames)

    def decode(self, places: Sequence[int], max_pixels: int, least: tuple[int, int] | None) -> Iterator[Image.Image]:
        if places == [0]:
            # A still may be a JPEG, of which a part of the size is enough.
            yield read_picture(self.name, max_pixels=max_pixels, least=least)
            return
        with opened_image(self.name, max_pixels) as image:
            size = image.size
            for place in places:
                try:
                    image.seek(place)
                except EOFError:
                    raise UnreadableDataError(f"{self.name}: has no frame {place}") from None
                # A frame of a GIF may reach beyond the screen, which then grows.
                if image.size != size:
                    raise UnreadableDataError(f"{self.name}: frame {place} is larger than the first")
                yield Image.fromarray(rgb_pixels(image, self.name))


class FrameFolder(Clip):
    """A folder whose image files are the frames, in natural order (2 before 10); hidden ones are passed over."""

    def files(self) -> list[str]:
        """The paths of the frames; raises UnreadableDataError where the folder cannot be read, or holds none."""
        paths = [entry.path for entry in entries_of(self.name) if is_frame(entry.name)]
        if not paths:
            raise UnreadableDataError(f"{self.name}: no frames in this folder")
        return sorted(paths, key=natural_key)

    def open(self) -> io.BufferedReader:
        paths = self.files()[:MOST_FRAMES]
        ends = [0, *itertools.accumulate(map(os.path.getsize, paths))]

        def read_at(place: int, count: int) -> bytes:
            number = min(bisect_right(ends, place), len(paths)) - 1
            with open(paths[number], "rb") as file:
                file.seek(place - ends[number])
                return file.read(min(count, ends[number + 1] - place))

        return io.BufferedReader(ByteRange(ends[-1], read_at))

    def header(self) -> ClipHeader:
        paths, first = self.files(), None
        for path in paths[:MOST_FRAMES]:
            size = read_image_size(path, max_pixels=None)
            first = first or size
            frames = AnimationFile(path).header().frames if path.lower().endswith(ANIMATIONS) else 1
            if size != first or frames > 1:
                said = f"{frames} frames of {size[1]}x{size[0]} where the first is {first[1]}x{first[0]}"
                raise UnreadableDataError(f"{path}: {said} (expected: frames of one size, each a still)")
        assert first is not None
        return ClipHeader(*first, len(paths))

    def decode(self, places: Sequence[int], max_pixels: int, least: tuple[int, int] | None) -> Iterator[Image.Image]:
        paths = self.files()
        for place in places:
            if place >= len(paths):
                raise UnreadableDataError(f"{self.name}: has no frame {place} (holds {len(paths)})")
            yield read_picture(paths[place], max_pixels=max_pixels, least=least)


def is_frame(name: str) -> bool:
    """Whether a file of this name in a folder is a frame of a clip."""
    return name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")


def clip_stamp(path: str) -> tuple[int, int, int]:
    """As `stamp_of`; of a folder of frames all their bytes, and when they, or their names, last changed."""
    if not os.path.isdir(path):
        return stamp_of(path)
    try:
        frames = [entry.stat() for entry in entries_of(path) if is_frame(entry.name)]
        every = [os.stat(path), *frames]
    # A link to a missing file among them: reading says which.
    except (OSError, ValueError):
        return NOT_A_FILE
    size = sum(one.st_size for one in frames)
    return size, max(one.st_mtime_ns for one in every), max(one.st_ctime_ns for one in every)


def list_clips(
    given: Sequence[str], stdin: BinaryIO | None = None, skipped: list[Unreadable] | None = None
) -> list[str | EncodedImage | Unreadable]:
    """What words name to a model of clips: as `list_images`, as which it raises, but a folder of frames is one clip.

    A folder that holds image files other than GIF and WebP is one of frames, and so is each such folder in another one;
    of a folder's GIF and WebP files each is a clip. A folder that a pattern matches is as one that is named.
    """
    found = list_images(given, stdin, skipped, clips=True)
    return [clip_at(one) if isinstance(one, str) else one for one in found]
