"""The sentences of a comparison: each says what rows say, and no encoding is called better where intervals overlap."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.reports import words
from sightline.reports.comparison_tables import (
    TOP1,
    coefficient,
    largest,
    order,
    picked,
    quantity,
    signed,
    times,
    trained_at,
)
from sightline.reports.findings import CLEARLY
from sightline.results.comparison import ComparisonRow, DifferenceRow, MeanRow, RankRow, of_kind
from sightline.results.rows import wilson_interval


def findings(rows: Sequence[ComparisonRow]) -> list[str]:
    """What was found at the largest size, at that of the training, and of the order beside the paper's."""
    sides = dict.fromkeys((largest(rows), trained_at(rows)))
    return [*(verdict(rows, side) for side in sides), *order_words(rows, largest(rows)), *second_training(rows)]


def learned(rows: Sequence[ComparisonRow], encoding: str) -> bool:
    """Whether the mean of an encoding lies clearly above guessing at any size, as the images of one seed tell it."""
    mine = [row for row in picked(rows, TOP1) if row.encoding == encoding]
    return any(wilson_interval(row.value, row.count, CLEARLY)[0] > 1 / max(row.classes, 1) for row in mine)


def verdict(rows: Sequence[ComparisonRow], side: int) -> str:
    """Which encoding is highest at a size, and which others its interval over seeds leaves out."""
    some = picked(rows, TOP1, resolution=side)
    dull = [row for row in some if not learned(rows, row.encoding)]
    able = sorted((row for row in some if row not in dull), key=lambda row: -row.value)
    at = f"At {side}\u00a0px ({times(some[0])})" if side != trained_at(rows) else f"At {side}\u00a0px, as trained"
    guessing = words.percent(1 / max(some[0].classes, 1))
    if not able:
        return f"{at}, no verdict: the accuracy of no encoding is clearly above guessing ({guessing})."
    left = f" Not clearly above guessing ({guessing}): {_names(dull)}." if dull else ""
    best, *others = able
    reached = f"{best.encoding} {_over(best)}: {quantity(best)}"
    if not others:
        return f"{at}, {reached}.{left}"
    if any(row.interval is None for row in able):
        return f"{at}, no verdict: of one seed nothing is known of other trainings. The highest is {reached}.{left}"
    apart = [row for row in others if _apart(rows, best, row)]
    alike = [row for row in others if row not in apart]
    if not apart:
        why = "the highest mean cannot be told from any other by its interval over seeds and by the images"
        return f"{at}, no verdict: {why}. It is {reached}.{left}"
    said = f"{at}, the highest mean is {reached}. Its interval over seeds leaves out {_of(apart)}, and the images tell"
    said += " them apart too"
    more = f"; not so with {_names(alike)}: no verdict between these" if alike else ""
    return f"{said}{more}.{left}"


def _over(row: MeanRow) -> str:
    return f"over {len(row.seeds)} seed{'' if len(row.seeds) == 1 else 's'}"


def _names(some: Sequence[MeanRow]) -> str:
    return words.listed([row.encoding for row in some])


def _of(some: Sequence[MeanRow]) -> str:
    return ("that of " if len(some) == 1 else "those of ") + _names(some)


def _apart(rows: Sequence[ComparisonRow], one: MeanRow, other: MeanRow) -> bool:
    """Whether the pair's row has the intervals of the means apart, and no 0 in that over images."""
    both = {one.encoding, other.encoding}
    found = [row for row in of_kind(rows, DifferenceRow) if row.place == one.place and {row.first, row.second} == both]
    return any(row.apart is True and not row.over_images[0] <= 0 <= row.over_images[1] for row in found)


def order_words(rows: Sequence[ComparisonRow], side: int) -> list[str]:
    """How alike the order at a size is to the paper's, whatever it is."""
    said = []
    for row in (row for row in of_kind(rows, RankRow) if row.resolution == side and row.coefficient == "spearman"):
        names = f"the order of {len(row.encodings)} encodings at {side}\u00a0px ({times(row)}) with that of the paper's"
        place = f"table {row.table} at {row.shown}\u00a0px (Val)"
        if row.value is None:
            said.append(f"Spearman's correlation of {names} {place} has no value: nothing varies.")
            continue
        first = f"Spearman's correlation of {names} {place} is {coefficient(row.value)}"
        if row.interval is None:
            said.append(f"{first}; its interval is not known.")
            continue
        low, high = row.interval
        between = words.interval([coefficient(low), coefficient(high)])
        holds = " That holds 0: it is not ruled out that the orders have nothing in common." if low <= 0 <= high else ""
        seeds = ""
        if row.over_seeds is not None:
            again = words.interval([coefficient(limit) for limit in row.over_seeds])
            seeds = f", {again} with seeds drawn again"
        said.append(f"{first}, {between} with encodings drawn again{seeds} (95\u00a0%).{holds}")
    return said


def second_training(rows: Sequence[ComparisonRow]) -> list[str]:
    """What the second training gained at its size, seed by seed: for whom its sign is clear."""
    gains = []
    for row in picked(rows, TOP1, fine_tuned=True):
        before = [one for one in picked(rows, TOP1, resolution=row.resolution) if one.encoding == row.encoding]
        if before:
            gains.append((row.value - before[0].value, row))
    if not gains:
        return []
    names = {name: place for place, name in enumerate(order(rows))}
    gains.sort(key=lambda gain: names[gain[1].encoding])
    side, seeds = gains[0][1].resolution, _over(gains[0][1])
    told = words.listed([f"{row.encoding} {signed(gain)}" for gain, row in gains])
    return [f"The second training, at {side}\u00a0px, changes the mean top-1 there {seeds} by (points of %): {told}."]
