"""Which image files a command line means: files, folders, patterns that no shell expanded, a list on standard input."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from typing import BinaryIO

from sightline.data.allowance import Unreadable
from sightline.data.folder_scan import IMAGE_SUFFIXES
from sightline.errors import InputError
from sightline.reading import ROWS

STDIN = "-"


def list_images(given: Iterable[str], stdin: BinaryIO | None = None) -> list[str | Unreadable]:
    """The image files that words name, in the order of the words; a file named twice is there twice.

    A folder stands for the files in it and below it that end in `IMAGE_SUFFIXES`, in natural order (2 before 10);
    hidden ones are passed over and links to folders not followed. A word with `*`, `?` or `[` that is no path itself
    stands for the files that match, in natural order, whatever they end in; `**` stands for any folders, links not
    followed. `-` stands for a list on standard input, a path a line, each taken as it is. Any other word is a file,
    there or not.

    Args:
        given: the words; paths that are not UTF-8 hold surrogates, as `os.fsdecode` makes them.
        stdin: where the list of `-` comes from, as bytes.

    Returns:
        The paths, and in their place the folders inside a folder that could not be read.

    Raises:
        InputError: a folder without an image, a pattern without a match, an empty list, or `-` more than once.
    """
    words = list(given)
    if words.count(STDIN) > 1:
        raise InputError(f"{STDIN}: stands for standard input, which can be read once, not {words.count(STDIN)} times")
    return [image for word in words for image in _images_of(word, stdin)]


def _images_of(word: str, stdin: BinaryIO | None) -> list[str] | list[str | Unreadable]:
    if not word:
        raise InputError("an empty word among the images (expected: a file, a folder, a pattern, or - for a list)")
    if word == STDIN:
        return _listed(stdin)
    if os.path.isdir(word):
        return _below(word)
    # A file may have such a name itself: it wins.
    if glob.has_magic(word) and not os.path.lexists(word):
        return _matches(word)
    return [word]


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


def _matches(pattern: str) -> list[str]:
    files = [path for path in _found(pattern) if not os.path.isdir(path)]
    if not files:
        raise InputError(f"{pattern}: no file matches this pattern")
    return sorted(files, key=natural_order)


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
