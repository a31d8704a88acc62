"""Which clips a folder holds: what is a clip of its own, and what a frame of one."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sightline.data.allowance import Unreadable
from sightline.data.clip_file import ANIMATIONS, Clip, clip_at, is_frame
from sightline.data.encoded import Contents, Encoded
from sightline.data.image_list import (
    Entry,
    Listed,
    check_stdin,
    entries_of,
    list_images,
    matches,
    natural_order,
    stamp_of,
)
from sightline.errors import InputError


class ClipContents(Contents):
    """Clips of a listing, each at its path."""

    def of(self, row: int, name: str) -> Clip:
        return clip_at(name)


def clips_below(folder: Path, skipped: list[Unreadable]) -> Iterator[Entry]:
    """The clips of a class folder: its own image files, one each, and every folder below it that holds image files,
    which are that one's frames. Links to folders are not followed, since they may form a ring.

    Args:
        skipped: what is passed over is added: hidden ones, files of other kinds, folders without frames, and what is
            in a folder of frames beside these.

    Raises:
        UnreadableDataError: a folder may not be read.
    """
    for entry in entries_of(folder):
        if entry.name.startswith("."):
            skipped.append(Unreadable(entry.path, "hidden"))
        elif entry.is_dir(follow_symlinks=False):
            yield from _in_folder(Path(entry.path), skipped)
        elif is_frame(entry.name):
            yield entry
        else:
            skipped.append(Unreadable(entry.path, "unknown extension"))


def _in_folder(folder: Path, skipped: list[Unreadable]) -> Iterator[Entry]:
    entries = entries_of(folder)
    frames = [entry for entry in entries if is_frame(entry.name)]
    others = [entry for entry in entries if not is_frame(entry.name)]
    if frames:
        skipped += [Unreadable(entry.path, "no frame, in a folder of frames") for entry in others]
        yield Listed(str(folder), _stamp(folder, frames))
        return
    inside = [entry for entry in others if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")]
    skipped += [Unreadable(entry.path, "unknown extension") for entry in others if entry not in inside]
    if not inside:
        skipped.append(Unreadable(str(folder), "a folder without frames"))
    for entry in inside:
        yield from _in_folder(Path(entry.path), skipped)


def _stamp(folder: Path, frames: Sequence[os.DirEntry[str]]) -> tuple[int, int, int]:
    """All bytes of a folder's frames, and when they, or their names, last changed; as `image_list.stamp_of`."""
    size, modified, changed = 0, 0, 0
    try:
        for entry in (folder, *frames):
            status = entry.stat()
            modified, changed = max(modified, status.st_mtime_ns), max(changed, status.st_ctime_ns)
            size += 0 if entry is folder else status.st_size
    # A link to a missing file among them: reading says which.
    except (OSError, ValueError):
        return -1, -1, -1
    return size, modified, changed


def clip_stamp(path: str) -> tuple[int, int, int]:
    """What tells a clip at a path from another one that was there: as a listing keeps it."""
    if not os.path.isdir(path):
        return stamp_of(Path(path))
    return _stamp(Path(path), [entry for entry in entries_of(Path(path)) if is_frame(entry.name)])


def list_clips(given: Sequence[str], stdin: BinaryIO | None = None) -> list[str | Encoded | Unreadable]:
    """What words name to a model of clips: as `list_images`, but a folder of frames is one clip.

    A folder that holds image files other than GIF and WebP is one of frames, and so is each such folder in another one;
    of a folder's GIF and WebP files each is a clip. A folder that a pattern matches is as one that is named; what it
    matches in such a folder is a part of that.

    Raises:
        InputError: as `list_images`.
    """
    check_stdin(given)
    found: list[str | Encoded | Unreadable] = []
    for word in given:
        if os.path.isdir(word):
            clips = _clips_in(word)
            if not clips:
                wanted = "frames, or files ending in .gif or .webp"
                raise InputError(f"{word}: no clips in this folder (expected: {wanted})")
            found += clips
        elif any(map(os.path.isdir, matched := matches(word) or ())):
            found += _matched(matched)
        else:
            found += list_images([word], stdin)
    return [clip_at(one) if isinstance(one, str) else one for one in found]


def _matched(paths: Collection[str]) -> list[str | Unreadable]:
    """The clips that a pattern matched; a folder without one is told when it is read."""
    folders = tuple(os.path.join(path, "") for path in paths if os.path.isdir(path))
    outer = sorted((path for path in paths if not path.startswith(folders)), key=natural_order)
    clips: list[str | Unreadable] = []
    for path in outer:
        clips += (_clips_in(path) or [path]) if os.path.isdir(path) else [path]
    return clips


def _clips_in(folder: str) -> list[str | Unreadable]:
    closed: list[OSError] = []
    clips: dict[str, str | Unreadable] = {}
    named_so: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=closed.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        named_so += [os.path.join(parent, name) for name in folders if is_frame(name)]
        images = [name for name in files if is_frame(name)]
        moving = [name for name in images if name.lower().endswith(ANIMATIONS)]
        found = [os.path.join(parent, name) for name in moving] if len(moving) == len(images) else [parent]
        clips |= {path: path for path in found}
    for path in named_so:
        if not any(clip.startswith((os.path.join(path, ""), path)) for clip in clips):
            clips[path] = Unreadable(path, "a folder, not an image file")
    for error in closed:
        clips[str(error.filename)] = Unreadable(str(error.filename), error.strerror or type(error).__name__)
    return [clips[path] for path in sorted(clips, key=natural_order)]
