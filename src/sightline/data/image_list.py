"""Which image files a command line means: files, folders, patterns that no shell expanded, a list on standard input;
and which a folder of a data set holds, under which split and class."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from sightline.data.allowance import Unreadable
from sightline.data.encoded import Encoded
from sightline.data.file_listing import FileListing
from sightline.errors import InputError, UnreadableDataError
from sightline.reading import ROWS

STDIN = "-"
IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SPLIT_FOLDERS = ("train", "minival", "val", "validation", "test")
_NOT_A_FILE = (-1, -1, -1)


def list_images(given: Iterable[str], stdin: BinaryIO | None = None) -> list[str | Encoded | Unreadable]:
    """The image files that words name, in the order of the words; a file named twice is there twice.

    A folder stands for the files in it and below it that end in `IMAGE_SUFFIXES`, in natural order (2 before 10);
    hidden ones are passed over and links to folders not followed. A word with `*`, `?` or `[` that is no path itself
    stands for the files that match, in natural order, whatever they end in; `**` stands for any folders, links not
    followed. `-` stands for a list on standard input, a path a line, each taken as it is. A data set of files, as
    `wds:SHARDS`, stands for all its images in the order of its listing. Any other word is a file, there or not.

    Args:
        given: the words; paths that are not UTF-8 hold surrogates, as `os.fsdecode` makes them.
        stdin: where the list of `-` comes from, as bytes.

    Returns:
        The paths, or where the bytes are, and in their place the folders inside a folder that could not be read.

    Raises:
        InputError: a folder without an image, a pattern without a match, an empty list, or `-` more than once.
    """
    words = list(given)
    check_stdin(words)
    return [image for word in words for image in _images_of(word, stdin)]


def check_stdin(words: Sequence[str]) -> None:
    """Refuse `-` more than once, by an InputError."""
    if words.count(STDIN) > 1:
        raise InputError(f"{STDIN}: stands for standard input, which can be read once, not {words.count(STDIN)} times")


def _images_of(word: str, stdin: BinaryIO | None) -> Sequence[str | Encoded | Unreadable]:
    if not word:
        raise InputError("an empty word among the images (expected: a file, a folder, a pattern, or - for a list)")
    if word == STDIN:
        return _listed(stdin)
    if images := images_of_set(word):
        return images
    if os.path.isdir(word):
        return _below(word)
    if (found := matches(word)) is not None:
        files = [path for path in found if not os.path.isdir(path)]
        if not files:
            raise InputError(f"{word}: no file matches this pattern")
        return sorted(files, key=natural_order)
    return [word]


def images_of_set(word: str) -> list[str | Encoded]:
    """All images of the data set of files that a word names, as `wds:SHARDS`; none where it names none.

    Raises:
        InputError: its images are no files, or as it is opened.
    """
    # They find their files by this module.
    from sightline.data.discovery import list_sources, open_source, taken_apart
    from sightline.data.stored import StoredImages

    name, argument, _ = taken_apart(word)
    if os.path.lexists(word) or not argument or name not in list_sources():
        return []
    source = open_source(word)
    if not isinstance(source, StoredImages):
        raise InputError(f"{word}: its images are drawn, and are no files (expected a data set of files, or files)")
    found: list[str | Encoded] = []
    for row in source.images:
        image = source.listing.image(row)
        if isinstance(image, Encoded):
            image.stamp = tuple(source.listing.stamps[row].tolist())
        found.append(image if isinstance(image, Encoded) else os.fspath(image))
    return found


def _listed(stdin: BinaryIO | None) -> list[str]:
    content = b"" if stdin is None else stdin.read(ROWS + 1)
    if len(content) > ROWS:
        raise InputError(f"{STDIN}: standard input holds more than {ROWS} bytes (expected: paths, one a line)")
    # As bytes: a file's name may be in no encoding at all.
    paths = [os.fsdecode(line.rstrip(b"\r")) for line in content.split(b"\n") if line.strip()]
    if not paths:
        raise InputError(f"{STDIN}: standard input holds no paths (expected: one a line)")
    return paths


def _below(folder: str) -> list[str | Unreadable]:
    closed: list[OSError] = []
    found: dict[str, str | Unreadable] = {}
    named_so: list[str] = []
    for parent, folders, files in os.walk(folder, onerror=closed.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        images = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith(".")]
        found |= {path: path for path in (os.path.join(parent, name) for name in images)}
        named_so += [os.path.join(parent, name) for name in folders if name.lower().endswith(IMAGE_SUFFIXES)]
    for path in named_so:
        # With images in it, it is a folder like others.
        if not any(image.startswith(os.path.join(path, "")) for image in found):
            found[path] = Unreadable(path, "a folder, not an image file")
    for error in closed:
        found[str(error.filename)] = Unreadable(str(error.filename), error.strerror or type(error).__name__)
    if not found:
        raise InputError(f"{folder}: no images in this folder (expected: files ending in {', '.join(IMAGE_SUFFIXES)})")
    return [found[path] for path in sorted(found, key=natural_order)]


def matches(word: str) -> set[str] | None:
    """What a pattern matches, folders too; None where the word is none. A file may have such a name itself: it wins."""
    return _found(word) if glob.has_magic(word) and not os.path.lexists(word) else None


def _found(pattern: str) -> set[str]:
    """As glob.glob, which for `**` also follows links to folders, and in a ring of them never ends."""
    walk = re.search(r"(^|/)\*\*(/|$)", pattern)
    if walk is None:
        return set(glob.glob(pattern))
    head, rest = pattern[: walk.end(1)], pattern[walk.end() :] or "*"
    found: set[str] = set()
    for root in glob.glob(head) if head else [os.curdir]:
        for parent, folders, _ in os.walk(root):
            folders[:] = [name for name in folders if not name.startswith(".")]
            inside = parent if head else os.path.relpath(parent).removeprefix(os.curdir)
            found |= _found(os.path.join(glob.escape(inside), rest))
    return found


def natural_order(path: str) -> tuple[list[str | int], str]:
    """A key that sorts as people count: `img2` before `img10`; equal ones (`img2`, `img02`) by their characters."""
    # Texts and numbers take turns, beginning with a text, so that like is compared with like.
    return [int(part) if index % 2 else part for index, part in enumerate(re.split("([0-9]+)", path))], path


class Listed(NamedTuple):
    """What is listed and is no file of its own, as a folder of frames; `stamp` as a `FileListing` keeps it."""

    path: str
    stamp: tuple[int, int, int]


Entry = os.DirEntry[str] | Listed


def scan(
    root: Path, below: Callable[[Path, list[Unreadable]], Iterable[Entry]] | None = None, things: str = "images"
) -> tuple[tuple[str, ...], FileListing, list[int], tuple[Unreadable, ...]]:
    """Find the images of `root/SPLIT/CLASS/**` or of `root/CLASS/**`, by their extensions; no image is opened.

    The classes are those of `train`, or where there is no `train` those of all splits together.

    Args:
        below: what finds the examples of a class folder, as `images_below` does, which is the default; things: what
            they are called.

    Returns:
        The names of the classes, sorted; the images of all splits, split by split ("test" alone where the folder holds
        class folders directly), sorted by path; the label of each; and what was passed over: hidden files, unknown
        extensions, what is not in a class or split folder.

    Raises:
        InputError: no such folder, no class folder, a class folder without an image, or a class that `train` lacks.
        UnreadableDataError: a folder may not be read.
    """
    if not root.is_dir():
        raise InputError(f"{root}: no such folder (expected: SPLIT/CLASS/{things} or CLASS/{things} in it)")
    top = _folders(root)
    splits = {name: root / name for name in SPLIT_FOLDERS if name in top} or {"test": root}
    skipped = []
    if root not in splits.values():
        skipped += [Unreadable(str(root / name), "not a split") for name in top if name not in splits]
    below = below or images_below
    found: dict[str, dict[str, list[Entry]]] = {}
    for split, folder in splits.items():
        skipped += [
            Unreadable(entry.path, "not in a class folder") for entry in entries_of(folder) if not entry.is_dir()
        ]
        part = {name: list(below(folder / name, skipped)) for name in _folders(folder)}
        if not part:
            raise InputError(f"{folder}: no class folders in it (expected: CLASS/{things})")
        empty = [name for name, entries in part.items() if not entries]
        if empty:
            raise InputError(
                f"{folder / empty[0]}: no {things} in this class folder ({len(empty)} of {len(part)} class folders are "
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
                (
                    entry.path,
                    f"{split}/{name}{entry.path[above:]}",
                    labels[name],
                    entry.stamp if isinstance(entry, Listed) else stamp_of(entry),
                )
                for entry in entries
            ]
        files += sorted(listed)
    paths, names, numbers, stamps = map(list, zip(*files, strict=True))
    return classes, FileListing(names, paths, np.array(stamps, np.int64)), numbers, tuple(skipped)


def stamp_of(entry: os.DirEntry[str] | Path) -> tuple[int, int, int]:
    """What a `FileListing` keeps in `stamps`."""
    try:
        status = entry.stat()
    # The name of a table's image may be none for the system.
    except (OSError, ValueError):
        return _NOT_A_FILE
    regular = stat.S_ISREG(status.st_mode)
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns) if regular else _NOT_A_FILE


def entries_of(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder, sorted by name; raises UnreadableDataError where it may not be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UnreadableDataError(f"{folder}: {error.strerror}") from None


def _folders(folder: Path) -> list[str]:
    return [entry.name for entry in entries_of(folder) if entry.is_dir() and not entry.name.startswith(".")]


def images_below(
    folder: Path, skipped: list[Unreadable], suffixes: tuple[str, ...] = IMAGE_SUFFIXES
) -> Iterator[os.DirEntry[str]]:
    """The images in a folder and the folders in it; links to folders are not followed, since they may form a ring.

    Args:
        skipped: what is passed over is added: hidden files, and those that end in none of `suffixes`.

    Raises:
        UnreadableDataError: a folder may not be read.
    """
    for entry in entries_of(folder):
        if entry.name.startswith("."):
            skipped.append(Unreadable(entry.path, "hidden"))
        # A folder or a broken link with an image's name is kept: to pass it over would hide a fault.
        elif entry.name.lower().endswith(suffixes):
            yield entry
        elif entry.is_dir(follow_symlinks=False):
            yield from images_below(Path(entry.path), skipped, suffixes)
        else:
            skipped.append(Unreadable(entry.path, "unknown extension"))
