"""Which image files a folder holds, under which split and class."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sightline.data.allowance import Unreadable
from sightline.data.file_listing import FileListing, FileStamp
from sightline.errors import InputError, UnreadableDataError

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SPLIT_FOLDERS = ("train", "minival", "val", "validation", "test")


def scan(root: Path) -> tuple[tuple[str, ...], FileListing, list[int], tuple[Unreadable, ...]]:
    """Find the images of `root/SPLIT/CLASS/**` or of `root/CLASS/**`, by their extensions; no image is opened.

    The classes are those of `train`, or where there is no `train` those of all splits together.

    Returns:
        The names of the classes, sorted; the images of all splits, split by split ("test" alone where the folder holds
        class folders directly), sorted by path; the label of each; and what was passed over: hidden files, unknown
        extensions, what is not in a class or split folder.

    Raises:
        InputError: no such folder, no class folder, a class folder without an image, or a class that `train` lacks.
        UnreadableDataError: a folder may not be read.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder (expected: SPLIT/CLASS/images or CLASS/images in it)")
    top = _folders(root)
    splits = {name: root / name for name in SPLIT_FOLDERS if name in top} or {"test": root}
    skipped = []
    if root not in splits.values():
        skipped += [Unreadable(str(root / name), "not a split") for name in top if name not in splits]
    found: dict[str, dict[str, list[os.DirEntry[str]]]] = {}
    for split, folder in splits.items():
        skipped += [Unreadable(entry.path, "not in a class folder") for entry in _entries(folder) if not entry.is_dir()]
        part = {name: list(_images(folder / name, skipped)) for name in _folders(folder)}
        if not part:
            raise InputError(f"{folder}: no class folders in it (expected: CLASS/images)")
        empty = [name for name, entries in part.items() if not entries]
        if empty:
            raise InputError(
                f"{folder / empty[0]}: no images in this class folder ({len(empty)} of {len(part)} class folders are "
                f"empty; expected: files ending in {', '.join(IMAGE_SUFFIXES)})"
            )
        found[split] = part
    classes = tuple(sorted(found["train"] if "train" in found else {name for part in found.values() for name in part}))
    labels = {name: label for label, name in enumerate(classes)}
    files = []
    for split, part in found.items():
        unknown = sorted(set(part) - set(labels))
        if unknown:
            raise InputError(
                f"{splits[split]}: class folders that {root / 'train'} lacks: {', '.join(unknown[:5])} "
                f"({len(unknown)} in all; expected: the same names or fewer)"
            )
        listed = []
        for name, entries in part.items():
            above = len(str(splits[split] / name))
            listed += [
                (entry.path, f"{split}/{name}{entry.path[above:]}", labels[name], _stamp(entry)) for entry in entries
            ]
        files += sorted(listed)
    paths, names, numbers, stamps = map(list, zip(*files, strict=True))
    return classes, FileListing(names, paths, np.array(stamps, np.int64)), numbers, tuple(skipped)


def _stamp(entry: os.DirEntry[str]) -> FileStamp:
    try:
        status = entry.stat()
    except OSError:
        return FileStamp()
    regular = stat.S_ISREG(status.st_mode)
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns) if regular else FileStamp()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UnreadableDataError(f"{folder}: {error.strerror}") from None


def _folders(folder: Path) -> list[str]:
    return [entry.name for entry in _entries(folder) if entry.is_dir() and not entry.name.startswith(".")]


def _images(folder: Path, skipped: list[Unreadable]) -> Iterator[os.DirEntry[str]]:
    """The images in a folder and the folders in it; links to folders are not followed, since they may form a ring."""
    for entry in _entries(folder):
        if entry.name.startswith("."):
            skipped.append(Unreadable(entry.path, "hidden"))
        # A folder or a broken link with an image's name is kept: to pass it over would hide a fault.
        elif entry.name.lower().endswith(IMAGE_SUFFIXES):
            yield entry
        elif entry.is_dir(follow_symlinks=False):
            yield from _images(Path(entry.path), skipped)
        else:
            skipped.append(Unreadable(entry.path, "unknown extension"))
