"""Images of any lengths into sequences: pure functions of token counts; no image and no tensor.

Every image given is in exactly one sequence: none is lost, and one that cannot be held is refused by its number.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from sightline.checks import require, require_whole
from sightline.errors import InputError

# A sequence this full is not held back for an image that might fill it better.
FULL = 0.99

Sequences = list[list[int]]
"""For each sequence the numbers of its images, in the order in which they were put there."""


def first_fit(lengths: Sequence[int], capacity: int, most_images: int | None = None) -> Sequences:
    """Each image into the first sequence with enough room (NaViT appendix B.3).

    Args:
        lengths: tokens of each image, in the order in which they come; none is longer than a sequence.
        capacity: the length of a sequence.
        most_images: in a sequence (the paper's E_max); an image that finds only such sequences opens a new one.
    """
    sequences: Sequences = []
    room: list[int] = []
    # Those before it are full.
    first = 0
    for image, length in enumerate(lengths):
        place = next((one for one in range(first, len(sequences)) if room[one] >= length), len(sequences))
        if place == len(sequences):
            sequences.append([])
            room.append(capacity)
        sequences[place].append(image)
        room[place] = 0 if len(sequences[place]) == most_images else room[place] - length
        while first < len(sequences) and room[first] == 0:
            first += 1
    return sequences


def best_fit(lengths: Sequence[int], capacity: int, most_images: int | None = None) -> Sequences:
    """The longest image first, each into the sequence that it leaves least room in (best-fit decreasing).

    Args: as `first_fit`.
    """
    sequences: Sequences = []
    # (room, sequence), rising: the first with enough room is the one that fits best.
    open_ones: list[tuple[int, int]] = []
    for image in sorted(range(len(lengths)), key=lambda one: (-lengths[one], one)):
        length = lengths[image]
        at = bisect.bisect_left(open_ones, (length, 0))
        room, place = open_ones.pop(at) if at < len(open_ones) else (capacity, len(sequences))
        if place == len(sequences):
            sequences.append([])
        sequences[place].append(image)
        if room > length and len(sequences[place]) != most_images:
            bisect.insort(open_ones, (room - length, place))
    return sequences


PACKERS = {"first_fit": first_fit, "best_fit": best_fit}


def pack_window(
    waiting: Sequence[tuple[int, int]],
    fresh: Sequence[tuple[int, int]],
    capacity: int,
    *,
    how: str = "first_fit",
    most_images: int | None = None,
    last: bool = False,
) -> tuple[list[tuple[int, ...]], list[tuple[int, int]]]:
    """The sequences of some images of a stream from which nothing is gained by waiting, and the images that wait.

    What is packed to less than 99 % waits for the next images, but never twice. Sequences come in the order of their
    earliest images, so that no packer sorts a stream by length.

    Args:
        waiting, fresh: (number in the stream, tokens) of the images that waited, and of the next ones.
        how: `first_fit` or `best_fit`; capacity, most_images: as there.
        last: nothing waits, since nothing comes after.

    Returns:
        The numbers of each sequence's images, and what waits, both rising.

    Raises:
        InputError: an image is longer than a sequence, or has no token; names it. Or the packer is not known, or a
            number is out of range.
    """
    require("packing", how, PACKERS)
    require_whole("sequence length", capacity, 1)
    if most_images is not None:
        require_whole("most_images", most_images, 1)
    known = [*waiting, *fresh]
    for number, length in known:
        if length < 1:
            raise InputError(f"image {number}: has {length} tokens, expected at least 1")
        if length > capacity:
            raise InputError(f"image {number}: has {length} tokens, and a sequence {capacity}; lower the resolution")
    late = {number for number, _ in waiting}
    sequences, left = [], []
    for images in PACKERS[how]([length for _, length in known], capacity, most_images):
        chosen = [known[image] for image in images]
        done = sum(length for _, length in chosen) >= FULL * capacity or len(images) == most_images
        if last or done or any(number in late for number, _ in chosen):
            sequences.append(tuple(number for number, _ in chosen))
        else:
            left += chosen
    return sorted(sequences, key=min), sorted(left)
