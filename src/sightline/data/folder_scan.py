"""Which image files a folder holds, under which split and class."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sightline.data.source import Unreadable
from sightline.errors import InputError, UnreadableDataError

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SPLIT_FOLDERS = ("train", "minival", "val", "validation", "test")
_TAIL = 4096


@dataclass(frozen=True, slots=True)
class FolderScan:
    """The files of a folder.

    Attributes:
        classes: names of the class folders, sorted.
        files: folder of a split -> (path, label) of its images, sorted by path; the one key "test" where the folder
            holds class folders directly.
        skipped: what was passed over: hidden files, unknown extensions, what is not in a class or split folder.
    """

    classes: tuple[str, ...]
    files: dict[str, tuple[tuple[str, int], ...]]
    skipped: tuple[Unreadable, ...]


def scan(root: Path) -> FolderScan:
    """Find the images of `root/SPLIT/CLASS/**` or of `root/CLASS/**`, by their extensions; no image is opened.

    The classes are those of `train`, or where there is no `train` those of all splits together.

    Raises:
        InputError: no such folder, no class folder, a class folder without an image, a class that `train` lacks, or
            a file that stands in two splits.
        UnreadableDataError: a folder may not be read.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder (expected: SPLIT/CLASS/images or CLASS/images in it)")
    top = _folders(root)
    splits = {name: root / name for name in SPLIT_FOLDERS if name in top} or {"test": root}
    others = [] if root in splits.values() else [name for name in top if name not in splits]
    skipped = [Unreadable(str(root / name), "not a split") for name in others]
    found: dict[str, dict[str, list[str]]] = {}
    for split, folder in splits.items():
        skipped += [Unreadable(entry.path, "not in a class folder") for entry in _entries(folder) if not entry.is_dir()]
        found[split] = {name: sorted(_images(folder / name, skipped)) for name in _folders(folder)}
        _check_filled(folder, found[split])
    classes = tuple(sorted(found["train"] if "train" in found else {name for part in found.values() for name in part}))
    labels = {name: label for label, name in enumerate(classes)}
    for split, part in found.items():
        unknown = sorted(set(part) - set(labels))
        if unknown:
            raise InputError(
                f"{splits[split]}: class folders that {root / 'train'} lacks: {', '.join(unknown[:5])} "
                f"({len(unknown)} in all; expected: the same names or fewer)"
            )
    files = {
        split: tuple(sorted((path, labels[name]) for name, paths in part.items() for path in paths))
        for split, part in found.items()
    }
    check_disjoint({split: [path for path, _ in part] for split, part in files.items()})
    return FolderScan(classes, files, tuple(skipped))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UnreadableDataError(f"{folder}: {error.strerror}") from None


def _folders(folder: Path) -> list[str]:
    return [entry.name for entry in _entries(folder) if entry.is_dir() and not entry.name.startswith(".")]


def _images(folder: Path, skipped: list[Unreadable]) -> Iterator[str]:
    """The images in a folder and the folders in it; links to folders are not followed, since they may form a ring."""
    for entry in _entries(folder):
        if entry.name.startswith("."):
            skipped.append(Unreadable(entry.path, "hidden"))
        # A folder or a broken link with an image's name is kept: to pass it over would hide a fault.
        elif entry.name.lower().endswith(IMAGE_SUFFIXES):
            yield entry.path
        elif entry.is_dir(follow_symlinks=False):
            yield from _images(Path(entry.path), skipped)
        else:
            skipped.append(Unreadable(entry.path, "unknown extension"))


def _check_filled(folder: Path, part: dict[str, list[str]]) -> None:
    if not part:
        raise InputError(f"{folder}: no class folders in it (expected: CLASS/images)")
    empty = [name for name, paths in part.items() if not paths]
    if empty:
        raise InputError(
            f"{folder / empty[0]}: no images in this class folder ({len(empty)} of {len(part)} class folders are "
            f"empty; expected: files ending in {', '.join(IMAGE_SUFFIXES)})"
        )


def check_disjoint(splits: dict[str, list[str]]) -> None:
    """Refuse a file whose content stands in two splits.

    Only files of equal size can be equal: of those the last 4 KiB are compared, and only then the whole.

    Args:
        splits: name of a split -> paths. Files that cannot be read, and empty ones, are left for the reader to refuse.

    Raises:
        InputError: names the first such pair.
    """
    parts = [[(split, path) for split, paths in splits.items() for path in paths]]
    for key in (_size, _tail_digest, _digest):
        parts = [shared for part in parts for shared in _shared(part, key)]
    for (first_split, first), *others in parts:
        second_split, second = next(other for other in others if other[0] != first_split)
        raise InputError(
            f"{second}: the same image as {first}; the splits {first_split} and {second_split} overlap "
            "(expected: no file in two splits)"
        )


def _shared(part: list[tuple[str, str]], key: Callable[[str], object]) -> list[list[tuple[str, str]]]:
    """The (split, path) with an equal key that is not None, where they are of more than one split."""
    groups: dict[object, list[tuple[str, str]]] = defaultdict(list)
    for split, path in part:
        groups[key(path)].append((split, path))
    return [group for value, group in groups.items() if value is not None and len({split for split, _ in group}) > 1]


def _size(path: str) -> int | None:
    try:
        return (os.path.getsize(path) or None) if os.path.isfile(path) else None
    except OSError:
        return None


def _tail_digest(path: str) -> str | None:
    try:
        with open(path, "rb") as handle:
            handle.seek(-min(_TAIL, os.fstat(handle.fileno()).st_size), os.SEEK_END)
            return hashlib.sha256(handle.read()).hexdigest()
    except OSError:
        return None


def _digest(path: str) -> str | None:
    try:
        with open(path, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError:
        return None
