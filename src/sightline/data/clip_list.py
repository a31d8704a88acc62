"""Which clips a folder holds: what is a clip of its own, and what a frame of one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sightline.data.clip_file import ANIMATIONS, Clip, clip_at, is_frame
from sightline.data.encoded import EncodedImage, ImageCollection
from sightline.data.folders import entries_of, folders_in, walk
from sightline.data.image_index import NOT_A_FILE, stamp_of
from sightline.data.image_list import found_below, holds_images, list_images, matches, natural_key
from sightline.data.skip_policy import Unreadable
from sightline.errors import InputError


class ClipContents(ImageCollection):
    """Clips of a listing, each at its path."""

    def of(self, row: int, name: str) -> Clip:
        return clip_at(name)


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
        own = place == str(folder)
        frames = [entry.path for entry in (files if own else (*files, *folders)) if is_frame(entry.name)]
        others = [entry.path for entry in files if not is_frame(entry.name)]
        if own:
            yield from frames
        elif frames:
            others += [entry.path for entry in folders if not is_frame(entry.name)]
            folders.clear()
            yield place
        elif not folders:
            skipped.append(Unreadable(place, "a folder without frames"))
        reason = "no frame, in a folder of frames" if frames and not own else "unknown extension"
        skipped += [Unreadable(path, reason) for path in others]


def holds_clips(folder: Path) -> str:
    """As what clips stand in a folder directly: "files", "folders" of frames, or "" where none does."""
    inside = [folder / name for name in folders_in(folder)]
    framed = inside and all(
        holds_images(one) and not any(entry.name.lower().endswith(ANIMATIONS) for entry in entries_of(one))
        for one in inside
    )
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
    passed_over = [] if skipped is None else skipped
    found: list[str | EncodedImage | Unreadable] = []
    for word in given:
        if os.path.isdir(word):
            clips = _clips_in(word, passed_over)
            if not clips:
                raise InputError(
                    f"{word}: no clips in this folder (expected: frames, or files ending in .gif or .webp)"
                )
            found += clips
        elif any(map(os.path.isdir, matched := matches(word) or ())):
            found += _matched(matched, passed_over)
        else:
            found += list_images([word], stdin, passed_over)
    return [clip_at(one) if isinstance(one, str) else one for one in found]


def _matched(paths: Collection[str], skipped: list[Unreadable]) -> list[str | Unreadable]:
    """The clips that a pattern matched; a folder without one is told when it is read."""
    folders = tuple(os.path.join(path, "") for path in paths if os.path.isdir(path))
    clips: list[str | Unreadable] = []
    for path in sorted((path for path in paths if not path.startswith(folders)), key=natural_key):
        clips += (_clips_in(path, skipped) or [path]) if os.path.isdir(path) else [path]
    return clips


def _clips_in(folder: str, skipped: list[Unreadable]) -> list[str | Unreadable]:
    def clips(place: str, images: list[str]) -> list[str]:
        moving = [path for path in images if path.lower().endswith(ANIMATIONS)]
        return moving if len(moving) == len(images) else [place]

    return found_below(folder, skipped, clips)
