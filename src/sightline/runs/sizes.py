"""Sizes as they are written on the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from sightline.data.sizes import MOST_FRAMES, View
from sightline.errors import InputError, did_you_mean

T = TypeVar("T", int, float)


def split_words(given: Iterable[Any] | Any) -> list[str]:
    """The words of an option, with commas or spaces between them; from Python also numbers, views, or one word."""
    parts = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    texts = (one.name if isinstance(one, View) else str(one) for one in parts)
    return [word for text in texts for word in re.split(r"[,\s]+", text) if word]


def parse_numbers(option: str, given: Iterable[str], kind: type[T], expected: str) -> tuple[T, ...]:
    """Numbers, whole or not, from "16,64" or several words.

    Raises:
        InputError: a word is none, as `expected` says.
    """
    found = []
    for word in split_words(given):
        try:
            # A whole one has no sign, and not more digits than any number of patches.
            found.append(kind(word if kind is not int or re.fullmatch(r"[0-9]{1,9}", word) else ""))
        except ValueError:
            raise InputError(f"{option} {word}: expected {expected}") from None
    return tuple(found)


def parse_frames(given: Iterable[str]) -> tuple[int, ...]:
    """Numbers of frames from "4,8,16" or several words, in rising order, each once.

    Raises:
        InputError: a word is no whole number from 1 to `MOST_FRAMES`.
    """
    expected = f"whole numbers of frames from 1 to {MOST_FRAMES}, as 4,8,16"
    found = sorted(set(parse_numbers("--frames", given, int, expected)))
    for one in found:
        if not 1 <= one <= MOST_FRAMES:
            raise InputError(f"--frames {one}: expected {expected}")
    return tuple(found)


def parse_resolutions(given: Iterable[Any], patch_size: int | None = None) -> tuple[int | View, ...]:
    """Square sides in pixels and views from "32,64,native" or several words: sides first, in rising order, each once.

    Args:
        patch_size: of the model, by which "64:1024" stands for sizes from 64 to 1024 pixels, half an octave from one to
            the next (64, 91, 128, 181, ...), each at the nearest multiple of the patch that lies in the range.

    Raises:
        InputError: a word is neither a whole number of at least 1 nor native, max:PATCHES or tokens:PATCHES; or a range
            falls, or holds no multiple of the patch.
    """
    sides, views = set[int](), set[View]()
    for word in split_words(given):
        view = View.parse(word)
        if view is not None:
            views.add(view)
        elif re.fullmatch(r"0*[1-9][0-9]{0,8}", word):
            sides.add(int(word))
        elif patch_size is not None and (ends := _pair(word, ":")) is not None:
            sides |= _half_octaves(word, ends, patch_size)
        else:
            raise InputError(
                f"--resolutions {word}: expected whole numbers of pixels, native, max:PATCHES or tokens:PATCHES, as "
                f"32,64,148 or native,tokens:256{did_you_mean(word, ['native', 'max:4096', 'tokens:256'])}"
            )
    return (*sorted(sides), *sorted(views))


def _half_octaves(word: str, ends: tuple[int, int], patch_size: int) -> set[int]:
    low, high = -(-ends[0] // patch_size), ends[1] // patch_size
    if not low <= high or high * patch_size >= 1_000_000_000:
        raise InputError(
            f"--resolutions {word}: expected LOW:HIGH in pixels with a multiple of the patch, {patch_size}, between"
        )
    steps = math.ceil(2 * math.log2(ends[1] / ends[0]) - 1e-9)
    wanted = [ends[0] * 2 ** (step / 2) for step in range(steps)] + [ends[1]]
    return {min(max(round(one / patch_size), low), high) * patch_size for one in wanted}


def parse_sizes(
    given: Iterable[str], option: str = "--resolutions", example: str = "32,96x192"
) -> list[tuple[int, int]]:
    """(height, width) pairs from "32,96x192", in the order given.

    Raises:
        InputError: a word is neither a side nor height x width, or none is given.
    """
    sizes = []
    # An empty word is none, too.
    for word in (word for part in given for word in split_words([part]) or [part]):
        size = _pair(word, "x")
        if size is None:
            raise InputError(f"{option} {word}: expected sides or height x width in pixels, as {example}")
        sizes.append(size)
    return sizes


def parse_size(given: str) -> tuple[int, int]:
    """(height, width) from "384" or "384x512".

    Raises:
        InputError: it is neither a side nor height x width.
    """
    size = _pair(given, "x")
    if size is None:
        raise InputError(f"--resolution {given}: expected a side or height x width in pixels, as 384 or 384x512")
    return size


def parse_view(given: str) -> tuple[tuple[int, int] | Literal["native", "tokens"], int | None]:
    """How images are shown to a model, from "native", "max:4096", "tokens:256", "384" or "384x512".

    Returns:
        (height, width) and None; or "native" and the most patches of an image, or "tokens" and how many it shall have.

    Raises:
        InputError: it is none of these.
    """
    if (view := View.parse(given)) is not None:
        return view.kind, view.patches
    size = _pair(given, "x")
    if size is None:
        raise InputError(
            f"--resolution {given}: expected native, max:PATCHES, tokens:PATCHES, a side or height x width in pixels, "
            f"as max:4096, tokens:256, 384 or 384x512{did_you_mean(given, ['native', 'max:4096', 'tokens:256'])}"
        )
    return size, None


def parse_range(given: str) -> tuple[int, int]:
    """(lowest, highest) side in pixels from "64..384", or one side twice from "224".

    Raises:
        InputError: it is neither, or falls.
    """
    sides = _pair(given, r"\.\.")
    if sides is None or not sides[0] <= sides[1] < 1_000_000_000:
        raise InputError(f"--resolutions {given}: expected native, or sides in pixels as 64..384 or 224")
    return sides


def _pair(word: str, between: str) -> tuple[int, int] | None:
    """Two whole numbers of at least 1, or one twice; None where it is neither."""
    # Python reads no number of thousands of digits, and no image has a side of a hundred.
    match = re.fullmatch(rf"0*([1-9][0-9]{{0,99}})(?:{between}0*([1-9][0-9]{{0,99}}))?", word)
    return (int(match[1]), int(match[2] or match[1])) if match else None
