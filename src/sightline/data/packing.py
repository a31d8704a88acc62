"""Images of any lengths into sequences: pure functions of token counts; no image and no tensor.

Every image given is in exactly one sequence: none is lost, and one that cannot be held is refused by its number.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from sightline.errors import InputError, choose

LOOK_AHEAD = 1024
# A sequence this full is not held back for an image that might fill it better.
FULL = 0.99


@dataclass(frozen=True)
class Packing:
    """Which images share a sequence.

    Attributes:
        sequences: for each sequence the numbers of its images, in the order in which they were put there.
        lengths: tokens of each image that was given.
        capacity: tokens that a sequence has room for.
    """

    sequences: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    capacity: int

    def filled(self, sequence: int) -> int:
        """Tokens of the images of a sequence."""
        return sum(self.lengths[image] for image in self.sequences[sequence])

    @property
    def unused(self) -> float:
        """The part of the sequences' room without a token: padding where their length is fixed, else budget unspent."""
        room = len(self.sequences) * self.capacity
        return 1 - sum(map(self.filled, range(len(self.sequences)))) / room if room else 0.0


def first_fit(lengths: Sequence[int], capacity: int, most_images: int | None = None) -> Packing:
    """Each image into the first sequence with enough room (NaViT appendix B.3).

    Args:
        lengths: tokens of each image, in the order in which they come.
        capacity: the length of a sequence.
        most_images: in a sequence (the paper's E_max); an image that finds only such sequences opens a new one.

    Raises:
        InputError: an image is longer than a sequence, or has no token; names it.
    """
    _check(lengths, capacity, most_images)
    sequences: list[list[int]] = []
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
    return Packing(tuple(map(tuple, sequences)), tuple(lengths), capacity)


def best_fit(lengths: Sequence[int], capacity: int, most_images: int | None = None) -> Packing:
    """The longest image first, each into the sequence that it leaves least room in (best-fit decreasing).

    Args and errors: as `first_fit`.
    """
    _check(lengths, capacity, most_images)
    sequences: list[list[int]] = []
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
    return Packing(tuple(map(tuple, sequences)), tuple(lengths), capacity)


PACKERS: dict[str, Callable[[Sequence[int], int, int | None], Packing]] = {"first_fit": first_fit, "best_fit": best_fit}


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
        InputError: as the packer, or the name is not known.
    """
    if how not in PACKERS:
        raise choose("packing", how, PACKERS)
    for number, length in fresh:
        _check_length(number, length, capacity)
    known = [*waiting, *fresh]
    late = {number for number, _ in waiting}
    packing = PACKERS[how]([length for _, length in known], capacity, most_images)
    sequences, left = [], []
    for place, images in enumerate(packing.sequences):
        chosen = [known[image] for image in images]
        done = packing.filled(place) >= FULL * capacity or len(images) == most_images
        if last or done or any(number in late for number, _ in chosen):
            sequences.append(tuple(number for number, _ in chosen))
        else:
            left += chosen
    return sorted(sequences, key=min), sorted(left)


def pack_stream(
    lengths: Iterable[int],
    capacity: int,
    *,
    how: str = "first_fit",
    most_images: int | None = None,
    look_ahead: int = LOOK_AHEAD,
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Sequences from an endless stream, of which `look_ahead` images are known at a time: `pack_window`s.

    No image is more than two look-aheads late, and none is lost at the end.

    Args:
        lengths: tokens of each image; how, most_images: as `pack_window`.

    Yields:
        (number of the image in the stream, tokens) of each image of a sequence.

    Raises:
        InputError: as `pack_window`, or a number is out of range.
    """
    if how not in PACKERS:
        raise choose("packing", how, PACKERS)
    if look_ahead < 1:
        raise InputError(f"look_ahead {look_ahead}: must be at least 1")
    stream = enumerate(lengths)
    waiting: list[tuple[int, int]] = []
    while fresh := list(islice(stream, look_ahead)):
        length_of = dict([*waiting, *fresh])
        sequences, waiting = pack_window(waiting, fresh, capacity, how=how, most_images=most_images)
        for numbers in sequences:
            yield tuple((number, length_of[number]) for number in numbers)
    length_of = dict(waiting)
    for numbers in pack_window(waiting, [], capacity, how=how, most_images=most_images, last=True)[0]:
        yield tuple((number, length_of[number]) for number in numbers)


def _check(lengths: Sequence[int], capacity: int, most_images: int | None) -> None:
    if capacity < 1:
        raise InputError(f"sequence length {capacity}: must be at least 1")
    if most_images is not None and most_images < 1:
        raise InputError(f"most_images {most_images}: must be at least 1")
    for image, length in enumerate(lengths):
        _check_length(image, length, capacity)


def _check_length(image: int, length: int, capacity: int) -> None:
    if length < 1:
        raise InputError(f"image {image}: has {length} tokens, expected at least 1")
    if length > capacity:
        raise InputError(f"image {image}: has {length} tokens, and a sequence {capacity}; lower the resolution")
