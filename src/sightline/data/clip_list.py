"""Which clips a folder holds: what is a clip of its own, and what a frame of one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sightline.data.clip_file import ANIMATIONS, Clip, clip_at, is_frame
from sightline.data.encoded import EncodedImage
from sightline.data.folders import entries_of, folders_in, walk
from sightline.data.image_index import NOT_A_FILE, stamp_of
from sightline.data.image_list import holds_images, list_images
from sightline.data.skip_policy import Unreadable


def clip_of(row: int, path: str) -> Clip:
    """The clip of a row of a listing, at its path."""
    return clip_at(path)


def clips_below(folder: Path, skipped: list[Unreadable]) -> Iterator[str]:
    """The clips of a class folder: its own image files, one each, and every folder below it that holds image files,
    which are that one's frames. Links to folders are followed (`folders.walk`).

    Args:
        skipped: what is passed over is added: hidden ones, files of other kinds, folders without frames, and what is
            in a folder of frames beside these.

    Raises:
        UnreadableDataError: a folder may not be read.
    """
    for place, folders, files in walk(folder, skipped):
        if place == str(folder):
            yield from (entry.path for entry in files if is_frame(entry.name))
            others, reason = files, "unknown extension"
        elif any(is_frame(entry.name) for entry in (*files, *folders)):
            yield place
            others, reason = [*files, *folders], "no frame, in a folder of frames"
            folders.clear()
        else:
            others, reason = files, "unknown extension"
            skipped += [] if folders else [Unreadable(place, "a folder without frames")]
        skipped += [Unreadable(entry.path, reason) for entry in others if not is_frame(entry.name)]


def holds_clips(folder: Path) -> str:
    """As what clips stand in a folder directly: "files", "folders" of frames, or "" where none does."""
    inside = [folder / name for name in folders_in(folder)]
    moving = (entry for one in inside for entry in entries_of(one) if entry.name.lower().endswith(ANIMATIONS))
    framed = inside and all(map(holds_images, inside)) and not any(moving)
    return holds_images(folder) or ("folders" if framed else "")


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
    """What words name to a model of clips: as `list_images`, but a folder of frames is one clip.

    A folder that holds image files other than GIF and WebP is one of frames, and so is each such folder in another one;
    of a folder's GIF and WebP files each is a clip. A folder that a pattern matches is as one that is named; what it
    matches in such a folder is a part of that.

    Raises:
        InputError: as `list_images`.
    """

    def clips(place: str, images: list[str]) -> list[str]:
        moving = [path for path in images if path.lower().endswith(ANIMATIONS)]
        return moving if len(moving) == len(images) else [place]

    found = list_images(given, stdin, skipped, clips)
    return [clip_at(one) if isinstance(one, str) else one for one in found]
