"""A few fixed lengths that packs are padded to, for compilers that make a program for each shape; and what it costs."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

import numpy as np

from sightline.checks import require_whole
from sightline.errors import InputError


def bucket_lengths(packs: Iterable[int], count: int) -> tuple[int, ...]:
    """The rising lengths that need the fewest padding slots for these packs, found exactly.

    Equal steps would not do: packs of a token budget are nearly as long as each other.

    Args:
        packs: slots of each pack, prefix tokens included (`TokenLayout.slots`); what is padded later must not be longer
            than the longest of them.
        count: of lengths, at most; packs of fewer different lengths need no more.

    Raises:
        InputError: no length is asked for, or there is no pack.
    """
    require_whole("bucket count", count, 1)
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
    """The least of some rising lengths that holds a pack.

    Args:
        slots: of the pack, prefix tokens included.

    Raises:
        InputError: none does; names the greatest.
    """
    place = bisect.bisect_left(lengths, slots)
    if place == len(lengths):
        raise InputError(f"pack of {slots} slots: the greatest bucket length is {lengths[-1] if lengths else 'none'}")
    return lengths[place]


def padding_share(packs: Iterable[int], lengths: Sequence[int]) -> float:
    """The part of all slots that is padding once each pack is padded: the cost of fixed lengths, from 0 to 1.

    Args:
        packs: slots of each pack.

    Raises:
        InputError: as `padded_length`.
    """
    used = padded = 0
    for slots in packs:
        used += slots
        padded += padded_length(slots, lengths)
    return 1 - used / padded if padded else 0.0
