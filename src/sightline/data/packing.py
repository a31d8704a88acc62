"""Images of any lengths into sequences, as pure functions of token counts; and fixed lengths that packs are padded to,
for compilers that make a program for each shape."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sightline.errors import InputError, require_known
from sightline.io.config import Count, check_value

# A sequence this full is not held back for an image that might fill it better.
FULL = 0.99

Sequences = list[list[int]]
"""For each sequence the numbers of its images, in the order in which they were put there."""


def first_fit(lengths: Sequence[int], capacity: int, most_images: int | None = None) -> Sequences:
    """Each image of so many tokens, in the order in which they come, into the first sequence of `capacity` tokens, and
    of at most so many images (E_max), with enough room (NaViT appendix B.3)."""
    sequences, room = list[list[int]](), list[int]()
    for image, length in enumerate(lengths):
        number = next((one for one, left in enumerate(room) if left >= length), len(room))
        if number == len(room):
            sequences.append([])
            room.append(capacity)
        sequences[number].append(image)
        room[number] = 0 if len(sequences[number]) == most_images else room[number] - length
    return sequences


def best_fit(lengths: Sequence[int], capacity: int, most_images: int | None = None) -> Sequences:
    """As `first_fit`, but the longest image first, each into the sequence that it leaves least room in (best-fit
    decreasing)."""
    sequences = list[list[int]]()
    # (room, sequence), rising: the first with enough room is the one that fits best.
    rooms: list[tuple[int, int]] = []
    for image in sorted(range(len(lengths)), key=lambda one: (-lengths[one], one)):
        length = lengths[image]
        at = bisect.bisect_left(rooms, (length, 0))
        room, number = rooms.pop(at) if at < len(rooms) else (capacity, len(sequences))
        if number == len(sequences):
            sequences.append([])
        sequences[number].append(image)
        if room > length and len(sequences[number]) != most_images:
            bisect.insort(rooms, (room - length, number))
    return sequences


PACKERS = {"first_fit": first_fit, "best_fit": best_fit}


def pack_window(
    lengths: Mapping[int, int],
    capacity: int,
    *,
    seen: int = 0,
    how: str = "first_fit",
    most_images: int | None = None,
    last: bool = False,
) -> Sequences:
    """The sequences of some images of a stream that are full enough; each image is in one of them, or waits.

    What is packed to less than 99 % waits for the next images, but never twice. Sequences come in the order of their
    earliest images, so that no packer sorts a stream by length.

    Args:
        lengths: number in the stream -> tokens, rising.
        seen: the images below this number waited.
        how: `first_fit` or `best_fit`; capacity, most_images: as there.
        last: nothing waits, since nothing comes after.

    Raises:
        InputError: an image is longer than a sequence; names it. Or the packer is not known.
    """
    require_known("packing", how, PACKERS)
    for number, length in lengths.items():
        if length > capacity:
            raise InputError(f"image {number}: has {length} tokens, and a sequence {capacity}; lower the resolution")
    numbers, sequences = list(lengths), []
    for places in PACKERS[how](list(lengths.values()), capacity, most_images):
        images = [numbers[place] for place in places]
        full = sum(lengths[image] for image in images) >= FULL * capacity or len(images) == most_images
        if last or full or min(images) < seen:
            sequences.append(images)
    return sorted(sequences, key=min)


def bucket_lengths(packs: Iterable[int], count: int) -> tuple[int, ...]:
    """The rising lengths, `count` at most, that need the fewest padding slots for these packs, found exactly (equal
    steps would not do: packs of a token budget are nearly as long as each other).

    A pack is said by its slots, prefix tokens included; raises InputError where no length is asked for, or there is no
    pack.
    """
    check_value("bucket count", count, Count)
    slots, packs_of = np.unique(np.fromiter(packs, np.int64), return_counts=True)
    if not len(slots):
        raise InputError("bucket lengths: there is no pack to choose them for")
    # Padding of packs i to j at length j: slots[j] x how many they are, less their own slots.
    many, total = (np.concatenate(([0], np.cumsum(one))) for one in (packs_of, packs_of * slots))
    least = np.where(np.arange(len(slots) + 1) == 0, 0.0, np.inf)
    before: list[np.ndarray] = []
    for _ in range(min(count, len(slots))):
        costs = [
            least[: j + 1] + slots[j] * (many[j + 1] - many[: j + 1]) - (total[j + 1] - total[: j + 1])
            for j in range(len(slots))
        ]
        before.append(np.array([0, *(cost.argmin() for cost in costs)]))
        least = np.array([0.0, *(cost.min() for cost in costs)])
    lengths, end = [], len(slots)
    for start in reversed(before):
        if end:
            lengths.append(int(slots[end - 1]))
            end = int(start[end])
    return tuple(reversed(lengths))


def padded_length(slots: int, lengths: Sequence[int]) -> int:
    """The least of some rising lengths that holds a pack of so many slots, prefix tokens included; raises InputError
    where none does."""
    number = bisect.bisect_left(lengths, slots)
    if number == len(lengths):
        raise InputError(f"pack of {slots} slots: the greatest bucket length is {lengths[-1] if lengths else 'none'}")
    return lengths[number]


def padding_share(packs: Iterable[int], lengths: Sequence[int]) -> float:
    """The part of all slots that is padding once each pack, of so many slots, is padded: the cost of fixed lengths,
    from 0 to 1; raises as `padded_length`."""
    slots = list(packs)
    padded = sum(padded_length(one, lengths) for one in slots)
    return 1 - sum(slots) / padded if padded else 0.0
